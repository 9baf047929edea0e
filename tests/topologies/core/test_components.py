"""Parts of a graph against SciPy's, which only large graphs are given to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topologies.core import components as module
from topologies.core.components import components


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=16), st.booleans())
def test_the_parts_are_those_of_scipy(n: int, edges: list[tuple[int, int]], both_ways: bool) -> None:
    src, dst = (np.array(edges, np.int64).reshape(-1, 2) % n).T
    if both_ways:
        src, dst = np.append(src, dst), np.append(dst, src)
    graph = coo_array((np.ones(src.size), (src, dst)), shape=(n, n))
    assert np.array_equal(components(n, src, dst), connected_components(graph, directed=False)[1])
    strong = connected_components(graph, connection="strong")[1]
    found = components(n, src, dst, strong=True)
    assert np.array_equal(found[:, None] == found, strong[:, None] == strong)


def test_a_long_path_and_no_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.random.default_rng(0).permutation(5000)
    assert not components(5000, order[1:], order[:-1]).any()
    none = np.zeros(0, np.int32)
    assert components(3, none, none).tolist() == [0, 1, 2] and components(0, none, none).size == 0
    monkeypatch.setattr(module, "FEW_EDGES", 0)
    assert not components(5000, order[1:], order[:-1]).any()
