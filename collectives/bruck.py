"""Bruck's algorithms: every rank sends ahead by the powers of a radix, all that goes that way in one message.

An all-gather doubles what a rank has, or multiplies it by the radix, near ranks first, and needs no power of two. An
all-to-all moves each block by one digit of its distance at a time, so that it is sent as often as the distance has
digits that are not zero: few messages for many bytes. (J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient
Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997.)
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import numpy as np

from collectives.core.builders import by_wiring, plain
from collectives.core.grid import Grid, Ranks, shrink
from collectives.core.offsets import rounds_of, spread
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, rounds_pattern
from collectives.core.symmetry import translations
from topologies import Topology
from topologies.checks import Integer

NAME = "bruck"

Radix = Annotated[int, Integer(2)]


@by_wiring
def _pattern(topology: Topology, kind: str, radix: Radix = 2) -> Pattern:
    p = topology.n_npus
    if kind == "all-to-all":
        rounds, n_blocks = list(_digits(p, radix)), p * p
    else:
        steps, _ = spread(Grid((p,)), tuple(map(tuple, _fars(p, radix))))
        rounds, n_blocks = rounds_of(Grid((p,)), kind, "", [steps]), p
    return rounds_pattern(
        topology, kind, NAME, "", rounds, n_blocks=n_blocks,
        groups=translations(topology) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind, radix)),
    )


all_gather = plain("all-gather", _pattern, """
    Each rank fetches from the next rank, then from 2 further on, 4, ...; any number of ranks.

    `radix`: R: from 1, ..., R-1 further on at once, then from R, 2R, ...
    """)
reduce_scatter = plain("reduce-scatter", _pattern, "The all-gather backwards, with the same parameters.")
all_to_all = plain("all-to-all", _pattern, """
    Blocks move by the lowest digit of their distance, then by the next; any number of ranks.

    `radix`: of the digits: (R - 1) log_R p messages per rank; those of one digit are sent at once.
    """)


def _fars(p: int, radix: int) -> Iterator[range]:
    """Multiples of each power of the radix, below p."""
    weight = 1
    while weight < p:
        yield range(weight, min(radix * weight, p), weight)
        weight *= radix


def _digits(p: int, radix: int) -> Iterator[Round]:
    for step, fars in enumerate(_fars(p, radix)):
        for far in fars:
            gone = np.arange(far, p)  # distances from origin to destination
            gone = gone[gone // fars.step % radix == far // fars.step]
            blocks = partial(_carried, p, gone, gone % fars.step)
            yield Round(step, 0, partial(_ahead, p, far), partial(_ahead, p, -far), gone.size, blocks, False)


def _ahead(p: int, by: int, ranks: Ranks) -> Ranks:
    return (ranks + by) % p


def _carried(p: int, gone: Ranks, behind: Ranks, rank: int) -> Sequence[int]:
    """Blocks whose lower digits have brought them to a rank."""
    origin = (rank - behind) % p
    blocks: list[int] = (origin * p + (origin + gone) % p).tolist()
    return blocks
