"""User-defined algorithms, from a list of steps, each a list of sends."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np

from collectives.core.collective import collective
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from topologies import Topology, WeftError
from topologies.checks import UNCHECKED, checked, integer
from topologies.units import Quantity

Send = tuple[int, int, Sequence[int]] | tuple[int, int, Sequence[int], bool]
"""(source, destination, blocks), and optionally whether the receiver adds (default: no)."""


MOST_UNSENT = 2**16
"""Blocks that are never sent, beyond half of all, up to which the proof names the first that is missing."""


@checked
def from_steps(
    topology: Topology,
    kind: str,
    steps: Iterable[Iterable[Annotated[Send, UNCHECKED]]],  # by `_checked`, which names the step
    size: Quantity,
    *,
    name: str = "custom",
    root: int = 0,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """A user-defined schedule, checked for correctness when built.

    A send waits for the earlier sends that brought its blocks to its source: chunk by chunk if a single send brought
    exactly the same blocks, otherwise until they are complete. It waits for nothing else, so steps overlap where the
    data dependencies allow it.

    Parameters
    ----------
    topology : Topology
    kind : str
        "all-gather", "all-reduce", ...
    steps : iterable of iterable of (src, dst, blocks) or (src, dst, blocks, adds)
        Ranks, and indices of the blocks sent. The array consists of equal blocks 0, 1, ... In an all-gather or
        reduce-scatter, block b belongs to rank b modulo p; in an all-to-all, block b goes from rank b // p modulo p to
        rank b modulo p.
    size : quantity
        Bytes of the array, as nccl-tests counts it.
    name : str
        Shown in tables and messages.
    root : int
        For broadcast and reduce.
    element_bytes : int
        Blocks are padded to a multiple of this.

    Raises
    ------
    WeftError
        A malformed send, or a rank that does not exist.
    ScheduleError
        The steps do not implement the collective; the message names the rank, the block and the step.

    Examples
    --------
    >>> from topologies import ring
    >>> turns = [[(rank, (rank + 1) % 4, [(rank - turn) % 4]) for rank in range(4)] for turn in range(3)]
    >>> from_steps(ring(4), "all-gather", turns, "1MiB").proof
    'proved'
    """
    sends, brought = SendList(), dict[tuple[int, int], list[int]]()
    highest = -1
    for step, its in enumerate(steps):
        arrivals: list[tuple[int, int, int]] = []
        for one in its:
            src, dst, blocks, adds = _checked(one, step, topology.n_npus)
            waits = sorted({number for block in blocks for number in brought.get((src, block), ())})
            alike = len(waits) == 1 and list(sends.blocks[waits[0]]) == blocks
            number = sends.add(
                src, dst, blocks, step=step, reduces=adds, after=() if alike else waits, stream=waits if alike else ()
            )
            arrivals += [(dst, block, number) for block in blocks]
            highest = max(highest, *blocks)
        for dst, block, number in arrivals:
            brought.setdefault((dst, block), []).append(number)
    multiple = collective(kind).blocks_multiple(topology.n_npus)
    n_blocks = -(-max(highest + 1, 1) // multiple) * multiple
    sent = len({block for its in sends.blocks for block in its})
    if n_blocks > 2 * sent + MOST_UNSENT:  # of any collective, at least half of the blocks have to move
        raise WeftError(f"block {highest} makes {n_blocks} blocks, of which {sent} are sent: number them from 0")
    return schedule(sends.pattern(topology, kind, name, n_blocks, root=root), size, element_bytes)


def _checked(one: Send, step: int, p: int) -> tuple[int, int, list[int], bool]:
    """The validated parts of a send."""
    try:
        src, dst, blocks, adds = one if len(one) == 4 else (*one, False)
        blocks = [block if type(block) is int and 0 <= block < 2**31 else integer(block, "block") for block in blocks]
        if not isinstance(adds, bool | np.bool_):
            raise TypeError
    except (TypeError, ValueError):
        wanted = "write (source, destination, [blocks]), and True if it adds"
        raise WeftError(f"step {step} has {one!r}: {wanted}") from None
    for rank in (src, dst):
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < p:
            raise WeftError(f"step {step}: {one!r} has the rank {rank!r}: ranks are 0 to {p - 1}")
    if src == dst:
        raise WeftError(f"step {step}: {one!r} sends from a rank to itself")
    if not blocks or min(blocks) < 0 or len(set(blocks)) < len(blocks):
        raise WeftError(f"step {step}: {one!r} has the blocks {blocks}: give distinct integers from 0")
    return int(src), int(dst), blocks, bool(adds)
