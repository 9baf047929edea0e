"""The limit on what is written of a schedule, checked before all of it is emitted."""

import numpy as np

from collectives.core.pattern import Pattern
from topologies import WeftError

PARTS = 64
"""In which ranks are looked at: of a schedule that is much too large the first is enough."""


def check_messages(pattern: Pattern, most: int, what: str, chunks: int = 1) -> None:
    """Refuse a schedule of more messages than are written.

    `what`: such as "GOAL".
    `chunks`: messages of a transfer between two ranks.
    WeftError: there are more than `most`.
    """
    n_sources, found = pattern.n_sources or pattern.p, 0
    for ranks in np.array_split(np.arange(n_sources), min(n_sources, PARTS)):
        t = pattern.emit(ranks)
        found += chunks * int(np.count_nonzero(t.src != t.dst))
        if found > most:
            raise WeftError(
                f"{what} of {found:,} messages or more: at most {most:,} are written; take fewer ranks or chunks"
            )
