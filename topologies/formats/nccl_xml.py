"""Topology XML of NCCL and RCCL, as `NCCL_TOPO_DUMP_FILE` writes it: one box, or copies connected by a switch per NIC.

It is read as the library reads it: attributes and elements that it does not know are passed over, absent ones have the
value that it takes (`ABSENT`), and what its dictionaries do not know has their fallback. The file has no latencies and
gives rates in units of its own, which are converted to bytes/s as the library does:

- NVLink: links x the rate of one link of the GPU's generation (`topologies.accelerators`); xGMI: likewise, by `gcn`;
- PCIe: `link_width` lanes x the rate of a lane at that `link_speed` (16 GT/s x16 is 24 GB/s);
- network: `speed` in Mb/s;
- between CPUs: by vendor and model.

Whatever carries no traffic is omitted: PCIe and CPUs in a single box whose GPUs all reach each other over NVLink,
bridges with one branch, and NICs with only a CPU behind them. A GPU reaches PCIe through a port of its own, so that
NVLink is the shorter path wherever there is one. A file without any <gpu>, which NCCL completes on the machine, has its
PCI devices of class 0x03 as GPUs, whose NVLinks the caller gives.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from topologies.accelerators import GENERATIONS, generation
from topologies.checks import WeftError, choice
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Cable, wired
from topologies.core.topology import Topology
from topologies.formats import nccl_schema as schema
from topologies.formats.slots import reached
from topologies.text.plain_xml import Element, parse_xml
from topologies.text.schema import fill, note, pass_over
from topologies.units import Quantity, counted, parse_bandwidth, parse_time

NVLINK, PCIE, NETWORK = 0, 1, 2
"""Tiers of the links."""

MOST_COPIES = 4096
NO_NVLINK = "none"
"""In place of a generation: the GPUs of a file without <gpu> have PCIe alone."""


class _Link(NamedTuple):
    """To another GPU of the same host by its bus, to its NVSwitch, or to the CPU of the GPU."""

    target: str
    rate_Bps: float
    to: str  # "gpu", "switch" or "cpu"


class _Gpu(NamedTuple):
    name: str
    place: tuple[str, str]  # host and bus
    links: tuple[_Link, ...]


@dataclass
class _Branch:
    """A node of the PCIe tree: a CPU, a bridge, a GPU's port, or a NIC; `rate_Bps` leads up."""

    name: str
    rate_Bps: float = 0.0
    gpu: _Gpu | None = None
    rail: int | None = None
    speed_Bps: float = 0.0
    below: "list[_Branch]" = field(default_factory=list)
    host: str = ""
    is_card: bool = False
    cpu: Element | None = None

    def all(self) -> "Iterator[_Branch]":
        yield self
        for one in self.below:
            yield from one.all()


def parse_nccl_xml(
    text: str, name: str, *, boxes: int = 1, bandwidth: Quantity | None = None, nvlink: str | None = None,
    nic_bandwidth: Quantity | None = None, latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network of a topology file of NCCL or RCCL.

    `name`: name of the file, for messages and tables.
    `boxes`: number of copies of the box; NIC d of each has a cable to the switch "rail" d.
    `bandwidth`: per direction of one NVLink or xGMI link (default: the library's value).
    `nvlink`: generation, or "none", of the GPUs of a file without <gpu>: all their links go to one NVSwitch.
    `nic_bandwidth`: of the NICs of a file that lists no <net>, of which the library asks the machine.
    `latency`, `hop_latency`: of every link, and of every switch; the file has neither.
    GPU g of copy c has rank c x GPUs + g, in the order of `rank` in the file.
    WeftError: not plain XML, no such file, an invalid value, or several copies without a NIC.
    """
    if not 1 <= boxes <= MOST_COPIES:
        raise WeftError(f"{name}: {boxes} copies requested; give 1 to {MOST_COPIES}")
    link_Bps = None if bandwidth is None else parse_bandwidth(bandwidth, "NVLink bandwidth")
    def complete(root: Element, tool: str) -> None:
        _complete(root, name, tool, nvlink)
        _with_nets(root, name, nic_bandwidth)

    root, tool = read_system(text, name, complete)
    reader = _Reader(name, tool, link_Bps)
    roots = reader.read(root)
    latency_ps = parse_time(latency, "latency")
    hop_ps = parse_time(hop_latency, "hop latency")
    builder = _Builder(name, reader.gpus(), roots, latency_ps, root.attributes["version"])
    for box in range(boxes):
        builder.add(box, boxes)
    if boxes > 1 and not builder.rails:
        why = f"NICs without <net>, of which {tool} asks the machine" if _bare(root) else "no NIC"
        instead = "--nic-bandwidth 200Gb/s" if _bare(root) else 'each <nic><net dev="0" speed="200000"/></nic>, in Mb/s'
        raise WeftError(f"{name} has {why}: {boxes} copies cannot be connected; give {instead}")
    switches = [*builder.switches, *builder.rails]
    title = name if boxes == 1 else f"{boxes} x {name}"
    return wired(title, builder.npus, switches, builder.cables, hop_ps, frozenset(builder.passive))


def read_system(
    text: str, name: str, complete: Callable[[Element, str], None] = lambda root, tool: None
) -> tuple[Element, str]:
    """The elements of a file, with what is absent, and the library that reads it; `complete` enters more before."""
    root = parse_xml(text, name, numbered=("pci",))
    if root.tag != "system":
        raise WeftError(f"{root.where} is not the root of an NCCL topology, which is <system>")
    tool = schema.tool_of(root)
    pass_over(root, schema.KNOWN, tool, name)
    complete(root, tool)
    _name_classes(root)
    fill(root, schema.ABSENT)
    return root, tool


def _bare(root: Element) -> list[Element]:
    """Devices that are NICs, and of which nothing is said."""
    return [one for one in root.every() if one.tag == "pci" and not one.children
            and one.attributes.get("class", "").startswith(schema.NIC_CLASS)]


def _with_nets(root: Element, name: str, rate: Quantity | None) -> None:
    """Enter the nets of NICs of which a file says nothing, each on a rail of its own."""
    if rate is None:
        return
    cards, listed = _bare(root), any(one.tag == "net" for one in root.every())
    if listed or not cards:
        raise WeftError(f"topology file {name!r} {'lists its NICs' if listed else 'has no NICs'}: omit NIC bandwidth "
                        f"{rate!r}")
    mbps = str(round(parse_bandwidth(rate, "NIC bandwidth") * 8 / 1e6))
    for at, card in enumerate(cards):
        nic = Element("nic", {}, card.where)
        nic.children.append(Element("net", {"dev": str(at), "speed": mbps}, card.where))
        card.children.append(nic)


def _complete(root: Element, name: str, tool: str, nvlink: str | None) -> None:
    """Enter the GPUs of a file that lists none: its devices of their class, each with all its links to one switch."""
    if any(one.tag == "gpu" for one in root.every()):
        if nvlink is not None:
            raise WeftError(f"topology file {name!r} lists the NVLinks of its GPUs: omit NVLink generation {nvlink!r}")
        return
    devices = [one for one in root.every() if one.tag == "pci"
               and one.attributes.get("class", "").startswith((schema.GPU_CLASS, schema.AMD_GPU_CLASS))]
    if not devices:
        raise WeftError(f"{name} has no <gpu>, and no <pci> of the class {schema.GPU_CLASS}")
    if nvlink is None:
        raise WeftError(f"{name} has no <gpu>: {tool} finds the links of its {counted(len(devices), 'GPU')} on the "
                        "machine; give --nvlink 3 for A100, 4 for H100, 5 for B200 behind NVSwitches, or --nvlink none")
    links = 0
    if nvlink != NO_NVLINK:
        choice(nvlink, (*GENERATIONS, NO_NVLINK), "NVLink generation")
        links = generation(nvlink).links
        gpus = counted(len(devices), "GPU")
        note(f"{name} has no <gpu>: all {links} NVLinks of each of its {gpus} go to one NVSwitch")
    for rank, device in enumerate(devices):
        sm = {"1": 60, "2": 70, "3": 80, "4": 90, "5": 100}.get(nvlink, 0)
        gpu = Element("gpu", {"rank": str(rank), "sm": str(sm)}, device.where)
        if links:
            gpu.children.append(Element("nvlink", {"target": "nvswitch", "count": str(links)}, device.where))
        device.children.append(gpu)


def _name_classes(root: Element) -> None:
    """The class of a link's other end, where a link does not say it and the end is a GPU of this file."""
    buses = {one.attributes.get("busid") for one in root.every() if one.tag == "pci" and one.all("gpu")}
    for one in root.every():
        if one.tag in ("nvlink", "xgmi") and one.attributes.get("target") in buses:
            one.attributes.setdefault("tclass", schema.GPU_CLASS)


class _Reader:
    """Turns elements into branches."""

    def __init__(self, name: str, tool: str, link_Bps: float | None) -> None:
        self.name, self.tool, self.link_Bps = name, tool, link_Bps
        self.found: dict[int, _Gpu] = {}
        self.hosts: list[str] = []
        self.cards: dict[tuple[str, str], _Branch] = {}
        self.rails: dict[tuple[str, int], _Branch] = {}
        self.names: Counter[str] = Counter()

    def read(self, root: Element) -> list[_Branch]:
        self.hosts = list(dict.fromkeys(cpu.attributes["host_hash"] for cpu in root.children))
        self._number(root)
        roots = [self._gather(_Branch(f"cpu{at}", host=cpu.attributes["host_hash"], cpu=cpu), cpu)
                 for at, cpu in enumerate(root.children)]
        if not self.found:
            raise WeftError(f"{self.name} has no <gpu> with a rank")
        return roots

    def gpus(self) -> list[_Gpu]:
        """By rank, with links to GPUs of this file alone: the library ignores others, and those to the GPU itself."""
        here = {gpu.place for gpu in self.found.values()}
        found, left = [], 0
        for _, gpu in sorted(self.found.items()):
            host, bus = gpu.place
            links = tuple(link for link in gpu.links
                          if link.to != "gpu" or (link.target != bus and (host, link.target) in here))
            left += len(gpu.links) - len(links)
            found.append(gpu._replace(links=links))
        if left:
            note(f"{self.name}: passed over, as {self.tool} does: {counted(left, 'link')} of a GPU to itself or to "
                 "none of this file")
        return found

    def _number(self, root: Element) -> None:
        """Ranks as the file has them; where it has none, by `dev`, else in its order. Others do not take part."""
        gpus = [one for one in root.every() if one.tag == "gpu"]
        if any("rank" in one.attributes for one in gpus):
            without = sum("rank" not in one.attributes for one in gpus)
            if without:
                note(f"{self.name}: passed over, as {self.tool} does: {counted(without, 'GPU')} without a rank")
            return
        order = sorted(gpus, key=lambda one: one.whole("dev")) if all("dev" in one.attributes for one in gpus) else gpus
        for rank, gpu in enumerate(order):
            gpu.attributes["rank"] = str(rank)

    def _gather(self, branch: _Branch, element: Element) -> _Branch:
        for child in element.children:
            if child.tag == "pci":
                branch.below += self._pci(child, branch.host)
            elif child.tag == "nic":
                branch.below += self._nic(child, schema.LOC_BPS, branch.host, branch.name)
        return branch

    def _pci(self, element: Element, host: str) -> list[_Branch]:
        rate, busid = schema.pcie_Bps(element), element.text("busid")
        gpus = [one for one in element.all("gpu") if "rank" in one.attributes]
        others = [one for one in element.children if one.tag != "gpu"]
        if len(gpus) > 1 or (gpus and others):
            raise WeftError(f"{element.where} holds a GPU and other devices")
        if gpus:
            gpu = self._gpu(gpus[0], (host, busid))
            return [_Branch(f"port-{gpu.name}", rate, gpu, host=host)]
        if element.all("nic"):
            return [port for nic in element.all("nic") for port in self._nic(nic, rate, host, busid)]
        return [self._gather(_Branch(self._name(f"pcie-{busid}", host), rate, host=host), element)]

    def _gpu(self, element: Element, place: tuple[str, str]) -> _Gpu:
        rank = element.whole("rank")
        if rank in self.found:
            raise WeftError(f"{element.where} has rank={rank}, already taken by the GPU at {self.found[rank].place[1]}")
        gpu = _Gpu(f"gpu{rank}", place, tuple(self._link(one, element) for one in element.children))
        self.found[rank] = gpu
        return gpu

    def _link(self, element: Element, gpu: Element) -> _Link:
        if element.tag == "c2c":
            return _Link("", element.whole("count", 1) * element.whole("bw", 1) * 1e6, "cpu")
        rate = self.link_Bps or (schema.xgmi_Bps if element.tag == "xgmi" else schema.nvlink_Bps)(gpu)
        kind = element.attributes["tclass"]
        to = "cpu" if kind.startswith(schema.CPU_LINK_CLASS) else "switch"
        to = "gpu" if kind.startswith((schema.GPU_CLASS, schema.AMD_GPU_CLASS)) else to
        return _Link(element.text("target"), element.whole("count", 1) * rate, to)

    def _nic(self, element: Element, rate: float, host: str, busid: str) -> list[_Branch]:
        """A card, whose functions share its slot, with a port for each net; none if the card is known already."""
        ports: list[_Branch] = []
        for net in element.children:
            if "dev" not in net.attributes or net.attributes["net"] == "0":
                continue
            rail, speed = net.whole("dev"), net.whole("speed", -1)
            mbps = speed if speed > 0 else schema.LEAST_NET_MBPS
            port = _Branch(self._name(f"nic{rail}", host), schema.LOC_BPS, None, rail, mbps * 1e6 / 8, host=host)
            other = self.rails.get((host, rail))
            if other is not None:
                both = port.speed_Bps == other.speed_Bps
                use = "both are on one rail" if both else "the faster of them is used"
                note(f"{net.where} has dev={rail}, as another NIC has: {use}")
                if port.speed_Bps < other.speed_Bps:
                    continue
                for below in [] if both else [ports, *(card.below for card in self.cards.values())]:
                    below[:] = [one for one in below if one is not other]
            self.rails[host, rail] = port
            ports.append(port)
        place = host, busid.rpartition(".")[0] or busid
        known = place in self.cards
        card = self.cards.setdefault(place, _Branch(self._name(f"card-{busid}", host), rate, host=host, is_card=True))
        card.below += ports
        return [] if known else [card]

    def _name(self, name: str, host: str) -> str:
        """A name of its own, whatever hosts share and some files have twice."""
        whole = f"host{self.hosts.index(host)}-{name}" if len(self.hosts) > 1 else name
        self.names[whole] += 1
        return whole if self.names[whole] == 1 else f"{whole}-{self.names[whole]}"


class _Builder:
    """Collects nodes and cables, copy by copy."""

    def __init__(
        self, name: str, gpus: Sequence[_Gpu], roots: Sequence[_Branch], latency_ps: int, version: str
    ) -> None:
        self.name, self.gpus, self.latency_ps, self.version = name, gpus, latency_ps, version
        self.by_place = {gpu.place: gpu.name for gpu in gpus}
        rails = _rails(roots)
        self.roots = [trimmed for root in roots if (trimmed := _trim(root, rails)) is not None]
        self.hosts = len({root.host for root in self.roots})
        self.npus: list[str] = []
        self.switches: list[str] = []
        self.rails: dict[str, None] = {}
        self.passive: list[str] = []
        self.cables: list[Cable] = []

    def add(self, copy: int, copies: int) -> None:
        """One more box."""
        prefix = f"box{copy}-" if copies > 1 else ""
        self.npus += [prefix + gpu.name for gpu in self.gpus]
        self._nvlinks(prefix)
        if copies == 1 and _all_joined(self.gpus):
            return
        for root in self.roots:
            self.switches.append(prefix + root.name)
            self._tree(root, prefix, copies > 1 or self.hosts > 1)
            self._to_cpu(root, prefix)
        self._cpus(prefix)

    def _to_cpu(self, root: _Branch, prefix: str) -> None:
        """Links of GPUs to their own CPU beside PCIe."""
        for gpu in [one.gpu for one in root.all() if one.gpu is not None]:
            self.cables += [Cable((prefix + gpu.name, prefix + root.name), link.rate_Bps, self.latency_ps, PCIE)
                            for link in gpu.links if link.to == "cpu"]

    def _cpus(self, prefix: str) -> None:
        for at, one in enumerate(self.roots):
            for other in self.roots[:at]:
                if one.host == other.host:
                    ends = [end.cpu for end in (one, other) if end.cpu is not None]
                    rate = min(schema.between_cpus_Bps(end, self.version) for end in ends)
                    self.cables.append(Cable((prefix + one.name, prefix + other.name), rate, self.latency_ps, PCIE))

    def _nvlinks(self, prefix: str) -> None:
        switched = False
        joined: set[tuple[str, str]] = set()
        rates: dict[tuple[str, str], float] = {}
        for gpu in self.gpus:
            for link in gpu.links:
                if link.to == "gpu":
                    way = gpu.name, self.by_place[gpu.place[0], link.target]
                    rates[way] = rates.get(way, 0.0) + link.rate_Bps
        for (one, other), rate in rates.items():
            if rates.get((other, one), rate) != rate:
                raise WeftError(f"{self.name}: links from {one} to {other} have {rate / 1e9:g} GB/s, and those back "
                                f"{rates[other, one] / 1e9:g} GB/s: both ends must list the same links")
        for gpu in self.gpus:
            for link in gpu.links:
                ends = prefix + gpu.name, f"{prefix}nvswitch"
                if link.to == "cpu":
                    continue
                if link.to == "gpu":
                    ends = prefix + gpu.name, prefix + self.by_place[gpu.place[0], link.target]
                    if ends[::-1] in joined:  # both ends list the cable
                        continue
                    joined.add(ends)
                switched |= link.to == "switch"
                self.cables.append(Cable(ends, link.rate_Bps, self.latency_ps, NVLINK))
        if switched:
            self.switches.append(f"{prefix}nvswitch")

    def _tree(self, branch: _Branch, prefix: str, with_rails: bool) -> None:
        for one in branch.below:
            if one.rail is not None and not with_rails:
                continue
            self.cables.append(Cable((prefix + branch.name, prefix + one.name), one.rate_Bps, self.latency_ps, PCIE))
            self.switches.append(prefix + one.name)
            if one.is_card:
                self.passive.append(prefix + one.name)
            if one.gpu is not None:
                self.cables.append(
                    Cable((prefix + one.name, prefix + one.gpu.name), one.rate_Bps, self.latency_ps, PCIE)
                )
                self.passive.append(prefix + one.name)
            elif one.rail is not None:
                self.rails[f"rail{one.rail}"] = None
                self.cables.append(
                    Cable((prefix + one.name, f"rail{one.rail}"), one.speed_Bps, self.latency_ps, NETWORK)
                )
                self.passive.append(prefix + one.name)
            self._tree(one, prefix, with_rails)


def _rails(roots: Sequence[_Branch]) -> frozenset[int]:
    """NICs that share a CPU with a GPU; all of them if there is none."""
    near = [root for root in roots if any(one.gpu for one in root.all())]
    for group in (near, roots):
        if rails := frozenset(one.rail for root in group for one in root.all() if one.rail is not None):
            return rails
    return frozenset()


def _trim(branch: _Branch, rails: frozenset[int], top: bool = True) -> _Branch | None:
    """Remove dead ends and bridges with one branch; a chain has the rate of its slowest link."""
    if branch.gpu is not None or branch.rail is not None:
        return branch if branch.gpu is not None or branch.rail in rails else None
    below = [one for child in branch.below if (one := _trim(child, rails, top=False)) is not None]
    if not below:
        return None
    if len(below) == 1 and not top:
        below[0].rate_Bps = min(below[0].rate_Bps, branch.rate_Bps)
        return below[0]
    return replace(branch, below=below)


def _all_joined(gpus: Sequence[_Gpu]) -> bool:
    """Whether every GPU reaches every other over NVLink."""
    on_switch = [any(link.to == "switch" for link in gpu.links) for gpu in gpus]
    near = [{(gpu.place[0], link.target) for link in gpu.links if link.to == "gpu"} for gpu in gpus]
    joined = [[other.place in near[a] or (on_switch[a] and on_switch[b]) for b, other in enumerate(gpus)]
              for a in range(len(gpus))]
    return len(reached(joined)) == len(gpus)
