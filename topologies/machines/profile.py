"""Profiles of machines: read from this folder's tables, or from a file of a user, and made into fabrics.

    gpu = "h100"            # a name of gpus.toml, or a table: { like = "h100", link = "200GB/s" }
    gpus = 8                # of a node
    inside = "switch"       # switch, mesh (a link between every two), alone, or torus-2d or torus-3d of the nodes
    nic = "roce-400"        # a name of nics.toml, or a table: { like = "roce-400", reached = 0.82 }
    nics = 8                # nic and nics may be left out: a single node then
    cpu = "intel"           # intel, amd or arm
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Unpack

from topologies.boxes import boxes_of
from topologies.checks import Count, Integer, WeftError, checked, choice, integer, number, told, truth
from topologies.core.extents import parse_extents
from topologies.core.links import Times
from topologies.core.topology import Topology
from topologies.formats.nccl_schema import GPUS_OF_GCN, GPUS_OF_SM, NIC_CLASS, pcie_Bps
from topologies.lazy import later
from topologies.products import torus
from topologies.text.brief import one_line
from topologies.text.input_text import read_input
from topologies.text.kinds import MACHINE
from topologies.text.plain_data import parse_toml, read_toml
from topologies.text.plain_xml import Element
from topologies.text.schema import note
from topologies.units import PS_PER_S, Quantities, bytes_per_s, parse_bandwidth, parse_time

_NICS = {"ib": ("ib-edr", "ib-hdr", "ib-ndr", "ib-xdr"), "eth": ("roce-100", "roce-200", "roce-400", "roce-800")}
_RATES = (100, 200, 400, 800)
_CPUS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "arm64": "arm"}
_INFINIBAND = NIC_CLASS + "07"
_OF_A_LANE = 1.3
"""Bits of a lane of PCIe, of those that NCCL counts of it: a port that is slower is not held back."""


def machine_table(path: str) -> dict[str, Any]:
    """What a profile (`topologies.machines.profile`) would say; NICs by their rate and the class of their device.

    WeftError: several hosts, GPUs that no profile has, or that PCIe alone or a part of the links joins.
    """
    where = f"machine {path}"
    root, _ = later("topologies.formats.nccl_xml:read_system")(read_input(path, "machine"), path)
    if len({cpu.attributes["host_hash"] for cpu in root.children}) > 1:
        raise WeftError(f"{where} has several hosts: a machine is one node")
    every = [one for one in root.every() if one.tag == "gpu"]
    gpus = [one for one in every if "rank" in one.attributes] or every
    if not gpus:
        raise WeftError(f"{where} has no <gpu>, which its library finds on the machine: give a profile FILE.toml")
    kinds = {(one.attributes["gcn"], one.attributes["sm"]) for one in gpus}
    gcn, sm = min(kinds)
    known = next((name for begin, name in GPUS_OF_GCN.items() if gcn.startswith(begin)), "") or GPUS_OF_SM.get(sm)
    if len(kinds) > 1 or known is None:
        raise WeftError(f"{where}: GPUs with {'gcn' if gcn else 'sm'}={gcn or sm} have no profile: give a FILE.toml")
    name, each = known if isinstance(known, tuple) else (known, 0.0)
    links = {sum(one.whole("count", 1) for one in gpu.children if one.tag == "nvlink") for gpu in gpus}
    gpu: Any = {"like": name, "link": f"{max(links) * each:g}GB/s"} if each else name
    return {"gpu": gpu, "gpus": len(gpus), "inside": _inside(gpus, where), "cpu": _cpu(root), **_nics(root, where)}


def _inside(gpus: list[Element], where: str) -> str:
    ends = [[one for one in gpu.children if one.tag in ("nvlink", "xgmi")] for gpu in gpus]
    to_gpus = [[one for one in links if one.attributes["tclass"][:4] in ("0x03", "0x12")] for links in ends]
    if len(gpus) == 1:
        return "alone"
    if all(ends) and not any(to_gpus):
        return "switch"
    if all(len({one.attributes.get("target") for one in links}) == len(gpus) - 1 for links in to_gpus):
        return "mesh"
    raise WeftError(f"{where}: its GPUs are neither on a switch nor linked two by two: --topology {where.split()[1]} "
                    "simulates it")


def _cpu(root: Element) -> str:
    first = root.children[0].attributes
    found = _CPUS.get(first.get("vendor", "")) or _CPUS.get(first.get("arch", ""))
    if found is None:
        note(f"the CPU is taken as intel, for the file says {first.get('vendor') or 'nothing of it'}")
    return found or "intel"


def _nics(root: Element, where: str) -> dict[str, Any]:
    """One kind of NIC, and how many."""
    found: dict[int, tuple[int, bool]] = {}
    for card in root.every():
        for net in (net for nic in card.all("nic") for net in nic.all("net") if "dev" in net.attributes):
            fast = net.attributes.get("class", card.attributes.get("class", "")).startswith(_INFINIBAND)
            mbps, slot = net.whole("speed", -1), round(pcie_Bps(card) * 8e-6)
            if card.attributes.get("link_speed") and mbps > _OF_A_LANE * slot:
                note(f"NICs of {mbps / 1000:g} Gb/s are taken at {slot / 1000:g}, as their PCIe is")
                mbps = slot
            found[net.whole("dev")] = max(found.get(net.whole("dev"), (0, False)), (mbps, fast))
    if not found:
        return {}
    kinds = {*found.values()}
    mbps, infiniband = max(kinds)
    kind = next((at for at, rate in enumerate(_RATES) if rate * 1000 >= mbps), len(_RATES) - 1)
    name = _NICS["ib" if infiniband else "eth"][kind]
    used = [speed for speed, _ in found.values() if speed == mbps]
    note(f"{len(used)} NICs of {mbps / 1000:g} Gb/s are taken as {name}: a profile FILE.toml says another")
    return {"nic": {"like": name, "port": f"{mbps / 1000:g}Gb/s"}, "nics": len(used)}


FOLDER = Path(__file__).parent

OF_LINK = ("ring", "multicast")
"""Rates of a GPU that are shares of its link: where a profile changes the link alone, they change with it."""
INSIDE = ("switch", "mesh", "alone", "torus-2d", "torus-3d")
CPUS = ("intel", "amd", "arm")
_KEYS = ("gpu", "gpus", "inside", "nic", "nics", "cpu")
_ALONE = ("gpu", "gpus", "inside", "cpu")
"""Keys that a profile without NICs has."""

Table = Mapping[str, Any]


def _rate(value: Any, what: str) -> float:
    return parse_bandwidth(value, what)


def _seconds(value: Any, what: str) -> float:
    return parse_time(value, what) / PS_PER_S


def _rate_or_none(value: Any, what: str) -> float:
    if isinstance(value, bool) and value:
        raise WeftError(f"{what} is {told(value)}: give a rate, or false")
    return 0.0 if value is False else parse_bandwidth(value, what)


def _share(value: Any, what: str) -> float:
    return number(value, what, 0, 1, above=True)


def _word(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise WeftError(f"{what} is {told(value)}: give text")
    return value


@one_line
@dataclass(frozen=True)
class Gpu:
    """An accelerator; see `gpus.toml`. Rates in bytes/s per direction, times in seconds; 0 is unknown."""

    name: str
    architecture: str
    link: float
    ring: float = 0.0
    multicast: float = 0.0
    launch: float = 0.0
    launch_per_gpu: float = 0.0
    ramp: float = 0.0
    ramp_ll128: float = 0.0
    channel: float = 0.0


@one_line
@dataclass(frozen=True)
class Nic:
    """A NIC and its fabric; see `nics.toml`. Rate in bytes/s per direction, time in seconds."""

    name: str
    port: float
    reached: float
    messages: float
    latency: float
    ll128: bool
    handshake: float = 0.0
    handshake_simple: float = 0.0


NO_NIC = Nic("none", port=0.0, reached=0.0, messages=0.0, latency=0.0, ll128=False)

_READS: dict[type, dict[str, Callable[[Any, str], Any]]] = {
    Gpu: {"architecture": _word, "link": _rate, "ring": _rate, "multicast": _rate_or_none, "launch": _seconds,
          "launch_per_gpu": _seconds, "ramp": _seconds, "ramp_ll128": _seconds, "channel": _rate},
    Nic: {"port": _rate, "reached": _share, "messages": _share, "latency": _seconds, "ll128": truth,
          "handshake": _seconds, "handshake_simple": _seconds},
}


@checked
@one_line
@dataclass(frozen=True)
class Machine:
    """A node of a cluster.

    Examples
    --------
    >>> machine("dgx-h100").gpu.link / 1e9
    450.0
    """

    name: str
    gpu: Gpu
    gpus: Count  # of a node
    inside: str  # how they are joined; a torus joins nodes of one accelerator, without NICs
    nic: Nic
    nics: Annotated[int, Integer(0, 2**20)]  # ports of a node; 0: it stands alone
    cpu: str
    extents: tuple[int, ...] = ()  # of the torus; empty: a ring

    def __post_init__(self) -> None:
        choice(self.inside, INSIDE, f"{self.name}: inside")
        choice(self.cpu, CPUS, f"{self.name}: cpu")
        if self.dimensions and self.gpus > 1:
            raise WeftError(f"{self.name}: gpus is {self.gpus}: a torus joins nodes of one")
        if len(self.extents) > max(1, self.dimensions):
            said = "x".join(map(str, self.extents))
            raise WeftError(f"{self.name}:{said}: {said} has {len(self.extents)} extents, more than {self.inside} has")

    def check_joined(self, nodes: int) -> None:
        """WeftError: several nodes without NICs."""
        if nodes > 1 and not self.nics and not self.dimensions:
            raise WeftError(f"{self.name} has no NICs that join {nodes} nodes: give nic and nics in its profile")

    @property
    def dimensions(self) -> int:
        """Dimensions of the torus that joins nodes; 0 where none does."""
        return int(self.inside[-2]) if self.inside.startswith("torus") else 0

    def topology(self, nodes: int = 1, *, bandwidth: Quantities | None = None, **times: Unpack[Times]) -> Topology:
        """Fabric of some nodes; bandwidth per direction of a GPU inside a node and of a port, by default the raw rates.

        WeftError: fewer than one node, or a bad quantity.
        """
        if self.dimensions:
            rate = bytes_per_s(self.gpu.link / (2 * self.dimensions)) if bandwidth is None else bandwidth
            extents = self.extents if self.extents and math.prod(self.extents) == nodes else (nodes,)
            found = torus(extents, bandwidth=rate, **times)
            return replace(found, name=f"{self.name}:{'x'.join(map(str, extents))}")
        self.check_joined(nodes)
        port = self.nic.port or self.gpu.link  # of a single node, not used
        rates = (bytes_per_s(self.gpu.link), bytes_per_s(port)) if bandwidth is None else bandwidth
        return boxes_of(self.name, nodes, self.gpus, max(1, self.nics), self.inside == "mesh", bandwidth=rates, **times)


@cache
def _tables(kind: str) -> dict[str, Table]:
    return parse_toml((FOLDER / f"{kind}.toml").read_text(encoding="utf-8"), f"{kind}.toml")


@cache
def profiles(kind: str) -> dict[str, Table]:
    """The tables of `gpus`, `nics` or `boxes` by name, with what they take from another (`like`)."""
    found: dict[str, Table] = {}
    for name, table in _tables(kind).items():
        found[name] = {**found[table["like"]], **table} if "like" in table else table
    return found


@checked
def machine(name: str) -> Machine:
    """The machine of a name, of a profile (.toml), or of a topology file of NCCL or RCCL (.xml).

    WeftError: no such machine, an unreadable file, or a key or value that is not accepted.
    """
    if name.endswith(".xml"):
        return _machine(Path(name).stem, machine_table(name), f"machine {name}")
    if name.endswith(".toml"):
        return _machine(Path(name).stem, read_toml(name, "machine"), f"machine {name}")
    if Path(name).is_file():
        read_input(name, MACHINE)
    known = profiles("boxes")[choice(name, profiles("boxes"), "machine", ", or a file FILE.toml or FILE.xml")]
    return _machine(name, {key: value for key, value in known.items() if key != "source"}, f"machine {name}")


def machine_and_nodes(spec: str) -> tuple[Machine, int]:
    """The machine and the number of nodes of "dgx-h100:4", "mine.toml:4" or "tpu-v4:4x4x8"; one node unless given.

    WeftError: see `machine`.
    """
    name, _, count = spec.rpartition(":")
    if not name:
        return machine(spec), 1
    found = machine(name)
    try:
        extents = parse_extents(count, f"machine {spec}")
    except WeftError:
        torus_too = f", or {name}:4x4" if found.dimensions > 1 else ""
        raise WeftError(f"machine {spec}: {count!r} is no number of nodes: write {name}:4{torus_too}") from None
    if len(extents) > 1 and not found.dimensions:
        raise WeftError(f"machine {spec}: give a number of nodes, as in {name}:{extents[0]}; only a torus has extents")
    found.check_joined(math.prod(extents))
    return (replace(found, extents=extents) if found.dimensions else found), math.prod(extents)


def _machine(name: str, table: Table, where: str) -> Machine:
    for key in table:
        if key not in _KEYS:
            raise WeftError(f"{where} has the unknown key {key!r}: accepted are {', '.join(_KEYS)}")
    joined = "nic" in table or "nics" in table
    for key in _KEYS if joined else _ALONE:
        if key not in table:
            raise WeftError(f"{where} lacks the key {key!r}")
    return Machine(
        name, part(Gpu, "gpus", table["gpu"], f"{where}: gpu"), integer(table["gpus"], f"{where}: gpus", 1, 2**20),
        _word(table["inside"], f"{where}: inside"),
        part(Nic, "nics", table["nic"], f"{where}: nic") if joined else NO_NIC,
        integer(table["nics"], f"{where}: nics", 1, 2**20) if joined else 0, _word(table["cpu"], f"{where}: cpu"),
    )


def part(kind: type[Any], file: str, given: Any, where: str) -> Any:
    """A GPU or a NIC: by name, or a table of its own values over those of another.

    `kind`: `Gpu` or `Nic`; `file`: "gpus" or "nics"; `where` begins error messages.
    """
    own = {"like": given} if isinstance(given, str) else given
    if not isinstance(own, Mapping) or "like" not in own:
        raise WeftError(f'{where} is {told(given)}: give a name, or a table with like = "NAME" and what differs')
    like = choice(own["like"], profiles(file), where)
    values = {key: value[0] for key, value in profiles(file)[like].items() if key != "like" and value}
    reads = _READS[kind]
    changed: dict[str, Any] = {
        choice(key, reads, f"{where}: key"): reads[key](value, f"{where}: {key}")
        for key, value in own.items() if key != "like"
    }
    found = kind(like, **{key: reads[key](value, f"{where}: {key}") for key, value in values.items()})
    return _with_own_links(found, changed, where) if kind is Gpu else replace(found, **changed)


def _with_own_links(like: Gpu, changed: Mapping[str, Any], where: str) -> Gpu:
    """A GPU with values of its own; rates that are reached of a link follow the link."""
    factor = changed.get("link", like.link) / like.link
    scaled: dict[str, Any] = {key: getattr(like, key) * factor for key in OF_LINK}
    found = replace(like, **{**scaled, **changed})
    for key in OF_LINK:
        if getattr(found, key) > found.link:
            rate, link = (f"{value / 1e9:g}GB/s" for value in (getattr(found, key), found.link))
            raise WeftError(f"{where}: {key} is {rate}, more than the link of {link}: give what is reached of it")
    return found


def sources(kind: str) -> dict[str, dict[str, str]]:
    """Where each value of the GPUs or NICs comes from."""
    return {
        name: {key: pair[1] for key, pair in table.items() if key != "like" and pair}
        for name, table in profiles(kind).items()
    }


@cache
def origin(kind: str, name: str, key: str) -> tuple[str, str] | None:
    """Profile and key whose calibrated value this one is; None if it was not calibrated.

    Followed are `like`, and sources such as "as H100" and "as reached".
    """
    table = _tables(kind)[name]
    if key not in table:
        return origin(kind, table["like"], key) if "like" in table else None
    source = table[key][1] if table[key] else ""
    if source.startswith("calibrated"):
        return name, key
    other = source.removeprefix("as ").lower()
    if source.startswith("as ") and other in _tables(kind):
        return origin(kind, other, key)
    return origin(kind, name, other) if source.startswith("as ") and other in table else None


FIELDS = {kind: tuple(field.name for field in fields(kind)[1:]) for kind in (Gpu, Nic)}
"""What a table of a GPU and of a NIC may have."""
