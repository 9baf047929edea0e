"""One stage of a hierarchical collective within a dimension: ring, direct or halving-doubling.

A stage is a sequence of rounds. In a round each rank sends on a few lanes at once; a lane waits for what its rank
sent and received on the same lane in the previous round. The cargo of a lane is given by positions along the
dimension: whose blocks, and which parts of them, since a ring cuts blocks in two for its two directions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.grid import Ranks, is_power_of_two
from collectives.core.process_groups import ProcessGroup
from topologies.checks import WeftError, choice
from topologies.core.blocks import Block, Ring, Switched

Counts = npt.NDArray[np.int64]
Position = Any
"""An integer, or those of many ranks, (n,)."""

RING, DIRECT, HALVING_DOUBLING = "ring", "direct", "halving-doubling"
STAGE_ALGORITHMS = (RING, DIRECT, HALVING_DOUBLING)

SCATTER, GATHER, EXCHANGE = "scatter", "gather", "exchange"


class Cargo(NamedTuple):
    """Blocks at a position: those that come from `origin` (in an exchange) and belong to `owner`, and their parts."""

    origin: Position
    owner: Position
    parts: range


class LaneRounds(NamedTuple):
    """Rounds in a row whose lanes lead to the same ranks; a ring of a million has as many."""

    receivers: Callable[[Ranks], Ranks]  # ranks (n,) -> destinations (lanes, n)
    senders: Callable[[Ranks], Ranks]  # ranks (n,) -> sources (lanes, n)
    counts: Counts  # (rounds, lanes): parts carried; a part is the blocks of one owner (and origin)
    cargo: Callable[[int, Position, int], list[Cargo]]  # (round, position, lane): what the rank at a position sends


def own_algorithm(block: Block, group: ProcessGroup, dim: int, kind: str) -> str:
    """The native algorithm of a block: ring; direct if fully connected; halving-doubling or direct for a switch.

    A group that covers part of a ring cannot go around it and exchanges directly, as does an all-to-all on a switch.
    """
    extent = group.extents[dim]
    if isinstance(block, Ring) and extent * group.strides[dim] == block.extent:
        return RING
    if isinstance(block, Switched) and is_power_of_two(extent) and kind != "all-to-all":
        return HALVING_DOUBLING
    return DIRECT


def check_algorithm(algorithm: str, extent: int, kind: str, dim: int) -> None:
    """Reject an algorithm that a dimension cannot run.

    WeftError: an unknown algorithm; halving-doubling on an extent that is not a power of two, or for an all-to-all.
    """
    choice(algorithm, STAGE_ALGORITHMS, f"dimension {dim}: algorithm")
    if algorithm == HALVING_DOUBLING and not is_power_of_two(extent):
        raise WeftError(f"halving-doubling needs a power of two in dimension {dim}, which has {extent} NPUs")
    if algorithm == HALVING_DOUBLING and kind == "all-to-all":
        raise WeftError(f"halving-doubling does not support all-to-all (dimension {dim}): choose ring or direct")


def cuts_blocks(algorithm: str, extent: int) -> bool:
    """Whether a stage works on halves of blocks."""
    return algorithm == RING and extent > 2


def stage_rounds(algorithm: str, task: str, group: ProcessGroup, dim: int, parts: int) -> list[LaneRounds]:
    """The rounds of a stage.

    `algorithm`: one of `STAGE_ALGORITHMS`. A ring of two is one cable: both ends exchange directly.
    `task`: {"scatter", "gather", "exchange"}.
    `parts`: parts per block: 2 if any dimension of the collective is a ring.
    """
    if algorithm == HALVING_DOUBLING:
        return _halving_doubling(task, group, dim, parts)
    if cuts_blocks(algorithm, group.extents[dim]):
        return [_ring_exchange(group, dim) if task == EXCHANGE else _ring(task, group, dim)]
    return [_direct(task, group, dim, parts)]


def _moved(group: ProcessGroup, dim: int, by: list[int]) -> tuple[Callable[[Ranks], Ranks], Callable[[Ranks], Ranks]]:
    ahead = np.array(by, np.int64)[:, None]
    return (lambda ranks: group.move(ranks, dim, ahead)), (lambda ranks: group.move(ranks, dim, -ahead))


def _direct(task: str, group: ProcessGroup, dim: int, parts: int) -> LaneRounds:
    extent, every = group.extents[dim], range(parts)

    def cargo(_: int, position: Position, lane: int) -> list[Cargo]:
        peer = (position + lane + 1) % extent
        return [Cargo(position, position if task == GATHER else peer, every)]

    return LaneRounds(*_moved(group, dim, list(range(1, extent))), np.full((1, extent - 1), parts), cargo)


def _ring(task: str, group: ProcessGroup, dim: int) -> LaneRounds:
    """Both directions at once, each with half of every block."""
    extent = group.extents[dim]

    def cargo(step: int, position: Position, lane: int) -> list[Cargo]:
        back = step + (task == SCATTER)
        return [Cargo(position, (position - (1, -1)[lane] * back) % extent, range(lane, lane + 1))]

    return LaneRounds(*_moved(group, dim, [1, -1]), np.ones((extent - 1, 2), np.int64), cargo)


def _ring_exchange(group: ProcessGroup, dim: int) -> LaneRounds:
    """Blocks travel from neighbor to neighbor in the shorter direction; to the antipode, one half in each direction."""
    extent = group.extents[dim]

    def cargo(step: int, position: Position, lane: int) -> list[Cargo]:
        way = (1, -1)[lane]
        origin = (position - way * step) % extent
        return [
            Cargo(origin, (origin + way * far) % extent, range(2) if 2 * far < extent else range(lane, lane + 1))
            for far in range(step + 1, extent // 2 + 1)
        ]

    left = np.arange(extent // 2, 0, -1)  # distances that are still to be traveled, the antipode's with one part
    counts = 2 * left - (extent % 2 == 0)
    return LaneRounds(*_moved(group, dim, [1, -1]), np.stack([counts, counts], axis=1), cargo)


def _halving_doubling(task: str, group: ProcessGroup, dim: int, parts: int) -> list[LaneRounds]:
    """Halving from the largest distance down; doubling from the smallest up."""
    extent = group.extents[dim]
    bits = [1 << s for s in range((extent - 1).bit_length())]

    def round_of(bit: int) -> LaneRounds:
        def peers(ranks: Ranks) -> Ranks:
            return group.flip(ranks, dim, bit)[None]

        def cargo(_: int, position: Position, lane: int) -> list[Cargo]:
            first = (position ^ bit if task == SCATTER else position) & -bit
            return [Cargo(position, first + at, range(parts)) for at in range(bit)]

        return LaneRounds(peers, peers, np.array([[bit * parts]]), cargo)

    return [round_of(bit) for bit in (reversed(bits) if task == SCATTER else bits)]
