"""Skipping: a stretch of the future that repeats the past, shifted in time and in chunks, is not simulated.

Most schedules are soon periodic, with a period of a few chunks: the same events are pending as a period ago, as far
ahead, with every task some chunks further on. The future depends on nothing else, so the state keeps recurring until
something ends it: a task starts, or runs out of chunks. All periods until then are skipped at once.

    PART    A connected set of live tasks and the servers of their routes: tasks that share a server, or wait for each
            other chunk by chunk, are in one part. Parts do not affect each other until a task starts or ends.
    WATCH   One task of each part, picosecond by picosecond, until the gaps between its deliveries repeat.
    COMPARE Everything under way with what it is a period later. What leaves a hop must do so as in the period before,
            some chunks further on. A server must be as far behind as it was, or have been busy throughout. In the
            second case its services start back to back, however early chunks arrive; it falls behind, or catches up,
            by the same amount in each period, and what it sends on is spaced accordingly.
    LIMIT   The number of periods before a task starts, finishes, runs out of released chunks or reaches chunks of
            another size, before a queue runs empty, and before a tie between two chunks falls differently.
    SKIP    In each part as many periods as fit before the first limit of any part. Pending events move on in time and
            in chunks; a queue that grows or shrinks gains and loses what came and went meanwhile, as runs of chunks.
            Parts then stand at different times, which does not matter: none affects another before the limit.

The search costs at most a few per cent of the services that are simulated and of those that are skipped.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, helper, section, u64
from sim.engine.core.state import (
    BUSY_PS,
    DELIVERED,
    EVENT_WORDS,
    EVENTS,
    FREE_PS,
    JOINED,
    KEY,
    LEFT,
    NOW,
    SERVER_WORDS,
    TASK_BITS,
    WIDTH,
)
from sim.engine.core.status import LEAPT, NEEDS_TOKENS, NONE, PAUSED, TIRED
from sim.engine.core.tasks import _of
from sim.engine.skip.events import gather, scatter
from sim.engine.skip.limits import STARTED, advances_alike, has_queue, recurs
from sim.engine.skip.moves import move_events, move_tasks, room_to_move, services_of, skips_of
from sim.engine.skip.parts import (
    CHANGED,
    FAR_OFF,
    FOUND,
    NOTHING,
    end_hop,
    end_of,
    find_live,
    find_parts,
    first_hop,
    forget_parts,
    let_word,
    may_try,
    remember,
    server_at,
    word_of,
)
from sim.engine.skip.runs import go_on, let_run, of_run, run_chunks, unroll
from sim.engine.skip.state import (
    AFTER_PS,
    ALLOWED,
    BEGUN,
    COMPARING,
    COST,
    FIRST,
    LAID_AFTER,
    LAID_BEFORE,
    LEFT_THEN,
    LIVE,
    MEMBERS,
    MOST_MULTIPLES,
    MULTIPLE,
    MULTIPLES,
    N_AFTER,
    N_BEFORE,
    N_PARTS,
    N_RUNS,
    PATIENCE,
    PERIOD,
    QUEUES,
    RECURRING,
    RECURS,
    RUN_LEFT,
    RUN_LEFT_WAS,
    SAVED,
    SINCE_PS,
    SKIPPED,
    SKIPS,
    STRETCHES,
    TIMED,
    TO_PUT,
    TRY,
    UNTIL,
    WAIT,
    WATCHING,
)
from sim.engine.skip.watch import watch, watch_all

SLICE = 256
"""Services between two looks at whether a task has ended, after which a stretch may begin."""
LONG = 65_536
"""The same once the search has given up, and only the runs that are left are unrolled."""


@entry
def run_skipping(program, state, skip, most, max_events, until_ps):
    """Run a program as `run_fifo` does, and skip stretches that repeat.

    `most`: services in all, skipped ones included, at which to pause.
    `max_events`: simulated services after which to pause.
    Returns TIRED when the search has used up its budget, and `run_fifo` is to go on; LEAPT after each stretch where a
    log is kept.
    """
    return _run_and_skip(program, state, skip, most, max_events, until_ps)


@section
def _run_and_skip(program, state, skip, most, max_events, until_ps):
    register = state.register
    begun = register[EVENTS] - skip.register[SKIPPED]
    while True:
        done = register[EVENTS] - skip.register[SKIPPED] - begun
        room = min(max_events - done, most - register[EVENTS])
        if room <= 0:
            return PAUSED
        if skip.register[TRY] == 0:
            if not may_try(skip):
                if skip.register[N_RUNS] == 0:
                    return TIRED
                goal = register[EVENTS] + min(room, LONG)
                status = go_on(program, state, skip, min(room, LONG), until_ps)
                if status != PAUSED or register[EVENTS] < goal:
                    return status
                continue
            left, wait = register[LEFT], min(skip.register[WAIT], room)
            while wait > 0 and register[LEFT] == left:
                some = min(wait, max(SLICE, _settling(program, skip)))
                goal = register[EVENTS] + some
                status = go_on(program, state, skip, some, until_ps)
                if status != PAUSED or register[EVENTS] < goal:
                    return status
                wait -= some
            if register[EVENTS] >= most:
                return PAUSED
            n_live = skip.register[LIVE]
            find_live(program, state, skip)
            if skip.register[LIVE] != n_live:
                # Tasks start or end: what they do has hardly settled.
                skip.register[WAIT] = _settling(program, skip)
                continue
            if find_parts(program, state, skip):
                watch_all(state, skip)
                skip.register[TRY], skip.register[LEFT_THEN] = BEGUN, register[LEFT]
        status = np.int64(NOTHING)
        if BEGUN <= skip.register[TRY] <= WATCHING:
            status = watch(program, state, skip, most, until_ps)
            if status == FOUND:
                skip.register[TRY] = TIMED
        if TIMED <= skip.register[TRY] <= COMPARING:
            status = _compare(program, state, skip, most, until_ps)
            if status == FOUND:
                skip.register[TRY] = RECURRING
        if skip.register[TRY] == RECURRING:
            status = _skip(program, state, skip, most, until_ps)
        if status == NEEDS_TOKENS:
            return status  # and goes on from here
        skip.register[TRY] = 0
        forget_parts(skip)
        if status in (FOUND, CHANGED):
            skip.register[WAIT], skip.register[PATIENCE] = _settling(program, skip), MULTIPLES
            if status == FOUND and state.log_base.size:
                return LEAPT
        elif status == NOTHING:
            skip.register[WAIT] = _before_next(state, skip, _settling(program, skip))
        else:
            return status


@helper
def _settling(program, skip):
    """Services in which the live tasks may settle into a period, and that make up for the cost of listing them."""
    return max(8, skip.register[LIVE], program.task_route.size // 32)


@helper
def _before_next(state, skip, settling):
    """Services before the next try: more each time, and enough to leave some of the budget for later tries."""
    own = skip.register
    done = state.register[EVENTS] - own[SKIPPED]
    longer = min(2 * own[WAIT], max(done // 4, settling))
    return max(longer, 4 * (own[COST] - 2 * own[SKIPPED] - own[ALLOWED] // 3) - done)


@helper
def _gathered(state, skip, events):
    """List all pending events, unordered; returns how many, or NONE where they are too many to be compared."""
    count, bits = np.int64(0), state.register[TASK_BITS]
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        count += _of(state, task, JOINED) - _of(state, task, DELIVERED)
    for run in range(skip.register[N_RUNS]):
        count -= run_chunks(skip, run)
    skip.register[COST] += 25 + skip.register[LIVE] // 4
    if not may_try(skip, 3 * count):
        return np.int64(NONE)
    count = gather(state, events)
    skip.register[COST] += count >> 1
    for i in range(count):
        if skip.part_of[u64(events[u64(EVENT_WORDS * i + KEY)] & ((np.int64(1) << bits) - 1))] == NONE:
            return np.int64(NONE)  # a task has started since
    return count


@section
def _compare(program, state, skip, most, until_ps):
    """Compare each part with itself a period later."""
    register, own = state.register, skip.register
    n_parts = own[N_PARTS]
    if own[TRY] == TIMED:
        longest = np.int64(0)
        for part in range(n_parts):
            longest = max(longest, word_of(skip, part, PERIOD))
        # Whatever may happen before the comparison must be in the list of events, not in runs.
        if not unroll(program, state, skip, register[NOW] + own[PATIENCE] * longest):
            return NEEDS_TOKENS
        own[N_BEFORE], own[LAID_BEFORE] = _gathered(state, skip, skip.before), 0
        if own[N_BEFORE] == NONE:
            return NOTHING
        for part in range(n_parts):
            _snapshot(program, state, skip, part)
        for run in range(own[N_RUNS]):
            let_run(skip, run, RUN_LEFT_WAS, of_run(skip, run, RUN_LEFT))
        own[TRY], own[SINCE_PS] = COMPARING, register[NOW]
    since = own[SINCE_PS]
    while True:
        present = FAR_OFF
        for part in range(n_parts):
            if word_of(skip, part, PERIOD) > 0 and word_of(skip, part, RECURS) == 0:
                present = min(present, _next_look(skip, part))
        if present == FAR_OFF:
            break
        if present > until_ps:
            return NOTHING
        begun = register[EVENTS]
        status = go_on(program, state, skip, most - begun, present)
        if status != PAUSED or register[EVENTS] >= most:
            return status
        own[AFTER_PS], own[N_AFTER] = present, NONE
        if register[LEFT] != own[LEFT_THEN]:
            return CHANGED
        for part in range(n_parts):
            multiple = word_of(skip, part, MULTIPLE)
            if (
                word_of(skip, part, PERIOD) == 0 or word_of(skip, part, RECURS) != 0
                or _next_look(skip, part) != present
            ):
                continue
            let_word(skip, part, MULTIPLE, multiple + 1)
            most_periods = advances_alike(program, state, skip, part, since, present)
            if most_periods >= 0:
                if own[QUEUES] > 0 and has_queue(program, state, skip, part, since, present):
                    # Much is under way, but all tasks have come round: the budget is raised by as much again, once.
                    own[ALLOWED] += own[QUEUES]
                    own[QUEUES] = 0
                if own[N_AFTER] == NONE:
                    own[N_AFTER], own[LAID_AFTER] = _gathered(state, skip, skip.after), 0
                    if own[N_AFTER] == NONE:
                        return NOTHING
                if recurs(program, state, skip, part, since, present, most_periods):
                    let_word(skip, part, RECURS, 1)
                    let_word(skip, part, PERIOD, present - since)
                    continue
            if most_periods == STARTED:
                return CHANGED
            if multiple >= own[PATIENCE]:
                if has_queue(program, state, skip, part, since, present):
                    own[PATIENCE] = min(4 * own[PATIENCE], MOST_MULTIPLES)
                return NOTHING
    for part in range(n_parts):
        # Parts without a period must not have changed at all.
        if word_of(skip, part, RECURS) == 0:
            most_periods = advances_alike(program, state, skip, part, since, own[AFTER_PS])
            if not recurs(program, state, skip, part, since, own[AFTER_PS], most_periods):
                return NOTHING
    return FOUND


@helper
def _snapshot(program, state, skip, part):
    n_tasks = program.task_route.size
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        remember(state, skip, task)
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            skip.server_was[u64(2 * server)] = state.server[u64(SERVER_WORDS * server + FREE_PS)]
            skip.server_was[u64(2 * server + 1)] = state.server[u64(SERVER_WORDS * server + BUSY_PS)]
            skip.label[u64(n_tasks + server)] = NONE
    let_word(skip, part, MULTIPLE, 1)
    skip.register[COST] += 3 * word_of(skip, part, MEMBERS)


@helper
def _next_look(skip, part):
    return skip.register[SINCE_PS] + word_of(skip, part, MULTIPLE) * word_of(skip, part, PERIOD)


@section
def _skip(program, state, skip, most, until_ps):
    """Skip as many periods of each part as fit before the first limit."""
    register, own = state.register, skip.register
    present, end = own[AFTER_PS], until_ps
    for part in range(own[N_PARTS]):
        end = min(end, word_of(skip, part, UNTIL))
    gain = _gain(program, skip, end)
    room = most - register[EVENTS] - 1
    if gain > room:
        end = present + np.int64((end - present) * (room / gain))
        gain = _gain(program, skip, end)
    saved = _deliveries(skip)
    if gain + saved < own[LIVE] + 2 * own[N_AFTER] or gain > room or _reached(skip, end) >> register[WIDTH] == 0:
        return NOTHING
    own[TO_PUT] = room_to_move(skip)
    if own[TO_PUT] == NONE:
        return NOTHING
    if own[TO_PUT] > state.next_block.size:
        return NEEDS_TOKENS
    earliest = move_events(program, state, skip)
    move_tasks(program, state, skip)
    scatter(program, state, skip.after, own[N_AFTER], ((earliest >> register[WIDTH]) << register[WIDTH]) - 1)
    register[EVENTS] += gain
    own[SKIPPED] += gain
    own[SAVED] += saved
    own[STRETCHES] += 1
    own[COST] += 100 + state.next_block.size // 16
    return FOUND


@helper
def _reached(skip, end):
    """The earliest time at which any part stands after skipping."""
    for part in range(skip.register[N_PARTS]):
        if word_of(skip, part, RECURS) != 0:
            end = min(end, skip.register[AFTER_PS] + word_of(skip, part, SKIPS) * word_of(skip, part, PERIOD))
    return end


@helper
def _gain(program, skip, end):
    """Services that are skipped up to a time; sets the number of periods that each part skips."""
    gain = np.int64(0)
    for part in range(skip.register[N_PARTS]):
        time = max(end - skip.register[AFTER_PS], 0)
        let_word(skip, part, SKIPS, time // word_of(skip, part, PERIOD) if word_of(skip, part, RECURS) else 0)
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        gain += skips_of(skip, task) * services_of(program, skip, task)
    return gain


@helper
def _deliveries(skip):
    """How many deliveries are skipped."""
    count = np.int64(0)
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        count += skips_of(skip, task) * skip.step[u64(task)]
    return count
