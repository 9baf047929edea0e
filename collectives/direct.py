"""Direct: every rank sends to every other at once, on any topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collectives.collective import collective
from collectives.families import shrink
from collectives.grid import Grid
from collectives.pattern import Pattern
from collectives.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.symmetry import translations
from collectives.transfers import Ref, Transfers, TransferTable
from topologies import Topology
from topologies.units import Quantity

NAME = "direct"


def all_reduce(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Direct reduce-scatter, then direct all-gather: two steps of p - 1 messages from each rank.

    Messages are injected by displacement, so that all ranks send alike.

    Parameters
    ----------
    topology : Topology
    size : quantity
        Bytes of the array.
    element_bytes : int
    """
    return schedule(_pattern(topology, "all-reduce"), size, element_bytes)


def reduce_scatter(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Every rank sends every other the block that this one owns."""
    return schedule(_pattern(topology, "reduce-scatter"), size, element_bytes)


def all_gather(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Every rank sends its block to every other."""
    return schedule(_pattern(topology, "all-gather"), size, element_bytes)


def all_to_all(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Every rank sends every other a block of its own, all at once."""
    return schedule(_pattern(topology, "all-to-all"), size, element_bytes)


@lru_cache(maxsize=64)
def _pattern(topology: Topology, kind: str) -> Pattern:
    grid = Grid(topology.shape)
    p = grid.p
    steps = {"all-reduce": (True, False), "reduce-scatter": (True,)}.get(kind, (False,))

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        displacement = np.arange(1, p)[:, None]
        after: list[Ref] = []
        for step, reduces in enumerate(steps if p > 1 else ()):
            if step > 0:
                after = [_join(table, grid, step)]
            receivers = grid.displace(table.ranks, displacement)
            table.add(step * p + displacement, receivers, step=step, reduces=reduces, after=after)
        return table.build()

    def blocks_of(source: int, slot: int) -> Sequence[int]:
        step, displacement = divmod(slot, p)
        receiver = int(grid.displace(np.array(source), np.array(displacement)))
        return [] if displacement == 0 else [_block(kind, p, source, receiver, steps[step])]

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=p * p if kind == "all-to-all" else p,
        emit=emit, blocks_of=blocks_of, groups=translations(topology), smaller=lambda: _pattern(shrink(topology), kind),
        key=(grid.shape,),
    )


def _join(table: TransferTable, grid: Grid, step: int) -> Ref:
    """A transfer of nothing from each rank to itself, after all that it sent and received in the step before.

    What follows waits for this one alone: p - 1 transfers that each wait for 2(p - 1) would be p times as many
    dependencies.
    """
    slot = step * grid.p
    add_join(table, slot, step, [(grid, slot - grid.p + np.arange(1, grid.p), lambda d: d)])
    return table.ranks, slot


def _block(kind: str, p: int, source: int, receiver: int, reduces: bool) -> int:
    if kind == "all-to-all":
        return source * p + receiver
    return receiver if reduces else source
