"""Algorithms of the user's own: from a list of steps, each a list of sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from collectives.core.transfers import take
from topologies import Topology, WeftError
from topologies.units import Quantity

Send = tuple[int, int, Sequence[int]] | tuple[int, int, Sequence[int], bool]
"""(source, destination, blocks), and whether the receiver adds; without it, it does not."""


def from_steps(
    topology: Topology,
    kind: str,
    steps: Iterable[Iterable[Send]],
    size: Quantity,
    *,
    name: str = "custom",
    root: int = 0,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """A schedule of the user's own, proved when it is built.

    A send waits for what earlier steps brought of its blocks to its source: chunk by chunk where a single send brought
    just the same blocks, for the whole of it otherwise. It waits for nothing else, so steps overlap where the data
    allow it.

    Parameters
    ----------
    topology : Topology
    kind : str
        "all-gather", "all-reduce", ...
    steps : iterable of iterable of (src, dst, blocks) or (src, dst, blocks, adds)
        Ranks, and the numbers of the blocks that travel. The array of a rank has equal blocks 0, 1, ...; of an
        all-gather and a reduce-scatter, block b belongs to rank b modulo p, and of an all-to-all block b goes from rank
        b // p modulo p to rank b modulo p.
    size : quantity
        Bytes of the array, as nccl-tests counts it.
    name : str
        For tables and messages.
    root : int
        Of a broadcast or reduce.
    element_bytes : int
        Blocks are padded up to whole elements.

    Raises
    ------
    WeftError
        A send that is none, or a rank that is not there.
    ScheduleError
        The steps do not do the collective: names the rank, the block and the step.

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
    transfers, carried = sends.build()
    does = collective(kind)
    multiple = does.blocks_multiple(topology.n_npus)
    pattern = Pattern(
        topology=topology, kind=does, algorithm=name, n_blocks=-(-max(highest + 1, 1) // multiple) * multiple,
        emit=lambda ranks: take(transfers, np.flatnonzero(np.isin(transfers.src, ranks))),
        blocks_of=lambda source, slot: carried[source, slot], root=root,
    )
    return schedule(pattern, size, element_bytes)


def _checked(one: Send, step: int, p: int) -> tuple[int, int, list[int], bool]:
    """The parts of a send, each what it should be."""
    try:
        src, dst, blocks, adds = one if len(one) == 4 else (*one, False)
        blocks = [int(block) for block in blocks]
    except (TypeError, ValueError):
        wanted = "write (source, destination, [blocks]), and True if it adds"
        raise WeftError(f"step {step} has {one!r}: {wanted}") from None
    for rank in (src, dst):
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < p:
            raise WeftError(f"step {step}: {one!r} has the rank {rank!r}: ranks are 0 to {p - 1}")
    if src == dst:
        raise WeftError(f"step {step}: {one!r} is a send of a rank to itself")
    if not blocks or min(blocks) < 0 or len(set(blocks)) < len(blocks):
        raise WeftError(f"step {step}: {one!r} has the blocks {blocks}: give different numbers from 0")
    return int(src), int(dst), blocks, bool(adds)
