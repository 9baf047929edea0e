"""Skipping: a stretch of the future that repeats the past, shifted, is not simulated.

Most schedules recur exactly with a period of a few chunks: what waits, and when, is as it was a period ago, with every
task some chunks further. How the future unfolds depends on nothing else, so it goes on like that until something ends:
a task starts, or runs out of chunks. All periods until then are skipped at once.

    PART    Tasks that are live, and the servers of their routes: those that touch, or wait for each other chunk by
            chunk, are one part. Parts have nothing to do with each other until a task starts or ends.
    WATCH   One task of each part, picosecond by picosecond, until the gaps between its deliveries repeat.
    COMPARE All that is under way, then and a period later. Each task must have advanced some chunks everywhere alike,
            each server must be as far behind, each event as far ahead.
    LIMIT   For how many periods nothing ends: no task starts, finishes, runs out of released chunks or comes to chunks
            of another size, and no tie between two chunks falls out differently.
    SKIP    Each part as many of its periods as fit before the first limit of any. Its events move by them in time,
            its tasks in chunks. No part is touched by another before that limit, so that it does not matter that
            parts then stand at different times.

Trying costs a few percent of the services done and of those skipped at most.
"""

from __future__ import annotations

import numpy as np

from sim.engine._fifo import fifo_loop
from sim.engine._fifo_state import (
    BUSY_PS,
    DELIVERED,
    EVENT_WORDS,
    EVENTS,
    FREE_PS,
    GATE,
    HOP_BITS,
    JOINED,
    KEY,
    LEFT,
    NOW,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
    TASK_WORDS,
    TIME,
    WIDTH,
)
from sim.engine._jit import entry, helper, section, u64
from sim.engine._skip_events import gather, scatter
from sim.engine._skip_limits import recurs
from sim.engine._skip_parts import (
    CHANGED,
    FAR_OFF,
    FOUND,
    NOTHING,
    end_hop,
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
from sim.engine._skip_state import (
    AFTER_PS,
    ALLOWED,
    COST,
    LIVE,
    MULTIPLE,
    MULTIPLES,
    N_AFTER,
    N_BEFORE,
    N_PARTS,
    ORDERED_AFTER,
    ORDERED_BEFORE,
    PERIOD,
    READY,
    RECURS,
    SKIPPED,
    SKIPS,
    STRETCHES,
    UNTIL,
    WAIT,
)
from sim.engine._skip_watch import watch
from sim.engine._state import FAR, LEAPT, NEEDS_TOKENS, NONE, PAUSED, TIRED

SLICE = 256
"""Services after which to see whether a task has ended, which is when what is under way may begin to repeat."""


@entry
def run_skipping(program, state, skip, most, max_events, until_ps):
    """Run a program as `run_fifo` does, but for stretches that repeat.

    `most`: services in all, those skipped included, at which to pause.
    `max_events`: services that are not skipped, after which to pause.
    Returns TIRED where trying has cost enough: `run_fifo` is to go on. Where a log is kept, LEAPT after each stretch.
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
        if skip.register[READY] == 0:
            if not may_try(skip):
                return TIRED
            left, wait = register[LEFT], min(skip.register[WAIT], room)
            while wait > 0 and register[LEFT] == left:
                some = min(wait, max(SLICE, _settling(program, skip)))
                goal = register[EVENTS] + some
                status = fifo_loop(program, state, some, until_ps, False, False, False, False)
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
            status = np.int64(NOTHING)
            if find_parts(program, state, skip):
                status = watch(program, state, skip, most, until_ps)
            if status == FOUND:
                status = _compare(program, state, skip, most, until_ps)
            skip.register[READY] = status == FOUND
        if skip.register[READY] != 0:
            status = _skip(program, state, skip, most, until_ps)
            skip.register[READY] = status == NEEDS_TOKENS
            if status == NEEDS_TOKENS:
                return status
        forget_parts(skip)
        if status in (FOUND, CHANGED):
            skip.register[WAIT] = _settling(program, skip)
            if status == FOUND and state.log_base.size:
                return LEAPT
        elif status == NOTHING:
            skip.register[WAIT] = _before_next(state, skip, _settling(program, skip))
        else:
            return status


@helper
def _settling(program, skip):
    """Services in which the live tasks may settle, and that make up for listing them."""
    return max(8, skip.register[LIVE], program.task_route.size // 32)


@helper
def _before_next(state, skip, settling):
    """Services before the next try: more each time, and so many that early ones leave enough for later ones."""
    own = skip.register
    done = state.register[EVENTS] - own[SKIPPED]
    longer = min(2 * own[WAIT], max(done // 4, settling))
    return max(longer, 4 * (own[COST] - 2 * own[SKIPPED] - own[ALLOWED] // 3) - done)


@helper
def _gathered(state, skip, events):
    """All events, in no order yet; returns how many, or NONE where they are too many to be put in order."""
    count, bits = gather(state, events), state.register[TASK_BITS]
    skip.register[COST] += 25 + (count >> 1) + (count >> 7) * (count >> 6)
    if not may_try(skip, 2 * count + (count >> 6) * (count >> 6)):
        return np.int64(NONE)
    for i in range(count):
        if skip.part_of[u64(events[u64(EVENT_WORDS * i + KEY)] & ((np.int64(1) << bits) - 1))] == NONE:
            return np.int64(NONE)  # a task has started since
    return count


@section
def _compare(program, state, skip, most, until_ps):
    """Hold each part against itself a period later."""
    register, own = state.register, skip.register
    n_parts, left, since = own[N_PARTS], register[LEFT], register[NOW]
    own[N_BEFORE], own[ORDERED_BEFORE] = _gathered(state, skip, skip.before), 0
    if own[N_BEFORE] == NONE:
        return NOTHING
    _snapshot(program, state, skip)
    for part in range(n_parts):
        let_word(skip, part, MULTIPLE, 1)
    while True:
        present = FAR_OFF
        for part in range(n_parts):
            if word_of(skip, part, PERIOD) > 0 and word_of(skip, part, RECURS) == 0:
                present = min(present, since + word_of(skip, part, MULTIPLE) * word_of(skip, part, PERIOD))
        if present == FAR_OFF:
            break
        if present > until_ps:
            return NOTHING
        begun = register[EVENTS]
        status = fifo_loop(program, state, most - begun, present, False, False, False, False)
        if status != PAUSED or register[EVENTS] >= most:
            return status
        own[N_AFTER], own[ORDERED_AFTER] = _gathered(state, skip, skip.after), 0
        own[AFTER_PS] = present
        if register[LEFT] != left:
            return CHANGED
        if own[N_AFTER] == NONE:
            return NOTHING
        for part in range(n_parts):
            multiple = word_of(skip, part, MULTIPLE)
            if (
                word_of(skip, part, PERIOD) > 0 and word_of(skip, part, RECURS) == 0
                and since + multiple * word_of(skip, part, PERIOD) == present
            ):
                if recurs(program, state, skip, part, since, present):
                    let_word(skip, part, RECURS, 1)
                    let_word(skip, part, PERIOD, present - since)
                elif multiple == MULTIPLES:
                    return NOTHING
                else:
                    let_word(skip, part, MULTIPLE, multiple + 1)
    for part in range(n_parts):
        # The others must not have changed at all.
        if word_of(skip, part, RECURS) == 0 and not recurs(program, state, skip, part, since, own[AFTER_PS]):
            return NOTHING
    return FOUND


@helper
def _snapshot(program, state, skip):
    n_tasks = program.task_route.size
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        remember(state, skip, task)
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            skip.server_was[u64(2 * server)] = state.server[u64(SERVER_WORDS * server + FREE_PS)]
            skip.server_was[u64(2 * server + 1)] = state.server[u64(SERVER_WORDS * server + BUSY_PS)]
            skip.label[u64(n_tasks + server)] = NONE
    skip.register[COST] += 3 * skip.register[LIVE]


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
        end = present + (end - present) // gain * room
        gain = _gain(program, skip, end)
    if gain < own[LIVE] + 2 * own[N_AFTER] or gain > room:
        return NOTHING
    if own[N_AFTER] > state.next_block.size:
        return NEEDS_TOKENS
    earliest = _move_events(state, skip)
    present = ((earliest >> register[WIDTH]) << register[WIDTH]) - 1
    if present < 0:
        return NOTHING
    _move_tasks(program, state, skip)
    scatter(program, state, skip.after, own[N_AFTER], present)
    register[EVENTS] += gain
    own[SKIPPED] += gain
    own[STRETCHES] += 1
    own[COST] += 100 + state.next_block.size // 16
    return FOUND


@helper
def _gain(program, skip, end):
    """How many services are skipped up to a time; sets the periods that each part skips."""
    gain = np.int64(0)
    for part in range(skip.register[N_PARTS]):
        time = max(end - skip.register[AFTER_PS], 0)
        let_word(skip, part, SKIPS, time // word_of(skip, part, PERIOD) if word_of(skip, part, RECURS) else 0)
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        skips = word_of(skip, np.int64(skip.part_of[u64(task)]), SKIPS)
        gain += skips * skip.step[u64(task)] * (end_hop(program, task) - first_hop(program, task))
    return gain


@helper
def _move_events(state, skip):
    """Move the events of the list; returns the time of the first."""
    bits, hop_bits = state.register[TASK_BITS], state.register[HOP_BITS]
    earliest = FAR_OFF
    for i in range(skip.register[N_AFTER]):
        at = EVENT_WORDS * i
        task = skip.after[u64(at + KEY)] & ((np.int64(1) << bits) - 1)
        part, step = np.int64(skip.part_of[u64(task)]), np.int64(skip.step[u64(task)])
        if step > 0:
            skips = word_of(skip, part, SKIPS)
            skip.after[u64(at + TIME)] += skips * word_of(skip, part, PERIOD)
            skip.after[u64(at + KEY)] += (skips * step) << (bits + hop_bits)
        earliest = min(earliest, skip.after[u64(at + TIME)])
    return earliest


@helper
def _move_tasks(program, state, skip):
    """Move the tasks that advance, and the servers that serve them."""
    n_tasks, present = program.task_route.size, skip.register[AFTER_PS]
    for i in range(skip.register[LIVE]):
        task = np.int64(skip.live[u64(i)])
        part = np.int64(skip.part_of[u64(task)])
        skips = word_of(skip, part, SKIPS)
        shift = skips * word_of(skip, part, PERIOD)
        if skips == 0 or skip.step[u64(task)] == 0:
            continue
        base = TASK_WORDS * task
        state.task[u64(base + JOINED)] += skips * skip.step[u64(task)]
        state.task[u64(base + DELIVERED)] += skips * skip.step[u64(task)]
        state.task[u64(base + RELEASED)] += skips * skip.release_step[u64(task)]
        gate = u64((TASK_WORDS // 2) * task + GATE)
        if present < state.gate_ps[gate] < FAR:
            state.gate_ps[gate] += shift
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            if skip.label[u64(n_tasks + server)] == NONE:
                continue
            skip.label[u64(n_tasks + server)] = NONE
            free, busy = u64(SERVER_WORDS * server + FREE_PS), u64(SERVER_WORDS * server + BUSY_PS)
            if state.server[free] > present:
                state.server[free] += shift
            state.server[busy] += skips * skip.server_was[u64(2 * server + 1)]
    skip.register[COST] += 3 * skip.register[LIVE]
