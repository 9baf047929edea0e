"""Room in the queues of NICs, which services give back when they end, and when a NIC is looked at again."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.nic_state import (
    BACKLOG_WORDS,
    BEHIND,
    BUSY,
    END_PS,
    LOOK_PS,
    NEWEST,
    NIC_WORDS,
    OLDEST,
    ROOM,
    WATCHED,
    WORK,
)
from sim.engine.core.state import ALARM, BACKLOG_FREE, BLOCKS, LATE, NOW
from sim.engine.core.status import NONE


@helper
def has_room(state):
    """Whether a NIC may do one thing more."""
    register = state.register
    return register[BLOCKS] > 1 and register[LATE] + 2 <= state.late.size and register[BACKLOG_FREE] != NONE


@helper
def wait_for_end(state, base, end, work):
    """Remember a service until its end gives room back."""
    node = state.register[BACKLOG_FREE]
    words = BACKLOG_WORDS * node
    state.register[BACKLOG_FREE] = state.backlog[u64(words + BEHIND)]
    state.backlog[u64(words + END_PS)] = end
    state.backlog[u64(words + WORK)] = work
    state.backlog[u64(words + BEHIND)] = NONE
    if state.nic[u64(base + OLDEST)] == NONE:
        state.nic[u64(base + OLDEST)] = node
    else:
        state.backlog[u64(BACKLOG_WORDS * state.nic[u64(base + NEWEST)] + BEHIND)] = node
    state.nic[u64(base + NEWEST)] = node


@helper
def take_room_back(state, base, present):
    """What services that have ended give back."""
    node = state.nic[u64(base + OLDEST)]
    while node != NONE and state.backlog[u64(BACKLOG_WORDS * node + END_PS)] <= present:
        words = BACKLOG_WORDS * node
        state.nic[u64(base + ROOM)] += state.backlog[u64(words + WORK)]
        after = state.backlog[u64(words + BEHIND)]
        state.backlog[u64(words + BEHIND)] = state.register[BACKLOG_FREE]
        state.register[BACKLOG_FREE] = node
        node = after
    state.nic[u64(base + OLDEST)] = node


@helper
def look_at(program, state, base, time):
    """Look at a NIC at a later time. Returns False where there is no room left."""
    if time < state.nic[u64(base + LOOK_PS)]:
        if not has_room(state):
            return False
        state.nic[u64(base + LOOK_PS)] = time
        put(program, state, time, base, np.int64(ALARM), NONE)
    return True


@helper
def serves_chosen(program, state, server, end, place):
    """A NIC whose server chooses begins a service, whose end gives room back."""
    base, work = program.server_nic[u64(server)] * np.int64(NIC_WORDS), program.chunk_work[u64(size_of(place))]
    if state.nic[u64(base + WATCHED)] != 0:
        wait_for_end(state, base, end, work)
        if state.nic[u64(base + BUSY)] > 0 and end < state.nic[u64(base + LOOK_PS)]:
            state.nic[u64(base + LOOK_PS)] = end
            put(program, state, end, base, np.int64(ALARM), NONE)


@helper
def comes_again(program, state, server, place):
    """A chunk that was lost is in the queue of its NIC again, though it waited for no room."""
    if program.server_nic[u64(server)] != NONE:
        base = program.server_nic[u64(server)] * np.int64(NIC_WORDS)
        state.nic[u64(base + ROOM)] -= program.chunk_work[u64(size_of(place))]


@helper
def leaves_unserved(program, state, server, place):
    """A chunk is lost while it waits at its NIC, which engines see in the next picosecond."""
    serves_chosen(program, state, server, state.register[NOW] + 1, place)
