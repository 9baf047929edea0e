import networkx as nx
import numpy as np
import pytest

from collectives import in_network, parameter_server
from collectives.aggregation_tree import edge_disjoint_trees, given_tree, minimum_depth_tree, torus_trees
from tests.oracles import arrays
from topologies import (
    OCS,
    Topology,
    WeftError,
    fat_tree,
    from_links,
    from_spec,
    leaf_spine,
    switch,
    torus,
    with_reduction_units,
)
from topologies.routing import ShortestPathRouter

STARS = ["switch:1", "switch:2", "switch:5", "leaf-spine:3x2x2", "fat-tree:4", "fat-tree:2", "leaf-spine:1x1x1"]
KINDS = ["reduce_scatter", "all_gather", "broadcast", "reduce"]


def on_arrays(schedule, seed=1):
    """Move real numbers; switches begin with nothing."""
    pattern, rng = schedule.pattern, np.random.default_rng(seed)
    p, n = pattern.p, pattern.n_blocks
    given = rng.integers(-(2**40), 2**40, (p, n))
    buffers = np.zeros((pattern.topology.n_nodes, n), np.int64)
    buffers[:p] = given
    arrays._execute(pattern, pattern.transfers(), buffers, rng)
    for blocks, ranks, expected in arrays._expected(pattern.kind.name, given, p, n, pattern.root):
        found = buffers[np.ix_(ranks, blocks)]
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


@pytest.mark.parametrize("spec", STARS)
@pytest.mark.parametrize("form", ["push", "pull"])
def test_all_reduce_in_any_order_of_arrival(spec, form):
    schedule = in_network.all_reduce(from_spec(spec), "1MiB", form=form)
    assert schedule.proof == "proved"
    for seed in range(3):
        on_arrays(schedule, seed)


@pytest.mark.parametrize("spec", STARS)
@pytest.mark.parametrize("kind", KINDS)
def test_other_collectives(spec, kind):
    schedule = getattr(in_network, kind)(from_spec(spec), "1MiB")
    assert schedule.proof == "proved"
    on_arrays(schedule)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_any_root(kind):
    for root in range(5):
        on_arrays(getattr(in_network, kind)(leaf_spine(3, 2, 1), "1KiB", root=root))
    with pytest.raises(WeftError, match="root 6 is not one of the 6 ranks"):
        getattr(in_network, kind)(leaf_spine(3, 2, 1), "1KiB", root=6)


@pytest.mark.parametrize("spec", ["SW(4)_SW(3)", "FC(3)_SW(4)", "SW(2)_SW(1)", "FC(1)_SW(3)", "leaf-spine:2x1x1"])
def test_rail_wise(spec):
    if spec.startswith("leaf"):
        with pytest.raises(WeftError):
            in_network.all_reduce(leaf_spine(2, 3, 1), "1MiB", form="rail-wise")
        return
    schedule = in_network.all_reduce(from_spec(spec), "1MiB", form="rail-wise")
    assert schedule.proof == "proved"
    on_arrays(schedule)


@pytest.mark.parametrize("routers_of", ["torus:4x4", "torus:3x5", "mesh:3x3", "ring:5", "hx2mesh:2x2", "SW(2)_SW(3)"])
def test_routers_reduce_only_if_told(routers_of):
    fabric = from_spec(routers_of)
    if not np.any(fabric.kind != 0):
        with pytest.raises(WeftError, match="routers of NPUs reduce only if told"):
            in_network.all_reduce(fabric, "1MiB")
    schedule = in_network.all_reduce(fabric, "1MiB", routers=True)
    assert schedule.proof == "proved"
    on_arrays(schedule)


def test_optical_switches_never_reduce():
    star = switch(4)
    optical = Topology(
        name="optical", kind=np.where(star.kind == 1, OCS, star.kind).astype(np.int8), src=star.src, dst=star.dst,
        bandwidth_Bps=star.bandwidth_Bps, latency_ps=star.latency_ps, hop_latency_ps=star.hop_latency_ps,
        dimension=star.dimension, shape=star.shape, coords=star.coords, router=ShortestPathRouter(),
    )
    for routers in (False, True):
        with pytest.raises(WeftError, match="no tree of"):
            in_network.all_reduce(optical, "1MiB", routers=routers)
    with pytest.raises(WeftError, match="an optical switch and cannot get a unit"):
        with_reduction_units(optical, "1GB/s", nodes=[4])


@pytest.mark.parametrize("per", ["switch", "port"])
@pytest.mark.parametrize("spec", ["switch:4", "fat-tree:4", "leaf-spine:2x2x1"])
@pytest.mark.parametrize("form", ["push", "pull"])
def test_units_behind_switches(spec, per, form):
    fabric = with_reduction_units(from_spec(spec), "800Gb/s", per=per, latency="50ns")
    schedule = in_network.all_reduce(fabric, "1MiB", form=form)
    assert schedule.proof == "proved"
    on_arrays(schedule)


def test_units_behind_routers():
    fabric = with_reduction_units(torus((3, 3)), "800Gb/s", nodes=range(9))
    on_arrays(in_network.all_reduce(fabric, "1MiB", routers=True))
    for nodes, message in (([99], "no node 99"), (None, "units already")):
        with pytest.raises(WeftError, match=message):
            with_reduction_units(fabric, "1GB/s", nodes=nodes)
    with pytest.raises(WeftError, match="per 'chip' is unknown"):
        with_reduction_units(torus((3, 3)), "1GB/s", per="chip")


@pytest.mark.parametrize(("spec", "count"), [("fat-tree:4", 2), ("fat-tree:8", 4), ("leaf-spine:4x3x3", 3)])
def test_edge_disjoint_trees(spec, count):
    fabric = from_spec(spec)
    trees = edge_disjoint_trees(fabric, count)
    assert len({tree.depth for tree in trees}) == 1
    seen = [pair for tree in trees for pair in tree.parent if pair[0] >= fabric.n_npus]
    assert len(seen) == len(set(seen))
    with pytest.raises(WeftError, match=f"{count} edge-disjoint trees found, not {count + 1}"):
        edge_disjoint_trees(fabric, count + 1)
    with pytest.raises(WeftError, match="0 aggregation trees"):
        edge_disjoint_trees(fabric, 0)
    on_arrays(in_network.all_reduce(fabric, "1MiB", trees=count))
    on_arrays(in_network.reduce_scatter(from_spec("leaf-spine:2x2x2"), "1MiB", trees=2))


@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (3, 5), (6, 4)])
def test_two_trees_of_a_torus(shape):
    fabric = torus(shape)
    trees = torus_trees(fabric)
    cables = [frozenset(pair) for tree in trees for pair in tree.parent]
    assert len(cables) == len(set(cables)) == 2 * fabric.n_npus - 2
    for tree in trees:
        given_tree(fabric, tree.root, tree.parent_of)
        assert len(tree.depth_of) == fabric.n_npus
    on_arrays(in_network.all_reduce(fabric, "1MiB", trees=trees, routers=True))
    with pytest.raises(WeftError, match="two extents of at least 3"):
        torus_trees(torus((2, 4)))


def test_trees_have_least_depth_and_given_ones_are_checked():
    fabric = fat_tree(4)
    tree = minimum_depth_tree(fabric)
    assert tree.depth == 3 and fabric.node_name(tree.root).startswith("core") and tree.fan_in == 4
    again = given_tree(fabric, tree.root, tree.parent_of)
    assert dict(again.parent) == tree.parent_of
    assert in_network.all_reduce(fabric, "1KiB", trees=(again,)).proof == "proved"
    with pytest.raises(WeftError, match="does not hang together"):
        given_tree(fabric, tree.root, {0: 1, 1: 0})
    with pytest.raises(WeftError, match="needs a link from node 0 to 5"):
        given_tree(fabric, 5, {0: 5})


@pytest.mark.parametrize("fallback", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("spec", ["switch:5", "fat-tree:4", "switch:1"])
def test_parameter_server(spec, fallback):
    schedule = parameter_server.all_reduce(from_spec(spec), "1MiB", fallback=fallback, parts=8)
    assert schedule.proof == "proved"
    on_arrays(schedule)
    t = schedule.pattern.transfers()
    direct = (t.dst == 0) & (t.src < schedule.pattern.p) & (t.src != 0)
    assert int(t.blocks[direct].sum()) == (schedule.pattern.p - 1) * round(8 * fallback)


def test_a_plain_server_needs_no_switches():
    on_arrays(parameter_server.all_reduce(torus((2, 3)), "1MiB", server=4))
    with pytest.raises(WeftError, match="no tree of switches"):
        parameter_server.all_reduce(torus((2, 3)), "1MiB", fallback=0.5)
    for bad, message in (
        ({"fallback": 2}, "fallback of 2 is out of range"), ({"server": 9}, "server 9 is not"),
        ({"parts": 0}, "0 parts"),
    ):
        with pytest.raises(WeftError, match=message):
            parameter_server.all_reduce(switch(4), "1MiB", **bad)
    assert parameter_server.collision_probability(4, 64, 128) == pytest.approx(0.7769, abs=1e-4)
    assert parameter_server.collision_probability(1, 64, 128) == 0
    with pytest.raises(WeftError):
        parameter_server.collision_probability(0, 1, 1)


def test_options_that_do_not_fit_are_refused():
    for options, message in (
        ({"form": "pull", "slots": 4}, "takes no slots"), ({"slots": 0}, "0 slots: at least 1"),
        ({"form": "shove"}, "in-network has no form 'shove': choose one of push, pull, rail-wise"),
        ({"form": "rail-wise"}, "takes networks of two dimensions"),
    ):
        with pytest.raises(WeftError, match=message):
            in_network.all_reduce(switch(4), "1MiB", **options)
    far = from_links([(0, 2, "1GB/s", 0), (2, 0, "1GB/s", 0), (1, 3, "1GB/s", 0), (3, 1, "1GB/s", 0)], n_npus=2)
    with pytest.raises(WeftError, match="no tree of switches that reduce joins all 2 NPUs"):
        in_network.all_reduce(far, "1MiB")


def test_large_networks_are_proved_on_smaller_ones_or_refused():
    big = switch(400)
    assert in_network.all_reduce(big, "1MiB").proof == "proved"
    assert in_network.reduce_scatter(big, "1MiB").proof.startswith("proved on torus")
    with pytest.raises(WeftError, match="more than 4,000,000 transfers"):
        in_network.all_gather(switch(2000), "1MiB")


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("spec", ["fat-tree:4", "fat-tree:8x2", "leaf-spine:3x4x2", "mesh:5x4", "SW(2)_SW(3)"])
def test_the_root_is_the_first_from_which_the_farthest_rank_is_nearest(spec, routers):
    fabric = from_spec(spec)
    graph = nx.DiGraph(list(zip(fabric.src.tolist(), fabric.dst.tolist(), strict=True)))
    inner = [node for node in range(fabric.n_nodes) if routers or fabric.kind[node] != 0]
    if not inner:
        return
    away = {}
    for root in inner:
        known, ahead = {root: 0}, [root]
        for node in ahead:
            for other in graph[node] if node in inner else ():
                if other not in known:
                    known[other] = known[node] + 1
                    ahead.append(other)
        if all(rank in known for rank in range(fabric.n_npus)):
            away[root] = max(known[rank] for rank in range(fabric.n_npus))
    if not away:
        return
    tree = minimum_depth_tree(fabric, routers=routers)
    assert (tree.depth, tree.root) == min((depth, root) for root, depth in away.items())


def test_a_tree_of_a_thousand_ranks_has_one_transfer_an_edge_and_direction():
    schedule = in_network.all_reduce(fat_tree(16), "64MiB")
    assert schedule.proof == "proved" and schedule.pattern.transfers().src.size == 2 * (1024 + 128 + 16)
