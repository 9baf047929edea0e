"""Servers that choose when they are free, in the fifo loop: their queues, and which chunk is next.

The contract serves the least (rank, arrival, key) first. Chunks enter a queue in the order of arrival and key, so only
ranks are compared, and among equal ranks the first to come is served. The queue of a server is divided into buckets, by
the upper bits of the rank, with a bit for each that is not empty:

    one rank a bucket:      a list of nodes, from the first to the last that came; no two are ever compared
    several ranks:          a pairing heap by rank and a running number

A fifo server with several channels in use has a bucket for each channel. Queues that take turns are in
policies/turns.py, the room behind servers in policies/rooms.py; `routers`: whether there may be either.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper, prefetch
from sim.engine.core.calendar import BIT, hop_of, put
from sim.engine.core.lines import _key_of, _link, _next_of
from sim.engine.core.nodes import free_node, lone, meld, new_node, without_root
from sim.engine.core.state import (
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
    return server * ((state.run.buckets + 63) >> 6) + (bucket >> 6)


@helper
def _ends(state, server, bucket):
    """The first node of a bucket, or its root, and its last node."""
    return state.ends[server * state.run.buckets + bucket]


@helper
def _first_bucket(state, server):
    """The first bucket of a server that is not empty; there is one."""
    words = (state.run.buckets + 63) >> 6
    word = server * words
    while state.filled[word] == 0:
        word += 1
    return (word - server * words) * 64 + count_trailing_zeros(state.filled[word])


@helper
def _wait(state, server, bucket, rank, node):
    """Let a chunk that arrives now wait at a server."""
    run = state.run
    word, bit, ends = _word(state, server, bucket), BIT[bucket & 63], _ends(state, server, bucket)
    empty = state.filled[word] & bit == 0
    state.filled[word] |= bit
    if run.rank_shift == 0:
        if empty:
            ends.first = node
        else:
            state.nodes[ends.last].next = node
        ends.last = node
        return
    node = lone(state, node, (rank << NUMBER_BITS) | run.number)
    run.number += 1
    ends.first = node if empty else meld(state, ends.first, node)


@helper
def _take(state, server, bucket):
    """Take the node that is served first out of a bucket."""
    ends = _ends(state, server, bucket)
    node = ends.first
    rest = state.nodes[node].next if state.run.rank_shift == 0 else without_root(state, node)
    ends.first = rest
    if rest == NONE:
        state.filled[_word(state, server, bucket)] &= ~BIT[bucket & 63]
    return node


@helper
def _next_of_channels(program, state, server):
    """Take the first chunk of the next channel that has one with room for it; NONE where none may start."""
    channel = np.int64(state.channel[server])
    for _ in range(program.channels):
        bucket, channel = channel, np.int64(0) if channel + 1 == program.channels else channel + 1
        if state.filled[_word(state, server, bucket)] & BIT[bucket & 63] != 0:
            node = _ends(state, server, bucket).first
            if fits(program, state, server, bucket, state.nodes[node].place):
                state.channel[server] = channel
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
    node = _ends(state, server, bucket).first
    if routers and not fits(program, state, server, np.int64(0), state.nodes[node].place):
        return np.int64(NONE)
    return _take(state, server, bucket)


@helper
def _may_pass(program, state, server, discipline, event):
    """Whether a chunk that arrives at a free server without a queue may start; if so, its channel had its turn."""
    if discipline >= ROUND_ROBIN_FLOW:
        return False
    channel = channel_of(program, state.events[event].time_ps & _LOW)
    if not fits(program, state, server, channel, state.events[event].place):
        return False
    if program.channels > 1 and discipline == FIFO:
        state.channel[server] = 0 if channel + 1 == program.channels else channel + 1
    return True


@helper
def look_at(state, event):
    """Let a server choose again; unless something arrived there already, the event becomes a line without a chunk."""
    run, server = state.run, state.events[event].key
    its = state.servers[server]
    if its.stamp_ps != run.now_ps:
        its.stamp_ps = run.now_ps
        state.touched[run.touched] = server
        run.touched += 1
        its.line = (event << 32) | event
        state.events[event].key = WAKE
        _link(state, event, NONE)


@helper
def choose(program, state, server, event, routers):
    """Let the line that begins with an event join the queue, and take what the server serves now, as an event or NONE.

    SHORT: there are too few nodes left; the rest of the line is still to join.
    """
    run, choice, chosen = state.run, state.choices[server], event
    discipline = program.server_discipline[server]
    free = state.servers[server].free_ps <= run.now_ps
    alone = choice.waiting == 0 and _next_of(state, event) == NONE and _key_of(state, event) != WAKE
    if free and alone and (not routers or _may_pass(program, state, server, discipline, event)):
        return event
    while event != NONE:
        key, place = _key_of(state, event), state.events[event].place
        if key != WAKE:
            if run.free_nodes < SPARE_NODES:
                state.servers[server].line = (event << 32) | (state.servers[server].line & _LOW)
                return np.int64(SHORT)
            choice.waiting += 1
            node = new_node(state, key, place)
            if routers and discipline >= ROUND_ROBIN_FLOW:
                line_up(program, state, server, node)
            else:
                rank = rank_of(program, state, discipline, key)
                bucket = rank >> run.rank_shift
                if routers and discipline == FIFO:
                    bucket = channel_of(program, hop_of(program, place))
                _wait(state, server, bucket, rank, node)
        event = _next_of(state, event)
    if not free or choice.waiting == 0:
        return np.int64(NONE)
    node = _next(program, state, server, discipline, routers)
    if routers and node == NONE:
        return node
    choice.waiting -= 1
    its, place = state.events[chosen], state.nodes[node].place
    its.time_ps, its.key, its.place = hop_of(program, place), state.nodes[node].key, place
    free_node(state, node)
    return chosen


@helper
def wake(program, state, server, routers):
    """Have a server with waiting chunks choose when it is free, unless it injects another chunk then."""
    choice, free_ps = state.choices[server], state.servers[server].free_ps
    if choice.waiting == 0 or choice.wake_ps == free_ps:
        return
    if routers and free_ps <= state.run.now_ps:
        return  # it waits for room
    choice.wake_ps = free_ps
    if not routers or program.server_discipline[server] < ROUND_ROBIN_FLOW:
        prefetch(state.nodes, _ends(state, server, _first_bucket(state, server)).first)
    put(program, state, free_ps, server, np.int64(WOKEN), NONE)
