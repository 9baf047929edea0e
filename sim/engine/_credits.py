"""Room behind servers in the general loop: a chunk takes it when it starts, and gives it back later.

What will be given back is a token of its own from the start of the service that frees the room: its time is known then.
It has RETURN in place of a chunk, and the room in place of a task.

Rooms are numbered like queues: that of server s and channel c is s + c S, as in the list of queues of the state and of
the program's buffers. Channels that share a buffer have the room of channel 0.
"""

from __future__ import annotations

import numpy as np

from sim.engine._event import AT, CHUNK, NEXT, SIZE, TASK, field, next_of, size_of, task_of
from sim.engine._jit import helper, u64
from sim.engine._state import FIRST_HOP, FREE, NONE, RETURN, TOUCHED
from sim.engine._wheel import push
from sim.program.contract import UNBOUNDED


@helper
def line_of(program, server, hop):
    """The queue of a kind of hop at its server: all those of channel 0 come first."""
    if program.channels == 1:
        return np.int64(server)
    return np.int64(server) + program.server_rate.size * np.int64(program.hop_channel[u64(hop)])


@helper
def _room_of(program, server, line):
    """The buffer of a queue."""
    return np.int64(server) if program.buffer_shared else np.int64(line)


@helper
def fits(program, state, server, line, token):
    """Whether a server has room behind it for a token of one of its queues."""
    if program.server_buffer.size == 0:
        return True
    work = program.chunk_work[u64(size_of(state.event, token) & (FIRST_HOP - 1))]
    return state.buffered[u64(_room_of(program, server, line))] + work <= program.server_buffer[u64(line)]


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
def hold(program, state, server, hop, size):
    """A service has started: its chunk takes room behind the server."""
    if program.server_buffer[u64(server)] != UNBOUNDED:
        room = _room_of(program, server, line_of(program, server, hop))
        state.buffered[u64(room)] += program.chunk_work[u64(size)]


@helper
def give_back(program, state, hop, size, time):
    """A chunk will have gone on from a kind of hop, or been delivered, at a time: let the server know."""
    server = program.hop_server[u64(hop)]
    if program.server_buffer[u64(server)] != UNBOUNDED:
        token = state.register[FREE]
        state.register[FREE] = next_of(state.event, token)
        state.event[field(token, TASK)] = _room_of(program, server, line_of(program, server, hop))
        state.event[field(token, CHUNK)] = RETURN
        state.event[field(token, AT)] = NONE
        state.event[field(token, SIZE)] = size
        push(state, token, time + program.server_credit_ps[u64(server)])


@helper
def is_back(program, state, token):
    """Room is given back; returns the server that has it now."""
    room = task_of(state.event, token)
    state.buffered[u64(room)] -= program.chunk_work[u64(size_of(state.event, token))]
    state.event[field(token, NEXT)] = state.register[FREE]
    state.register[FREE] = token
    return room if program.channels == 1 else room % program.server_rate.size
