"""The tightest cuts of a network, which bound every schedule of a collective, as exact fractions.

A set S of nodes that holds n of the N NPUs must send n of the N shards of an all-gather through the links that
leave it, so that T >= (M / N) n / B(S) for every S that does not hold all of them. The largest ratio 1/x* is
achievable (arXiv 2305.18461). It is found by Newton's method on minimum cuts: a rate is tested with one flow to each
NPU from a source that feeds all, and a flow that falls short exposes a cut with a larger ratio. All arithmetic is in
integers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core.paths import distinct_of
from topologies.core.rateless import alike, wiring_of
from topologies.core.symmetry import link_permutation, translation
from topologies.core.topology import Topology
from topologies.flows.cuts import proportions, together_Bps, whole_capacities
from topologies.flows.maxflow import LARGEST, FlowNetwork, farthest
from topologies.stages import count

Bools = npt.NDArray[np.bool_]

MOST_PROPORTIONS = 64
"""Limit on what is remembered of one wiring at different proportions of its bandwidths."""


@dataclass(frozen=True)
class Cut:
    """A set of nodes, and what must leave (or enter) it."""

    nodes: tuple[int, ...]  # the set
    shards: int  # shards (or weights) that must cross; 1 if the entire array must
    rate_Bps: Fraction  # bytes per second that can cross
    inward: bool = False  # whether the set must receive rather than send

    @property
    def s_per_byte(self) -> Fraction:
        """Seconds per byte of a shard: 1/x*, exact."""
        return Fraction(self.shards) / self.rate_Bps


T = TypeVar("T")
_KNOWN: WeakKeyDictionary[Topology, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Cache what a function of a topology (and further hashable arguments) returns, as long as the topology lives."""

    @wraps(function)
    def recall(topology: Topology, *arguments: Any, **named: Any) -> T:
        known = _KNOWN.setdefault(topology, {})
        key = (function.__module__, function.__qualname__, *arguments, *sorted(named.items()))
        if key not in known:
            known[key] = function(topology, *arguments, **named)
        result: T = known[key]
        return result

    return recall


def remembered_in_proportion(faster: Callable[[T, Fraction], T]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Cache what a function of a topology (and further hashable arguments) returns, by proportions of the bandwidths.

    Topologies of one wiring whose bandwidths all differ by one factor share what was found for the first of them.

    `faster`: what was found, and a factor, to what is found where all bandwidths are that many times as large.
    """

    def decorated(function: Callable[..., T]) -> Callable[..., T]:
        @remembered
        def known(wiring: Topology) -> dict[tuple[Any, ...], tuple[Fraction, T]]:
            return {}

        @wraps(function)
        def recall(topology: Topology, *arguments: Any) -> T:
            unit, in_units = _in_units(topology)
            found = known(wiring_of(topology))
            key = (function.__module__, function.__qualname__, in_units, arguments)
            if key not in found:
                if len(found) >= MOST_PROPORTIONS:
                    del found[next(iter(found))]  # the oldest
                found[key] = unit, function(topology, *arguments)
            first, result = found[key]
            return result if first == unit else faster(result, unit / first)

        return recall

    return decorated


@remembered
def _in_units(topology: Topology) -> tuple[Fraction, tuple[Any, ...]]:
    """The largest unit that divides all bandwidths, and what tells apart topologies of one wiring but for that unit."""
    unit, whole, which = proportions(topology.bandwidth_Bps)
    return unit, (whole, which.tobytes(), alike(topology))


def _faster(cut: Cut | None, times: Fraction) -> Cut | None:
    return cut and replace(cut, rate_Bps=cut.rate_Bps * times)


in_proportion = remembered_in_proportion(_faster)


@in_proportion
def gather_cut(topology: Topology, weights: tuple[int, ...] | None = None) -> Cut | None:
    """The cut that bounds an all-gather; None for one NPU.

    `weights`: shard size of each NPU (default: 1 each).
    WeftError: unreachable NPUs, by name.
    """
    return _tightest(topology, topology.src, topology.dst, weights, inward=False)


@in_proportion
def scatter_cut(topology: Topology) -> Cut | None:
    """The cut that bounds a reduce-scatter: that of an all-gather on the reversed network."""
    return _tightest(topology, topology.dst, topology.src, None, inward=True)


@in_proportion
def gather_to_cut(topology: Topology, root: int, inward: bool = False) -> Cut | None:
    """The cut that bounds a gather to `root`, or, `inward`, a scatter from it: the shards of all others must cross."""
    topology.check_root(root)
    n = topology.n_npus
    if n == 1:
        return None
    ends = (topology.dst, topology.src) if inward else (topology.src, topology.dst)
    weights = tuple(int(npu != root) for npu in range(n))
    return _tightest(topology, *ends, weights, inward=inward, sinks=[root])


@in_proportion
def broadcast_cut(topology: Topology, root: int) -> Cut | None:
    """The cut that bounds a broadcast from `root`; the entire array must cross it."""
    others = [npu for npu in range(topology.n_npus) if npu != root]
    return _least_flow(topology, topology.src, topology.dst, root, others, inward=False)


@in_proportion
def reduce_cut(topology: Topology, root: int) -> Cut | None:
    """The cut that bounds a reduction to `root`; the entire array must cross it."""
    others = [npu for npu in range(topology.n_npus) if npu != root]
    return _least_flow(topology, topology.dst, topology.src, root, others, inward=True)


@in_proportion
def separating_cut(topology: Topology) -> Cut | None:
    """The minimum cut between any NPUs: an all-reduce must move its entire array out of, and into, every set."""
    rates, which = np.unique(topology.bandwidth_Bps, return_inverse=True)
    into, out = (np.bincount(ends * rates.size + which) for ends in (topology.dst, topology.src))
    if np.array_equal(into, out):  # every node, and so every set, has links of the same rates both ways
        return broadcast_cut(topology, 0)
    cuts = [cut for cut in (broadcast_cut(topology, 0), reduce_cut(topology, 0)) if cut is not None]
    return min(cuts, key=lambda cut: cut.rate_Bps) if cuts else None


@remembered
def is_transitive(topology: Topology) -> bool:
    """Whether the translations of the coordinates are automorphisms, so that every NPU is like every other."""
    return all(
        link_permutation(topology, translation(topology, dim)) is not None
        for dim, extent in enumerate(topology.shape) if extent > 1
    )


def _tightest(
    topology: Topology, tails: npt.NDArray[np.int32], heads: npt.NDArray[np.int32],
    weights: tuple[int, ...] | None, *, inward: bool, sinks: Sequence[int] | None = None,
) -> Cut | None:
    n = topology.n_npus
    weight = list(weights) if weights is not None else [1] * n
    if len(weight) != n or any(one < 0 for one in weight) or not any(weight):
        raise WeftError(f"topology {topology.name}: {n} NPUs need {n} nonnegative weights, at least one positive")
    if n == 1:
        return None
    if weights is None and is_cut_at_one_npu(topology):
        return Cut(tuple(range(1, n)), n - 1, together_Bps(topology.bandwidth_Bps) / n, inward)
    unit, capacity = whole_capacities(topology.bandwidth_Bps)
    search = _Search(topology, tails, heads, capacity, weight)
    side = search.run(sinks or ([0] if weights is None and is_transitive(topology) else range(n)))
    nodes = tuple(int(node) for node in np.flatnonzero(side))
    leaving = sum(rate for rate, out in zip(capacity, side[tails] & ~side[heads], strict=True) if out)
    return Cut(nodes, sum(weight[node] for node in nodes if node < n), unit * leaving, inward)


@remembered
def is_cut_at_one_npu(topology: Topology) -> bool:
    """Whether all NPUs but one are a tightest set, as is known without a flow.

    In a connected graph that looks the same from every node, without parallel links, every set but the whole is left by
    at least as many links as a node (W. Mader, "Minimale n-fach kantenzusammenhängende Graphen", Math. Ann. 191, 1971;
    Y. O. Hamidoune for directed graphs, 1977). Where all links are equal, the largest set then has the largest ratio.
    """
    t = topology
    between = t.src.astype(np.int64) * t.n_nodes + t.dst
    equal = t.n_nodes == t.n_npus and t.n_links > 0 and bool(np.all(t.bandwidth_Bps == t.bandwidth_Bps[0]))
    return equal and distinct_of(between).size == t.n_links and is_transitive(t) and links_from(t)[1] >= 0


def links_from(
    topology: Topology, source: int = 0, scratch: npt.NDArray[np.int32] | None = None
) -> tuple[npt.NDArray[np.int32], int]:
    """Links from a node to each node, and to the farthest NPU: -1 if one cannot be reached.

    `scratch` (2, n_nodes): the first row is what is returned.
    """
    hops, queue = np.empty((2, topology.n_nodes), np.int32) if scratch is None else scratch
    return hops, int(farthest(topology.link_ptr, topology.dst, source, topology.n_npus, hops, queue))


class _Search:
    """Newton's method for the largest ratio of weight inside to capacity leaving."""

    def __init__(
        self, topology: Topology, tails: npt.NDArray[np.int32], heads: npt.NDArray[np.int32], capacity: list[int],
        weight: list[int],
    ) -> None:
        self.topology, self.tails, self.heads = topology, tails, heads
        self.capacity, self.weight = capacity, weight
        total = sum(weight) * (sum(capacity) + max(capacity, default=0) * len(weight))
        self.exact = 2 * total > LARGEST
        self.rates = np.array(capacity, object if self.exact else np.int64)
        self.network = FlowNetwork(topology.n_nodes + 1, self.exact)
        self.arcs = np.array(
            [self.network.add(tail, head) for tail, head in zip(tails.tolist(), heads.tolist(), strict=True)], np.int64
        )
        self.feeds = np.array([self.network.add(topology.n_nodes, npu) for npu in range(len(weight))], np.int64)

    def run(self, sinks: Sequence[int]) -> Bools:
        """The set with the largest ratio, among sets that miss at least one of the sinks, (n_nodes,)."""
        side = self._all_but(max(sinks, key=self._single_ratio))
        self._set_rate(side)
        passed, at = 0, 0
        while passed < len(sinks):
            better = self._violated(sinks[at])
            if better is None:
                passed, at = passed + 1, (at + 1) % len(sinks)
                count("NPUs tested for a tighter cut", passed, len(sinks))
            else:
                side, passed = better, 0
                self._set_rate(side)
        return side

    def _single_ratio(self, npu: int) -> Fraction:
        """Ratio of the set of all nodes except one NPU."""
        entering = sum(self.capacity[link] for link in np.flatnonzero(self.heads == npu).tolist())
        inside = sum(self.weight) - self.weight[npu]
        if entering == 0 and inside:
            verb = "be reached by" if self.heads is self.topology.dst else "reach"
            raise WeftError(
                f"topology {self.topology.name}: {self.topology.node_name(npu)} cannot {verb} any other NPU: "
                "it has no link in that direction"
            )
        return Fraction(inside, max(entering, 1))

    def _all_but(self, npu: int) -> Bools:
        side = np.ones(self.topology.n_nodes, np.bool_)
        side[npu] = False
        return side

    def _set_rate(self, side: Bools) -> None:
        inside = sum(weight for npu, weight in enumerate(self.weight) if side[npu])
        out = sum(self.rates[side[self.tails] & ~side[self.heads]].tolist())
        if inside and not out:
            self._refuse(side)
        ratio = Fraction(inside, max(out, 1))
        self.p, self.q = ratio.numerator, ratio.denominator
        self.network.capacity[self.arcs] = self.p * self.rates
        self.network.capacity[self.feeds] = self.q * np.array(self.weight, self.rates.dtype)

    def _violated(self, sink: int) -> Bools | None:
        due = self.q * sum(self.weight)
        if self.network.flow(self.topology.n_nodes, sink, due) >= due:
            return None
        return self.network.source_side()[:-1]

    def _refuse(self, side: Bools) -> None:
        t = self.topology
        here, there = (_names(t, np.flatnonzero(part[: t.n_npus])) for part in (side, ~side))
        if self.heads is not t.dst:
            here, there = there, here
        raise WeftError(f"topology {t.name}: no route leads from {here} to {there}")


def _names(topology: Topology, nodes: Iterable[int]) -> str:
    names = [topology.node_name(int(node)) for node in nodes]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _least_flow(
    topology: Topology, tails: npt.NDArray[np.int32], heads: npt.NDArray[np.int32], root: int, sinks: list[int], *,
    inward: bool,
) -> Cut | None:
    """The minimum cut between a root and any of the sinks."""
    topology.check_root(root)
    if not sinks:
        return None
    if is_cut_at_one_npu(topology):
        return Cut((root,), 1, together_Bps(topology.bandwidth_Bps) / topology.n_npus, inward)
    unit, capacity = whole_capacities(topology.bandwidth_Bps)
    everything = sum(capacity) + 1
    exact = 2 * everything > LARGEST
    network, reverse = (FlowNetwork(topology.n_nodes, exact) for _ in range(2))
    for tail, head, rate in zip(tails.tolist(), heads.tolist(), capacity, strict=True):
        network.add(tail, head, rate)
        reverse.add(head, tail, rate)
    least, side = everything, np.ones(topology.n_nodes, np.bool_)
    for number, sink in enumerate(sinks):
        count("maximum flows", number, len(sinks))
        # Backwards, so that the search ends at the first of the sinks before it: none of those is cut off for less.
        if reverse.flow(sink, root, least) < least:
            least = network.flow(root, sink, least)
            side = network.source_side()
        reverse.add(sink, root, everything)
    if least == 0:
        here, there = (_names(topology, np.flatnonzero(part[: topology.n_npus])) for part in (side, ~side))
        here, there = (there, here) if inward else (here, there)
        raise WeftError(f"topology {topology.name}: no route leads from {here} to {there}")
    return Cut(tuple(int(node) for node in np.flatnonzero(side)), 1, unit * least, inward)
