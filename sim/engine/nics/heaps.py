"""Heaps of NICs in the fifo loop: pairing heaps of waiting transfers, and an array heap of the engines that push.

A transfer is in one heap at a time, in the order in which it got there; `state.nic` has the roots.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.nic_state import (
    BUSY,
    CHILD,
    ENGINE_WORDS,
    ENGINES,
    FROM_PS,
    NEXT,
    NEXT_KEY,
    NEXT_PLACE,
    SINCE,
    WANTED,
    WISH_WORDS,
)
from sim.engine.core.status import NONE


@helper
def wish(state, task, what):
    return state.wish[u64(WISH_WORDS * task + what)]


@helper
def let_wish(state, task, what, value):
    state.wish[u64(WISH_WORDS * task + what)] = value


@section
def _melded(state, one, other):
    since, since_other = wish(state, one, SINCE), wish(state, other, SINCE)
    if since_other < since or (since_other == since and wish(state, other, WANTED) < wish(state, one, WANTED)):
        one, other = other, one
    let_wish(state, other, NEXT, wish(state, one, CHILD))
    let_wish(state, one, CHILD, other)
    return one


@helper
def meld(state, one, other):
    """One pairing heap from two."""
    if one == NONE:
        return np.int64(other)
    if other == NONE:
        return np.int64(one)
    return _melded(state, one, other)


@section
def _without_root(state, root):
    child, pairs = wish(state, root, CHILD), np.int64(NONE)
    while child != NONE:
        other = wish(state, child, NEXT)
        after = np.int64(NONE) if other == NONE else wish(state, other, NEXT)
        pair = meld(state, child, other)
        let_wish(state, pair, NEXT, pairs)
        pairs, child = pair, after
    heap = np.int64(NONE)
    while pairs != NONE:
        after = wish(state, pairs, NEXT)
        heap = meld(state, heap, pairs)
        pairs = after
    return heap


@helper
def put_in(state, heap, task):
    """Put a task into a heap of a NIC, given its place in `state.nic`."""
    let_wish(state, task, NEXT, NONE)
    let_wish(state, task, CHILD, NONE)
    state.nic[u64(heap)] = meld(state, state.nic[u64(heap)], task)


@helper
def taken(state, heap):
    """Take the first task out of a heap of a NIC that has one."""
    task = state.nic[u64(heap)]
    state.nic[u64(heap)] = np.int64(NONE) if wish(state, task, CHILD) == NONE else _without_root(state, task)
    return task


# --- engines that push, in arrays


@helper
def engine_at(state, base, place):
    """Where the words of the engine at a place of the heap of a NIC begin."""
    return ENGINE_WORDS * (state.nic[u64(base + ENGINES)] + place)


@helper
def _set_engine(state, at, from_ps, key, place):
    state.engine[u64(at + FROM_PS)] = from_ps
    state.engine[u64(at + NEXT_KEY)] = key
    state.engine[u64(at + NEXT_PLACE)] = place


@helper
def _is_before(state, at, from_ps, key):
    """Whether the engine with its words at `at` pushes before one that pushes a key from a time on."""
    its = state.engine[u64(at + FROM_PS)]
    return its < from_ps or (its == from_ps and state.engine[u64(at + NEXT_KEY)] < key)


@helper
def _copy_engine(state, to, at):
    for word in range(ENGINE_WORDS):
        state.engine[u64(to + word)] = state.engine[u64(at + word)]


@section
def add_engine(state, base, from_ps, key, place):
    hole = state.nic[u64(base + BUSY)]
    state.nic[u64(base + BUSY)] += 1
    while hole > 0:
        above = (hole - 1) >> 1
        if _is_before(state, engine_at(state, base, above), from_ps, key):
            break
        _copy_engine(state, engine_at(state, base, hole), engine_at(state, base, above))
        hole = above
    _set_engine(state, engine_at(state, base, hole), from_ps, key, place)


@helper
def replace_first(state, base, from_ps, key, place):
    """Replace the first engine of the heap by one that comes later."""
    busy, first = state.nic[u64(base + BUSY)], ENGINE_WORDS * state.nic[u64(base + ENGINES)]
    hole, below = np.int64(0), np.int64(1)
    while below < busy:
        at = first + ENGINE_WORDS * below
        if below + 1 < busy:
            other = at + ENGINE_WORDS
            if _is_before(state, other, state.engine[u64(at + FROM_PS)], state.engine[u64(at + NEXT_KEY)]):
                at, below = other, below + 1
        if not _is_before(state, at, from_ps, key):
            break
        _copy_engine(state, first + ENGINE_WORDS * hole, at)
        hole, below = below, 2 * below + 1
    _set_engine(state, first + ENGINE_WORDS * hole, from_ps, key, place)


@helper
def remove_first(state, base):
    busy = state.nic[u64(base + BUSY)] - 1
    state.nic[u64(base + BUSY)] = busy
    last = engine_at(state, base, busy)
    replace_first(state, base, state.engine[u64(last + FROM_PS)], state.engine[u64(last + NEXT_KEY)],
                   state.engine[u64(last + NEXT_PLACE)])
