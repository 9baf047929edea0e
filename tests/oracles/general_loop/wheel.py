"""The wheel: where events wait for their time.

Events wait in levels of 2^DIGIT slots: an event lies on the level of the highest digit in which its time differs from
the present, in the slot of that digit, and moves down a level when the present reaches its slot. All times of a run
being integers, a push is a shift and a compare, and equal times come out as one batch, which is how the contract orders
a picosecond. What each choice bought is in docs/background/engine.md.

A time as digits of 10 bits, and where an event waits that is due at it (`now` and `due` first differ in digit 1):

    digit     6 ... 2        1            0
    now     | 0 ... 0 |  0000000101 | 1100000000 |
    due     | 0 ... 0 |  0000001001 | 0000000111 |    level 1, slot 9

Invariant: on every level only slots above the present's own digit are filled, and all of level L is earlier than all of
level L + 1. So the first slot that is filled, from level 0 upward, has the next events: on level 0 they share one time
and are the batch; from a higher level they are pushed anew and land below it.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_leading_zeros, count_trailing_zeros, helper, u64
from sim.engine.core.status import FINISHED, NONE, PAUSED, STUCK
from tests.oracles.general_loop.event import NEXT, field, next_of, time_of
from tests.oracles.general_loop.state import BATCH, DIGIT, LEVELS, NOW, SLOTS, WORDS

BIT = np.array([1 << i for i in range(63)] + [-(1 << 63)], np.int64)


@helper
def push(state, event, time):
    """Let an event happen at a time that is not past."""
    register = state.register
    state.event_ps[u64(4 * event)] = time
    differs = time ^ register[NOW]
    if differs == 0:
        state.event[field(event, NEXT)] = register[BATCH]
        register[BATCH] = event
        return
    level = (63 - count_leading_zeros(differs)) // DIGIT
    digit = (time >> (DIGIT * level)) & (SLOTS - 1)
    at = level * SLOTS + digit
    state.event[field(event, NEXT)] = state.slot[u64(at)]
    state.slot[u64(at)] = event
    state.occupied[u64(level * WORDS + (digit >> 6))] |= BIT[u64(digit & 63)]


@helper
def advance(state, until_ps):
    """Move the present to the next event and make the events of that picosecond the batch.

    Returns FINISHED, PAUSED when the next event lies after `until_ps`, or STUCK when there is none.
    """
    register, slot, occupied = state.register, state.slot, state.occupied
    while register[BATCH] == NONE:
        word = 0  # 64 slots a word: the scan looks at 112 words at the most, and mostly at the first few
        while word < LEVELS * WORDS and occupied[u64(word)] == 0:
            word += 1
        if word == LEVELS * WORDS:
            return STUCK
        level = word // WORDS
        digit = (word % WORDS) * 64 + count_trailing_zeros(occupied[u64(word)])
        shift = DIGIT * level
        # The digits above this one are those of the present, the digits below it are zero: the slot's first time.
        present = (((register[NOW] >> shift) & ~np.int64(SLOTS - 1)) | np.int64(digit)) << shift
        if present > until_ps:
            return PAUSED
        register[NOW] = present
        at = level * SLOTS + digit
        event = slot[u64(at)]
        slot[u64(at)] = NONE
        occupied[u64(word)] &= ~BIT[u64(digit & 63)]
        if level == 0:
            register[BATCH] = event
            return FINISHED
        while event != NONE:
            after = next_of(state.event, event)
            push(state, event, time_of(state.event_ps, event))
            event = after
    return FINISHED
