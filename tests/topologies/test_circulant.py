from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.circuit_plans import graph_of
from topologies import WeftError, circulant, link_loads
from topologies.circulants import coin_change_mod


def routes(fabric, ends):
    return ["-".join(map(str, route_nodes(fabric, 0, end))) for end in ends]


def test_published_routes():
    twelve = circulant(12, (1, 5))
    assert coin_change_mod(12, (1, 5, 7, 11)).coins.tolist() == [0, 1, 2, 3, 2, 1, 2, 1, 2, 3, 2, 1]
    assert routes(twelve, (2, 3, 4, 6, 8, 9, 10)) == [
        "0-1-2", "0-1-2-3", "0-5-4", "0-1-6", "0-1-8", "0-1-2-9", "0-5-10"]
    sixteen = circulant(16, (1, 5))
    assert coin_change_mod(16, (1, 5, 11, 15)).coins.tolist() == [0, 1, 2, 3, 2, 1, 2, 3, 4, 3, 2, 1, 2, 3, 2, 1]
    assert routes(sixteen, (4, 6, 8, 12)) == ["0-5-4", "0-1-6", "0-1-2-3-8", "0-1-12"]
    simplex = circulant(16, (1, 3, 7), duplex=False)
    assert coin_change_mod(16, (1, 3, 7)).coins.tolist() == [0, 1, 2, 1, 2, 3, 2, 1, 2, 3, 2, 3, 4, 3, 2, 3]
    assert routes(simplex, (2, 4, 6, 8, 12)) == ["0-1-2", "0-1-4", "0-3-6", "0-1-8", "0-1-2-5-12"]


@pytest.mark.parametrize(("n", "jumps", "classes"), [(16, (1, 5), [15, 9, 3, 5]), (12, (1, 5), [10, 5, 3, 2])])
def test_hops_and_coins_of_a_uniform_all_to_all(n, jumps, classes):
    fabric = circulant(n, jumps)
    src, dst = (one.ravel() for one in np.indices((n, n)))
    loads = link_loads(fabric, src, dst, 1.0)
    coin = (fabric.dst - fabric.src) % n
    assert [set(loads[coin == one].tolist()) for one in sorted(set(coin.tolist()))] == [{float(c)} for c in classes]
    histogram = Counter(coin_change_mod(n, fabric.router.coins).coins.tolist())
    assert histogram == ({0: 1, 1: 4, 2: 6, 3: 4, 4: 1} if n == 16 else {0: 1, 1: 4, 2: 5, 3: 2})


@given(st.integers(2, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_routes_are_shortest_and_the_same_from_every_source(n, data):
    jumps = (1, *data.draw(st.lists(st.integers(1, n - 1), max_size=3)))
    fabric = circulant(n, jumps, duplex=data.draw(st.booleans()))
    distance = nx.single_source_shortest_path_length(graph_of(fabric), 0)
    by = data.draw(st.integers(0, n - 1))
    for end in range(n):
        nodes = route_nodes(fabric, 0, end)
        assert len(nodes) - 1 == distance[end]
        assert route_nodes(fabric, by, (by + end) % n) == [(node + by) % n for node in nodes]


def test_parallel_circuits_are_one_link_of_their_joint_rate():
    fabric = circulant(5, (1, 4, 2), bandwidth="1GB/s")
    assert fabric.n_links == 20 and set(fabric.bandwidth_Bps.tolist()) == {1e9, 2e9}
    assert circulant(2, (1,), bandwidth="1GB/s").bandwidth_Bps.tolist() == [1e9, 1e9]


@pytest.mark.parametrize(
    ("n", "jumps", "message"),
    [(8, (2, 4), "circulant:8x2x4 is disconnected: the jumps and 8 share the divisor 2"), (8, (), "is disconnected"),
     (8, (8,), "the jump 8 is out of range: from 1 to 7"), (8, (0,), "the jump 0 is out of range")],
)
def test_bad_input_is_named(n, jumps, message):
    with pytest.raises(WeftError, match=message):
        circulant(n, jumps)


def test_parts_without_a_way_to_each_other_are_allowed_where_asked_for():
    fabric = circulant(8, (2,), connected=False)
    with pytest.raises(WeftError, match="no route from npu0 to npu1"):
        fabric.paths(np.array([0]), np.array([1]))


def route_nodes(fabric, src, dst):
    """The nodes of the route from one node to another, both included."""
    return [src, *fabric.dst[fabric.paths(np.array([src]), np.array([dst])).links].tolist()]
