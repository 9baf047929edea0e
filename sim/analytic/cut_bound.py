"""The exact bound of a collective on a network, whatever the algorithm: seconds per byte, and the bottleneck cut.

The roof over every algorithm: what the fabric allows at each size, by its tightest cut and its longest path.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.collective import COLLECTIVES, collective
from collectives.core.collective import collective as named
from topologies import Topology
from topologies.checks import checked, number
from topologies.core.paths import distinct_of
from topologies.core.topology import Aggregation
from topologies.flows import tightest_cut
from topologies.flows.partitions import least_crossing
from topologies.flows.prices import Priced, best_prices, demand_prices
from topologies.text.brief import one_line
from topologies.units import PS_PER_S

EXACT_NODES = 256
"""Nodes up to which every simulation is compared with the exact cut: 0.2 s, once per topology."""

ALIKE_LINKS = 20_000
"""Links up to which it is also computed if all NPUs are equivalent, so that one flow suffices."""


@one_line
class CutBound(NamedTuple):
    """The least time that any schedule takes, by the set of nodes that is slowest to enter or leave."""

    s_per_byte: Fraction  # least time for each byte of the size, as nccl-tests counts it; 0 for one NPU
    # the bottleneck: the set of nodes that must send (or receive); several parts may be named together
    nodes: tuple[int, ...]
    reason: str  # what the bottleneck must do


@checked
def cut_bound(
    topology: Topology, collective: str, root: int = 0, *, reducing_switches: bool | None = False
) -> CutBound:
    """The exact cut bound of a collective; of an all-to-all the tightest of the bounds of `topologies.flows.prices`.

    Parameters
    ----------
    topology : Topology
    collective : str
    root : int
        Of a rooted collective.
    reducing_switches : bool or None
        Whether switches may reduce, at the rate that the fabric says, else that of their links, or of the units behind
        them; this matters to an all-reduce alone. None: those that the fabric says. Multicast in switches changes none
        of the bounds: a cut is crossed once by every shard.

    Raises
    ------
    WeftError
        NPUs that cannot be reached, an unknown collective, or a root that is not a rank.
    """
    known = None if reducing_switches is False else topology.aggregation
    return _cut_bound(topology, named(collective).name, root, reducing_switches, known)


def _faster(found: CutBound, times: Fraction) -> CutBound:
    return found._replace(s_per_byte=found.s_per_byte / times)


@tightest_cut.remembered_in_proportion(_faster)
def _cut_bound(
    topology: Topology, collective: str, root: int, reducing_switches: bool | None, known: Aggregation | None
) -> CutBound:
    bounds: dict[str, Callable[[], CutBound]] = {
        "all-gather": lambda: _shared(topology, tightest_cut.gather_cut(topology)),
        "reduce-scatter": lambda: _shared(topology, tightest_cut.scatter_cut(topology)),
        "broadcast": lambda: _whole(topology, tightest_cut.broadcast_cut(topology, root)),
        "reduce": lambda: _whole(topology, tightest_cut.reduce_cut(topology, root)),
        "gather": lambda: _shared(topology, tightest_cut.gather_to_cut(topology, root)),
        "scatter": lambda: _shared(topology, tightest_cut.gather_to_cut(topology, root, True)),
        "all-reduce": lambda: _all_reduce(topology, reducing_switches),
        "all-to-all": lambda: _all_to_all(topology),
    }
    return bounds[collective]()


def is_cheap(topology: Topology) -> bool:
    """Whether the exact cut is quick to compute."""
    return topology.n_nodes <= EXACT_NODES or (topology.n_links <= ALIKE_LINKS and tightest_cut.is_transitive(topology))


def _shared(topology: Topology, cut: tightest_cut.Cut | None) -> CutBound:
    """Of a cut that every inside shard must cross."""
    if cut is None:
        return CutBound(Fraction(0), (), "one NPU")
    verb = "leave" if not cut.inward else "enter"
    return CutBound(cut.s_per_byte / topology.n_npus, cut.nodes, f"{cut.shards} shards must {verb} this set")


def _whole(topology: Topology, cut: tightest_cut.Cut | None) -> CutBound:
    if cut is None:
        return CutBound(Fraction(0), (), "one NPU")
    return CutBound(cut.s_per_byte, cut.nodes, f"the whole array must {'enter' if cut.inward else 'leave'} this set")


def _all_reduce(topology: Topology, reducing_switches: bool | None) -> CutBound:
    cut = _whole(topology, tightest_cut.separating_cut(topology))
    found = least_crossing(topology, reducing_switches)
    if found.s_per_byte <= cut.s_per_byte:
        return cut
    inside = found.parts >= 0
    count = distinct_of(found.parts[inside]).size
    reason = f"{count} parts must exchange {2 * (count - 1)} arrays"
    reason += ", less what switches between them add up and copy" if found.saves else ""
    return CutBound(found.s_per_byte, tuple(np.flatnonzero(inside).tolist()), reason)


def pairs_bound(topology: Topology, demand: npt.NDArray[np.int64], element_bytes: int, size_bytes: int) -> CutBound:
    """The bound on an all-to-all with sizes per pair, `demand` in elements, for each byte of its size."""
    priced = demand_prices(topology, demand)
    ends = distinct_of(np.concatenate([of[list(priced.links)] for of in (topology.src, topology.dst)])).tolist()
    s_per_byte = priced.s_per_block_byte * element_bytes / size_bytes if size_bytes else Fraction(0)
    return CutBound(s_per_byte, tuple(ends), _proved(priced))


def _all_to_all(topology: Topology) -> CutBound:
    """Blocks, of which each NPU sends one to every other, over links that are scarce together."""
    if topology.n_npus == 1:
        return CutBound(Fraction(0), (), "one NPU")
    priced = best_prices(topology)
    links = np.array(priced.links)
    ends = distinct_of(np.concatenate([topology.src[links], topology.dst[links]]))
    return CutBound(priced.s_per_block_byte / topology.n_npus, tuple(ends.tolist()), _proved(priced))


def _proved(priced: Priced) -> str:
    return priced.said + ("; a concurrent flow is as fast" if priced.reached else "")


class Roof(NamedTuple):
    """Two limits on the time of a collective, whatever the algorithm."""

    latency_s: float  # of the longest among the quickest paths between two NPUs whose data must meet
    s_per_byte: Fraction  # of the tightest cut

    def time_s(self, size_bytes: float) -> float:
        """No run of this size is faster."""
        number(size_bytes, "size_bytes", 0)
        return max(self.latency_s, float(self.s_per_byte) * size_bytes)

    @property
    def ridge_bytes(self) -> float:
        """The size at which both limits are equal; 0 where no byte must move."""
        return self.latency_s / float(self.s_per_byte) if self.s_per_byte else 0.0


@checked
def roof(
    topology: Topology, kind: str, root: int = 0, *, endpoint_latency_ps: int = 0, reducing_switches: bool = False
) -> Roof:
    """The roof of a collective on a fabric, for chunks that are delivered with their tail.

    Parameters
    ----------
    topology : Topology
    kind : str
        Name of the collective.
    root : int
        Of a broadcast or reduce.
    endpoint_latency_ps : int
        What every transfer spends outside the links.
    reducing_switches : bool
        Whether switches may reduce.

    Raises
    ------
    WeftError
        NPUs that cannot be reached, or a collective without a bound.
    """
    kind = collective(kind).name
    bound = cut_bound(topology, kind, root, reducing_switches=reducing_switches)
    if topology.n_npus == 1:
        return Roof(0.0, bound.s_per_byte)
    latency_ps = _longest_way_ps(topology, kind, root) + endpoint_latency_ps
    return Roof(latency_ps / PS_PER_S, bound.s_per_byte)


def _longest_way_ps(topology: Topology, kind: str, root: int) -> int:
    """Longest among the quickest paths that contributions must take: between any two NPUs, or from or to the root."""
    from scipy.sparse import coo_array  # heavy: loaded where it is used
    from scipy.sparse.csgraph import dijkstra

    n = topology.n_nodes
    weights = np.maximum(topology.latency_ps + topology.hop_latency_ps[topology.dst], 1)
    order = np.lexsort((weights, topology.dst, topology.src))
    pairs, first = np.unique(topology.src[order].astype(np.int64) * n + topology.dst[order], return_index=True)
    ends = pairs % n, pairs // n  # backwards: into the sources of the search
    graph = coo_array((weights[order][first].astype(np.float64), ends), shape=(n, n)).tocsr()
    sources = np.array([root]) if COLLECTIVES[kind].rooted else np.arange(topology.n_npus)
    ways = dijkstra(graph.T if kind in ("broadcast", "scatter") else graph, indices=sources)
    return int(ways[:, : topology.n_npus].max())
