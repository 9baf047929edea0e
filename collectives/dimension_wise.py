"""All-to-all dimension by dimension: blocks regroup before they change dimension.

The message combining of total exchange on meshes and tori (Y. Suh, S. Yalamanchili, "All-to-All Communication with
Minimum Start-Up Costs in 2D/3D Tori and Meshes", 1998).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, plain
from collectives.core.collective import collective
from collectives.core.grid import Grid, alike, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import translations
from collectives.core.transfers import Ref, Transfers, TransferTable
from topologies import Topology

NAME = "dimension-wise"


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    grid = Grid(topology.shape)

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        for phase, dim in enumerate(grid.dims):
            _add_phase(table, grid, phase, dim)
        return table.build()

    def blocks_of(source: int, slot: int) -> Sequence[int]:
        phase, by = _locate(grid, slot)
        return _blocks(grid, source, grid.dims[phase], by) if by else []

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=grid.p**2, emit=emit,
        blocks_of=blocks_of, groups=translations(topology), smaller=Smaller(lambda: _pattern(shrink(topology), kind)),
    )


all_to_all = plain("all-to-all", _pattern, """
    All-to-all in one phase per dimension of extent d, which sends p / d blocks to each of d - 1 ranks at once.

    `size`: what each rank sends, including its own block.
    """)


def _first_slot(grid: Grid, phase: int) -> int:
    """Slot of the join of a phase; the transfer over distance c has the c-th slot after it."""
    return sum(grid.extents[:phase])


def _locate(grid: Grid, slot: int) -> tuple[int, int]:
    phase = next(phase for phase in range(len(grid.dims)) if slot < _first_slot(grid, phase + 1))
    return phase, slot - _first_slot(grid, phase)


def _add_phase(table: TransferTable, grid: Grid, phase: int, dim: int) -> None:
    first, extent = _first_slot(grid, phase), grid.shape[dim]
    after: list[Ref] = []
    if phase > 0:
        _join(table, grid, phase)
        after = [(table.ranks, first)]
    by = np.arange(1, extent)[:, None]
    table.add(first + by, grid.shift(table.ranks, dim, by), grid.p // extent, step=phase, after=after)


def _join(table: TransferTable, grid: Grid, phase: int) -> None:
    """A join of what each rank sent and received in the previous phase."""
    dim = grid.dims[phase - 1]
    by = np.arange(1, grid.shape[dim])[:, None]
    senders = grid.shift(table.ranks, dim, -by)
    ranks = np.broadcast_to(table.ranks, senders.shape)
    others = np.tile(_first_slot(grid, phase - 1) + by, (2, 1))
    table.join(_first_slot(grid, phase), np.concatenate([senders, ranks]), others, step=phase)


def _blocks(grid: Grid, source: int, dim: int, by: int) -> Sequence[int]:
    """Blocks at the source that move to the rank `by` further along `dim`.

    In earlier dimensions the source has their final coordinates, in later ones their original coordinates.
    """
    before = tuple(other for other in grid.dims if other < dim)
    origins = alike(grid, source, tuple(other for other in grid.dims if other >= dim))
    destinations = alike(grid, grid.shift(source, dim, by), (*before, dim))
    return (origins[:, None] * grid.p + destinations).ravel().tolist()
