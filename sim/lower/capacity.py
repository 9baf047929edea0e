"""Whether a schedule can be lowered in this machine's memory, estimated before anything large is built."""

from __future__ import annotations

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.transfers import take
from topologies import WeftError
from topologies.core.extents import physical_memory
from topologies.units import format_size

BYTES_PER_TRANSFER = 180
BYTES_PER_HOP = 50
"""Peak while lowering without symmetry: tracemalloc on ring, bucket, swing and direct, tori of 256 and 1,024 nodes."""

SAMPLED_TRANSFERS = 1_000


def check_capacity(pattern: Pattern, n_ranks: int) -> None:
    """Reject to lower the transfers of more ranks than fit in memory.

    Parameters
    ----------
    pattern : Pattern
    n_ranks : int
        Ranks to be simulated: all of them, or the representatives of a symmetry.

    Raises
    ------
    WeftError
        With the estimate, and what would help.
    """
    need, transfers = lowering_bytes(pattern, n_ranks)
    if need > physical_memory():
        raise WeftError(
            f"{pattern.name} on {pattern.topology.name} is too large: simulating {n_ranks:,} of {pattern.p:,} ranks "
            f"takes about {transfers:,} transfers and {format_size(need)} of memory; this machine has "
            f"{format_size(int(physical_memory()))}. Use a smaller fabric, or an algorithm with fewer transfers"
        )


def lowering_bytes(pattern: Pattern, n_ranks: int) -> tuple[int, int]:
    """Memory to lower the transfers of `n_ranks` ranks, and their number, both from those of one rank in the middle."""
    t = pattern.emit(np.array([pattern.p // 2]))
    if t.src.size == 0:
        return 0, 0
    rows = np.unique(np.linspace(0, t.src.size - 1, SAMPLED_TRANSFERS).astype(np.int64))
    hops = paths_of(take(t, rows), pattern.topology).links.size / rows.size
    transfers = t.src.size * n_ranks
    return int(transfers * (BYTES_PER_TRANSFER + BYTES_PER_HOP * hops)), transfers
