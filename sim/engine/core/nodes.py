"""Nodes of the fifo loop: what waits outside the calendar, 24 bytes that refer to nothing but other nodes.

    byte     0       4       8       16       24
    node     |               | KEY   | PLACE  |   int64 at 3 n
    link     | NEXT  | CHILD |                    int32 at 6 n and 6 n + 1, the same memory

The loop looks before each service whether as many are free as it may need.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import CHILD, FREE_NODE, FREE_NODES, KEY, NEXT, NODE_WORDS, PLACE
from sim.engine.core.status import NONE


@helper
def word_of(node, what):
    return u64(NODE_WORDS * node + what)


@helper
def _link_of(node, what):
    return u64(2 * NODE_WORDS * node + what)


@helper
def new_node(state, key, place):
    """Take a free node: the last of a list."""
    node = state.register[FREE_NODE]
    state.register[FREE_NODE] = state.link[_link_of(node, NEXT)]
    state.register[FREE_NODES] -= 1
    state.node[word_of(node, KEY)] = key
    state.node[word_of(node, PLACE)] = place
    state.link[_link_of(node, NEXT)] = NONE
    return node


@helper
def free_node(state, node):
    """Give a node back; it keeps its words until it is taken again."""
    state.link[_link_of(node, NEXT)] = state.register[FREE_NODE]
    state.register[FREE_NODE] = node
    state.register[FREE_NODES] += 1


@helper
def next_node(state, node):
    return np.int64(state.link[_link_of(node, NEXT)])


@helper
def let_next(state, node, after):
    state.link[_link_of(node, NEXT)] = after


@helper
def previous_node(state, node):
    """The node before another in a list that is linked both ways, where CHILD is the link back."""
    return np.int64(state.link[_link_of(node, CHILD)])


@helper
def let_previous(state, node, before):
    state.link[_link_of(node, CHILD)] = before


@helper
def lone(state, node, rank):
    """A pairing heap of one node."""
    state.node_rank[u64(node)] = rank
    state.link[_link_of(node, CHILD)] = NONE
    return node


@helper
def _before(state, a, b, faulty):
    """Whether a node comes before another: by rank, by when it came (without faults by what PLACE is), and by KEY."""
    if state.node_rank[u64(a)] != state.node_rank[u64(b)]:
        return state.node_rank[u64(a)] < state.node_rank[u64(b)]
    if faulty:
        if state.node_since[u64(a)] != state.node_since[u64(b)]:
            return state.node_since[u64(a)] < state.node_since[u64(b)]
    elif state.node[word_of(a, PLACE)] != state.node[word_of(b, PLACE)]:
        return state.node[word_of(a, PLACE)] < state.node[word_of(b, PLACE)]
    return state.node[word_of(a, KEY)] < state.node[word_of(b, KEY)]


@section
def meld(state, a, b, faulty):
    """One pairing heap from two, the least at the root; its children are a list through NEXT, the first CHILD."""
    if _before(state, b, a, faulty):
        a, b = b, a
    state.link[_link_of(b, NEXT)] = state.link[_link_of(a, CHILD)]
    state.link[_link_of(a, CHILD)] = b
    return a


@helper
def without_root(state, root, faulty):
    """The heap that is left when its root is taken: its children melded in pairs, and these from the last on."""
    child, pairs, heap = np.int64(state.link[_link_of(root, CHILD)]), np.int64(NONE), np.int64(NONE)
    while child != NONE:
        pair, other = child, next_node(state, child)
        child = other
        if other != NONE:
            child = next_node(state, other)
            pair = meld(state, pair, other, faulty)
        let_next(state, pair, pairs)
        pairs = pair
    while pairs != NONE:
        following = next_node(state, pairs)
        heap = pairs if heap == NONE else meld(state, heap, pairs, faulty)
        pairs = following
    return heap
