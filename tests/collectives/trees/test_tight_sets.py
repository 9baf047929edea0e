"""Cuts without slack forbid exactly what a flow would forbid, and most of it without one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from collectives.trees.edge_splitting import without_switches
from collectives.trees.packing import Batch, TightSets, _Packing
from collectives.trees.shares import gather_shares
from tests import fabrics
from topologies import Topology, from_spec


def test_a_set_forbids_edges_into_it_to_trees_that_are_in_it() -> None:
    sets = TightSets()
    sets.add(np.array([False, True, True, False]))
    assert sets.forbid(0, 1, reached=0b0100)
    assert not sets.forbid(0, 1, reached=0b1001)  # a tree that has yet to enter
    assert not sets.forbid(2, 1, reached=0b0100)  # an edge within
    assert not sets.forbid(1, 0, reached=0b0100)  # an edge out of it


def test_any_of_several_sets_forbids_whatever_was_useful_last() -> None:
    sets = TightSets()
    for nodes in ((1, 2), (1, 3), (1, 4)):
        sets.add(np.isin(np.arange(5), nodes))
    for node in (2, 4, 3, 3, 2):
        assert sets.forbid(0, 1, reached=1 << node)
    assert not sets.forbid(0, 1, reached=0b1)


class Told(_Packing):
    """Asks a flow as well, whatever the sets say."""

    def __init__(self, topology: Topology, k: int | None) -> None:
        shares = gather_shares(topology, k)
        super().__init__(topology.n_npus, without_switches(topology, shares.links, shares.roots).capacity, shares.roots)
        self.answers: Counter[str] = Counter()

    def _fitting(self, batch: Batch, x: int, y: int, most: int) -> int:
        flow = self._slack(batch, x, y, most)
        told = super()._fitting(batch, x, y, most)
        self.answers["fits" if flow else "told" if self.tight.forbid(x, y, batch.reached) else "not told"] += 1
        assert told == flow
        return told


@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize(
    ("fabric", "k"),
    [(from_spec("fat-tree:4"), None), (from_spec("mesh:3x5"), None), (from_spec("switch:13"), 2),
     (from_spec("dragonfly:5x2x2"), 3), *((fabrics.random_fabric(seed), None) for seed in range(40))],
    ids=lambda one: getattr(one, "name", None),
)  # fmt: skip
def test_what_they_forbid_no_flow_allows(fabric: Topology, k: int | None, level: bool) -> None:
    packing = Told(fabric, k)
    packing.run(level)
    assert packing.answers["not told"] == 0, "a set that a flow has found answers the same question afterwards"


@pytest.mark.full
def test_they_answer_nearly_all_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Counter[bool] = Counter()
    by_flow = _Packing._slack

    def counted(self: _Packing, batch: Batch, x: int, y: int, most: int) -> int:
        found = by_flow(self, batch, x, y, most)
        answers[found > 0] += 1
        return found

    monkeypatch.setattr(_Packing, "_slack", counted)
    topology = from_spec("fat-tree:4x8")
    shares = gather_shares(topology)
    capacity = without_switches(topology, shares.links, shares.roots).capacity
    _Packing(topology.n_npus, capacity, shares.roots).run(level=False)
    assert 0 < 10 * answers[False] < answers[True]
