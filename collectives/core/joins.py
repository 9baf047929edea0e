"""What transfers wait for once joins are gone: other formats have no transfer that moves nothing."""

from __future__ import annotations

from collectives.core.transfers import Transfers

Parents = frozenset[int]
"""Rows that a transfer waits for."""


def parents_of(t: Transfers) -> list[Parents]:
    """The rows that each row waits for, entirely or chunk by chunk; a join among them stands for what it waits for.

    Windows are left out: they hold back later chunks.
    """
    row_of = {pair: row for row, pair in enumerate(zip(t.src.tolist(), t.slot.tolist(), strict=True))}
    is_join = (t.src == t.dst).tolist()
    waits = list(zip(t.dep_src.tolist(), t.dep_slot.tolist(), t.dep_lag.tolist(), strict=True))
    direct = [
        [row_of[source, slot] for source, slot, lag in waits[int(t.dep_ptr[row]) : int(t.dep_ptr[row + 1])] if lag <= 0]
        for row in range(t.src.size)
    ]
    found: dict[int, Parents] = {}
    for row in range(t.src.size):
        open_ = [row]
        while open_:
            joins = [one for one in direct[open_[-1]] if is_join[one] and one not in found]
            if joins:
                open_ += joins
                continue
            one = open_.pop()
            found[one] = frozenset().union(
                *(found[parent] if is_join[parent] else {parent} for parent in direct[one])
            )
    return [found[row] for row in range(t.src.size)]
