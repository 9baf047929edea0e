"""Pairwise exchange: an all-to-all in p - 1 steps; in step s every rank sends to the rank s further on.

R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring
from collectives.core.collective import collective
from collectives.core.grid import shrink
from collectives.core.pairs import Pairs, exchange
from collectives.core.pattern import Pattern, Smaller
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.symmetry import translations
from collectives.core.transfers import Transfers, TransferTable
from topologies import Topology
from topologies.checks import checked
from topologies.units import Quantity

NAME = "pairwise"


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    p = topology.n_npus

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        """All steps at once: one after the other, those of a single rank of 65,536 take a second and a half."""
        table = TransferTable(ranks)
        step = np.arange(p - 1)[:, None]  # the slot as well; -1 before the first
        table.add(step, (ranks + step + 1) % p, step=step, after=[((ranks - step) % p, step - 1), (ranks, step - 1)])
        return table.build()

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=p * p, emit=emit,
        blocks_of=partial(_block, p), groups=translations(topology) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind)),
    )


@checked
def all_to_all(
    topology: Topology, size: Quantity, *, pairs: Pairs | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """All-to-all, one displacement after the other: every rank has one message in flight.

    `size`: what each rank sends, including its own block.
    `pairs`: how much each rank sends every other (default: equal blocks); see `collectives.core.pairs`.
    """
    if pairs is None:
        return schedule(_pattern(topology, "all-to-all"), size, element_bytes)
    return exchange(topology, NAME, pairs, size, element_bytes, in_turn=True)


def _block(p: int, rank: int, slot: int) -> Sequence[int]:
    return [rank * p + (rank + slot + 1) % p]
