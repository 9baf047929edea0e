"""The router for networks without a regular shape: shortest paths, found from the links.

Regular families have their own router (topologies/core/product.py). All routes are minimal and deterministic; where
routes are equally short, the tie rule decides (topologies/core/paths.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked
from topologies.core._walk import descend, spread
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
        every = np.arange(src.size)
        if tie == "ecmp":
            return _route(topology, src, dst, self, lambda hop, route: _draw(seed, src[route], dst[route], hop))[0]
        if tie == "alternating":
            return _route(topology, src, dst, self, lambda hop, route: -(src[route] % 2))[0]

        def first(hop: Ints, pair: Ints) -> Ints:
            return _draw(0, src[pair], dst[pair], hop) if self.spread else np.zeros_like(pair)

        paths, tied = _route(topology, src, dst, self, first if self.spread or tie != "first" else None)
        if tie == "first" or not np.any(tied):
            return paths
        pair = np.repeat(every, 1 + tied)
        second = np.diff(pair, prepend=-1) == 0
        paths, _ = _route(topology, src[pair], dst[pair], self,
                          lambda hop, route: first(hop, pair[route]) - second[route])
        return paths._replace(pair=pair)


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


_KNOWN: WeakKeyDictionary[Topology, dict[int, npt.NDArray[np.int32]]] = WeakKeyDictionary()
"""Links from each node to some targets, by target."""


def _batch_size(topology: Topology) -> int:
    """Destinations handled at a time, to bound memory."""
    return max(1, 2**22 // topology.n_nodes)


def _known(topology: Topology, targets: Ints) -> npt.NDArray[np.int32]:
    """As `distances`, looked for once as long as a topology of the wiring lives."""
    known = _KNOWN.setdefault(wiring_of(topology), {})
    if len(known) > 8 * _batch_size(topology):
        known.clear()
    missing = [target for target in targets.tolist() if target not in known]
    found = distances(topology, np.array(missing, np.int64))
    if len(missing) == targets.size:
        known.update(zip(missing, found, strict=True))
        return found
    known.update(zip(missing, map(np.copy, found), strict=True))
    return np.array([known[target] for target in targets.tolist()])


def distances(topology: Topology, targets: Ints) -> npt.NDArray[np.int32]:
    """Links from each node to each target, (n_targets, n_nodes), -1 where there is no route: breadth-first."""
    n = topology.n_nodes
    entering = np.argsort(topology.dst, kind="stable")
    ptr = np.searchsorted(topology.dst[entering], np.arange(n + 1))
    distance = np.full((targets.size, n), -1, np.int32)
    spread(ptr, topology.src[entering], targets, distance, np.empty(n, np.int64))
    return distance


def _parts(topology: Topology, targets: Ints, row: Ints) -> Iterator[tuple[int, npt.NDArray[np.int32], Ints]]:
    """Links from each node to some targets at a time, the first of them, and the routes there, by target.

    `row`: target of each route.
    """
    size = _batch_size(topology)
    order = np.argsort(row.astype(np.uint16) if targets.size <= 2**16 else row, kind="stable")
    end = np.cumsum(np.bincount(row, minlength=targets.size))
    for first in range(0, targets.size, size):
        if size < targets.size:
            count("parts of the routes", first // size, -(-targets.size // size))
        distance = _known(topology, targets[first : first + size])
        yield first, distance, order[end[first - 1] if first else 0 : end[first + len(distance) - 1]]


def _route(
    topology: Topology, src: Ints, dst: Ints, router: ShortestPathRouter, choose: Callable[[Ints, Ints], Ints] | None
) -> tuple[Paths, npt.NDArray[np.bool_]]:
    """Follow every route to its end; also returns whether it had a choice anywhere, (n_routes,).

    `choose(hop, route)` gives the index of the link to take among the equally short ones, modulo their number; None:
    the first, and no choice is told.
    """
    targets, row = _targets(topology, dst)
    hops, last = np.empty(src.size, np.int64), _doors(topology).link[dst]
    parts = [*_parts(topology, targets, row)] if targets.size <= _batch_size(topology) else None
    for first, distance, routes in parts or _parts(topology, targets, row):
        hops[routes] = distance[row[routes] - first, src[routes]]
    own = src == dst
    hops[own], last[own] = 0, -1
    for at in np.flatnonzero(hops < 0)[:1].tolist():
        source, target = (topology.node_name(int(node[at])) for node in (src, dst))
        raise WeftError(f"topology {topology.name}: no route from {source} to {target}")
    ptr = np.concatenate(([0], np.cumsum(hops + (last >= 0))))
    links, tied = np.empty(ptr[-1], np.int32), np.zeros(src.size, np.bool_)
    ways, none = np.arange(topology.n_links), np.zeros(0, np.int64)
    if router.numbering is not None:  # those of each node in the order of other numbers of where they lead
        ways = np.lexsort((hash64(router.numbering, np.arange(topology.n_nodes))[topology.dst], topology.src))
    for first, distance, routes in parts or _parts(topology, targets, row):
        nearer, few = np.full_like(distance, -1), BATCH if choose else max(routes.size, 1)
        for some in (routes[at : at + few] for at in range(0, routes.size, few)):
            index = none
            if choose is not None:
                index = choose(ranges(np.zeros_like(some), hops[some]), np.repeat(some, hops[some]))
            descend(topology.link_ptr, topology.dst, ways, distance, nearer, first, some, row, src, ptr, last, index,
                    links, tied)
    return Paths(ptr, links, np.arange(src.size)), tied


def _draw(seed: int, src: Ints, dst: Ints, hop: Ints) -> Ints:
    return (hash64(seed, src, dst, hop) >> np.uint64(1)).astype(np.int64)


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
