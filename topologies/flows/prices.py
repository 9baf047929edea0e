"""Bounds on an all-to-all by prices of links, the dual of its maximum concurrent flow: each is a proof by itself.

Let each link have a price p >= 0 for a byte. Every pair of NPUs pays at least its cheapest route for each of its bytes,
and what all pay is at most the sum over links of price, bandwidth and time. So for blocks of b bytes, in any schedule,

    time >= b * sum over pairs of the cheapest route / sum over links of p * bandwidth

(T. Leighton, S. Rao, "Multicommodity max-flow min-cut theorems", 1999, section 2). A price of 1 on the links of a cut
counts what crosses the cut; on all links, the links that bytes cross. The best prices are those at which a concurrent
flow is as fast: there the bound is the optimum.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core.paths import distinct_of, ranges
from topologies.core.routing import distances
from topologies.core.symmetry import link_orbits
from topologies.core.topology import Topology
from topologies.flows.cuts import whole_capacities
from topologies.flows.partitions import boxes
from topologies.flows.programs import SMALL, ConcurrentFlow, concurrent_flow, is_small_program
from topologies.flows.tightest_cut import is_transitive
from topologies.units import counted

Ints = npt.NDArray[np.int64]

FINEST = 2**24
"""The largest price of a link; whole, so that what a route costs is exact."""

SIMPLE = 64
"""Prices are first read as simple proportions, with denominators up to this one: those of small fabrics are."""

TOLERANCE = 1e-6
"""Of a linear program in floating point, which also weighs detours: prices and a flow this close are at the optimum."""

MOST_ROUTED = 10**8
"""Sources by links whose cheapest routes are counted where NPUs are not alike: about five seconds."""

FEW_LINKS = 20_000
"""Limit on links for routes found in numpy, which takes less than to load scipy: 0.1 s on a ring."""

DETOURS = 1e-4
"""Prices below that share of the largest one are of the detours that the program weighs."""


class Priced(NamedTuple):
    """A bound on an all-to-all."""

    s_per_block_byte: Fraction  # least time for each byte of the blocks, of which every NPU sends one to every other
    links: tuple[int, ...]  # those with a price
    said: str  # why it holds
    reached: bool  # whether a concurrent flow is as fast


def best_prices(topology: Topology) -> Priced:
    """The tightest bound among the links of NPUs, of dimensions, of boxes, all links, and of the linear program.

    The program is solved where it is small (`is_small_program`); elsewhere the optimum may be slower than the bound.
    On a fabric so large that routes cannot be counted (`MOST_ROUTED`) there are cuts alone, and what is said says so.
    WeftError: an NPU that another cannot reach.
    """
    best = max(_candidates(topology), key=lambda one: one.s_per_block_byte)
    if not _is_routed(topology):
        work = f"{topology.n_npus:,} NPUs by {topology.n_links:,} links"
        return best._replace(said=f"{best.said}; routes of all pairs, {work}, are too many to be counted")
    if not is_small_program(topology):
        return best
    if is_transitive(topology) and _even_rate_Bps(topology) * float(best.s_per_block_byte) >= 1 - TOLERANCE:
        return best._replace(reached=True)
    return _by_program(topology, best, concurrent_flow(topology))


def _even_rate_Bps(topology: Topology) -> float:
    """Bytes per second from every NPU to every other along all shortest routes, where all NPUs are alike.

    A concurrent flow: those to NPU 0, in equal shares over the links that lead nearer; what they put on a link is
    spread over its orbit.
    """
    t, (hops,) = topology, distances(topology, np.zeros(1, np.int64))
    nearer = np.flatnonzero(hops[t.src] == hops[t.dst] + 1)
    nearer = nearer[np.argsort(-hops[t.src[nearer]], kind="stable")]
    ways, carried = np.bincount(t.src[nearer], minlength=t.n_nodes), np.zeros(t.n_links)
    through = np.append(np.ones(t.n_npus), np.zeros(t.n_nodes - t.n_npus))
    for links in np.split(nearer, np.flatnonzero(np.diff(hops[t.src[nearer]])) + 1):  # all of one distance
        carried[links] = through[t.src[links]] / ways[t.src[links]]
        np.add.at(through, t.dst[links], carried[links])
    orbit = link_orbits(t)
    used = np.bincount(orbit, carried) * t.n_npus
    return float((np.bincount(orbit, t.bandwidth_Bps)[used > 0] / used[used > 0]).min(initial=np.inf))


def demand_prices(topology: Topology, demand: Ints) -> Priced:
    """The tightest such bound on what each NPU sends every other, in any unit: seconds for each byte of the unit.

    `demand`: (n_npus, n_npus), with a diagonal of 0.
    WeftError: an NPU that another cannot reach.
    """
    best = max(_demanded(topology, demand), key=lambda one: one.s_per_block_byte)
    if demand.any() and topology.n_npus * topology.n_links <= SMALL:
        best = _by_program(topology, best, concurrent_flow(topology, tuple(map(tuple, demand.tolist()))), demand)
    return best._replace(said=best.said.replace("block", "element"))


def _by_program(topology: Topology, best: Priced, flow: ConcurrentFlow, demand: Ints | None = None) -> Priced:
    """The better of a bound and that of the prices of a linear program, where the bound is not its optimum."""
    if flow.rate_Bps * float(best.s_per_block_byte) < 1 - TOLERANCE:
        said = "by the prices of links in a linear program"
        by_program = [_bound(topology, price, _cheapest_sum(topology, price, demand), said)
                      for price in _whole(flow.price)]
        best = max(best, *by_program, key=lambda one: one.s_per_block_byte)
    return best._replace(reached=flow.rate_Bps * float(best.s_per_block_byte) >= 1 - TOLERANCE)


def _demanded(topology: Topology, demand: Ints) -> Iterator[Priced]:
    """Links at a price of 1: of an NPU, every box, halves of dimensions; all, where routes are quick to count."""
    src, dst, n = topology.src, topology.dst, topology.n_npus
    for ends, verb, amount in ((dst, "enter", demand.sum(axis=0)), (src, "leave", demand.sum(axis=1))):
        rates = np.bincount(ends, topology.bandwidth_Bps, topology.n_nodes)[:n]
        npu = int(np.divide(amount, rates, out=np.where(amount > 0, np.inf, 0.0), where=rates > 0).argmax())
        yield _cut(topology, ends == npu, int(amount[npu]), f"{verb} {topology.node_name(npu)}")
    sets = [(part == box, "box") for part in boxes(topology) for box in distinct_of(part[:n]).tolist()]
    sets += [(topology.coords[:, at] < half // 2, f"half of dimension {at}") for at, half in enumerate(topology.shape)]
    for inside, what in sets:
        yield from _both_ways(topology, inside, what, demand)
    if topology.n_npus * topology.n_links <= MOST_ROUTED:
        everywhere = np.ones(topology.n_links, np.int64)
        cost = _cheapest_sum(topology, everywhere, demand)
        yield _cut(topology, everywhere > 0, cost, "cross links in all")


def _candidates(topology: Topology) -> Iterator[Priced]:
    """Links that may be scarce together, at a price of 1: of an NPU, a box, a half, a dimension, all."""
    src, dst, n = topology.src, topology.dst, topology.n_npus
    for ends, verb in ((dst, "enter"), (src, "leave")):
        rates = np.bincount(ends, topology.bandwidth_Bps, topology.n_nodes)[:n]
        least = int(rates.argmin())
        yield _cut(topology, ends == least, n - 1, f"{verb} {topology.node_name(least)}")
    for part in boxes(topology):
        names, sizes = np.unique(part[:n], return_counts=True)
        apart = n * n - int((sizes**2).sum())
        yield _cut(topology, part[src] != part[dst], apart, "cross between boxes")
        for box in {int(names[at]) for at in (sizes.argmax(), sizes.argmin())}:
            yield from _both_ways(topology, part == box, "box")
    for dimension, extent in enumerate(topology.shape):
        yield from _both_ways(topology, topology.coords[:, dimension] < extent // 2, f"half of dimension {dimension}")
    if not _is_routed(topology):
        return
    dimensions = distinct_of(topology.dimension).tolist()
    for dimension in dimensions if len(dimensions) > 1 else ():
        its = topology.dimension == dimension
        cost = _cheapest_sum(topology, its.astype(np.int64))
        yield _cut(topology, its, cost, f"cross links of dimension {dimension} in all")
    everywhere = np.ones(topology.n_links, np.bool_)
    yield _cut(topology, everywhere, _cheapest_sum(topology, everywhere.astype(np.int64)), "cross links in all")


def _is_routed(topology: Topology) -> bool:
    """Whether the cheapest routes of all pairs are quick to count."""
    return topology.n_npus * topology.n_links <= MOST_ROUTED or is_transitive(topology)


def _whole(price: npt.NDArray[np.float64]) -> Iterator[Ints]:
    """Prices of a program as whole numbers: in simple proportions, and as fine as they may be."""
    price = np.where(price > DETOURS * price.max(), price, 0)
    distinct, which = np.unique(price / price[price > 0].min(initial=np.inf), return_inverse=True)
    simple = [Fraction(one).limit_denominator(SIMPLE) for one in distinct.tolist()]
    below = math.lcm(*(one.denominator for one in simple))
    if max(simple) * below <= FINEST:
        yield np.array([int(one * below) for one in simple], np.int64)[which]
    yield np.rint(price / price.max() * FINEST).astype(np.int64)


def _both_ways(
    topology: Topology, inside: npt.NDArray[np.bool_], what: str, demand: Ints | None = None
) -> Iterator[Priced]:
    """What must leave a set of nodes, and enter it."""
    npus, tail, head = inside[: topology.n_npus], inside[topology.src], inside[topology.dst]
    size = int(np.count_nonzero(npus))
    out = into = size * (topology.n_npus - size)
    if demand is not None:
        out, into = int(demand[npus][:, ~npus].sum()), int(demand[~npus][:, npus].sum())
    yield _cut(topology, tail & ~head, out, f"leave a {what}")
    yield _cut(topology, ~tail & head, into, f"enter a {what}")


def _cut(topology: Topology, links: npt.NDArray[np.bool_], crossings: int, said: str) -> Priced:
    """Of links at a price of 1: how often blocks must cross one."""
    return _bound(topology, links.astype(np.int64), crossings, f"{counted(crossings, 'block')} must {said}")


def _bound(topology: Topology, price: Ints, cost: int, said: str) -> Priced:
    unit, capacity = whole_capacities(topology.bandwidth_Bps)
    used = np.flatnonzero(price)
    paid = sum(int(price[link]) * capacity[link] for link in used.tolist())
    return Priced(cost / (unit * paid) if paid else Fraction(0), tuple(used.tolist()), said, False)


def _cheapest_sum(topology: Topology, price: Ints, demand: Ints | None = None) -> int:
    """What the cheapest routes cost, summed over all pairs of NPUs; exact, for no route comes near 2^53.

    `demand`: how much of each pair (default: 1).

    From one NPU where all are alike and so are the prices of links that are.
    """
    n, nodes = topology.n_npus, topology.n_nodes
    orbit = link_orbits(topology) if is_transitive(topology) else None
    alike = orbit is not None and np.array_equal(price, price[np.unique(orbit, return_index=True)[1]][orbit])
    alike &= demand is None
    if alike and topology.n_links <= FEW_LINKS:
        costs = [_cheapest_to_first(topology, price)[:n]]
    else:
        from scipy.sparse import csr_array  # heavy: loaded where it is used
        from scipy.sparse.csgraph import dijkstra

        order = np.lexsort((price, topology.dst, topology.src))
        ends, first = np.unique(topology.src[order].astype(np.int64) * nodes + topology.dst[order], return_index=True)
        ptr = np.searchsorted(ends, np.arange(nodes + 1) * nodes)
        graph = csr_array((price[order][first].astype(np.float64), ends % nodes, ptr), shape=(nodes, nodes))
        costs = [dijkstra(graph, indices=source)[:n] for source in range(1 if alike else n)]
    if not all(np.isfinite(cost).all() for cost in costs):
        raise WeftError(f"topology {topology.name}: an NPU cannot be reached from another one")
    if demand is not None:
        return sum(sum(map(int, cost.astype(np.int64) * row)) for cost, row in zip(costs, demand, strict=True))
    return sum(int(cost.astype(np.int64).sum()) for cost in costs) * (n if alike else 1)


def _cheapest_to_first(topology: Topology, price: Ints) -> npt.NDArray[np.float64]:
    """What the cheapest route from each node to NPU 0 costs, (n_nodes,): on from nodes that have become cheaper."""
    cost = np.where(np.arange(topology.n_nodes) == 0, 0, np.inf)
    entering = np.argsort(topology.dst, kind="stable")
    count = np.bincount(topology.dst, minlength=topology.n_nodes)
    first, front = np.cumsum(count) - count, np.zeros(1, np.int64)
    while front.size:
        links = entering[ranges(first[front], count[front])]
        links = links[cost[topology.dst[links]] + price[links] < cost[topology.src[links]]]
        front = distinct_of(topology.src[links])
        np.minimum.at(cost, topology.src[links], cost[topology.dst[links]] + price[links])
    return cost
