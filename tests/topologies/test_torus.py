import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import WeftError, torus


def neighbors(t, node):
    return t.dst[t.link_ptr[node] : t.link_ptr[node + 1]].tolist()


def test_extent_one_has_no_links():
    t = torus(1)
    assert (t.n_nodes, t.n_links) == (1, 0)
    assert torus((1, 1, 1)).n_links == 0


def test_extent_two_is_one_cable():
    t = torus(2)
    assert list(zip(t.src.tolist(), t.dst.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_extent_three_is_a_ring_of_six_links():
    t = torus(3)
    assert [neighbors(t, node) for node in range(3)] == [[1, 2], [0, 2], [0, 1]]


def test_two_by_three_lists_each_neighbor_once():
    t = torus((2, 3))
    assert [neighbors(t, node) for node in range(6)] == [
        [1, 2, 4], [0, 3, 5], [0, 3, 4], [1, 2, 5], [0, 2, 5], [1, 3, 4],
    ]


def test_one_by_three_has_no_self_links():
    t = torus((1, 3))
    assert [neighbors(t, node) for node in range(3)] == [[1, 2], [0, 2], [0, 1]]
    assert np.all(t.dimension == 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(3, 6), min_size=1, max_size=3))
def test_equals_the_periodic_grid_of_networkx(shape):
    t = torus(shape)
    grid = nx.grid_graph(dim=shape[::-1], periodic=True)  # its tuples are in the reverse order of its extents
    as_tuple = (lambda coord: coord[0]) if len(shape) == 1 else tuple
    ours = {(as_tuple(a), as_tuple(b)) for a, b in zip(t.coords[t.src].tolist(), t.coords[t.dst].tolist(), strict=True)}
    assert ours == set(nx.DiGraph(grid).edges)
    assert t.n_links == 2 * grid.number_of_edges()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_number_of_links_by_extent(shape):
    t = torus(shape)
    per_npu = sum({1: 0, 2: 1}.get(extent, 2) for extent in shape)
    assert t.n_links == t.n_npus * per_npu
    assert np.all(np.diff(t.link_ptr) == per_npu)


def test_times_of_each_dimension():
    t = torus((3, 4), bandwidth=["400Gb/s", "10GB/s"], latency=["1ns", "2us"], hop_latency="7ns")
    assert t.bandwidth_Bps[t.dimension == 0].tolist() == [50e9] * 24
    assert t.bandwidth_Bps[t.dimension == 1].tolist() == [10e9] * 24
    assert set(t.latency_ps[t.dimension == 1].tolist()) == {2_000_000}
    assert np.all(t.hop_latency_ps == 7_000)


def test_defaults_are_those_of_the_swing_evaluation():
    t = torus((2, 2))
    assert set(t.bandwidth_Bps.tolist()) == {50e9}
    assert set(t.latency_ps.tolist()) == {100_000} and set(t.hop_latency_ps.tolist()) == {300_000}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 0), "an extent of torus is 0: give an integer from 1"), (-2, "an extent of torus is -2"),
        ((2.5,), "shape, item 0, is 2.5"), ((), "torus has no extents"), ((True, 2), "shape, item 0, is True"),
    ],
)
def test_bad_extents_are_named(shape, message):
    with pytest.raises(WeftError, match=message):
        torus(shape)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("bandwidth", "400"), ("bandwidth", 0), ("latency", "-1ns"), ("hop_latency", "3"), ("bandwidth", ["1GB/s"] * 3)],
)
def test_bad_quantities_are_named(keyword, value):
    with pytest.raises(WeftError, match=keyword.replace("_", " ")):
        torus((2, 2), **{keyword: value})


def test_a_million_npus_are_built_and_routed_in_a_gibibyte():
    tracemalloc.start()
    t = torus((1024, 1024))
    paths = t.paths(np.array([0, 5]), np.array([1023, 1024 * 513 + 5]))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (t.n_npus, t.n_links) == (2**20, 2**22)
    assert np.diff(paths.ptr).tolist() == [1, 511]
    assert peak_bytes < 2**30
