"""Servers that choose when they are free, in the fifo loop: their queues, and which chunk is next.

The contract serves the least (rank, arrival, key) first. Chunks enter a queue in the order of arrival and key, so only
ranks are compared, and among equal ranks the first to come is served. The queue of a server is divided into BUCKETS, by
the upper bits of the rank, with a bit for each that is not empty:

    one rank a bucket:      a list of nodes, from the first to the last that came; no two are ever compared
    several ranks:          a pairing heap by rank and a running number

With virtual channels each channel has buckets of its own. Queues that take turns are in
policies/turns.py, the room behind servers in policies/rooms.py; `routers`: whether there may be either.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper, prefetch, section, u64
from sim.engine.core.calendar import BIT, hop_of, put
from sim.engine.core.lines import _key_of, _link, _next_of
from sim.engine.core.nic_room import comes_again, leaves_unserved
from sim.engine.core.nodes import free_node, let_next, lone, meld, new_node, next_node, without_root, word_of
from sim.engine.core.state import (
    ARRIVED_PS,
    BUCKET_BITS,
    BUCKETS,
    CHOICE_WORDS,
    EVENT_WORDS,
    FREE_NODES,
    FREE_PS,
    KEY,
    LINE,
    MOST,
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
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import rank_of
from sim.engine.policies.detours import changes_route, stays
from sim.engine.policies.faults import (
    SPARE_NODES,
    begins_at,
    drops,
    has_space,
    is_down,
    lose,
    next_down,
    next_up,
    sleep,
    sleeps_until,
    was_lost,
)
from sim.engine.policies.rooms import channel_of, fits, give_back_before
from sim.engine.policies.turns import CHANGED, first_in_turn, leave_lines, line_up, look_in_turn, take_any, take_in_turn
from sim.program.contract import ROUND_ROBIN_FLOW

NUMBER_BITS = 40
WAKE = -1
"""In place of a key: the server is to choose, and no chunk arrives. It comes before every key."""
SHORT = -2
"""In place of an event: there is not enough memory left."""
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
def _bucket_of(program, state, key, place, discipline, routers):
    """The bucket of a chunk: by its channel, and the upper bits of its rank."""
    bucket = rank_of(program, state, discipline, key) >> state.register[RANK_SHIFT]
    if routers:
        bucket += channel_of(program, hop_of(program, place)) << state.register[BUCKET_BITS]
    return bucket


@helper
def _first_of_channel(state, server, channel):
    """The first bucket of a channel that is not empty; NONE where all are."""
    bucket, end = channel << state.register[BUCKET_BITS], (channel + 1) << state.register[BUCKET_BITS]
    while bucket < end:
        word = state.filled[_word(state, server, bucket)] >> (bucket & 63)
        if word != 0:
            bucket += count_trailing_zeros(word)
            return bucket if bucket < end else np.int64(NONE)
        bucket = (bucket | 63) + 1
    return np.int64(NONE)


@helper
def _first_bucket(state, server):
    """The first bucket of a server that is not empty; there is one."""
    words = (state.register[BUCKETS] + 63) >> 6
    word = server * words
    while state.filled[u64(word)] == 0:
        word += 1
    return (word - server * words) * 64 + count_trailing_zeros(state.filled[u64(word)])


@helper
def _wait(state, server, bucket, rank, node, faulty):
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
    node = lone(state, node, rank if faulty else (rank << NUMBER_BITS) | register[NUMBER])
    register[NUMBER] += 1
    state.ends[ends] = node if empty else meld(state, np.int64(state.ends[ends]), node, faulty)


@helper
def _take(state, server, bucket, faulty):
    """Take the node that is served first out of a bucket."""
    ends = _ends(state, server, bucket)
    node = np.int64(state.ends[ends])
    rest = next_node(state, node) if state.register[RANK_SHIFT] == 0 else without_root(state, node, faulty)
    state.ends[ends] = rest
    if rest == NONE:
        state.filled[_word(state, server, bucket)] &= ~BIT[u64(bucket & 63)]
    return node


@section
def _put_back(program, state, server, node):
    """Let a chunk that was first in a queue wait in its place again, which may be another one: its hop has changed."""
    key, place = state.node[word_of(node, KEY)], state.node[word_of(node, PLACE)]
    discipline = program.server_discipline[u64(server)]
    rank = rank_of(program, state, discipline, key)
    bucket = _bucket_of(program, state, key, place, discipline, True)
    ends = _ends(state, server, bucket)
    let_next(state, node, NONE)
    if state.register[RANK_SHIFT] > 0 or state.filled[_word(state, server, bucket)] & BIT[u64(bucket & 63)] == 0:
        _wait(state, server, bucket, rank, node, True)
        return
    since, before, behind = state.node_since[u64(node)], np.int64(NONE), np.int64(state.ends[ends])
    while behind != NONE and (
        state.node_since[u64(behind)] < since
        or (state.node_since[u64(behind)] == since and state.node[word_of(behind, KEY)] < key)
    ):
        before, behind = behind, next_node(state, behind)
    let_next(state, node, behind)
    if before == NONE:
        state.ends[ends] = node
    else:
        let_next(state, before, node)
    if behind == NONE:
        state.ends[ends + u64(1)] = node


@helper
def _takes_detour(program, state, server, bucket):
    """Whether the first chunk of a queue takes another route: it stays at this server, or leaves for another one."""
    if program.detour_ptr.size == 0:
        return False
    node = np.int64(state.ends[_ends(state, server, bucket)])
    if not changes_route(program, state, node):
        return False
    _take(state, server, bucket, True)
    if stays(program, state, server, node):
        _put_back(program, state, server, node)
    else:
        state.choice[u64(CHOICE_WORDS * server + WAITING)] -= 1
    return True


@helper
def _look_at_channels(program, state, server, discipline, faulty):
    """The queue of the next channel whose first chunk has room; NONE where none may start, or CHANGED."""
    after = np.int64(state.channel[u64(server)])
    for _ in range(program.channels):
        channel, after = after, np.int64(0) if after + 1 == program.channels else after + 1
        if discipline >= ROUND_ROBIN_FLOW:
            queue = look_in_turn(program, state, server, channel, faulty)
            if queue != NONE:
                return queue
            continue
        bucket = _first_of_channel(state, server, channel)
        if bucket != NONE:
            if faulty and _takes_detour(program, state, server, bucket):
                return np.int64(CHANGED)
            node = np.int64(state.ends[_ends(state, server, bucket)])
            if fits(program, state, server, channel, state.node[word_of(node, PLACE)]):
                return bucket
    return np.int64(NONE)


@helper
def _look(program, state, server, discipline, routers, faulty):
    """The queue whose first chunk a free server serves next; something waits. NONE where none may start, or CHANGED."""
    if routers and program.channels > 1:
        return _look_at_channels(program, state, server, discipline, faulty)
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return look_in_turn(program, state, server, np.int64(0), faulty)
    bucket = _first_bucket(state, server)
    if faulty and _takes_detour(program, state, server, bucket):
        return np.int64(CHANGED)
    node = np.int64(state.ends[_ends(state, server, bucket)])
    if routers and not fits(program, state, server, np.int64(0), state.node[word_of(node, PLACE)]):
        return np.int64(NONE)
    return bucket


@helper
def _first_in(state, server, discipline, queue, routers):
    """The first chunk of a queue."""
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return first_in_turn(state, queue)
    return np.int64(state.ends[_ends(state, server, queue)])


@helper
def _take_from(program, state, server, discipline, queue, routers, faulty):
    """Take the first chunk out of a queue, whose channel has had its turn then."""
    if routers and program.channels > 1:
        node = _first_in(state, server, discipline, queue, routers)
        channel = channel_of(program, hop_of(program, state.node[word_of(node, PLACE)]))
        state.channel[u64(server)] = 0 if channel + 1 == program.channels else channel + 1
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return take_in_turn(program, state, queue)
    return _take(state, server, queue, faulty)


@helper
def _may_pass(program, state, server, discipline, event):
    """Whether a chunk that arrives at a free server without a queue may start; if so, its channel had its turn."""
    if discipline >= ROUND_ROBIN_FLOW:
        return False
    channel = channel_of(program, state.event[u64(EVENT_WORDS * event + TIME)] & _LOW)
    if not fits(program, state, server, channel, state.event[u64(EVENT_WORDS * event + PLACE)]):
        return False
    if program.channels > 1:
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
def _line_joins(program, state, server, discipline, event, routers, faulty):
    """Let the line that begins with an event join the queue. Returns whether there were nodes enough for all of it."""
    while event != NONE:
        key, place = _key_of(state, event), state.event[u64(EVENT_WORDS * event + PLACE)]
        if key != WAKE:
            if state.register[FREE_NODES] < SPARE_NODES:
                line = u64(SERVER_WORDS * server + LINE)
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return False
            state.choice[u64(CHOICE_WORDS * server + WAITING)] += 1
            node = new_node(state, key, place)
            if faulty:
                state.node_since[u64(node)] = state.register[NOW]
                if was_lost(place):
                    comes_again(program, state, server, place)
            if routers and discipline >= ROUND_ROBIN_FLOW:
                line_up(program, state, server, node, faulty)
            else:
                rank = rank_of(program, state, discipline, key)
                bucket = _bucket_of(program, state, key, place, discipline, routers)
                _wait(state, server, bucket, rank, node, faulty)
        event = _next_of(state, event)
    return True


@helper
def _as_event(program, state, node, event):
    """Put what a node has into an event, and give it back."""
    place = state.node[word_of(node, PLACE)]
    state.event[u64(EVENT_WORDS * event + TIME)] = hop_of(program, place)
    state.event[u64(EVENT_WORDS * event + KEY)] = state.node[word_of(node, KEY)]
    state.event[u64(EVENT_WORDS * event + PLACE)] = place
    free_node(state, node)
    return event


@helper
def choose(program, state, server, event, routers):
    """Let the line that begins with an event join the queue, and take what the server serves now, as an event or NONE.

    SHORT: there are too few nodes left; the rest of the line is still to join.
    """
    register, choice = state.register, u64(CHOICE_WORDS * server + WAITING)
    discipline = program.server_discipline[u64(server)]
    free = state.server[u64(SERVER_WORDS * server + FREE_PS)] <= register[NOW]
    alone = state.choice[choice] == 0 and _next_of(state, event) == NONE and _key_of(state, event) != WAKE
    if free and alone and (not routers or _may_pass(program, state, server, discipline, event)):
        return event
    if not _line_joins(program, state, server, discipline, event, routers, False):
        return np.int64(SHORT)
    if not free or state.choice[choice] == 0:
        return np.int64(NONE)
    queue = _look(program, state, server, discipline, routers, False)
    if routers and queue == NONE:
        return queue
    state.choice[choice] -= 1
    return _as_event(program, state, _take_from(program, state, server, discipline, queue, routers, False), event)


@section
def choose_under_faults(program, state, server, event):
    """As `choose`, of a server on which something may go wrong. It may return SHORT between any two steps."""
    register, choice = state.register, u64(CHOICE_WORDS * server + WAITING)
    discipline = program.server_discipline[u64(server)]
    if not _line_joins(program, state, server, discipline, event, True, True):
        return np.int64(SHORT)
    # What is left of the line is to choose, so that a call after SHORT goes on from here.
    state.event[u64(EVENT_WORDS * event + KEY)] = WAKE
    state.server[u64(SERVER_WORDS * server + LINE)] = (event << 32) | event
    _link(state, event, NONE)
    if state.server[u64(SERVER_WORDS * server + FREE_PS)] > register[NOW] or state.choice[choice] == 0:
        return np.int64(NONE)
    if is_down(program, state, server):
        if drops(program, server):
            return _lose_all(program, state, server, discipline)
        sleep(state, server, next_up(program, state, server))
        return np.int64(NONE)
    queue = np.int64(CHANGED)
    while queue == CHANGED:
        if state.choice[choice] == 0:
            return np.int64(NONE)
        if not has_space(state, register[MOST]):
            return np.int64(SHORT)
        queue = _look(program, state, server, discipline, True, True)
    if queue == NONE:
        _look_when_down(program, state, server)
        return queue
    node = _first_in(state, server, discipline, queue, True)
    until = sleeps_until(
        program, state, server, state.node[word_of(node, KEY)], state.node[word_of(node, PLACE)]
    )
    if until > 0:
        sleep(state, server, until)
        return np.int64(NONE)
    state.choice[choice] -= 1
    node = _take_from(program, state, server, discipline, queue, True, True)
    register[ARRIVED_PS] = state.node_since[u64(node)]
    return _as_event(program, state, node, event)


@helper
def _look_when_down(program, state, server):
    """A server that waits for room looks again when it goes down, if it then loses what waits."""
    if program.timetable_ptr.size and drops(program, server):
        down = next_down(program, state, server)
        if down != FAR and state.choice[u64(CHOICE_WORDS * server + WAKE_PS)] != down:
            state.choice[u64(CHOICE_WORDS * server + WAKE_PS)] = down
            put(program, state, down, server, np.int64(WOKEN), NONE)


@helper
def _lose_all(program, state, server, discipline):
    """Lose what waits at a server that is down. Returns NONE, or SHORT before all is lost."""
    register, choice = state.register, u64(CHOICE_WORDS * server + WAITING)
    while state.choice[choice] > 0:
        if not has_space(state, register[MOST]):
            return np.int64(SHORT)
        if discipline >= ROUND_ROBIN_FLOW:
            node = take_any(program, state, server)
        else:
            node = _take(state, server, _first_bucket(state, server), True)
        state.choice[choice] -= 1
        key, place = state.node[word_of(node, KEY)], state.node[word_of(node, PLACE)]
        register[ARRIVED_PS] = state.node_since[u64(node)]
        free_node(state, node)
        lose(program, state, server, key, place, register[NOW], register[NOW])
        if not begins_at(program, place >> 32):
            give_back_before(program, state, place, register[NOW])
        elif program.server_nic[u64(server)] != NONE:
            leaves_unserved(program, state, server, place)
    if discipline >= ROUND_ROBIN_FLOW:
        leave_lines(program, state, server)
    return np.int64(NONE)


@helper
def wake(program, state, server, routers, faulty):
    """Have a server with waiting chunks choose when it is free, unless it injects another chunk then."""
    choice, free_ps = u64(CHOICE_WORDS * server), state.server[u64(SERVER_WORDS * server + FREE_PS)]
    if state.choice[choice + u64(WAITING)] == 0 or state.choice[choice + u64(WAKE_PS)] == free_ps:
        return
    if routers and free_ps <= state.register[NOW]:
        return  # it waits for room
    if faulty and free_ps == FAR:
        return  # it is down for good
    state.choice[choice + u64(WAKE_PS)] = free_ps
    if not routers or program.server_discipline[u64(server)] < ROUND_ROBIN_FLOW:
        prefetch(state.node, NODE_WORDS * np.int64(state.ends[_ends(state, server, _first_bucket(state, server))]))
    put(program, state, free_ps, server, np.int64(WOKEN), NONE)
