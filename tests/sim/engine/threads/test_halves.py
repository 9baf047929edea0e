"""Parts of a graph: what holds together stays together, and the parts are of equal work."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from sim.engine.threads.halves import part_of_nodes
from sim.program import I8


def crossing(links: csr_array, part: I8) -> float:
    """The share of what passes between nodes that passes between parts."""
    between = links.tocoo()
    return float(between.data[part[between.row] != part[between.col]].sum() / between.data.sum())


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
def test_clusters_are_found(parts: int) -> None:
    """Clusters that few links join, whose nodes have numbers at random."""
    graph, size = nx.planted_partition_graph(parts, 240 // parts, 0.5, 0.02, seed=parts), 240
    order = np.random.default_rng(parts).permutation(size)
    links = csr_array(nx.to_scipy_sparse_array(graph, nodelist=order.tolist(), dtype=float))
    part = part_of_nodes(links, np.ones(size), parts, 300)
    assert crossing(links, part) == crossing(links, (order // (size // parts)).astype(np.int8))
    assert np.bincount(part).tolist() == [size // parts] * parts
    assert np.array_equal(part, part_of_nodes(links, np.ones(size), parts, 300))


def test_a_random_graph_has_halves_that_a_fifth_of_its_links_join() -> None:
    links = csr_array(nx.to_scipy_sparse_array(nx.random_regular_graph(4, 1000, seed=1), dtype=float))
    part = part_of_nodes(links, np.ones(1000), 2, 500)
    assert np.bincount(part).tolist() == [500, 500]
    assert crossing(links, part) < 0.2


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_shares_of_work(parts: int) -> None:
    """Nodes of unequal work, some of which nothing joins to the others."""
    random = np.random.default_rng(0)
    work = random.integers(0, 100, 500).astype(float)
    links = csr_array(nx.to_scipy_sparse_array(nx.gnm_random_graph(500, 700, seed=2), dtype=float))
    share = np.bincount(part_of_nodes(links, work, parts, 200), work, parts) / work.sum()
    np.testing.assert_allclose(share, 1 / parts, atol=0.01)


def test_nothing_to_share() -> None:
    none = csr_array((3, 3))
    assert part_of_nodes(none, np.zeros(3), 1, 10).tolist() == [0, 0, 0]
    assert part_of_nodes(csr_array((0, 0)), np.zeros(0), 2, 10).tolist() == []
    assert set(part_of_nodes(none, np.ones(3), 3, 10).tolist()) == {0, 1, 2}
