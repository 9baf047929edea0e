"""FAST: an all-to-all with sizes per pair over boxes: balanced inside of them, one box to one box between them.

What a box sends another is spread evenly over the NPUs of both, so that a skew loads no NIC more than the others. The
totals of boxes, filled up to equal sums of rows and columns, are a sum of permutations (G. Birkhoff, 1946): in each
phase a box sends to one other and receives from one, and all phases together take as long as the busiest box must.
An NPU hands what exceeds its part to its neighbors before the phase, and what another NPU wants is handed on behind it.
The idea: "FAST: An Efficient Scheduler for All-to-All GPU Communication", arXiv 2505.09764.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby, permutations, product
from typing import NamedTuple

import numpy as np

from collectives.core.boxes import equal_boxes
from collectives.core.builders import kept_by_wiring
from collectives.core.collective import uneven
from collectives.core.pairs import Ints, Pairs, elements
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.sends import SendList
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.units import Quantity, parse_size

NAME = "fast"

PHASES, LEAST_BYTES = 32, 2**17
"""Parts of all phases at least, of each of which what is handed on inside boxes overlaps with the next; and the least
bytes of a position in one, which take as long as they wait."""

AHEAD = 2
"""Phases before its own in which a piece is handed to the rank from which it leaves."""

MOST_PIECES = 2_000_000
"""Limit on places for pieces: phases by pairs of ranks that they may join; a second."""


class Piece(NamedTuple):
    """What one rank sends another in a phase, by way of the same position in both boxes."""

    phase: int
    source: int
    leaves: int  # the rank of the source's box from which it leaves
    enters: int  # the rank of the target's box at which it enters
    target: int
    size: int  # elements


@checked
def all_to_all(
    topology: Topology, size: Quantity, *, pairs: Pairs | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """All-to-all between equal boxes, or between ranks where all are in one box.

    `size`: what a rank sends on average, including its own part.
    `pairs`: how much goes from each rank to every other (default: equal blocks); see `collectives.core.pairs`.
    WeftError: boxes of several sizes, proportions that are not accepted, or too many phases.
    """
    count = elements(pairs, topology.n_npus, size, element_bytes)
    pattern = _pattern(topology, count.tobytes(), max(1, LEAST_BYTES // element_bytes))
    return Schedule(pattern, parse_size(size), element_bytes)


@kept_by_wiring(4)
def _pattern(topology: Topology, sizes: bytes, least: int) -> Pattern:
    """`sizes`: elements of each pair; `least`: of a position in a part of a phase."""
    p, boxes = topology.n_npus, equal_boxes(topology, NAME)
    if len(boxes) == 1:
        boxes = [[rank] for rank in range(p)]
    _check_size(topology.name, len(boxes), p)
    count = np.frombuffer(sizes, np.int64).reshape(p, p)
    return _sent(topology, boxes, count, list(_pieces(count, boxes, least * (p // len(boxes)))))


def _check_size(name: str, n: int, p: int) -> None:
    """WeftError: of boxes between which there may be too many phases, (n - 1)^2 + 1 of n pairs at most."""
    if n * n * p > MOST_PIECES:
        what = f"{n} boxes of {p // n} NPUs, up to {n * n:,} phases between them"
        raise WeftError(f"{NAME} on {name}: {what}, are too many pieces (limit: {MOST_PIECES:,})")


def permutations_of(totals: Ints) -> list[tuple[int, Ints]]:
    """A matrix of totals as phases: how long each is, and to whom every box sends; the longest first.

    The sum of the lengths is the largest sum of a row or column: no schedule of one at a time takes less.

    Examples
    --------
    >>> [(length, to.tolist()) for length, to in permutations_of(np.array([[0, 3, 1], [1, 0, 3], [3, 1, 0]]))]
    [(3, [1, 2, 0]), (1, [2, 0, 1])]
    """
    from scipy.sparse import csr_array  # heavy: loaded where it is used
    from scipy.sparse.csgraph import maximum_bipartite_matching

    left = totals + _filling(totals)
    phases = []
    while left.any():
        sizes = np.unique(left[left > 0])
        low, high = 0, sizes.size  # all of the least size are matched, by Hall's theorem: the sums are equal
        while high - low > 1:
            middle = (low + high) // 2
            found = maximum_bipartite_matching(csr_array(left >= sizes[middle]), perm_type="column")
            low, high = (middle, high) if found.min() >= 0 else (low, middle)
        to = maximum_bipartite_matching(csr_array(left >= sizes[low]), perm_type="column").astype(np.int64)
        length = int(left[np.arange(to.size), to].min())
        left[np.arange(to.size), to] -= length
        phases.append((length, to))
    return sorted(phases, key=lambda phase: -phase[0])


def _longest(totals: Ints) -> int:
    """The largest sum of a row or column."""
    return int(max(totals.sum(axis=0).max(initial=0), totals.sum(axis=1).max(initial=0)))


def _filling(totals: Ints) -> Ints:
    """What makes all rows and columns of a matrix sum to the largest, first where its box sends nothing to itself."""
    most = _longest(totals)
    found, rows, columns = np.zeros_like(totals), most - totals.sum(axis=1), most - totals.sum(axis=0)
    i = j = 0
    while i < rows.size and j < columns.size:
        amount = min(int(rows[i]), int(columns[j]))
        found[i, j] += amount
        rows[i] -= amount
        columns[j] -= amount
        i, j = (i + 1, j) if not rows[i] else (i, j + 1)
    return found


def _pieces(count: Ints, boxes: list[list[int]], least: int) -> Iterator[Piece]:
    """What goes between boxes, phase by phase, and inside of them; `least`: elements of a box in a part of a phase."""
    n = len(boxes)
    blocks = [[count[np.ix_(one, other)] for other in boxes] for one in boxes]
    totals = np.array([[int(blocks[a][b].sum()) if a != b else 0 for b in range(n)] for a in range(n)], np.int64)
    most = max(least, -(-_longest(totals) // PHASES))
    left, room = totals.copy(), defaultdict[tuple[int, int], list[tuple[int, int]]](list)
    cut = ((min(most, whole - at), to) for whole, to in permutations_of(totals) for at in range(0, whole, most))
    for phase, (length, to) in enumerate(cut):
        for a, b in enumerate(to.tolist()):
            if amount := min(length, int(left[a, b])):
                left[a, b] -= amount
                room[a, b].append((phase, amount))
    for (a, b), its in room.items():
        yield from _spread(blocks[a][b], boxes[a], boxes[b], its)
    for box in boxes:  # in parts as large as those of a phase, or all that boxes send no other one in as many
        for source, target in permutations(box, 2):
            whole = int(count[source, target])
            parts = min(PHASES, -(-whole // max(most, 1)))
            for at in range(parts):
                yield Piece(at, source, source, target, target, whole * (at + 1) // parts - whole * at // parts)


def _spread(block: Ints, one: list[int], other: list[int], phases: list[tuple[int, int]]) -> Iterator[Piece]:
    """What a box sends another, as much from all positions in a phase: first what needs no neighbor, or only one."""
    n, done, left = len(one), 0, block.tolist()
    slots: list[tuple[int, int, int]] = []  # phase, position, and elements; equal to the element in all phases together
    for phase, amount in phases:
        slots += [(phase, at, (done + amount + n - 1 - at) // n - (done + n - 1 - at) // n) for at in range(n)]
        done += amount
    for own, its in product((True, False), repeat=2):  # of this position of the sending box, of the receiving one
        for number, (phase, at, room) in enumerate(slots):
            for i, j in product((at,) if own else range(n), (at,) if its else range(n)):
                if amount := min(room, left[i][j]):
                    left[i][j] -= amount
                    room -= amount
                    yield Piece(phase, one[i], one[at], other[at], other[j], amount)
            slots[number] = phase, at, room


def _sent(topology: Topology, boxes: list[list[int]], count: Ints, pieces: list[Piece]) -> Pattern:
    """The messages of all pieces: gathered where they leave, sent, and handed on."""
    p, sends = topology.n_npus, SendList()
    box_of = np.empty(p, np.int64)
    for at, box in enumerate(boxes):
        box_of[box] = at
    number, weights = _numbered(pieces, p)
    by_message = defaultdict[tuple[int, int, int], list[int]](list)
    for at, piece in enumerate(pieces):
        by_message[piece.phase, piece.leaves, piece.enters].append(at)
    sent, received = (defaultdict[int, list[int]](list) for _ in range(2))

    def send(source: int, target: int, which: list[int], step: int, after: list[int]) -> int:
        total = sum(pieces[at].size for at in which)
        return sends.add(source, target, [number[at] for at in which], step=step, count=total, after=after)

    for phase, leaves, enters in sorted(  # what leaves the box first, and then the next rank ahead
        by_message, key=lambda one: (one[0], box_of[one[1]] == box_of[one[2]], (one[2] - one[1]) % p, one[1])
    ):
        which, waits = by_message[phase, leaves, enters], list[int]()
        if box_of[leaves] == box_of[enters]:
            send(leaves, enters, which, phase, sent[leaves][-AHEAD:1 - AHEAD])
            continue
        for source, its in _grouped(which, lambda at: pieces[at].source):
            if source != leaves:  # not all at once, for what is handed on goes the same ways
                waits.append(send(source, leaves, its, phase, sent[leaves][-AHEAD:1 - AHEAD]))
        waits += sent[leaves][-1:] + received[enters][-1:]
        one = send(leaves, enters, which, phase, waits)
        sent[leaves].append(one)
        received[enters].append(one)
        for target, its in _grouped(which, lambda at: pieces[at].target):
            if target != enters:
                send(enters, target, its, phase, [one])
    own = np.arange(p)
    weights[0, own, own] = count[own, own]
    return sends.pattern(topology, uneven(tuple(weights.ravel().tolist())), NAME, weights.size)


def _numbered(pieces: list[Piece], p: int) -> tuple[list[int], Ints]:
    """The block of each piece, and the elements of all blocks: (parts, p, p)."""
    parts, number = defaultdict[int, int](int), []
    for piece in pieces:
        pair = piece.source * p + piece.target
        number.append(parts[pair] * p * p + pair)
        parts[pair] += 1
    weights = np.zeros(max(parts.values(), default=1) * p * p, np.int64)
    weights[number] = [piece.size for piece in pieces]
    return number, weights.reshape(-1, p, p)


def _grouped(which: list[int], key: Callable[[int], int]) -> Iterator[tuple[int, list[int]]]:
    for value, its in groupby(sorted(which, key=key), key):
        yield value, list(its)
