"""NCCL topology XML, as written by `NCCL_TOPO_DUMP_FILE`: one box, or several copies connected by one switch per NIC.

The file has no latencies and gives rates in units of its own. These are converted to bytes/s as NCCL does:

- NVLink: links x the rate of one link of the GPU's generation (`topologies.nvlink`);
- PCIe: `link_width` lanes x the rate of a lane at that `link_speed` (NCCL's `kvDictPciGen`: 16 GT/s x16 is 24 GB/s);
- network: `speed` in Mb/s;
- between CPUs: 16 GB/s for AMD, 10 for Intel, 6 for Arm, 32 for POWER, NCCL's values for older models.

Whatever carries no traffic is omitted: PCIe and CPUs in a single box whose GPUs all reach each other over NVLink,
bridges with one branch, and NICs with only a CPU behind them. A GPU reaches PCIe through a port of its own, so that
NVLink is the shorter path wherever there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topologies.checks import WeftError
from topologies.core.custom import Cable, wired
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.core.topology import Topology
from topologies.nvlink import link_of_sm
from topologies.text.plain_xml import Element, parse_xml
from topologies.units import Quantity, parse_bandwidth, parse_time

NVLINK, PCIE, NETWORK = 0, 1, 2
"""Tiers of the links."""

MOST_COPIES = 4096

CPU_NIC_BPS = 1e12
"""Between a CPU and a NIC built into it rather than on PCIe: the network is the limit."""

_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "system": (("version",), ("cpu",)),
    "cpu": (("host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"), ("pci", "nic")),
    "pci": (("busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"),
            ("pci", "gpu", "nic")),
    "gpu": (("dev", "sm", "rank", "gdr"), ("nvlink",)),
    "nic": ((), ("net",)),
    "net": (("name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "rail", "plane", "keep"), ()),
    "nvlink": (("target", "count", "tclass"), ()),
}
"""Accepted attributes and children of each element."""

_LANE_SPEED = re.compile(r"^([0-9]+(?:\.[0-9]+)?) GT/s(?: PCIe)?$")
_SWITCH_CLASS, _GPU_CLASS = "0x0680", "0x03"
_LANE_GBPS = {2.5: 1.5, 5.0: 3.0, 8.0: 6.0, 16.0: 12.0, 32.0: 24.0, 64.0: 48.0}
_CPU_LINK_BPS = {"AuthenticAMD": 16e9, "GenuineIntel": 10e9, "arm64": 6e9, "ppc64": 32e9}


class _NvLink(NamedTuple):
    target: str
    cables: int
    to_switch: bool


class _Gpu(NamedTuple):
    name: str
    busid: str
    link_Bps: float
    links: tuple[_NvLink, ...]


@dataclass
class _Branch:
    """A node of the PCIe tree: a CPU, a bridge, a GPU's port, or a NIC; `rate_Bps` leads up."""

    name: str
    rate_Bps: float = 0.0
    gpu: _Gpu | None = None
    rail: int | None = None
    speed_Bps: float = 0.0
    below: list[_Branch] = field(default_factory=list)

    def all(self) -> Iterator[_Branch]:
        yield self
        for one in self.below:
            yield from one.all()


def parse_nccl_xml(
    text: str, name: str, *, boxes: int = 1, bandwidth: Quantity | None = None,
    latency: Quantity = DEFAULT_LATENCY, hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network of an NCCL topology file.

    `name`: name of the file, for messages and tables.
    `boxes`: number of copies of the box; NIC d of each has a cable to the switch "rail" d.
    `bandwidth`: per direction of one NVLink (default: NCCL's value).
    `latency`, `hop_latency`: of every link, and of every switch; the file has neither.
    GPU g of copy c has rank c x GPUs + g, in the order of `rank` in the file.
    WeftError: not plain XML, an unknown element or attribute, an invalid value, or several copies without a NIC.
    """
    if not 1 <= boxes <= MOST_COPIES:
        raise WeftError(f"{name}: {boxes} copies requested; give 1 to {MOST_COPIES}")
    link_Bps = None if bandwidth is None else parse_bandwidth(bandwidth, "NVLink bandwidth")
    reader = _Reader(name, link_Bps)
    roots = reader.read(parse_xml(text, name, numbered=("pci",)))
    gpus = reader.gpus()
    latency_ps = parse_time(latency, "latency")
    hop_ps = parse_time(hop_latency, "hop latency")
    builder = _Builder(gpus, roots, reader.cpu_link_Bps, latency_ps)
    for box in range(boxes):
        builder.add(box, boxes)
    if boxes > 1 and not builder.rails:
        raise WeftError(f"{name} has no NIC: {boxes} copies cannot be connected")
    switches = [*builder.switches, *builder.rails]
    title = name if boxes == 1 else f"{boxes} x {name}"
    return wired(title, builder.npus, switches, builder.cables, hop_ps, frozenset(builder.passive))


class _Reader:
    """Turns elements into branches."""

    def __init__(self, name: str, link_Bps: float | None) -> None:
        self.name, self.link_Bps = name, link_Bps
        self.found: dict[int, _Gpu] = {}
        self.rails: set[int] = set()
        self.cpu_link_Bps = 0.0

    def read(self, root: Element) -> list[_Branch]:
        if root.tag != "system":
            raise WeftError(f"{root.where} is not the root of an NCCL topology, which is <system>")
        root.check(_KNOWN)
        roots = [self._cpu(cpu, at) for at, cpu in enumerate(root.children)]
        if not self.found:
            raise WeftError(f"{self.name} has no <gpu>")
        return roots

    def gpus(self) -> list[_Gpu]:
        """By rank."""
        ranks = sorted(self.found)
        if ranks != list(range(len(ranks))):
            raise WeftError(f"{self.name}: the ranks of the GPUs are {ranks}; 0 to {len(ranks) - 1} are expected")
        by_bus = {gpu.busid for gpu in self.found.values()}
        for gpu in self.found.values():
            for link in gpu.links:
                if not link.to_switch and link.target not in by_bus:
                    raise WeftError(f"{self.name}: {gpu.name} has an NVLink to {link.target}, not a GPU of this file")
        return [self.found[rank] for rank in ranks]

    def _cpu(self, element: Element, at: int) -> _Branch:
        vendor = element.attributes.get("vendor", "")
        key = vendor if vendor in _CPU_LINK_BPS else element.attributes.get("arch", "")
        if key not in _CPU_LINK_BPS:
            raise WeftError(
                f"{element.where} has vendor={vendor!r} and arch={key!r}: known are {', '.join(_CPU_LINK_BPS)}"
            )
        self.cpu_link_Bps = max(self.cpu_link_Bps, _CPU_LINK_BPS[key])
        return self._gather(_Branch(f"cpu{at}"), element)

    def _gather(self, branch: _Branch, element: Element) -> _Branch:
        for child in element.children:
            if child.tag == "pci":
                branch.below.append(self._pci(child))
            elif child.tag == "nic":
                branch.below += self._nic(child, CPU_NIC_BPS)
        return branch

    def _pci(self, element: Element) -> _Branch:
        rate, busid = _pcie_Bps(element), element.text("busid")
        branch = _Branch(f"pcie-{busid}", rate)
        for child in element.children:
            if child.tag == "gpu":
                branch.gpu = self._gpu(child, busid)
                branch.name = f"port-{branch.gpu.name}"
            elif child.tag == "nic":
                branch.below += self._nic(child, rate)
            else:
                branch.below.append(self._pci(child))
        if branch.gpu is not None and branch.below:
            raise WeftError(f"{element.where} holds a GPU and other devices")
        return branch

    def _gpu(self, element: Element, busid: str) -> _Gpu:
        rank = element.whole("rank")
        if rank in self.found:
            raise WeftError(f"{element.where} has rank={rank}, already taken by the GPU at {self.found[rank].busid}")
        link_Bps = self.link_Bps or link_of_sm(element.whole("sm"), element.where)
        gpu = _Gpu(f"gpu{rank}", busid, link_Bps, tuple(_nvlink(one) for one in element.children))
        self.found[rank] = gpu
        return gpu

    def _nic(self, element: Element, rate: float) -> list[_Branch]:
        ports = []
        for net in element.children:
            rail, speed = net.whole("dev"), net.whole("speed", 1) * 1e6 / 8
            if rail in self.rails:
                raise WeftError(f"{net.where} has dev={rail}, already taken by another NIC")
            self.rails.add(rail)
            ports.append(_Branch(f"nic{rail}", rate, None, rail, speed))
        return ports


def _pcie_Bps(element: Element) -> float:
    speed = element.text("link_speed")
    lane = _LANE_SPEED.match(speed)
    if lane is None or float(lane[1]) not in _LANE_GBPS:
        known = ", ".join(f"{rate:g}" for rate in _LANE_GBPS)
        raise WeftError(f"{element.where} has link_speed={speed!r}: known are {known} GT/s PCIe")
    lanes = element.whole("link_width") or 16  # a width of 0 means unknown; NCCL assumes 16
    return lanes * _LANE_GBPS[float(lane[1])] * 1e9 / 8


def _nvlink(element: Element) -> _NvLink:
    kind = element.text("tclass")
    if not kind.startswith((_SWITCH_CLASS, _GPU_CLASS)):
        raise WeftError(f"{element.where} has tclass={kind!r}: expected 0x03... (GPU) or 0x0680... (NVSwitch)")
    return _NvLink(element.text("target"), element.whole("count", 1), kind.startswith(_SWITCH_CLASS))


class _Builder:
    """Collects nodes and cables, copy by copy."""

    def __init__(self, gpus: Sequence[_Gpu], roots: Sequence[_Branch], cpu_link_Bps: float, latency_ps: int) -> None:
        self.gpus, self.cpu_link_Bps, self.latency_ps = gpus, cpu_link_Bps, latency_ps
        self.by_bus = {gpu.busid: gpu.name for gpu in gpus}
        rails = _rails(roots)
        self.roots = [trimmed for root in roots if (trimmed := _trim(root, rails)) is not None]
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
            self._tree(root, prefix, copies > 1)
        tops = [prefix + root.name for root in self.roots]
        self.switches += tops
        for at, one in enumerate(tops):
            self.cables += [Cable((one, other), self.cpu_link_Bps, self.latency_ps, PCIE) for other in tops[:at]]

    def _nvlinks(self, prefix: str) -> None:
        switched = False
        joined: set[tuple[str, str]] = set()
        for gpu in self.gpus:
            for link in gpu.links:
                rate = link.cables * gpu.link_Bps
                if link.to_switch:
                    switched = True
                    ends = prefix + gpu.name, f"{prefix}nvswitch"
                else:
                    ends = prefix + gpu.name, prefix + self.by_bus[link.target]
                    if ends[::-1] in joined:  # both ends list the cable
                        continue
                    joined.add(ends)
                self.cables.append(Cable(ends, rate, self.latency_ps, NVLINK))
        if switched:
            self.switches.append(f"{prefix}nvswitch")

    def _tree(self, branch: _Branch, prefix: str, with_rails: bool) -> None:
        for one in branch.below:
            if one.rail is not None and not with_rails:
                continue
            self.cables.append(Cable((prefix + branch.name, prefix + one.name), one.rate_Bps, self.latency_ps, PCIE))
            self.switches.append(prefix + one.name)
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
    return _Branch(branch.name, branch.rate_Bps, below=below)


def _all_joined(gpus: Sequence[_Gpu]) -> bool:
    """Whether every GPU reaches every other over NVLink."""
    names = {gpu.busid: gpu for gpu in gpus}
    seen, open_ = {gpus[0].busid}, [gpus[0]]
    on_switch = [gpu for gpu in gpus if any(link.to_switch for link in gpu.links)]
    while open_:
        gpu = open_.pop()
        near = [names[link.target] for link in gpu.links if not link.to_switch]
        for other in near + (on_switch if gpu in on_switch else []):
            if other.busid not in seen:
                seen.add(other.busid)
                open_.append(other)
    return len(seen) == len(gpus)
