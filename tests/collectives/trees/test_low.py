"""Low trees behind switches: how far from the root everybody is, at the optimum, and on any fabric."""

from __future__ import annotations

import pytest

from collectives import build
from collectives.trees.forest import Forest
from collectives.trees.pack import broadcast_forest, gather_forest
from collectives.trees.packing import low_trees
from collectives.trees.shares import broadcast_shares, gather_shares
from sim import simulate
from tests import fabrics
from tests.oracles import plain_forest
from topologies import from_spec
from topologies.flows.tightest_cut import gather_cut

NEAR = {
    "switch:5": 2, "fat-tree:4": 6, "fat-tree:6": 6, "leaf-spine:4x8x2": 6, "leaf-spine:3x5x3": 6,
    "leaf-spine:8x8x2": 6, "dgx-a100:2": 6, "dgx-a100:5": 6, "dgx-h100:2": 6, "dgx-h100:5": 6,
}
"""Links from a root to the last NPU; diameters are 2, 4 and 6."""


@pytest.mark.table
@pytest.mark.parametrize("spec", NEAR)
def test_everybody_is_near_every_root_at_the_optimum(spec: str) -> None:
    fabric = from_spec(spec)
    forest, shares = gather_forest(fabric), gather_shares(fabric)
    plain_forest.check(forest, shares.roots, shares.s_per_block_byte)
    assert forest.hops <= NEAR[spec]


@pytest.mark.table
@pytest.mark.parametrize(("spec", "hops"), [
    ("switch:8", 6), ("fat-tree:4", 22), ("leaf-spine:4x8x2", 18), ("leaf-spine:8x8x2", 24), ("dgx-a100:2", 8),
])
def test_trees_of_one_root_are_no_chains(spec: str, hops: int) -> None:
    """One tree of leaf-spine:8x8x2, four hosts to an uplink, is 140 links high."""
    fabric = from_spec(spec)
    forest, shares = broadcast_forest(fabric, 0), broadcast_shares(fabric, 0)
    shares = shares.times(forest.blocks_of_root(0) // shares.roots[0])
    plain_forest.check(forest, shares.roots, shares.s_per_block_byte)
    assert forest.hops <= hops


@pytest.mark.parametrize("spec", ["fat-tree:4", "leaf-spine:4x8x2", "dgx-a100:3"])
def test_small_arrays_take_little_more_than_sending_to_everybody_and_large_ones_the_bound(spec: str) -> None:
    fabric = from_spec(spec)
    small, direct = (simulate(build(name, "all-gather", fabric, "16KiB"), chunks=1) for name in ("pipelined", "direct"))
    assert small.time_ps <= 1.5 * direct.time_ps
    large = simulate(build("pipelined", "all-gather", fabric, "1GiB"), chunks=64, discipline="lowest-chunk-first")
    cut = gather_cut(fabric)
    assert cut is not None
    assert 1 <= large.time_s / float(cut.s_per_byte * 2**30 / fabric.n_npus) <= 1.01


@pytest.mark.table
@pytest.mark.parametrize("seed", range(200))
def test_on_any_fabric_they_fit_or_there_are_none(seed: int) -> None:
    fabric = fabrics.random_fabric(70_000 + seed, most=13)
    for shares in (gather_shares(fabric), broadcast_shares(fabric, 0)):
        trees = low_trees(fabric, shares.roots, shares.links)
        if trees is not None:
            plain_forest.check(Forest(fabric, trees), shares.roots, shares.s_per_block_byte)


def test_one_npu_behind_switches_is_a_tree_and_no_roots_are_none() -> None:
    fabric = from_spec("leaf-spine:1x1x1")
    found = low_trees(fabric, {0: 2}, [1] * fabric.n_links)
    assert found is not None and [(tree.root, tree.edges) for tree in found] == [(0, ()), (0, ())]
    assert low_trees(fabric, {}, [1] * fabric.n_links) == ()
