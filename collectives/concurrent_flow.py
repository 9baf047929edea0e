"""All-to-all along the routes of a linear program: the maximum concurrent flow, cut into parts.

The program computes the best rate of each source on every link (P. Basu et al., "Efficient all-to-all collective
communication schedules for direct-connect topologies", HPDC 2024, arXiv 2309.13541). Its flows become routes with
rates, the rates of a pair become an integer number of parts of its block, or with sizes per pair of elements, and each
route carries its parts as one transfer.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, kept_by_wiring
from collectives.core.collective import uneven
from collectives.core.pairs import Pairs, elements
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.core.symmetry import Permutation, link_permutation, translation
from topologies.flows.programs import concurrent_flow
from topologies.flows.tightest_cut import gather_cut
from topologies.units import Quantity, parse_size

NAME = "concurrent-flow"
FEW_NPUS, MOST_NPUS = 64, 512
"""NPUs for which it takes a few seconds; limit on them, a quarter of a minute where they are alike: above it there are
too many blocks to prove."""

MOST_VARIABLES = 20_000
"""Limit on the variables of the linear program, one per link and distinct source: a few seconds."""

PARTS = (1, 2, 3, 4, 6, 8)
"""Numbers of parts per block to try, fewest first."""

NEAR = 1.01
"""Time relative to the linear program at which no finer parts are tried."""

NOTHING = 1e-7
"""Share of a pair's rate below which a flow counts as rounding error."""

Links = tuple[int, ...]
Floats = npt.NDArray[np.float64]


def is_long(topology: Topology) -> bool:
    """Whether it takes more than a few seconds to find."""
    return topology.n_npus > FEW_NPUS


class Route(NamedTuple):
    """A path between two ranks: its links in order, and its share of their traffic."""

    source: int
    target: int
    links: Links
    share: float


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    n = topology.n_npus
    parts, routes = _whole_routes(topology) if n > 1 else (1, {})
    sends = SendList()
    for by in range(1, n):  # every source starts with the next rank, so that no destination is first for all
        for source in range(n):
            target = (source + by) % n
            first = source * n + target
            for links, numbers in routes[source, target]:
                sends.add(source, target, [part * n * n + first for part in numbers], links=links)
    return sends.pattern(topology, kind, NAME, parts * n * n)


@checked
def all_to_all(
    topology: Topology, size: Quantity, *, pairs: Pairs | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """All-to-all along the routes of the maximum concurrent flow; switches must send as much as they receive.

    `size`: what each rank sends, including its own block; with `pairs` on average.
    `pairs`: how much each rank sends every other (default: equal blocks); see `collectives.core.pairs`.
    WeftError: too many NPUs or links for the linear program, or unreachable NPUs.
    """
    if pairs is None:
        return schedule(_pattern(topology, "all-to-all"), size, element_bytes)
    count = elements(pairs, topology.n_npus, size, element_bytes)
    return Schedule(_uneven_pattern(topology, count.tobytes()), parse_size(size), element_bytes)


@kept_by_wiring(4)
def _uneven_pattern(topology: Topology, sizes: bytes) -> Pattern:
    """`sizes`: elements of each pair."""
    n = topology.n_npus
    count = np.frombuffer(sizes, np.int64).reshape(n, n)
    routes = defaultdict[tuple[int, int], list[Route]](list)
    for route in routes_of(topology, count * ~np.eye(n, dtype=np.bool_)):
        routes[route.source, route.target].append(route)
    weights = np.zeros((max(map(len, routes.values()), default=1), n, n), np.int64)
    weights[0] = np.diag(np.diag(count))
    sends = SendList()
    for by in range(1, n):
        for source in range(n):
            target, done, share = (source + by) % n, 0, 0.0
            for part, route in enumerate(routes[source, target]):
                share += route.share
                many = round(share * int(count[source, target])) - done
                done += many
                weights[part, source, target] = many
                if many:
                    block = (part * n + source) * n + target
                    sends.add(source, target, [block], links=route.links, count=many)
    return sends.pattern(topology, uneven(tuple(weights.ravel().tolist())), NAME, weights.size)


def _whole_routes(topology: Topology) -> tuple[int, dict[tuple[int, int], list[tuple[Links, Sequence[int]]]]]:
    """Parts per block, and for each pair of ranks its routes with the parts they carry."""
    routes = routes_of(topology)
    rate = concurrent_flow(topology).rate_Bps
    best_time, best_parts, best_counts = np.inf, 1, np.zeros(0, np.int64)
    for parts in PARTS:
        counts = whole_parts(topology, routes, parts)
        load = np.zeros(topology.n_links)
        for route, count in zip(routes, counts.tolist(), strict=True):
            load[list(route.links)] += count / parts
        time = float((load / topology.bandwidth_Bps).max()) * rate
        if time < best_time - 1e-9:
            best_time, best_parts, best_counts = time, parts, counts
        if best_time <= NEAR:
            break
    found: dict[tuple[int, int], list[tuple[Links, Sequence[int]]]] = defaultdict(list)
    given: dict[tuple[int, int], int] = defaultdict(int)
    for route, count in zip(routes, best_counts.tolist(), strict=True):
        if count:
            pair = (route.source, route.target)
            found[pair].append((route.links, range(given[pair], given[pair] + count)))
            given[pair] += count
    return best_parts, found


def whole_parts(topology: Topology, routes: Sequence[Route], parts: int) -> npt.NDArray[np.int64]:
    """Parts on each route: its share rounded down, the remainder on the least loaded links.

    `routes`: the routes of a pair are adjacent.
    `parts`: per block of a pair.
    """
    counts = np.array([int(parts * route.share + 1e-6) for route in routes], np.int64)
    load = np.zeros(topology.n_links)
    for route, count in zip(routes, counts.tolist(), strict=True):
        load[list(route.links)] += count
    by_pair: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, route in enumerate(routes):
        by_pair[route.source, route.target].append(at)
    for mine in by_pair.values():
        for _ in range(parts - int(counts[mine].sum())):
            left = {at: parts * routes[at].share - counts[at] for at in mine}
            at = min(mine, key=lambda one: (_fullest(topology, load, routes[one].links), -left[one]))
            counts[at] += 1
            load[list(routes[at].links)] += 1
    return counts


def _fullest(topology: Topology, load: Floats, links: Links) -> float:
    """Time of the busiest link of a route with one more part."""
    where = list(links)
    return float(((load[where] + 1) / topology.bandwidth_Bps[where]).max())


def routes_of(topology: Topology, demand: npt.NDArray[np.int64] | None = None) -> list[Route]:
    """The routes of the maximum concurrent flow, pair by pair; the usual one where a pair sends next to nothing.

    `demand`: what each NPU sends every other, (n, n) (default: as much).
    WeftError: too many NPUs or links.
    """
    n = topology.n_npus
    if n > MOST_NPUS:
        raise WeftError(f"{NAME} on {topology.name}: the limit is {MOST_NPUS} NPUs; this fabric has {n:,}")
    alike = _alike(topology) if demand is None else []
    variables = topology.n_links * (1 if alike else n)
    if variables > MOST_VARIABLES:
        raise WeftError(
            f"{NAME} on {topology.name}: the limit is {MOST_VARIABLES:,} flows over links; this fabric has "
            f"{variables:,}"
        )
    gather_cut(topology)  # rejects what cannot be reached, by name
    if demand is not None and not demand.any():
        return []
    most = 1 if demand is None else int(demand.max())
    share = np.ones((n, n)) if demand is None else demand / most
    flow = concurrent_flow(topology, None if demand is None else tuple(map(tuple, demand.tolist())))
    flows = flow.flow_Bps / (flow.rate_Bps * most)
    if not alike:
        return [route for source in range(n) for route in _routes_from(topology, source, flows[source], share[source])]
    own = _routes_from(topology, 0, flows[0], share[0])
    routes = []
    for nodes, links in alike:
        routes += [
            Route(int(nodes[0]), int(nodes[one.target]), tuple(links[list(one.links)].tolist()), one.share)
            for one in own
        ]
    return routes


def _alike(topology: Topology) -> list[tuple[Permutation, Permutation]]:
    """If all NPUs are alike, the translations that move NPU 0 to each of them, as maps of nodes and links."""
    moves = [(np.arange(topology.n_nodes, dtype=np.int32), np.arange(topology.n_links, dtype=np.int32))]
    for dim, extent in enumerate(topology.shape):
        nodes = translation(topology, dim)
        links = link_permutation(topology, nodes)
        if nodes is None or links is None:
            return []
        further = moves
        for _ in range(extent - 1):
            further = [(nodes[a], links[b]) for a, b in further]
            moves = moves + further
    return moves


def _routes_from(topology: Topology, source: int, left: Floats, wanted: Floats) -> list[Route]:
    """Decompose the flow of one source into routes to every other rank: shortest paths through the remaining flow.

    `left`: consumed; `wanted`: of each rank, of which the most is 1, as of the flow.
    """
    routes = []
    for target in np.flatnonzero(wanted).tolist():
        due, found = float(wanted[target]), []
        while target != source and due > NOTHING * topology.n_npus:
            links = _shortest(topology, left, source, target)
            if links is None:
                break
            share = min(due, float(left[links].min()))
            left[links] -= share
            due -= share
            found.append((tuple(links), share))
        total = sum(share for _, share in found)
        routes += [Route(source, target, links, share / total) for links, share in found]
        if not found and target != source:
            routes.append(Route(source, target, (), 1.0))
    return routes


def _shortest(topology: Topology, left: Floats, source: int, target: int) -> list[int] | None:
    """Shortest path from source to target over links with remaining flow."""
    came: dict[int, int] = {source: -1}
    reached = [source]
    for node in reached:
        for link in range(int(topology.link_ptr[node]), int(topology.link_ptr[node + 1])):
            head = int(topology.dst[link])
            if left[link] > NOTHING and head not in came:
                came[head] = link
                if head == target:
                    return _back(topology, came, target)
                reached.append(head)
    return None


def _back(topology: Topology, came: dict[int, int], target: int) -> list[int]:
    links, node = [], target
    while came[node] >= 0:
        links.append(came[node])
        node = int(topology.src[came[node]])
    return links[::-1]
