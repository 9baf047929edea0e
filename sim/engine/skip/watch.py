"""Watching one task of each part until the gaps between its deliveries repeat."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import DELIVERED, EVENTS, LEFT, NOW
from sim.engine.core.status import FINISHED, NONE, PAUSED
from sim.engine.core.tasks import _of
from sim.engine.loop import fifo_loop
from sim.engine.skip.parts import CHANGED, FOUND, NOTHING, end_of, let_word, may_try, was_of, word_of
from sim.engine.skip.runs import advance_on
from sim.engine.skip.state import (
    COST,
    FIRST,
    IDLE,
    LEFT_THEN,
    LOOK_AT,
    MEMBERS,
    N_PARTS,
    NOTED,
    PERIOD,
    SEEN,
    TIMES,
    TRY,
    WAS_DELIVERED,
    WATCHED,
    WATCHING,
)


@helper
def watch_task(state, skip, part, task):
    let_word(skip, part, WATCHED, task)
    let_word(skip, part, SEEN, _of(state, task, DELIVERED))
    let_word(skip, part, IDLE, 0)
    let_word(skip, part, NOTED, 0)
    let_word(skip, part, LOOK_AT, 3)
    let_word(skip, part, PERIOD, 0)


@helper
def watch_all(state, skip):
    """Watch the first task of each part."""
    for part in range(skip.register[N_PARTS]):
        watch_task(state, skip, part, np.int64(skip.live[u64(word_of(skip, part, FIRST))]))


@section
def watch(program, state, skip, most, until_ps):
    """Go on picosecond by picosecond until every part has a period, or nothing happens in it."""
    register, own = state.register, skip.register
    resumed, own[TRY] = own[TRY] == WATCHING, WATCHING
    while may_try(skip):
        if resumed:
            resumed = False  # for more room, which may have been within a picosecond
        else:
            status = advance_on(program, state, skip, until_ps)
            if status != FINISHED:
                return status
        status = fifo_loop(program, state, np.int64(0), until_ps, False, False, False, False, False)
        if status != PAUSED or register[EVENTS] >= most:
            return status
        if register[LEFT] != own[LEFT_THEN]:
            return CHANGED
        own[COST] += 2 + own[N_PARTS] // 4
        searched, found = False, False
        for part in range(own[N_PARTS]):
            if word_of(skip, part, PERIOD) > 0:
                found = True
            elif not _look_at(state, skip, part):
                return NOTHING
            else:
                found = found or word_of(skip, part, PERIOD) > 0
                searched = searched or (word_of(skip, part, PERIOD) == 0 and word_of(skip, part, IDLE) >= 0)
        if found and not searched:
            return FOUND
    return NOTHING


@helper
def _look_at(state, skip, part):
    """Note a delivery of a part's watched task, and look for a period. Returns False where one is unlikely.

    A part in which nothing is delivered for long is left alone: its IDLE is NONE then.
    """
    task = word_of(skip, part, WATCHED)
    delivered = _of(state, task, DELIVERED)
    if delivered == word_of(skip, part, SEEN):
        idle = word_of(skip, part, IDLE)
        if idle >= 0:
            idle += 1
            let_word(skip, part, IDLE, idle)
            if idle > 32 + 8 * word_of(skip, part, MEMBERS):
                _watch_another(state, skip, part, np.int64(1))
        return True
    noted = word_of(skip, part, NOTED)
    if noted == TIMES:
        return False
    skip.noted_ps[u64(TIMES * part + noted)] = state.register[NOW]
    noted += 1
    let_word(skip, part, SEEN, delivered)
    let_word(skip, part, NOTED, noted)
    let_word(skip, part, IDLE, 0)
    if noted == word_of(skip, part, LOOK_AT):
        let_word(skip, part, LOOK_AT, noted + 1 + noted // 8)
        _find_period(skip, part, noted)
        if word_of(skip, part, PERIOD) == 0 and noted & (noted - 1) == 0:
            _watch_another(state, skip, part, 2 * noted)
    return True


@helper
def _watch_another(state, skip, part, least):
    """Watch the task of a part that has delivered most since the parts were found, if that is at least `least` chunks.

    Where the watched one is idle, and none has, none is watched.
    """
    best, most = np.int64(NONE), least - 1
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        came = _of(state, task, DELIVERED) - was_of(skip, task, WAS_DELIVERED)
        if came > most:
            best, most = task, came
    skip.register[COST] += word_of(skip, part, MEMBERS) // 4
    if best == NONE:
        let_word(skip, part, IDLE, NONE if word_of(skip, part, IDLE) > 0 else 0)
    elif best == word_of(skip, part, WATCHED):
        let_word(skip, part, IDLE, 0)
    else:
        watch_task(state, skip, part, best)


@helper
def _find_period(skip, part, noted):
    """Set the period to the time of the fewest last deliveries whose gaps repeat those before them."""
    last = TIMES * part + noted - 1
    for period in range(1, (noted - 1) // 2 + 1):
        same = 0
        while same < period and (
            skip.noted_ps[u64(last - same)] - skip.noted_ps[u64(last - same - 1)]
            == skip.noted_ps[u64(last - same - period)] - skip.noted_ps[u64(last - same - period - 1)]
        ):
            same += 1
        skip.register[COST] += 1 + same
        if same == period:
            let_word(skip, part, PERIOD, skip.noted_ps[u64(last)] - skip.noted_ps[u64(last - period)])
            return
