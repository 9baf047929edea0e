"""What the tests of this room share: plain-words oracles for networks and routes."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from topologies import Paths, Topology

RouteChecker = Callable[[Topology, np.ndarray, np.ndarray, Paths], list[int]]


@pytest.fixture
def graph_of() -> Callable[[Topology], nx.MultiDiGraph]:
    """The topology as a bare networkx graph over node numbers."""

    def build(topology: Topology) -> nx.MultiDiGraph:
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(range(topology.n_nodes))
        graph.add_edges_from(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
        return graph

    return build


@pytest.fixture
def all_pairs() -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Every ordered pair of the nodes 0 to n-1."""

    def pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
        src, dst = np.indices((n, n))
        return src.ravel(), dst.ravel()

    return pairs


@pytest.fixture
def check_routes() -> RouteChecker:
    """Assert that routes lead from source to destination without a gap; the hops of each."""

    def check(topology: Topology, src: np.ndarray, dst: np.ndarray, paths: Paths) -> list[int]:
        assert paths.ptr[0] == 0 and paths.ptr[-1] == paths.links.size
        assert paths.pair.size == paths.ptr.size - 1
        hops = []
        for route, pair in enumerate(paths.pair):
            links = paths.links[paths.ptr[route] : paths.ptr[route + 1]]
            nodes = [int(src[pair]), *topology.dst[links].tolist()]
            assert topology.src[links].tolist() == nodes[:-1], f"route {route} has a gap"
            assert nodes[-1] == dst[pair], f"route {route} ends at {nodes[-1]}"
            hops.append(len(links))
        return hops

    return check
