"""The router for networks without a regular shape: shortest paths, found from the links.

Regular families have their own router (topologies/core/product.py). All routes are minimal and deterministic; where
routes are equally short, the tie rule decides (topologies/core/paths.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked
from topologies.core.paths import BATCH, Ints, Paths, ranges
from topologies.core.rateless import wiring_of
from topologies.core.topology import Topology
from topologies.stages import count


@checked
@dataclass(frozen=True)
class ShortestPathRouter:
    """Routes with the fewest links through any network; NPUs may forward too.

    Shortest-path data for each destination is cached as long as a topology of the wiring lives.

    Attributes
    ----------
    numbering : int or None
        Seed of another numbering of the nodes, in whose order the links of a node come; None for the topology's own.
    spread : bool
        Whether the first of equal routes is one by a hash of each pair, which no seed changes.
    """

    numbering: int | None = None
    spread: bool = False

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs; tie rules are described in the module docstring.

        Raises
        ------
        WeftError
            A pair without a route.
        """
        targets, row = _targets(topology, dst)
        size = _batch_size(topology)
        members = [np.flatnonzero(row // size == batch) for batch in range(-(-targets.size // size))]
        parts = list[Paths]()
        for member in members:
            if len(members) > 1:
                count("parts of the routes", len(parts), len(members))
            parts.append(_route(topology, src[member], dst[member], tie, seed, self))
        if len(parts) <= 1:
            return parts[0] if parts else Paths(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
        return _in_order(parts, members)


class _Doors(NamedTuple):
    """Where routes to each node lead: a node with one entering link, such as a host, shares those to its switch."""

    node: Ints  # (n_nodes,): the node where that link begins; others are their own
    link: Ints  # (n_nodes,): the link, the last of every route to the node; -1 for others


def _doors(topology: Topology) -> _Doors:
    wiring = wiring_of(topology)
    if wiring not in _DOORS:
        link = np.full(topology.n_nodes, -1)
        link[topology.dst] = np.arange(topology.n_links)
        link[np.bincount(topology.dst, minlength=topology.n_nodes) != 1] = -1
        node, shared = np.arange(link.size), np.flatnonzero(link >= 0)
        node[shared] = topology.src[link[shared]]
        _DOORS[wiring] = _Doors(node, link)
    return _DOORS[wiring]


_DOORS: WeakKeyDictionary[Topology, _Doors] = WeakKeyDictionary()


def _targets(topology: Topology, dst: Ints) -> tuple[Ints, Ints]:
    """The nodes where routes lead, ascending, and which of them each leads to."""
    node = _doors(topology).node[dst]
    there = np.zeros(topology.n_nodes, np.bool_)
    there[node] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[node]


class _Onward(NamedTuple):
    """Every shortest path to one destination."""

    distance: npt.NDArray[np.int32]  # (n_nodes,): links from each node; -1 where there is no route
    start: npt.NDArray[np.int32]  # (n_nodes + 1,): `links[start[v]:start[v+1]]` leave node v and lead closer
    links: npt.NDArray[np.int32]  # (n,)


_KNOWN: WeakKeyDictionary[Topology, dict[int, _Onward]] = WeakKeyDictionary()


def _batch_size(topology: Topology) -> int:
    """Destinations handled at a time, to bound memory."""
    return max(1, 2**22 // (topology.n_nodes + topology.n_links))


def _onward(topology: Topology, targets: Ints) -> list[_Onward]:
    known = _KNOWN.setdefault(wiring_of(topology), {})
    if len(known) > 8 * _batch_size(topology):
        known.clear()
    missing = [target for target in targets.tolist() if target not in known]
    known.update(zip(missing, _search(topology, np.array(missing, np.int64)), strict=True))
    return [known[target] for target in targets.tolist()]


def _search(topology: Topology, targets: Ints) -> list[_Onward]:
    found, every = list[_Onward](), np.arange(topology.n_nodes + 1)
    for some in np.array_split(targets, 1 + 4 * targets.size // _batch_size(topology)):
        distance = distances(topology, some)
        ahead = distance[:, topology.dst]
        nearer = (distance[:, topology.src] == ahead + 1) & (ahead >= 0)
        for row, useful in zip(distance, nearer, strict=True):
            links = np.flatnonzero(useful).astype(np.int32)
            found.append(_Onward(row, np.searchsorted(topology.src[links], every).astype(np.int32), links))
    return found


def distances(topology: Topology, targets: Ints) -> npt.NDArray[np.int32]:
    """Links from each node to each target, (n_targets, n_nodes): breadth-first from all targets at once."""
    n = topology.n_nodes
    entering = np.argsort(topology.dst, kind="stable")
    neighbor = topology.src[entering].astype(np.int64)
    ptr = np.searchsorted(topology.dst[entering], np.arange(n + 1))
    distance = np.full(targets.size * n, -1, np.int32)
    mark = np.empty(distance.size, np.int64)
    front = np.arange(targets.size) * n + targets
    reached = 0
    while front.size:
        distance[front] = reached
        node = front % n
        degree = ptr[node + 1] - ptr[node]
        after = neighbor[ranges(ptr[node], degree)] + np.repeat(front - node, degree)
        after = after[distance[after] < 0]
        mark[after] = np.arange(after.size)
        front = after[mark[after] == np.arange(after.size)]  # each node once
        reached += 1
    return distance.reshape(targets.size, n)


def _route(
    topology: Topology, src: Ints, dst: Ints, tie: str, seed: int, router: ShortestPathRouter
) -> Paths:
    targets, row = _targets(topology, dst)
    onward = _onward(topology, targets)
    if router.numbering is not None:
        onward = [_renumbered(topology, way, router.numbering) for way in onward]
    cut_off = (np.array([way.distance for way in onward])[row, src] < 0) & (src != dst)
    if np.any(cut_off):
        source, target = (topology.node_name(int(node[cut_off][0])) for node in (src, dst))
        raise WeftError(f"topology {topology.name}: no route from {source} to {target}")
    pair = np.arange(src.size)
    if tie == "ecmp":
        return _walk(topology, onward, row, src, dst, lambda hop, route: _draw(seed, src[route], dst[route], hop))[0]
    if tie == "alternating":
        return _walk(topology, onward, row, src, dst, lambda hop, route: -(src[route] % 2))[0]

    def first(hop: int, pair: Ints) -> Ints:
        return _draw(0, src[pair], dst[pair], hop) if router.spread else np.zeros_like(pair)

    paths, tied = _walk(topology, onward, row, src, dst, first)
    if tie == "first" or not np.any(tied):
        return paths
    pair = np.repeat(pair, 1 + tied)
    second = np.diff(pair, prepend=-1) == 0
    ends = row[pair], src[pair], dst[pair]
    paths, _ = _walk(topology, onward, *ends, lambda hop, route: first(hop, pair[route]) - second[route])
    return paths._replace(pair=pair)


def _renumbered(topology: Topology, way: _Onward, numbering: int) -> _Onward:
    """The same paths, with the links of each node in the order of other numbers of the nodes that they lead to."""
    number = hash64(numbering, np.arange(topology.n_nodes))
    return way._replace(links=way.links[np.lexsort((number[topology.dst[way.links]], topology.src[way.links]))])


def _draw(seed: int, src: Ints, dst: Ints, hop: int) -> Ints:
    return (hash64(seed, src, dst, hop) >> np.uint64(1)).astype(np.int64)


def _walk(
    topology: Topology, onward: list[_Onward], row: Ints, src: Ints, dst: Ints, choose: Callable[[int, Ints], Ints]
) -> tuple[Paths, npt.NDArray[np.bool_]]:
    """Follow every route to its end; also returns whether it had a choice anywhere, (n_routes,).

    `choose(hop, route)` gives the index of the link to take among the equally short ones, modulo their number.
    """
    sizes = np.array([way.links.size for way in onward])
    start = (np.array([way.start for way in onward]) + (np.cumsum(sizes) - sizes)[:, None]).ravel()
    useful = np.concatenate([way.links for way in onward])
    hops = np.where(src == dst, 0, np.array([way.distance for way in onward])[row, src])
    last = np.where(src == dst, -1, _doors(topology).link[dst])
    ptr = np.concatenate(([0], np.cumsum(hops + (last >= 0), dtype=np.int64)))
    links, tied = np.empty(ptr[-1], np.int32), np.zeros(src.size, np.bool_)
    route, hop, width = np.flatnonzero(hops), 0, topology.n_nodes + 1
    at = row[route] * width + src[route]  # in `start`
    while route.size:
        begin = start[at]
        ways = start[at + 1] - begin
        taken = useful[begin + choose(hop, route) % ways]
        links[ptr[route] + hop] = taken
        tied[route] |= ways > 1
        hop += 1
        going = np.flatnonzero(hops[route] > hop)
        at = (at - at % width)[going] + topology.dst[taken[going]]
        route = route[going]
    links[ptr[1:][last >= 0] - 1] = last[last >= 0]
    return Paths(ptr, links, np.arange(src.size)), tied


def _in_order(parts: list[Paths], members: Sequence[Ints]) -> Paths:
    """The routes of all pairs in their order; the parts, of the pairs `members`, are emptied on the way."""
    count = np.empty(sum(member.size for member in members), np.int64)
    for part, member in zip(parts, members, strict=True):
        count[member] = np.bincount(part.pair, minlength=member.size)
    places = [ranges((np.cumsum(count) - count)[member], count[member]) for member in members]
    ptr = np.zeros(int(count.sum()) + 1, np.int64)
    for part, place in zip(parts, places, strict=True):
        ptr[place + 1] = np.diff(part.ptr)
    np.cumsum(ptr, out=ptr)
    links = np.empty(ptr[-1], np.int32)
    for place in places:
        part = parts.pop(0)
        for first in range(0, place.size, BATCH):
            to, of = place[first : first + BATCH], part.ptr[first : first + BATCH + 1]
            links[ranges(ptr[to], np.diff(of))] = part.links[of[0] : of[-1]]
    return Paths(ptr, links, np.repeat(np.arange(count.size), count))


def hash64(seed: int, *keys: Ints | int) -> npt.NDArray[np.uint64]:
    """A hash of (seed, keys), the same on every machine; keys broadcast to (n,).

    References
    ----------
    .. [1] G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
       (SplitMix64).
    """
    state = np.array([seed % 2**64], np.uint64)
    for key in keys:
        state = _mix(state + np.uint64(0x9E3779B97F4A7C15)) ^ np.asarray(key).astype(np.uint64)
    return _mix(state + np.uint64(0x9E3779B97F4A7C15))


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
