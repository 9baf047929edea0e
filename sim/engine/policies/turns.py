"""Queues that take turns at a server, in the fifo loop: lists of nodes, and of the queues that have some.

    queues: FIRST to LAST, lists of nodes;  line of the server: FRONT to BACK, a list of queues by NEXT_QUEUE
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.nodes import let_next, next_node, word_of
from sim.engine.core.state import HOP_BITS, KEY, PLACE, TASK_BITS
from sim.engine.core.status import NONE
from sim.engine.policies.rooms import fits

FIRST, LAST, NEXT_QUEUE, IN_LINE, ALLOWANCE, QUEUE_WORDS = range(6)
"""Words of a queue."""
FRONT, BACK = 0, 1
"""Words of the line of a server."""
_LOW = (1 << 32) - 1


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
def line_up(program, state, server, node):
    """Let a chunk that arrived now join its queue, and this the line."""
    turn, key = state.turn, state.node[word_of(node, KEY)]
    task = key & ((np.int64(1) << state.register[TASK_BITS]) - 1)
    hop = (key >> state.register[TASK_BITS]) & ((np.int64(1) << state.register[HOP_BITS]) - 1)
    queue = np.int64(program.hop_queue[u64(program.task_queue[u64(task)] + hop)])
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
def next_in_turn(program, state, server):
    """Take the chunk that a free server serves next out of its queue; NONE where none may start."""
    turn, line = state.turn, state.turn_line
    while line[u64(2 * server + FRONT)] != NONE:
        queue = np.int64(line[u64(2 * server + FRONT)])
        word = QUEUE_WORDS * queue
        node = turn[u64(word + FIRST)]
        if node != NONE:
            place = state.node[word_of(node, PLACE)]
            cost = max(program.chunk_work[u64(place & _LOW)], np.int64(1))
            if cost <= turn[u64(word + ALLOWANCE)]:
                if not fits(program, state, server, np.int64(0), place):
                    break
                turn[u64(word + ALLOWANCE)] -= cost
                turn[u64(word + FIRST)] = next_node(state, node)
                return node
        elif turn[u64(word + NEXT_QUEUE)] == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        line[u64(2 * server + FRONT)] = turn[u64(word + NEXT_QUEUE)]
        if node == NONE:
            turn[u64(word + IN_LINE)] = 0
        else:
            turn[u64(word + ALLOWANCE)] += program.server_quantum[u64(server)]
            _to_the_back(state, server, queue)
    return np.int64(NONE)
