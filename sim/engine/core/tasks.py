"""Tasks of the fifo loop: what they wait for, releases, deliveries; and how long a chunk is served."""

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.status import UNSTACKED
from sim.program.contract import PER_CHUNK, WEIGHTS


@helper
def _stack(state, task):
    """Remember to look at a task before this picosecond ends."""
    its = state.tasks[task]
    if its.link == UNSTACKED:
        its.link = state.run.top
        state.run.top = task


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
    its = state.tasks[task]
    chunks = its.chunks
    first = last = np.int64(0)
    if program.parent.size:
        first, last = np.int64(program.parent_ptr[task]), np.int64(program.parent_ptr[task + 1])
    missing = its.missing
    if missing > 0:
        return
    if first == last:
        its.released = chunks
        return
    # `missing` counts the parents that hold back chunk `released` and no later one: a chunk that gets free makes it
    # count anew for the next, so that each edge is looked at once per chunk of the child.
    released = its.released
    while released < chunks and missing == 0:
        released += 1
        if released < chunks:
            for edge in range(first, last):
                parent = np.int64(program.parent[edge])
                lag = np.int64(program.parent_lag[edge]) if program.parent_lag.size else np.int64(0)
                needed = _needed(released, state.tasks[parent].chunks, chunks, lag)
                missing += needed > state.tasks[parent].delivered
    its.missing, its.released = missing, released


@helper
def _free_child(state, child):
    """One parent less holds a child back."""
    its = state.tasks[child]
    its.missing -= 1
    if its.missing == 0:
        _stack(state, child)


@helper
def stir(state, pool):
    """Remember to look at a pool before this picosecond ends."""
    its = state.pools[pool]
    if its.look == UNSTACKED:
        its.look = state.run.stirred
        state.run.stirred = pool


@section
def _give_units(program, state, task, whole):
    """Give back what a task gives back for each of its chunks, and for all of them if that was the last."""
    for give in range(program.give_ptr[task], program.give_ptr[task + 1]):
        if whole or program.give_per[give] == PER_CHUNK:
            pool = np.int64(program.give_pool[give])
            state.pools[pool].free_units += program.give_units[give]
            stir(state, pool)


@helper
def _deliver(program, state, task, ordered):
    """Deliver the next chunk of a task: free what waits for it."""
    its = state.tasks[task]
    delivered = its.delivered + 1
    its.delivered = delivered
    chunks = its.chunks
    if program.stream_child.size:
        for edge in range(program.stream_ptr[task], program.stream_ptr[task + 1]):
            child = np.int64(program.stream_child[edge])
            child_chunks, following = state.tasks[child].chunks, state.tasks[child].released
            lag = np.int64(program.stream_lag[edge]) if program.stream_lag.size else np.int64(0)
            if following < child_chunks and _needed(following, chunks, child_chunks, lag) == delivered:
                _free_child(state, child)
    if (ordered or delivered == chunks) and program.give_pool.size:
        _give_units(program, state, task, delivered == chunks)
    if delivered == chunks:
        present = state.run.now_ps
        its.gate_ps = present
        state.run.makespan_ps = max(state.run.makespan_ps, present)
        state.run.left -= 1
        if program.whole_child.size:
            for edge in range(program.whole_ptr[task], program.whole_ptr[task + 1]):
                _free_child(state, np.int64(program.whole_child[edge]))


@helper
def _size(program, task, chunk):
    """Size of a chunk, as a number of the program."""
    return size_of_chunk(program, np.int64(program.task_cut[task]), chunk)


@helper
def size_of_chunk(program, cut, chunk):
    """Size of a chunk of a task that is cut so."""
    return np.int64(program.cut_size[u64(cut), 0] if chunk < program.cut_first[cut] else program.cut_size[u64(cut), 1])


@helper
def _key(program, state, task, chunk):
    """Key of a chunk at its first server."""
    bits = state.run.task_bits + state.run.hop_bits
    return ((np.int64(program.task_class[task]) << state.run.chunk_bits | chunk) << bits) | task


@helper
def rank_of(program, state, discipline, key):
    """What a discipline of servers or pools looks at before the arrival, counted from 0; of works, their ranks."""
    task = key & ((np.int64(1) << state.run.task_bits) - 1)
    rank = state.least_rank[discipline]
    if WEIGHTS[discipline, 0] != 0:
        rank += WEIGHTS[discipline, 0] * program.task_priority[task]
    if WEIGHTS[discipline, 1] != 0:
        rank += WEIGHTS[discipline, 1] * state.work_rank[program.task_cut[task]]
    if WEIGHTS[discipline, 2] != 0:
        chunk = key >> (state.run.task_bits + state.run.hop_bits)
        rank += WEIGHTS[discipline, 2] * (chunk & ((np.int64(1) << state.run.chunk_bits) - 1))
    return rank


@helper
def log_service(program, state, server, start, task, chunk, at):
    """Note when a service starts, and the one that its server did before."""
    route = program.task_route[task]
    first = program.route_ptr[route]
    row = state.log_base[task] + chunk * (program.route_ptr[route + 1] - first) + (at - first)
    state.log_start_ps[row] = start
    state.log_before[row] = state.last_row[server]
    state.last_row[server] = row


@helper
def service_ps(program, size, rate):
    """How long a chunk of a size (by its number) holds a server of a rate."""
    return program.service_ps[program.service_row[size] + rate]
