"""Pools in the fifo loop: who asks for units, and who gets them.

In the loops of servers that choose, a task asks for each chunk or once for all of them. While it waits in the pairing
heap of its pool, its gate is FAR. In the other loops pools are simple (`sim.engine.setup.loop`): only joins ask, and
wait in lines by LINK, which compile faster than heaps; they are not released meanwhile, and their gate is when they
asked. A task that gets its units goes back on the stack of tasks. Pools that were asked, or got units back, are on a
stack of their own, which is looked at once nothing else happens in the picosecond.
"""

import numpy as np

from sim.engine.compile.door import helper, section
from sim.engine.core.nodes import free_node, lone, meld, new_node, without_root
from sim.engine.core.status import FAR, NONE, UNSTACKED
from sim.engine.core.tasks import _key, _stack, rank_of, stir
from sim.program.contract import PER_CHUNK


@helper
def asks(program, state, task, chunk, ordered):
    """Whether a chunk needs units that it has not got; where pools are simple, only joins of one chunk may."""
    if program.task_pool.size == 0 or program.task_pool[task] == NONE or chunk < state.granted[task]:
        return False
    return not ordered or chunk == 0 or program.task_per[task] == PER_CHUNK


@section
def ask(program, state, task, chunk, ordered, faulty):
    """Let the next chunk of a task wait for its units. In a heap there must be a free node."""
    pool = np.int64(program.task_pool[task])
    if ordered:
        state.tasks[task].gate_ps = FAR
        key = _key(program, state, task, chunk)
        rank = rank_of(program, state, program.pool_discipline[pool], key)
        node = lone(state, new_node(state, key, state.run.now_ps), rank)
        if faulty:
            state.node_since[node] = state.run.now_ps
        root = state.pools[pool].requests
        state.pools[pool].requests = node if root == NONE else meld(state, root, node, faulty)
    else:
        state.pools[pool].requests = _in_line(program, state, state.pools[pool].requests, task)
    stir(state, pool)


@helper
def _in_line(program, state, first, task):
    """Put a join into the line of its pool, in the order of time, class and index; returns the first in line."""
    state.tasks[task].released = 0
    present = state.run.now_ps
    state.tasks[task].gate_ps = present
    before, behind = np.int64(NONE), first
    while behind != NONE and (
        state.tasks[behind].gate_ps < present
        or program.task_class[behind] < program.task_class[task]
        or (program.task_class[behind] == program.task_class[task] and behind < task)
    ):
        before, behind = behind, state.tasks[behind].link
    state.tasks[task].link = behind
    if before == NONE:
        return task
    state.tasks[before].link = task
    return first


@section
def grant(program, state, ordered, faulty):
    """Let pools grant what they can: who got his units goes back on the stack. Returns whether anybody did."""
    run = state.run
    while run.stirred != NONE:
        its = state.pools[run.stirred]
        run.stirred = its.look
        its.look = UNSTACKED
        first = its.requests
        while first != NONE:
            task = first
            if ordered:
                task = state.nodes[first].key & ((np.int64(1) << run.task_bits) - 1)
            units = program.task_units[task]
            if units > its.free_units:
                break
            its.free_units -= units
            if ordered:
                rest = without_root(state, first, faulty)
                free_node(state, first)
                first = rest
            else:
                first = state.tasks[task].link
                state.tasks[task].link = UNSTACKED
            state.granted[task] = state.tasks[task].joined + 1
            state.tasks[task].gate_ps = run.now_ps
            _stack(state, task)
        its.requests = first
    return run.top != NONE
