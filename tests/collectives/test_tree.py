"""Broadcast and reduce."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import tree
from topologies import WeftError, switch


def test_binomial_broadcast_of_eight():
    t = tree.broadcast(switch(8), "1KiB").pattern.transfers()
    by_step = [
        sorted(zip(t.src[t.step == s].tolist(), t.dst[t.step == s].tolist(), strict=True)) for s in range(3)
    ]  # fmt: skip
    assert by_step == [[(0, 4)], [(0, 2), (4, 6)], [(0, 1), (2, 3), (4, 5), (6, 7)]]


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("form", tree.FORMS)
@pytest.mark.parametrize("function", [tree.broadcast, tree.reduce])
def test_every_rank_but_the_root_is_reached_once(function, form, p):
    root = p // 2
    t = function(switch(p), "1KiB", root=root, form=form).pattern.transfers()
    ends = t.dst if function is tree.broadcast else t.src
    assert sorted(ends.tolist()) == [rank for rank in range(p) if rank != root]


def test_reduce_is_the_time_reversal():
    down = tree.broadcast(switch(11), "1KiB", root=3).pattern.transfers()
    up = tree.reduce(switch(11), "1KiB", root=3).pattern.transfers()
    there = set(zip(down.src.tolist(), down.dst.tolist(), down.step.tolist(), strict=True))
    back = set(zip(up.dst.tolist(), up.src.tolist(), (3 - up.step).tolist(), strict=True))
    assert there == back


def test_the_chain_passes_chunks_on():
    t = tree.broadcast(switch(5), "1KiB", root=2, form="chain").pattern.transfers()
    assert np.array_equal(t.dst, (t.src + 1) % 5)
    assert set(t.dep_lag) == {0}
    assert 1 not in t.src


def test_refusals():
    with pytest.raises(WeftError, match="root 9 is not one of the 4 ranks of switch:4"):
        tree.broadcast(switch(4), "1KiB", root=9)
    with pytest.raises(WeftError, match="form 'star' is unknown: choose one of binomial, chain"):
        tree.reduce(switch(4), "1KiB", form="star")
