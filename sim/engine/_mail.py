"""Events that the parts of a run send to each other: written in one window, read in the next.

A sender has a box for each receiver and for windows of each parity, so that nobody reads what another writes:

    window          n, even                 n + 1, odd              n + 2, even
    sender      fills its boxes 0       fills its boxes 1       empties its boxes 0, fills them
    receiver                            reads the boxes 0       reads the boxes 1
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import put
from sim.engine._fifo_state import (
    BLOCKS,
    EVENT_WORDS,
    FIRST_PS,
    FULL,
    KEY,
    LATE,
    MOST_PARTS,
    OWN,
    PARITY,
    PARTS,
    PLACE,
    ROOM,
    SENDER,
    TAKEN,
    TIME,
)
from sim.engine._jit import count_trailing_zeros, helper, u64
from sim.engine._state import NONE


@helper
def _length(sender, parity, receiver):
    """Where the number of events in a box stands."""
    return u64((2 * sender + parity) * MOST_PARTS + receiver)


@helper
def _in_box(state, sender, parity, receiver, count):
    """Where an event of a box begins."""
    box = (2 * sender + parity) * state.own[PARTS] + receiver
    return EVENT_WORDS * (box * state.own[ROOM] + count)


@helper
def send(state, receiver, time, key, place):
    """Send an event to another part; there must be room."""
    own = state.own
    length = _length(own[OWN], own[PARITY], receiver)
    count = state.mailed[length]
    at = _in_box(state, own[OWN], own[PARITY], receiver, count)
    state.mail[u64(at + TIME)] = time
    state.mail[u64(at + KEY)] = key
    state.mail[u64(at + PLACE)] = place
    state.mailed[length] = count + 1
    own[FIRST_PS] = min(own[FIRST_PS], time)
    if count + 1 == own[ROOM]:
        own[FULL] = 1


@helper
def tell(program, state, task, time, key, event):
    """Put the delivery of a chunk into the calendar of each part in which something waits for it."""
    parts = state.delivery_parts[u64(task)]
    while parts != 0:
        part = count_trailing_zeros(parts)
        parts &= parts - 1
        if part == state.own[OWN]:
            put(program, state, time, key, np.int64(NONE), event)
        else:
            send(state, part, time, key, np.int64(NONE))


@helper
def receive(program, state):
    """Put what was sent in the window before into the calendar. Returns False where there is no room left."""
    own, register = state.own, state.register
    parity = 1 - own[PARITY]
    while own[SENDER] < own[PARTS]:
        count = state.mailed[_length(own[SENDER], parity, own[OWN])]
        while own[TAKEN] < count:
            if register[BLOCKS] < 1 or register[LATE] + 1 > state.late.size:
                return False
            at = _in_box(state, own[SENDER], parity, own[OWN], own[TAKEN])
            own[TAKEN] += 1
            put(program, state, state.mail[u64(at + TIME)], state.mail[u64(at + KEY)], state.mail[u64(at + PLACE)],
                np.int64(NONE))
        own[SENDER] += 1
        own[TAKEN] = 0
    return True


@helper
def turn_over(state):
    """Begin a window: what was sent in the one before it is to be received, what was in the other boxes has been."""
    own = state.own
    own[PARITY] = 1 - own[PARITY]
    own[SENDER] = own[TAKEN] = 0
    for receiver in range(own[PARTS]):
        state.mailed[_length(own[OWN], own[PARITY], receiver)] = 0
