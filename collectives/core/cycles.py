"""Rings: concurrent cycles of all ranks, along each of which a part of the array goes around."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.carried import OfMany
from collectives.core.collective import collective
from collectives.core.grid import Ranks
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import Group, Groups
from collectives.core.transfers import Transfers, TransferTable
from topologies import Topology


@dataclass(frozen=True, eq=False)
class _Cycle:
    """A directed cycle through all ranks."""

    order: Ranks  # (p,): ranks in the order of the cycle
    place: Ranks  # (p,): position of each rank on it

    def ahead(self, ranks: Ranks, steps: Ranks | int) -> Ranks:
        """The ranks a number of steps further on."""
        return np.asarray(self.order[(self.place[ranks] + steps) % self.order.size])


def _cycle(order: Ranks) -> _Cycle:
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return _Cycle(order, place)


def cycles_pattern(
    topology: Topology, kind: str, algorithm: str, orders: Sequence[Ranks], *, groups: Groups | tuple[Group, ...] = (),
    smaller: Smaller | None = None, progress: str = "free", posted: bool = False,
) -> Pattern:
    """The pattern of concurrent rings, each with an equal part of the array.

    `kind`: "all-reduce", "reduce-scatter" or "all-gather".
    `orders`: (p,) ranks in the order of each directed cycle.
    `groups`, `smaller`, `progress`: as in `Pattern`.
    `posted`: a rank forwards what it has received without waiting for its own previous send.
    """
    p = topology.n_npus
    cycles = [_cycle(order) for order in orders]
    phases = [(True,), (False,), (True, False)][("reduce-scatter", "all-gather", "all-reduce").index(kind)]

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        for port, cycle in enumerate(cycles):
            _add_steps(table, port, len(cycles), cycle, phases, posted)
        return table.build()

    def blocks_of(source: Any, slot: int) -> list[Any]:
        step, port = divmod(slot, len(cycles))
        reduces = phases[step // (p - 1)]
        back = step % (p - 1) + (1 if reduces else 0)
        return [port * p + cycles[port].ahead(source, -back)]

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=algorithm, n_blocks=max(len(cycles), 1) * p, emit=emit,
        blocks_of=OfMany(blocks_of), groups=groups, smaller=smaller, progress=progress,
    )


def _add_steps(
    table: TransferTable, port: int, n_ports: int, cycle: _Cycle, phases: Sequence[bool], posted: bool
) -> None:
    """All steps of one port: a rank forwards what it has just received, after its own previous send unless posted."""
    around = cycle.order.size - 1
    step = np.arange(around * len(phases))[:, None]
    slot = step * n_ports + port
    before = np.where(step > 0, slot - n_ports, -1)
    table.add(
        slot, cycle.ahead(table.ranks, 1), step=step, port=port,
        reduces=np.repeat(np.array(phases), around)[:, None],
        after=[(cycle.ahead(table.ranks, -1), before), *([] if posted else [(table.ranks, before)])],
    )
