"""Queues of servers that choose when they are free, in the loop of sim/engine/_fifo.py.

A chunk that waits is a node, 32 bytes that refer to nothing else:

    byte     0       8       16       24      28      32
    node     | ORDER | KEY   | PLACE  |               |   int64 at 4 n
    link     |                        | NEXT  | CHILD |   int32 at 8 n + 6 and 7, the same memory

The least (rank, arrival, key) is served first, which is the order of the contract. Chunks get into a queue in the order
of arrival and key, so ranks alone are compared, and among equal ones what came first. Each server has BUCKETS of them,
by the upper bits of the rank, with a bit for each that is not empty:

    one rank a bucket:      a list, from the first to the last that came; no two nodes are ever compared
    several:                a pairing heap by ORDER, which is the rank and a running number

A heap is its root; the root's children are a list through NEXT, each child the root of its own heap by CHILD.
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import BIT, hop_of, put
from sim.engine._fifo_line import _key_of, _next_of
from sim.engine._fifo_state import (
    BUCKETS,
    CHILD,
    CHOICE_WORDS,
    CHUNK_BITS,
    EVENT_WORDS,
    FREE_NODE,
    FREE_PS,
    HOP_BITS,
    KEY,
    LEAST,
    LINE,
    NEXT,
    NODE_WORDS,
    NOW,
    NUMBER,
    ORDER,
    PLACE,
    RANK_SHIFT,
    SERVER_WORDS,
    TASK_BITS,
    TIME,
    WAITING,
    WAKE_PS,
)
from sim.engine._jit import count_trailing_zeros, helper, prefetch, u64
from sim.engine._state import NONE
from sim.program.contract import LOWEST_CHUNK_FIRST, PRIORITY, SMALLEST_FIRST

NUMBER_BITS = 40
WAKE = -1
"""In place of a key: nothing arrives, but a server that chooses is free. It comes before every key."""
SHORT = -2
"""In place of an event."""
_LOW = (1 << 32) - 1


@helper
def _rank(program, state, discipline, key):
    """What a discipline looks at before the arrival, counted from 0."""
    task = u64(key & ((np.int64(1) << state.register[TASK_BITS]) - 1))
    if discipline == PRIORITY:
        return np.int64(program.task_priority[task]) - state.register[LEAST]
    if discipline == SMALLEST_FIRST:
        return np.int64(state.work_rank[u64(program.task_cut[task])])
    if discipline == LOWEST_CHUNK_FIRST:
        chunk = key >> (state.register[TASK_BITS] + state.register[HOP_BITS])
        return np.int64(chunk & ((np.int64(1) << state.register[CHUNK_BITS]) - 1))
    return np.int64(0)


@helper
def _link_of(node, what):
    return u64(2 * NODE_WORDS * node + what)


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
def _wait(state, server, rank, key, place):
    """Let a chunk that arrives now wait at a server. There must be a free node."""
    register = state.register
    node, bucket = register[FREE_NODE], rank >> register[RANK_SHIFT]
    register[FREE_NODE] = state.link[_link_of(node, NEXT)]
    state.node[u64(NODE_WORDS * node + KEY)] = key
    state.node[u64(NODE_WORDS * node + PLACE)] = place
    state.link[_link_of(node, NEXT)] = NONE
    word, bit, ends = _word(state, server, bucket), BIT[u64(bucket & 63)], _ends(state, server, bucket)
    empty = state.filled[word] & bit == 0
    state.filled[word] |= bit
    if register[RANK_SHIFT] == 0:
        if empty:
            state.ends[ends] = node
        else:
            state.link[_link_of(np.int64(state.ends[ends + u64(1)]), NEXT)] = node
        state.ends[ends + u64(1)] = node
        return
    state.node[u64(NODE_WORDS * node + ORDER)] = (rank << NUMBER_BITS) | register[NUMBER]
    register[NUMBER] += 1
    state.link[_link_of(node, CHILD)] = NONE
    state.ends[ends] = node if empty else _meld(state, np.int64(state.ends[ends]), node)


@helper
def _take_first(state, server):
    """Take the node that is served first out of a queue: it is free, and keeps its words until another waits."""
    bucket = _first_bucket(state, server)
    ends = _ends(state, server, bucket)
    node = np.int64(state.ends[ends])
    rest = np.int64(state.link[_link_of(node, NEXT)]) if state.register[RANK_SHIFT] == 0 else _without_root(state, node)
    state.ends[ends] = rest
    if rest == NONE:
        state.filled[_word(state, server, bucket)] &= ~BIT[u64(bucket & 63)]
    state.link[_link_of(node, NEXT)] = state.register[FREE_NODE]
    state.register[FREE_NODE] = node
    return node


@helper
def _meld(state, a, b):
    """One heap from two."""
    if state.node[u64(NODE_WORDS * b + ORDER)] < state.node[u64(NODE_WORDS * a + ORDER)]:
        a, b = b, a
    state.link[_link_of(b, NEXT)] = state.link[_link_of(a, CHILD)]
    state.link[_link_of(a, CHILD)] = b
    return a


@helper
def _without_root(state, root):
    """The heap that is left when its root is taken: its children melded in pairs, and these from the last on."""
    links = state.link
    child, pairs, heap = np.int64(links[_link_of(root, CHILD)]), np.int64(NONE), np.int64(NONE)
    while child != NONE:
        pair, other = child, np.int64(links[_link_of(child, NEXT)])
        child = other
        if other != NONE:
            child = np.int64(links[_link_of(other, NEXT)])
            pair = _meld(state, pair, other)
        links[_link_of(pair, NEXT)] = pairs
        pairs = pair
    while pairs != NONE:
        following = np.int64(links[_link_of(pairs, NEXT)])
        heap = pairs if heap == NONE else _meld(state, heap, pairs)
        pairs = following
    return heap


@helper
def choose(program, state, server, event):
    """Let the line that begins with an event wait, and take what the server serves now, as an event or NONE.

    SHORT: there is no node left; the rest of the line is still to come.
    """
    register, choice, chosen = state.register, u64(CHOICE_WORDS * server + WAITING), event
    free = state.server[u64(SERVER_WORDS * server + FREE_PS)] <= register[NOW]
    if free and state.choice[choice] == 0 and _next_of(state, event) == NONE and _key_of(state, event) != WAKE:
        return event
    while event != NONE:
        key = _key_of(state, event)
        if key != WAKE:
            if register[FREE_NODE] == NONE:
                line = u64(SERVER_WORDS * server + LINE)
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return np.int64(SHORT)
            state.choice[choice] += 1
            rank = _rank(program, state, program.server_discipline[u64(server)], key)
            _wait(state, server, rank, key, state.event[u64(EVENT_WORDS * event + PLACE)])
        event = _next_of(state, event)
    if not free or state.choice[choice] == 0:
        return np.int64(NONE)
    state.choice[choice] -= 1
    node = NODE_WORDS * _take_first(state, server)
    place = state.node[u64(node + PLACE)]
    state.event[u64(EVENT_WORDS * chosen + TIME)] = hop_of(program, place)
    state.event[u64(EVENT_WORDS * chosen + KEY)] = state.node[u64(node + KEY)]
    state.event[u64(EVENT_WORDS * chosen + PLACE)] = place
    return chosen


@helper
def wake(program, state, server, place):
    """Let a server for which chunks wait look at them when it is free, unless it injects another chunk then.

    `place`: any at the server.
    """
    choice, free_ps = u64(CHOICE_WORDS * server), state.server[u64(SERVER_WORDS * server + FREE_PS)]
    if state.choice[choice + u64(WAITING)] > 0 and state.choice[choice + u64(WAKE_PS)] != free_ps:
        state.choice[choice + u64(WAKE_PS)] = free_ps
        prefetch(state.node, NODE_WORDS * np.int64(state.ends[_ends(state, server, _first_bucket(state, server))]))
        put(program, state, free_ps, np.int64(WAKE), place, NONE)
