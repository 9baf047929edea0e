"""Process groups: who belongs together, and what is rejected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.core.process_groups import automorphisms, grouped, process_group
from topologies import WeftError


@st.composite
def groups(draw: st.DrawFn):
    dims = draw(st.lists(st.tuples(*[st.integers(1, 3)] * 3), min_size=1, max_size=2))
    shape = tuple(extent * stride * more for extent, stride, more in dims)
    return process_group(shape, [f"{extent}@{stride}" for extent, stride, _ in dims])


@settings(max_examples=40, deadline=None)
@given(groups())
def test_groups_tile_the_ranks(group):
    p = int(np.prod(group.shape))
    families = {group.members(rank) for rank in range(p)}
    assert sorted(rank for family in families for rank in family) == list(range(p))
    assert {len(family) for family in families} == {group.size}


@settings(max_examples=40, deadline=None)
@given(groups())
def test_moves_stay_inside_the_group(group):
    ranks = np.arange(int(np.prod(group.shape)))
    for dim in group.dims:
        moved = group.move(ranks, dim, 1)
        assert all(there in group.members(here) for here, there in zip(ranks.tolist(), moved.tolist(), strict=True))
        assert np.array_equal(group.position(moved, dim), (group.position(ranks, dim) + 1) % group.extents[dim])
        assert np.array_equal(group.move(moved, dim, -1), ranks)


@settings(max_examples=40, deadline=None)
@given(groups(), st.booleans())
def test_automorphisms_permute_the_coordinates_and_keep_the_groups(group, flips):
    for dim, extent in enumerate(group.shape):
        families = {frozenset(np.flatnonzero(group_number(group, dim) == n)) for n in set(group_number(group, dim))}
        power = group.extents[dim] & (group.extents[dim] - 1) == 0
        for _, table in automorphisms(group, dim, flips and power):
            assert sorted(table.tolist()) == list(range(extent))
            assert {frozenset(table[list(family)].tolist()) for family in families} == families


def group_number(group, dim: int) -> np.ndarray:
    """Which group of a line each coordinate is in."""
    every = np.arange(group.shape[dim])
    stride, extent = group.strides[dim], group.extents[dim]
    return every % stride + stride * (every // (stride * extent))


def test_specs():
    assert process_group((16, 8, 32)).is_whole
    tensor = process_group((4, 8, 4, 32), "4,4,-1,-1")
    data = process_group((4, 8, 4, 32), [-1, "2@4", 4, 32])
    assert (tensor.size, data.size) == (16, 256)
    assert str(data) == "-1,2@4,4,32"
    assert set(tensor.members(0)) & set(data.members(0)) == {0}
    assert process_group((4, 8, 4, 32), str(data)) == data
    assert process_group((4, 8, 4, 32), data) is data


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("16,8", "has 2 dimensions; the network .* has 3"),
        ("5,8,32", "5 NPUs 1 apart do not tile dimension 0, which has 16"),
        ("4@8,8,32", "4 NPUs 8 apart do not tile dimension 0"),
        ("x,8,32", "'x' is not an extent"),
        ("0,8,32", "'0' is below 1"),
        ("4@0,8,32", "'4@0' is below 1"),
        (process_group((4, 4)), r"belongs to a network of shape \(4, 4\)"),
    ],
)
def test_what_does_not_fit_is_refused(spec, message):
    with pytest.raises(WeftError, match=message):
        process_group((16, 8, 32), spec)


def test_collectives_count_their_own_group():
    group = process_group((4, 4), "4,-1")
    reduce = grouped("all-reduce", group)
    assert reduce.group_size == 4
    assert reduce.sources(5, 16, 0) == reduce.wanted_by(5, 16, 0) == (4, 5, 6, 7)
    assert reduce.blocks_per_rank(16, 16) == 4
    assert reduce.bus_factor(16) == pytest.approx(2 * 3 / 4)
    exchange = grouped("all-to-all", group)
    assert exchange.wanted_by(0 * 16 + 3, 16, 0) == range(3, 4)
    assert exchange.wanted_by(0 * 16 + 4, 16, 0) == ()
