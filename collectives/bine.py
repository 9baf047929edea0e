"""Bine: binomial trees and butterflies by digits in base -2, whose ranks are nearer to each other than in base 2.

The peers of a butterfly are Swing's in one dimension, at distances 1, 1, 3, 5, 11, ... on alternating sides; trees
follow the digits of a rank's distance from the root in base -2. Ranks are taken in their order, whatever the network:
where that fills boxes or groups one after the other, less crosses between them. (D. De Sensi and others, SC 2025, arXiv
2508.17311.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from collectives import swing
from collectives.butterfly import Butterfly, Core, always, port_peers
from collectives.core.builders import EXCHANGED, Form, by_wiring, of_kind, plain
from collectives.core.estimate import cheapest
from collectives.core.grid import NOBODY, Grid, Ranks, floor_power_of_two, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, backwards, in_turn, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import Groups
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.units import Quantity

NAME = "bine"
FORMS, ONLY_FORM = EXCHANGED


@by_wiring
def _pattern(topology: Topology, kind: str, form: str) -> Pattern:
    p = topology.n_npus
    if form == "bandwidth" and p % 2 and p > 1:
        raise WeftError(
            f"bine (bandwidth) on {topology.name}: {p} ranks are an odd number; the latency form of all-reduce "
            "accepts any"
        )
    butterfly = _butterfly(p, floor_power_of_two(p) if form == "latency" else p)
    rounds = {
        "all-reduce": butterfly.latency if form == "latency" else butterfly.bandwidth,
        "reduce-scatter": butterfly.scatter, "all-gather": butterfly.gather,
    }[kind]()
    return rounds_pattern(
        topology, kind, NAME, form, rounds, n_blocks=butterfly.part if form == "bandwidth" else 1,
        groups=Groups(topology, partial(swing.group, butterfly.regular_dims())) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind, form)), progress=butterfly.progress,
    )


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Bine all-reduce.

    `topology`: any; ranks are taken in their order.
    `form`: the entire vector in log2 p steps, where ranks beyond a power of two fold first; or reduce-scatter and
        all-gather, of an even number of ranks. Default: the lower estimate among those that there are.
    WeftError: the bandwidth form of an odd number of ranks.
    """
    forms = (form,) if form else FORMS if topology.n_npus % 2 == 0 else FORMS[:1]
    return cheapest([_pattern(topology, "all-reduce", one) for one in forms], size, element_bytes)


reduce_scatter = plain("reduce-scatter", _pattern, """
    Half of the array goes next door first, ever less ever further; even numbers of ranks.""", form="bandwidth")
all_gather = plain("all-gather", _pattern, """
    The time reversal of the reduce-scatter: far ranks first; even numbers of ranks.""", form="bandwidth")


def _rooted(
    kind: str, topology: Topology, size: Quantity, *, root: int = 0, form: Form | None = None,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    forms = (form,) if form else FORMS
    return cheapest([_rooted_pattern(topology, kind, one, root) for one in forms], size, element_bytes)


broadcast = of_kind("broadcast", _rooted, """
    Broadcast down a Bine tree.

    `root`: the rank that has the array.
    `form`: "latency": the array down a tree whose distances halve. "bandwidth": a scatter down a tree whose distances
        double, and an all-gather. Ranks beyond a power of two, counted from the root, get the array in the end.
        Default: the lower estimate.
    WeftError: a root that is not a rank.
    """)
reduce = of_kind("reduce", _rooted, "Reduce up a tree: the time reversal of `broadcast`, with the same parameters.")


@by_wiring
def _parted_pattern(topology: Topology, kind: str, root: int = 0) -> Pattern:
    p = topology.n_npus
    topology.check_root(root)
    down = [_from_root(p, root, one) for one in _parts(p, floor_power_of_two(p))]
    down = [replace(one, blocks=partial(_moved, p, root, one.blocks)) for one in down]
    rounds = down if kind == "scatter" else [replace(one, reduces=False) for one in backwards(down, p)]

    def smaller() -> Pattern:
        small = shrink(topology)
        return _parted_pattern(small, kind, root % small.n_npus)

    return rounds_pattern(topology, kind, NAME, ONLY_FORM[0], rounds, n_blocks=p, smaller=Smaller(smaller), root=root)


scatter = plain("scatter", _parted_pattern, """
    Scatter down a Bine tree whose distances double; ranks beyond a power of two get their blocks in the end.

    `root`: the rank that has the array.
    WeftError: a root that is not a rank.
    """)
gather = plain("gather", _parted_pattern, """
    Gather up a Bine tree: the time reversal of `scatter`, with the same parameters.""")


def _butterfly(p: int, inner: int) -> Butterfly:
    """Swing's first port on the first `inner` of p ranks."""
    grid = Grid((inner,))
    peers = port_peers(grid, grid.dims, 0, swing.peer) if inner > 1 else ()
    return Butterfly(Core(Grid((p,)), grid), (peers,), inner)


@by_wiring
def _rooted_pattern(topology: Topology, kind: str, form: str, root: int) -> Pattern:
    p = topology.n_npus
    topology.check_root(root)
    q = floor_power_of_two(p)
    blocks = 1 if form == "latency" else q
    parts = [list(_tree(q)) if form == "latency" else list(_scatter(p, q)), _beyond(p, q, blocks)]
    if form == "bandwidth":
        parts.insert(1, _butterfly(p, q).gather())
    if kind == "reduce":
        parts = [backwards(part, p) for part in reversed(parts)]
        if form == "bandwidth":  # ranks have blocks of the scatter before the all-gather brings them
            parts[1:] = _butterfly(p, q).scatter(), [replace(one, reduces=False) for one in parts[2]]
    rounds = [_from_root(p, root, one) for one in in_turn(parts)]

    def smaller() -> Pattern:
        small = shrink(topology)
        return _rooted_pattern(small, kind, form, root % small.n_npus)

    return rounds_pattern(topology, kind, NAME, form, rounds, n_blocks=blocks, smaller=Smaller(smaller), root=root)


def _moved(p: int, root: int, blocks: Callable[[int], Sequence[int]], rank: int) -> Sequence[int]:
    """Blocks of ranks that are counted from a root."""
    return [(block + root) % p for block in blocks(rank)]


def _tree(q: int) -> Iterator[Round]:
    """Step i: every holder flips all but the first i of its digits."""
    digits, steps = negabinary(q), q.bit_length() - 1
    rank_of = np.argsort(digits)
    holders = np.zeros(1, np.int64)
    for step in range(steps):
        flipped = rank_of[digits ^ ((1 << (steps - step)) - 1)]
        yield _some(step, q, holders, flipped, 1, always(range(1)))
        holders = np.concatenate([holders, flipped[holders]])


def _scatter(p: int, q: int) -> Iterator[Round]:
    """The part of a reduce-scatter that comes from the root."""
    holders = np.zeros(1, np.int64)
    for one in _butterfly(p, q).scatter():
        met = one.receiver(np.arange(q))
        yield _some(one.step, q, holders, met, one.count, one.blocks)
        holders = np.concatenate([holders, met[holders]])


def _parts(p: int, q: int) -> Iterator[Round]:
    """A scatter from the root; the block of a rank beyond q goes with that of the rank that hands it on."""
    holders = np.zeros(1, np.int64)
    step = -1
    for one in _butterfly(p, q).scatter():
        met, step = one.receiver(np.arange(q)), one.step
        sent = {rank: [to for b in one.blocks(rank) for to in ((b,) if b < 2 * q - p else (b, b + p - q))]
                for rank in holders.tolist()}
        for n in sorted(set(map(len, sent.values()))):
            senders = np.array([rank for rank, blocks in sent.items() if len(blocks) == n])
            yield _some(step, q, senders, met, n, sent.__getitem__)
        holders = np.concatenate([holders, met[holders]])
    for last in _beyond(p, q, 1):
        yield replace(last, step=step + 1, blocks=partial(_next_block, p - q))


def _next_block(ahead: int, rank: int) -> Sequence[int]:
    return [rank + ahead]


def _some(step: int, q: int, senders: Ranks, peers: Ranks, count: int, blocks: Callable[[int], Sequence[int]]) -> Round:
    """A round in which some send to their peers, who send to them in turn at other times."""
    receiver, sender = np.full(q, NOBODY), np.full(q, NOBODY)
    receiver[senders] = peers[senders]
    sender[peers[senders]] = senders
    return Round(step, 0, partial(_at, receiver), partial(_at, sender), count, blocks, False)


def _at(table: Ranks, ranks: Ranks) -> Ranks:
    return np.where(ranks < table.size, table[np.minimum(ranks, table.size - 1)], NOBODY)


def _beyond(p: int, q: int, blocks: int) -> list[Round]:
    """The whole array to the ranks beyond a power of two."""
    if p == q:
        return []
    receiver, sender = np.full(p, NOBODY), np.full(p, NOBODY)
    receiver[2 * q - p:q] = np.arange(q, p)
    sender[q:] = np.arange(2 * q - p, q)
    return [Round(0, 0, partial(_at, receiver), partial(_at, sender), blocks, always(range(blocks)), False)]


def _from_root(p: int, root: int, one: Round) -> Round:
    """A round of ranks that are counted from a root."""
    def turned(table: Callable[[Ranks], Ranks], ranks: Ranks) -> Ranks:
        found = table((ranks - root) % p)
        return np.where(found == NOBODY, NOBODY, (found + root) % p)

    return replace(
        one, receiver=partial(turned, one.receiver), sender=partial(turned, one.sender),
        blocks=lambda rank: one.blocks((rank - root) % p),
    )


@lru_cache(maxsize=64)
def negabinary(q: int) -> Ranks:
    """The digits in base -2 of 0 to q - 1 as bits; of as many as q - 1 has in base 2 each pattern occurs once."""
    mask = 0xAAAAAAAA
    return ((np.arange(q) + mask) ^ mask) & (q - 1)
