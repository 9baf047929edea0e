"""The compiled proof decides as the plain one does: what holds, what does not, and when it is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from collectives.core import follow
from collectives.core._follow import POOLS
from collectives.core.by_slots import WHOLE
from collectives.core.carried import Carried
from collectives.core.collective import Collective, Ends, collective
from collectives.core.follow import holds, pays
from collectives.core.proof import ScheduleError, _Proof, prove
from collectives.core.transfers import Transfers
from tests.collectives.cases import CASES, Case, torus_for
from tests.collectives.core import test_proof_conditions as conditions
from tests.collectives.core.test_proof_conditions import STREAM, Row, table


def plain(kind: Collective, p: int, n_blocks: int, root: int, t: Transfers, carried: Sequence[Sequence[int]]) -> bool:
    """What the plain proof says, of blocks alone."""
    proof = _Proof(Ends.of(kind, p, n_blocks, root), p, t._replace(pool=None), Carried(carried))
    try:
        proof.run()
    except ScheduleError:
        return False
    return True


def compiled(
    kind: Collective, p: int, n_blocks: int, root: int, t: Transfers, carried: Sequence[Sequence[int]]
) -> int:
    ends = Ends.of(kind, p, n_blocks, root)
    try:
        waits = _Proof(ends, p, t, Carried(carried))._dependencies()
    except ScheduleError:
        return 0
    return holds(ends, p, t, Carried(carried), waits)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_algorithm_holds_and_a_row_less_is_judged_alike(case: Case) -> None:
    pattern = case.build(torus_for(case, (8,), (2, 4))).pattern
    t = pattern.transfers()
    carried = [list(pattern.blocks_of(*place)) for place in zip(t.src.tolist(), t.slot.tolist(), strict=True)]
    t = t._replace(blocks=np.array([len(one) for one in carried], np.int64))  # where unequal, those are elements
    asked = pattern.kind, pattern.p, pattern.n_blocks, pattern.root
    assert bool(compiled(*asked, t, carried)) == plain(*asked, t, carried) == (not pattern.is_unnamed)
    assert compiled(*asked, t, carried) in (0, POOLS), "units are given back in the order in which they were taken"
    lots = random.Random(7)
    for _ in range(8):
        row = lots.randrange(len(carried))
        fewer = [one[:-1] if at == row else one for at, one in enumerate(carried)]
        counts = np.array([len(one) for one in fewer], np.int64)
        changed = t._replace(blocks=counts)
        assert bool(compiled(*asked, changed, fewer)) == plain(*asked, changed, fewer)
        turned = t._replace(reduces=np.where(np.arange(len(carried)) == row, ~t.reduces, t.reduces))
        assert bool(compiled(*asked, turned, carried)) == plain(*asked, turned, carried)


def random_rows(lots: random.Random, p: int, n_blocks: int) -> list[Row]:
    """Transfers among few ranks, most of which hold something, with every kind of wait."""
    rows: list[Row] = []
    for _ in range(lots.randrange(1, 9)):
        src, dst = lots.randrange(p), lots.randrange(p)
        into = [at for at, one in enumerate(rows) if one.dst == src] if lots.random() < 0.8 else range(len(rows))
        waits = lots.sample(list(into), lots.randint(0, min(3, len(into))))
        blocks = lots.sample(range(n_blocks), lots.randint(1, n_blocks))
        rows.append(Row(src, dst, blocks, lots.random() < 0.4, waits, lots.choice([WHOLE, WHOLE, STREAM, 1])))
    return rows


KINDS = ("broadcast", "reduce", "all-gather", "reduce-scatter", "all-reduce")


def test_random_tables_are_judged_alike() -> None:
    lots, held = random.Random(1), 0
    for _ in range(6000):
        p = lots.randint(1, 3)
        kind, n_blocks = collective(lots.choice(KINDS)), lots.choice([1, p, 2 * p])
        n_blocks = n_blocks if "all-" not in kind.name else p * max(1, n_blocks // p)
        rows = random_rows(lots, p, n_blocks)
        asked = kind, p, n_blocks, 0, table(rows), [list(row.blocks) for row in rows]
        held += plain(*asked)
        assert bool(compiled(*asked)) == plain(*asked), rows
    assert held > 150


def test_every_table_of_the_conditions_is_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest table that each condition rejects, and the nearest that is right; units, where they are shown."""
    seen: list[int] = []
    said: list[tuple[int, bool]] = []

    def judged(kind: str, p: int, rows: Sequence[Row], n_blocks: int = 1, root: int = 0) -> str:
        asked = collective(kind), p, n_blocks, root, table(rows), [list(row.blocks) for row in rows]
        seen.append(compiled(*asked))
        assert bool(seen[-1]) == plain(*asked), rows
        why = original(kind, p, rows, n_blocks, root)
        if any(row.takes >= 0 or row.gives >= 0 for row in rows):
            said.append((seen[-1], why == ""))
        return why

    original = conditions.judged
    monkeypatch.setattr(conditions, "judged", judged)
    for name, test in vars(conditions).items():
        if name.startswith("test_") and test.__code__.co_argcount == 0:
            test()
    for between in conditions.FOLLOWED:
        conditions.test_the_order_of_arrival_counts_through_others(between)
    assert seen.count(POOLS) > 20
    assert seen.count(0) > 20
    assert {so for shown, so in said if shown == POOLS} == {True}
    assert said.count((POOLS, True)) > said.count((1, True)) > 20, "takes in another order are left to Python"


@pytest.mark.parametrize("p", [63, 64, 65, 129])
def test_more_ranks_and_transfers_than_bits_of_a_word(p: int) -> None:
    up = [Row(rank, 0, [0], adds=True) for rank in range(1, p)]
    down = [Row(0, rank, [0], waits=range(p - 1)) for rank in range(1, p)]
    asked = collective("all-reduce"), p, 1, 0
    carried = [[0]] * (2 * p - 2)
    assert compiled(*asked, table(up + down), carried)
    for missing in (0, p // 2, p - 2):
        one_less = [row._replace(waits=[at for at in range(p - 1) if at != missing]) for row in down]
        assert not compiled(*asked, table(up + one_less), carried)
        assert not compiled(*asked, table([*up[:missing], *up[missing + 1 :]]), carried[: p - 2])


SUM = [Row(1, 0, adds=True), Row(2, 0, adds=True)]
WHOLE_SUM, PART_OF_IT = Row(0, 1, waits=[0, 1]), Row(2, 1, waits=[0, 1])


@pytest.mark.parametrize(
    "copies",
    [
        [WHOLE_SUM, PART_OF_IT], [PART_OF_IT, WHOLE_SUM], [PART_OF_IT, WHOLE_SUM, WHOLE_SUM],
        [WHOLE_SUM, WHOLE_SUM, PART_OF_IT], [WHOLE_SUM, PART_OF_IT, WHOLE_SUM],
    ],
)  # fmt: skip
def test_copies_of_one_block_agree(copies: list[Row]) -> None:
    back = Row(0, 2, waits=[0, 1])
    for judged_right, ones in ((True, [one for one in copies if one is WHOLE_SUM]), (False, copies)):
        rows = [*SUM, *ones, back]
        asked = collective("all-reduce"), 3, 1, 0, table(rows), [[0]] * len(rows)
        assert bool(compiled(*asked)) == plain(*asked) == judged_right


def test_what_is_added_chunk_by_chunk_is_overwritten_in_that_order() -> None:
    """Rank 1 overwrites, block by block, what rank 0 has in the order in which rank 0 got its sum."""
    back = Row(0, 1, [0, 1], waits=[0, 1], lag=STREAM)
    for adds in ([0, 1], [1, 0]):
        rows = [Row(0, 1, adds, adds=True), Row(1, 0, [0, 1], adds=True), back]
        asked = collective("reduce"), 2, 2, 0, table(rows), [list(row.blocks) for row in rows]
        assert bool(compiled(*asked)) == plain(*asked) == (adds == [0, 1])


def test_a_switch_has_nothing_of_its_own() -> None:
    for p in (2, 64):
        there = collective("broadcast"), p, 1, 0, table([Row(p, 1)]), [[0]]
        assert not compiled(*there)
        assert not plain(*there)


def test_what_is_out_of_range_is_left_to_the_plain_proof() -> None:
    right = [Row(0, 1)]
    assert compiled(collective("broadcast"), 2, 1, 0, table(right), [[0]])
    assert not compiled(collective("broadcast"), 2, 1, 0, table(right), [[1]])
    assert not compiled(collective("broadcast"), 2, 1, 0, table(right), [[-1]])
    assert not compiled(collective("broadcast"), 2, 1, 0, table([right[0]._replace(declared=2)]), [[0]])
    strange = collective("broadcast").__class__(
        "mine", lambda *_: (5,), lambda *_: (0,), lambda p: 1, lambda n, p: n, lambda p: 1.0
    )
    assert not compiled(strange, 2, 1, 0, table(right), [[0]])


def test_sets_that_are_too_large_are_left_to_the_plain_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MOST_WORDS", 1)
    assert compiled(collective("broadcast"), 2, 1, 0, table([Row(0, 1)]), [[0]])
    assert not compiled(collective("broadcast"), 3, 1, 0, table([Row(0, 1), Row(1, 2, waits=[0])]), [[0], [0]])


def test_nothing_is_compiled_before_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        py_func = None

    monkeypatch.setattr("collectives.core.follow.is_at_hand", lambda kernel: False)
    monkeypatch.setattr("collectives.core.follow.follow", Kernel)
    monkeypatch.setattr(follow, "_in_python", 0)
    assert not pays(follow.FEW_MOVES)
    assert not pays(follow.COLD_MOVES)
    assert pays(follow.FEW_MOVES + 1), "in all"
    monkeypatch.setattr("collectives.core.follow.is_at_hand", lambda kernel: True)
    assert pays(follow.FEW_MOVES + 1)
    assert not pays(follow.FEW_MOVES)


def test_what_compiled_code_does_not_show_is_followed_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides nothing but that a table holds: what it refuses by mistake is proved, what is wrong is named."""
    monkeypatch.setattr("collectives.core.proof.pays", lambda moves: True)
    for shown in (True, False):
        monkeypatch.setattr("collectives.core.proof.holds", lambda *_, shown=shown: shown)
        prove(collective("broadcast"), 2, 1, 0, table([Row(0, 1)]), lambda src, slot: [0])
    with pytest.raises(ScheduleError, match="rank 2 ends without the contribution of rank 0"):
        prove(collective("broadcast"), 3, 1, 0, table([Row(0, 1)]), lambda src, slot: [0])


def test_units_are_counted_where_blocks_are_followed_in_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.core.proof.pays", lambda moves: True)
    takes = Row(0, 1, takes=0)
    assert conditions.judged("broadcast", 2, [takes, Row(1, 0, waits=[0]), Row(0, 1, waits=[0], gives=0)]) == ""
    assert "gives a unit back" in conditions.judged("broadcast", 2, [takes, Row(0, 1, gives=0)])
