"""Each condition of the proof: the smallest table that it alone rejects, and the nearest one that is right."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from collectives.core.by_slots import WHOLE
from collectives.core.collective import collective
from collectives.core.proof import ScheduleError, prove
from collectives.core.transfers import Transfers

STREAM = 0


class Row(NamedTuple):
    """A transfer in words; its slot is its place in the table unless given, and it waits for places."""

    src: int
    dst: int
    blocks: Sequence[int] = (0,)
    adds: bool = False
    waits: Sequence[int] = ()
    lag: int = WHOLE
    step: int = 0
    slot: int | None = None
    declared: int | None = None
    takes: int = -1
    gives: int = -1


def table(rows: Sequence[Row]) -> Transfers:
    slots = [at if row.slot is None else row.slot for at, row in enumerate(rows)]
    waits = [(one, row.lag) for row in rows for one in row.waits]
    known = {at: rows[at].src for at in range(len(rows))}

    def column(values: Sequence[int], kind: type = np.int32) -> np.ndarray:
        return np.array(values, kind)

    return Transfers(
        column([row.src for row in rows]), column([row.dst for row in rows]), column(slots),
        column([row.step for row in rows]), column([0 for _ in rows]),
        column([len(row.blocks) if row.declared is None else row.declared for row in rows], np.int64),
        np.array([row.adds for row in rows], np.bool_), column(slots, np.int64),
        np.concatenate(([0], np.cumsum([len(row.waits) for row in rows], dtype=np.int64))),
        column([known.get(one, 0) for one, _ in waits]), column([one for one, _ in waits]),
        column([lag for _, lag in waits]),
        pool=column([(row.takes, row.gives, 0) for row in rows]).reshape(-1, 3),
    )  # fmt: skip


def judged(kind: str, p: int, rows: Sequence[Row], n_blocks: int = 1, root: int = 0) -> str:
    """What the proof says; "" where it holds."""
    t = table(rows)
    blocks = {(row.src, int(slot)): list(row.blocks) for row, slot in zip(rows, t.slot, strict=True)}
    try:
        prove(collective(kind), p, n_blocks, root, t, lambda source, slot: blocks[source, slot])
    except ScheduleError as wrong:
        return str(wrong)
    return ""


def name(row: Row) -> str:
    return f"the transfer of rank {row.src} to rank {row.dst} in step {row.step} (port 0)"


TO_ZERO = [Row(1, 0, adds=True, step=1), Row(2, 0, adds=True, step=2)]
"""Ranks 1 and 2 add to rank 0; what follows makes an all-reduce of three of it."""
BACK = [Row(0, 1, waits=[0, 1], step=3), Row(0, 2, waits=[0, 1], step=4)]


def test_a_sum_and_its_broadcast_are_an_all_reduce() -> None:
    assert judged("all-reduce", 3, TO_ZERO + BACK) == ""


def test_a_table_need_not_have_pools() -> None:
    rows = table([Row(0, 1)])
    assert rows.pool is not None
    prove(collective("broadcast"), 2, 1, 0, rows._replace(pool=None), lambda src, slot: [0])


def test_no_transfers_suffice_for_one_rank_only() -> None:
    assert judged("all-reduce", 1, []) == ""
    assert judged("broadcast", 2, []) == (
        "rank 1 ends without the contribution of rank 0 to block 0 (nothing wrote it up to step 0)"
    )


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_what_is_missing_is_named_with_the_last_step_that_wrote(missing: int) -> None:
    rows = [Row(rank, 0, adds=True, step=10 - rank) for rank in (1, 2, 3) if rank != missing]
    last = max(row.step for row in rows)
    assert judged("reduce", 4, rows) == (
        f"rank 0 ends without the contribution of rank {missing} to block 0 (step {last} wrote it last)"
    )


def test_a_transfer_carries_only_what_it_waits_for() -> None:
    late = [Row(0, 1), Row(1, 2, waits=[0])]
    assert judged("broadcast", 3, late) == ""
    assert judged("broadcast", 3, [late[0], late[1]._replace(waits=())]) == (
        f"{name(late[1])} sends block 0, of which rank 1 has nothing yet"
    )


def test_only_a_source_of_a_block_has_a_contribution_to_it() -> None:
    assert judged("broadcast", 2, [Row(1, 0)]) == f"{name(Row(1, 0))} sends block 0, of which rank 1 has nothing yet"
    assert judged("broadcast", 2, [Row(0, 1), Row(1, 0, step=7, waits=[0])]) == ""


def test_what_a_rank_that_is_no_source_receives_may_be_added() -> None:
    """It has nothing to which that could be added wrongly."""
    assert judged("all-gather", 2, [Row(0, 1, [0], adds=True), Row(1, 0, [1], adds=True)], n_blocks=2) == ""


def test_what_was_delivered_in_another_part_of_the_graph_is_not_waited_for() -> None:
    """Rows 0 and 2 have the same bit, each in its own part of the dependency graph."""
    rows = [Row(0, 1, [0]), Row(1, 2, [0, 1], waits=[0]), Row(0, 1, [1], step=5)]
    assert judged("broadcast", 3, rows, 2) == f"{name(rows[1])} sends block 1, of which rank 1 has nothing yet"
    assert judged("broadcast", 3, [rows[0], rows[1]._replace(waits=[0, 2]), rows[2]], 2) == ""


def test_a_window_delays_and_delivers_nothing() -> None:
    """It may close a circle, and what it waits for need not have come."""
    circle = [Row(0, 1, waits=[1], lag=1), Row(1, 2, waits=[0])]
    assert judged("broadcast", 3, circle) == ""
    assert "has nothing yet" in judged("broadcast", 3, [circle[0]._replace(waits=()), circle[1]._replace(lag=1)])


def test_the_first_of_a_circle_is_named() -> None:
    rows = [Row(0, 1), Row(1, 2, waits=[2], step=3), Row(2, 0, waits=[1])]
    assert judged("broadcast", 3, rows) == f"{name(rows[1])}, with block 0, waits for itself in a cycle"


def test_who_waits_for_nobody_is_named_and_for_whom() -> None:
    alone = Row(0, 1, waits=[5])
    assert judged("broadcast", 2, [alone]) == (
        f"{name(alone)}, with block 0, waits for slot 5 of rank 0, which does not exist"
    )
    rows = [Row(0, 1), Row(0, 1, waits=[0, 9], step=2)]
    assert "waits for slot 9 of rank 0, which does not exist" in judged("broadcast", 2, rows)


def test_the_second_of_two_with_one_slot_is_named() -> None:
    rows = [Row(0, 1, slot=0), Row(1, 2, slot=0), Row(1, 0, slot=0, step=8), Row(2, 0, slot=0)]
    assert judged("broadcast", 3, rows) == f"{name(rows[2])}, with block 0, appears twice: slot 0"


def test_a_slot_belongs_to_its_rank() -> None:
    """Rank 2 in slot 0 and rank 0 in slot 1 are two transfers."""
    rows = [Row(0, 2, slot=0), Row(2, 1, slot=0), Row(0, 1, slot=1, declared=1)]
    assert "appears twice" not in judged("broadcast", 3, rows)


def test_more_blocks_than_declared_are_named() -> None:
    many = Row(0, 1, range(9), declared=8)
    assert judged("broadcast", 2, [many], 9) == (
        f"{name(many)} declares 8 blocks and has block 0, 1, 2, 3, 4, 5, 6, 7 ..."
    )
    eight = Row(0, 1, range(8), declared=9)
    assert judged("broadcast", 2, [eight], 8) == f"{name(eight)} declares 9 blocks and has block 0, 1, 2, 3, 4, 5, 6, 7"
    none = Row(0, 1, [], declared=1)
    assert judged("broadcast", 2, [none]) == f"{name(none)} declares 1 blocks and has no block"


def test_one_who_follows_chunk_by_chunk_sends_the_blocks_in_the_order_of_arrival() -> None:
    first = Row(0, 1, [0, 1], step=1)
    assert judged("broadcast", 3, [first, Row(1, 2, [0, 1], waits=[0], lag=STREAM)], 2) == ""
    other = Row(1, 2, [1, 0], waits=[0], lag=STREAM)
    assert judged("broadcast", 3, [first, other], 2) == (
        f"{name(other)}, with block 1, 0, follows {name(first)}, with block 0, 1, chunk by chunk"
    )
    assert judged("broadcast", 3, [first, other._replace(lag=WHOLE)], 2) == ""
    fewer, rest = Row(1, 2, [0], waits=[0], lag=STREAM), Row(1, 2, [1], waits=[0], step=2)
    assert judged("broadcast", 3, [first, fewer, rest], 2) == (
        f"{name(fewer)}, with block 0, follows {name(first)}, with block 0, 1, chunk by chunk"
    ), "its chunks are other parts of the block"


FOLLOWED = [
    [Row(0, 2, [0, 1], waits=[0], lag=STREAM, step=2)],
    [Row(0, 2, [0], waits=[0], lag=STREAM, step=2)],
    [Row(1, 1, [], waits=[0], lag=STREAM, step=2)],
    [Row(0, 2, [1, 0], waits=[0], lag=STREAM, step=2), Row(1, 1, [], waits=[1], lag=STREAM, step=2)],
]
"""What may stand between an arrival and one who follows it: another transfer, of fewer blocks, a join, and two."""


@pytest.mark.parametrize("between", FOLLOWED)
def test_the_order_of_arrival_counts_through_others(between: list[Row]) -> None:
    """A block that arrives last must not leave first, whatever paces the chunks."""
    first = Row(0, 1, [0, 1], step=1)
    last = Row(1, 2, [0, 1], waits=[len(between)], lag=STREAM, step=3)
    assert judged("broadcast", 3, [first, *between, last], 2) == ""
    for blocks in ([1, 0], [1]):
        wrong = last._replace(blocks=blocks)
        assert judged("broadcast", 3, [first, *between, wrong], 2) == (
            f"{name(wrong)}, with block {str(blocks)[1:-1]}, follows {name(first)}, with block 0, 1, chunk by chunk"
        )
    backward = last._replace(blocks=[1, 0])
    ended = between[-1]._replace(lag=WHOLE)
    assert judged("broadcast", 3, [first, *between[:-1], ended, backward], 2) == "", "all came before the first left"
    assert judged("broadcast", 3, [first, *between, backward._replace(lag=WHOLE)], 2) == "", "its end is that of both"


@pytest.mark.parametrize("through_a_join", [False, True])
def test_a_copy_must_not_leave_before_what_it_overwrites_is_added(through_a_join: bool) -> None:
    """Rank 2 adds at rank 1, and the sum, which rank 0 has, follows that chunk by chunk."""
    sums = [Row(1, 0, [0, 1], adds=True), Row(2, 0, [0, 1], adds=True), Row(0, 0, [], waits=[0, 1])]
    add, pace = Row(2, 1, [0, 1], adds=True, step=5), Row(1, 1, [], waits=[3], lag=STREAM)
    begin = [*sums, add, pace, Row(0, 2, [0, 1], waits=[2])]
    copy = Row(0, 1, [0, 1], waits=[2, 4 if through_a_join else 3], lag=STREAM, step=7)
    assert judged("all-reduce", 3, [*begin, copy], 2) == ""
    wrong = copy._replace(blocks=[1, 0])
    assert judged("all-reduce", 3, [*begin, wrong], 2) == (
        f"{name(add)} adds to block 1 of rank 1 and is not guaranteed to finish before {name(wrong)} overwrites it"
    )


def test_the_order_is_free_where_what_arrives_is_not_what_leaves() -> None:
    """Delivered to another rank, or other blocks: chunk by chunk then only paces."""
    assert judged("broadcast", 3, [Row(0, 1, [0, 1]), Row(0, 2, [1, 0], waits=[0], lag=STREAM)], 2) == ""
    others = [Row(0, 1, [0]), Row(0, 2, [0]), Row(1, 0, [1], waits=[0], lag=STREAM), Row(1, 2, [1]),
              Row(2, 0, [2]), Row(2, 1, [2])]  # fmt: skip
    assert judged("all-gather", 3, others, 3) == ""


def test_an_addition_that_may_come_after_a_copy_is_refused() -> None:
    copy = Row(0, 2, waits=[0], step=4)
    rows = [Row(1, 0, adds=True), Row(1, 2, adds=True, step=3), copy]
    words = (
        f"{name(rows[1])} adds to block 0 of rank 2 and is not guaranteed to finish before {name(copy)} overwrites it"
    )
    assert judged("all-reduce", 3, rows) == words
    assert judged("all-reduce", 3, [rows[0], rows[1]._replace(waits=[2]), copy]) == words, "ordered, and still a race"


def test_a_copy_of_the_whole_sum_may_follow_the_additions() -> None:
    """It waits for all of them: 0 has the sum, and gets it back from 2."""
    assert judged("all-reduce", 3, [*TO_ZERO, *BACK, Row(2, 0, waits=[3])]) == ""


def test_copies_that_differ_are_refused_though_the_first_is_right() -> None:
    stray = Row(1, 2, waits=[3], step=9)
    assert judged("all-reduce", 3, [*TO_ZERO, *BACK, stray]) == (
        f"{name(stray)} delivers block 0 to rank 2 with contributions different from {name(BACK[1])}"
    )
    assert judged("all-reduce", 3, [*TO_ZERO, *BACK, Row(1, 2, waits=[2])]) == "", "the same sum by another path"


@pytest.mark.parametrize("twice", [1, 2])
def test_a_contribution_that_is_counted_twice_is_named(twice: int) -> None:
    again = Row(twice, 0, adds=True, step=6)
    assert judged("reduce", 3, [*TO_ZERO, again]) == (
        f"{name(again)} delivers block 0 to rank 0, where the contribution of rank {twice} is already counted"
    )


def test_a_sum_that_has_all_but_is_sent_too_early_is_refused() -> None:
    rows = [*TO_ZERO, BACK[0]._replace(waits=[0]), BACK[1]]
    assert re.match(r"rank 1 ends without the contribution of rank 2", judged("all-reduce", 3, rows))


def test_who_waits_for_nobody_has_nothing_though_the_first_of_its_part_brought_it() -> None:
    rows = [Row(0, 1), Row(1, 2), Row(1, 2, waits=[0, 1])]
    assert judged("broadcast", 3, rows) == f"{name(rows[1])} sends block 0, of which rank 1 has nothing yet"


def test_predecessors_are_known_through_a_long_chain() -> None:
    line = [Row(rank, rank + 1, waits=[rank - 1] if rank else []) for rank in range(40)]
    assert judged("broadcast", 41, line) == ""
    assert judged("broadcast", 41, [*line, Row(40, 0, waits=[39])]) == ""
    assert "of which rank 40 has nothing yet" in judged("broadcast", 41, [*line, Row(40, 0, waits=[38])])


@pytest.mark.parametrize("known", range(12))
def test_of_many_additions_those_that_are_waited_for_count(known: int) -> None:
    """Twelve ranks add two blocks at rank 13, which sends one when it has all, the other when it has one of them."""
    adds = [Row(rank, 13, [0, 1], adds=True) for rank in range(1, 13)]
    total = [Row(13, 0, [block], adds=True, waits=range(12)) for block in (0, 1)]
    assert judged("reduce", 14, [*adds, *total], 2) == ""
    one = total[1]._replace(waits=[known])
    missing = 12 if known < 11 else 11
    assert f"the contribution of rank {missing} to block 1" in judged("reduce", 14, [*adds, total[0], one], 2)


def units(*rows: Row) -> str:
    """What the proof says of transfers that carry nothing, each from a rank to itself."""
    return judged("all-reduce", 1, [row._replace(blocks=()) for row in rows])


HELD = [Row(0, 0, takes=1), Row(0, 0, waits=[0], gives=1, step=1)]


def not_taken(row: Row) -> str:
    return (
        f"{name(row)}, with no block, gives a unit back to pool {row.gives} of rank 0 that may not be taken by then: "
        "let it wait for a transfer that takes one, each for its own"
    )


def test_a_unit_is_given_back_after_it_was_taken() -> None:
    take, give = HELD
    assert units(*HELD) == units(take._replace(gives=1)) == units(take, take) == ""
    assert units(take, give._replace(waits=())) == not_taken(give)
    assert units(give._replace(waits=()), take._replace(waits=[0])) == not_taken(give)
    assert units(take._replace(takes=0), give) == units(Row(0, 0), give) == not_taken(give)


def test_each_unit_is_given_back_once() -> None:
    take, give = HELD
    again = give._replace(step=2)
    assert units(take, give, again) == not_taken(again)
    assert units(take._replace(gives=1), again) == not_taken(again)
    assert units(take, give, take, again._replace(waits=[2])) == ""
    assert units(take, give, take._replace(waits=[0, 1]), again) == not_taken(again)
    assert units(take._replace(gives=0, takes=0), take._replace(waits=[0]), give._replace(waits=[0, 1])) == ""


def test_a_unit_is_given_back_by_the_rank_that_took_it() -> None:
    for giver, wrong in ((0, False), (1, True)):
        rows = [HELD[0], Row(0, 1, waits=[0]), Row(giver, giver, (), waits=[0, 1], gives=1)]
        assert ("may not be taken" in judged("broadcast", 2, [rows[0]._replace(blocks=()), *rows[1:]])) is wrong


@pytest.mark.parametrize(("lag", "wrong"), [(WHOLE, False), (STREAM, False), (1, True)])
def test_a_follower_has_all_chunks_after_what_it_follows_took_its_unit(lag: int, wrong: bool) -> None:
    """A window holds nothing back where chunks are few."""
    assert units(HELD[0], HELD[1]._replace(lag=lag)) == (not_taken(HELD[1]) if wrong else "")


def test_a_give_hands_its_take_on_where_another_has_no_choice() -> None:
    take, give = HELD

    def after(*waits: list[int]) -> str:
        return units(take, take, take, *(give._replace(step=step, waits=some) for step, some in enumerate(waits)))

    assert after([0, 1], [1], [1, 2]) == after([0, 2], [1, 2], [2]) == ""
    assert after([1, 2], [1, 2], [1, 2]) == after([0, 1, 2], [2], [2]) == not_taken(give._replace(step=2))


def test_units_are_judged_as_every_moment_of_every_run_would() -> None:
    """At any moment, what is done is closed under what it waits for."""
    draw, found = random.Random(7), set()
    for _ in range(400):
        n = draw.randint(2, 7)
        rows = [
            Row(0, 0, (), waits=[one for one in range(at) if draw.random() < 0.4], step=at,
                takes=draw.choice([-1, 0, 0]), gives=draw.choice([-1, -1, 0]))
            for at in range(n)
        ]  # fmt: skip
        done = (
            [row for at, row in enumerate(rows) if moment >> at & 1] for moment in range(2**n)
            if all(moment >> one & 1 for at, row in enumerate(rows) if moment >> at & 1 for one in row.waits)
        )
        holds = all(sum(row.gives == 0 for row in some) <= sum(row.takes == 0 for row in some) for some in done)
        assert (units(*rows) == "") is holds, rows
        found.add(holds)
    assert found == {True, False}


@pytest.mark.parametrize("p", [64, 65, 66, 130])
@pytest.mark.parametrize("at", [1, 62, 63, 64, 65, 127, 128, 129])
def test_contributions_of_all_ranks_are_told_apart(p: int, at: int) -> None:
    """Beyond the first word of 64 ranks, too: one that is counted twice, and one that is missing."""
    if at >= p:
        return
    rows = [Row(rank, 0, adds=True, step=1) for rank in range(1, p)]
    assert judged("reduce", p, rows) == ""
    again = Row(at, 0, adds=True, step=2)
    assert f"the contribution of rank {at} is already counted" in judged("reduce", p, [*rows, again])
    assert f"without the contribution of rank {at} " in judged("reduce", p, rows[: at - 1] + rows[at:])
