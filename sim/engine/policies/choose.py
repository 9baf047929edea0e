"""Servers that choose when they are free, in the fifo loop: their queues, and which chunk is next.

The contract serves the least (rank, arrival, key) first. Chunks enter a queue in the order of arrival and key, so only
ranks are compared, and among equal ranks the first to come is served. The queue of a server is divided into BUCKETS, by
the upper bits of the rank, with a bit for each that is not empty:

    one rank a bucket:      a list of nodes, from the first to the last that came; no two are ever compared
    several ranks:          a pairing heap by rank and a running number

A fifo server with several channels in use has a bucket for each channel. Queues that take turns are in
policies/turns.py, the room behind servers in policies/rooms.py; `routers`: whether there may be either.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper, prefetch, u64
from sim.engine.core.calendar import BIT, hop_of, put
from sim.engine.core.lines import _key_of, _link, _next_of
from sim.engine.core.nodes import free_node, let_next, lone, meld, new_node, next_node, without_root, word_of
from sim.engine.core.state import (
    BUCKETS,
    CHOICE_WORDS,
    EVENT_WORDS,
    FREE_NODES,
    FREE_PS,
    KEY,
    LINE,
    NODE_WORDS,
    NOW,
    NUMBER,
    PLACE,
    RANK_SHIFT,
    SERVER_WORDS,
    STAMP_PS,
    TIME,
    TOUCHED,
    WAITING,
    WAKE_PS,
    WOKEN,
)
from sim.engine.core.status import NONE
from sim.engine.core.tasks import rank_of
from sim.engine.policies.rooms import channel_of, fits
from sim.engine.policies.turns import line_up, next_in_turn
from sim.program.contract import FIFO, ROUND_ROBIN_FLOW

NUMBER_BITS = 40
WAKE = -1
"""In place of a key: the server is to choose, and no chunk arrives. It comes before every key."""
SHORT = -2
"""In place of an event: there are too few nodes left."""
SPARE_NODES = 3
"""Nodes that must be free before a service: for a chunk that waits, and two returns of room."""
_LOW = (1 << 32) - 1


@helper
def _word(state, server, bucket):
    """Where the bit of a bucket is."""
    return u64(server * ((state.register[BUCKETS] + 63) >> 6) + (bucket >> 6))


@helper
def _ends(state, server, bucket):
    """Where the first node of a bucket is, or its root; the last node is next to it."""
    return u64(2 * (server * state.register[BUCKETS] + bucket))


@helper
def _first_bucket(state, server):
    """The first bucket of a server that is not empty; there is one."""
    words = (state.register[BUCKETS] + 63) >> 6
    word = server * words
    while state.filled[u64(word)] == 0:
        word += 1
    return (word - server * words) * 64 + count_trailing_zeros(state.filled[u64(word)])


@helper
def _wait(state, server, bucket, rank, node):
    """Let a chunk that arrives now wait at a server."""
    register = state.register
    word, bit, ends = _word(state, server, bucket), BIT[u64(bucket & 63)], _ends(state, server, bucket)
    empty = state.filled[word] & bit == 0
    state.filled[word] |= bit
    if register[RANK_SHIFT] == 0:
        if empty:
            state.ends[ends] = node
        else:
            let_next(state, np.int64(state.ends[ends + u64(1)]), node)
        state.ends[ends + u64(1)] = node
        return
    node = lone(state, node, (rank << NUMBER_BITS) | register[NUMBER])
    register[NUMBER] += 1
    state.ends[ends] = node if empty else meld(state, np.int64(state.ends[ends]), node)


@helper
def _take(state, server, bucket):
    """Take the node that is served first out of a bucket."""
    ends = _ends(state, server, bucket)
    node = np.int64(state.ends[ends])
    rest = next_node(state, node) if state.register[RANK_SHIFT] == 0 else without_root(state, node)
    state.ends[ends] = rest
    if rest == NONE:
        state.filled[_word(state, server, bucket)] &= ~BIT[u64(bucket & 63)]
    return node


@helper
def _next_of_channels(program, state, server):
    """Take the first chunk of the next channel that has one with room for it; NONE where none may start."""
    channel = np.int64(state.channel[u64(server)])
    for _ in range(program.channels):
        bucket, channel = channel, np.int64(0) if channel + 1 == program.channels else channel + 1
        if state.filled[_word(state, server, bucket)] & BIT[u64(bucket & 63)] != 0:
            node = np.int64(state.ends[_ends(state, server, bucket)])
            if fits(program, state, server, bucket, state.node[word_of(node, PLACE)]):
                state.channel[u64(server)] = channel
                return _take(state, server, bucket)
    return np.int64(NONE)


@helper
def _next(program, state, server, discipline, routers):
    """Take what a free server serves next out of its queue, in which something waits; NONE where none may start."""
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return next_in_turn(program, state, server)
    if routers and discipline == FIFO and program.channels > 1:
        return _next_of_channels(program, state, server)
    bucket = _first_bucket(state, server)
    node = np.int64(state.ends[_ends(state, server, bucket)])
    if routers and not fits(program, state, server, np.int64(0), state.node[word_of(node, PLACE)]):
        return np.int64(NONE)
    return _take(state, server, bucket)


@helper
def _may_pass(program, state, server, discipline, event):
    """Whether a chunk that arrives at a free server without a queue may start; if so, its channel had its turn."""
    if discipline >= ROUND_ROBIN_FLOW:
        return False
    channel = channel_of(program, state.event[u64(EVENT_WORDS * event + TIME)] & _LOW)
    if not fits(program, state, server, channel, state.event[u64(EVENT_WORDS * event + PLACE)]):
        return False
    if program.channels > 1 and discipline == FIFO:
        state.channel[u64(server)] = 0 if channel + 1 == program.channels else channel + 1
    return True


@helper
def look_at(state, event):
    """Let a server choose again; unless something arrived there already, the event becomes a line without a chunk."""
    register, base = state.register, SERVER_WORDS * state.event[u64(EVENT_WORDS * event + KEY)]
    if state.server[u64(base + STAMP_PS)] != register[NOW]:
        state.server[u64(base + STAMP_PS)] = register[NOW]
        state.touched[u64(register[TOUCHED])] = state.event[u64(EVENT_WORDS * event + KEY)]
        register[TOUCHED] += 1
        state.server[u64(base + LINE)] = (event << 32) | event
        state.event[u64(EVENT_WORDS * event + KEY)] = WAKE
        _link(state, event, NONE)


@helper
def choose(program, state, server, event, routers):
    """Let the line that begins with an event join the queue, and take what the server serves now, as an event or NONE.

    SHORT: there are too few nodes left; the rest of the line is still to join.
    """
    register, choice, chosen = state.register, u64(CHOICE_WORDS * server + WAITING), event
    discipline = program.server_discipline[u64(server)]
    free = state.server[u64(SERVER_WORDS * server + FREE_PS)] <= register[NOW]
    alone = state.choice[choice] == 0 and _next_of(state, event) == NONE and _key_of(state, event) != WAKE
    if free and alone and (not routers or _may_pass(program, state, server, discipline, event)):
        return event
    while event != NONE:
        key, place = _key_of(state, event), state.event[u64(EVENT_WORDS * event + PLACE)]
        if key != WAKE:
            if register[FREE_NODES] < SPARE_NODES:
                line = u64(SERVER_WORDS * server + LINE)
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return np.int64(SHORT)
            state.choice[choice] += 1
            node = new_node(state, key, place)
            if routers and discipline >= ROUND_ROBIN_FLOW:
                line_up(program, state, server, node)
            else:
                rank = rank_of(program, state, discipline, key)
                bucket = rank >> register[RANK_SHIFT]
                if routers and discipline == FIFO:
                    bucket = channel_of(program, hop_of(program, place))
                _wait(state, server, bucket, rank, node)
        event = _next_of(state, event)
    if not free or state.choice[choice] == 0:
        return np.int64(NONE)
    node = _next(program, state, server, discipline, routers)
    if routers and node == NONE:
        return node
    state.choice[choice] -= 1
    place = state.node[word_of(node, PLACE)]
    state.event[u64(EVENT_WORDS * chosen + TIME)] = hop_of(program, place)
    state.event[u64(EVENT_WORDS * chosen + KEY)] = state.node[word_of(node, KEY)]
    state.event[u64(EVENT_WORDS * chosen + PLACE)] = place
    free_node(state, node)
    return chosen


@helper
def wake(program, state, server, routers):
    """Have a server with waiting chunks choose when it is free, unless it injects another chunk then."""
    choice, free_ps = u64(CHOICE_WORDS * server), state.server[u64(SERVER_WORDS * server + FREE_PS)]
    if state.choice[choice + u64(WAITING)] == 0 or state.choice[choice + u64(WAKE_PS)] == free_ps:
        return
    if routers and free_ps <= state.register[NOW]:
        return  # it waits for room
    state.choice[choice + u64(WAKE_PS)] = free_ps
    if not routers or program.server_discipline[u64(server)] < ROUND_ROBIN_FLOW:
        prefetch(state.node, NODE_WORDS * np.int64(state.ends[_ends(state, server, _first_bucket(state, server))]))
    put(program, state, free_ps, server, np.int64(WOKEN), NONE)
