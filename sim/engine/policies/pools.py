"""Pools in the fifo loop: who asks for units, and who gets them.

In the loops of servers that choose, a task asks for each chunk or once for all of them. While it waits in the pairing
heap of its pool, its gate is FAR. In the other loops pools are simple (`sim.engine.setup.loop`): only joins ask, and
wait in lines by LINK, which compile faster than heaps; they are not released meanwhile, and their gate is when they
asked. A task that gets its units goes back on the stack of tasks. Pools that were asked, or got units back, are on a
stack of their own, which is looked at once nothing else happens in the picosecond.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.nodes import free_node, lone, meld, new_node, without_root, word_of
from sim.engine.core.state import (
    FREE_UNITS,
    KEY,
    LINK,
    LOOK,
    NOW,
    POOL_WORDS,
    RELEASED,
    REQUESTS,
    STIRRED,
    TASK_BITS,
    TOP,
)
from sim.engine.core.status import FAR, NONE, UNSTACKED
from sim.engine.core.tasks import _gate_of, _key, _let, _of, _stack, rank_of, stir
from sim.program.contract import PER_CHUNK

GRANTED = -1
"""In place of a gate: the next chunk has its units."""


@helper
def asks(program, task, chunk, ordered):
    """Whether a chunk needs units of a pool; where pools are simple, only the single chunks of joins may."""
    if program.task_pool.size == 0 or program.task_pool[u64(task)] == NONE:
        return False
    return not ordered or chunk == 0 or program.task_per[u64(task)] == PER_CHUNK


@section
def ask(program, state, task, chunk, ordered, faulty):
    """Let the next chunk of a task wait for its units. In a heap there must be a free node."""
    pool = np.int64(program.task_pool[u64(task)])
    first = u64(POOL_WORDS * pool + REQUESTS)
    if ordered:
        state.gate_ps[_gate_of(task)] = FAR
        key = _key(program, state, task, chunk)
        rank = rank_of(program, state, program.pool_discipline[u64(pool)], key)
        node = lone(state, new_node(state, key, state.register[NOW]), rank)
        if faulty:
            state.node_since[u64(node)] = state.register[NOW]
        root = np.int64(state.pool[first])
        state.pool[first] = node if root == NONE else meld(state, root, node, faulty)
    else:
        state.pool[first] = _in_line(program, state, np.int64(state.pool[first]), task)
    stir(state, pool)


@helper
def _in_line(program, state, first, task):
    """Put a join into the line of its pool, in the order of time, class and index; returns the first in line."""
    _let(state, task, RELEASED, 0)
    present = state.register[NOW]
    state.gate_ps[_gate_of(task)] = present
    before, behind = np.int64(NONE), first
    while behind != NONE and (
        state.gate_ps[_gate_of(behind)] < present
        or program.task_class[u64(behind)] < program.task_class[u64(task)]
        or (program.task_class[u64(behind)] == program.task_class[u64(task)] and behind < task)
    ):
        before, behind = behind, _of(state, behind, LINK)
    _let(state, task, LINK, behind)
    if before == NONE:
        return task
    _let(state, before, LINK, task)
    return first


@section
def grant(program, state, ordered, faulty):
    """Let pools grant what they can: who got his units goes back on the stack. Returns whether anybody did."""
    register = state.register
    while register[STIRRED] != NONE:
        base = POOL_WORDS * register[STIRRED]
        register[STIRRED] = state.pool[u64(base + LOOK)]
        state.pool[u64(base + LOOK)] = UNSTACKED
        first = np.int64(state.pool[u64(base + REQUESTS)])
        while first != NONE:
            task = first
            if ordered:
                task = state.node[word_of(first, KEY)] & ((np.int64(1) << register[TASK_BITS]) - 1)
            units = program.task_units[u64(task)]
            if units > state.pool[u64(base + FREE_UNITS)]:
                break
            state.pool[u64(base + FREE_UNITS)] -= units
            if ordered:
                rest = without_root(state, first, faulty)
                free_node(state, first)
                first = rest
            else:
                first = _of(state, task, LINK)
                _let(state, task, LINK, UNSTACKED)
            state.gate_ps[_gate_of(task)] = GRANTED
            _stack(state, task)
        state.pool[u64(base + REQUESTS)] = first
    return register[TOP] != NONE
