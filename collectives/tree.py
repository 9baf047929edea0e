"""Trees from a root: binomial, and a chain that pipelines the array chunk by chunk."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, plain
from collectives.core.collective import collective
from collectives.core.grid import NOBODY, Ranks, ceil_log2, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import RankMap, Round, rounds_pattern
from collectives.core.transfers import Transfers, TransferTable
from topologies import Topology
from topologies.checks import Choice

NAME = "tree"
FORMS, ONLY_FORM = ("binomial", "chain"), ("binomial",)
Form = Annotated[str, Choice(FORMS)]


@by_wiring
def _pattern(topology: Topology, kind: str, root: int = 0, form: Form = "binomial") -> Pattern:
    p = topology.n_npus
    topology.check_root(root)

    def smaller() -> Pattern:
        small = shrink(topology)
        return _pattern(small, kind, root % small.n_npus, form)

    if form == "binomial":
        whole = kind in ("broadcast", "reduce")
        return rounds_pattern(
            topology, kind, NAME, form, (_rounds if whole else _parts)(p, root, kind), n_blocks=1 if whole else p,
            smaller=Smaller(smaller), root=root,
        )
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, form=form, n_blocks=1,
        emit=partial(_chain, p, root, kind), blocks_of=_all, smaller=Smaller(smaller), root=root,
    )


broadcast = plain("broadcast", _pattern, """
    Broadcast down a tree over the ranks, numbered from the root.

    `root`: the rank that has the array.
    `form`: "binomial": in log2 p steps; each rank that has the array hands it to half of its remaining range. "chain":
        each rank forwards each chunk to the next as it arrives.
    WeftError: a root that is not a rank, or an unknown form.
    """)
reduce = plain("reduce", _pattern, "Reduce up a tree: the time reversal of `broadcast`, with the same parameters.")


scatter = plain("scatter", _pattern, """
    Scatter down a binomial tree: half of what a rank has left goes to the rank that hands it on.

    `root`: the rank that has the array.
    WeftError: a root that is not a rank.
    """, form="binomial")
gather = plain("gather", _pattern, """
    Gather up a binomial tree: the time reversal of `scatter`, with its parameters.""", form="binomial")


def _all(source: int, slot: int) -> Sequence[int]:
    return (0,)


def _rounds(p: int, root: int, kind: str) -> list[Round]:
    """Halvings from the root; the same in reverse for a reduction."""
    distances = [1 << s for s in reversed(range(ceil_log2(p)))]
    down = [partial(_child, p, root, distance) for distance in distances]
    up = [partial(_parent, p, root, distance) for distance in distances]
    if kind == "broadcast":
        return [_round(step, *maps, reduces=False) for step, maps in enumerate(zip(down, up, strict=True))]
    backward = zip(reversed(up), reversed(down), strict=True)
    return [_round(step, *maps, reduces=True) for step, maps in enumerate(backward)]


def _round(step: int, receiver: RankMap, sender: RankMap, *, reduces: bool) -> Round:
    return Round(step, 0, receiver, sender, 1, partial(_all, slot=step), reduces)


def _parts(p: int, root: int, kind: str) -> list[Round]:
    """Halvings of a scatter, or of a gather in reverse: a rank hands on the blocks of the range that it hands over."""
    found = []
    for step, distance in enumerate(1 << s for s in reversed(range(ceil_log2(p)))):
        ranges = {min(distance, p - place) for place in range(distance, p, 2 * distance)}  # the last may be shorter
        for n in sorted(ranges):
            down, up = (partial(_handed, way, p, root, distance, n) for way in (_child, _parent))
            if kind == "scatter":
                found.append(Round(step, 0, down, up, n, partial(_range, p, distance, n), False))
            else:
                found.append(Round(ceil_log2(p) - 1 - step, 0, up, down, n, partial(_range, p, 0, n), False))
    return found


def _range(p: int, ahead: int, n: int, rank: int) -> Sequence[int]:
    """Blocks of n ranks in a row, the first of which is so far ahead."""
    return [(rank + ahead + place) % p for place in range(n)]


def _handed(way: Callable[..., Ranks], p: int, root: int, distance: int, n: int, ranks: Ranks) -> Ranks:
    """As a child or a parent, where n ranks are handed over."""
    peers = way(p, root, distance, ranks)
    below = (np.where(way is _child, peers, ranks) - root) % p
    return np.where(np.minimum(distance, p - below) == n, peers, NOBODY)


def _child(p: int, root: int, distance: int, ranks: Ranks) -> Ranks:
    """The rank to which each rank hands half of its range."""
    place = (ranks - root) % p
    has_one = (place % (2 * distance) == 0) & (place + distance < p)
    return np.where(has_one, (ranks + distance) % p, NOBODY)


def _parent(p: int, root: int, distance: int, ranks: Ranks) -> Ranks:
    place = (ranks - root) % p
    return np.where(place % (2 * distance) == distance, (ranks - distance) % p, NOBODY)


def _chain(p: int, root: int, kind: str, ranks: npt.NDArray[np.integer]) -> Transfers:
    """One transfer per rank except the last, streaming from the previous one."""
    table = TransferTable(ranks)
    down = kind == "broadcast"
    place = (table.ranks - root) % p
    hop = place if down else p - 1 - place
    way = 1 if down else -1
    receiver = np.where(hop < p - 1, (table.ranks + way) % p, NOBODY)
    before = np.where(hop > 0, 0, NOBODY)
    table.add(0, receiver, step=hop, reduces=not down, stream=[((table.ranks - way) % p, before)])
    return table.build()
