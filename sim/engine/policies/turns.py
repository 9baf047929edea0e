"""Queues that take turns at a server, in the fifo loop: lists of nodes, and of the queues that have some.

    queues: first to last, lists of nodes;  turns of a server: first to last, a list of queues by next_queue
"""

import numpy as np

from sim.engine.compile.door import helper, section
from sim.engine.core.calendar import hop_of, size_of
from sim.engine.core.nodes import insert_by_arrival
from sim.engine.core.status import NONE
from sim.engine.policies.faults import changes_route, stays
from sim.engine.policies.rooms import channel_of, fits

CHANGED = -2
"""In place of a queue: its first chunk takes another route, so that the server looks anew."""


@helper
def _line_of(program, server, channel):
    return server + program.server_rate.size * channel


@helper
def _to_the_back(state, line, queue):
    """Put a queue that is in no line at the back of one."""
    its = state.turns[line]
    if its.first == NONE:
        its.first = queue
    else:
        state.queues[its.last].next_queue = queue
    its.last = queue
    state.queues[queue].next_queue = NONE


@helper
def _queue_of(program, state, key, place, faulty):
    """The queue in which a chunk waits: that of its hop, in its own route or in a detour."""
    task = key & ((np.int64(1) << state.run.task_bits) - 1)
    if not faulty:
        hop = (key >> state.run.task_bits) & ((np.int64(1) << state.run.hop_bits) - 1)
        return np.int64(program.hop_queue[program.task_queue[task] + hop])
    route, at = np.int64(program.task_route[task]), place >> 32
    first, queue = np.int64(program.route_ptr[route]), np.int64(program.task_queue[task])
    if (at < first or at >= program.route_ptr[route + 1]) and program.detour_ptr.size:
        for row in range(program.detour_ptr[task], program.detour_ptr[task + 1]):
            other = np.int64(program.detour_route[row])
            if program.route_ptr[other] <= at < program.route_ptr[other + 1]:
                first, queue = np.int64(program.route_ptr[other]), np.int64(program.detour_queue[row])
    return np.int64(program.hop_queue[queue + at - first])


@helper
def line_up(program, state, server, node, faulty):
    """Let a chunk that arrived now join its queue, and this the line of its channel."""
    place = state.nodes[node].place
    queue = _queue_of(program, state, state.nodes[node].key, place, faulty)
    its = state.queues[queue]
    if its.first == NONE:
        its.first = node
    else:
        state.nodes[its.last].next = node
    its.last = node
    _in_line(program, state, server, queue, place)


@helper
def _in_line(program, state, server, queue, place):
    """Let a queue that has a chunk now be in the line of its channel."""
    its = state.queues[queue]
    if its.in_line == 0:
        its.in_line = 1
        its.allowance = program.server_quantum[server]
        _to_the_back(state, _line_of(program, server, channel_of(program, hop_of(program, place))), queue)


@section
def _change_channel(program, state, server, node):
    """Let a chunk that has left the queue of another channel join one, before all that came after it."""
    place = state.nodes[node].place
    queue = _queue_of(program, state, state.nodes[node].key, place, True)
    insert_by_arrival(state, state.queues[queue], node)
    _in_line(program, state, server, queue, place)


@helper
def _takes_detour(program, state, server, queue, node, channel):
    """Whether the first chunk of a queue takes another route: it stays there, or leaves the queue."""
    if not changes_route(program, state, node):
        return False
    following = state.nodes[node].next
    if not stays(program, state, server, node):
        state.choices[server].waiting -= 1
    elif channel_of(program, hop_of(program, state.nodes[node].place)) != channel:
        state.queues[queue].first = following
        _change_channel(program, state, server, node)
        return True
    else:
        return True
    state.queues[queue].first = following
    return True


@helper
def _cost(program, place):
    return max(program.chunk_work[size_of(place)], np.int64(1))


@helper
def look_in_turn(program, state, server, channel, faulty):
    """The queue of a channel whose first chunk a free server serves next; NONE where none may start, or CHANGED."""
    number = _line_of(program, server, channel)
    line = state.turns[number]
    while line.first != NONE:
        queue = line.first
        its = state.queues[queue]
        node = its.first
        if node != NONE:
            place = state.nodes[node].place
            if _cost(program, place) <= its.allowance:
                if faulty and program.detour_ptr.size and _takes_detour(program, state, server, queue, node, channel):
                    return np.int64(CHANGED)
                if not fits(program, state, server, channel, place):
                    break
                return queue
        elif its.next_queue == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        line.first = its.next_queue
        if node == NONE:
            its.in_line = 0
        else:
            its.allowance += program.server_quantum[server]
            _to_the_back(state, number, queue)
    return np.int64(NONE)


@helper
def first_in_turn(state, queue):
    """The first chunk of the flow whose turn it is."""
    return state.queues[queue].first


@helper
def take_in_turn(program, state, queue):
    """Take the first chunk out of a queue, which pays for it."""
    node = first_in_turn(state, queue)
    state.queues[queue].allowance -= _cost(program, state.nodes[node].place)
    state.queues[queue].first = state.nodes[node].next
    return node


@helper
def take_any(program, state, server):
    """Take a chunk out of the first queue in a line that has one; there is one."""
    channel, queue = np.int64(0), np.int64(NONE)
    while queue == NONE:
        queue = state.turns[_line_of(program, server, channel)].first
        while queue != NONE and first_in_turn(state, queue) == NONE:
            queue = state.queues[queue].next_queue
        channel += 1
    node = first_in_turn(state, queue)
    state.queues[queue].first = state.nodes[node].next
    return node


@helper
def leave_lines(program, state, server):
    """Let all queues of a server leave its lines."""
    for channel in range(program.channels):
        line = state.turns[_line_of(program, server, np.int64(channel))]
        queue = line.first
        while queue != NONE:
            state.queues[queue].in_line = 0
            queue = state.queues[queue].next_queue
        line.first = NONE
