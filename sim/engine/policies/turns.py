"""Queues that take turns at a server, in the fifo loop: lists of nodes, and of the queues that have some.

    queues: FIRST to LAST, lists of nodes;  line of the server: FRONT to BACK, a list of queues by NEXT_QUEUE
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.calendar import size_of
from sim.engine.core.nodes import let_next, next_node, word_of
from sim.engine.core.state import CHOICE_WORDS, HOP_BITS, KEY, PLACE, TASK_BITS, WAITING
from sim.engine.core.status import NONE
from sim.engine.policies.detours import changes_route, stays
from sim.engine.policies.rooms import fits

FIRST, LAST, NEXT_QUEUE, IN_LINE, ALLOWANCE, QUEUE_WORDS = range(6)
"""Words of a queue."""
FRONT, BACK = 0, 1
"""Words of the line of a server."""
CHANGED = -2
"""In place of a queue: its first chunk takes another route, so that the server looks anew."""


@helper
def _to_the_back(state, server, queue):
    """Put a queue that is in no line at the back of that of a server."""
    back = state.turn_line[u64(2 * server + BACK)]
    if state.turn_line[u64(2 * server + FRONT)] == NONE:
        state.turn_line[u64(2 * server + FRONT)] = queue
    else:
        state.turn[u64(QUEUE_WORDS * back + NEXT_QUEUE)] = queue
    state.turn_line[u64(2 * server + BACK)] = queue
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
    """Let a chunk that arrived now join its queue, and this the line."""
    turn = state.turn
    queue = _queue_of(program, state, state.node[word_of(node, KEY)], state.node[word_of(node, PLACE)], faulty)
    word = QUEUE_WORDS * queue
    if turn[u64(word + FIRST)] == NONE:
        turn[u64(word + FIRST)] = node
    else:
        let_next(state, turn[u64(word + LAST)], node)
    turn[u64(word + LAST)] = node
    if turn[u64(word + IN_LINE)] == 0:
        turn[u64(word + IN_LINE)] = 1
        turn[u64(word + ALLOWANCE)] = program.server_quantum[u64(server)]
        _to_the_back(state, server, queue)


@helper
def _cost(program, place):
    return max(program.chunk_work[u64(size_of(place))], np.int64(1))


@helper
def look_in_turn(program, state, server, faulty):
    """The queue whose first chunk a free server serves next; NONE where none may start, or CHANGED."""
    turn, line = state.turn, state.turn_line
    while line[u64(2 * server + FRONT)] != NONE:
        queue = np.int64(line[u64(2 * server + FRONT)])
        word = QUEUE_WORDS * queue
        node = turn[u64(word + FIRST)]
        if node != NONE:
            place = state.node[word_of(node, PLACE)]
            if _cost(program, place) <= turn[u64(word + ALLOWANCE)]:
                if faulty and program.detour_ptr.size and changes_route(program, state, node):
                    following = next_node(state, node)
                    if not stays(program, state, server, node):
                        turn[u64(word + FIRST)] = following
                        state.choice[u64(CHOICE_WORDS * server + WAITING)] -= 1
                    return np.int64(CHANGED)
                if not fits(program, state, server, np.int64(0), place):
                    break
                return queue
        elif turn[u64(word + NEXT_QUEUE)] == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        line[u64(2 * server + FRONT)] = turn[u64(word + NEXT_QUEUE)]
        if node == NONE:
            turn[u64(word + IN_LINE)] = 0
        else:
            turn[u64(word + ALLOWANCE)] += program.server_quantum[u64(server)]
            _to_the_back(state, server, queue)
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
def take_any(state, server):
    """Take a chunk out of the first queue in line that has one; there is one."""
    queue = np.int64(state.turn_line[u64(2 * server + FRONT)])
    while first_in_turn(state, queue) == NONE:
        queue = np.int64(state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)])
    node = first_in_turn(state, queue)
    state.turn[u64(QUEUE_WORDS * queue + FIRST)] = next_node(state, node)
    return node


@helper
def leave_line(state, server):
    """Let all queues of a server leave its line."""
    queue = np.int64(state.turn_line[u64(2 * server + FRONT)])
    while queue != NONE:
        state.turn[u64(QUEUE_WORDS * queue + IN_LINE)] = 0
        queue = np.int64(state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)])
    state.turn_line[u64(2 * server + FRONT)] = NONE
