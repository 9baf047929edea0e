"""Room behind servers in the general loop: a chunk takes it when it starts, and gives it back later.

What will be given back is a token of its own from the start of the service that frees the room: its time is known then.
It has RETURN in place of a chunk, and the server in place of a task.
"""

from __future__ import annotations

from sim.engine._event import AT, CHUNK, NEXT, SIZE, TASK, field, next_of, size_of, task_of
from sim.engine._jit import helper, u64
from sim.engine._state import FIRST_HOP, FREE, NONE, RETURN, TOUCHED
from sim.engine._wheel import push
from sim.program.contract import UNBOUNDED


@helper
def fits(program, state, server, token):
    """Whether a server has room behind it for a token."""
    if program.server_buffer.size == 0:
        return True
    work = program.chunk_work[u64(size_of(state.event, token) & (FIRST_HOP - 1))]
    return state.buffered[u64(server)] + work <= program.server_buffer[u64(server)]


@helper
def room_for_returns(program, state):
    """Whether every server that may start a service now gets the tokens for what that gives back."""
    if program.server_buffer.size == 0:
        return True
    token, needed = state.register[FREE], 2 * state.register[TOUCHED]
    while needed > 0 and token != NONE:
        token = next_of(state.event, token)
        needed -= 1
    return needed == 0


@helper
def hold(program, state, server, size):
    """A service has started: its chunk takes room behind the server."""
    if program.server_buffer[u64(server)] != UNBOUNDED:
        state.buffered[u64(server)] += program.chunk_work[u64(size)]


@helper
def give_back(program, state, server, size, time):
    """A chunk will have gone on, or been delivered, at a time: let the server know."""
    if program.server_buffer[u64(server)] != UNBOUNDED:
        token = state.register[FREE]
        state.register[FREE] = next_of(state.event, token)
        state.event[field(token, TASK)] = server
        state.event[field(token, CHUNK)] = RETURN
        state.event[field(token, AT)] = NONE
        state.event[field(token, SIZE)] = size
        push(state, token, time + program.server_credit_ps[u64(server)])


@helper
def is_back(program, state, token):
    """Room is given back; returns the server that has it now."""
    server = task_of(state.event, token)
    state.buffered[u64(server)] -= program.chunk_work[u64(size_of(state.event, token))]
    state.event[field(token, NEXT)] = state.register[FREE]
    state.register[FREE] = token
    return server
