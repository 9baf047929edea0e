"""Who is served first: the order of the contract, and the pairing heap that keeps the waiting in it."""

from __future__ import annotations

from sim.engine._jit import helper, u64
from sim.engine._state import AT, CHILD, CHUNK, NEXT, NONE, TASK
from sim.program.contract import LOWEST_CHUNK_FIRST, PRIORITY, SMALLEST_FIRST


@helper
def ties_before(program, state, a, b):
    """Whether token a comes before token b among those of one arrival time: (class, chunk, hop, task)."""
    a, b = 8 * (program.server_rate.size + a), 8 * (program.server_rate.size + b)
    event = state.event
    task_a, task_b = event[u64(a + TASK)], event[u64(b + TASK)]
    if program.task_class[u64(task_a)] != program.task_class[u64(task_b)]:
        return program.task_class[u64(task_a)] < program.task_class[u64(task_b)]
    if event[u64(a + CHUNK)] != event[u64(b + CHUNK)]:
        return event[u64(a + CHUNK)] < event[u64(b + CHUNK)]
    if event[u64(a + AT)] != NONE and event[u64(b + AT)] != NONE:
        hop_a = event[u64(a + AT)] - program.route_ptr[u64(program.task_route[u64(task_a)])]
        hop_b = event[u64(b + AT)] - program.route_ptr[u64(program.task_route[u64(task_b)])]
        if hop_a != hop_b:
            return hop_a < hop_b
    return task_a < task_b


@helper
def before(program, state, discipline, a, b):
    """Whether a discipline serves token a before token b: (rank, arrival, class, chunk, hop, task)."""
    n_servers = program.server_rate.size
    task_a, task_b = state.event[u64(8 * (n_servers + a) + TASK)], state.event[u64(8 * (n_servers + b) + TASK)]
    if discipline == PRIORITY:
        if program.task_priority[u64(task_a)] != program.task_priority[u64(task_b)]:
            return program.task_priority[u64(task_a)] < program.task_priority[u64(task_b)]
    elif discipline == SMALLEST_FIRST:
        work_a = program.cut_work[u64(program.task_cut[u64(task_a)])]
        work_b = program.cut_work[u64(program.task_cut[u64(task_b)])]
        if work_a != work_b:
            return work_a < work_b
    elif discipline == LOWEST_CHUNK_FIRST:
        chunk_a, chunk_b = state.event[u64(8 * (n_servers + a) + CHUNK)], state.event[u64(8 * (n_servers + b) + CHUNK)]
        if chunk_a != chunk_b:
            return chunk_a < chunk_b
    arrival_a, arrival_b = state.event_ps[u64(4 * (n_servers + a))], state.event_ps[u64(4 * (n_servers + b))]
    if arrival_a != arrival_b:
        return arrival_a < arrival_b
    return ties_before(program, state, a, b)


@helper
def lone(program, state, token):
    """A pairing heap of one token."""
    state.event[u64(8 * (program.server_rate.size + token) + CHILD)] = NONE
    state.event[u64(8 * (program.server_rate.size + token) + NEXT)] = NONE
    return token


@helper
def meld(program, state, discipline, a, b):
    """One pairing heap from two; siblings are chained through NEXT, which a waiting token does not use."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if before(program, state, discipline, b, a):
        a, b = b, a
    n_servers = program.server_rate.size
    state.event[u64(8 * (n_servers + b) + NEXT)] = state.event[u64(8 * (n_servers + a) + CHILD)]
    state.event[u64(8 * (n_servers + a) + CHILD)] = b
    return a


@helper
def without_root(program, state, discipline, root):
    """The heap that is left when its root is taken: meld the children in pairs, then the pairs from the right."""
    n_servers = program.server_rate.size
    event = state.event
    child = event[u64(8 * (n_servers + root) + CHILD)]
    pairs = NONE
    while child != NONE:
        other = event[u64(8 * (n_servers + child) + NEXT)]
        event[u64(8 * (n_servers + child) + NEXT)] = NONE
        following = NONE
        if other != NONE:
            following = event[u64(8 * (n_servers + other) + NEXT)]
            event[u64(8 * (n_servers + other) + NEXT)] = NONE
        pair = meld(program, state, discipline, child, other)
        event[u64(8 * (n_servers + pair) + NEXT)] = pairs
        pairs = pair
        child = following
    heap = NONE
    while pairs != NONE:
        following = event[u64(8 * (n_servers + pairs) + NEXT)]
        event[u64(8 * (n_servers + pairs) + NEXT)] = NONE
        heap = meld(program, state, discipline, heap, pairs)
        pairs = following
    return heap
