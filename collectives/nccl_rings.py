"""NCCL rings, as built by NCCL and RCCL: along the fast links within a box, and between boxes by rails.

If direct links connect all NPUs, edge-disjoint Hamiltonian cycles over them are searched (a bundle of links counts as
several), and each is used in both directions; around switches one cycle in rank order fills every port. With several
boxes, ring r enters and leaves boxes alternately by the NICs of adjacent positions r and r + 1, and every NIC serves
the same number of rings: where some NICs have more GPUs than others, some GPUs are no entry. Broadcast and reduce go
once along every ring, chunk by chunk.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectives.core.boxes import boxes_of, entries_of, zigzag
from collectives.core.builders import by_wiring, plain
from collectives.core.cycles import cycles_pattern
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import translations
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern
from topologies import Topology, WeftError, torus
from topologies.checks import integer
from topologies.core.components import components
from topologies.flows.tightest_cut import remembered

NAME = "nccl-rings"
SEARCH_STEPS = 50_000
"""Limit on search steps for one cycle or path."""

FEW_BOXES = 4
"""Through which rings are proved that go through twice as many or more, or one more of an odd number."""

FEW_RANKS = 32
"""Of other rings: a ring is the same through any ranks."""

MOST_LANES = 16
"""Of a link, however fast beside the slowest: each is used by a cycle of its own."""

Room = dict[tuple[int, int], float]


@by_wiring
def _pattern(topology: Topology, kind: str, share_links: bool = False, posted: bool = False) -> Pattern:
    orders = [np.array(ring, np.int64) for ring in _rings(topology, share_links)]
    boxes, dims = boxes_of(topology), len(topology.shape)
    n, size = len(boxes), len(boxes[0])
    few = size * (n if n < 2 * FEW_BOXES else FEW_BOXES + n % 2)
    if n == 1 or not all({*order[:few].tolist()} == {*range(few)} for order in orders):
        few = FEW_RANKS + n * size % 2

    def smaller() -> Pattern:
        """The same rings through the first boxes, every two of which but the last two are alike, or ranks."""
        short = [order[order < few] for order in orders]
        return cycles_pattern(torus((few,)), kind, NAME, short, posted=posted)

    return cycles_pattern(
        topology, kind, NAME, orders, posted=posted, groups=translations(topology, dims - 1) if n > 1 else (),
        smaller=Smaller(smaller) if few < n * size else None,
    )


@by_wiring
def _chains(topology: Topology, kind: str, root: int = 0, share_links: bool = False) -> Pattern:
    integer(root, "root", 0, topology.n_npus - 1)
    trees = []
    for ring in _rings(topology, share_links):
        at = ring.index(root)
        chain = ring[at:] + ring[:at]
        if kind == "reduce":
            chain = chain[:1] + chain[:0:-1]
        trees.append(Tree(root, 1, tuple(Edge(*pair) for pair in pairwise(chain))))
    forest = Forest(topology, tuple(trees), inward=kind == "reduce")
    if kind == "reduce":
        return forest_pattern(topology, kind, NAME, root=root, up=forest)
    return forest_pattern(topology, kind, NAME, root=root, down=forest)


all_reduce = plain("all-reduce", _pattern, """
    All-reduce over several rings at once, each with an equal part; several boxes must be of equal size.

    `share_links`: where links join every two NPUs of a box, all of them are filled, by two rings each where the NPUs
        are even in number; rings with links of their own leave some idle there.
    `posted`: a rank forwards what it has received without waiting for the delivery of what it sent before, as NCCL,
        whose connections have eight slots, does.
    WeftError: no cycle through all NPUs is found along direct links, or no such links to share.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, "The first half of `all_reduce`.")
all_gather = plain("all-gather", _pattern, "The second half of `all_reduce`.")
broadcast = plain("broadcast", _chains, "Every ring carries an equal part from the root to the rank before it.")
reduce = plain("reduce", _chains, "Every ring adds an equal part up, from the rank after the root to the root.")


def _rings(topology: Topology, share_links: bool) -> list[list[int]]:
    return shared_rings(topology) if share_links else rings(topology)


def shared_rings(topology: Topology) -> list[list[int]]:
    """Rings of boxes in which links join every two NPUs, so that all these links are used alike.

    In one box, n - 1 cycles: the zig-zag modulo n - 1, rotated, and closed by the last node. They use every direction
    of every link once for an odd n; for an even n twice, with the same cycles backwards. In several boxes, a ring per
    position, whose path through a box is the zig-zag modulo n from there; two for an odd n, with the zig-zag the other
    way.
    WeftError: other boxes.
    """
    boxes = boxes_of(topology)
    size = len(boxes[0])
    pairs = set(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    if size < 3 or any(
        len(box) != size or (a != b and (a, b) not in pairs) for box in boxes for a in box for b in box
    ):
        raise WeftError(f"{NAME} on {topology.name}: share_links takes links between every two of 3 or more NPUs")
    if len(boxes) > 1:
        if len(boxes) % 2 and size % 4 == 2 and size > 6:
            raise WeftError(f"{NAME} on {topology.name}: {len(boxes)} boxes of {size} NPUs cannot share links evenly: "
                            "of 10, 14, 18, ... there must be an even number of boxes")
        return _through_meshes(boxes)
    found = [[size - 1, *((turn + at) % (size - 1) for at in zigzag(size - 1))] for turn in range(size - 1)]
    return found if size % 2 else [ring for cycle in found for ring in (cycle, cycle[::-1])]


@remembered
def rings(topology: Topology) -> list[list[int]]:
    """Ranks in the order of each directed ring."""
    n = topology.n_npus
    if n <= 2:
        return [list(range(n))]
    boxes = boxes_of(topology)
    if not _directly_joined(topology) and len(boxes) > 1 and len({len(box) for box in boxes}) == 1 < len(boxes[0]):
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
    return not components(n, topology.src[direct], topology.dst[direct], strong=True).any()


SIX = ((0, 1, 3, 4, 5, 2), (1, 0, 5, 4, 2, 3), (2, 1, 5, 3, 0, 4), (3, 1, 4, 0, 2, 5), (4, 3, 5, 1, 2, 0),
       (5, 0, 3, 2, 4, 1))
"""Paths through six NPUs that use every direction of every link once, each two positions on; three are once around."""


def _through_meshes(boxes: list[list[int]]) -> list[list[int]]:
    """Rings that enter boxes by every position, whose paths from all of them use all links alike."""
    size, count, found = len(boxes[0]), len(boxes), []
    for way in (1, -1) if size % 2 else (1,):
        paths = [_zigzags(order, way) for order in _orders(size, count)]
        if count % 2 and size == 6:
            paths[-3:] = [SIX] * 3
        for at in range(size):
            ring = list[int]()
            for box, mine in zip(boxes, paths, strict=True):
                ring += [box[position] for position in mine[at]]
                at = mine[at][-1]
            found.append(ring)
    return found


def _zigzags(order: list[int], way: int) -> tuple[tuple[int, ...], ...]:
    """The zig-zag from each position, of positions in some order."""
    size = len(order)
    return tuple(tuple(order[(order.index(at) + way * step) % size] for step in zigzag(size)) for at in range(size))


def _orders(size: int, count: int) -> list[list[int]]:
    """The order of positions in each box, so that rings end where they began.

    The zig-zag goes half way around. For an odd size, from x to x + h in the natural order, with 2h = 1: factors of
    which the sum is 0 lead back. For an even size it exchanges positions by pairs: the three exchanges of x with
    x + size / 2, with x ^ 1, and with both undo each other, where size / 2 is even.
    """
    natural, half = list(range(size)), size // 2
    if size % 2:
        factors = [(-1) ** at for at in range(count)] if count % 2 == 0 else [*(1, -1) * (count // 2 - 1), 1, 1, -2]
        return [[factor * x % size for x in natural] for factor in factors]
    if count % 2 == 0 or half % 2:
        return [natural] * count
    neighbors = [*range(0, size, 2), *range(1, size, 2)]
    return [*[natural] * (count - 2), neighbors, [*natural[:half], *(half + (x ^ 1) for x in range(half))]]


def _across(topology: Topology, boxes: list[list[int]]) -> list[list[int]]:
    """A ring for each position by which boxes are entered."""
    count, entries = len(boxes), entries_of(topology, boxes[0])
    rooms = [
        dict.fromkeys(((a, b) for a in box for b in box if a != b), float("inf")) if _share_switch(topology, box)
        else _direct_room(topology, box)
        for box in boxes
    ]
    found = []
    for rail in range(len(entries)):
        ports = [entries[(rail + at % 2) % len(entries)] for at in range(count)]
        if count % 2:
            ports[-1] = entries[(rail + 2) % len(entries)]
        ring: list[int] = []
        for at, (box, room) in enumerate(zip(boxes, rooms, strict=True)):
            first, last = ports[at], ports[(at + 1) % count]
            if first == last:  # of two, in an odd number of boxes: the next hop goes from one rail to the other
                last = entries[(entries.index(first) + 1) % len(entries)]
            start, end = box[first], box[last]
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
    lanes = np.minimum(rates, MOST_LANES * rates.min()) // rates.min()
    return dict(zip(ends, lanes.tolist(), strict=True))


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
