"""Room in the queues of NICs, which services give back when they end, and when a NIC is looked at again."""

import numpy as np

from sim.engine.compile.door import helper
from sim.engine.core.calendar import put, size_of
from sim.engine.core.state import ALARM
from sim.engine.core.status import NONE


@helper
def has_room(state):
    """Whether a NIC may do one thing more."""
    run = state.run
    return run.blocks > 1 and run.late + 2 <= state.late.size and run.backlog_free != NONE


@helper
def wait_for_end(state, nic, end, work):
    """Remember a service until its end gives room back."""
    its, node = state.nics[nic], state.run.backlog_free
    service = state.backlog[node]
    state.run.backlog_free = service.behind
    service.end_ps, service.work, service.behind = end, work, NONE
    if its.oldest == NONE:
        its.oldest = node
    else:
        state.backlog[its.newest].behind = node
    its.newest = node


@helper
def take_room_back(state, nic, present):
    """What services that have ended give back."""
    its = state.nics[nic]
    node = its.oldest
    while node != NONE and state.backlog[node].end_ps <= present:
        service = state.backlog[node]
        its.room += service.work
        after = service.behind
        service.behind = state.run.backlog_free
        state.run.backlog_free = node
        node = after
    its.oldest = node


@helper
def look_at(program, state, nic, time):
    """Look at a NIC at a later time. Returns False where there is no room left."""
    if time < state.nics[nic].look_ps:
        if not has_room(state):
            return False
        state.nics[nic].look_ps = time
        put(program, state, time, nic, np.int64(ALARM), NONE)
    return True


@helper
def serves_chosen(program, state, server, end, place):
    """A NIC whose server chooses begins a service, whose end gives room back."""
    nic = np.int64(program.server_nic[server])
    its = state.nics[nic]
    if its.watched != 0:
        wait_for_end(state, nic, end, program.chunk_work[size_of(place)])
        if its.busy > 0 and end < its.look_ps:
            its.look_ps = end
            put(program, state, end, nic, np.int64(ALARM), NONE)


@helper
def comes_again(program, state, server, place):
    """A chunk that was lost is in the queue of its NIC again, though it waited for no room."""
    if program.server_nic[server] != NONE:
        state.nics[program.server_nic[server]].room -= program.chunk_work[size_of(place)]


@helper
def leaves_unserved(program, state, server, place):
    """A chunk is lost while it waits at its NIC, which engines see in the next picosecond."""
    serves_chosen(program, state, server, state.run.now_ps + 1, place)
