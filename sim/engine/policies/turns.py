"""Queues that take turns at a server, in the fifo loop: lists of nodes, and of the queues that have some.

    queues: first to last, lists of nodes;  turns of a server: first to last, a list of queues by next_queue
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper
from sim.engine.core.status import NONE
from sim.engine.policies.rooms import fits

_LOW = (1 << 32) - 1


@helper
def _to_the_back(state, server, queue):
    """Put a queue that is in no line at the back of that of a server."""
    line = state.turns[server]
    if line.first == NONE:
        line.first = queue
    else:
        state.queues[line.last].next_queue = queue
    line.last = queue
    state.queues[queue].next_queue = NONE


@helper
def line_up(program, state, server, node):
    """Let a chunk that arrived now join its queue, and this the line."""
    key = state.nodes[node].key
    task = key & ((np.int64(1) << state.run.task_bits) - 1)
    hop = (key >> state.run.task_bits) & ((np.int64(1) << state.run.hop_bits) - 1)
    queue = np.int64(program.hop_queue[program.task_queue[task] + hop])
    its = state.queues[queue]
    if its.first == NONE:
        its.first = node
    else:
        state.nodes[its.last].next = node
    its.last = node
    if its.in_line == 0:
        its.in_line = 1
        its.allowance = program.server_quantum[server]
        _to_the_back(state, server, queue)


@helper
def next_in_turn(program, state, server):
    """Take the chunk that a free server serves next out of its queue; NONE where none may start."""
    line = state.turns[server]
    while line.first != NONE:
        queue = line.first
        its = state.queues[queue]
        node = its.first
        if node != NONE:
            place = state.nodes[node].place
            cost = max(program.chunk_work[place & _LOW], np.int64(1))
            if cost <= its.allowance:
                if not fits(program, state, server, np.int64(0), place):
                    break
                its.allowance -= cost
                its.first = state.nodes[node].next
                return node
        elif its.next_queue == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        line.first = its.next_queue
        if node == NONE:
            its.in_line = 0
        else:
            its.allowance += program.server_quantum[server]
            _to_the_back(state, server, queue)
    return np.int64(NONE)
