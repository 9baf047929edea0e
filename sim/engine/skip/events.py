"""The events of the calendar as a list, in order, and back."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper, u64
from sim.engine.core.calendar import BIT, put
from sim.engine.core.state import (
    BLOCK,
    BLOCKS,
    EVENT_WORDS,
    FREE,
    HAPPENED,
    KEY,
    LATE,
    LEVELS,
    NOW,
    OPEN,
    OPENED,
    PLACE,
    SLOTS,
    SPARE,
    TIME,
    WIDTH,
    WORDS,
)
from sim.engine.core.status import NONE

_ENTRY = (1 << 32) - 1


@helper
def gather(state, events):
    """Write all events of the calendar to a list; returns how many, or NONE where they do not fit."""
    register = state.register
    count, room = 0, events.size // EVENT_WORDS
    if register[OPENED] - register[HAPPENED] + register[LATE] > room:
        return np.int64(NONE)
    bucket = (register[NOW] >> register[WIDTH]) << register[WIDTH]
    for i in range(register[HAPPENED], register[OPENED]):
        count = _note(state, events, count, bucket | (state.order[u64(i)] >> 32), state.order[u64(i)] & _ENTRY)
    for i in range(register[LATE]):
        count = _note(state, events, count, bucket | (state.late[u64(i)] >> 32), state.late[u64(i)] & _ENTRY)
    for word in range(LEVELS * WORDS):
        left = state.occupied[u64(word)]
        while left != 0:
            bit = count_trailing_zeros(left)
            left &= ~BIT[u64(bit)]
            slot = (word // WORDS) * SLOTS + (word % WORDS) * 64 + bit
            waiting, block = np.int64(state.slot[u64(2 * slot + 1)]), np.int64(state.slot[u64(2 * slot)])
            if count + waiting > room:
                return np.int64(NONE)
            while waiting > 0:
                waiting -= 1
                event = block * BLOCK + (waiting & (BLOCK - 1))
                count = _note(state, events, count, state.event[u64(EVENT_WORDS * event + TIME)], event)
                if waiting & (BLOCK - 1) == 0:
                    block = np.int64(state.next_block[u64(block)])
    return np.int64(count)


@helper
def _note(state, events, count, time, event):
    events[u64(EVENT_WORDS * count + TIME)] = time
    events[u64(EVENT_WORDS * count + KEY)] = state.event[u64(EVENT_WORDS * event + KEY)]
    events[u64(EVENT_WORDS * count + PLACE)] = state.event[u64(EVENT_WORDS * event + PLACE)]
    return count + 1


@helper
def scatter(program, state, events, count, present):
    """Put a list of events, all later than `present` and none in its bucket, into an empty calendar.

    There must be a free block for each.
    """
    register = state.register
    for word in range(LEVELS * WORDS):
        left = state.occupied[u64(word)]
        state.occupied[u64(word)] = 0
        while left != 0:
            bit = count_trailing_zeros(left)
            left &= ~BIT[u64(bit)]
            state.slot[u64(2 * ((word // WORDS) * SLOTS + (word % WORDS) * 64 + bit) + 1)] = 0
    state.slot[u64(2 * OPEN + 1)] = 0
    for block in range(state.next_block.size):
        state.next_block[u64(block)] = block + 1
    register[FREE], register[BLOCKS], register[SPARE] = 0, state.next_block.size, NONE
    register[OPENED] = register[HAPPENED] = register[LATE] = 0
    register[NOW] = present
    for i in range(count):
        at = u64(EVENT_WORDS * i)
        put(program, state, events[at + u64(TIME)], events[at + u64(KEY)], events[at + u64(PLACE)], NONE)
