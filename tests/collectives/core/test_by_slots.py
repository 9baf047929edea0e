"""Are transfers that are laid out slot by slot those that are sorted?"""

from __future__ import annotations

import numpy as np
import pytest

from collectives import ALGORITHMS, algorithms_for, build
from collectives.core import by_slots, transfers
from collectives.core.transfers import Transfers, TransferTable
from topologies import WeftError, from_spec


@pytest.mark.table
@pytest.mark.parametrize("fabric", ["ring:6", "torus:4x4", "fat-tree:4", "random-regular:10x3x1"])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", ["all-reduce", "all-to-all"])
def test_both_ways_give_the_same_table(monkeypatch: pytest.MonkeyPatch, fabric: str, name: str, kind: str) -> None:
    """Every column, for every algorithm that runs there: joins, windows and pools as well."""
    if name not in algorithms_for(kind):
        return
    try:
        pattern = build(name, kind, from_spec(fabric), "64KiB").pattern
    except WeftError:
        return
    emit, sources = pattern.emission._emit, np.arange(pattern.n_sources or pattern.p)
    every = [sources, sources[1::2], sources[:1]]
    sorted_ = [emit(some) for some in every]
    monkeypatch.setattr(transfers, "MANY", 0)
    for one, some in zip(sorted_, every, strict=True):
        assert_same(emit(some), one)


@pytest.mark.parametrize("runs", [1, by_slots.MOST_RUNS])
def test_waits_of_all_kinds_in_slots_of_any_order(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """Slots out of order, that wait for none, one or two, chunk by chunk or in a window; a join; ranks with gaps."""
    monkeypatch.setattr(by_slots, "MOST_RUNS", runs)
    ranks = np.array([2, 3, 7])

    def table() -> Transfers:
        made = TransferTable(ranks)
        slot = np.array([[9], [4], [6]])
        made.add(slot, (ranks + slot) % 8, np.array([[1], [2], [3]]), step=slot, port=1)
        made.add(np.array([[1], [5]]), ranks[::-1], 2, after=[(ranks, np.array([[-1], [4]])), (ranks[::-1], 9)],
                 stream=[((ranks + 1) % 8, np.array([[6], [-1]]))], window=[(ranks, 9, 3)], reduces=True)
        made.join(3, np.stack([ranks, ranks[::-1]]), np.array([[1], [5]]), takes=1)
        return made.build()

    expected = table()
    monkeypatch.setattr(transfers, "MANY", 0)
    assert_same(table(), expected)


def assert_same(found: Transfers, expected: Transfers) -> None:
    for name, one, other in zip(expected._fields, found, expected, strict=True):
        assert (one is None) == (other is None), name
        assert one is None or np.array_equal(one, other), name
