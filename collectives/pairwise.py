"""Pairwise exchange: an all-to-all in p - 1 steps; in step s every rank sends to the rank s further on.

R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collectives.core.by_wiring import by_wiring
from collectives.core.collective import collective
from collectives.core.families import shrink
from collectives.core.grid import Ranks
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.symmetry import translations
from topologies import Topology
from topologies.checks import checked
from topologies.units import Quantity

NAME = "pairwise"


@checked
def all_to_all(topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """All-to-all, one displacement after the other: every rank has one message in flight.

    `size`: what each rank sends, including its own block.
    """
    return schedule(_pattern(topology), size, element_bytes)


@by_wiring
def _pattern(topology: Topology) -> Pattern:
    p = topology.n_npus
    rounds = [
        Round(s - 1, 0, partial(_shifted, p, s), partial(_shifted, p, -s), 1, partial(_block, p, s), False)
        for s in range(1, p)
    ]
    return rounds_pattern(
        topology, collective("all-to-all"), NAME, "", rounds, n_blocks=p * p,
        groups=translations(topology) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology))),
    )


def _shifted(p: int, by: int, ranks: Ranks) -> Ranks:
    return (ranks + by) % p


def _block(p: int, by: int, rank: int) -> Sequence[int]:
    return [rank * p + (rank + by) % p]
