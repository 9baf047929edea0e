"""Which of two events happens before the other, by clocks; and which accesses of one place conflict.

The clock of an event says, for each chain, how many of its events happen before: a bitset whose ones are contiguous,
for the events of a chain are ordered.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.proof import by_key

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CLOCK_CELLS = 2**26
"""Entries of the clocks that are in memory at once: 256 MiB."""


class Events(NamedTuple):
    """Events, the rules between them, and an order that respects these."""

    chain: I64  # (n,)
    number: I64  # (n,): in its chain, from 0
    parent: I64  # (e,)
    child: I64  # (e,)
    sequence: Sequence[int]  # all events


def unordered(events: Events, one: I64, other: I64) -> Bools:
    """Whether no path leads from one event of a pair to the other, nor back, (k,)."""
    is_open = np.ones(one.size, np.bool_)
    chains = int(events.chain.max(initial=-1)) + 1
    wide = max(1, CLOCK_CELLS // max(events.chain.size, 1))
    for low in range(0, chains, wide):
        if not np.any(is_open):
            break
        high = min(low + wide, chains)
        clock = _clocks(events, low, high)
        for before, after in ((one, other), (other, one)):
            chain = events.chain[before]
            inside = np.flatnonzero(is_open & (chain >= low) & (chain < high))
            known = clock[after[inside], chain[inside] - low] >= events.number[before[inside]]
            is_open[inside[known]] = False
    return is_open


def _clocks(events: Events, low: int, high: int) -> npt.NDArray[np.int32]:
    """Clocks of the chains [low, high): for each event the last one of each chain that happens before it, or -1."""
    n = events.chain.size
    clock = np.full((n, high - low), -1, np.int32)
    ptr, parents = by_key(events.child, events.parent, n)
    chain, number = (events.chain - low).tolist(), events.number.tolist()
    width = high - low
    for event in events.sequence:
        mine = clock[event]
        for parent in parents[ptr[event] : ptr[event + 1]]:
            np.maximum(mine, clock[parent], out=mine)
            if 0 <= chain[parent] < width:
                mine[chain[parent]] = max(mine[chain[parent]], number[parent])
    return clock


def conflicts(event: I64, key: I64, writes: Bools) -> tuple[I64, I64, I64]:
    """Pairs of accesses of one place, one of them writing: both events, and the key of the place."""
    place = np.argsort(key, kind="stable")
    event, key, writes = event[place], key[place], writes[place]
    found = [np.zeros((3, 0), np.int64)]
    apart = 1
    while apart < key.size:
        near = np.flatnonzero(key[apart:] == key[:-apart])
        if not near.size:
            break
        far = near + apart
        keep = (event[near] != event[far]) & (writes[near] | writes[far])
        found.append(np.stack([event[near[keep]], event[far[keep]], key[near[keep]]]))
        apart += 1
    pairs = np.concatenate(found, axis=1)
    return pairs[0], pairs[1], pairs[2]
