"""Events that the parts of a run send to each other: written in one window, read in the next but one.

A sender has a box for each receiver and each of four windows, used in turn. One part may be in window n + 1 while
another is in n, and yet no box is read while it is written:

    window          n                   n + 1               n + 2               n + 3               n + 4
    sender      fills its boxes 0   fills its boxes 1   fills its boxes 2   fills its boxes 3   empties its boxes 0, ...
    receiver                                            reads the boxes 0   reads the boxes 1   reads the boxes 2
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper
from sim.engine.core.calendar import put
from sim.engine.core.state import (
    BEFORE_PS,
    BOX,
    BOX_END,
    BOXES,
    EVENT_WORDS,
    FILLED,
    FIRST_PS,
    FULL,
    KEY,
    MOST_PARTS,
    OWN,
    PARTS,
    PLACE,
    ROOM,
    SENDER,
    TAKEN,
    TIME,
)
from sim.engine.core.status import FAR, NONE


@helper
def _length(sender, box, receiver):
    """Where the number of events in a box stands."""
    return (BOXES * sender + box) * MOST_PARTS + receiver


@helper
def _in_box(state, sender, box, receiver, count):
    """Where an event of a box begins."""
    number = (BOXES * sender + box) * state.own[PARTS] + receiver
    return EVENT_WORDS * (number * state.own[ROOM] + count)


@helper
def send(state, receiver, time, key, place):
    """Send an event to another part; there must be room."""
    own = state.own
    at = own[FILLED + receiver]
    state.mail[at + TIME] = time
    state.mail[at + KEY] = key
    state.mail[at + PLACE] = place
    own[FILLED + receiver] = at + EVENT_WORDS
    own[FIRST_PS] = min(own[FIRST_PS], time)
    if at + EVENT_WORDS == own[BOX_END + receiver]:
        own[FULL] = 1


@helper
def tell(program, state, task, time, key, event):
    """Put the delivery of a chunk into the calendar of each part in which something waits for it."""
    parts = state.delivery_parts[task]
    mine = np.int64(1) << state.own[OWN]
    if parts & mine != 0:
        put(program, state, time, key, np.int64(NONE), event)
        parts &= ~mine
    while parts != 0:
        send(state, count_trailing_zeros(parts), time, key, np.int64(NONE))
        parts &= parts - 1


@helper
def receive(program, state):
    """Put the events of the window before the last into the calendar. Returns False where there is no room left."""
    own, run = state.own, state.run
    box = (own[BOX] - 2) & (BOXES - 1)
    while own[SENDER] < own[PARTS]:
        count = state.mailed[_length(own[SENDER], box, own[OWN])]
        end = _in_box(state, own[SENDER], box, own[OWN], count)
        for at in range(_in_box(state, own[SENDER], box, own[OWN], own[TAKEN]), end, EVENT_WORDS):
            if run.blocks < 1 or run.late + 1 > state.late.size:
                own[TAKEN] = count - (end - at) // EVENT_WORDS
                return False
            put(program, state, state.mail[at + TIME], state.mail[at + KEY], state.mail[at + PLACE],
                np.int64(NONE))
        own[SENDER] += 1
        own[TAKEN] = 0
    return True


@helper
def turn_over(state):
    """Begin a window; its boxes have been read by all."""
    own = state.own
    own[BOX] = (own[BOX] + 1) & (BOXES - 1)
    own[SENDER] = own[TAKEN] = own[FULL] = 0
    own[BEFORE_PS], own[FIRST_PS] = own[FIRST_PS], FAR
    for receiver in range(own[PARTS]):
        own[FILLED + receiver] = _in_box(state, own[OWN], own[BOX], receiver, np.int64(0))
        own[BOX_END + receiver] = _in_box(state, own[OWN], own[BOX], receiver, own[ROOM])


@helper
def close(state):
    """End a window: let all receivers see how much there is in its boxes."""
    own = state.own
    for receiver in range(own[PARTS]):
        sent = own[FILLED + receiver] - _in_box(state, own[OWN], own[BOX], receiver, np.int64(0))
        state.mailed[_length(own[OWN], own[BOX], receiver)] = sent // EVENT_WORDS
