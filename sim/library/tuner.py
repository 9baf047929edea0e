"""NCCL's model of its own algorithms: latency and bandwidth of each, by protocol, on a machine.

The formulas are those of NCCL's tuner, with the rates that machines reach (`topologies.machines`) where NCCL assumes
some. Latencies in us, bandwidths in GB/s of the array, as nccl-tests counts it ("algbw").
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from topologies.checks import Choice, Count, WeftError, checked, choice
from topologies.machines.profile import Machine
from topologies.text.brief import one_line
from topologies.text.plain_data import parse_toml
from topologies.units import counted

PROTOCOLS = ("LL", "LL128", "Simple")
ALGORITHMS = ("Ring", "Tree", "NVLS", "NVLSTree", "CollNet", "PAT", "send/recv")
SENDRECV = "send/recv"
ROOTED = ("broadcast", "reduce")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", *ROOTED, "all-to-all", SENDRECV)
LIBRARIES = ("nccl", "rccl")
NEWEST = (2, 30)
_OLDEST = (2, 12)
_PAT, _BLACKWELL = (2, 23), (2, 25)
PAT_SHARE = 0.75
"""Of the rate of rings, that PAT reaches by the library's own tables."""
_NVLS, _NVLS_TREE = (2, 17), (2, 18)
_SHARP_OF_NIC, _SHARP_OF_RING = 0.8, 0.46
"""nccl 320, a maintainer: 20 GB/s for a port of 200 Gb/s; 110 GB/s for 240 GB/s of NVLink."""


@cache
def tables() -> dict[str, Any]:
    """`nccl.toml`: constants of the newest version, by which times are estimated; see `of_version`."""
    return parse_toml((Path(__file__).parent / "nccl.toml").read_text(encoding="utf-8"), "nccl.toml")


@cache
def of_version(number: tuple[int, int]) -> dict[str, Any]:
    """The constants by which a version chooses."""
    found = tables()
    for older in tables()["older"]:
        if number < version(f"nccl:{older['before']}"):
            found = _merged(found, older)
    return found


def _merged(one: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    return dict(one) | {
        key: _merged(one[key], value) if isinstance(value, Mapping) else value for key, value in over.items()
    }


def version(library: str) -> tuple[int, int]:
    """The version of "nccl", "nccl:2.27" or "rccl".

    WeftError: another library, or a version that is not modeled.
    """
    name, colon, number = library.partition(":")
    if name not in LIBRARIES:
        raise WeftError(f"library {library!r} is unknown: choose nccl, nccl:2.27 (or another version) or rccl")
    if not colon:
        return NEWEST
    parts = number.split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise WeftError(f"library {library!r}: write its version as in nccl:2.27")
    found = int(parts[0]), int(parts[1])
    if not _OLDEST <= found < (3, 0):
        raise WeftError(f"library {library!r}: versions from 2.12 to those before 3.0 are modeled")
    return found


def runs_on(library: str, machine: Machine) -> None:
    """Check that a library is that of a machine's GPUs.

    WeftError: RCCL without GPUs of AMD, or NCCL on them.
    """
    name = library.partition(":")[0]
    own = "rccl" if machine.gpu.architecture == "cdna" else "nccl"
    if name != own and machine.gpu.architecture in tables()["architecture"]:
        raise WeftError(f"{machine.name} has {machine.gpu.name}, whose library is {own}, not {name}: --library {own}")


class Reached(NamedTuple):
    """Constants of the library that were calibrated: `[reached]` of `nccl.toml`."""

    multicast_ramp: float
    network_channel: float
    most_of_a_channel: float
    send: float
    peer: float
    scatter: float


@cache
def reached() -> Reached:
    """Those of `nccl.toml`."""
    return Reached(**{name: float(value) for name, (value, _) in tables()["reached"].items()})


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Setting:
    """A collective on some nodes of a machine."""

    machine: Machine
    nodes: Count
    gpus: Count  # used of every node
    collective: Annotated[str, Choice(COLLECTIVES)]
    version: tuple[int, int] = NEWEST
    # algorithms, protocols: the library is told to choose among these (`NCCL_ALGO`, `NCCL_PROTO`); empty: free
    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    gpus_per_process: Count = 1
    graphs: bool = False  # whether CUDA graphs start the collectives: no time to launch
    reached: Reached = field(default_factory=reached)

    def __post_init__(self) -> None:
        gpu = self.machine.gpu
        if gpu.architecture not in tables()["architecture"]:
            raise WeftError(f"{self.machine.name} has {gpu.name}: only NCCL and RCCL are modeled")
        if self.gpus > self.machine.gpus:
            raise WeftError(f"{self.machine.name} has {counted(self.machine.gpus, 'GPU')} a node, not {self.gpus}")
        self.machine.check_joined(self.nodes)
        if self.gpus_per_process > self.gpus:
            raise WeftError(f"a process drives {counted(self.gpus_per_process, 'GPU')}, but a node has {self.gpus}")
        for what, given, known in (("algorithm", self.algorithms, ALGORITHMS), ("protocol", self.protocols, PROTOCOLS)):
            for one in given:
                choice(one, known, f"library's {what}")
        if self.n < 2:
            raise WeftError(f"{self.collective} on one GPU of {self.machine.name} moves nothing: give more GPUs")

    @property
    def n(self) -> int:
        """Ranks."""
        return self.nodes * self.gpus

    @property
    def nics(self) -> int:
        """Ports in use of a node: those of the GPUs in use."""
        return max(1, self.machine.nics * self.gpus // self.machine.gpus)

    @property
    def inside_GBps(self) -> float:
        """Rate of a ring inside a node; infinite with one GPU.

        A ring over several nodes has a hop less in each: where every hop has its own links, those carry more.
        """
        if self.gpus == 1:
            return math.inf
        spare = self.nodes > 1 and self.machine.inside == "mesh"
        return self.machine.gpu.ring / 1e9 * (self.gpus / (self.gpus - 1) if spare else 1.0)

    @property
    def between_GBps(self) -> float:
        """Rate at which a ring leaves a node; infinite with one node."""
        nic = self.machine.nic
        return self.nics * nic.port * nic.reached / 1e9 if self.nodes > 1 else math.inf

    @property
    def launch_s(self) -> float:
        """Least time between two collectives."""
        if self.graphs:
            return 0.0
        gpu, driven = self.machine.gpu, self.gpus_per_process
        return gpu.launch + (gpu.launch_per_gpu * driven if driven > 1 else 0.0)

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests has it."""
        if self.collective == "all-reduce":
            return 2 * (self.n - 1) / self.n
        return 1.0 if self.collective in (*ROOTED, SENDRECV) else (self.n - 1) / self.n

    @property
    def channels(self) -> int:
        """Channels of rings and trees."""
        most = int(tables()["architecture"][self.machine.gpu.architecture]["channels"])
        if self.nodes == 1:
            return most
        return self.nics if self.machine.gpu.architecture == "blackwell" else max(2 * self.nics, 2)


class Candidate(NamedTuple):
    """An algorithm by a protocol: latency and bandwidth, and those that the library believes in; network hops.

    `message`: share of the array that a network message carries.
    """

    algorithm: str
    protocol: str
    latency_us: float
    algbw_GBps: float
    believed_us: float
    believed_GBps: float
    hops: float = 0.0
    message: float = 1.0


class _View(NamedTuple):
    """Of what an estimate is made: constants, GB/s of a ring inside a node and out of it, depth of a tree of nodes.

    `chooses`: it is the library's own, by which it chooses: constants of its version, rates that it assumes.
    """

    known: Mapping[str, Any]
    inside: float
    between: float
    depth: int
    chooses: bool = False

    def cap(self, setting: Setting, name: str) -> float:
        """A bandwidth of one channel, times the channels."""
        per_channel = self.known["architecture"][setting.machine.gpu.architecture][name]
        return float(per_channel[min(setting.nodes, 3) - 1]) * setting.channels

    def hop(self, setting: Setting, name: str, at: int) -> float:
        """Latency of a network hop."""
        return float(self.known[name][at]) + setting.machine.nic.latency * 1e6


def _views(setting: Setting) -> tuple[_View, _View]:
    """That of the machine, and that of the library. Its trees are binary, of which it counts one level too few."""
    nodes, inside = setting.nodes, setting.inside_GBps
    assumed = tables()["assumed_of_port"] * setting.nics * setting.machine.nic.port / 1e9 if nodes > 1 else math.inf
    return (
        _View(tables(), inside, setting.between_GBps, (nodes - 1).bit_length()),
        _View(of_version(setting.version), inside, assumed, nodes.bit_length() - 1, chooses=True),
    )


def candidates(setting: Setting) -> list[Candidate]:
    """Algorithms by protocols that the library chooses among.

    WeftError: none of those that it is told to take.
    """
    found = [
        one for one in _every(setting)
        if (not setting.algorithms or one.algorithm in setting.algorithms)
        and (not setting.protocols or one.protocol in setting.protocols)
        and (one.algorithm != "CollNet" or "CollNet" in setting.algorithms)
    ]
    if not found:
        wanted = " ".join((*setting.algorithms, *setting.protocols))
        raise WeftError(f"{setting.collective} on {setting.nodes} x {setting.gpus} GPUs has no {wanted}")
    return found


def _every(setting: Setting) -> Iterator[Candidate]:
    if setting.collective in ("all-to-all", SENDRECV):
        yield Candidate(SENDRECV, "Simple", *messages(setting), 0.0, 1.0)
        return
    views, nodes = _views(setting), setting.nodes
    known = setting.machine.gpu.architecture != "blackwell" or setting.version >= _BLACKWELL
    protocols = PROTOCOLS if known and (nodes == 1 or setting.machine.nic.ll128) else ("LL", "Simple")
    rooted, both = setting.collective in ROOTED, setting.collective == "all-reduce"
    hops, message = _ring_hops(setting), 1.0 if rooted else 1 / setting.n
    for protocol in protocols:
        (own, rate), believed = (_ring(setting, view, protocol) for view in views)
        yield Candidate("Ring", protocol, own, rate, *believed, hops, message)
    if both:
        for protocol in protocols:
            (own, rate), believed = (_tree(setting, view, protocol) for view in views)
            yield Candidate("Tree", protocol, own, rate, *believed, 2 * views[0].depth)
        reduces = setting.machine.gpu.multicast and setting.machine.inside == "switch" and setting.gpus > 1
        if reduces and setting.version >= (_NVLS if nodes == 1 else _NVLS_TREE):
            (own, rate), believed = (_nvls(setting, view) for view in views)
            name = "NVLS" if nodes == 1 else "NVLSTree"
            yield Candidate(name, "Simple", own, rate, *believed, 2 * views[0].depth)
        if nodes > 1:
            raw = setting.nics * setting.machine.nic.port / 1e9
            algbw = min(_SHARP_OF_NIC * raw, _SHARP_OF_RING * setting.inside_GBps)
            yield Candidate("CollNet", "Simple", 31.0, algbw, 31.0, algbw)
    elif setting.gpus == 1 and setting.version >= _PAT and not rooted:
        (own, rate), believed = (_pat(setting, view) for view in views)
        yield Candidate("PAT", "Simple", own, rate, *believed)


def ll_GBps(setting: Setting, known: Mapping[str, Any] | None = None) -> float:
    """What LL moves in total: inside a node what GPUs copy, between nodes what CPUs pass on."""
    known = known or tables()
    if setting.nodes == 1:
        return float(known["architecture"][setting.machine.gpu.architecture]["ll"])
    return float(known["post_ll"][setting.machine.cpu][0 if setting.nodes == 2 else 1])


def _hop(setting: Setting, kind: str) -> str:
    return f"{'pcie' if setting.machine.gpu.name == 'rtx-pcie' else 'nvlink'}_{kind}"


def _ring_hops(setting: Setting) -> int:
    """Network hops of a ring; one from a root enters the root's node by another GPU in the end."""
    nodes = setting.nodes
    if setting.collective in ROOTED and nodes > 1 < setting.gpus:
        return nodes
    return (2 if setting.collective == "all-reduce" else 1) * (nodes - 1)


def _ring(setting: Setting, view: _View, protocol: str) -> tuple[float, float]:
    known, at, n = view.known, PROTOCOLS.index(protocol), setting.n
    both, rooted = setting.collective == "all-reduce", setting.collective in ROOTED
    steps, between = (2 if both else 1) * (n - 1), _ring_hops(setting)
    hop, inside = view.hop(setting, "network_ring", at), known[_hop(setting, "ring")][at]
    if view.chooses and setting.gpus == 1 and known["one_gpu_as_tree"]:
        hop = view.hop(setting, "network_tree", at)
    if between and protocol == "LL":
        inside *= known["ll_inside_between_nodes"]
    if between and not rooted:
        inside = max(inside, known["network_post"][setting.machine.cpu] * (3 if protocol == "Simple" else 1))
    if view.chooses and both and between:
        between += known["ring_hops_more"]
    latency = known["base_ring"][at] + (steps - between) * inside + between * hop
    if view.chooses and rooted:  # one hop, however long the chain
        latency = known["base_ring"][at] + (known["network_ring"][at] if between else inside)
    if view.chooses and both and between and protocol == "Simple":
        latency *= known["plateau"][setting.machine.gpu.architecture]
    rate = min(view.inside, view.between)
    reduces = setting.nodes > 1 or setting.collective in ("all-reduce", "reduce")
    busbw = {
        "LL": min(ll_GBps(setting, known), known["ll_share"][0 if reduces else 1] * rate),
        "LL128": min(known["ll128_share"][0 if setting.gpus == 1 else 1] * rate, view.cap(setting, "ring_ll128")),
        "Simple": rate,
    }[protocol]
    return latency, busbw / setting.bus_factor


def _tree(setting: Setting, view: _View, protocol: str) -> tuple[float, float]:
    known, at, nodes = view.known, PROTOCOLS.index(protocol), setting.nodes
    inside, hop = known[_hop(setting, "tree")][at], view.hop(setting, "network_tree", at)
    if nodes > 1 and protocol == "LL":
        inside *= known["ll_inside_between_nodes"]
    latency = known["base_tree"][at] + 2 * ((setting.gpus - 1) * inside + view.depth * hop)
    # of two nodes, each sends only half of what it does in a ring, if links inside carry twice what the NICs do
    half = nodes == 2 and setting.machine.inside != "mesh"
    rate = min(known["tree_share"] * min(view.inside, (2 if half else 1) * view.between), view.cap(setting, "tree"))
    if protocol == "LL":
        rate = min(known["tree_ll_share"] * rate, ll_GBps(setting, known))
    elif protocol == "LL128":
        rate = min(known["tree_ll128_share"][min(nodes, 3) - 1] * rate, view.cap(setting, "tree_ll128"))
    return latency, rate / 2


def _nvls(setting: Setting, view: _View) -> tuple[float, float]:
    """All-reduce by reducing switches, and a tree between nodes."""
    known, gpus, nodes = view.known, setting.gpus, setting.nodes
    wire = setting.machine.gpu.multicast / 1e9
    inside = max(wire * gpus / (gpus + 1), view.inside * gpus / (2 * (gpus - 1)))
    between = view.between * (1.0 if nodes == 2 else 0.5)
    if view.chooses and (share := known["nvls_share"]):
        inside, between = share * view.inside, share * between
    elif view.chooses:  # of 16 channels one less, in both directions at once
        factor = setting.n / (2 * (setting.n - 1))
        inside = 2 * known["nvls_efficiency"][setting.machine.gpu.architecture] * view.inside * factor * 15 / 16
        most = known["nvlstree_channel"][setting.machine.gpu.architecture][0 if nodes == 2 else 1] * setting.nics
        between = min((2 if nodes == 2 else 1) * view.between, most) * factor
    if nodes == 1:
        return known["nvls"], inside
    return known["nvls"] + 2 * view.depth * view.hop(setting, "network_nvlstree", 0), min(inside, between)


def _pat(setting: Setting, view: _View) -> tuple[float, float]:
    latency = 8.0 + view.depth * view.hop(setting, "network_ring", 2) / 3.5 + setting.n * 2.8
    return latency, PAT_SHARE * view.between / setting.bus_factor


def messages(setting: Setting) -> tuple[float, float]:
    """Latency and bandwidth of an all-to-all, or of a ring of single messages without their channels."""
    known, nic, n = setting.reached, setting.machine.nic, setting.n
    if setting.collective == SENDRECV:
        if setting.nodes == 1:
            return known.send, setting.inside_GBps
        port = nic.port * nic.reached / 1e9 * max(1, setting.nics // setting.gpus)
        return known.send + nic.latency * 1e6, min(known.network_channel, port)
    if setting.nodes == 1:
        return known.scatter, setting.inside_GBps * n / (n - 1)
    away = (n - setting.gpus) / n
    # Where GPUs share NICs unevenly, those that share one with most are the last.
    a_gpu = setting.nics / setting.gpus if setting.nics >= setting.gpus else 1 / math.ceil(setting.gpus / setting.nics)
    rate = a_gpu * nic.port * nic.messages / 1e9
    within = setting.machine.gpu.ring / 1e9 * n / (setting.gpus - 1) if setting.gpus > 1 else math.inf
    return known.send + known.peer * n + nic.latency * 1e6, min(rate / away, within)


def channel_GBps(setting: Setting, size_bytes: int) -> float:
    """What the channels of a single message inside a node copy: as many as there are for a peer, doubled by size."""
    channels = max(1, 32 // setting.n)
    while channels < 32 and size_bytes / channels > setting.reached.most_of_a_channel:
        channels *= 2
    return channels * setting.machine.gpu.channel / 1e9
