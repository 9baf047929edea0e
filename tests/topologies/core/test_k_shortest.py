"""The k shortest ways, beside networkx."""

from __future__ import annotations

from itertools import islice

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from topologies import WeftError, circulant, from_spec
from topologies.core.k_shortest import k_shortest_paths
from topologies.core.paths import ranges


@settings(max_examples=30)
@given(st.integers(4, 12), st.integers(1, 10**6), st.integers(1, 6))
def test_lengths_are_those_of_networkx(n: int, seed: int, k: int) -> None:
    try:
        fabric = from_spec(f"random-regular:{n + n % 2}x3x{seed}")
    except WeftError as fault:
        assume("not connected" not in str(fault))  # two complete graphs of four, in one of some draws
        raise
    graph = nx.DiGraph(zip(fabric.src.tolist(), fabric.dst.tolist(), strict=True))
    src, dst = (pairs.ravel() for pairs in np.meshgrid(np.arange(4), np.arange(4)))
    src, dst = src[src != dst], dst[src != dst]
    paths = k_shortest_paths(fabric, src, dst, k)
    for at, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        rows = np.flatnonzero(paths.pair == at)
        ways = [paths.links[paths.ptr[row] : paths.ptr[row + 1]] for row in rows.tolist()]
        expected = [len(way) - 1 for way in islice(nx.shortest_simple_paths(graph, a, b), k)]
        assert [way.size for way in ways] == expected
        assert len({tuple(way) for way in ways}) == len(ways)
        for way in ways:
            nodes = [a, *fabric.dst[way].tolist()]
            assert fabric.src[way].tolist() == nodes[:-1] and nodes[-1] == b
            assert len(set(nodes)) == len(nodes)


def test_one_way_is_a_shortest_one() -> None:
    fabric = circulant(16, (1, 5))
    src, dst = np.zeros(15, np.int64), np.arange(1, 16)
    assert np.array_equal(np.diff(k_shortest_paths(fabric, src, dst, 1).ptr), np.diff(fabric.paths(src, dst).ptr))


def test_the_same_node_is_reached_at_once_and_only_so() -> None:
    paths = k_shortest_paths(circulant(5, (1,)), np.array([2]), np.array([2]), 3)
    assert paths.ptr.tolist() == [0, 0] and paths.pair.tolist() == [0]


def test_fewer_ways_than_asked_for() -> None:
    paths = k_shortest_paths(circulant(5, (1,)), np.array([0]), np.array([2]), 9)
    assert np.diff(paths.ptr).tolist() == [2, 3]
    assert ranges(paths.ptr[:-1], np.diff(paths.ptr)).size == paths.links.size


def test_bad_input() -> None:
    fabric = circulant(4, (2,), connected=False)
    with pytest.raises(WeftError, match="0 routes per pair requested: at least 1"):
        k_shortest_paths(fabric, np.array([0]), np.array([2]), 0)
    with pytest.raises(WeftError, match="no route from npu0 to npu1"):
        k_shortest_paths(fabric, np.array([0]), np.array([1]), 2)
