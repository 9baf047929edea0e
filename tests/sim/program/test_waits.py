"""Waits in a circle are found, and named, in graphs of any shape; other waits are taken as they come."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from sim.program import WHOLE, i32
from sim.program.columns import joined
from sim.program.waits import Cycle, waits_of


@pytest.mark.parametrize("seed", range(24))
def test_a_circle_is_found_where_there_is_one_and_every_wait_of_it_is_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 14))
    parent, child = map(i32, rng.integers(0, n, (2, int(rng.integers(0, 2 * n)))))
    ends = list(zip(parent.tolist(), child.tolist(), strict=True))
    graph = nx.DiGraph(ends)
    if nx.is_directed_acyclic_graph(graph):
        columns = waits_of(parent, child, np.full_like(parent, WHOLE), n).columns
        assert columns["whole_child"].size == parent.size
        return
    with pytest.raises(Cycle) as told:
        waits_of(parent, child, np.full_like(parent, WHOLE), n)
    named = told.value.tasks
    assert named[0] == named[-1]
    assert all(pair in ends for pair in pairwise(named))


@pytest.mark.parametrize("width", [3, 2**31, 2**62])
def test_rows_are_numbered_in_their_order(width: int) -> None:
    rng = np.random.default_rng(width % 97)
    columns = [rng.integers(0, 3, 29) * (width // 3) - 1 for _ in range(3)]
    _, place = np.unique(np.stack(columns), axis=1, return_inverse=True)
    _, found = np.unique(joined(*columns), return_inverse=True)
    assert np.array_equal(place.ravel(), found.ravel())
