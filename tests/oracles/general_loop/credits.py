"""Room behind servers in the general loop: a chunk takes it when it starts, and gives it back later.

What will be given back is a token of its own from the start of the service that frees the room: its time is known then.
It is no event. The returns of a room are a list in the order of time, from which those that are due are taken when
another joins it, and when a chunk does not fit. Only where one does not fit is there an alarm, for the next return:
another token, with RETURN in place of a chunk and the room in place of a task, at which the server chooses anew.

Rooms are numbered like queues: that of server s and channel c is s + c S, as in the list of queues of the state and of
the program's buffers. Channels that share a buffer have the room of channel 0.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.status import NONE
from sim.program.contract import UNBOUNDED
from tests.oracles.general_loop.event import AT, CHUNK, NEXT, SIZE, TASK, field, next_of, size_of, task_of, time_of
from tests.oracles.general_loop.state import FIRST_HOP, FREE, NOW, RETURN, RETURNS, STOCK, TOUCHED
from tests.oracles.general_loop.wheel import push

# Words of a room: its returns, the first and the last; when its alarm rings; whether a chunk did not fit.
FIRST, LAST, ALARM_PS, WANTED, ROOM_WORDS = range(5)


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
def room_for_returns(program, state):
    """Whether every server that may start a service now gets the tokens for what that gives back, and for alarms."""
    if program.server_buffer.size == 0:
        return True
    register = state.register
    while register[STOCK] < (4 + program.channels) * register[TOUCHED]:
        token = register[FREE]
        if token == NONE:
            return False
        register[FREE] = next_of(state.event, token)
        state.event[field(token, CHUNK)] = RETURN
        state.event[field(token, AT)] = NONE
        _put_away(state, token)
    return True


@helper
def _put_away(state, token):
    """Keep a token for another return or alarm."""
    state.event[field(token, NEXT)] = state.register[RETURNS]
    state.register[RETURNS] = token
    state.register[STOCK] += 1


@helper
def _another(state):
    """A token for a return or an alarm; there is one."""
    token = state.register[RETURNS]
    state.register[RETURNS] = next_of(state.event, token)
    state.register[STOCK] -= 1
    return token


@helper
def _collect(program, state, room):
    """Take back what is given back by now."""
    words = state.room
    token = words[u64(ROOM_WORDS * room + FIRST)]
    while token != NONE and time_of(state.event_ps, token) <= state.register[NOW]:
        after = np.int64(next_of(state.event, token))
        state.buffered[u64(room)] -= program.chunk_work[u64(size_of(state.event, token))]
        _put_away(state, token)
        token = after
    words[u64(ROOM_WORDS * room + FIRST)] = token


@helper
def _set_alarm(state, room, time):
    """Let the server of a room choose anew at a time, unless it will before that."""
    alarm_ps = state.room[u64(ROOM_WORDS * room + ALARM_PS)]
    if alarm_ps <= state.register[NOW] or time < alarm_ps:
        state.room[u64(ROOM_WORDS * room + ALARM_PS)] = time
        token = _another(state)
        state.event[field(token, TASK)] = room
        push(state, token, time)


@helper
def fits(program, state, server, line, token):
    """Whether a server has room behind it for a token of one of its queues; if not, an alarm is set."""
    if program.server_buffer.size == 0:
        return True
    room, limit = _room_of(program, server, line), program.server_buffer[u64(line)]
    work = program.chunk_work[u64(size_of(state.event, token) & (FIRST_HOP - 1))]
    if state.buffered[u64(room)] + work <= limit:
        return True
    _collect(program, state, room)
    if state.buffered[u64(room)] + work <= limit:
        return True
    state.room[u64(ROOM_WORDS * room + WANTED)] = 1
    first = state.room[u64(ROOM_WORDS * room + FIRST)]
    if first != NONE:
        _set_alarm(state, room, time_of(state.event_ps, first))
    return False


@helper
def hold(program, state, server, hop, size):
    """A service has started: its chunk takes room behind the server."""
    if program.server_buffer[u64(server)] != UNBOUNDED:
        room = _room_of(program, server, line_of(program, server, hop))
        state.buffered[u64(room)] += program.chunk_work[u64(size)]
        state.room[u64(ROOM_WORDS * room + WANTED)] = 0


@helper
def give_back(program, state, hop, size, time):
    """A chunk will have gone on from a kind of hop, or been delivered, at a time: note when the server knows."""
    server = program.hop_server[u64(hop)]
    if program.server_buffer[u64(server)] == UNBOUNDED:
        return
    room = _room_of(program, server, line_of(program, server, hop))
    _collect(program, state, room)
    words, known_ps = state.room, time + program.server_credit_ps[u64(server)]
    token = _another(state)
    state.event_ps[u64(4 * token)] = known_ps
    state.event[field(token, SIZE)] = size
    before, after = np.int64(NONE), words[u64(ROOM_WORDS * room + FIRST)]
    if after != NONE and time_of(state.event_ps, words[u64(ROOM_WORDS * room + LAST)]) <= known_ps:
        before, after = words[u64(ROOM_WORDS * room + LAST)], np.int64(NONE)
    while after != NONE and time_of(state.event_ps, after) <= known_ps:
        before, after = after, np.int64(next_of(state.event, after))
    state.event[field(token, NEXT)] = after
    if before == NONE:
        words[u64(ROOM_WORDS * room + FIRST)] = token
    else:
        state.event[field(before, NEXT)] = token
    if after == NONE:
        words[u64(ROOM_WORDS * room + LAST)] = token
    if words[u64(ROOM_WORDS * room + WANTED)]:
        _set_alarm(state, room, known_ps)


@helper
def rings(program, state, token):
    """An alarm rings; returns the server that may have room now."""
    room = task_of(state.event, token)
    _put_away(state, token)
    return room if program.channels == 1 else room % program.server_rate.size
