"""Servers that choose when they are free, in the fifo loop: their queues, and which chunk is next.

The contract serves the least (rank, arrival, key) first. Chunks enter a queue in the order of arrival and key, so only
ranks are compared, and among equal ranks the first to come is served. The queue of a server is divided into buckets, by
the upper bits of the rank, with a bit for each that is not empty:

    one rank a bucket:      a list of nodes, from the first to the last that came; no two are ever compared
    several ranks:          a pairing heap by rank and a running number

With virtual channels each channel has buckets of its own. Queues that take turns are in policies/turns.py, the room
behind servers in policies/rooms.py; `routers`: whether there may be either.
"""

import numpy as np

from sim.engine.compile.door import count_trailing_zeros, helper, prefetch, section
from sim.engine.core.calendar import BIT, hop_of, put
from sim.engine.core.lines import _key_of, _link, _next_of
from sim.engine.core.nic_room import comes_again, leaves_unserved
from sim.engine.core.nodes import free_node, insert_by_arrival, lone, meld, new_node, without_root
from sim.engine.core.state import WOKEN
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import rank_of
from sim.engine.policies import faults, rooms, turns
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
    return server * ((state.run.buckets + 63) >> 6) + (bucket >> 6)


@helper
def _ends(state, server, bucket):
    """The first node of a bucket, or its root, and its last node."""
    return state.ends[server * state.run.buckets + bucket]


@helper
def _bucket_of(program, state, key, place, discipline, routers):
    """The bucket of a chunk: by its channel, and the upper bits of its rank."""
    bucket = rank_of(program, state, discipline, key) >> state.run.rank_shift
    if routers:
        bucket += rooms.channel_of(program, hop_of(program, place)) << state.run.bucket_bits
    return bucket


@helper
def _first_of_channel(state, server, channel):
    """The first bucket of a channel that is not empty; NONE where all are."""
    bucket, end = channel << state.run.bucket_bits, (channel + 1) << state.run.bucket_bits
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
    words = (state.run.buckets + 63) >> 6
    word = server * words
    while state.filled[word] == 0:
        word += 1
    return (word - server * words) * 64 + count_trailing_zeros(state.filled[word])


@helper
def _wait(state, server, bucket, rank, node, faulty):
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
    node = lone(state, node, rank if faulty else (rank << NUMBER_BITS) | run.number)
    run.number += 1
    ends.first = node if empty else meld(state, ends.first, node, faulty)


@helper
def _take(state, server, bucket, faulty):
    """Take the node that is served first out of a bucket."""
    ends = _ends(state, server, bucket)
    node = ends.first
    rest = state.nodes[node].next if state.run.rank_shift == 0 else without_root(state, node, faulty)
    ends.first = rest
    if rest == NONE:
        state.filled[_word(state, server, bucket)] &= ~BIT[bucket & 63]
    return node


@section
def _put_back(program, state, server, node):
    """Let a chunk that was first in a queue wait in its place again, which may be another one: its hop has changed."""
    key, place = state.nodes[node].key, state.nodes[node].place
    discipline = program.server_discipline[server]
    rank = rank_of(program, state, discipline, key)
    bucket = _bucket_of(program, state, key, place, discipline, True)
    ends = _ends(state, server, bucket)
    state.nodes[node].next = NONE
    if state.run.rank_shift > 0 or state.filled[_word(state, server, bucket)] & BIT[bucket & 63] == 0:
        _wait(state, server, bucket, rank, node, True)
        return
    insert_by_arrival(state, ends, node)


@helper
def _takes_detour(program, state, server, bucket):
    """Whether the first chunk of a queue takes another route: it stays at this server, or leaves for another one."""
    if program.detour_ptr.size == 0:
        return False
    node = _ends(state, server, bucket).first
    if not faults.changes_route(program, state, node):
        return False
    _take(state, server, bucket, True)
    if faults.stays(program, state, server, node):
        _put_back(program, state, server, node)
    else:
        state.choices[server].waiting -= 1
    return True


@helper
def _look_at_channels(program, state, server, discipline, faulty):
    """The queue of the next channel whose first chunk has room; NONE where none may start, or CHANGED."""
    after = np.int64(state.channel[server])
    for _ in range(program.channels):
        channel, after = after, np.int64(0) if after + 1 == program.channels else after + 1
        if discipline >= ROUND_ROBIN_FLOW:
            queue = turns.look_in_turn(program, state, server, channel, faulty)
            if queue != NONE:
                return queue
            continue
        bucket = _first_of_channel(state, server, channel)
        if bucket != NONE:
            if faulty and _takes_detour(program, state, server, bucket):
                return np.int64(turns.CHANGED)
            node = _ends(state, server, bucket).first
            if rooms.fits(program, state, server, channel, state.nodes[node].place):
                return bucket
    return np.int64(NONE)


@helper
def _look(program, state, server, discipline, routers, faulty):
    """The queue whose first chunk a free server serves next; something waits. NONE where none may start, or CHANGED."""
    if routers and program.channels > 1:
        return _look_at_channels(program, state, server, discipline, faulty)
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return turns.look_in_turn(program, state, server, np.int64(0), faulty)
    bucket = _first_bucket(state, server)
    if faulty and _takes_detour(program, state, server, bucket):
        return np.int64(turns.CHANGED)
    node = _ends(state, server, bucket).first
    if routers and not rooms.fits(program, state, server, np.int64(0), state.nodes[node].place):
        return np.int64(NONE)
    return bucket


@helper
def _first_in(state, server, discipline, queue, routers):
    """The first chunk of a queue."""
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return turns.first_in_turn(state, queue)
    return _ends(state, server, queue).first


@helper
def _take_from(program, state, server, discipline, queue, routers, faulty):
    """Take the first chunk out of a queue, whose channel has had its turn then."""
    if routers and program.channels > 1:
        node = _first_in(state, server, discipline, queue, routers)
        channel = rooms.channel_of(program, hop_of(program, state.nodes[node].place))
        state.channel[server] = 0 if channel + 1 == program.channels else channel + 1
    if routers and discipline >= ROUND_ROBIN_FLOW:
        return turns.take_in_turn(program, state, queue)
    return _take(state, server, queue, faulty)


@helper
def _may_pass(program, state, server, discipline, event):
    """Whether a chunk that arrives at a free server without a queue may start; if so, its channel had its turn."""
    if discipline >= ROUND_ROBIN_FLOW:
        return False
    channel = rooms.channel_of(program, state.events[event].time_ps & _LOW)
    if not rooms.fits(program, state, server, channel, state.events[event].place):
        return False
    if program.channels > 1:
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
def _line_joins(program, state, server, discipline, event, routers, faulty):
    """Let the line that begins with an event join the queue. Returns whether there were nodes enough for all of it."""
    while event != NONE:
        key, place = _key_of(state, event), state.events[event].place
        if key != WAKE:
            if state.run.free_nodes < faults.SPARE_NODES:
                state.servers[server].line = (event << 32) | (state.servers[server].line & _LOW)
                return False
            state.choices[server].waiting += 1
            node = new_node(state, key, place)
            if faulty:
                state.node_since[node] = state.run.now_ps
                if faults.was_lost(place):
                    comes_again(program, state, server, place)
            if routers and discipline >= ROUND_ROBIN_FLOW:
                turns.line_up(program, state, server, node, faulty)
            else:
                rank = rank_of(program, state, discipline, key)
                bucket = _bucket_of(program, state, key, place, discipline, routers)
                _wait(state, server, bucket, rank, node, faulty)
        event = _next_of(state, event)
    return True


@helper
def _as_event(program, state, node, event):
    """Put what a node has into an event, and give it back."""
    place = state.nodes[node].place
    its = state.events[event]
    its.time_ps, its.key, its.place = hop_of(program, place), state.nodes[node].key, place
    free_node(state, node)
    return event


@helper
def choose(program, state, server, event, routers):
    """Let the line that begins with an event join the queue, and take what the server serves now, as an event or NONE.

    SHORT: there are too few nodes left; the rest of the line is still to join.
    """
    run, choice = state.run, state.choices[server]
    discipline = program.server_discipline[server]
    free = state.servers[server].free_ps <= run.now_ps
    alone = choice.waiting == 0 and _next_of(state, event) == NONE and _key_of(state, event) != WAKE
    if free and alone and (not routers or _may_pass(program, state, server, discipline, event)):
        return event
    if not _line_joins(program, state, server, discipline, event, routers, False):
        return np.int64(SHORT)
    if not free or choice.waiting == 0:
        return np.int64(NONE)
    queue = _look(program, state, server, discipline, routers, False)
    if routers and queue == NONE:
        return queue
    choice.waiting -= 1
    return _as_event(program, state, _take_from(program, state, server, discipline, queue, routers, False), event)


@section
def choose_under_faults(program, state, server, event):
    """As `choose`, of a server on which something may go wrong. It may return SHORT between any two steps."""
    run, choice = state.run, state.choices[server]
    discipline = program.server_discipline[server]
    if not _line_joins(program, state, server, discipline, event, True, True):
        return np.int64(SHORT)
    # What is left of the line is to choose, so that a call after SHORT goes on from here.
    state.events[event].key = WAKE
    state.servers[server].line = (event << 32) | event
    _link(state, event, NONE)
    if state.servers[server].free_ps > run.now_ps or choice.waiting == 0:
        return np.int64(NONE)
    if faults.is_down(program, state, server):
        if faults.drops(program, server):
            return _lose_all(program, state, server, discipline)
        faults.sleep(state, server, faults.next_up(program, state, server))
        return np.int64(NONE)
    queue = np.int64(turns.CHANGED)
    while queue == turns.CHANGED:
        if choice.waiting == 0:
            return np.int64(NONE)
        if not faults.has_space(state, run.most):
            return np.int64(SHORT)
        queue = _look(program, state, server, discipline, True, True)
    if queue == NONE:
        _look_when_down(program, state, server)
        return queue
    node = _first_in(state, server, discipline, queue, True)
    until = faults.sleeps_until(program, state, server, state.nodes[node].key, state.nodes[node].place)
    if until > 0:
        faults.sleep(state, server, until)
        return np.int64(NONE)
    choice.waiting -= 1
    node = _take_from(program, state, server, discipline, queue, True, True)
    run.arrived_ps = state.node_since[node]
    return _as_event(program, state, node, event)


@helper
def _look_when_down(program, state, server):
    """A server that waits for room looks again when it goes down, if it then loses what waits."""
    if program.timetable_ptr.size and faults.drops(program, server):
        down = faults.next_down(program, state, server)
        if down != FAR and state.choices[server].wake_ps != down:
            state.choices[server].wake_ps = down
            put(program, state, down, server, np.int64(WOKEN), NONE)


@helper
def _lose_all(program, state, server, discipline):
    """Lose what waits at a server that is down. Returns NONE, or SHORT before all is lost."""
    run, choice = state.run, state.choices[server]
    while choice.waiting > 0:
        if not faults.has_space(state, run.most):
            return np.int64(SHORT)
        if discipline >= ROUND_ROBIN_FLOW:
            node = turns.take_any(program, state, server)
        else:
            node = _take(state, server, _first_bucket(state, server), True)
        choice.waiting -= 1
        key, place = state.nodes[node].key, state.nodes[node].place
        run.arrived_ps = state.node_since[node]
        free_node(state, node)
        faults.lose(program, state, server, key, place, run.now_ps, run.now_ps)
        if not faults.begins_at(program, place >> 32):
            rooms.give_back_before(program, state, place, run.now_ps)
        elif program.server_nic[server] != NONE:
            leaves_unserved(program, state, server, place)
    if discipline >= ROUND_ROBIN_FLOW:
        turns.leave_lines(program, state, server)
    return np.int64(NONE)


@helper
def wake(program, state, server, routers, faulty):
    """Have a server with waiting chunks choose when it is free, unless it injects another chunk then."""
    choice, free_ps = state.choices[server], state.servers[server].free_ps
    if choice.waiting == 0 or choice.wake_ps == free_ps:
        return
    if routers and free_ps <= state.run.now_ps:
        return  # it waits for room
    if faulty and free_ps == FAR:
        return  # it is down for good
    choice.wake_ps = free_ps
    if not routers or program.server_discipline[server] < ROUND_ROBIN_FLOW:
        prefetch(state.nodes, _ends(state, server, _first_bucket(state, server)).first)
    put(program, state, free_ps, server, np.int64(WOKEN), NONE)
