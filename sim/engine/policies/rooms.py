"""Room behind servers in the fifo loop: a chunk takes it when its service starts, and gives it back later.

When a chunk gives its room back is known as soon as the service that frees it is committed. Such a *return* is a node
of core/nodes.py. A room has two lists of them, in the order of time: of chunks that go on, and of chunks that
are delivered. Each list grows nearly in order, so that the place of a new return is sought from the end. Returns that
are due are collected when another one joins the list, and when a chunk does not fit. A return is an event, at which the
server chooses again, only if a chunk did not fit.

Rooms are numbered like the buffers of the program: server s and channel c have room s + c S. Channels that share a
buffer use the room of channel 0.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.nodes import free_node, let_next, let_previous, new_node, next_node, previous_node, word_of
from sim.engine.core.state import NOW, WOKEN
from sim.engine.core.status import FAR, NONE
from sim.program.contract import UNBOUNDED

# Words of a room: first and last return of chunks that go on, and of those that are delivered; when its alarm rings;
# whether a chunk did not fit; work of the chunks that hold it, returns that were not collected yet included.
FIRST, LAST, FIRST_DELIVERED, LAST_DELIVERED, ALARM_PS, WANTED, TAKEN, ROOM_WORDS = range(8)
# Words of a return.
DUE_PS, WORK = 1, 2


@helper
def channel_of(program, hop):
    """The channel of a kind of hop at its server."""
    return np.int64(program.hop_channel[u64(hop)]) if program.channels > 1 else np.int64(0)


@helper
def _room_of(program, server, channel):
    """Where the words of the buffer of a channel are."""
    return ROOM_WORDS * (server if program.buffer_shared else server + program.server_rate.size * channel)


@helper
def _collect(state, room, of):
    """Collect the returns that are due, of the list at a word of the room; returns the time of the next one."""
    words = state.room
    first = words[u64(room + of)]
    while first != NONE and state.node[word_of(first, DUE_PS)] <= state.register[NOW]:
        words[u64(room + TAKEN)] -= state.node[word_of(first, WORK)]
        after = next_node(state, first)
        free_node(state, first)
        first = after
    words[u64(room + of)] = first
    return FAR if first == NONE else state.node[word_of(first, DUE_PS)]


@helper
def _set_alarm(program, state, server, room, time):
    """Let the server of a room choose again at a time, unless it will before that."""
    alarm_ps = state.room[u64(room + ALARM_PS)]
    if alarm_ps <= state.register[NOW] or time < alarm_ps:
        state.room[u64(room + ALARM_PS)] = time
        put(program, state, time, server, np.int64(WOKEN), NONE)


@section
def _fits_now(program, state, server, room, work, limit):
    next_ps = min(_collect(state, room, FIRST), _collect(state, room, FIRST_DELIVERED))
    if state.room[u64(room + TAKEN)] + work <= limit:
        return True
    state.room[u64(room + WANTED)] = 1
    if next_ps != FAR:
        _set_alarm(program, state, server, room, next_ps)
    return False


@helper
def fits(program, state, server, channel, place):
    """Whether a server has room behind it for a chunk of a channel; if not, an alarm is set."""
    if program.server_buffer.size == 0:
        return True
    limit = program.server_buffer[u64(server + program.server_rate.size * channel)]
    room = _room_of(program, server, channel)
    work = program.chunk_work[u64(size_of(place))]
    if state.room[u64(room + TAKEN)] + work <= limit:
        return True
    return _fits_now(program, state, server, room, work, limit)


@helper
def change_rooms(program, state, server, hop, place, begins, last, lost, end, ready):
    """A service is committed: its chunk takes room behind the server, and gives back what it held before.

    `lost`: the chunk does not leave the server, and gives back what it takes.
    """
    if program.server_buffer.size == 0:
        return
    if program.server_buffer[u64(server)] != UNBOUNDED:
        room = _room_of(program, server, channel_of(program, hop))
        state.room[u64(room + TAKEN)] += program.chunk_work[u64(size_of(place))]
        state.room[u64(room + WANTED)] = 0
    if not begins:
        give_back_before(program, state, place, end)
    if lost:
        _give_back(program, state, hop, place, end, FIRST)
    elif last:
        _give_back(program, state, hop, place, ready, FIRST_DELIVERED)


@helper
def give_back_before(program, state, place, time):
    """Note when a server will know that a chunk, which is not at the first hop of its route, has left the next one."""
    before = place - (np.int64(1) << 32)
    _give_back(program, state, np.int64(program.route_hop[u64(before >> 32)]), before, time, FIRST)


@helper
def _give_back(program, state, hop, place, time, of):
    """Note when a server will know that a chunk has gone on from a hop of it, or has been delivered."""
    server = np.int64(program.hop_server[u64(hop)])
    if program.server_buffer.size == 0 or program.server_buffer[u64(server)] == UNBOUNDED:
        return
    words, room = state.room, _room_of(program, server, channel_of(program, hop))
    _collect(state, room, of)
    known_ps = time + program.server_credit_ps[u64(server)]
    node = new_node(state, known_ps, program.chunk_work[u64(size_of(place))])
    first, after = words[u64(room + of)], np.int64(NONE)
    before = np.int64(NONE) if first == NONE else words[u64(room + of + 1)]
    while before != NONE and state.node[word_of(before, DUE_PS)] > known_ps:
        after, before = before, np.int64(NONE) if before == first else previous_node(state, before)
    let_next(state, node, after)
    let_previous(state, node, before)
    if before == NONE:
        words[u64(room + of)] = node
    else:
        let_next(state, before, node)
    if after == NONE:
        words[u64(room + of + 1)] = node
    else:
        let_previous(state, after, node)
    if words[u64(room + WANTED)]:
        _set_alarm(program, state, server, room, known_ps)
