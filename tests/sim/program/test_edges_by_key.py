"""Edges laid out by key: few by a sort, many by a compiled pass; both as a dictionary of lists has them."""

import numpy as np
import pytest

from sim.program import i32
from sim.program.columns import by_key
from sim.program.contract import PUSHED, WHOLE
from sim.program.waits import slot_waits, waits_of
from topologies import WeftError
from topologies.core.dealt import FEW, STREAM


@pytest.mark.parametrize("kind", [(WHOLE, WHOLE), (PUSHED, PUSHED), STREAM])
@pytest.mark.parametrize("n_edges", [1, 7, FEW, FEW + 1, 3 * FEW + 5])
@pytest.mark.parametrize("ordered", [False, True])
def test_edges_of_a_key_stay_in_order(kind: tuple[int, int], n_edges: int, ordered: bool) -> None:
    draws, n_tasks = np.random.default_rng(n_edges), 11
    key, value = draws.integers(0, n_tasks, n_edges), draws.integers(0, n_tasks, n_edges)
    lag = draws.choice([WHOLE, PUSHED, 0, 1, 5], n_edges)
    lag[0] = kind[0]
    key = np.sort(key) if ordered else key
    listed: dict[int, list[tuple[int, int]]] = {task: [] for task in range(n_tasks)}
    for one, other, wait in zip(key.tolist(), value.tolist(), lag.tolist(), strict=True):
        if kind[0] <= wait <= kind[1]:
            listed[one].append((other, max(wait, 0)))
    ptr, values, lags = by_key(i32(key), i32(value), i32(lag), kind, n_tasks)
    lags = lags if lags.size else np.zeros_like(values)
    assert listed == {
        task: list(zip(values[ptr[task]:ptr[task + 1]].tolist(), lags[ptr[task]:ptr[task + 1]].tolist(), strict=True))
        for task in range(n_tasks)
    }


@pytest.mark.parametrize(("n_slots", "p", "n_waits"), [(2, 1, 1), (3, 2, 2), (5, 3, 9), (9, 7, 20), (11, 8, 40)])
def test_waits_of_slots_are_those_of_their_ranks(n_slots: int, p: int, n_waits: int) -> None:
    """Rank by rank, in the order of the slots that wait; some wait for one slot of two ranks, or twice."""
    draws = np.random.default_rng(n_waits)
    sources = i32([draws.permutation(p) for _ in range(3)])
    child = np.sort(draws.integers(1, n_slots, n_waits))
    parent, source = draws.integers(0, child), draws.integers(0, 3, n_waits)
    listed: dict[int, list[int]] = {row: [] for row in range(n_slots * p)}
    for place in range(n_slots):
        for rank in range(p):
            for at in np.flatnonzero(child == place).tolist():
                listed[int(parent[at]) * p + int(sources[source[at], rank])].append(place * p + rank)
    found = slot_waits(child, parent, source, sources, n_slots)
    assert found is not None
    ptr, children = found.columns["whole_ptr"], found.columns["whole_child"]
    assert ptr.size == n_slots * p + 1 and ptr[-1] == children.size == n_waits * p
    assert listed == {row: children[ptr[row] : ptr[row + 1]].tolist() for row in listed}


def test_windows_as_wide_as_a_task_has_chunks_are_left_out() -> None:
    """Chunk c waits for c - lag + 1 chunks: of three none waits with a lag of three, the last with one of two."""
    three = np.array([3]), i32([0, 0])
    for lag, edges in ((2, 1), (3, 0), (4, 0)):
        columns = waits_of(i32([0]), i32([1]), i32([lag]), 2, three).columns
        assert columns["stream_child"].size == columns["parent"].size == edges
        assert waits_of(i32([0]), i32([1]), i32([lag]), 2).columns["stream_child"].size == 1
    with pytest.raises(WeftError, match="lag -3"):
        waits_of(i32([0]), i32([1]), i32([-3]), 2, three)
