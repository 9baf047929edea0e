"""Edge-disjoint aggregation trees: networkx says what is a spanning tree, and how many there can be."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import in_network
from collectives.trees.aggregation import given_tree, torus_trees
from collectives.trees.edge_disjoint import DisjointForests, edge_disjoint_trees
from tests.collectives.test_in_network import on_arrays
from topologies import WeftError, from_spec, torus

DIRECT = [
    ("torus:3x3", 2, 3), ("torus:8x8", 2, 11), ("torus:4x4x4", 3, 9), ("FC(8)", 4, 3), ("FC(9)", 4, 2),
    ("hypercube:4", 2, 4), ("twisted-torus:2x2x4", 3, 6), ("circulant:9x1x2", 2, 5),
]
"""Networks of routers, as many trees as there can be of them, and the depth of the deepest."""

SWITCHED = [("fat-tree:4", 2, 3), ("fat-tree:8", 4, 3), ("leaf-spine:4x3x3", 3, 2), ("switch:4", 3, 1)]


def cables(fabric):
    return {frozenset(ends) for ends in zip(fabric.src.tolist(), fabric.dst.tolist(), strict=True)}


def check_trees(fabric, trees):
    """Each is a tree of the network that reaches all ranks, and no cable is in two, but the only one of an NPU."""
    shared = {cable for cable in cables(fabric) for end in cable
              if end < fabric.n_npus and sum(end in other for other in cables(fabric)) == 1}
    shared = {cable for cable in shared if max(cable) >= fabric.n_npus}
    seen = set()
    for tree in trees:
        edges = {frozenset(edge) for edge in tree.parent}
        assert edges <= cables(fabric) and not (edges - shared) & seen
        seen |= edges
        graph = nx.Graph(map(tuple, edges))
        assert nx.is_tree(graph) and set(range(fabric.n_npus)) <= set(graph)
        assert tree.depth == max(nx.single_source_shortest_path_length(graph, tree.root).values())


@pytest.mark.parametrize(("spec", "count", "depth"), DIRECT + SWITCHED)
def test_as_many_as_there_are(spec, count, depth):
    fabric = from_spec(spec)
    routers = (spec, count, depth) in DIRECT
    for fewer in range(1, count + 1):
        trees = edge_disjoint_trees(fabric, fewer, routers=routers)
        assert len(trees) == fewer
        check_trees(fabric, trees)
    assert max(tree.depth for tree in trees) <= depth
    if spec != "switch:4":
        with pytest.raises(WeftError, match=f"{spec.replace('(', '.').replace(')', '.')}: {count} edge-disjoint trees? "
                                            f"exists?, not {count + 1}"):
            edge_disjoint_trees(fabric, count + 1, routers=routers)


@pytest.mark.parametrize(("spec", "found"), [
    ("mesh:4x4", "1 edge-disjoint tree exists, not 2"), ("ring:2", "1 edge-disjoint tree exists, not 2"),
    ("SW(4)_SW(4)", "1 edge-disjoint tree found, not 2"), ("ring:1", "2 aggregation trees: give at least 1"),
])
def test_fewer_are_refused_with_their_number(spec, found):
    with pytest.raises(WeftError, match=found):
        edge_disjoint_trees(from_spec(spec), 2, routers=True)
    with pytest.raises(WeftError, match="0 aggregation trees: give at least 1"):
        edge_disjoint_trees(from_spec(spec), 0)


def test_beyond_some_size_edges_are_not_exchanged(monkeypatch):
    monkeypatch.setattr("collectives.trees.edge_disjoint.MOST_PACKED", 10)
    with pytest.raises(WeftError, match=r"1 edge-disjoint tree found \(trees are packed among up to 10 reducing nodes"):
        edge_disjoint_trees(torus((4, 4, 4)), 2, routers=True)


def test_switches_between_boards_need_not_be_in_all_trees():
    fabric = from_spec("hx2mesh:2x2")
    check_trees(fabric, edge_disjoint_trees(fabric, 2, routers=True))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(0, 10**6), st.floats(0.2, 1))
def test_forests_have_as_many_edges_as_there_can_be(n, count, seed, density):
    """Tutte and Nash-Williams: of all ways to divide the nodes, the one that leaves least between its parts decides."""
    rng = np.random.default_rng(seed)
    edges = [(one, other) for one in range(n) for other in range(one + 1, n) if rng.random() < density]
    forests = DisjointForests(n, edges, count)
    forests.fill()
    for forest in range(count):
        graph = nx.Graph([edge for edge, its in zip(edges, forests.forest_of, strict=True) if its == forest])
        assert not graph or nx.is_forest(graph)
    least = n
    for parts in divisions(list(range(n))) if n <= 7 else ():
        of = {node: i for i, part in enumerate(parts) for node in part}
        if len(parts) > 1:
            least = min(least, sum(of[one] != of[other] for one, other in edges) // (len(parts) - 1))
    spans = sum(its >= 0 for its in forests.forest_of) == count * (n - 1)
    if n <= 7:
        assert spans == (least >= count)


def divisions(nodes):
    """All ways to divide some nodes into parts."""
    if not nodes:
        yield []
        return
    first, *rest = nodes
    for parts in divisions(rest):
        yield [[first], *parts]
        for i, part in enumerate(parts):
            yield [*parts[:i], [first, *part], *parts[i + 1 :]]


@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (3, 5), (6, 4)])
def test_two_trees_of_a_torus(shape):
    fabric = torus(shape)
    trees = torus_trees(fabric)
    assert trees == edge_disjoint_trees(fabric, 2, routers=True)
    check_trees(fabric, trees)
    assert sum(len(tree.parent) for tree in trees) == 2 * fabric.n_npus - 2
    for tree in trees:
        given_tree(fabric, tree.root, tree.parent_of)
    on_arrays(in_network.all_reduce(fabric, "1MiB", trees=2, routers=True))
    with pytest.raises(WeftError, match="two extents of at least 3"):
        torus_trees(torus((2, 4)))


def test_striped_schedules():
    on_arrays(in_network.all_reduce(from_spec("fat-tree:4"), "1MiB", trees=2))
    on_arrays(in_network.reduce_scatter(from_spec("leaf-spine:2x2x2"), "1MiB", trees=2))
    on_arrays(in_network.all_reduce(from_spec("torus:3x3x3"), "1MiB", trees=3, routers=True, form="pull"))
