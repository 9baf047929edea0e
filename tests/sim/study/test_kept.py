"""Fabrics that are kept: the last that were asked for, within a limit on their links."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.study.points import LAST, Kept
from topologies import Topology, WeftError, ring


def builder(built: list[int], n: int) -> Callable[[], Topology]:
    def build() -> Topology:
        built.append(n)
        return ring(n)

    return build


def test_the_last_that_were_asked_for_are_kept_up_to_the_limit() -> None:
    kept, built = Kept(most_links=100), list[int]()
    sizes = [10, 11, 12, 13, 14]  # 120 links
    for n in sizes[:4]:
        kept.get(n, builder(built, n))
    first = kept.get(10, builder(built, 10))
    kept.get(14, builder(built, 14))  # 11 goes, for 10 was asked for since
    assert built == sizes
    assert kept.n_links == 120 - 22
    assert kept.get(10, builder(built, 10)) is first
    kept.get(11, builder(built, 11))
    assert built == [*sizes, 11]


def test_a_few_are_kept_however_large() -> None:
    kept, built = Kept(most_links=0), list[int]()
    for n in (*range(3, 3 + LAST + 1), *range(4, 4 + LAST), 3):
        kept.get(n, builder(built, n))
    assert built == [*range(3, 3 + LAST + 1), 3]


def test_what_cannot_be_built_is_not_kept() -> None:
    kept, built = Kept(), list[int]()
    with pytest.raises(WeftError):
        kept.get("ring", builder(built, 0))
    assert kept.get("ring", builder(built, 5)).n_npus == 5
