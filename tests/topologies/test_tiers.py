import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import SWITCH, WeftError, fat_tree, from_spec, leaf_spine
from topologies.core.reduction_units import unit_of, with_reduction_units
from topologies.core.symmetry import link_permutation, reflection, translation
from topologies.core.ties import TIES
from topologies.flows.cuts import flow_Bps

SPECS = ["fat-tree:2", "fat-tree:4", "fat-tree:4x3", "fat-tree:6", "leaf-spine:1x1x1", "leaf-spine:2x3x2",
         "leaf-spine:4x1x3", "leaf-spine:3x4x1"]


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fat_tree_has_the_published_numbers(k):
    t = fat_tree(k)
    assert t.n_npus == k**3 // 4
    assert t.n_nodes - t.n_npus == 5 * k * k // 4
    degree = np.bincount(t.src, minlength=t.n_nodes)
    assert set(degree[t.kind == SWITCH].tolist()) == {k}
    assert t.n_links == 2 * 3 * k**3 // 4
    names = t.node_names
    assert (names.count("npu0"), sum(name.startswith("core") for name in names)) == (1, k * k // 4)


def test_a_fat_tree_does_not_block_and_an_oversubscribed_one_does():
    for hosts, factor in ((2, 1.0), (4, 2.0)):
        t = fat_tree(4, hosts, bandwidth="1GB/s")
        pods = t.coords[: t.n_npus, 2]
        flow = flow_Bps(t, np.flatnonzero(pods < 2), np.flatnonzero(pods >= 2))
        assert flow == pytest.approx(t.n_npus / 2 * 1e9 / factor)
    t = leaf_spine(8, 2, 2, bandwidth="1GB/s")
    assert flow_Bps(t, np.arange(8), np.arange(8, 16)) == pytest.approx(2e9)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("tie", TIES)
def test_routes_are_shortest_and_lead_there(spec, tie, graph_of, all_pairs, check_routes):
    t = from_spec(spec)
    src, dst = all_pairs(t.n_npus)
    paths = t.paths(src, dst, tie, seed=3)
    hops = check_routes(t, src, dst, paths)
    lengths = dict(nx.all_pairs_shortest_path_length(graph_of(t)))
    assert hops == [lengths[int(src[i])][int(dst[i])] for i in paths.pair]


@pytest.mark.parametrize("spec", SPECS)
def test_routes_from_and_to_switches(spec, all_pairs, check_routes):
    t = from_spec(spec)
    src, dst = all_pairs(t.n_nodes)
    check_routes(t, src, dst, t.paths(src, dst))


@pytest.mark.parametrize("tie", ["first", "alternating"])
@pytest.mark.parametrize("shift", [1, 2, 3, 5, 8])
def test_shifts_do_not_meet_in_a_fat_tree(tie, shift):
    t = fat_tree(4)
    src = np.arange(t.n_npus)
    paths = t.paths(src, (src + shift) % t.n_npus, tie)
    assert np.bincount(paths.links).max() == 1


def test_split_uses_two_ways_and_ecmp_many():
    t = fat_tree(8)
    two = t.paths(np.array([0]), np.array([100]), "split")
    assert two.pair.tolist() == [0, 0] and set(two.links[1:5]) & set(two.links[7:11]) == set()
    cores = {int(t.dst[t.paths(np.array([0]), np.array([100]), "ecmp", seed).links[2]]) for seed in range(200)}
    assert len(cores) == 16


@pytest.mark.parametrize("spec", SPECS)
def test_translations_are_symmetries(spec):
    t = from_spec(spec)
    for dim, extent in enumerate(t.shape):
        for by in {1, extent - 1}:
            assert link_permutation(t, translation(t, dim, by)) is not None


FOLLOWED = ["fat-tree:2", "fat-tree:4", "fat-tree:6", "fat-tree:6x2", "fat-tree:4x4", "leaf-spine:2x3x2",
            "leaf-spine:3x5x4", "leaf-spine:6x3x2", "leaf-spine:4x1x3", "leaf-spine:3x4x1"]


@pytest.mark.parametrize("spec", FOLLOWED)
@pytest.mark.parametrize("tie", ["first", "alternating", "split"])
def test_routes_go_where_the_switches_follow(spec, tie, all_pairs):
    """The image of each route is the route of the images, for translations and for reflections of places."""
    t = from_spec(spec)
    src, dst = all_pairs(t.n_npus)
    paths = t.paths(src, dst, tie)
    for dim, extent in enumerate(t.shape):
        moves = [translation(t, dim), *([reflection(t, dim, extent - 1)] if tie != "split" else [])]
        for nodes in (t.router.followed(t, move) for move in moves):
            links, wanted = link_permutation(t, nodes), t.paths(nodes[src], nodes[dst], tie)
            if tie == "split" and (t.router.tiers.ups % t.router.tiers.hosts or t.router.tiers.hosts % 2):
                continue  # the second way of the last place is that of a place without hosts, or the first of all
            assert np.array_equal(links[paths.links], wanted.links)
            assert np.array_equal(paths.ptr, wanted.ptr)


@pytest.mark.parametrize("spec", ["fat-tree:4x3", "leaf-spine:5x2x3"])
def test_switches_stay_where_places_that_share_one_part(spec):
    """Three hosts take two ways up: whoever moves on by one, two that shared a way take different ones."""
    t = from_spec(spec)
    assert t.router.followed(t, move := translation(t, 0)) is move
    assert link_permutation(t, t.router.followed(t, translation(t, 1))) is not None


def test_units_that_reduce_follow_their_switches():
    t = from_spec("fat-tree:4")
    every = with_reduction_units(t, "10GB/s")
    for dim in range(3):
        nodes = every.router.followed(every, translation(every, dim))
        assert link_permutation(every, nodes) is not None
        assert np.array_equal(unit_of(every)[nodes[: t.n_nodes]], nodes[unit_of(every)[: t.n_nodes]])
        assert np.array_equal(nodes[: t.n_nodes], t.router.followed(t, translation(t, dim)))


def test_tiers_have_bandwidths_of_their_own():
    t = fat_tree(4, bandwidth="100Gb/s,200Gb/s,400Gb/s", latency=["1ns", "2ns", "3ns"])
    pairs = sorted(set(zip(t.dimension.tolist(), t.bandwidth_Bps.tolist(), t.latency_ps.tolist(), strict=True)))
    assert pairs == [(0, 12.5e9, 1000), (1, 25e9, 2000), (2, 50e9, 3000)]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_leaf_spine_counts(hosts, leaves, spines):
    t = leaf_spine(hosts, leaves, spines)
    assert (t.n_npus, t.n_nodes) == (hosts * leaves, hosts * leaves + leaves + spines)
    assert t.n_links == 2 * (hosts * leaves + leaves * spines)
    assert len({tuple(c) for c in t.coords.tolist()}) == t.n_nodes


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fat-tree:3", "fat-tree of 3-port switches: give an even number"), ("fat-tree:4x2x2", "has 3 extents"),
        ("leaf-spine:4x2", "has 2 extents"), ("fat-tree:0", "extent '0'"),
    ],
)
def test_bad_tiers_are_named(spec, message):
    with pytest.raises(WeftError, match=message):
        from_spec(spec)
    for bad in (lambda: fat_tree(4, 0), lambda: leaf_spine(0, 1, 1)):
        with pytest.raises(WeftError, match="hosts is 0: give an integer from 1"):
            bad()
