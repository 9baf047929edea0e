"""The network: nodes, directed links in CSR order, and their costs in time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol
from weakref import WeakKeyDictionary, ref

import numpy as np
import numpy.typing as npt

from topologies.checks import Name, WeftError, checked, choice, told
from topologies.core.path_checks import check_paths, named_router
from topologies.core.paths import Paths
from topologies.core.ties import TIES
from topologies.text.brief import cut, html_table
from topologies.units import format_rate, format_time

NPU, SWITCH, OCS, REDUCER = 0, 1, 2, 3
"""Node kinds: endpoint with a rank; packet switch; optical circuit switch; reduction unit."""

KIND_NAMES = ("npu", "switch", "ocs", "reducer")

MOST_COUNTED = 65_536
"""NPUs that are looked at to tell whether links join neighbors; of more, as many at equal distances, an odd number."""

IntArray = npt.NDArray[np.integer]


class NeedsRates(Exception):
    """A rate or latency was read of a topology that has none: a signal to whoever builds on it, not an error."""


class Router(Protocol):
    """Chooses routes; `src` and `dst` are (n,) node indices.

    What it gives is checked at every call: a path of links from the source of each pair to its destination. It must
    give the same each time, for what is built from its routes is kept.
    """

    def paths(
        self, topology: Topology, src: npt.NDArray[np.int64], dst: npt.NDArray[np.int64], tie: str, seed: int
    ) -> Paths:
        """The links from each source to each destination; `tie`, `seed`: which of equally good ones."""


class Aggregation(NamedTuple):
    """How switches of a machine reduce and multicast, whatever the algorithm."""

    efficiency: float  # share of the bandwidth of their links that is reached
    tiers: tuple[int, ...] = (0,)  # dimensions of the links of those switches


class Optics(NamedTuple):
    """Optical ports behind circuit switches: what a network that they join may become."""

    ports: int  # of each server
    duplex: bool  # whether a circuit takes one port at both ends, or its two fibers are switched apart
    delay_ps: int  # from the command until the transceivers have locked: the port is dark
    per_port: bool  # whether only the ports that change are dark, or the whole fabric
    paid: bool  # whether the first circuits take the delay as well
    single: bool  # whether a pair has at most one circuit
    circuits: str  # the name of those that are up in the beginning; "" for any
    policy: str  # when the operations of a job get the circuits that they ask for; "" for never
    rate_Bps: float  # of one direction of a circuit
    rails: int = 1  # circuits join NPUs of equal rank modulo this
    only: tuple[str, ...] = ()  # all circuits that can be up, by name; () for any
    dwell_ps: int = 0  # of a rotor, whose circuits take turns: how long each is up
    spares: int = 0  # cubes of a pod that wait to take the place of one with a chip that is down


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class Topology:
    """A network; frozen, and validated when built.

    Nodes `0 .. n_npus-1` are the NPUs, in rank order; switches follow. Links are directed, one per
    direction of a cable, and sorted by source: links `link_ptr[v] .. link_ptr[v+1]-1` leave node v.

    Attributes
    ----------
    name : str
        The spec that builds it, such as "torus:8x8".
    kind : (n_nodes,) int8
        NPU, SWITCH, OCS or REDUCER.
    src, dst : (n_links,) int32
        Endpoints of each link.
    bandwidth_Bps : (n_links,) float64
        Bytes per second of one direction.
    latency_ps : (n_links,) int64
        Propagation time.
    hop_latency_ps : (n_nodes,) int64
        Processing time added on every arrival at a node.
    dimension : (n_links,) int16
        The dimension of a link, or its class (tier) in a network without dimensions; -1 if none.
    shape : tuple of int
        Extents of the dimensions; dimension 0 varies fastest in the rank. (n_npus,) for networks without dimensions.
    coords : (n_nodes, len(shape)) int32
        Coordinates, unique to each node. A switch has -1 in the dimension that it spans, and -2, -3, ...
        where several span the same dimension; `topologies.core.symmetry` moves nodes by their coordinates.
    router : Router
        Chooses the links from one NPU to another.
    node_names : tuple of str
        Names for messages (default: "npu3", "switch0").
    aggregation : Aggregation or None
        How switches reduce, where the machine is known to; reduction units say it themselves (REDUCER).
    optics : Optics or None
        The ports whose circuits are up, where they can be switched.
    """

    name: Name
    kind: npt.NDArray[np.int8]
    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    bandwidth_Bps: npt.NDArray[np.float64]
    latency_ps: npt.NDArray[np.int64]
    hop_latency_ps: npt.NDArray[np.int64]
    dimension: npt.NDArray[np.int16]
    shape: tuple[int, ...]
    coords: npt.NDArray[np.int32]
    router: Router
    node_names: tuple[str, ...] = ()
    aggregation: Aggregation | None = None
    optics: Optics | None = None
    link_ptr: npt.NDArray[np.int32] = field(init=False)
    EXAMPLE: ClassVar[str] = 'from_spec("torus:4x4")'

    def __post_init__(self) -> None:
        if np.any(_pairs_fall(self.src, self.dst)):
            order = np.argsort(self.src.astype(np.int64) * len(self.kind) + self.dst, kind="stable")
            for name in ("src", "dst", "bandwidth_Bps", "latency_ps", "dimension"):
                object.__setattr__(self, name, getattr(self, name)[order])
        _check_wiring(self)
        ptr = np.append(0, np.cumsum(np.bincount(self.src, minlength=self.n_nodes))).astype(np.int32)
        object.__setattr__(self, "link_ptr", ptr)
        _freeze(self.kind, self.src, self.dst, self.dimension, self.coords, self.link_ptr)
        _check_rates(self)

    def __repr__(self) -> str:
        switches = f", {self.n_nodes - self.n_npus} switches" if self.n_nodes > self.n_npus else ""
        return f"<Topology {cut(self.name, 60)}: {self.n_npus} NPUs{switches}, {self.n_links} links>"

    def _repr_html_(self) -> str:
        rates = np.unique(self.bandwidth_Bps)
        times = np.unique(self.latency_ps)
        return html_table(self.name, {
            "NPUs": self.n_npus,
            "switches": self.n_nodes - self.n_npus,
            "links": self.n_links,
            "shape": " x ".join(map(str, self.shape)),
            "bandwidth": ", ".join(map(format_rate, rates.tolist())) or None,
            "latency": ", ".join(map(format_time, times.tolist())) or None,
        })

    @cached_property
    def ports_have_links(self) -> bool:
        """Whether an NPU has a link to the next one, up and down in each dimension, in half of all cases or more.

        A port, one direction of one dimension, then has a link of its own; behind a switch, ports share one.
        """
        rank, stride = np.arange(0, self.n_npus, self.n_npus // MOST_COUNTED | 1), 1
        linked: list[float] = []
        for extent in self.shape:
            at = rank // stride % extent
            if extent > 1:
                linked += [float(np.mean(self.link_ids(rank, rank + ((at + way) % extent - at) * stride) >= 0))
                           for way in (1, -1)]
            stride *= extent
        return sum(linked) >= len(linked) / 2

    @property
    def says_it_reduces(self) -> bool:
        """Whether all switches (or routers, behind which there are units) are known to reduce."""
        of_all = self.aggregation is not None and bool(np.all(np.isin(self.dimension, self.aggregation.tiers)))
        return of_all or bool(np.any(self.kind == REDUCER))

    @property
    def boxes_reduce(self) -> bool:
        """Whether the switches inside boxes, whose links are of tier 0, are known to reduce."""
        return self.says_it_reduces or (self.aggregation is not None and 0 in self.aggregation.tiers)

    def as_it_reduces(self) -> Topology:
        """The network with the bandwidth that its aggregation reaches, where that is known: then all of its links'."""
        if self.aggregation is None:
            return self
        share = np.where(np.isin(self.dimension, self.aggregation.tiers), self.aggregation.efficiency, 1.0)
        found = self.with_links(bandwidth_Bps=self.bandwidth_Bps * share)
        object.__setattr__(found, "aggregation", self.aggregation._replace(efficiency=1.0))
        return found

    @property
    def n_nodes(self) -> int:
        """NPUs, switches, and what reduces."""
        return int(self.kind.size)

    @property
    def n_links(self) -> int:
        """One-way links; a cable is two."""
        return int(self.src.size)

    @cached_property
    def n_npus(self) -> int:
        """NPUs, which are the first nodes."""
        return int(np.count_nonzero(self.kind == NPU))

    def check_root(self, root: int) -> None:
        """WeftError: a root that is not a rank."""
        if not 0 <= root < self.n_npus:
            raise WeftError(f"root {root} is not one of the {self.n_npus} ranks of {self.name}")

    def node_name(self, node: int) -> str:
        """Name of a node for messages and tables; WeftError if there is none."""
        if not 0 <= node < self.n_nodes:
            raise WeftError(f"topology {self.name}: no node {node}; nodes are 0 to {self.n_nodes - 1}")
        if self.node_names:
            return self.node_names[node]
        return f"{KIND_NAMES[self.kind[node]]}{node if self.kind[node] == NPU else node - self.n_npus}"

    def link_name(self, link: int) -> str:
        """Name of a link, "npu0->npu1"; WeftError if there is none."""
        if not 0 <= link < self.n_links:
            raise WeftError(f"topology {self.name}: no link {link}; links are 0 to {self.n_links - 1}")
        return f"{self.node_name(int(self.src[link]))}->{self.node_name(int(self.dst[link]))}"

    def link_ids(self, src: IntArray, dst: IntArray) -> npt.NDArray[np.int32]:
        """Index of the link from each `src` to each `dst` (shape (n,)); -1 where there is none.

        Of parallel links the first is returned.

        WeftError: a node that does not exist.
        """
        src, dst = self._nodes(src), self._nodes(dst)
        low, end = self.link_ptr[src].astype(np.int64), self.link_ptr[src + 1].astype(np.int64)
        high, last = end, max(self.n_links - 1, 0)
        for _ in range(int(np.max(end - low, initial=0)).bit_length()):  # halves every neighborhood at once
            middle = (low + high) >> 1
            below = (low < high) & (self.dst[np.minimum(middle, last)] < dst)
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        if self.n_links == 0:
            return np.full(src.shape, -1, np.int32)
        found = (low < end) & (self.dst[np.minimum(low, last)] == dst)
        return np.where(found, low, -1).astype(np.int32)

    def paths(self, src: IntArray, dst: IntArray, tie: str = "first", seed: int = 0) -> Paths:
        """Routes for pairs of nodes; see `topologies.core.paths.Paths`.

        Raises
        ------
        WeftError
            An unknown tie rule, a node that does not exist, a pair without a route, or a router that fails, or whose
            links do not lead from the source of a pair to its destination.
        """
        choice(tie, TIES, "tie rule")
        sources, targets = self._nodes(src), self._nodes(dst)
        if sources.ndim != 1 or sources.shape != targets.shape:
            raise WeftError(f"topology {self.name}: sources and destinations must be 1-D arrays of equal length; "
                            f"their shapes are {sources.shape} and {targets.shape}")
        try:
            found = self.router.paths(self, sources, targets, tie, seed)
        except (WeftError, MemoryError, NeedsRates):
            raise
        except Exception as fault:
            raise WeftError(f"{named_router(self)} failed: {type(fault).__name__}: {fault}") from fault
        return check_paths(found, self, sources, targets, tie)

    def _nodes(self, given: IntArray) -> npt.NDArray[np.int64]:
        nodes = np.asarray(given)
        if nodes.size and nodes.dtype.kind not in "iu":
            raise WeftError(f"topology {self.name}: nodes are {told(given)}: give integers")
        strange = (nodes < 0) | (nodes >= self.n_nodes)
        if np.any(strange):
            raise WeftError(f"topology {self.name}: no node {nodes[strange][0]}; nodes are 0 to {self.n_nodes - 1}")
        return nodes.astype(np.int64, copy=False)

    @checked
    def with_links(
        self, bandwidth_Bps: npt.NDArray[np.float64] | None = None, latency_ps: npt.NDArray[np.int64] | None = None
    ) -> Topology:
        """The same network with different bandwidths or latencies, (n_links,) each."""
        return self.at_rates(
            self.bandwidth_Bps if bandwidth_Bps is None else np.asarray(bandwidth_Bps, np.float64),
            self.latency_ps if latency_ps is None else np.asarray(latency_ps, np.int64),
            self.hop_latency_ps,
        )

    def at_rates(
        self, bandwidth_Bps: npt.NDArray[np.float64], latency_ps: npt.NDArray[np.int64],
        hop_latency_ps: npt.NDArray[np.int64], optics: Optics | None = None,
    ) -> Topology:
        """The same wiring, which is shared and not checked again, with other rates and latencies, and other optics."""
        found = object.__new__(Topology)
        last = _TIMES.get(self, (self.latency_ps, self.hop_latency_ps))
        same = all(one is other or np.array_equal(one, other) for one, other in zip(
            (latency_ps, hop_latency_ps), last, strict=True))
        latency_ps, hop_latency_ps = last if same else (latency_ps, hop_latency_ps)
        rates = {"bandwidth_Bps": bandwidth_Bps, "latency_ps": latency_ps, "hop_latency_ps": hop_latency_ps}
        vars(found).update(vars(self) | rates | ({} if optics is None else {"optics": optics}))
        (_check_bandwidths if same else _check_rates)(found)
        _TIMES[self], _MADE_OF[found] = (latency_ps, hop_latency_ps), ref(self)
        return found


_TIMES: WeakKeyDictionary[Topology, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = WeakKeyDictionary()
"""Latencies of the last topology that was made of each: others with equal ones share them."""

_MADE_OF: WeakKeyDictionary[Topology, ref[Topology]] = WeakKeyDictionary()


def made_of(topology: Topology) -> Topology | None:
    """The one that `at_rates` made this of, if it is still there."""
    return _MADE_OF[topology]() if topology in _MADE_OF else None


def _pairs_fall(src: IntArray, dst: IntArray) -> npt.NDArray[np.bool_]:
    """Where a link comes before the one in front of it, by source and destination."""
    fall: npt.NDArray[np.bool_] = (src[1:] < src[:-1]) | ((src[1:] == src[:-1]) & (dst[1:] < dst[:-1]))
    return fall


def _freeze(*arrays: npt.NDArray[Any]) -> None:
    for array in arrays:
        array.flags.writeable = False  # routes and schedules are cached against these values


def _check_lengths(t: Topology, **lengths: int) -> None:
    for name, expected in lengths.items():
        if len(getattr(t, name)) != expected:
            raise WeftError(f"topology {t.name}: {name} has {len(getattr(t, name))} entries, expected {expected}")


def _check_wiring(t: Topology) -> None:
    n_nodes, n_links = t.kind.size, t.src.size
    if n_nodes == 0 or t.kind[0] != NPU:
        raise WeftError(f"topology {t.name}: the first node must be an NPU, and there must be one")
    _check_lengths(t, dst=n_links, bandwidth_Bps=n_links, latency_ps=n_links, dimension=n_links, coords=n_nodes)
    if np.any(np.diff(np.flatnonzero(t.kind == NPU)) != 1):
        raise WeftError(f"topology {t.name}: NPUs must come before switches in the node order")
    if t.node_names and (len(t.node_names) != n_nodes or len(set(t.node_names)) != n_nodes):
        raise WeftError(f"topology {t.name}: give {n_nodes} distinct node names")
    if strange := [one for one in t.node_names if not one.isprintable()]:
        raise WeftError(f"topology {t.name}: the node {told(strange[0])} has control characters in its name")
    _refuse(t, (t.src < 0) | (t.src >= n_nodes) | (t.dst < 0) | (t.dst >= n_nodes), "has a node that does not exist")
    _refuse(t, t.src == t.dst, "connects a node to itself")


def _check_rates(t: Topology) -> None:
    """Check, and freeze, what `Topology.at_rates` gives."""
    _check_lengths(t, latency_ps=t.n_links, hop_latency_ps=t.n_nodes)
    _check_bandwidths(t)
    _refuse(t, t.latency_ps < 0, "has a negative latency")
    if np.any(t.hop_latency_ps < 0):
        node = int(np.flatnonzero(t.hop_latency_ps < 0)[0])
        raise WeftError(f"topology {t.name}: node {node} has a negative hop latency")
    _freeze(t.latency_ps, t.hop_latency_ps)


def _check_bandwidths(t: Topology) -> None:
    _check_lengths(t, bandwidth_Bps=t.n_links)
    if not (t.bandwidth_Bps.min(initial=1) > 0 and t.bandwidth_Bps.max(initial=1) < np.inf):  # nor NaN
        _refuse(t, ~((t.bandwidth_Bps > 0) & np.isfinite(t.bandwidth_Bps)), "must have a positive, finite bandwidth")
    _freeze(t.bandwidth_Bps)


def _refuse(t: Topology, bad: npt.NDArray[np.bool_], why: str) -> None:
    if np.any(bad):
        link = int(np.flatnonzero(bad)[0])
        more = int(np.count_nonzero(bad)) - 1
        tail = f" (and {more} more)" if more else ""
        raise WeftError(
            f"topology {t.name}: link {link} ({t.src[link]}->{t.dst[link]}, "
            f"{t.bandwidth_Bps[link]:g} B/s, {t.latency_ps[link]} ps) {why}{tail}"
        )
