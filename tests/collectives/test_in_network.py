from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from collectives import build, in_network, parameter_server
from collectives.core.pattern import Pattern
from collectives.trees.aggregation import AggregationTree, given_tree, minimum_depth_tree
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
from topologies.core.routing import ShortestPathRouter

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
    with pytest.raises(WeftError, match="root is 6: give an integer from 0 to 5"):
        getattr(in_network, kind)(leaf_spine(3, 2, 1), "1KiB", root=6)


@pytest.mark.parametrize("spec", ["SW(4)_SW(3)", "FC(3)_SW(4)", "SW(2)_SW(1)", "FC(1)_SW(3)", "SW(2)_SW(2)_SW(2)"])
def test_rail_wise(spec):
    fabric = from_spec(spec)
    schedule = in_network.all_reduce(fabric, "1MiB", form="rail-wise", routers=len(fabric.shape) > 2)
    assert schedule.proof == "proved"
    on_arrays(schedule)


@pytest.mark.parametrize("spec", ["torus:3x4", "FC(4)_FC(3)", "RI(4)_SW(3)", "torus:3x2x2"])
def test_rail_wise_over_routers(spec):
    on_arrays(in_network.all_reduce(from_spec(spec), "1MiB", form="rail-wise", routers=True))


@pytest.mark.parametrize(("spec", "options", "message"), [
    ("leaf-spine:2x3x1", {}, "no tree of reducing switches connects 3 of the 6 NPUs, 0 to 4"),
    ("torus:3x4", {}, "routers of NPUs reduce only with"),
    ("switch:4", {}, "at least two dimensions, the node and the rails: switch:4 has 1"),
    ("SW(4)_SW(3)", {"trees": 3}, "one tree per rail and takes no trees: 3"),
    ("SW(4)_SW(3)", {"trees": ("x",)}, "item 0, is 'x': give an AggregationTree"),
    ("SW(4)_SW(3)", {"slots": 4}, "takes no slots"),
])
def test_rail_wise_refuses_what_it_cannot_honor(spec, options, message):
    with pytest.raises(WeftError, match=message):
        in_network.all_reduce(from_spec(spec), "1MiB", form="rail-wise", **options)


@pytest.mark.parametrize("routers_of", ["torus:4x4", "torus:3x5", "mesh:3x3", "ring:5", "hx2mesh:2x2", "SW(2)_SW(3)"])
def test_routers_reduce_only_if_told(routers_of):
    fabric = from_spec(routers_of)
    if not np.any(fabric.kind != 0):
        with pytest.raises(WeftError, match="routers of NPUs reduce only with"):
            in_network.all_reduce(fabric, "1MiB")
    schedule = in_network.all_reduce(fabric, "1MiB", routers=True)
    assert schedule.proof == "proved"
    on_arrays(schedule)


def optical_star():
    star = switch(4)
    return Topology(
        name="optical", kind=np.where(star.kind == 1, OCS, star.kind).astype(np.int8), src=star.src, dst=star.dst,
        bandwidth_Bps=star.bandwidth_Bps, latency_ps=star.latency_ps, hop_latency_ps=star.hop_latency_ps,
        dimension=star.dimension, shape=star.shape, coords=star.coords, router=ShortestPathRouter(),
    )


STAR = ((0, 4), (1, 4), (2, 4), (3, 4))


def test_no_tree_adds_up_in_an_optical_switch():
    optical = optical_star()
    for make in (
        lambda: given_tree(optical, 4, dict(STAR)), lambda: minimum_depth_tree(optical, root=4),
        lambda: in_network.all_reduce(optical, "1MiB", trees=(AggregationTree(4, STAR),), routers=True),
    ):
        with pytest.raises(WeftError, match="topology optical: ocs0 is an optical switch and cannot be an inner node"):
            make()
    with_units = with_reduction_units(switch(4), "1GB/s")
    for make in (
        lambda: minimum_depth_tree(with_units, root=5), lambda: given_tree(with_units, 4, {0: 4, 5: 4, 1: 5}),
    ):
        with pytest.raises(WeftError, match=r"reducer0 is a reduction unit|needs a link from node 1 to 5"):
            make()
    with pytest.raises(WeftError, match="root 9 does not exist"):
        minimum_depth_tree(optical, root=9)


def test_routers_add_up_in_a_given_tree_only_if_told():
    tree = given_tree(torus((2, 2)), 0, {1: 0, 2: 0, 3: 1})
    assert in_network.all_reduce(torus((2, 2)), "1MiB", trees=[tree], routers=True).proof == "proved"
    with pytest.raises(WeftError, match=r"npu0 is an NPU inside the tree: .* only with"):
        in_network.all_reduce(torus((2, 2)), "1MiB", trees=[tree])


@pytest.mark.parametrize(("tree", "message"), [
    (AggregationTree(4, STAR[:3]), "rank 3 is not in the tree of root 4"),
    (AggregationTree(5, tuple((node, 5) for node in range(5))), "the tree has a node 5"),
    (AggregationTree(4, ((0, 1), (1, 4), (2, 4), (3, 4))), "is disconnected at node 0"),
    (AggregationTree(4, ((0, 4), (1, 0), (2, 4), (3, 4))), "needs a link from node 0 to 1"),
    ((4, STAR), "give an AggregationTree"),
])
def test_a_tree_that_does_not_fit_the_network_is_refused(tree, message):
    with pytest.raises(WeftError, match=message):
        in_network.all_reduce(switch(4), "1MiB", trees=(tree,))


def test_optical_switches_never_reduce():
    optical = optical_star()
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
    with pytest.raises(WeftError, match=r"reduces twice at an NPU.* torus:3x3 has a unit behind npu0"):
        in_network.all_reduce(fabric, "1MiB", form="rail-wise", routers=True)
    for nodes, message in (([99], "no node 99"), (None, "already has reduction units")):
        with pytest.raises(WeftError, match=message):
            with_reduction_units(fabric, "1GB/s", nodes=nodes)
    with pytest.raises(WeftError, match="per 'chip' is unknown"):
        with_reduction_units(torus((3, 3)), "1GB/s", per="chip")


def test_trees_have_least_depth_and_given_ones_are_checked():
    fabric = fat_tree(4)
    tree = minimum_depth_tree(fabric)
    assert tree.depth == 3 and fabric.node_name(tree.root).startswith("core") and tree.fan_in == 4
    again = given_tree(fabric, tree.root, tree.parent_of)
    assert dict(again.parent) == tree.parent_of
    assert in_network.all_reduce(fabric, "1KiB", trees=(again,)).proof == "proved"
    with pytest.raises(WeftError, match="is not connected"):
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
    with pytest.raises(WeftError, match="no tree of reducing switches"):
        parameter_server.all_reduce(torus((2, 3)), "1MiB", fallback=0.5)
    for bad, message in (
        *(({"fallback": bad}, "fallback is .*: give a number from 0 to 1") for bad in (2, -1, True, "x")),
        *(({"server": bad}, f"server is {bad!r}: give an integer") for bad in (9, 1.5, "1")),
        *(({"parts": bad}, f"parts is {bad!r}: give an integer") for bad in (0, 2.5)),
        ({"seed": 1.5}, "seed is 1.5"), ({"fallback": float("nan")}, "fallback is nan: give a number"),
        ({"fallback": 0.5, "parts": 1}, "fallback of 0.5 is not a multiple of 1/1: give one, or change parts"),
        ({"fallback": 0.77712}, "fallback of 0.77712 is not a fraction of up to 1,000ths"),
    ):
        with pytest.raises(WeftError, match=message):
            parameter_server.all_reduce(switch(4), "1MiB", **bad)


@pytest.mark.parametrize(
    ("fallback", "direct", "parts"), [(0.005, 1, 200), (0.1, 7, 70), (1 / 3, 22, 66), (0.5, 32, 64), (0, 0, 64)]
)
def test_the_fraction_that_falls_back_is_exact(fallback, direct, parts):
    schedule = parameter_server.all_reduce(switch(3), "1MiB", fallback=fallback)
    t = schedule.pattern.transfers()
    assert schedule.pattern.n_blocks == parts
    assert np.count_nonzero((t.src == 1) & (t.dst == 0)) == direct


def test_options_that_do_not_fit_are_refused():
    for options, message in (
        ({"form": "pull", "slots": 4}, "takes no slots"), ({"slots": 0}, "slots is 0: give an integer from 1"),
        *(({"slots": much}, "slots is .* to 2147483647") for much in (2**31, 2**32 + 1, 2**64 + 1)),
        ({"form": "shove"}, "form 'shove' is unknown: choose one of push, pull, rail-wise"),
        *(({"slots": bad}, f"slots is {bad!r}: give an integer") for bad in ("4", 2.5, True)),
        *(({"trees": bad}, "trees is .*: give an integer") for bad in ("2", 2.0, None, 0, -3, True)),
        ({"trees": []}, "at least one AggregationTree"), ({"trees": (1,)}, "item 0, is 1: give an AggregationTree"),
        ({"routers": "yes"}, "routers is 'yes': give true or false"),
    ):
        for p in (1, 4):
            with pytest.raises(WeftError, match=message):
                in_network.all_reduce(switch(p), "1MiB", **options)
    assert in_network.all_reduce(switch(1), "1MiB", trees=2).proof == "proved"
    far = from_links([(0, 2, "1GB/s", 0), (2, 0, "1GB/s", 0), (1, 3, "1GB/s", 0), (3, 1, "1GB/s", 0)], n_npus=2)
    with pytest.raises(WeftError, match="no tree of reducing switches connects all 2 NPUs"):
        in_network.all_reduce(far, "1MiB")


def test_the_registry_takes_the_options_that_a_collective_has():
    assert build("in-network", "all-reduce", torus((3, 4)), "1MiB", "rail-wise").name == "in-network (rail-wise)"
    assert build("in-network", "all-reduce", torus((3, 4)), "1MiB", trees=2, slots=3, routers=True).proof == "proved"
    half = build("parameter-server", "all-reduce", torus((3, 4)), "1MiB", fallback=0.5, server=3, parts=4)
    assert half.pattern.form == "best-effort"
    for name in ("in-network", "parameter-server"):
        options = {"fallback": 0.5} if name == "parameter-server" else {}
        with pytest.raises(WeftError, match="routers of NPUs reduce only with"):
            build(name, "all-reduce", torus((3, 4)), "1MiB", routers=False, **options)
    for kind in KINDS:
        with pytest.raises(WeftError, match="option 'slots' is unknown: choose one of trees, routers, element_bytes"):
            build("in-network", kind.replace("_", "-"), switch(4), "1MiB", slots=4)


def test_a_torus_that_halves_to_itself_is_proved_on_another():
    """Its smaller member was itself, again and again."""
    proof = in_network.reduce_scatter(torus((6, 6, 6)), "1MiB", routers=True).proof
    assert proof == "proved on torus:4x4"


@pytest.mark.verify
@pytest.mark.parametrize(("spec", "small"), [
    ("fat-tree:12", "fat-tree:4"), ("torus:16x16", "torus:4x4"), ("torus:6x6x6", "torus:4x4"),
    ("SW(8)_SW(40)", "torus:4x4"), ("switch:300", "switch:8"), ("leaf-spine:32x8x2", "leaf-spine:4x4x4"),
])
def test_pull_on_large_networks(spec, small):
    assert in_network.all_reduce(from_spec(spec), "1MiB", form="pull", routers=True).proof == f"proved on {small}"


def test_small_networks_are_of_the_kind_of_the_large_one(monkeypatch):
    """Every kind of large network, without building one: all patterns count as too large but the small ones."""
    monkeypatch.setattr(Pattern, "is_too_large", lambda pattern, *_: pattern.topology.name in ("large", "large-units"))
    for spec, form, small in (
        ("switch:5", "push", "switch:8"), ("leaf-spine:2x2x2", "pull", "leaf-spine:4x4x4"),
        ("fat-tree:4", "push", "fat-tree:4"), ("torus:3x3", "pull", "torus:4x4"),
        ("torus:3x3", "rail-wise", "torus:3x4"), ("SW(2)_SW(3)", "rail-wise", "SW(3)_SW(4)"),
    ):
        fabric = replace(from_spec(spec), name="large")
        units = replace(fabric, name="large-units")
        rails = form == "rail-wise"
        units = with_reduction_units(units, "1GB/s", nodes=range(fabric.n_npus if rails else 0, fabric.n_nodes))
        for network in (fabric, units):
            proof = in_network.all_reduce(network, "1MiB", form=form, routers=True).proof
            same = spec == small and network is fabric  # fat-tree:4 emits what the small one does
            assert proof == ("proved" if same else f"proved on {small}")
        if form != "rail-wise":
            best = parameter_server.all_reduce(fabric, "1MiB", fallback=0.5, parts=4, server=1, routers=True)
            assert best.proof == ("proved" if spec == small else f"proved on {small}")


@pytest.mark.table
@pytest.mark.parametrize("trees", [1, 2])
@pytest.mark.parametrize(("kind", "form"), [("all-reduce", "pull"), ("all-gather", "push"), ("reduce-scatter", "push")])
@pytest.mark.parametrize("spec", [
    "switch:2", "switch:5", "ring:5", "torus:3x4", "mesh:3x2", "fc:4", "leaf-spine:3x2x2", "fat-tree:4", "dgx-h100:3",
    "mi250:1", "hypercube:3", "dragonfly:3x2", "dgx1:1",
])
def test_rows_as_arrays_are_those_added_one_by_one(monkeypatch, spec, kind, form, trees):
    fabric = from_spec(spec).as_it_reduces()
    if trees > 1 and spec not in ("torus:3x4", "fc:4", "leaf-spine:3x2x2", "fat-tree:4", "dgx1:1"):
        return  # there are no two
    own = in_network._pattern.__wrapped__(fabric, kind, form, trees, None, True, 0)
    monkeypatch.setattr(in_network, "is_plain", lambda *_: False)
    wanted = in_network._pattern.__wrapped__(fabric, kind, form, trees, None, True, 0)
    mine, its = own.transfers(), wanted.transfers()
    assert all(np.array_equal(one, other) for one, other in zip(mine, its, strict=True))
    ends = list(zip(mine.src.tolist(), mine.slot.tolist(), strict=True))
    assert [own.blocks_of(*one) for one in ends] == [list(wanted.blocks_of(*one)) for one in ends]


def test_what_would_take_too_long_is_refused_at_once():
    with pytest.raises(WeftError, match="2,000 blocks one by one over 2,001 nodes, more than 3,000,000"):
        in_network.all_reduce(switch(2000), "1MiB", form="pull")
    with pytest.raises(WeftError, match="would take 3,001,250 transfers, more than 3,000,000"):
        in_network.all_gather(switch(1225), "1MiB")
    with pytest.raises(WeftError, match=r"all 600 that arrive there, up to 216,360,000 waits, more than 40,000,000"):
        in_network.reduce_scatter(from_spec("fc:601"), "1MiB", routers=True)
    with pytest.raises(WeftError, match="1,024 blocks one by one over 1,025 nodes"):
        in_network.all_reduce(from_spec("SW(1024)_SW(1)"), "1MiB", form="rail-wise")
    with pytest.raises(WeftError, match="let each of 2,099 sends"):
        parameter_server.all_reduce(switch(2100), "1MiB")
    with pytest.raises(WeftError, match="1,000,000 parts up and down over 5 nodes"):
        parameter_server.all_reduce(switch(4), "1MiB", parts=10**6, fallback=0.5)
    assert parameter_server.all_reduce(switch(200), "1MiB").proof == "proved on switch:8"


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize(
    "spec", ["fat-tree:4", "fat-tree:8x2", "leaf-spine:3x4x2", "mesh:5x4", "SW(2)_SW(3)", "ring:7", "torus:3x4"]
)
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


def test_the_root_among_nodes_that_are_all_alike_is_not_searched(monkeypatch):
    """On a ring the search rules out two of them a step: on ring:1000000 it did not end."""
    monkeypatch.setattr("collectives.trees.aggregation._best_root", None)
    tree = minimum_depth_tree(from_spec("ring:10001"), routers=True)
    assert (tree.root, tree.depth) == (0, 5000)


def test_a_tree_of_a_thousand_ranks_has_one_transfer_an_edge_and_direction():
    schedule = in_network.all_reduce(fat_tree(16), "64MiB")
    assert schedule.proof == "proved" and schedule.pattern.transfers().src.size == 2 * (1024 + 128 + 16)
