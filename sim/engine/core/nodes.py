"""Nodes of the fifo loop: what waits outside the calendar, 24 bytes that refer to nothing but other nodes.

    byte       0       4          8        16       24
    nodes      | next  | child    | key    | place  |
    returns    | next  | previous | due_ps | work   |   the same memory, see sim/engine/policies/rooms.py

The loop looks before each service whether as many are free as it may need.
"""

import numpy as np

from sim.engine.compile.door import helper, section
from sim.engine.core.status import NONE


@helper
def new_node(state, key, place):
    """Take a free node: the last of a list."""
    run = state.run
    node = run.free_node
    its = state.nodes[node]
    run.free_node = its.next
    run.free_nodes -= 1
    its.key, its.place, its.next = key, place, NONE
    return node


@helper
def free_node(state, node):
    """Give a node back; it keeps its words until it is taken again."""
    state.nodes[node].next = state.run.free_node
    state.run.free_node = node
    state.run.free_nodes += 1


@helper
def insert_by_arrival(state, ends, node):
    """Put a node into a list, which is in the order of (since, key); `ends`: the row with its `first` and `last`."""
    key, since = state.nodes[node].key, state.node_since[node]
    before, behind = np.int64(NONE), ends.first
    while behind != NONE and (
        state.node_since[behind] < since
        or (state.node_since[behind] == since and state.nodes[behind].key < key)
    ):
        before, behind = behind, state.nodes[behind].next
    state.nodes[node].next = behind
    if before == NONE:
        ends.first = node
    else:
        state.nodes[before].next = node
    if behind == NONE:
        ends.last = node


@helper
def lone(state, node, rank):
    """A pairing heap of one node."""
    state.node_rank[node] = rank
    state.nodes[node].child = NONE
    return node


@helper
def _before(state, a, b, faulty):
    """Whether a node comes before another: by rank, by when it came (without faults by what `place` is), and by key."""
    if state.node_rank[a] != state.node_rank[b]:
        return state.node_rank[a] < state.node_rank[b]
    if faulty:
        if state.node_since[a] != state.node_since[b]:
            return state.node_since[a] < state.node_since[b]
    elif state.nodes[a].place != state.nodes[b].place:
        return state.nodes[a].place < state.nodes[b].place
    return state.nodes[a].key < state.nodes[b].key


@section
def meld(state, a, b, faulty):
    """One pairing heap from two, the least at the root; its children are a list through `next`, the first `child`."""
    if _before(state, b, a, faulty):
        a, b = b, a
    state.nodes[b].next = state.nodes[a].child
    state.nodes[a].child = b
    return a


@helper
def without_root(state, root, faulty):
    """The heap that is left when its root is taken: its children melded in pairs, and these from the last on."""
    child, pairs, heap = state.nodes[root].child, np.int64(NONE), np.int64(NONE)
    while child != NONE:
        pair, other = child, state.nodes[child].next
        child = other
        if other != NONE:
            child = state.nodes[other].next
            pair = meld(state, pair, other, faulty)
        state.nodes[pair].next = pairs
        pairs = pair
    while pairs != NONE:
        following = state.nodes[pairs].next
        heap = pairs if heap == NONE else meld(state, heap, pairs, faulty)
        pairs = following
    return heap
