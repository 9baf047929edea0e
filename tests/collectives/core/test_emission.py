"""Transfers of some ranks are those of the full table, and declared groups do map the table onto itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from collectives import build
from collectives.core import cycles
from collectives.core.collective import collective
from collectives.core.symmetry import Action
from collectives.core.transfers import Transfers, take
from sim.lower.job import lower
from sim.program.model import Model
from tests.collectives.cases import CASES, every_case, runs_on, subsets, torus_for
from topologies import from_spec, ring

SMALL = ["torus:8", "torus:4x4", "torus:6x4", "torus:3x3", "switch:6"]
SPECS = [*SMALL, "torus:5", "RI(4)_SW(2)", "hx2mesh:2x2", "hx4mesh:2", "mesh:4x2"]


def table(t: Transfers, ranks=None) -> list[tuple]:
    """Rows with their dependencies, as plain tuples."""
    rows = range(t.src.size) if ranks is None else np.flatnonzero(np.isin(t.src, ranks)).tolist()
    return [row_of(t, row) for row in rows]


def row_of(t: Transfers, row: int) -> tuple:
    span = slice(t.dep_ptr[row], t.dep_ptr[row + 1])
    waits = sorted(zip(t.dep_src[span].tolist(), t.dep_slot[span].tolist(), t.dep_lag[span].tolist(), strict=True))
    columns = (t.src, t.slot, t.dst, t.step, t.port, t.blocks, t.reduces, t.tie_class)
    return (*(column[row].item() for column in columns), tuple(waits))


@pytest.mark.table
@every_case
@pytest.mark.parametrize("spec", SMALL)
def test_some_ranks_are_rows_of_all(case, spec):
    fabric = from_spec(spec)
    if runs_on(case, fabric):
        pattern = case.build(fabric).pattern
        full = pattern.transfers()
        for ranks in subsets(pattern.p):
            assert table(pattern.emit(np.array(ranks))) == table(full, ranks)


@pytest.mark.table
@every_case
@pytest.mark.parametrize("spec", SPECS)
def test_groups_map_the_table_onto_itself(case, spec):
    fabric = from_spec(spec)
    if runs_on(case, fabric):
        pattern = case.build(fabric).pattern
        t = pattern.transfers()
        for group in pattern.groups:
            for action in group.generators:
                assert sorted(moved(t, action)) == sorted(table(t))
                check_links(t, action, fabric)


def moved(t: Transfers, action: Action) -> list[tuple]:
    """The table after an action."""
    port_of_slot = dict(zip(t.slot.tolist(), t.port.tolist(), strict=True))

    def image(rank: int, slot: int) -> int:
        return int(action.ranks[min(port_of_slot[slot], len(action.ranks) - 1), rank])

    rows = []
    for src, slot, dst, *rest, waits in table(t):
        turned = tuple(sorted((image(rank, other), other, lag) for rank, other, lag in waits))
        rows.append((image(src, slot), slot, image(dst, slot), *rest, turned))
    return rows


def check_links(t: Transfers, action: Action, fabric) -> None:
    """Links are permuted among their like, and a transfer over one link moves with it."""
    assert sorted(action.links) == list(range(fabric.n_links))
    assert np.array_equal(fabric.bandwidth_Bps[action.links], fabric.bandwidth_Bps)
    assert np.array_equal(fabric.latency_ps[action.links], fabric.latency_ps)
    link = fabric.link_ids(t.src, t.dst)
    part = np.minimum(t.port, len(action.ranks) - 1)
    image = fabric.link_ids(action.ranks[part, t.src], action.ranks[part, t.dst])
    assert np.array_equal(np.where(link < 0, -1, action.links[link]), image)


FEW = {
    "swing": 1, "ring": 1, "bucket": 1, "direct": 1, "dimension-wise": 1, "recursive-doubling": 4,
    "mirrored-recursive-doubling": 4,
}  # fmt: skip
"""Ranks that stand for the 16 of 4x4, at most."""


@pytest.mark.table
@pytest.mark.parametrize(
    "case", [one for one in CASES if one.algorithm in FEW and not collective(one.collective).rooted], ids=str
)
def test_declared_groups_leave_few_representatives(case):
    pattern = case.build(from_spec("torus:4x4")).pattern
    orbits = np.arange(pattern.p)
    for _ in range(pattern.p):
        for action in pattern.groups[0].generators:
            orbits = np.minimum(orbits, orbits[action.ranks[0]])
    assert np.unique(orbits).size <= FEW[case.algorithm]


@pytest.mark.table
@every_case
def test_where_ranks_look_alike_slots_have_one_port_and_a_tie_of_their_own(case):
    pattern = case.build(torus_for(case, (4, 4))).pattern
    t = pattern.transfers()
    slots = {}
    if pattern.groups:
        for slot, port, tie in zip(t.slot.tolist(), t.port.tolist(), t.tie_class.tolist(), strict=True):
            assert slots.setdefault(slot, (port, tie)) == (port, tie)
        assert len({tie for _, tie in slots.values()}) == len(slots)


def test_ranks_with_more_transfers_than_are_kept_are_not_all_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 20,000: of one rank 79,996 transfers, of all ranks 1.6 billion."""
    most: list[int] = []
    add_steps = cycles._add_steps

    def counted(table, *rest):
        most.append(table.ranks.size)
        add_steps(table, *rest)

    monkeypatch.setattr(cycles, "_add_steps", counted)
    assert build("ring", "all-reduce", from_spec("ring:20000"), "1MiB").proof.startswith("proved on torus:")
    assert max(most) < 100


def test_of_a_rank_with_very_many_transfers_few_are_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 50,000: looked at, lowered and compared with another, one rank at a time."""
    emitted: list[int] = []
    add_steps = cycles._add_steps

    def counted(table, port, n_ports, cycle, *rest):
        if cycle.order.size == 50_000 and port == 0:
            emitted.append(table.ranks.size)
        add_steps(table, port, n_ports, cycle, *rest)

    monkeypatch.setattr(cycles, "_add_steps", counted)
    lowered = lower(build("ring", "all-reduce", from_spec("ring:50000"), "1MiB"), Model(chunks=1))
    assert lowered.program.n_tasks == 2 * 2 * 49_999
    assert emitted == [1, 1, 1]


def test_what_is_at_hand_is_not_emitted_again_for_a_sample() -> None:
    asked: list[int] = []
    whole = build("swing", "all-reduce", ring(6), "1MiB").pattern

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        asked.append(ranks.size)
        return take(whole.transfers(), np.flatnonzero(np.isin(whole.transfers().src, ranks)))

    pattern = replace(whole, emit=emit)
    sample = pattern.emission.sample()
    assert asked.count(6) == 1 and asked[-1] == 6
    assert sample.n == np.count_nonzero(whole.transfers().src == 3)
