from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import WeftError
from topologies.core.blocks import AT_SWITCH, FullyConnected, Line, Ring, Switched
from topologies.core.product import axes_of, build_product

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


def positions(block, leg, route):
    """Where a route is after each of its hops."""
    start, step, before, entry, onward, hops = (int(column[route]) for column in leg)
    own = [(start + step * k) % block.extent for k in range(before + 1)]
    return (own + [AT_SWITCH] + [entry + onward * k for k in range(hops)])[: hops + 1]


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
        places = positions(block, leg, route)
        assert places[0] == a[route] and places[-1] == b[route]
        assert all(graph.has_edge(*step) for step in pairwise(places))


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
        assert (positions(block, first, route) == positions(block, second, route)) != tied[route]


@given(st.lists(BLOCKS, min_size=1, max_size=3), st.sampled_from(["first", "alternating"]))
def test_routes_of_a_product_follow_the_legs_of_its_blocks(blocks, tie):
    fabric = build_product("blocks", blocks, {"bandwidth": "1GB/s", "latency": "1ns", "hop_latency": "1ns"})
    npus, axes = np.arange(fabric.n_npus), axes_of(blocks)
    src, dst = np.repeat(npus, 3), (7 * np.arange(3 * npus.size) + 1) % npus.size
    found = fabric.paths(src, dst, tie)
    for route, (node, end) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        passed = [node]
        for dim, axis in enumerate(axes):
            a, b = fabric.coords[[node]][:, dim], fabric.coords[[end]][:, dim]
            leg = axis.block.leg(a, b, (a % 2 == 1) & (tie == "alternating"))
            origin = np.array([passed[-1] - int(a[0]) * axis.stride])
            passed += [int(axis.node(origin, np.array([at]))[0]) for at in positions(axis.block, leg, 0)[1:]]
        links = found.links[found.ptr[route] : found.ptr[route + 1]]
        assert [node, *fabric.dst[links].tolist()] == passed and fabric.src[links].tolist() == passed[:-1]


def test_a_board_that_does_not_divide_is_refused():
    with pytest.raises(WeftError, match="boards of 3: the board must divide the extent 8"):
        Switched(8, 3)
