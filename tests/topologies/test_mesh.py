import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import WeftError, mesh, torus


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_equals_the_grid_of_networkx(shape):
    t = mesh(shape)
    grid = nx.DiGraph(nx.grid_graph(dim=shape[::-1]))
    ours = {(tuple(a), tuple(b)) for a, b in zip(t.coords[t.src].tolist(), t.coords[t.dst].tolist(), strict=True)}
    assert ours == set(grid.edges)
    assert t.n_links == len(ours)


def test_up_to_two_a_mesh_is_a_torus():
    for shape in [(1,), (2,), (2, 2), (1, 2, 2)]:
        ours, theirs = mesh(shape), torus(shape)
        assert np.array_equal(ours.src, theirs.src) and np.array_equal(ours.dst, theirs.dst)


def test_corner_to_corner_goes_along_dimension_zero_first():
    t = mesh((3, 3))
    paths = t.paths(np.array([0]), np.array([8]), tie="split")
    assert t.dst[paths.links].tolist() == [1, 2, 5, 8]
    assert paths.pair.tolist() == [0]


def test_bad_extent_is_named():
    with pytest.raises(WeftError, match="an extent of mesh is 0"):
        mesh((3, 0))
