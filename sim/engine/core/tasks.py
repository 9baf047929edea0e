"""Tasks of the fifo loop: what they wait for, the release of their chunks, and deliveries."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import (
    CHUNK_BITS,
    CHUNKS,
    DELIVERED,
    FREE_UNITS,
    GATE,
    HOP_BITS,
    LEAST,
    LEFT,
    LINK,
    LOOK,
    MAKESPAN,
    MISSING,
    NOW,
    POOL_WORDS,
    RELEASED,
    STIRRED,
    TASK_BITS,
    TASK_WORDS,
    TOP,
)
from sim.engine.core.status import UNSTACKED
from sim.program.contract import LOWEST_CHUNK_FIRST, PER_CHUNK, PRIORITY, SMALLEST_FIRST


@helper
def _of(state, task, what):
    return np.int64(state.task[u64(TASK_WORDS * task + what)])


@helper
def _let(state, task, what, value):
    state.task[u64(TASK_WORDS * task + what)] = value


@helper
def _gate_of(task):
    return u64((TASK_WORDS // 2) * task + GATE)


@helper
def _stack(state, task):
    """Remember to look at a task before this picosecond ends."""
    if _of(state, task, LINK) == UNSTACKED:
        _let(state, task, LINK, state.register[TOP])
        state.register[TOP] = task


@helper
def _needed(chunk, parent_chunks, chunks, lag):
    """Chunks of a stream parent that chunk `chunk` waits for: ceil((chunk + 1) * parent_chunks / chunks)."""
    if lag > 0:
        return max(chunk - lag + 1, 0)
    if parent_chunks == chunks:
        return chunk + 1
    return -((-(chunk + 1) * parent_chunks) // chunks)


@helper
def _release(program, state, task):
    """Release every chunk that nothing holds back any more."""
    chunks = _of(state, task, CHUNKS)
    first = last = np.int64(0)
    if program.parent.size:
        first, last = np.int64(program.parent_ptr[u64(task)]), np.int64(program.parent_ptr[u64(task + 1)])
    missing = _of(state, task, MISSING)
    if missing > 0:
        return
    if first == last:
        _let(state, task, RELEASED, chunks)
        return
    # `missing` counts the parents that hold back chunk `released` and no later one: a chunk that gets free makes it
    # count anew for the next, so that each edge is looked at once per chunk of the child.
    released = _of(state, task, RELEASED)
    while released < chunks and missing == 0:
        released += 1
        if released < chunks:
            for edge in range(first, last):
                parent = np.int64(program.parent[u64(edge)])
                lag = np.int64(program.parent_lag[u64(edge)]) if program.parent_lag.size else np.int64(0)
                needed = _needed(released, _of(state, parent, CHUNKS), chunks, lag)
                missing += needed > _of(state, parent, DELIVERED)
    _let(state, task, MISSING, missing)
    _let(state, task, RELEASED, released)


@helper
def _free_child(state, child):
    """One parent less holds a child back."""
    missing = _of(state, child, MISSING) - 1
    _let(state, child, MISSING, missing)
    if missing == 0:
        _stack(state, child)


@helper
def stir(state, pool):
    """Remember to look at a pool before this picosecond ends."""
    look = u64(POOL_WORDS * pool + LOOK)
    if state.pool[look] == UNSTACKED:
        state.pool[look] = state.register[STIRRED]
        state.register[STIRRED] = pool


@section
def _give_units(program, state, task, whole):
    """Give back what a task gives back for each of its chunks, and for all of them if that was the last."""
    for give in range(program.give_ptr[u64(task)], program.give_ptr[u64(task + 1)]):
        if whole or program.give_per[u64(give)] == PER_CHUNK:
            pool = np.int64(program.give_pool[u64(give)])
            state.pool[u64(POOL_WORDS * pool + FREE_UNITS)] += program.give_units[u64(give)]
            stir(state, pool)


@helper
def _deliver(program, state, task, ordered):
    """Deliver the next chunk of a task: free what waits for it."""
    delivered = _of(state, task, DELIVERED) + 1
    _let(state, task, DELIVERED, delivered)
    chunks = _of(state, task, CHUNKS)
    if program.stream_child.size:
        for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
            child = np.int64(program.stream_child[u64(edge)])
            child_chunks = _of(state, child, CHUNKS)
            following = _of(state, child, RELEASED)
            lag = np.int64(program.stream_lag[u64(edge)]) if program.stream_lag.size else np.int64(0)
            if following < child_chunks and _needed(following, chunks, child_chunks, lag) == delivered:
                _free_child(state, child)
    if (ordered or delivered == chunks) and program.give_pool.size:
        _give_units(program, state, task, delivered == chunks)
    if delivered == chunks:
        present = state.register[NOW]
        state.gate_ps[_gate_of(task)] = present
        state.register[MAKESPAN] = present
        state.register[LEFT] -= 1
        if program.whole_child.size:
            for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
                _free_child(state, np.int64(program.whole_child[u64(edge)]))


@helper
def _size(program, task, chunk):
    """Size of a chunk, as a number of the program."""
    cut = u64(program.task_cut[u64(task)])
    return np.int64(program.cut_size[cut, 0] if chunk < program.cut_first[cut] else program.cut_size[cut, 1])


@helper
def _key(program, state, task, chunk):
    """Key of a chunk at its first server."""
    bits = state.register[TASK_BITS] + state.register[HOP_BITS]
    return ((np.int64(program.task_class[u64(task)]) << state.register[CHUNK_BITS] | chunk) << bits) | task


@helper
def rank_of(program, state, discipline, key):
    """What a discipline of servers or pools looks at before the arrival, counted from 0."""
    task = u64(key & ((np.int64(1) << state.register[TASK_BITS]) - 1))
    if discipline == PRIORITY:
        return np.int64(program.task_priority[task]) - state.register[LEAST]
    if discipline == SMALLEST_FIRST:
        return np.int64(state.work_rank[u64(program.task_cut[task])])
    if discipline == LOWEST_CHUNK_FIRST:
        chunk = key >> (state.register[TASK_BITS] + state.register[HOP_BITS])
        return np.int64(chunk & ((np.int64(1) << state.register[CHUNK_BITS]) - 1))
    return np.int64(0)


@helper
def log_service(program, state, server, start, task, chunk, at):
    """Note when a service starts, and the one that its server did before."""
    route = program.task_route[u64(task)]
    first = program.route_ptr[u64(route)]
    row = state.log_base[u64(task)] + chunk * (program.route_ptr[u64(route + 1)] - first) + (at - first)
    state.log_start_ps[u64(row)] = start
    state.log_before[u64(row)] = state.last_row[u64(server)]
    state.last_row[u64(server)] = row
