"""NCCL's model of its own algorithms: latency and bandwidth of each, by protocol, on a machine.

The formulas are those of NCCL's tuner, with the rates that machines reach (`topologies.machines`) where NCCL assumes
some. Latencies in us, bandwidths in GB/s of the array, as nccl-tests counts it ("algbw").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from topologies.checks import Choice, Count, WeftError, checked, choice
from topologies.machines.profile import Machine
from topologies.text.brief import one_line
from topologies.text.plain_data import parse_toml

PROTOCOLS = ("LL", "LL128", "Simple")
ALGORITHMS = ("Ring", "Tree", "NVLS", "NVLSTree", "CollNet", "PAT", "send/recv")
SENDRECV = "send/recv"
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", SENDRECV)
LIBRARIES = ("nccl", "rccl")
NEWEST = (2, 30)
_OLDEST = (2, 12)
_NEW_TREES = (2, 27)
_PAT = (2, 23)
_NVLS, _NVLS_TREE = (2, 17), (2, 18)
_SHARP_OF_NIC, _SHARP_OF_RING = 0.8, 0.46
"""nccl 320, a maintainer: 20 GB/s for a port of 200 Gb/s; 110 GB/s for 240 GB/s of NVLink."""


@cache
def tables() -> dict[str, Any]:
    """`nccl.toml`."""
    return parse_toml((Path(__file__).parent / "nccl.toml").read_text(encoding="utf-8"), "nccl.toml")


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
        raise WeftError(f"library {library!r}: versions from 2.12 are modeled")
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
    """A collective on some nodes of a machine.

    Attributes
    ----------
    machine : Machine
    nodes : int
    gpus : int
        Used of every node.
    collective : str
        Of `COLLECTIVES`.
    version : (int, int)
    algorithms, protocols : tuple of str
        The library is told to choose among these (`NCCL_ALGO`, `NCCL_PROTO`); empty: free.
    gpus_per_process : int
    graphs : bool
        Whether CUDA graphs start the collectives: no time to launch.
    reached : Reached
    """

    machine: Machine
    nodes: Count
    gpus: Count
    collective: Annotated[str, Choice(COLLECTIVES)]
    version: tuple[int, int] = NEWEST
    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    gpus_per_process: Count = 1
    graphs: bool = False
    reached: Reached = field(default_factory=reached)

    def __post_init__(self) -> None:
        gpu = self.machine.gpu
        if gpu.architecture not in tables()["architecture"]:
            raise WeftError(f"{self.machine.name} has {gpu.name}: only NCCL and RCCL are modeled")
        if self.gpus > self.machine.gpus:
            raise WeftError(f"{self.machine.name} has {self.machine.gpus} GPUs a node, not {self.gpus}")
        if self.gpus_per_process > self.gpus:
            raise WeftError(f"a process drives {self.gpus_per_process} GPUs, but a node has {self.gpus}")
        for what, given, known in (
            ("algorithm", self.algorithms, ALGORITHMS), ("protocol", self.protocols, PROTOCOLS)
        ):
            for one in given:
                choice(one, known, f"library's {what}")
        if self.n < 2:
            raise WeftError(f"{self.collective} on one GPU of {self.machine.name} moves nothing: give more nodes")

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
        return 1.0 if self.collective in ("broadcast", "reduce", SENDRECV) else (self.n - 1) / self.n

    @property
    def channels(self) -> int:
        """Channels of rings and trees."""
        most = int(tables()["architecture"][self.machine.gpu.architecture]["channels"])
        if self.nodes == 1:
            return most
        return self.nics if self.machine.gpu.architecture == "blackwell" else max(2 * self.nics, 2)


class Candidate(NamedTuple):
    """An algorithm by a protocol: latency and bandwidth, the latency that the library believes in, network hops.

    `message`: share of the array that a network message carries.
    """

    algorithm: str
    protocol: str
    latency_us: float
    algbw_GBps: float
    believed_us: float
    hops: float = 0.0
    message: float = 1.0


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
        yield Candidate(SENDRECV, "Simple", *messages(setting), 0.0)
        return
    protocols = PROTOCOLS if _ll128(setting) else ("LL", "Simple")
    for protocol in protocols:
        yield _ring(setting, protocol)
    if setting.collective == "all-reduce":
        for protocol in protocols:
            yield _tree(setting, protocol)
        reduces = setting.machine.gpu.multicast and setting.machine.inside == "switch" and setting.gpus > 1
        if reduces and setting.version >= (_NVLS if setting.nodes == 1 else _NVLS_TREE):
            yield _nvls(setting)
        if setting.nodes > 1:
            raw = setting.nics * setting.machine.nic.port / 1e9
            algbw = min(_SHARP_OF_NIC * raw, _SHARP_OF_RING * setting.inside_GBps)
            yield Candidate("CollNet", "Simple", 31.0, algbw, 31.0)
    elif setting.gpus == 1 and setting.version >= _PAT and setting.collective in ("all-gather", "reduce-scatter"):
        hop = tables()["network_ring"][2] + setting.machine.nic.latency * 1e6
        latency = 8.0 + math.log2(setting.nodes) * hop / 3.5 + setting.n * 2.8
        yield Candidate("PAT", "Simple", latency, 0.75 * setting.between_GBps / setting.bus_factor, latency)


def _ll128(setting: Setting) -> bool:
    alone = setting.nodes == 1
    return alone or setting.machine.nic.ll128


def _caps(setting: Setting, name: str) -> float:
    """A bandwidth of one channel, times the channels."""
    per_channel = tables()["architecture"][setting.machine.gpu.architecture][name]
    return float(per_channel[min(setting.nodes, 3) - 1]) * setting.channels


def ll_GBps(setting: Setting) -> float:
    """What LL moves in total."""
    if setting.nodes == 1:
        return float(tables()["architecture"][setting.machine.gpu.architecture]["ll"])
    return float(tables()["post_ll"][setting.machine.cpu][0 if setting.nodes == 2 else 1])


def _hop(setting: Setting, kind: str) -> str:
    return f"{'pcie' if setting.machine.gpu.name == 'rtx-pcie' else 'nvlink'}_{kind}"


def _ring(setting: Setting, protocol: str) -> Candidate:
    known, at, n, nodes = tables(), PROTOCOLS.index(protocol), setting.n, setting.nodes
    both = setting.collective == "all-reduce"
    rooted = setting.collective in ("broadcast", "reduce")
    steps = (2 if both else 1) * (n - 1)
    # rings enter the root's node by another GPU in the end
    between = nodes if rooted and nodes > 1 < setting.gpus else (2 if both else 1) * (nodes - 1)
    hop = known["network_ring"][at] + setting.machine.nic.latency * 1e6
    inside = known[_hop(setting, "ring")][at]
    if between and not rooted:
        inside = max(inside, known["network_post"][setting.machine.cpu] * (3 if protocol == "Simple" else 1))
    latency = known["base_ring"][at] + (steps - between) * inside + between * hop
    rate = min(setting.inside_GBps, setting.between_GBps)
    busbw = {
        "LL": min(ll_GBps(setting), known["ll_share"] * rate),
        "LL128": min(known["ll128_share"] * rate, _caps(setting, "ring_ll128")),
        "Simple": rate,
    }[protocol]
    longer = known["ring_allreduce_between_nodes"] if both and between and protocol == "Simple" else 1.0
    believed = known["base_ring"][at] + (hop if between else inside) if rooted else latency * longer  # of one hop
    if setting.gpus == 1 and not rooted:  # the library then counts hops of a tree
        believed += longer * between * (known["network_tree"][at] - known["network_ring"][at])
    return Candidate("Ring", protocol, latency, busbw / setting.bus_factor, believed, between, 1 if rooted else 1 / n)


def _tree(setting: Setting, protocol: str) -> Candidate:
    known, at, nodes = tables(), PROTOCOLS.index(protocol), setting.nodes
    inside, hop = known[_hop(setting, "tree")][at], known["network_tree"][at] + setting.machine.nic.latency * 1e6
    base, depth = known["base_tree"][at], math.log2(nodes)
    latency = base + 2 * ((setting.gpus - 1) * inside + depth * hop)
    believed = latency
    if protocol == "Simple" and setting.version < _NEW_TREES:
        slow = known["old_tree_simple"]
        believed = base + 2 * ((setting.gpus - 1) * slow + depth * (slow + setting.machine.nic.latency * 1e6))
    # of two nodes, each sends only half of what it does in a ring, if links inside carry twice what the NICs do
    half = nodes == 2 and setting.machine.inside != "mesh"
    rate = min(setting.inside_GBps, (2 if half else 1) * setting.between_GBps)
    rate = min(known["tree_share"] * rate, _caps(setting, "tree"))
    if protocol == "LL":
        rate = min(known["tree_ll_share"] * rate, ll_GBps(setting))
    elif protocol == "LL128":
        rate = min(known["tree_ll128_share"][min(nodes, 3) - 1] * rate, _caps(setting, "tree_ll128"))
    return Candidate("Tree", protocol, latency, rate / 2, believed, 2 * depth)


def _nvls(setting: Setting) -> Candidate:
    """All-reduce by reducing switches, and a tree between nodes."""
    known, gpus = tables(), setting.gpus
    wire = setting.machine.gpu.multicast / 1e9
    algbw = max(wire * gpus / (gpus + 1), setting.inside_GBps * gpus / (2 * (gpus - 1)))
    if setting.nodes == 1:
        return Candidate("NVLS", "Simple", known["nvls"], algbw, known["nvls"])
    hop = known["network_nvlstree"] + setting.machine.nic.latency * 1e6
    latency = known["nvls"] + 2 * math.log2(setting.nodes) * hop
    between = setting.between_GBps * (1.0 if setting.nodes == 2 else 0.5)
    return Candidate("NVLSTree", "Simple", latency, min(algbw, between), latency, 2 * math.log2(setting.nodes))


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
    rate = setting.nics * nic.port * nic.messages / 1e9 / setting.gpus
    within = setting.machine.gpu.ring / 1e9 * n / (setting.gpus - 1) if setting.gpus > 1 else math.inf
    return known.send + known.peer * n + nic.latency * 1e6, min(rate / away, within)


def channel_GBps(setting: Setting, size_bytes: int) -> float:
    """What the channels of a single message inside a node copy: as many as there are for a peer, doubled by size."""
    channels = max(1, 32 // setting.n)
    while channels < 32 and size_bytes / channels > setting.reached.most_of_a_channel:
        channels *= 2
    return channels * setting.machine.gpu.channel / 1e9
