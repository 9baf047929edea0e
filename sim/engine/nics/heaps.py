"""Heaps of NICs in the fifo loop: pairing heaps of waiting transfers, and an array heap of the engines that push.

A transfer is in one heap at a time, in the order in which it got there; `state.nics` has the roots.
"""

import numpy as np

from sim.engine.compile.door import helper, section
from sim.engine.core.status import NONE


@section
def _melded(state, one, other):
    since, since_other = state.wishes[one].since_ps, state.wishes[other].since_ps
    if since_other < since or (since_other == since and state.wishes[other].wanted < state.wishes[one].wanted):
        one, other = other, one
    state.wishes[other].next = state.wishes[one].child
    state.wishes[one].child = other
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
    child, pairs = state.wishes[root].child, np.int64(NONE)
    while child != NONE:
        other = state.wishes[child].next
        after = np.int64(NONE) if other == NONE else state.wishes[other].next
        pair = meld(state, child, other)
        state.wishes[pair].next = pairs
        pairs, child = pair, after
    heap = np.int64(NONE)
    while pairs != NONE:
        after = state.wishes[pairs].next
        heap = meld(state, heap, pairs)
        pairs = after
    return heap


@helper
def with_task(state, root, task):
    """A heap with a task more."""
    state.wishes[task].next = state.wishes[task].child = NONE
    return meld(state, root, task)


@helper
def without_root(state, root):
    """The heap that is left when its root is taken."""
    return np.int64(NONE) if state.wishes[root].child == NONE else _without_root(state, root)


# --- engines that push, in arrays


@helper
def engine_at(state, nic, place):
    """The engine at a place of the heap of a NIC."""
    return state.engines[state.nics[nic].engines + place]


@helper
def _set_engine(engine, from_ps, key, place):
    engine.from_ps, engine.next_key, engine.next_place = from_ps, key, place


@helper
def _is_before(engine, from_ps, key):
    """Whether an engine pushes before one that pushes a key from a time on."""
    return engine.from_ps < from_ps or (engine.from_ps == from_ps and engine.next_key < key)


@helper
def _copy_engine(to, engine):
    _set_engine(to, engine.from_ps, engine.next_key, engine.next_place)


@section
def add_engine(state, nic, from_ps, key, place):
    """Put a busy engine into a NIC's heap."""
    hole = state.nics[nic].busy
    state.nics[nic].busy += 1
    while hole > 0:
        above = (hole - 1) >> 1
        if _is_before(engine_at(state, nic, above), from_ps, key):
            break
        _copy_engine(engine_at(state, nic, hole), engine_at(state, nic, above))
        hole = above
    _set_engine(engine_at(state, nic, hole), from_ps, key, place)


@helper
def replace_first(state, nic, from_ps, key, place):
    """Replace the first engine of the heap by one that comes later."""
    busy, hole, below = state.nics[nic].busy, np.int64(0), np.int64(1)
    while below < busy:
        engine = engine_at(state, nic, below)
        if below + 1 < busy:
            other = engine_at(state, nic, below + 1)
            if _is_before(other, engine.from_ps, engine.next_key):
                engine, below = other, below + 1
        if not _is_before(engine, from_ps, key):
            break
        _copy_engine(engine_at(state, nic, hole), engine)
        hole, below = below, 2 * below + 1
    _set_engine(engine_at(state, nic, hole), from_ps, key, place)


@helper
def remove_first(state, nic):
    """Take the engine that is free first out of a NIC's heap."""
    state.nics[nic].busy -= 1
    last = engine_at(state, nic, state.nics[nic].busy)
    replace_first(state, nic, last.from_ps, last.next_key, last.next_place)
