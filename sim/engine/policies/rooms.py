"""Room behind servers in the fifo loop: a chunk takes it when its service starts, and gives it back later.

When a chunk gives its room back is known as soon as the service that frees it is committed. Such a *return* is a node
of core/nodes.py. A room has two lists of them, in the order of time: of chunks that go on, and of chunks that
are delivered. Each list grows nearly in order, so that the place of a new return is sought from the end. Returns that
are due are collected when another one joins the list, and when a chunk does not fit. A return is an event, at which the
server chooses again, only if a chunk did not fit.

Rooms are numbered like the buffers of the program: server s and channel c have room s + c S. Channels that share a
buffer use the room of channel 0.
"""

import numpy as np

from sim.engine.compile.door import helper, section
from sim.engine.core.calendar import put, size_of
from sim.engine.core.nodes import free_node, new_node
from sim.engine.core.state import WOKEN
from sim.engine.core.status import FAR, NONE
from sim.program.contract import UNBOUNDED

GONE_ON, DELIVERED = 0, 1
"""Lists of returns of a room."""


@helper
def channel_of(program, hop):
    """The channel of a kind of hop at its server."""
    return np.int64(program.hop_channel[hop]) if program.channels > 1 else np.int64(0)


@helper
def _room_of(program, server, channel):
    return server if program.buffer_shared else server + program.server_rate.size * channel


@helper
def _collect(state, room, of):
    """Collect the returns of a list of the room that are due; returns the time of the next one."""
    its = state.returned[2 * room + of]
    first = its.first
    while first != NONE and state.returns[first].due_ps <= state.run.now_ps:
        state.rooms[room].taken -= state.returns[first].work
        after = state.returns[first].next
        free_node(state, first)
        first = after
    its.first = first
    return FAR if first == NONE else state.returns[first].due_ps


@helper
def _set_alarm(program, state, server, room, time):
    """Let the server of a room choose again at a time, unless it will before that."""
    its = state.rooms[room]
    if its.alarm_ps <= state.run.now_ps or time < its.alarm_ps:
        its.alarm_ps = time
        put(program, state, time, server, np.int64(WOKEN), NONE)


@section
def _fits_now(program, state, server, room, work, limit):
    next_ps = min(_collect(state, room, GONE_ON), _collect(state, room, DELIVERED))
    if state.rooms[room].taken + work <= limit:
        return True
    state.rooms[room].wanted = 1
    if program.detour_ptr.size > 0 and not program.buffer_shared:
        # Whichever room is given back makes the server look, and what waits for this one may take another route then.
        for channel in range(program.channels):
            other = _room_of(program, server, channel)
            state.rooms[other].wanted = 1
            next_ps = min(next_ps, _collect(state, other, GONE_ON), _collect(state, other, DELIVERED))
    if next_ps != FAR:
        _set_alarm(program, state, server, room, next_ps)
    return False


@helper
def fits(program, state, server, channel, place):
    """Whether a server has room behind it for a chunk of a channel; if not, an alarm is set."""
    if program.server_buffer.size == 0:
        return True
    limit = program.server_buffer[server + program.server_rate.size * channel]
    room = _room_of(program, server, channel)
    work = program.chunk_work[size_of(place)]
    if state.rooms[room].taken + work <= limit:
        return True
    return _fits_now(program, state, server, room, work, limit)


@helper
def change_rooms(program, state, server, hop, place, begins, last, lost, end, ready):
    """A service is committed: its chunk takes room behind the server, and gives back what it held before.

    `lost`: the chunk does not leave the server, and gives back what it takes.
    """
    if program.server_buffer.size == 0:
        return
    if program.server_buffer[server] != UNBOUNDED:
        its = state.rooms[_room_of(program, server, channel_of(program, hop))]
        its.taken += program.chunk_work[size_of(place)]
        its.wanted = 0
    if not begins:
        give_back_before(program, state, place, end)
    if lost:
        _give_back(program, state, hop, place, end, GONE_ON)
    elif last:
        _give_back(program, state, hop, place, ready, DELIVERED)


@helper
def give_back_before(program, state, place, time):
    """Note when a server will know that a chunk, which is not at the first hop of its route, has left the next one."""
    before = place - (np.int64(1) << 32)
    _give_back(program, state, np.int64(program.route_hop[before >> 32]), before, time, GONE_ON)


@helper
def _give_back(program, state, hop, place, time, of):
    """Note when a server will know that a chunk has gone on from a hop of it, or has been delivered."""
    server = np.int64(program.hop_server[hop])
    if program.server_buffer.size == 0 or program.server_buffer[server] == UNBOUNDED:
        return
    room = _room_of(program, server, channel_of(program, hop))
    _collect(state, room, of)
    known_ps = time + program.server_credit_ps[server]
    node = new_node(state, known_ps, program.chunk_work[size_of(place)])
    its, after = state.returned[2 * room + of], np.int64(NONE)
    before = np.int64(NONE) if its.first == NONE else its.last
    while before != NONE and state.returns[before].due_ps > known_ps:
        after, before = before, np.int64(NONE) if before == its.first else state.returns[before].previous
    state.returns[node].next, state.returns[node].previous = after, before
    if before == NONE:
        its.first = node
    else:
        state.returns[before].next = node
    if after == NONE:
        its.last = node
    else:
        state.returns[after].previous = node
    if state.rooms[room].wanted:
        _set_alarm(program, state, server, room, known_ps)
