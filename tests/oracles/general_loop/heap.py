"""Who is served first: the order of the contract, and the pairing heap that keeps the waiting in it.

A heap is its root; the root's children are a list, each child the root of its own heap:

    root --CHILD--> a --NEXT--> b --NEXT--> c
                    |                       |
                    CHILD --> d             CHILD --> e --NEXT--> f

Invariant: no token comes before its parent. Putting one in is a comparison (meld with a heap of one), taking the root
costs O(log n) comparisons amortized, and neither needs memory besides the links that a token has anyway. The order is
total, so the heap's shape, which depends on the order of arrival, never decides who is served.
"""

from __future__ import annotations

from sim.engine.compile.door import helper, u64
from sim.engine.core.status import NONE
from sim.program.contract import WEIGHTS
from tests.oracles.general_loop.event import CHILD, NEXT, at_of, child_of, chunk_of, field, next_of, task_of, time_of


@helper
def ties_before(program, state, a, b):
    """Whether token a comes before token b among those of one arrival time: (class, chunk, hop, task)."""
    event = state.event
    task_a, task_b = task_of(event, a), task_of(event, b)
    if program.task_class[u64(task_a)] != program.task_class[u64(task_b)]:
        return program.task_class[u64(task_a)] < program.task_class[u64(task_b)]
    if chunk_of(event, a) != chunk_of(event, b):
        return chunk_of(event, a) < chunk_of(event, b)
    if at_of(event, a) != NONE and at_of(event, b) != NONE:
        hop_a = at_of(event, a) - program.route_ptr[u64(program.task_route[u64(task_a)])]
        hop_b = at_of(event, b) - program.route_ptr[u64(program.task_route[u64(task_b)])]
        if hop_a != hop_b:
            return hop_a < hop_b
    return task_a < task_b


@helper
def before(program, state, discipline, a, b):
    """Whether a discipline serves token a before token b: (rank, arrival, class, chunk, hop, task)."""
    task_a, task_b = task_of(state.event, a), task_of(state.event, b)
    if WEIGHTS[discipline, 0] != 0 and program.task_priority[u64(task_a)] != program.task_priority[u64(task_b)]:
        return (program.task_priority[u64(task_a)] < program.task_priority[u64(task_b)]) == (WEIGHTS[discipline, 0] > 0)
    work_a = program.cut_work[u64(program.task_cut[u64(task_a)])]
    work_b = program.cut_work[u64(program.task_cut[u64(task_b)])]
    if WEIGHTS[discipline, 1] != 0 and work_a != work_b:
        return (work_a < work_b) == (WEIGHTS[discipline, 1] > 0)
    chunk_a, chunk_b = chunk_of(state.event, a), chunk_of(state.event, b)
    if WEIGHTS[discipline, 2] != 0 and chunk_a != chunk_b:
        return (chunk_a < chunk_b) == (WEIGHTS[discipline, 2] > 0)
    arrival_a, arrival_b = time_of(state.event_ps, a), time_of(state.event_ps, b)
    if arrival_a != arrival_b:
        return arrival_a < arrival_b
    return ties_before(program, state, a, b)


@helper
def lone(state, token):
    """A pairing heap of one token."""
    state.event[field(token, CHILD)] = NONE
    state.event[field(token, NEXT)] = NONE
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
    state.event[field(b, NEXT)] = child_of(state.event, a)
    state.event[field(a, CHILD)] = b
    return a


@helper
def without_root(program, state, discipline, root):
    """The heap that is left when its root is taken: meld the children in pairs, then the pairs from the right."""
    event = state.event
    child = child_of(event, root)
    pairs = NONE  # the pairs melded so far, the last one first
    while child != NONE:
        other = next_of(event, child)
        event[field(child, NEXT)] = NONE
        following = NONE
        if other != NONE:
            following = next_of(event, other)
            event[field(other, NEXT)] = NONE
        pair = meld(program, state, discipline, child, other)
        event[field(pair, NEXT)] = pairs
        pairs = pair
        child = following
    heap = NONE
    while pairs != NONE:
        following = next_of(event, pairs)
        event[field(pairs, NEXT)] = NONE
        heap = meld(program, state, discipline, heap, pairs)
        pairs = following
    return heap
