"""Queues that take turns at a server, in the general loop.

Tokens that arrive in a picosecond are a heap first, so that they get into their queues, and these into the line, in
the order of the contract:

    heap of the server --line_up--> queues: lists of tokens, FIRST to LAST
                                    line: a list of queues, FRONT to BACK, by NEXT_QUEUE
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.status import NONE
from sim.program.contract import FIFO
from tests.oracles.general_loop.credits import fits
from tests.oracles.general_loop.event import NEXT, at_of, field, next_of, size_of, task_of
from tests.oracles.general_loop.heap import without_root
from tests.oracles.general_loop.state import FIRST_HOP

FIRST, LAST, NEXT_QUEUE, IN_LINE, ALLOWANCE, QUEUE_WORDS = range(6)
"""Words of a queue."""
FRONT, BACK = 0, 1
"""Words of the line of a server."""

@helper
def _to_the_back(state, server, queue):
    """Put a queue that is in no line at the back of that of a server."""
    back = state.line[u64(2 * server + BACK)]
    if state.line[u64(2 * server + FRONT)] == NONE:
        state.line[u64(2 * server + FRONT)] = queue
    else:
        state.turn[u64(QUEUE_WORDS * back + NEXT_QUEUE)] = queue
    state.line[u64(2 * server + BACK)] = queue
    state.turn[u64(QUEUE_WORDS * queue + NEXT_QUEUE)] = NONE


@helper
def line_up(program, state, server):
    """Let the tokens that arrived now join their queues, and those the line."""
    turn = state.turn
    while state.queue[u64(server)] != NONE:
        token = state.queue[u64(server)]
        state.queue[u64(server)] = without_root(program, state, FIFO, token)
        task = task_of(state.event, token)
        hop = at_of(state.event, token) - program.route_ptr[u64(program.task_route[u64(task)])]
        queue = np.int64(program.hop_queue[u64(program.task_queue[u64(task)] + hop)])
        word = QUEUE_WORDS * queue
        state.event[field(token, NEXT)] = NONE
        if turn[u64(word + FIRST)] == NONE:
            turn[u64(word + FIRST)] = token
        else:
            state.event[field(turn[u64(word + LAST)], NEXT)] = token
        turn[u64(word + LAST)] = token
        if turn[u64(word + IN_LINE)] == 0:
            turn[u64(word + IN_LINE)] = 1
            turn[u64(word + ALLOWANCE)] = program.server_quantum[u64(server)]
            _to_the_back(state, server, queue)


@helper
def next_in_turn(program, state, server):
    """Take the token that a free server serves next out of its queue; NONE where none may start."""
    turn, line = state.turn, state.line
    while line[u64(2 * server + FRONT)] != NONE:
        queue = np.int64(line[u64(2 * server + FRONT)])
        word = QUEUE_WORDS * queue
        token = np.int32(turn[u64(word + FIRST)])
        if token != NONE:
            cost = max(program.chunk_work[u64(size_of(state.event, token) & (FIRST_HOP - 1))], np.int64(1))
            if cost <= turn[u64(word + ALLOWANCE)]:
                if not fits(program, state, server, server, token):
                    break
                turn[u64(word + ALLOWANCE)] -= cost
                turn[u64(word + FIRST)] = next_of(state.event, token)
                return token
        elif turn[u64(word + NEXT_QUEUE)] == NONE:
            break  # only the queue in front, which had the last turn, may be empty: nothing waits
        line[u64(2 * server + FRONT)] = turn[u64(word + NEXT_QUEUE)]
        if token == NONE:
            turn[u64(word + IN_LINE)] = 0
        else:
            turn[u64(word + ALLOWANCE)] += program.server_quantum[u64(server)]
            _to_the_back(state, server, queue)
    return np.int32(NONE)
