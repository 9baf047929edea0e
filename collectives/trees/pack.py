"""From shares to a forest on the physical links: switches are split off, trees packed, and edges mapped back.

The roots of an all-reduce may be chosen by the linear program of `topologies.flows.programs.best_roots`. Shares and
bandwidths of its solution are rounded to fractions with small denominators; scaled to integers they are packed like any
other trees, downward on the broadcast bandwidth and upward on the rest. If the program is no better than a
reduce-scatter and an all-gather (`equal_roots_are_best`), those are used: their fractions are simpler. Where its
fractions are not small, roots and links get whole numbers of trees, and what that loses is said.

Trees through switches that multicast and reduce: an all-reduce with chosen roots, packed as if they were NPUs.

A switch that every tree passes is a node of it like any other, and what the program and the packing of
`collectives.trees.pack` know of NPUs holds for it; branches that lead to switches alone are cut off. A tree need not
pass switches of which there are many, such as spines: those of the tiers next to the NPUs are taken, up to the tier of
the best rate, and the others forward.
"""

import math
from collections import deque
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.trees.edge_splitting import Pair, take_paths, without_switches
from collectives.trees.edge_splitting import Shares as PathShares
from collectives.trees.forest import Edge, Forest, Routes, Tree, mirror_of, turned_back
from collectives.trees.packing import Batch, low_trees, pack_trees
from collectives.trees.shares import LOSS, Shares, broadcast_shares, gather_shares, roots_reach_all, s_per_byte_of_root
from topologies import NPU, Topology, WeftError
from topologies.core.reduction_units import unit_of
from topologies.flows.partitions import least_crossing, reducing_nodes
from topologies.flows.programs import Floats, Roots, balanced, best_roots
from topologies.flows.tightest_cut import remembered, separating_cut

LEVEL_NPUS = 64
"""Default limit on NPUs for growing trees level by level, which takes seconds and halves their height."""

SPREAD_TREES = 16
"""Default limit on trees per root for splitting switches into many thin links; above it, trees multiply."""

SPREAD_NEIGHBORS = 48
"""Default limit on neighbors of a switch for the same, since pairs of neighbors multiply too."""

FINER = 4
"""If the optimum takes fewer trees per root, this multiple is tried behind switches, for shallower trees."""

FINER_OF_ONE = (2, 4, 8, 16)
"""The same of the trees of a single root."""

FINER_NPUS = 32
"""Limit on NPUs for trying that: less than a second."""


@remembered
def gather_forest(
    topology: Topology, k: int | None = None, level: bool | None = None, routes: Routes | None = None
) -> Forest:
    """Trees away from every root that reach the bandwidth optimum of an all-gather.

    `k`: trees per root. Default: as many as the optimum takes, or `FINER` times as many if those are shallower.
    `level`, `routes`: as in `pack_forest`.
    WeftError: unreachable NPUs, or a k that does not fit past the switches.
    """
    shares = gather_shares(topology, k)
    forest = pack_forest(topology, shares, level, None, routes)
    if k is None and _may_be_lower(topology, shares, forest):
        finer = pack_forest(topology, shares.times(FINER), level, None, routes)
        return finer if finer.hops < forest.hops else forest
    return forest


def _may_be_lower(topology: Topology, shares: Shares, forest: Forest) -> bool:
    """Whether finer shares may lead past the switches with fewer links: 10 against 16 on hx4mesh:2x1."""
    behind = topology.n_nodes > topology.n_npus and topology.n_npus <= FINER_NPUS
    return behind and max(shares.roots.values()) < FINER and forest.height > 2


@remembered
def scatter_forest(topology: Topology, k: int | None = None, routes: Routes | None = None) -> Forest:
    """Trees toward every root: those of an all-gather on the reversed network, where the `routes` are."""
    return turned_back(gather_forest(mirror_of(topology), k, None, routes), topology)


@remembered
def broadcast_forest(topology: Topology, root: int, k: int | None = None, routes: Routes | None = None) -> Forest:
    """Trees away from one root, at the largest rate of a broadcast, or of one with k trees.

    Behind switches one tree is a chain, in which everybody sends once; more trees, in each of which few send often, are
    lower. By default as many are taken as the optimum takes, or a multiple that makes them lowest.
    """
    shares = broadcast_shares(topology, root, k)
    forest = pack_forest(topology, shares, None, None, routes)
    if k is None and topology.n_nodes > topology.n_npus and forest.height > 2:
        finer = (low_trees(topology, more.roots, more.links, routes) for more in map(shares.times, FINER_OF_ONE))
        lower = (Forest(topology, trees) for trees in finer if trees is not None)
        return min((forest, *lower), key=lambda one: one.hops)
    return forest


@remembered
def reduce_forest(topology: Topology, root: int, k: int | None = None, routes: Routes | None = None) -> Forest:
    """Trees toward one root, at the largest rate of a reduction, or of one with k trees; `routes` of the mirror."""
    return turned_back(broadcast_forest(mirror_of(topology), root, k, routes), topology)


def pack_forest(
    topology: Topology, shares: Shares, level: bool | None = None, spread: bool | None = None,
    routes: Routes | None = None,
) -> Forest:
    """The forest with the given shares; its link loads are checked against them.

    `level`: whether trees grow level by level. Default: up to `LEVEL_NPUS` NPUs.
    `routes`: the ways that edges of trees may take. Default: all.
    `spread`: as in `without_switches`. Default: up to `SPREAD_TREES` and `SPREAD_NEIGHBORS`.
    Without both, low trees are taken where they are found (`low_trees`).
    """
    if topology.n_npus == 1:
        return Forest(topology, (Tree(0, shares.roots[0], ()),))
    low = low_trees(topology, shares.roots, shares.links, routes) if level is None and spread is None else None
    if low is not None:
        forest = Forest(topology, low)
        _check_shares(forest, shares)
        return forest
    level = topology.n_npus <= LEVEL_NPUS if level is None else level
    if spread is None:
        neighbors = int(np.bincount(topology.src, minlength=topology.n_nodes)[topology.n_npus :].max(initial=0))
        spread = max(shares.roots.values()) <= SPREAD_TREES and neighbors <= SPREAD_NEIGHBORS
    logical = without_switches(topology, shares.links, shares.roots, spread=spread, routes=routes)
    batches = pack_trees(topology.n_npus, logical.capacity, shares.roots, level=level)
    paths = {pair: deque(found) for pair, found in logical.paths.items()}
    trees = tuple(tree for batch in batches for tree in _mapped(batch, paths))
    forest = Forest(topology, tuple(sorted(trees, key=lambda tree: tree.root)))
    _check_shares(forest, shares)
    return forest


def _mapped(batch: Batch, paths: dict[Pair, PathShares]) -> list[Tree]:
    """The trees of a batch on physical links, split according to the paths of its edges."""
    taken = {(batch.parent[node], node): take_paths(paths[batch.parent[node], node], batch.multiplicity)
             for node in batch.nodes[1:]}
    trees, left = [], batch.multiplicity
    while left:
        many = min([left, *(found[0][1] for found in taken.values())])
        edges = []
        for (parent, child), found in taken.items():
            ((links, _),) = take_paths(found, many)
            edges.append(Edge(parent, child, links))
        trees.append(Tree(batch.root, many, tuple(edges)))
        left -= many
    return trees


def _check_shares(forest: Forest, shares: Shares) -> None:
    forest.check()
    for link, load in forest.link_load().items():
        if load > shares.links[link]:
            raise WeftError(
                f"{forest.topology.link_name(link)} carries {load} trees but has capacity for {shares.links[link]}"
            )
    for root, share in shares.roots.items():
        if forest.blocks_of_root(root) != share:
            raise WeftError(f"root {root} has {forest.blocks_of_root(root)} trees instead of {share}")


DENOMINATORS = (1, 2, 4, 6, 12, 60, 720)
"""Largest denominators tried for the shares of a solution, smallest first."""

EXACT_TREES, FEW_TREES = 4096, (16, 32, 64, 128, 256, 512, 1024)
"""Most trees, over all roots, that a solution may take, and the numbers tried where its fractions are finer."""

FEW_OF_ONE = (4, 6, 8, 12, 16, 32, 3, 2, 1)
"""Trees of each root that are tried where roots are equal: few of a root are long in filling, one of small arrays."""

MOST_LOSS, PRECISION = 0.5, 1e-4
"""Of the losses of bandwidth by few trees, the most that is looked at, and how near the least is found."""

MOST_VARIABLES = 12_000
"""Limit on the variables of the linear program: about ten seconds."""


class BestRoots(NamedTuple):
    """Trees toward and away from roots that a linear program chose."""

    up: Forest
    down: Forest
    loss: float  # of bandwidth against the program, by rounding

    @property
    def n_trees(self) -> int:
        """Trees of all roots, each counted as often as it is used."""
        return sum(tree.multiplicity for tree in self.down.trees)

    @property
    def note(self) -> str:
        """How far below the optimum, rounded up; nothing at it."""
        percent = math.ceil(self.loss * 10_000) / 100
        return f"{percent:g} % below the optimum, {self.n_trees} trees in all" if self.loss > 0 else ""


@remembered
def best_root_forests(topology: Topology, most: int = EXACT_TREES, equal: int = 0) -> BestRoots:
    """Trees up and down for the best all-reduce along trees, where roots are better chosen than equal.

    They are those of the program where its fractions take at most `most` trees. Else the fewest trees that lose at most
    1 % against it, or the number up to `most` that loses least.

    `equal`: as in `best_roots`.
    WeftError: unreachable NPUs, a linear program that is too large, or trees that do not fit past the switches.
    """
    best = best_roots(topology, (), equal)
    unit = float(topology.bandwidth_Bps.max())
    for denominator in DENOMINATORS:
        shares = [_near(share / unit, denominator) for share in best.share_Bps.tolist()]
        if abs(float(sum(shares)) * unit - best.rate_Bps) > 1e-6 * best.rate_Bps:
            continue
        found = _packed(topology, shares, best, denominator, most)
        if found is not None:
            return BestRoots(*found, 0.0)
    least: BestRoots | None = None
    few = [equal * many for many in FEW_OF_ONE] if equal else FEW_TREES
    for n_trees in (some for some in few if some <= most):
        rounded = _rounded(topology, n_trees, equal)
        if rounded is not None and (least is None or rounded.loss < least.loss):
            least = rounded
        if least is not None and least.loss <= LOSS:
            return least
    if least is None:
        raise WeftError(f"topology {topology.name}: the best roots have no few trees past its switches; use two-phase")
    return least


@remembered
def _rounded(topology: Topology, n_trees: int, equal: int = 0) -> BestRoots | None:
    """Whole numbers of trees, each root's by its share, with the least loss at which flows of them fit; or None."""
    best = best_roots(topology, (), equal)
    part = best.share_Bps / best.share_Bps.sum() * n_trees
    trees = np.floor(part).astype(int)
    trees[np.argsort(trees - part, kind="stable")[: n_trees - trees.sum()]] += 1
    roots = {npu: many for npu, many in enumerate(trees.tolist()) if many}
    down = np.clip(best.spread_Bps, 0, topology.bandwidth_Bps)
    up = np.clip(best.gather_Bps, 0, topology.bandwidth_Bps - down)
    turned, mirror = np.lexsort((topology.src, topology.dst)), mirror_of(topology)
    sides = ((topology, down), (mirror, up[turned]))
    low, high = 1.0, 1 / (1 - MOST_LOSS)  # times the scale of the optimum

    def links(network: Topology, rates: Floats, scale: float) -> list[int]:
        whole = np.floor(rates * (scale * n_trees / best.rate_Bps) + 1e-9)
        return balanced(network, [int(one) for one in whole])

    def fit(scale: float) -> bool:
        return all(roots_reach_all(one, roots, links(one, rates, scale)) for one, rates in sides)

    if not fit(high):
        return None
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if fit(middle) else (middle, high)
    try:
        away, toward = (
            pack_forest(one, Shares(roots, links(one, rates, high), Fraction(high * n_trees / best.rate_Bps)))
            for one, rates in sides
        )
    except WeftError:  # rounded down, a switch may receive less than it sends
        return None
    return BestRoots(turned_back(toward, topology), away, 1 - 1 / high)


@remembered
def equal_roots_are_best(topology: Topology) -> bool:
    """Whether a reduce-scatter and an all-gather are as fast as an all-reduce with chosen roots.

    WeftError: unreachable NPUs, or a linear program that is too large.
    """
    simple = two_phase_rate_Bps(topology)
    if simple is None or 1 / simple <= _bound_s_per_byte(topology):
        return True  # already optimal: no program is needed
    check_program(topology, "best-roots", "; use the form two-phase")
    return best_roots(topology).rate_Bps <= float(simple) * (1 + 1e-6)


def program_variables(topology: Topology) -> int:
    """Of the linear program of chosen roots."""
    return 2 * topology.n_npus * topology.n_links


def check_program(topology: Topology, what: str, instead: str = "") -> None:
    """Refuse a linear program of more than `MOST_VARIABLES`."""
    if (variables := program_variables(topology)) > MOST_VARIABLES:
        raise WeftError(
            f"{what} on {topology.name}: the linear program would have {variables:,} variables (limit: "
            f"{MOST_VARIABLES:,}){instead}"
        )


def two_phase_rate_Bps(topology: Topology) -> Fraction | None:
    """Bytes per second of an all-reduce as concurrent reduce-scatter and all-gather; None for one NPU.

    Both share every link, so their times add up.
    """
    s_per_byte = sum((s_per_byte_of_root(one, None) for one in (topology, mirror_of(topology))), Fraction(0))
    return topology.n_npus / s_per_byte if s_per_byte else None


def _bound_s_per_byte(topology: Topology) -> Fraction:
    """Lower bound on any all-reduce, in seconds per byte."""
    cut = separating_cut(topology)
    return max(least_crossing(topology).s_per_byte, cut.s_per_byte if cut else Fraction(0))


def _near(value: float, denominator: int) -> Fraction:
    return Fraction(value).limit_denominator(denominator)


def _packed(
    topology: Topology, shares: list[Fraction], best: Roots, denominator: int, most: int
) -> tuple[Forest, Forest] | None:
    """Both forests, or None if the rounded fractions do not fit, or take too many trees."""
    unit = topology.bandwidth_Bps.max()
    down = [_near(one, denominator) for one in (best.spread_Bps / unit).tolist()]
    rates = [Fraction(float(rate)) / Fraction(float(unit)) for rate in topology.bandwidth_Bps.tolist()]
    idle = (topology.bandwidth_Bps - best.spread_Bps - best.gather_Bps) / unit
    up = [rate - one - _near(no, denominator) for rate, one, no in zip(rates, down, idle.tolist(), strict=True)]
    if min(up) < 0:
        return None
    whole = math.lcm(*(one.denominator for one in (*shares, *down, *up)))
    roots = {npu: int(share * whole) for npu, share in enumerate(shares) if share}
    if sum(roots.values()) > most:
        return None
    s_per_block_byte = Fraction(1, whole) / Fraction(float(unit))
    mirror = mirror_of(topology)
    turned = np.lexsort((topology.src, topology.dst)).tolist()
    try:
        spreading = pack_forest(topology, Shares(roots, [int(one * whole) for one in down], s_per_block_byte))
        summing = pack_forest(mirror, Shares(roots, [int(up[link] * whole) for link in turned], s_per_block_byte))
    except WeftError:
        return None
    return turned_back(summing, topology), spreading


SAME = 1e-6
"""Rates of linear programs that differ by this share are the same."""


class Raised(NamedTuple):
    """A network whose capable switches are NPUs, and the node and link of the original for each of it."""

    topology: Topology
    node: npt.NDArray[np.int64]
    link: npt.NDArray[np.int64]


@remembered
def capable_forests(topology: Topology, most: int) -> BestRoots:
    """Trees up and down through switches that reduce, in all at most `most`, and their loss against the program.

    Switches are those that the fabric says, else all, at the rate of their links.

    WeftError: none, one NPU, units behind them, a linear program that is too large, or what `best_root_forests` raises.
    """
    fabric, n = topology.as_it_reduces(), topology.n_npus
    capable = reducing_nodes(fabric, None if fabric.aggregation else True)
    if not capable.any() or np.any(unit_of(fabric) != np.arange(fabric.n_nodes)):
        what = "units that reduce behind its switches" if capable.any() else "no switches that reduce"
        raise WeftError(f"trees through switches that reduce: {topology.name} has {what}; use in-network")
    tier = np.full(fabric.n_nodes, np.iinfo(np.int16).max)
    np.minimum.at(tier, fabric.src, fabric.dimension)
    candidates = [_raised(fabric, capable & (tier <= highest)) for highest in np.unique(tier[capable]).tolist()]
    check_program(candidates[0].topology, "trees through switches that reduce")
    candidates = [one for one in candidates if program_variables(one.topology) <= MOST_VARIABLES]
    optimum = best_roots(fabric, tuple(np.flatnonzero(capable).tolist())).rate_Bps
    raised, rate_Bps = max(((one, best_roots(one.topology).rate_Bps) for one in candidates), key=lambda one: one[1])
    alike = best_roots(raised.topology, (), n).rate_Bps >= rate_Bps * (1 - SAME)
    found = best_root_forests(raised.topology, most, n if alike else 0)
    down, up = (_lowered(forest, raised, topology) for forest in (found.down, found.up))
    return BestRoots(up, down, max(0.0, 1 - rate_Bps * (1 - found.loss) / optimum))


def _raised(t: Topology, capable: npt.NDArray[np.bool_]) -> Raised:
    order = np.argsort(np.where(t.kind == NPU, 0, np.where(capable, 1, 2)), kind="stable")
    place = np.argsort(order)
    src, dst = place[t.src].astype(np.int32), place[t.dst].astype(np.int32)
    kind = np.where(capable, NPU, t.kind)[order]
    raised = replace(
        t, name=f"{t.name}, whose switches reduce", kind=kind, src=src, dst=dst, coords=t.coords[order],
        hop_latency_ps=t.hop_latency_ps[order], node_names=(), aggregation=None, optics=None,
    )
    return Raised(raised, order, np.lexsort((np.arange(t.n_links), dst, src)))


def _lowered(forest: Forest, raised: Raised, topology: Topology) -> Forest:
    """The same trees on the original network, without branches that lead to switches alone."""
    node, link = raised.node.tolist(), raised.link.tolist()
    trees = []
    for tree in forest.trees:
        needed, kept = set(range(topology.n_npus)), []
        for edge in reversed(tree.edges):
            if edge.child in needed:
                needed.add(edge.parent)
                links = tuple(link[one] for one in edge.links)
                kept.append(edge._replace(parent=node[edge.parent], child=node[edge.child], links=links))
        trees.append(Tree(node[tree.root], tree.multiplicity, tuple(reversed(kept))))
    return Forest(topology, tuple(trees), forest.inward)
