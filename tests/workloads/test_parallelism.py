"""Groups of a parallelism in the dimensions of a network."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import WeftError
from workloads.parallelism import Parallelism, parse_parallelism

PUBLISHED = [
    ((16, 8, 32), 16, (16, 1, 1), (1, 8, 32)),
    ((4, 8, 4, 32), 16, (4, 4, 1, 1), (1, 2, 4, 32)),
    ((16, 8, 32), 128, (16, 8, 1), (1, 1, 32)),
    ((4, 8, 4, 32), 128, (4, 8, 4, 1), (1, 1, 1, 32)),
    ((4, 8, 4, 32), 1, (1, 1, 1, 1), (4, 8, 4, 32)),
]
"""Communicators of LIBRA's 2024 release."""


@pytest.mark.parametrize(("extents", "tp", "tensor", "data"), PUBLISHED)
def test_the_published_groups(
    extents: tuple[int, ...], tp: int, tensor: tuple[int, ...], data: tuple[int, ...]
) -> None:
    groups = Parallelism(tp=tp, dp=4096 // tp).groups(extents)
    assert (groups["tp"], groups["dp"]) == (tensor, data)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4), st.data())
def test_groups_fill_the_network(extents: list[int], data: st.DataObject) -> None:
    """Powers of two always fit: groups have their sizes, and together they use every dimension up."""
    total = math.prod(extents)
    tp = data.draw(st.sampled_from([2**k for k in range(total.bit_length()) if 2**k <= total]))
    pp = data.draw(st.sampled_from([2**k for k in range((total // tp).bit_length()) if 2**k <= total // tp]))
    groups = Parallelism(tp=tp, pp=pp, dp=total // tp // pp).groups(extents)
    assert [math.prod(groups[name]) for name in ("tp", "pp", "dp")] == [tp, pp, total // tp // pp]
    together = [math.prod(sizes) for sizes in zip(groups["tp"], groups["dp"], groups["pp"], strict=True)]
    assert together == extents


def test_experts_are_a_part_of_the_data_ranks() -> None:
    groups = Parallelism(tp=4, dp=64, ep=8).groups((4, 8, 8))
    assert (groups["ep"], groups["edp"], groups["dp"]) == ((1, 8, 1), (1, 1, 8), (1, 8, 8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("tp=16", Parallelism(16, 256)), ("", Parallelism(1, 4096)), ("tp=8, pp=4,zero=1", Parallelism(8, 128, 4, 1, 1)),
     ("tp=8,FSDP", Parallelism(8, 512, zero=3)), ("zero-1", Parallelism(1, 4096, zero=1)),
     ("zero=ddp", Parallelism(1, 4096)), ("ZeRO_2", Parallelism(1, 4096, zero=2))],
)
def test_parse(text: str, expected: Parallelism) -> None:
    assert parse_parallelism(text, 4096) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [("tp=0", "tp is 0: give an integer from 1|not a multiple"), ("tensor=4", "write name=number"),
     ("tp=3", "not a multiple of tp x pp = 3"),
     ("hsdp", "copies of shards are of weft train --model"), ("zero=4", "zero '4' is unknown"),
     ("tp=x", "write name=number"), ("ep=3", "must divide")],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        parse_parallelism(text, 4096)


def test_groups_must_fit() -> None:
    with pytest.raises(WeftError, match="tp=2 x dp=2 x pp=1 is 4 NPUs; the network has 8"):
        Parallelism(2, 2).groups((8,))
    with pytest.raises(WeftError, match="group tp: 6 NPUs are left to place, and dimension 1 has room for 4"):
        Parallelism(6, 6).groups((4, 9))
