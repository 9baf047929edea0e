"""1,000 random networks of up to 13 nodes: the bound against all cuts, and the packed trees edge by edge."""

from __future__ import annotations

import pytest

from collectives.trees.pack import pack_forest
from collectives.trees.shares import gather_shares
from tests import fabrics
from tests.oracles import all_cuts, plain_forest
from topologies.flows.tightest_cut import gather_cut

MOST_NODES = 13


def check(seed: int) -> None:
    t = fabrics.random_fabric(50_000 + seed, most=MOST_NODES)
    cut, shares = gather_cut(t), gather_shares(t)
    assert cut.s_per_byte == all_cuts.gather_s_per_byte(t), t.name
    assert shares.s_per_block_byte / shares.roots[0] == cut.s_per_byte, t.name
    forest = pack_forest(t, shares, seed % 2 == 0, seed % 3 == 0)
    plain_forest.check(forest, shares.roots, shares.s_per_block_byte)


@pytest.mark.parametrize("seed", range(10))
def test_a_few(seed):
    check(seed)


@pytest.mark.verify
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_all(first):
    for seed in range(first, first + 50):
        check(seed)
