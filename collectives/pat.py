"""PAT: an all-gather along binomial trees, one from every rank, whose messages share a direction and travel together.

Far ranks come first: a rank sends to the rank p/2 ahead, then p/4, and so on, in each step all blocks that it has and
the receiver still lacks. Every block takes log2(p) steps, and the far steps carry the fewest. The reduce-scatter is the
same backwards. (S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; NCCL
since 2.23. NCCL cuts the last steps to fit its buffers, this does not.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collectives.core.builders import by_wiring, plain
from collectives.core.grid import Ranks, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, rounds_pattern
from collectives.core.symmetry import translations
from topologies import Topology

NAME = "pat"


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    p = topology.n_npus
    gathers = kind == "all-gather"
    distances = [1 << bit for bit in reversed(range((p - 1).bit_length()))]
    rounds = []
    for step, far in enumerate(distances if gathers else reversed(distances)):
        by = far if gathers else -far
        held = [offset for offset in range(0, p, 2 * far) if offset + far < p]
        rounds.append(Round(
            step, 0, partial(_shifted, p, by), partial(_shifted, p, -by), len(held),
            partial(_blocks, p, held, far, gathers), not gathers,
        ))
    return rounds_pattern(
        topology, kind, NAME, "", rounds, n_blocks=p,
        groups=translations(topology) if len(topology.shape) == 1 else (),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind)),
    )


all_gather = plain("all-gather", _pattern, """
    Blocks spread to the far half of the ranks first, then to ever nearer ones; any number of ranks.""")
reduce_scatter = plain("reduce-scatter", _pattern, """
    The all-gather backwards: partial sums come together from the nearest ranks first.""")


def _shifted(p: int, by: int, ranks: Ranks) -> Ranks:
    return (ranks + by) % p


def _blocks(p: int, held: Sequence[int], far: int, gathers: bool, rank: int) -> Sequence[int]:
    """Blocks of the ranks that are a multiple of twice the distance behind; backwards, of those that lie ahead."""
    return [(rank - offset if gathers else rank - far - offset) % p for offset in held]
