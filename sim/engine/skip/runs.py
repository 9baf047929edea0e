"""Runs: the chunks of a queue that grew while a stretch was skipped, run-length encoded.

A run has some rows, each the time and place of one event. It repeats them a number of times, each time a spacing later
and as many chunks further on as there are rows. Runs lie beside the calendar, which holds only their events before a
horizon. When the loop reaches the horizon, it is moved on, and the events before it are put into the calendar.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import advance, put
from sim.engine.core.state import BLOCKS, CHUNK_BITS, EVENTS, HOP_BITS, TASK_BITS, WIDTH
from sim.engine.core.status import NEEDS_TOKENS, NONE, PAUSED, STUCK
from sim.engine.core.tasks import _key
from sim.engine.loop import fifo_loop
from sim.engine.skip.parts import FAR_OFF, end_hop, first_hop
from sim.engine.skip.state import (
    HORIZON_PS,
    N_ROWS,
    N_RUNS,
    RUN_FIRST,
    RUN_LATER_PS,
    RUN_LEFT,
    RUN_ROW,
    RUN_ROWS,
    RUN_SPACING_PS,
    RUN_STAGE,
    RUN_TASK,
    RUN_WORDS,
    SPAN_PS,
)

FEW, MANY = 128, 1024
"""Events that are put into the calendar at a time: about so many at least, and at most."""


@helper
def of_run(skip, run, what):
    return skip.run[u64(RUN_WORDS * run + what)]


@helper
def let_run(skip, run, what, value):
    skip.run[u64(RUN_WORDS * run + what)] = value


@helper
def run_chunks(skip, run):
    return of_run(skip, run, RUN_ROWS) * of_run(skip, run, RUN_LEFT)


@helper
def row_ps(skip, run, row):
    """When the event of a row happens next."""
    return skip.row_ps[u64(of_run(skip, run, RUN_ROW) + row)] + of_run(skip, run, RUN_LATER_PS)


@helper
def key_of(program, state, task, stage, chunk):
    """Key of a chunk that is on its way to a hop, or, behind the last, to its delivery."""
    hop = max(min(stage, end_hop(program, task) - first_hop(program, task) - 1), 0)
    return _key(program, state, task, chunk) + (hop << state.register[TASK_BITS])


@helper
def chunk_of(state, key):
    return (key >> (state.register[TASK_BITS] + state.register[HOP_BITS])) & (
        (np.int64(1) << state.register[CHUNK_BITS]) - 1
    )


@helper
def advance_run(skip, run, times):
    """Drop the first repetitions of a run."""
    let_run(skip, run, RUN_LEFT, of_run(skip, run, RUN_LEFT) - times)
    let_run(skip, run, RUN_FIRST, of_run(skip, run, RUN_FIRST) + times * of_run(skip, run, RUN_ROWS))
    let_run(skip, run, RUN_LATER_PS, of_run(skip, run, RUN_LATER_PS) + times * of_run(skip, run, RUN_SPACING_PS))


@helper
def _times_before(skip, run, end_ps):
    """Repetitions of a run that begin before a time."""
    first_ps = row_ps(skip, run, np.int64(0))
    if first_ps >= end_ps:
        return np.int64(0)
    return min(of_run(skip, run, RUN_LEFT), (end_ps - 1 - first_ps) // of_run(skip, run, RUN_SPACING_PS) + 1)


@helper
def _events_before(skip, end_ps):
    count = np.int64(0)
    for run in range(skip.register[N_RUNS]):
        count += of_run(skip, run, RUN_ROWS) * _times_before(skip, run, end_ps)
    return count


@section
def unroll(program, state, skip, end_ps):
    """Move the horizon to a time or beyond. Returns False where there is no room for the events before it."""
    own, width = skip.register, state.register[WIDTH]
    end_ps = ((end_ps >> width) + 1) << width
    if own[HORIZON_PS] == FAR_OFF or end_ps <= own[HORIZON_PS]:
        return True
    if _events_before(skip, end_ps) > state.register[BLOCKS]:
        return False
    left = np.int64(0)
    for run in range(own[N_RUNS]):
        task, stage = of_run(skip, run, RUN_TASK), of_run(skip, run, RUN_STAGE)
        for _ in range(_times_before(skip, run, end_ps)):
            for row in range(of_run(skip, run, RUN_ROWS)):
                key = key_of(program, state, task, stage, of_run(skip, run, RUN_FIRST) + row)
                place = skip.row_place[u64(of_run(skip, run, RUN_ROW) + row)]
                put(program, state, row_ps(skip, run, row), key, place, NONE)
            advance_run(skip, run, np.int64(1))
        left += of_run(skip, run, RUN_LEFT)
    own[HORIZON_PS] = end_ps
    if left == 0:
        own[N_RUNS], own[N_ROWS], own[HORIZON_PS] = 0, 0, FAR_OFF
    return True


@section
def _unroll_some(program, state, skip):
    """Move the horizon on by some events. Returns False where there is no room for them."""
    own, first_ps = skip.register, FAR_OFF
    for run in range(own[N_RUNS]):
        if of_run(skip, run, RUN_LEFT) > 0:
            first_ps = min(first_ps, row_ps(skip, run, np.int64(0)))
    count = _events_before(skip, first_ps + own[SPAN_PS])
    while count < FEW and own[SPAN_PS] < FAR_OFF >> 8:
        own[SPAN_PS] *= 2
        if _events_before(skip, first_ps + own[SPAN_PS]) == count:
            break
        count = _events_before(skip, first_ps + own[SPAN_PS])
    while own[SPAN_PS] > 1 and count > min(MANY, state.register[BLOCKS]):
        own[SPAN_PS] //= 2
        count = _events_before(skip, first_ps + own[SPAN_PS])
    return unroll(program, state, skip, first_ps + own[SPAN_PS])


@section
def go_on(program, state, skip, max_events, until_ps):
    """Run the loop, and unroll runs as it reaches the horizon."""
    register = state.register
    goal = register[EVENTS] + max_events
    while True:
        horizon_ps = skip.register[HORIZON_PS]
        until = min(until_ps, horizon_ps - 1)
        status = fifo_loop(program, state, goal - register[EVENTS], until, False, False, False, False, False)
        if (status != PAUSED and status != STUCK) or horizon_ps == FAR_OFF or register[EVENTS] >= goal:
            return status
        if horizon_ps > until_ps:
            return PAUSED
        if not _unroll_some(program, state, skip):
            return NEEDS_TOKENS


@section
def advance_on(program, state, skip, until_ps):
    """Move the present to the next event, which may be one of a run."""
    while True:
        horizon_ps = skip.register[HORIZON_PS]
        status = advance(program, state, min(until_ps, horizon_ps - 1))
        if (status != PAUSED and status != STUCK) or horizon_ps == FAR_OFF:
            return status
        if horizon_ps > until_ps:
            return PAUSED
        if not _unroll_some(program, state, skip):
            return NEEDS_TOKENS
