"""Bine: binomial trees and butterflies by digits in base -2, whose ranks are nearer to each other than in base 2.

The peers of a butterfly are Swing's in one dimension, at distances 1, 1, 3, 5, 11, ... on alternating sides; trees
follow the digits of a rank's distance from the root in base -2. Ranks are taken in their order, whatever the network:
where that fills boxes or groups one after the other, less crosses between them. (D. De Sensi and others, SC 2025, arXiv
2508.17311.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated

import numpy as np

from collectives import swing
from collectives.butterfly import Butterfly, Core, always, block_sets, port_peers
from collectives.core.builders import EXCHANGED, Form, by_wiring, of_kind, plain
from collectives.core.estimate import cheapest
from collectives.core.grid import NOBODY, Grid, Ranks, floor_power_of_two, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, backwards, in_turn, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import Groups
from topologies import Topology, WeftError
from topologies.checks import Choice, checked
from topologies.units import Quantity

NAME = "bine"
FORMS, ONLY_FORM = EXCHANGED  # of a scatter: a tree whose distances halve, or double
PARTED = "scatter", "gather"
Peers = Annotated[str, Choice(("aligned", "shifted"))]


@by_wiring
def _pattern(topology: Topology, kind: str, form: str, peers: Peers = "aligned") -> Pattern:
    p = topology.n_npus
    if form == "bandwidth" and p % 2 and p > 1:
        raise WeftError(
            f"bine (bandwidth) on {topology.name}: {p} ranks are an odd number; the latency form of all-reduce "
            "accepts any"
        )
    butterfly = _butterfly(p, floor_power_of_two(p) if form == "latency" else p, peers)
    way: dict[str, Callable[[Butterfly], list[Round]]] = {
        "all-reduce": Butterfly.latency if form == "latency" else Butterfly.bandwidth,
        "reduce-scatter": Butterfly.scatter, "all-gather": Butterfly.gather, "all-to-all": _exchange,
    }
    return rounds_pattern(
        topology, kind, NAME, form, way[kind](butterfly),
        n_blocks=p * p if kind == "all-to-all" else butterfly.part if form == "bandwidth" else 1,
        groups=Groups(topology, partial(swing.group, butterfly.regular_dims())) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind, form, peers)), progress=butterfly.progress,
    )


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, peers: Peers = "aligned",
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Bine all-reduce.

    `topology`: any; ranks are taken in their order.
    `form`: the entire vector in log2 p steps, where ranks beyond a power of two fold first; or reduce-scatter and
        all-gather, of an even number of ranks. Default: the lower estimate among those that there are.
    `peers`: "aligned": ranks 0 and 1, 2 and 3, ... exchange the most. "shifted": 1 and 2, 3 and 4, ..., for a job whose
        ranks begin at an odd place of a group, so that less of it leaves the group.
    WeftError: the bandwidth form of an odd number of ranks.
    """
    forms = (form,) if form else FORMS if topology.n_npus % 2 == 0 else FORMS[:1]
    return cheapest([_pattern(topology, "all-reduce", one, peers) for one in forms], size, element_bytes)


reduce_scatter = plain("reduce-scatter", _pattern, """
    Half of the array goes next door first, ever less ever further; even numbers of ranks.

    `peers`: as of the all-reduce.
    """, form="bandwidth")
all_gather = plain("all-gather", _pattern, """
    The time reversal of the reduce-scatter, with the same parameters: far ranks first; even numbers of ranks.
    """, form="bandwidth")
all_to_all = plain("all-to-all", _pattern, """
    Blocks go as those of their destinations in the reduce-scatter, with the same parameters, half of what a rank holds
    in each step; even numbers of ranks.
    """, form="bandwidth")


def _rooted(
    kind: str, topology: Topology, size: Quantity, *, root: int = 0, form: Form | None = None,
    peers: Peers = "aligned", element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    forms = (form,) if form else ONLY_FORM if kind in PARTED else FORMS
    return cheapest([_rooted_pattern(topology, kind, one, root, peers) for one in forms], size, element_bytes)


broadcast = of_kind("broadcast", _rooted, """
    Broadcast down a Bine tree.

    `root`: the rank that has the array.
    `form`: "latency": the array down a tree whose distances halve. "bandwidth": a scatter down a tree whose distances
        double, and an all-gather. Ranks beyond a power of two are every other one of the first, counted from the root,
        and get the array in the end from the rank before them. Default: the lower estimate.
    `peers`: "aligned": of the ranks counted from the root 0 and 1, 2 and 3, ... meet. "shifted": they are counted
        backwards, for a root at an odd place of its group.
    WeftError: a root that is not a rank.
    """)
reduce = of_kind("reduce", _rooted, "Reduce up a tree: the time reversal of `broadcast`, with the same parameters.")
scatter = of_kind("scatter", _rooted, """
    Scatter down a Bine tree.

    `root`: the rank that has the array.
    `form`: "bandwidth": down a tree whose distances double. "latency": down one whose distances halve, which crosses
        less often between groups of ranks. Default: "bandwidth", the paper's.
    `peers`: as of the broadcast.
    WeftError: a root that is not a rank.
    """)
gather = of_kind("gather", _rooted, "Gather up a tree: the time reversal of `scatter`, with the same parameters.")


def _butterfly(p: int, inner: int, peers: str = "aligned") -> Butterfly:
    """Swing's first port, or its mirror image, on the first `inner` of p ranks."""
    grid = Grid((inner,))
    found = port_peers(grid, grid.dims, int(peers == "shifted"), swing.peer) if inner > 1 else ()
    return Butterfly(Core(Grid((p,)), grid), (found,), inner)


def _exchange(butterfly: Butterfly) -> list[Round]:
    """What rank 0 sends, turned for even ranks and mirrored for odd ones, is what each rank sends."""
    p = butterfly.part
    sets = block_sets(p, butterfly.ports[0])

    def origins(step: int, rank: int, to: int) -> Iterator[int]:
        """Ranks whose block for another has come to a rank before a step."""
        yield rank
        for earlier in range(step):
            met = sets.met(earlier, rank)
            if sets.sent(met)[earlier] >> to & 1:
                yield from origins(earlier, met, to)

    rounds = []
    for step, one in enumerate(butterfly.scatter()):
        moved = np.array([(origin, to) for to in one.blocks(0) for origin in origins(step, 0, to)])
        rounds.append(replace(one, count=len(moved), blocks=partial(_carried, p, moved), reduces=False))
    return rounds


def _carried(p: int, moved: Ranks, rank: int) -> Sequence[int]:
    """Blocks by origin and destination (n, 2) as rank 0 sends them, sent by another rank."""
    blocks: list[int] = ((rank - moved if rank % 2 else rank + moved) % p @ [p, 1]).tolist()
    return blocks


@by_wiring
def _rooted_pattern(topology: Topology, kind: str, form: str, root: int, peers: str) -> Pattern:
    p = topology.n_npus
    topology.check_root(root)
    q = floor_power_of_two(p)
    blocks = p if kind in PARTED else 1 if form == "latency" else q
    parts = [list(_tree(q)) if form == "latency" else list(_scatter(q)), _beyond(p, q, blocks)]
    if kind in PARTED:
        parts = _parts(p, q, *parts)
    elif form == "bandwidth":
        parts.insert(1, _butterfly(p, q).gather())
    if kind in ("reduce", "gather"):
        parts = [backwards(part, p) for part in reversed(parts)]
    if kind == "gather":
        parts = [[replace(one, reduces=False) for one in part] for part in parts]
    if kind == "reduce" and form == "bandwidth":  # ranks have blocks of the scatter before the all-gather brings them
        parts[1:] = _butterfly(p, q).scatter(), [replace(one, reduces=False) for one in parts[2]]
    surplus = p - q
    order = np.concatenate([np.arange(0, 2 * surplus, 2), np.arange(2 * surplus, p), np.arange(1, 2 * surplus, 2)])
    rank_of = (root + (-order if peers == "shifted" else order)) % p
    rounds = [_placed(rank_of, np.argsort(rank_of), one, kind in PARTED) for one in in_turn(parts)]

    def smaller() -> Pattern:
        small = shrink(topology)
        return _rooted_pattern(small, kind, form, root % small.n_npus, peers)

    return rounds_pattern(topology, kind, NAME, form, rounds, n_blocks=blocks, smaller=Smaller(smaller), root=root)


def _tree(q: int) -> Iterator[Round]:
    """Step i: every holder flips all but the first i of its digits."""
    digits, steps = negabinary(q), q.bit_length() - 1
    rank_of = np.argsort(digits)
    holders = np.zeros(1, np.int64)
    for step in range(steps):
        flipped = rank_of[digits ^ ((1 << (steps - step)) - 1)]
        yield _some(step, q, holders, flipped, 1, always(range(1)))
        holders = np.concatenate([holders, flipped[holders]])


def _scatter(q: int) -> Iterator[Round]:
    """The part of a reduce-scatter that comes from the root."""
    holders = np.zeros(1, np.int64)
    for one in _butterfly(q, q).scatter():
        met = one.receiver(np.arange(q))
        yield _some(one.step, q, holders, met, one.count, one.blocks)
        holders = np.concatenate([holders, met[holders]])


def _parts(p: int, q: int, tree: list[Round], beyond: list[Round]) -> list[list[Round]]:
    """A scatter down a tree: what is below each rank; a surplus rank is below the one that hands it on."""
    below = {rank: [rank, q + rank][:1 + (rank < p - q)] for rank in range(q)}
    rounds = []
    for one in reversed(tree):
        met = one.receiver(np.arange(q))
        sent = {rank: below[int(met[rank])] for rank in np.flatnonzero(met != NOBODY).tolist()}
        for n in set(map(len, sent.values())):
            senders = np.array([rank for rank, blocks in sent.items() if len(blocks) == n])
            rounds.append(_some(one.step, q, senders, met, n, sent.__getitem__))
        below |= {rank: sorted(below[rank] + blocks) for rank, blocks in sent.items()}
    return [rounds[::-1], [replace(one, count=1, blocks=lambda rank: [q + rank]) for one in beyond]]


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
    receiver[:p - q] = np.arange(q, p)
    sender[q:] = np.arange(p - q)
    return [Round(0, 0, partial(_at, receiver), partial(_at, sender), blocks, always(range(blocks)), False)]


def _placed(rank_of: Ranks, index_of: Ranks, one: Round, parted: bool) -> Round:
    """A round of ranks by their indices, each of which has its rank; `parted`: blocks are of ranks as well."""
    def moved(table: Callable[[Ranks], Ranks], ranks: Ranks) -> Ranks:
        found = table(index_of[ranks])
        return np.where(found == NOBODY, NOBODY, rank_of[found])

    def blocks(rank: int) -> Sequence[int]:
        sent = one.blocks(int(index_of[rank]))
        return rank_of[list(sent)].tolist() if parted else sent

    return replace(one, receiver=partial(moved, one.receiver), sender=partial(moved, one.sender), blocks=blocks)


@lru_cache(maxsize=64)
def negabinary(q: int) -> Ranks:
    """The digits in base -2 of 0 to q - 1 as bits; of as many as q - 1 has in base 2 each pattern occurs once."""
    mask = 0xAAAAAAAA
    return ((np.arange(q) + mask) ^ mask) & (q - 1)
