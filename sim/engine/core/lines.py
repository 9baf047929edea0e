"""Lines of the fifo loop: the events that arrived at a server in this picosecond, in order of key."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.calendar import append, hop_of
from sim.engine.core.state import (
    EVENT_WORDS,
    KEY,
    LINE,
    NOW,
    OPEN,
    PLACE,
    SERVER_WORDS,
    SPARE,
    STAMP_PS,
    TIME,
    TOUCHED,
)
from sim.engine.core.status import NONE

_LOW = (1 << 32) - 1


@helper
def _key_of(state, event):
    return state.event[u64(EVENT_WORDS * event + KEY)]


@helper
def _next_of(state, event):
    """The event behind another in its server's line: beside the kind of hop."""
    return state.event[u64(EVENT_WORDS * event + TIME)] >> 32


@helper
def _link(state, event, behind):
    at = u64(EVENT_WORDS * event + TIME)
    state.event[at] = (state.event[at] & _LOW) | (behind << 32)


@helper
def _arrive(program, state, event):
    """Put an event into its server's line of this picosecond, in order of key.

    Arrivals mostly come in order or in reverse, so both ends are tried first.
    """
    register = state.register
    server = np.int64(program.hop_server[u64(state.event[u64(EVENT_WORDS * event + TIME)])])
    stamp, line = u64(SERVER_WORDS * server + STAMP_PS), u64(SERVER_WORDS * server + LINE)
    if state.server[stamp] != register[NOW]:
        state.server[stamp] = register[NOW]
        state.touched[u64(register[TOUCHED])] = server
        register[TOUCHED] += 1
        state.server[line] = (event << 32) | event
        _link(state, event, NONE)
        return
    first, last, key = state.server[line] >> 32, state.server[line] & _LOW, _key_of(state, event)
    if _key_of(state, last) < key:
        _link(state, last, event)
        _link(state, event, NONE)
        state.server[line] = (first << 32) | event
    elif key < _key_of(state, first):
        _link(state, event, first)
        state.server[line] = (event << 32) | last
    else:
        before = first
        while _key_of(state, _next_of(state, before)) < key:
            before = _next_of(state, before)
        _link(state, event, _next_of(state, before))
        _link(state, before, event)


@helper
def arrive_now(program, state, key, place):
    """Let a chunk arrive in this picosecond. There must be a free block."""
    register = state.register
    event = register[SPARE]
    if event == NONE:
        event = append(state, OPEN)
    register[SPARE] = NONE
    state.event[u64(EVENT_WORDS * event + TIME)] = hop_of(program, place)
    state.event[u64(EVENT_WORDS * event + KEY)] = key
    state.event[u64(EVENT_WORDS * event + PLACE)] = place
    _arrive(program, state, event)
