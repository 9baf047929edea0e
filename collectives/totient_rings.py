"""Totient rings: parts of an array go around several rings of all ranks at once, each ring with its own jump.

Permuting the positions on a ring changes neither the volume of an all-reduce nor its result: TopoOpt runs one over all
of its ring permutations at once (NSDI 2023, multi-ring all-reduce).
"""

from collections.abc import Sequence
from math import gcd

import numpy as np

from collectives.core.builders import by_wiring
from collectives.core.cycles import cycles_pattern
from collectives.core.grid import Grid
from collectives.core.pattern import Pattern, Smaller
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.symmetry import translations
from topologies import Topology, WeftError, torus
from topologies.checks import checked
from topologies.circulants import CoinRouter
from topologies.units import Quantity

NAME = "totient-rings"


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, jumps: str | Sequence[int] = (), element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """All-reduce over several rings; each has p - 1 steps of reduce-scatter and p - 1 of all-gather.

    `topology`: any; on a circulant every step of a ring is one link.
    `jumps`: one ring per jump: from every rank to the rank that far ahead. Default: on a circulant, those of its own
        links that visit every rank; otherwise one ring in rank order, in both directions.
    WeftError: a jump that does not visit every rank.
    """
    return schedule(_pattern(topology, parse_jumps(jumps)), size, element_bytes)


def parse_jumps(jumps: str | Sequence[int]) -> tuple[int, ...]:
    """Jumps from text such as "1,5"."""
    if not isinstance(jumps, str):
        return tuple(jumps)
    try:
        return tuple(int(part) for part in jumps.split(",") if part)
    except ValueError:
        raise WeftError(f"jumps {jumps!r}: write integers separated by commas, such as 1,5") from None


def ring_jumps(topology: Topology) -> tuple[int, ...]:
    """The default jumps."""
    p = topology.n_npus
    if isinstance(topology.router, CoinRouter):
        own = tuple(coin for coin in topology.router.coins if gcd(coin, p) == 1)
        if own:
            return own
    return tuple(dict.fromkeys((1, p - 1)))


@by_wiring
def _pattern(topology: Topology, jumps: tuple[int, ...]) -> Pattern:
    p = topology.n_npus
    jumps = (jumps or ring_jumps(topology)) if p > 1 else ()
    for jump in jumps:
        if gcd(jump, p) != 1:
            raise WeftError(f"{NAME}: the jump {jump} does not visit all {p} ranks: it shares a divisor with {p}")
    return cycles_pattern(
        topology, "all-reduce", NAME, [np.arange(p) * jump % p for jump in jumps],
        groups=translations(topology, max(Grid(topology.shape).dims, default=0)),  # ranks in a row move by entire rows
        smaller=Smaller(lambda: _pattern(torus((16,)), (1, 3, 13, 15)[: max(len(jumps), 1)])),
    )
