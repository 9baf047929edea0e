"""Queues that take turns at a server, in the fifo loop: lists of nodes, and of the queues that have some.

    queues: FIRST to LAST, lists of nodes;  line of the server: FRONT to BACK, a list of queues by NEXT_QUEUE
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import hop_of, size_of
from sim.engine.core.nodes import let_next, next_node, word_of
from sim.engine.core.state import CHOICE_WORDS, HOP_BITS, KEY, PLACE, TASK_BITS, WAITING
from sim.engine.core.status import NONE
from sim.engine.policies.detours import changes_route, stays
from sim.engine.policies.rooms import channel_of, fits

FIRST, LAST, NEXT_QUEUE, IN_LINE, ALLOWANCE, QUEUE_WORDS = range(6)
"""Words of a queue."""
FRONT, BACK = 0, 1
"""Words of the line of a server."""
CHANGED = -2
"""In place of a queue: its first chunk takes another route, so that the server looks anew."""


@helper
def _line_of(program, server, channel):
    """Where the words of the line of a channel are."""
    return 2 * (server + program.server_rate.size * channel)


@helper
def _to_the_back(state, line, queue):
    """Put a queue that is in no line at the back of one."""
    back = state.turn_line[u64(line + BACK)]
    if state.turn_line[u64(line + FRONT)] == NONE:
        state.turn_line[u64(line + FRONT)] = queue
    else:
        state.turn[u64(QUEUE_WORDS * back + NEXT_QUEUE)] = queue
    state.turn_line[u64(line + BACK)] = queue
    state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)] = NONE


@helper
def _queue_of(program, state, key, place, faulty):
    """The queue in which a chunk waits: that of its hop, in its own route or in a detour."""
    task = key & ((np.int64(1) << state.register[TASK_BITS]) - 1)
    if not faulty:
        hop = (key >> state.register[TASK_BITS]) & ((np.int64(1) << state.register[HOP_BITS]) - 1)
        return np.int64(program.hop_queue[u64(program.task_queue[u64(task)] + hop)])
    route, at = np.int64(program.task_route[u64(task)]), place >> 32
    first, queue = np.int64(program.route_ptr[u64(route)]), np.int64(program.task_queue[u64(task)])
    if (at < first or at >= program.route_ptr[u64(route + 1)]) and program.detour_ptr.size:
        for row in range(program.detour_ptr[u64(task)], program.detour_ptr[u64(task + 1)]):
            other = np.int64(program.detour_route[u64(row)])
            if program.route_ptr[u64(other)] <= at < program.route_ptr[u64(other + 1)]:
                first, queue = np.int64(program.route_ptr[u64(other)]), np.int64(program.detour_queue[u64(row)])
    return np.int64(program.hop_queue[u64(queue + at - first)])


@helper
def line_up(program, state, server, node, faulty):
    """Let a chunk that arrived now join its queue, and this the line of its channel."""
    turn, place = state.turn, state.node[word_of(node, PLACE)]
    queue = _queue_of(program, state, state.node[word_of(node, KEY)], place, faulty)
    word = QUEUE_WORDS * queue
    if turn[u64(word + FIRST)] == NONE:
        turn[u64(word + FIRST)] = node
    else:
        let_next(state, turn[u64(word + LAST)], node)
    turn[u64(word + LAST)] = node
    _in_line(program, state, server, queue, place)


@helper
def _in_line(program, state, server, queue, place):
    """Let a queue that has a chunk now be in the line of its channel."""
    word = u64(QUEUE_WORDS * queue + IN_LINE)
    if state.turn[word] == 0:
        state.turn[word] = 1
        state.turn[u64(QUEUE_WORDS * queue + ALLOWANCE)] = program.server_quantum[u64(server)]
        _to_the_back(state, _line_of(program, server, channel_of(program, hop_of(program, place))), queue)


@section
def _change_channel(program, state, server, node):
    """Let a chunk that has left the queue of another channel join one, before all that came after it."""
    turn, place, key = state.turn, state.node[word_of(node, PLACE)], state.node[word_of(node, KEY)]
    queue = _queue_of(program, state, key, place, True)
    word, since = QUEUE_WORDS * queue, state.node_since[u64(node)]
    before, behind = np.int64(NONE), turn[u64(word + FIRST)]
    while behind != NONE and (
        state.node_since[u64(behind)] < since
        or (state.node_since[u64(behind)] == since and state.node[word_of(behind, KEY)] < key)
    ):
        before, behind = behind, next_node(state, behind)
    let_next(state, node, behind)
    if before == NONE:
        turn[u64(word + FIRST)] = node
    else:
        let_next(state, before, node)
    if behind == NONE:
        turn[u64(word + LAST)] = node
    _in_line(program, state, server, queue, place)


@helper
def _takes_detour(program, state, server, queue, node, channel):
    """Whether the first chunk of a queue takes another route: it stays there, or leaves the queue."""
    if not changes_route(program, state, node):
        return False
    following = next_node(state, node)
    if not stays(program, state, server, node):
        state.choice[u64(CHOICE_WORDS * server + WAITING)] -= 1
    elif channel_of(program, hop_of(program, state.node[word_of(node, PLACE)])) != channel:
        state.turn[u64(QUEUE_WORDS * queue + FIRST)] = following
        _change_channel(program, state, server, node)
        return True
    else:
        return True
    state.turn[u64(QUEUE_WORDS * queue + FIRST)] = following
    return True


@helper
def _cost(program, place):
    return max(program.chunk_work[u64(size_of(place))], np.int64(1))


@helper
def look_in_turn(program, state, server, channel, faulty):
    """The queue of a channel whose first chunk a free server serves next; NONE where none may start, or CHANGED."""
    turn, line = state.turn, _line_of(program, server, channel)
    front = u64(line + FRONT)
    while state.turn_line[front] != NONE:
        queue = np.int64(state.turn_line[front])
        word = QUEUE_WORDS * queue
        node = turn[u64(word + FIRST)]
        if node != NONE:
            place = state.node[word_of(node, PLACE)]
            if _cost(program, place) <= turn[u64(word + ALLOWANCE)]:
                if faulty and program.detour_ptr.size and _takes_detour(program, state, server, queue, node, channel):
                    return np.int64(CHANGED)
                if not fits(program, state, server, channel, place):
                    break
                return queue
        elif turn[u64(word + NEXT_QUEUE)] == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        state.turn_line[front] = turn[u64(word + NEXT_QUEUE)]
        if node == NONE:
            turn[u64(word + IN_LINE)] = 0
        else:
            turn[u64(word + ALLOWANCE)] += program.server_quantum[u64(server)]
            _to_the_back(state, line, queue)
    return np.int64(NONE)


@helper
def first_in_turn(state, queue):
    return np.int64(state.turn[u64(QUEUE_WORDS * queue + FIRST)])


@helper
def take_in_turn(program, state, queue):
    """Take the first chunk out of a queue, which pays for it."""
    node = first_in_turn(state, queue)
    state.turn[u64(QUEUE_WORDS * queue + ALLOWANCE)] -= _cost(program, state.node[word_of(node, PLACE)])
    state.turn[u64(QUEUE_WORDS * queue + FIRST)] = next_node(state, node)
    return node


@helper
def take_any(program, state, server):
    """Take a chunk out of the first queue in a line that has one; there is one."""
    channel, queue = np.int64(0), np.int64(NONE)
    while queue == NONE:
        queue = np.int64(state.turn_line[u64(_line_of(program, server, channel) + FRONT)])
        while queue != NONE and first_in_turn(state, queue) == NONE:
            queue = np.int64(state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)])
        channel += 1
    node = first_in_turn(state, queue)
    state.turn[u64(QUEUE_WORDS * queue + FIRST)] = next_node(state, node)
    return node


@helper
def leave_lines(program, state, server):
    """Let all queues of a server leave its lines."""
    for channel in range(program.channels):
        line = _line_of(program, server, np.int64(channel))
        queue = np.int64(state.turn_line[u64(line + FRONT)])
        while queue != NONE:
            state.turn[u64(QUEUE_WORDS * queue + IN_LINE)] = 0
            queue = np.int64(state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)])
        state.turn_line[u64(line + FRONT)] = NONE
