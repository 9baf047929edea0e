"""Slow and obvious: every sequence of fabrics tried, every route by networkx, every betweenness by counting paths."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np

from topologies import Topology


def cheapest_ps(costs_ps: np.ndarray, delay_ps: int) -> int:
    """The least cost of any sequence of fabrics, the first of which is up in the beginning."""
    steps, fabrics = costs_ps.shape
    best = None
    for chosen in itertools.product(range(fabrics), repeat=steps):
        total, now = 0, 0
        for step, fabric in enumerate(chosen):
            total += int(costs_ps[step, fabric]) + (delay_ps if fabric != now else 0)
            now = fabric
        best = total if best is None else min(best, total)
    return best or 0


def graph_of(topology: Topology) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    graph.add_edges_from(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    return graph


def betweenness(topology: Topology) -> dict[tuple[int, int], float]:
    """Load of each link when all pairs spread one unit over their shortest paths, each path found and counted."""
    graph = graph_of(topology)
    load = dict.fromkeys(graph.edges, 0.0)
    for a, b in itertools.permutations(graph.nodes, 2):
        paths = list(nx.all_shortest_paths(graph, a, b))
        for path in paths:
            for edge in itertools.pairwise(path):
                load[edge] += 1 / len(paths)
    return load
