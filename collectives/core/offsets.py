"""Rounds that look the same from every rank: who sends what is told by displacements on a grid of ranks.

In an all-gather every rank r receives, from the rank at r + far, the blocks of the ranks at r + o, for some offsets o.
A reduce-scatter is the same backwards in time and direction, and a small all-reduce exchanges the whole vector with the
same ranks. Displacements are ranks of the grid, whose coordinates are added.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from collectives.core.grid import Grid, Ranks
from collectives.core.rounds import Round, in_turn

AT_ONCE = 2**16
"""Blocks of a move that are looked up for all ranks together."""


class Move(NamedTuple):
    """What every rank receives in a step of an all-gather: from how far, and the offsets of the blocks."""

    far: int
    offsets: tuple[int, ...]


Steps = Sequence[Sequence[Move]]
"""Moves of one step start together."""


@lru_cache(maxsize=64)
def spread(grid: Grid, fars: tuple[tuple[int, ...], ...]) -> tuple[Steps, bool]:
    """Each step's moves, of all blocks that the sender has and the receiver lacks; and whether it lacked each of them.

    `fars`: how far the senders of each step are. A rank that would receive a block twice gets it from the first.
    """
    held: Ranks = np.zeros(1, np.int64)
    steps, apart = [], True
    for step in fars:
        moves, known = [], held
        for far in step:
            brought = grid.displace(held, np.array(far))
            offsets = brought[~np.isin(brought, known)]
            apart &= offsets.size == held.size
            if offsets.size:
                moves.append(Move(far, tuple(offsets.tolist())))
            known = np.concatenate([known, offsets])
        held = known
        steps.append(tuple(moves))
    return tuple(steps), apart


def rounds_of(grid: Grid, kind: str, form: str, ports: Sequence[Steps]) -> list[Round]:
    """The rounds of an all-gather, a reduce-scatter, or an all-reduce in the latency or the bandwidth form.

    `ports`: of an all-gather; each has the blocks of all ranks of a part of the array.
    """
    if form == "latency":
        return list(_exchanges(grid, ports))
    halves = {"reduce-scatter": [_scatter], "all-gather": [_gather]}.get(kind, [_scatter, _gather])
    return list(in_turn(list(half(grid, ports)) for half in halves))


def _exchanges(grid: Grid, ports: Sequence[Steps]) -> Iterable[Round]:
    for port, step, move in _moves(ports):
        yield _round(grid, step, port, move, -1, 1, partial(_whole, port), True)


def _gather(grid: Grid, ports: Sequence[Steps]) -> Iterable[Round]:
    for port, step, move in _moves(ports):
        carried = partial(_gathered, grid, port * grid.p, move)
        yield _round(grid, step, port, move, -1, len(move.offsets), carried, False)


def _scatter(grid: Grid, ports: Sequence[Steps]) -> Iterable[Round]:
    for port, step, move in _moves(ports):
        carried = partial(_scattered, grid, port * grid.p, move)
        yield _round(grid, len(ports[port]) - 1 - step, port, move, 1, len(move.offsets), carried, True)


def _moves(ports: Sequence[Steps]) -> Iterable[tuple[int, int, Move]]:
    for port, steps in enumerate(ports):
        for step, moves in enumerate(steps):
            for move in moves:
                yield port, step, move


def _round(
    grid: Grid, step: int, port: int, move: Move, way: int, count: int, carried: partial[Sequence[int]], reduces: bool
) -> Round:
    """Every rank sends to the one that is `move.far` away, in the direction `way`."""
    receiver, sender = (partial(_away, grid, move.far, sign) for sign in (way, -way))
    return Round(step, port, receiver, sender, count, carried, reduces)


def _away(grid: Grid, far: int, sign: int, ranks: Ranks) -> Ranks:
    return grid.displace(ranks, np.array(far), sign)


def _whole(port: int, rank: int) -> Sequence[int]:
    return (port,)


def _gathered(grid: Grid, first: int, move: Move, rank: int) -> Sequence[int]:
    return _scattered(grid, first, move, grid.displace(rank, move.far, -1))


def _scattered(grid: Grid, first: int, move: Move, rank: int) -> Sequence[int]:
    if grid.p * len(move.offsets) <= AT_ONCE:
        return _of_all(grid, first, move)[rank]
    blocks: list[int] = (first + grid.displace(np.array(rank), np.array(move.offsets))).tolist()
    return blocks


@lru_cache(maxsize=256)
def _of_all(grid: Grid, first: int, move: Move) -> list[list[int]]:
    blocks: list[list[int]] = (first + grid.displace(np.arange(grid.p)[:, None], np.array(move.offsets))).tolist()
    return blocks
