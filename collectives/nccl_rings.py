"""NCCL rings, as built by NCCL and RCCL: along the fast links within a box, and between boxes by rails.

If direct links connect all NPUs, edge-disjoint Hamiltonian cycles over them are searched (a bundle of links counts as
several), and each is used in both directions; around switches one cycle in rank order fills every port. With several
boxes, ring r enters and leaves boxes alternately by the NICs of adjacent positions r and r + 1, and every NIC serves
the same number of rings.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from collectives.core.by_wiring import by_wiring
from collectives.core.cycles import cycles_pattern
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.flows.tightest_cut import remembered
from topologies.units import Quantity

NAME = "nccl-rings"
SEARCH_STEPS = 50_000
"""Limit on search steps for one cycle or path."""

Room = dict[tuple[int, int], float]


@checked
def all_reduce(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """All-reduce over several rings at once, each with an equal part; several boxes must be of equal size.

    WeftError: no cycle through all NPUs is found along direct links.
    """
    return schedule(_pattern(topology, "all-reduce"), size, element_bytes)


@checked
def reduce_scatter(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """The first half of `all_reduce`."""
    return schedule(_pattern(topology, "reduce-scatter"), size, element_bytes)


@checked
def all_gather(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """The second half of `all_reduce`."""
    return schedule(_pattern(topology, "all-gather"), size, element_bytes)


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    return cycles_pattern(topology, kind, NAME, [np.array(ring, np.int64) for ring in rings(topology)])


@remembered
def rings(topology: Topology) -> list[list[int]]:
    """Ranks in the order of each directed ring."""
    n = topology.n_npus
    if n <= 2:
        return [list(range(n))]
    boxes = _boxes(topology)
    if not _directly_joined(topology) and len(boxes) > 1 and len({len(box) for box in boxes}) == 1 < len(boxes[0]) - 1:
        return _across(topology, boxes)
    if not np.any((topology.src < n) & (topology.dst < n)):
        return [list(range(n))]
    room = _direct_room(topology, range(n))
    found: list[list[int]] = []
    while (cycle := _walk(room, list(range(n)), 0, 0)) is not None:
        found.append(cycle)
        _use(room, [*cycle, 0], both=True)
    if not found:
        raise WeftError(f"{NAME} on {topology.name}: no cycle through all NPUs was found along its links")
    return [ring for cycle in found for ring in (cycle, cycle[::-1])]


def _directly_joined(topology: Topology) -> bool:
    """Whether every NPU reaches every other over direct links."""
    n = topology.n_npus
    direct = (topology.src < n) & (topology.dst < n)
    edges = (np.ones(np.count_nonzero(direct), np.int8), (topology.src[direct], topology.dst[direct]))
    return bool(connected_components(coo_array(edges, shape=(n, n)), connection="strong")[0] == 1)


def _boxes(topology: Topology) -> list[list[int]]:
    """NPUs connected by links of tier 0."""
    fast = topology.dimension == 0
    edges = (np.ones(np.count_nonzero(fast), np.int8), (topology.src[fast], topology.dst[fast]))
    n = topology.n_nodes
    label = connected_components(coo_array(edges, shape=(n, n)), directed=False)[1][: topology.n_npus]
    return [np.flatnonzero(label == one).tolist() for one in dict.fromkeys(label.tolist())]


def _across(topology: Topology, boxes: list[list[int]]) -> list[list[int]]:
    """One ring per position in a box."""
    size, count = len(boxes[0]), len(boxes)
    rooms = [
        dict.fromkeys(((a, b) for a in box for b in box if a != b), float("inf")) if _share_switch(topology, box)
        else _direct_room(topology, box)
        for box in boxes
    ]
    found = []
    for rail in range(size):
        ports = [(rail + at % 2) % size for at in range(count)]
        if count % 2:
            ports[-1] = (rail + 2) % size
        ring: list[int] = []
        for at, (box, room) in enumerate(zip(boxes, rooms, strict=True)):
            start, end = box[ports[at]], box[ports[(at + 1) % count]]
            path = _walk(room, box, start, end)
            if path is None:
                raise WeftError(
                    f"{NAME} on {topology.name}: no path through a box from {topology.node_name(start)} to "
                    f"{topology.node_name(end)} was found"
                )
            _use(room, path, both=False)
            ring += path
        found.append(ring)
    return found


def _share_switch(topology: Topology, npus: list[int]) -> bool:
    """Whether all of these NPUs have tier-0 links to the same switch."""
    for switch in range(topology.n_npus, topology.n_nodes):
        into = set(topology.src[(topology.dst == switch) & (topology.dimension == 0)].tolist())
        if into.issuperset(npus):
            return True
    return False


def _direct_room(topology: Topology, npus: range | list[int]) -> Room:
    """Links between these NPUs, in units of the slowest among them."""
    inside = np.isin(topology.src, list(npus)) & np.isin(topology.dst, list(npus))
    rates: npt.NDArray[np.float64] = topology.bandwidth_Bps[inside]
    if not rates.size:
        return {}
    ends = zip(topology.src[inside].tolist(), topology.dst[inside].tolist(), strict=True)
    return dict(zip(ends, (rates // rates.min()).tolist(), strict=True))


def _use(room: Room, path: list[int], *, both: bool) -> None:
    """Take one unit of every link of a path, in one or both directions."""
    for a, b in pairwise(path):
        for pair in ((a, b), (b, a)) if both else ((a, b),):
            if pair in room:
                room[pair] -= 1


def _walk(room: Room, nodes: list[int], start: int, end: int) -> list[int] | None:
    """A path from start to end through all nodes, or a cycle if they are equal; least used links first.

    A cycle uses only links with spare capacity; a path of a ring may share links if it must.
    """
    cycle = start == end
    neighbors: dict[int, list[int]] = {node: [] for node in nodes}
    for (a, b), left in room.items():
        if left > 0 or not cycle:
            neighbors[a].append(b)
    path, seen, steps = [start], {start}, 0

    def onward(node: int) -> Iterator[int]:
        """Unvisited neighbors: by spare capacity of the link, then those with the fewest continuations."""
        unseen = [step for step in neighbors[node] if step not in seen]
        ways = {step: sum(other not in seen for other in neighbors[step]) for step in unseen}
        return iter(sorted(unseen, key=lambda step: (-room[node, step], ways[step])))

    choices = [onward(start)]
    while choices:
        steps += 1
        if steps > SEARCH_STEPS:
            return None
        step = next(choices[-1], None)
        if step is None:
            choices.pop()
            seen.discard(path.pop())
            continue
        if step == end and len(path) < len(nodes) - 1:
            continue
        path.append(step)
        seen.add(step)
        if len(path) == len(nodes):
            if not cycle or end in neighbors[step]:
                return path
            seen.discard(path.pop())
            continue
        choices.append(onward(step))
    return None
