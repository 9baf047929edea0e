"""PAT: an all-gather along binomial trees, one from every rank, whose messages share a direction and travel together.

Far ranks come first: a rank sends to the rank p/2 ahead, then p/4, and so on, in each step all blocks that it has and
the receiver still lacks. Every block takes log2(p) steps, and the far steps carry the fewest. The reduce-scatter is the
same backwards. With limited buffers only the far steps aggregate, up to a number of blocks; the rest of each tree is
walked depth first, one such message for each of its edges, so that few are kept for later. (S. Jeaugey, "PAT: a new
algorithm for all-gather and reduce-scatter operations at scale", 2025; NCCL since 2.23.)
"""

from collections.abc import Iterator

from collectives.core.builders import by_wiring, plain
from collectives.core.grid import Grid, is_power_of_two, shrink
from collectives.core.offsets import Move, Steps, rounds_of
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import rounds_pattern
from collectives.core.symmetry import translations
from topologies import Topology, WeftError
from topologies.checks import Count

NAME = "pat"


@by_wiring
def _pattern(topology: Topology, kind: str, aggregation: Count | None = None) -> Pattern:
    p = topology.n_npus
    if aggregation and not (is_power_of_two(p) and is_power_of_two(aggregation) and 2 * aggregation <= p):
        raise WeftError(
            f"pat on {topology.name}: aggregation {aggregation} of {p} ranks: both must be powers of two, and the "
            "aggregation at most half of the ranks"
        )

    def smaller() -> Pattern:
        small = shrink(topology)
        return _pattern(small, kind, aggregation and min(aggregation, small.n_npus // 2))

    steps = _whole(p) if aggregation is None else [*_far(p, aggregation), *_near(p, aggregation)]
    return rounds_pattern(
        topology, kind, NAME, "", rounds_of(Grid((p,)), kind, "", [steps]), n_blocks=p,
        groups=translations(topology) if len(topology.shape) == 1 else (), smaller=Smaller(smaller),
    )


all_gather = plain("all-gather", _pattern, """
    Blocks spread to the far half of the ranks first, then to ever nearer ones; any number of ranks.

    `aggregation`: most blocks of a message, for buffers that hold no more; a power of two up to p/2, of ranks whose
        number is one. log2 A + p/A - 1 messages per rank. Default: all blocks that go the same way.
    WeftError: an aggregation that is no such number.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, """
    The all-gather backwards, with the same parameters: partial sums come together from the nearest ranks first.""")


def _whole(p: int) -> Steps:
    """From 2^d further on the blocks of its odd multiples, far ones first."""
    far_first = [1 << bit for bit in reversed(range((p - 1).bit_length()))]
    return [(Move(far, tuple(range(far, p, 2 * far))),) for far in far_first]


def _far(p: int, most: int) -> Iterator[tuple[Move]]:
    """The steps whose messages have fewer than `most` blocks."""
    for move, in _whole(p):
        if len(move.offsets) < most:
            yield (move,)


def _near(p: int, most: int) -> Iterator[tuple[Move]]:
    """The rest of each tree, below the ranks that are a multiple of p/A away: one message for each of its edges."""
    apart = p // most
    for near in _depth_first(apart):
        yield (Move(near & -near, tuple(range(near, p, apart))),)


def _depth_first(below: int) -> Iterator[int]:
    """Nodes of a binomial tree from 0, far branches first; a node is 2^d beyond its parent, d its lowest bit."""
    def walk(node: int, span: int) -> Iterator[int]:
        while span > 1:
            span //= 2
            yield node + span
            yield from walk(node + span, span)

    yield from walk(0, below)
