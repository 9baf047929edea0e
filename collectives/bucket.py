"""Bucket: rings along one dimension after the other, with 2D copies at once.

Each copy reduce-scatters along every dimension in turn, on ever smaller parts, then all-gathers in reverse
order (N. Jain, Y. Sabharwal, "Optimal Bucket Algorithms for Large MPI Collectives on Torus Interconnects", ICS 2010;
P. Sack, W. Gropp, "Collective Algorithms for Multiported Torus Networks", 2015).
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, plain
from collectives.core.carried import OfMany
from collectives.core.collective import collective
from collectives.core.grid import NOBODY, Grid, alike, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import translations
from collectives.core.transfers import Ref, Transfers, TransferTable
from topologies import Topology

NAME = "bucket"


class _Phase(NamedTuple):
    """A ring along one dimension, of one port."""

    port: int
    dim: int
    direction: int
    reduces: bool
    done: tuple[int, ...]  # dimensions along which the copy is already scattered, including this one
    slot: int  # of its first transfer
    step: int  # of its first transfer


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    grid = Grid(topology.shape)
    rows = _phases(grid, kind)
    phases = [phase for row in rows for phase in row]
    starts = [phase.slot for phase in phases]
    together = len(set(grid.extents)) > 1

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        for before, row in zip([[], *rows], rows, strict=False):
            for at, phase in enumerate(row):
                _add(table, grid, phase, before if together else before[at : at + 1])
        return table.build()

    def blocks_of(source: Any, slot: int) -> list[Any]:
        phase = phases[bisect_right(starts, slot) - 1]
        return _blocks(grid, phase, source, slot - phase.slot)

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=max(2 * len(grid.dims), 1) * grid.p,
        emit=emit, blocks_of=OfMany(blocks_of), groups=translations(topology),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind)),
        progress="any", phases=tuple(row[0].step for row in rows if row),
    )


all_reduce = plain("all-reduce", _pattern, """
    Bucket all-reduce on 2D ports, for any extents (Swing paper, NSDI 2024, section 2.3.4).

    Copy k < D starts in dimension k in the positive direction, copy D + k in dimension k in the negative one. If
    extents differ, a rank starts the next phase of any copy when all of its copies have finished the previous one.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, "The first half of `all_reduce`.")
all_gather = plain("all-gather", _pattern, "The second half of `all_reduce`.")


def _phases(grid: Grid, kind: str) -> list[list[_Phase]]:
    """Consecutive phases, each with one ring per port."""
    n_dims = len(grid.dims)
    scatter = [(turn, True) for turn in range(n_dims)] if kind != "all-gather" else []
    gather = [(turn, False) for turn in reversed(range(n_dims))] if kind != "reduce-scatter" else []
    rows, slot, step = [], 0, 0
    for turn, reduces in scatter + gather:
        row = []
        for port in range(2 * n_dims):
            done = tuple(grid.dims[(port + i) % n_dims] for i in range(turn + 1))
            row.append(_Phase(port, done[-1], 1 if port < n_dims else -1, reduces, done, slot, step))
            slot += grid.shape[done[-1]] - 1
        rows.append(row)
        step += max(grid.extents) - 1
    return rows


def _add(table: TransferTable, grid: Grid, phase: _Phase, before: Sequence[_Phase]) -> None:
    """Transfers of a phase: the first step waits for the last steps of `before`, later steps for the previous one."""
    extent = grid.shape[phase.dim]
    k = np.arange(extent - 1)[:, None]
    slot = phase.slot + k
    own = np.where(k > 0, slot - 1, NOBODY)
    after: list[Ref] = [(grid.shift(table.ranks, phase.dim, -phase.direction), own), (table.ranks, own)]
    for earlier in before:
        last = np.where(k == 0, earlier.slot + grid.shape[earlier.dim] - 2, NOBODY)
        after += [(grid.shift(table.ranks, earlier.dim, -earlier.direction), last), (table.ranks, last)]
    table.add(
        slot, grid.shift(table.ranks, phase.dim, phase.direction), grid.p // _extent(grid, phase.done),
        step=phase.step + k, port=phase.port, reduces=phase.reduces, after=after,
    )


def _extent(grid: Grid, dims: Sequence[int]) -> int:
    return math.prod(grid.shape[dim] for dim in dims)


def _blocks(grid: Grid, phase: _Phase, source: Any, k: int) -> list[Any]:
    """Blocks that match the source in scattered dimensions, and are k (or k + 1) behind it in this one.

    Of several sources, an array for each block.
    """
    back = k + (1 if phase.reduces else 0)
    there = grid.shift(source, phase.dim, -phase.direction * back)
    first = phase.port * grid.p + sum(grid.coordinate(there, dim) * grid.strides[dim] for dim in phase.done)
    return [first + other for other in _others(grid, phase.done)]


@lru_cache(maxsize=64)
def _others(grid: Grid, dims: tuple[int, ...]) -> list[int]:
    """How far the ranks that share some coordinates are behind the first of them."""
    others: list[int] = alike(grid, 0, dims).tolist()
    return others
