"""Packed forests: verified edge by edge, at the optimum, with the trees and heights that theory and search give."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from collectives import pipelined
from collectives.trees.edge_splitting import without_switches
from collectives.trees.forest import mirror_of, turned_back
from collectives.trees.pack import (
    best_root_forests,
    broadcast_forest,
    gather_forest,
    pack_forest,
    reduce_forest,
    scatter_forest,
    two_phase_rate_Bps,
)
from collectives.trees.shares import Limits, Sides, broadcast_shares, fewer_trees, gather_shares
from tests import fabrics
from tests.oracles import plain_forest
from topologies import WeftError, from_links, from_spec
from topologies.flows.programs import best_roots, forwarded
from topologies.flows.tightest_cut import broadcast_cut, gather_cut, scatter_cut

GB = 10**9
UNIT = {"bandwidth": "1GB/s"}


def reaches_the_optimum(t, level=None, spread=None):
    shares = gather_shares(t)
    forest = pack_forest(t, shares, level, spread)
    plain_forest.check(forest, shares.roots, shares.s_per_block_byte)
    k = shares.roots[0]
    assert shares.s_per_block_byte / k == gather_cut(t).s_per_byte
    return forest


@pytest.mark.table
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_networks_are_packed(first):
    """1,000 networks with and without switches, asymmetric and heterogeneous."""
    for seed in range(first, first + 100):
        t = fabrics.random_fabric(seed)
        assert fabrics.balanced(t)
        reaches_the_optimum(t, level=seed % 2 == 0, spread=seed % 3 == 0)


@pytest.mark.parametrize("spec", ["torus:4x4", "mesh:3x4", "fat-tree:2", "random-regular:16x4x7", "dgx-a100:2"])
def test_a_network_that_is_its_own_mirror_is_packed_once_with_the_trees_of_the_mirror(spec):
    t = from_spec(spec)
    assert mirror_of(t) is t
    reversed_ = replace(t, name="reversed", src=t.dst, dst=t.src)
    assert scatter_forest(t).trees == turned_back(gather_forest(reversed_), t).trees


def test_a_network_whose_directions_differ_is_not_its_own_mirror():
    t = from_spec("ring:4", **UNIT)
    slower = replace(t, bandwidth_Bps=t.bandwidth_Bps * (1 + (t.src > t.dst)))
    assert mirror_of(t) is t
    assert mirror_of(slower) is not slower
    assert mirror_of(fabrics.one_way_ring(4)).src.tolist() == [0, 1, 2, 3]
    assert mirror_of(fabrics.one_way_ring(4)).dst.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_random_networks_are_packed_inward(seed):
    t = fabrics.random_fabric(seed)
    forest = scatter_forest(t)
    k = forest.blocks_of_root(0)
    plain_forest.check(forest, dict.fromkeys(range(t.n_npus), k), k * scatter_cut(t).s_per_byte)


@pytest.mark.parametrize(
    ("fabric", "k", "scale"),
    [
        (from_spec("ring:8", **UNIT), 2, 7), (fabrics.one_way_ring(8), 1, 7), (from_spec("torus:4x4", **UNIT), 4, 15),
        (from_spec("mesh:4x4", **UNIT), 2, 15), (from_spec("hypercube:3", **UNIT), 3, 7),
        (from_spec("fc:8", **UNIT), 1, 1), (from_spec("switch:8", **UNIT), 1, 7), (fabrics.hub(8), 1, 7),
        (fabrics.boxes_of(2, 4, 10, 1), 1, 1), (fabrics.boxes_of(2, 4, 2, 1), 3, 7),
        (fabrics.boxes_of(3, 4, 10, 1), 1, 2),
        (from_spec("dgx-a100:1"), 1, Fraction(7, 300)), (from_spec("dgx-a100:2"), 13, Fraction(3, 5)),
        (from_spec("mi250:1"), 3, Fraction(7, 50)), (from_spec("random-regular:32x4x7", **UNIT), 4, 31),
        (fabrics.written(fabrics.EULERIAN, 10), 10, 9), (fabrics.written(fabrics.SWITCHED, 12), 2, 11),
        (fabrics.leaf_spine(2), 1, 15), (fabrics.leaf_spine(4), 1, 15),
    ],
    ids=lambda one: getattr(one, "name", None),
)  # fmt: skip
def test_trees_of_the_vectors(fabric, k, scale):
    shares = gather_shares(fabric)
    assert (shares.roots[0], shares.s_per_block_byte * GB) == (k, scale)
    reaches_the_optimum(fabric)


@pytest.mark.parametrize(
    ("spec", "rates"),
    [
        ("dgx-a100:2", {1: 342.857, 2: 342.857, 4: 342.857, 8: 345.946, 13: 346.667}),
        ("mi250:1", {1: 266.667, 2: 320, 3: 342.857, 4: 320, 8: 336.842}),
        ("torus:4x4", {1: 4, 2: 4, 3: 4, 4: 64 / 15}), ("ring:8", {1: 2, 2: 16 / 7}),
        ("hypercube:3", {1: 8 / 3, 2: 3.2, 3: 24 / 7}),
    ],
)  # fmt: skip
def test_fixed_numbers_of_trees(spec, rates):
    """The authors' table, and the sandwich 1/x* <= U/k <= 1/x* + 1/(k min b)."""
    t = from_spec(spec, **({} if ":" in spec and spec[:2] in ("dg", "mi") else UNIT))
    for k, rate in rates.items():
        shares = gather_shares(t, k)
        assert float(t.n_npus * k / shares.s_per_block_byte / GB) == pytest.approx(rate, rel=1e-5)
        least = gather_cut(t).s_per_byte
        assert least <= shares.s_per_block_byte / k <= least + 1 / (k * Fraction(float(t.bandwidth_Bps.min())))
        plain_forest.check(gather_forest(t, k), shares.roots, shares.s_per_block_byte)


@pytest.mark.parametrize(
    ("spec", "level", "most"),
    [("torus:4x4", True, 5), ("torus:8x8", True, 11), ("ring:8", True, 4), ("hypercube:4", True, 5),
     ("switch:8", False, 1), ("random-regular:32x4x7", True, 9), ("dgx-a100:2", True, 8)],
)
def test_level_packing_and_spread_splitting_keep_trees_low(spec, level, most):
    assert gather_forest(from_spec(spec), None, level).height <= most


@pytest.mark.parametrize(
    ("fabric", "rate"),
    [(from_spec("ring:8", **UNIT), 2), (from_spec("torus:4x4", **UNIT), 4), (from_spec("mesh:4x4", **UNIT), 2),
     (from_spec("hypercube:3", **UNIT), 3), (from_spec("switch:8", **UNIT), 1), (fabrics.boxes_of(2, 4, 10, 1), 4),
     (from_spec("dgx-a100:2"), 200)],
    ids=lambda one: getattr(one, "name", None),
)
def test_broadcast_rates(fabric, rate):
    assert broadcast_cut(fabric, 0).rate_Bps == rate * GB
    for forest in (broadcast_forest(fabric, 0), reduce_forest(fabric, 0)):
        shares = broadcast_shares(fabric, 0)
        shares = shares.times(forest.blocks_of_root(0) // shares.roots[0])
        plain_forest.check(forest, shares.roots, shares.s_per_block_byte)
        assert shares.roots[0] / shares.s_per_block_byte == rate * GB


@pytest.mark.parametrize(
    ("fabric", "rate", "two_phase"),
    [
        (from_spec("mesh:4x4", **UNIT), Fraction(8, 5), Fraction(16, 15)), (fabrics.hub(8), 1, Fraction(4, 7)),
        (fabrics.written(fabrics.SWITCHED, 12), 2, Fraction(12, 11)),
        (from_spec("torus:4x4", **UNIT), Fraction(32, 15), Fraction(32, 15)),
        (fabrics.boxes_of(3, 4, 10, 1), 3, 3), (from_spec("dgx-a100:2"), Fraction(520, 3), Fraction(520, 3)),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_all_reduce_with_the_best_roots(fabric, rate, two_phase):
    assert two_phase_rate_Bps(fabric) == two_phase * GB
    assert best_roots(fabric).rate_Bps == pytest.approx(float(rate) * GB, rel=1e-7)
    up, down = pipelined.forests(fabric, "all-reduce", form="best-roots")
    blocks = sum(tree.multiplicity for tree in down.trees)
    load = up.link_load() + down.link_load()
    slowest = max(many / Fraction(float(fabric.bandwidth_Bps[link])) for link, many in load.items())
    assert blocks / slowest == rate * GB
    assert {r: up.blocks_of_root(r) for r in range(fabric.n_npus)} == {
        r: down.blocks_of_root(r) for r in range(fabric.n_npus)
    }


def test_the_roots_of_a_mesh_are_in_its_middle():
    _, down = pipelined.forests(from_spec("mesh:4x4", **UNIT), "all-reduce", form="best-roots")
    assert {tree.root for tree in down.trees} <= {5, 6, 9, 10}


def lopsided():
    """A switch that receives 3 GB/s and sends 2."""
    thin = [(3, 1), (3, 2), (1, 0), (2, 0), (1, 2), (2, 1)]
    return from_links([(0, 3, "3GB/s", 0), *((src, dst, "1GB/s", 0) for src, dst in thin)], 3, name="lopsided")


def test_what_an_unbalanced_switch_receives_too_much_stays_unused():
    assert not fabrics.balanced(lopsided())
    reaches_the_optimum(lopsided())


def test_trees_that_do_not_fit_past_an_unbalanced_switch_are_refused():
    with pytest.raises(WeftError, match="lopsided: 6 trees do not reach npu1 past the switches; allow more"):
        without_switches(lopsided(), [2] * 7, dict.fromkeys(range(3), 2))


def slowed(spec, mirrored, most, seed):
    """Decimal rates on up to so many links from NPUs to switches, or on the links back."""
    t, rng = from_spec(spec), random.Random(seed)
    tails, heads = (t.dst, t.src) if mirrored else (t.src, t.dst)
    rates, ends = t.bandwidth_Bps.copy(), [link for link in range(t.n_links) if tails[link] < t.n_npus <= heads[link]]
    for link in rng.sample(ends, min(most, len(ends))):
        rates[link] *= round(rng.uniform(0.8, 1), 4)
    return replace(t, name=f"slowed {spec}", bandwidth_Bps=rates)


@pytest.mark.parametrize("most", [1, 3, 99])
@pytest.mark.parametrize("spec", ["switch:4", "switch:5", "fat-tree:4", "leaf-spine:4x4x1", "dgx-a100:2"])
def test_slow_links_to_switches_that_copy_nothing_cost_what_they_must(spec, most):
    for mirrored in (False, True):
        t = slowed(spec, mirrored, most, most)
        trees = scatter_forest if mirrored else gather_forest
        kind = "reduce-scatter" if mirrored else "all-gather"
        away = mirror_of(t) if mirrored else t
        best = forwarded(away).s_per_byte
        assert best > gather_cut(away).s_per_byte
        few = next(fewer_trees(Sides.of(t, kind), Limits(), 2**28, 4))
        forest = trees(t, few.k)
        plain_forest.check(forest, dict.fromkeys(range(t.n_npus), few.k), few.k * best / (1 - few.loss))
        assert 0 <= few.loss <= Fraction(1, 100)


def test_an_all_reduce_past_slow_links_is_near_the_program():
    for spec, most in (("switch:5", 1), ("switch:4", 99), ("leaf-spine:4x4x1", 3)):
        t = slowed(spec, False, most, most)
        best, rate = best_root_forests(t), best_roots(t).rate_Bps
        load = best.up.link_load() + best.down.link_load()
        busiest = max(many / t.bandwidth_Bps[link] for link, many in load.items()) / best.n_trees
        assert 1 - 1e-6 <= busiest * rate <= 1.02


def test_a_number_of_trees_below_one_is_refused():
    with pytest.raises(WeftError, match="k is 0: every root needs at least 1 tree"):
        gather_forest(from_spec("torus:4"), 0)
