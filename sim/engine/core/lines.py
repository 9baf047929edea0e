"""Lines of the fifo loop: the events that arrived at a server in this picosecond, in order of key."""

import numpy as np

from sim.engine.compile.door import helper
from sim.engine.core.calendar import append, hop_of
from sim.engine.core.state import OPEN
from sim.engine.core.status import NONE

_LOW = (1 << 32) - 1


@helper
def _key_of(state, event):
    return state.events[event].key


@helper
def _next_of(state, event):
    """The event behind another in its server's line: beside the kind of hop."""
    return state.events[event].time_ps >> 32


@helper
def _link(state, event, behind):
    its = state.events[event]
    its.time_ps = (its.time_ps & _LOW) | (behind << 32)


@helper
def _arrive(program, state, event):
    """Put an event into its server's line of this picosecond, in order of key.

    Arrivals mostly come in order or in reverse, so both ends are tried first.
    """
    run = state.run
    server = np.int64(program.hop_server[state.events[event].time_ps])
    its = state.servers[server]
    if its.stamp_ps != run.now_ps:
        its.stamp_ps = run.now_ps
        state.touched[run.touched] = server
        run.touched += 1
        its.line = (event << 32) | event
        _link(state, event, NONE)
        return
    first, last, key = its.line >> 32, its.line & _LOW, _key_of(state, event)
    if _key_of(state, last) < key:
        _link(state, last, event)
        _link(state, event, NONE)
        its.line = (first << 32) | event
    elif key < _key_of(state, first):
        _link(state, event, first)
        its.line = (event << 32) | last
    else:
        before = first
        while _key_of(state, _next_of(state, before)) < key:
            before = _next_of(state, before)
        _link(state, event, _next_of(state, before))
        _link(state, before, event)


@helper
def arrive_now(program, state, key, place):
    """Let a chunk arrive in this picosecond. There must be a free block."""
    run = state.run
    event = run.spare
    if event == NONE:
        event = append(state, OPEN)
    run.spare = NONE
    its = state.events[event]
    its.time_ps, its.key, its.place = hop_of(program, place), key, place
    _arrive(program, state, event)
