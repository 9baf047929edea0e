from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import WeftError
from topologies.core.blocks import AT_SWITCH, FullyConnected, Line, Ring, Switched

EXTENTS = st.integers(1, 12)
BLOCKS = st.one_of(
    EXTENTS.map(Ring),
    EXTENTS.map(FullyConnected),
    EXTENTS.map(Line),
    EXTENTS.map(Switched),
    st.builds(lambda boards, board: Switched(boards * board, board), st.integers(1, 4), st.integers(1, 5)),
)


def line_graph(block):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(block.extent))
    graph.add_edges_from(zip(*(ends.tolist() for ends in block.links()), strict=True))
    return graph


def legs(block, second):
    a, b = (ends.ravel() for ends in np.indices((block.extent, block.extent)))
    return a, b, block.leg(a, b, np.full(a.shape, second))


@given(BLOCKS)
def test_the_link_count_is_that_of_the_links(block):
    leaves, enters = block.links()
    assert leaves.size == enters.size == block.n_links == line_graph(block).number_of_edges()


@given(BLOCKS)
def test_only_a_block_with_a_switch_uses_it(block):
    assert bool(np.any(block.links()[0] == AT_SWITCH)) == block.has_switch
    if block.extent == 1:
        assert block.n_links == 0


@given(BLOCKS, st.booleans())
def test_legs_walk_along_links_to_their_end(block, second):
    graph = line_graph(block)
    a, b, leg = legs(block, second)
    for route in range(a.size):
        k = np.arange(leg.hops[route] + 1)
        positions = leg.position(np.full(k.shape, route), k).tolist()
        assert positions[0] == a[route] and positions[-1] == b[route]
        assert all(graph.has_edge(*step) for step in pairwise(positions))


@given(BLOCKS)
def test_legs_are_shortest_except_inside_one_board(block):
    a, b, leg = legs(block, False)
    distance = dict(nx.all_pairs_shortest_path_length(line_graph(block)))
    for source, target, hops in zip(a.tolist(), b.tolist(), leg.hops.tolist(), strict=True):
        if isinstance(block, Switched) and source // block.board == target // block.board:
            assert hops == abs(target - source)
        else:
            assert hops == distance[source][target]


@given(BLOCKS)
def test_a_tie_is_where_the_second_leg_is_another_one_that_is_no_longer(block):
    """And no shorter, but through the switch, which is two hops and the second way between the edges of a board."""
    a, b, first = legs(block, False)
    _, _, second = legs(block, True)
    through = (first.hops > 2) & (second.hops == 2) & isinstance(block, Switched)
    assert np.array_equal(first.hops[~through], second.hops[~through])
    if isinstance(block, Switched):
        assert np.array_equal(a[through] // block.board, b[through] // block.board)
    tied = block.tied(a, b)
    for route in range(a.size):
        k = np.arange(first.hops[route] + 1)
        same = np.array_equal(first.position(np.full(k.shape, route), k), second.position(np.full(k.shape, route), k))
        assert same != tied[route]


def test_a_board_that_does_not_divide_is_refused():
    with pytest.raises(WeftError, match="boards of 3: the board must divide the extent 8"):
        Switched(8, 3)
