"""Shortest-path trees of all roots: shortest, as even as any choice can be, and right on arrays."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from collectives import build
from collectives.core.proof import ScheduleError, prove
from collectives.trees.shortest import _prove, is_direct, loss_of, shortest_pattern, shortest_trees
from sim import simulate
from tests.oracles import arrays
from topologies import from_links, from_spec

SPECS = ("ring:5", "torus:3x4", "mesh:3x3", "fc:6", "hypercube:3", "random-regular:16x4", "dragonfly:5x4", "dgx1:1")
KINDS = ("all-gather", "reduce-scatter", "all-reduce")


def fabric(name: str):
    """A direct network, some with unequal rates."""
    if name != "unequal":
        return from_spec(name)
    cables = [(0, 1, 4), (1, 2, 1), (2, 3, 4), (3, 0, 1), (0, 2, 2), (3, 4, 8), (1, 4, 1)]
    ways = [(*ends, f"{rate}GB/s", "1us") for a, b, rate in cables for ends in ((a, b), (b, a))]
    return from_links(ways, n_npus=5)


by_fabric = pytest.mark.parametrize("name", [*SPECS, "unequal"])


def least_load(topology, node: int) -> float:
    """Oracle: the least time of the fullest link into a node, by flows of networkx at every load there can be."""
    graph = nx.DiGraph(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    n = topology.n_npus
    links = np.flatnonzero(topology.dst == node).tolist()
    far = {root: nx.single_source_shortest_path_length(graph, root) for root in range(n)}
    rates = {link: float(topology.bandwidth_Bps[link]) for link in links}
    for time in sorted({count / rate for rate in rates.values() for count in range(1, n)}):
        flow = nx.DiGraph()
        for root in range(n):
            for link in links:
                if root != node and far[root][int(topology.src[link])] + 1 == far[root][node]:
                    flow.add_edge("s", ("root", root), capacity=1)
                    flow.add_edge(("root", root), link, capacity=1)
                    flow.add_edge(link, "t", capacity=int(time * rates[link] * (1 + 1e-9)))
        if nx.maximum_flow_value(flow, "s", "t") == n - 1:
            return time
    raise AssertionError("every root reaches every node")


@by_fabric
def test_shortest_and_as_even_as_can_be(name):
    topology = fabric(name)
    trees = shortest_trees(topology)
    blocks = np.bincount(trees[trees >= 0], minlength=topology.n_links)
    for node in range(topology.n_npus):
        links = np.flatnonzero(topology.dst == node)
        assert (blocks[links] / topology.bandwidth_Bps[links]).max() == pytest.approx(least_load(topology, node))
    graph = nx.DiGraph(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    for root in range(topology.n_npus):
        tree = nx.DiGraph()
        tree.add_edges_from((int(topology.src[link]), int(topology.dst[link])) for link in trees[root] if link >= 0)
        assert nx.is_arborescence(tree)
        assert nx.single_source_shortest_path_length(tree, root) == nx.single_source_shortest_path_length(graph, root)


@by_fabric
@pytest.mark.parametrize("kind", KINDS)
def test_on_arrays_and_by_the_general_proof(name, kind):
    topology = fabric(name)
    assert is_direct(topology)
    pattern = shortest_pattern(topology, kind, "pipelined", "")
    prove(pattern.kind, pattern.p, pattern.n_blocks, 0, pattern.transfers(), pattern.blocks_of)
    arrays.run(pattern, 1)
    t = pattern.transfers()
    assert (topology.src[t.via_links] == t.src).all() and (topology.dst[t.via_links] == t.dst).all()


def test_a_tree_that_is_none_is_refused():
    topology = from_spec("ring:5")
    trees = shortest_trees(topology).copy()
    assert _prove(topology, trees) == "proved tree by tree"
    link, other = topology.link_ids(np.array([2, 1]), np.array([1, 2]))
    trees[0, 1], trees[0, 2] = link, other
    with pytest.raises(ScheduleError, match="does not reach its root"):
        _prove(topology, trees)
    trees[0, 2] = -1
    with pytest.raises(ScheduleError, match="does not span"):
        _prove(topology, trees)


@pytest.mark.full
@pytest.mark.parametrize("spec", ["random-regular:300x6", "dragonfly:17x16"])
@pytest.mark.parametrize("kind", KINDS)
def test_near_the_optimum_beyond_what_is_packed(spec, kind):
    topology = from_spec(spec)
    schedule = build("pipelined", kind, topology, "1GiB")
    assert schedule.proof in ("proved", "proved tree by tree") and loss_of(topology) < 0.03
    result = simulate(schedule, chunks=1)
    assert result.time_ps < 1.05 * result.lower_bound_ps


def test_what_has_switches_is_still_refused():
    one_way = from_links([(at, (at + 1) % 3, "1GB/s", "1us") for at in range(3)], n_npus=3)
    assert not is_direct(from_spec("fat-tree:4")) and not is_direct(one_way)
