"""Chunks under way, by stage: those of one task on their way to one of its hops or, the last stage, to delivery.

Chunks of a task never overtake each other, and each that has joined and is not delivered is in exactly one event. So a
stage has consecutive chunks, in the order of time, up to the first of the stage before it, and the index of a chunk
gives the place of its event.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import DELIVERED, EVENT_WORDS, HOP_BITS, JOINED, KEY, PLACE, TASK_BITS, TIME
from sim.engine.core.status import NONE
from sim.engine.core.tasks import _of
from sim.engine.skip.parts import end_hop, first_hop, was_of
from sim.engine.skip.runs import chunk_of, let_run, of_run, row_ps, run_chunks
from sim.engine.skip.state import (
    BEHIND,
    CAME,
    COST,
    COUNT,
    COUNT_WAS,
    FRONT,
    FRONT_WAS,
    HEAD,
    LAID_AFTER,
    LAID_BEFORE,
    LIVE,
    N_AFTER,
    N_BEFORE,
    N_RUNS,
    N_STAGES,
    PLACE_NOW,
    PLACE_WAS,
    RUN_FIRST,
    RUN_LEFT,
    RUN_LEFT_WAS,
    RUN_ROW,
    RUN_ROWS,
    RUN_SPACING_PS,
    RUN_STAGE,
    RUN_TASK,
    STAGE_WORDS,
    WAS_DELIVERED,
    WAS_JOINED,
)


@helper
def of_stage(skip, stage, what):
    return skip.stage[u64(STAGE_WORDS * stage + what)]


@helper
def let_stage(skip, stage, what, value):
    skip.stage[u64(STAGE_WORDS * stage + what)] = value


@helper
def first_stage(skip, task):
    return np.int64(skip.stage_of[u64(task)])


@helper
def last_stage(program, skip, task):
    return first_stage(skip, task) + end_hop(program, task) - first_hop(program, task)


@helper
def stage_at(state, skip, events, i):
    """Stage of an event of a list."""
    key, bits = events[u64(EVENT_WORDS * i + KEY)], state.register[TASK_BITS]
    hop = (key >> bits) & ((np.int64(1) << state.register[HOP_BITS]) - 1)
    stage = first_stage(skip, key & ((np.int64(1) << bits) - 1)) + hop
    return stage + 1 if events[u64(EVENT_WORDS * i + PLACE)] == NONE else stage


@section
def lay_out(program, state, skip):
    """Sort both lists of events by stage, unless that is done. Returns False where chunks are missing from them."""
    own = skip.register
    if own[LAID_BEFORE] == 0:
        own[LAID_BEFORE] = 1
        if not _lay_out(program, state, skip, skip.before, own[N_BEFORE], skip.laid_before, np.int64(0)):
            return False
    if own[LAID_AFTER] == 0:
        own[LAID_AFTER] = 1
        later = np.int64(PLACE_NOW - PLACE_WAS)
        return _lay_out(program, state, skip, skip.after, own[N_AFTER], skip.laid_after, later)
    return True


@section
def _lay_out(program, state, skip, events, count, laid, now):
    """Sort a list of events by stage; `now`: offset of the words of a stage for the second list, 0 for the first."""
    own = skip.register
    own[COST] += 25 + count + own[N_STAGES] // 4 + own[N_RUNS]
    for stage in range(own[N_STAGES]):
        let_stage(skip, stage, COUNT_WAS + now, 0)
        let_stage(skip, stage, HEAD, NONE)
    for i in range(count):
        stage = stage_at(state, skip, events, i)
        let_stage(skip, stage, COUNT_WAS + now, of_stage(skip, stage, COUNT_WAS + now) + 1)
    place = np.int64(0)
    for stage in range(own[N_STAGES]):
        let_stage(skip, stage, PLACE_WAS + now, place)
        place += of_stage(skip, stage, COUNT_WAS + now)
    for run in range(own[N_RUNS] - 1, -1, -1):
        stage = first_stage(skip, of_run(skip, run, RUN_TASK)) + of_run(skip, run, RUN_STAGE)
        let_run(skip, run, BEHIND, of_stage(skip, stage, HEAD))
        let_stage(skip, stage, HEAD, run)
        repeated = of_run(skip, run, RUN_LEFT if now else RUN_LEFT_WAS)
        chunks = of_stage(skip, stage, COUNT_WAS + now) + repeated * of_run(skip, run, RUN_ROWS)
        let_stage(skip, stage, COUNT_WAS + now, chunks)
    for i in range(own[LIVE]):
        task = np.int64(skip.live[u64(i)])
        front = _of(state, task, DELIVERED) if now else was_of(skip, task, WAS_DELIVERED)
        joined = _of(state, task, JOINED) if now else was_of(skip, task, WAS_JOINED)
        for stage in range(last_stage(program, skip, task), first_stage(skip, task) - 1, -1):
            let_stage(skip, stage, FRONT_WAS + now, front)
            front += of_stage(skip, stage, COUNT_WAS + now)
        if front != joined:
            return False
    for i in range(count):
        stage = stage_at(state, skip, events, i)
        chunk = chunk_of(state, events[u64(EVENT_WORDS * i + KEY)])
        before = chunk - of_stage(skip, stage, FRONT_WAS + now) - _in_runs_before(skip, stage, chunk, now)
        laid[u64(of_stage(skip, stage, PLACE_WAS + now) + before)] = i
    return True


@helper
def _in_runs_before(skip, stage, chunk, now):
    """Chunks of a stage that lie in runs before a chunk."""
    run, count = of_stage(skip, stage, HEAD), np.int64(0)
    while run != NONE and chunk >= of_run(skip, run, RUN_FIRST) + run_chunks(skip, run):
        count += of_run(skip, run, RUN_LEFT if now else RUN_LEFT_WAS) * of_run(skip, run, RUN_ROWS)
        run = of_run(skip, run, BEHIND)
    return count


@helper
def run_of(skip, stage, chunk):
    """The run that a chunk under way is in, or NONE."""
    run = of_stage(skip, stage, HEAD)
    while run != NONE and chunk >= of_run(skip, run, RUN_FIRST) + run_chunks(skip, run):
        run = of_run(skip, run, BEHIND)
    return run if run != NONE and chunk >= of_run(skip, run, RUN_FIRST) else np.int64(NONE)


@section
def event_of(skip, stage, chunk):
    """When and where a chunk under way arrives."""
    run = run_of(skip, stage, chunk)
    if run != NONE:
        times, row = divmod(chunk - of_run(skip, run, RUN_FIRST), of_run(skip, run, RUN_ROWS))
        time = row_ps(skip, run, row) + times * of_run(skip, run, RUN_SPACING_PS)
        return time, skip.row_place[u64(of_run(skip, run, RUN_ROW) + row)]
    before = chunk - of_stage(skip, stage, FRONT) - _in_runs_before(skip, stage, chunk, np.int64(1))
    at = EVENT_WORDS * np.int64(skip.laid_after[u64(of_stage(skip, stage, PLACE_NOW) + before)])
    return skip.after[u64(at + TIME)], skip.after[u64(at + PLACE)]


@helper
def event_was(skip, stage, chunk):
    """When and where a chunk arrived that was under way at the snapshot, and in no run."""
    before = chunk - of_stage(skip, stage, FRONT_WAS)
    at = EVENT_WORDS * np.int64(skip.laid_before[u64(of_stage(skip, stage, PLACE_WAS) + before)])
    return skip.before[u64(at + TIME)], skip.before[u64(at + PLACE)]


@section
def coming(skip, stage, chunk, spacing_ps):
    """When and where a chunk arrives that is under way, or will be some periods later."""
    came, end = of_stage(skip, stage, CAME), of_stage(skip, stage, FRONT) + of_stage(skip, stage, COUNT)
    periods = (chunk - end) // came + 1 if chunk >= end else np.int64(0)
    time, place = event_of(skip, stage, chunk - periods * came)
    return time + periods * spacing_ps, place
