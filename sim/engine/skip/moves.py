"""Moving pending events and tasks over the periods that are skipped.

A steady stage is shifted as a whole. Any other loses the chunks that left it meanwhile, and gains those that came: the
arrivals of its last period once more for each period that is skipped, which is a run.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import (
    BUSY_PS,
    DELIVERED,
    EVENT_WORDS,
    FREE_PS,
    GATE,
    HOP_BITS,
    JOINED,
    KEY,
    PLACE,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
    TASK_WORDS,
    TIME,
    WIDTH,
)
from sim.engine.core.status import FAR, NONE
from sim.engine.skip.parts import FAR_OFF, end_hop, first_hop, server_at, word_of
from sim.engine.skip.runs import advance_run, chunk_of, key_of, let_run, of_run, row_ps
from sim.engine.skip.stages import event_of, first_stage, last_stage, of_stage, stage_at
from sim.engine.skip.state import (
    AFTER_PS,
    CAME,
    COST,
    COUNT,
    FRONT,
    HORIZON_PS,
    LIVE,
    MADE,
    N_AFTER,
    N_ROWS,
    N_RUNS,
    N_STAGES,
    OF_TASK,
    OUT,
    PERIOD,
    RUN_FIRST,
    RUN_LATER_PS,
    RUN_LEFT,
    RUN_ROW,
    RUN_ROWS,
    RUN_SPACING_PS,
    RUN_STAGE,
    RUN_TASK,
    RUN_WORDS,
    SHIFTS,
    SKIPS,
)


@helper
def skips_of(skip, task):
    """Periods that a task skips."""
    return word_of(skip, np.int64(skip.part_of[u64(task)]), SKIPS)


@helper
def shift_of(skip, task):
    return skips_of(skip, task) * word_of(skip, np.int64(skip.part_of[u64(task)]), PERIOD)


@helper
def _grows(skip, stage):
    return (
        of_stage(skip, stage, SHIFTS) == 0 and of_stage(skip, stage, CAME) > 0
        and skips_of(skip, of_stage(skip, stage, OF_TASK)) > 0
    )


@section
def room_to_move(skip):
    """The most events that there may be after moving, or NONE where there is no room for them or for the runs."""
    own = skip.register
    runs, rows = own[N_RUNS], own[N_ROWS]
    for stage in range(own[N_STAGES]):
        if _grows(skip, stage):
            runs += 1
            rows += of_stage(skip, stage, CAME)
            if of_stage(skip, stage, COUNT) < of_stage(skip, stage, CAME):
                return np.int64(NONE)  # it shrank since it was compared
    events = own[N_AFTER] + rows
    if runs * RUN_WORDS > skip.run.size or rows > skip.row_ps.size or events * EVENT_WORDS > skip.after.size:
        return np.int64(NONE)
    return events


@section
def move_events(program, state, skip):
    """Move the events of the list, and the runs; returns the time of the first event."""
    for stage in range(skip.register[N_STAGES]):
        if _grows(skip, stage):
            _add_run(program, skip, stage)
    _move_singles(state, skip)
    for run in range(skip.register[N_RUNS]):
        _move_run(program, state, skip, run)
    earliest = _forget_runs(state, skip)
    for i in range(skip.register[N_AFTER]):
        earliest = min(earliest, skip.after[u64(EVENT_WORDS * i + TIME)])
    return earliest


@helper
def _add_run(program, skip, stage):
    """Make a run of what came to a stage in the last period, to come again in each period that is skipped."""
    own, task, came = skip.register, of_stage(skip, stage, OF_TASK), of_stage(skip, stage, CAME)
    run, first, end = own[N_RUNS], own[N_ROWS], of_stage(skip, stage, FRONT) + of_stage(skip, stage, COUNT)
    own[N_RUNS] += 1
    own[MADE] += 1
    own[N_ROWS] += came
    server = server_at(program, first_hop(program, task) + stage - first_stage(skip, task) - 1)
    spacing_ps = word_of(skip, np.int64(skip.part_of[u64(task)]), PERIOD) + skip.server_was[u64(2 * server)]
    for row in range(came):
        skip.row_ps[u64(first + row)], skip.row_place[u64(first + row)] = event_of(skip, stage, end - came + row)
    let_run(skip, run, RUN_TASK, task)
    let_run(skip, run, RUN_STAGE, stage - first_stage(skip, task))
    let_run(skip, run, RUN_FIRST, end)
    let_run(skip, run, RUN_ROW, first)
    let_run(skip, run, RUN_ROWS, came)
    let_run(skip, run, RUN_LEFT, skips_of(skip, task))
    let_run(skip, run, RUN_LATER_PS, spacing_ps)
    let_run(skip, run, RUN_SPACING_PS, spacing_ps)


@helper
def _front_then(skip, stage, task):
    """The first chunk of a stage after the periods that are skipped."""
    return of_stage(skip, stage, FRONT) + skips_of(skip, task) * of_stage(skip, stage, OUT)


@helper
def _move_singles(state, skip):
    bits, hop_bits = state.register[TASK_BITS], state.register[HOP_BITS]
    kept = np.int64(0)
    for i in range(skip.register[N_AFTER]):
        at, to, stage = EVENT_WORDS * i, EVENT_WORDS * kept, stage_at(state, skip, skip.after, i)
        time, key = skip.after[u64(at + TIME)], skip.after[u64(at + KEY)]
        task = of_stage(skip, stage, OF_TASK)
        if of_stage(skip, stage, SHIFTS):
            time += shift_of(skip, task)
            key += (skips_of(skip, task) * of_stage(skip, stage, OUT)) << (bits + hop_bits)
        elif chunk_of(state, key) < _front_then(skip, stage, task):
            continue
        skip.after[u64(to + TIME)], skip.after[u64(to + KEY)] = time, key
        skip.after[u64(to + PLACE)] = skip.after[u64(at + PLACE)]
        kept += 1
    skip.register[N_AFTER] = kept


@helper
def _move_run(program, state, skip, run):
    task = of_run(skip, run, RUN_TASK)
    stage = first_stage(skip, task) + of_run(skip, run, RUN_STAGE)
    if of_stage(skip, stage, SHIFTS):
        let_run(skip, run, RUN_FIRST, of_run(skip, run, RUN_FIRST) + skips_of(skip, task) * of_stage(skip, stage, OUT))
        let_run(skip, run, RUN_LATER_PS, of_run(skip, run, RUN_LATER_PS) + shift_of(skip, task))
        return
    gone = max(_front_then(skip, stage, task) - of_run(skip, run, RUN_FIRST), 0)
    times, first = divmod(gone, of_run(skip, run, RUN_ROWS))
    if times >= of_run(skip, run, RUN_LEFT):
        let_run(skip, run, RUN_LEFT, 0)
        return
    advance_run(skip, run, times)
    if first > 0:
        for row in range(first, of_run(skip, run, RUN_ROWS)):
            to = EVENT_WORDS * skip.register[N_AFTER]
            skip.register[N_AFTER] += 1
            skip.after[u64(to + TIME)] = row_ps(skip, run, row)
            skip.after[u64(to + KEY)] = key_of(program, state, task, of_run(skip, run, RUN_STAGE),
                                               of_run(skip, run, RUN_FIRST) + row)
            skip.after[u64(to + PLACE)] = skip.row_place[u64(of_run(skip, run, RUN_ROW) + row)]
        advance_run(skip, run, np.int64(1))


@helper
def _forget_runs(state, skip):
    """Forget the runs that are over, and set the horizon; returns the time of the first event that is left."""
    own, earliest, row = skip.register, FAR_OFF, np.int64(0)
    count, own[N_RUNS] = own[N_RUNS], 0
    for run in range(count):
        if of_run(skip, run, RUN_LEFT) == 0:
            continue
        to, rows, first = own[N_RUNS], of_run(skip, run, RUN_ROWS), of_run(skip, run, RUN_ROW)
        for word in range(RUN_WORDS):
            let_run(skip, to, word, of_run(skip, run, word))
        let_run(skip, to, RUN_ROW, row)
        for one in range(rows):
            skip.row_ps[u64(row + one)] = skip.row_ps[u64(first + one)]
            skip.row_place[u64(row + one)] = skip.row_place[u64(first + one)]
        row += rows
        own[N_RUNS] += 1
        earliest = min(earliest, row_ps(skip, to, np.int64(0)))
    own[N_ROWS] = row
    width = state.register[WIDTH]
    own[HORIZON_PS] = (earliest >> width) << width if own[N_RUNS] > 0 else FAR_OFF
    return earliest


@section
def move_tasks(program, state, skip):
    """Move the tasks that advance, and the servers that serve them."""
    n_tasks, present = program.task_route.size, skip.register[AFTER_PS]
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        skips, shift, base = skips_of(skip, task), shift_of(skip, task), TASK_WORDS * task
        step = of_stage(skip, first_stage(skip, task), CAME)
        if skips == 0:
            continue
        state.task[u64(base + JOINED)] += skips * step
        state.task[u64(base + DELIVERED)] += skips * skip.step[u64(task)]
        state.task[u64(base + RELEASED)] += skips * skip.release_step[u64(task)]
        gate = u64((TASK_WORDS // 2) * task + GATE)
        if step > 0 and present < state.gate_ps[gate] < FAR:
            state.gate_ps[gate] += shift
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            busy = skip.server_was[u64(2 * server + 1)]
            if skip.label[u64(n_tasks + server)] == NONE or busy == 0:
                continue
            skip.label[u64(n_tasks + server)] = NONE
            if state.server[u64(SERVER_WORDS * server + FREE_PS)] > present:
                state.server[u64(SERVER_WORDS * server + FREE_PS)] += shift + skips * skip.server_was[u64(2 * server)]
            state.server[u64(SERVER_WORDS * server + BUSY_PS)] += skips * busy
    skip.register[COST] += 3 * skip.register[LIVE]


@helper
def services_of(program, skip, task):
    """Services of a task in a period."""
    count = np.int64(0)
    for stage in range(first_stage(skip, task), last_stage(program, skip, task)):
        count += of_stage(skip, stage, OUT)
    return count
