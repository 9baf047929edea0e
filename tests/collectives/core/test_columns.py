"""What a caller's functions may return: every column of the transfers, the blocks, and every field of a pattern."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from collectives import Pattern, Transfers, TransferTable, build, from_steps, ring_rounds, schedule
from collectives.core.by_slots import STREAM, WHOLE
from collectives.core.collective import collective
from collectives.core.emission import COLUMNS
from collectives.core.process_groups import grouped, process_group
from collectives.core.transfers import Pool, take
from sim import simulate
from topologies import WeftError, ring, torus

P = 8
FABRIC = ring(P)


def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
    """A ring all-gather whose transfers name their links and have pools."""
    table = TransferTable(ranks)
    for step in range(P - 1):
        table.add(step, (table.ranks + 1) % P, step=step, stream=[((table.ranks - 1) % P, step - 1)] if step else ())
    t = table.build()
    return t._replace(
        via_ptr=np.arange(t.src.size + 1), via_links=FABRIC.link_ids(t.src, t.dst).astype(np.int32),
        pool=np.tile(np.array([0, 0, 0], np.int32), (t.src.size, 1)),
    )


def pattern(change: Callable[[Transfers], Any] = lambda t: t, **other: Any) -> Pattern:
    of_caller: dict[str, Any] = {
        "topology": FABRIC, "kind": collective("all-gather"), "algorithm": "mine", "n_blocks": P,
        "emit": lambda ranks: change(emit(ranks)), "blocks_of": lambda rank, slot: [(rank - slot) % P],
        "pools": (Pool(1),),
    }
    return Pattern(**of_caller | other)


def refusal(change: Callable[[Transfers], Any] = lambda t: t, **other: Any) -> str:
    with pytest.raises(WeftError) as refused:
        pattern(change, **other)
    return str(refused.value)


def test_the_table_that_is_spoiled_below_is_right() -> None:

    def time_ps(lag: int) -> int:
        waiting = pattern(lambda t: t._replace(dep_lag=t.dep_lag + lag))
        return simulate(schedule(waiting, "1MiB"), chunks=1, check=True).time_ps

    ours = build("ring", "all-gather", FABRIC, "1MiB", directions=1)
    assert time_ps(WHOLE) == time_ps(STREAM) == simulate(ours, chunks=1).time_ps


RANGES = {
    "src": (0, P - 1), "dst": (0, P - 1), "slot": (0, 2**31 - 1), "step": (0, 2**31 - 1), "port": (0, 2**31 - 1),
    "blocks": (0, 2**31 - 1), "tie_class": (-(2**61) + 1, 2**61 - 1), "dep_ptr": (0, 48), "dep_src": (0, P - 1),
    "dep_slot": (0, 2**31 - 1), "dep_lag": (WHOLE, 2**31 - 1), "via_ptr": (0, 56), "via_links": (0, 2 * P - 1),
    "pool": (-1, 0), "rounds": (0, 2**31 - 1),
}
"""Of every column that holds numbers."""


def test_every_column_is_in_the_tables() -> None:
    assert set(COLUMNS) == set(Transfers._fields) == {*RANGES, "reduces"}


@pytest.mark.table
@pytest.mark.parametrize("beyond", [1, 3, 98, 2**40])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("column", RANGES)
def test_no_value_outside_its_range_is_taken(column: str, end: int, beyond: int) -> None:
    """In one row or in all of them, as 64 bits."""
    value = RANGES[column][end] + (beyond if end else -beyond)

    def in_rows(rows: Any) -> Callable[[Transfers], Transfers]:
        def change(t: Transfers) -> Transfers:
            t = t._replace(rounds=np.tile([0, 1], (t.src.size, 1))) if column == "rounds" else t
            values = getattr(t, column).astype(np.int64)
            values[rows] = value
            return t._replace(**{column: values})

        return change

    for rows in (-1, slice(None)):
        assert refusal(in_rows(rows)).startswith("mine")


KINDS: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "fractions": lambda column: column + 0.5,
    "whole floats": lambda column: column.astype(np.float64),
    "objects": lambda column: column.astype(object),
    "text": lambda column: column.astype(str),
    "a list": lambda column: column.tolist(),
    "a number": lambda column: 1,
    "another type": lambda column: column.astype(np.int8 if column.dtype == np.bool_ else np.bool_),
    "one row less": lambda column: column[:-1],
    "a row more": lambda column: np.concatenate([column, column[-1:]]),
    "another dimension": lambda column: column[..., None],
    "no dimension": lambda column: np.array(1, column.dtype),
}


@pytest.mark.table
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", COLUMNS)
def test_no_column_of_another_kind_or_shape_is_taken(column: str, kind: str) -> None:
    def change(t: Transfers) -> Transfers:
        t = t._replace(rounds=np.tile([0, 1], (t.src.size, 1))) if column == "rounds" else t
        return t._replace(**{column: KINDS[kind](getattr(t, column))})

    named = "dst" if column == "src" and "row" in kind else column.partition("_")[0]  # the first of another length
    assert named in refusal(change)


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in Transfers._field_defaults])
def test_no_column_may_be_missing(column: str) -> None:
    assert refusal(lambda t: t._replace(**{column: None})) == (
        f"mine emits None as the column {column}: give an array of "
        f"{'truth values' if column == 'reduces' else 'integers'}"
    )


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.uint64, np.int64])
def test_integers_of_other_widths_are_those_of_the_contract(kind: type) -> None:
    """They are converted when all of them fit, for arithmetic among other types may overflow or lose digits."""
    narrow = pattern(lambda t: t._replace(**{
        name: column.astype(kind) for name, column in t._asdict().items()
        if column is not None and column.dtype != np.bool_
    })).transfers()
    for ours, theirs in zip(narrow, pattern().transfers(), strict=True):
        assert (ours is theirs is None) or (ours.dtype == theirs.dtype and np.array_equal(ours, theirs))


@pytest.mark.parametrize("lag", [-2, -3, -5, -100, -(2**31)])
def test_a_lag_that_no_engine_knows_is_not_waited_for_and_so_refused(lag: int) -> None:
    """The run would end 11 % too early, as 18,750,080 ps for 21,150,080."""
    assert refusal(lambda t: t._replace(dep_lag=np.full_like(t.dep_lag, lag))) == (
        f"mine: slot 1 of rank 0 has dep_lag {lag}, which is none of -1 (WHOLE), 0 (chunk by chunk) and windows of 1 "
        "to 2147483647 chunks"
    )


@pytest.mark.parametrize("window", [1, 2, 2**31 - 1])
def test_a_window_brings_no_data(window: int) -> None:
    assert "of which rank 0 has nothing yet" in refusal(lambda t: t._replace(dep_lag=np.full_like(t.dep_lag, window)))


@pytest.mark.parametrize("rounds", [[1, 0], [0, 0], [16, 0], [0, -1], [1, -1], [0, 1], [4, 1]])
def test_rounds_are_for_algorithms_that_prove_them(rounds: list[int]) -> None:
    words = "mine emits the column rounds: only algorithms of weft that prove their rounds may"
    assert refusal(lambda t: t._replace(rounds=np.tile(np.array(rounds, np.int32), (t.src.size, 1)))) == words


def test_the_rounds_of_an_algorithm_do_not_go_over_to_another() -> None:
    t = ring_rounds.all_reduce(FABRIC, 1 << 20, jumps=(1,)).pattern.transfers()
    assert "the column rounds" in refusal(emit=lambda ranks: t, kind=collective("all-reduce"))


@pytest.mark.parametrize("pool", [[5, 5, 0], [1, -1, 0], [-1, 1, 0], [-2, 0, 0]])
def test_a_pool_is_one_of_the_pattern(pool: list[int]) -> None:
    message = refusal(lambda t: t._replace(pool=np.tile(np.array(pool, np.int32), (t.src.size, 1))))
    assert message.startswith(f"mine: slot 0 of rank 0 has pool {pool}, of which {pool[0] if pool[0] else 1}"[:40])
    assert message.endswith("is not one of -1 to 0")
    assert refusal(pools=()).endswith("is not one of -1 to -1")


@pytest.mark.parametrize("made", [None, 0, (), "rows", [[0, 1, 0]]])
def test_what_is_no_table_is_named(made: object) -> None:
    assert refusal(lambda t: made) == f"mine emits {made!r}: give Transfers"


def test_rows_have_one_order() -> None:
    """That of slots, then sources: whoever looks a row up relies on it."""
    assert refusal(lambda t: take(t, np.arange(t.src.size)[::-1])).endswith("order transfers by slot, then by source")
    assert refusal(lambda t: take(t, np.arange(t.src.size).repeat(2))) == "mine: slot 0 of rank 0 appears twice"


@pytest.mark.parametrize(
    "made", [None, 0, "0", ["0"], [None], [0.0], [0.5], [True], [[0]], [-1], [P], [2**70], {"a": 0}, [float("nan")]],
    ids=repr,
)
def test_blocks_are_integers_in_range(made: Any) -> None:
    message = refusal(blocks_of=lambda rank, slot: made)
    assert message.startswith("mine: blocks_of(source 0, slot 0)") and "give" in message


def test_blocks_may_be_a_range_or_integers_of_numpy() -> None:
    assert pattern(blocks_of=lambda rank, slot: np.array([(rank - slot) % P])).proof == "proved"
    assert pattern(blocks_of=lambda rank, slot: range((rank - slot) % P, (rank - slot) % P + 1)).proof == "proved"


WRONG: dict[str, list[Any]] = {
    "topology": [None, "ring:8"], "kind": ["all-gather", None], "algorithm": [None, 5], "form": [None, 5],
    "n_blocks": [0, -8, 7, 8.0, True, "8"], "emit": [None, 5], "blocks_of": [None, [0]], "groups": [5, [5], None],
    "smaller": [lambda: None, 5], "root": [-1, P, 0.5, "0"], "n_sources": [0, P - 1, P + 1, 4, 8.0],
    "pools": [5, (5,), ((1, "fifo"),), None], "own_proof": ["proved", lambda: "proved"], "note": [None, 5],
    "progress": ["x", "", None, 5], "phases": [5, (0.5,), (-1,), ("0",), None],
    "pipeline": [5, (0.5,), (-1,), ("0",), None], "circuits": [5, (), "ring:8"],
    "is_part": [5, "yes", None],
}
"""Of every field of a pattern, what it must not be."""


def test_every_field_is_in_the_table() -> None:
    given = [one.name for one in fields(Pattern) if one.init]
    given += [name for name, kind in Pattern.__annotations__.items() if "InitVar" in str(kind)]
    assert set(given) == set(WRONG)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_no_field_takes_what_it_must_not_be(name: str, value: object) -> None:
    assert refusal(**{name: value})


@pytest.mark.parametrize(
    ("capacity", "discipline"), [(0, "fifo"), (-1, "fifo"), (1.5, "fifo"), (None, "fifo"), (1, "x"), (1, None)]
)
def test_a_pool_has_units_and_a_discipline(capacity: Any, discipline: Any) -> None:
    with pytest.raises(WeftError, match=r"capacity|discipline"):
        Pool(capacity, discipline)


@pytest.mark.parametrize(
    "send", [(0, 1, [0.0]), (0, 1, [0.5]), (0, 1, ["0"]), (0, 1, [True]), (0, 1, [0], 1), (0, 1, [0], "no"),
             (0, 1, [0], None), (0.0, 1, [0]), (0, 1, 0), (0, 1), None]
)
def test_a_send_of_a_step_is_what_it_says(send: Any) -> None:
    with pytest.raises(WeftError, match="step 0"):
        from_steps(ring(2), "broadcast", [[send]], 8)
    assert from_steps(ring(2), "broadcast", [[(np.int64(0), 1, np.array([0]), np.False_)]], 8).proof == "proved"


def units(takes: Any, gives: Any) -> Callable[[Transfers], Transfers]:
    """Pool 1 taken from and given to in the slots where `takes` and `gives` hold."""
    def change(t: Transfers) -> Transfers:
        columns = (np.where(takes(t.slot), 1, -1), np.where(gives(t.slot), 1, -1), t.slot)
        return t._replace(pool=np.stack(columns, axis=1).astype(np.int32))

    return change


def test_a_pool_is_given_only_what_was_taken() -> None:
    """Around a ring, a transfer of a rank waits for none of the same rank."""
    def own(slot: Any) -> Any:
        return slot < 2

    pools = (Pool(1), Pool(2))
    assert pattern(units(own, own), pools=pools).proof == "proved"
    assert pattern(units(own, lambda slot: slot == 0), pools=pools).proof == "proved"
    for gives in (lambda slot: slot == 3, lambda slot: slot > 3, lambda slot: slot < 3):
        assert "gives a unit back to pool 1 of rank" in refusal(units(own, gives), pools=pools)
    only_at_five = refusal(lambda t: t._replace(pool=np.where(
        ((t.src == 5) & (t.slot == 1))[:, None], np.array([-1, 1, 0], np.int32), units(own, own)(t).pool
    )), pools=pools)
    assert "gives a unit back to pool 1 of rank 5 " in only_at_five


@pytest.mark.parametrize("name", ["all-gather", "all_gather", "AllGather"])
def test_names_of_the_registry_belong_to_its_collectives(name: str) -> None:
    own = collective("all-gather")
    for change in (
        {"wanted_by": lambda block, p, root: range(1)}, {"blocks_per_rank": lambda n_blocks, p: n_blocks // p},
        {"group_size": 2}, {"bus_factor": lambda p: 9.0},
    ):
        assert f"collective {name!r} is not weft's own all-gather" in refusal(kind=replace(own, name=name, **change))
        groups = grouped("all-gather", process_group((2, 4), "-1,4"))
        assert "is not weft's own" in refusal(kind=replace(groups, **{"name": name, "group_size": 8} | change))
    assert pattern(kind=replace(own, name="mine", group_size=2)).kind.name == "mine"


def test_weft_s_own_collective_within_groups_keeps_its_name_in_other_processes() -> None:
    there = build("hierarchical", "all-gather", torus((2, 4)), "1MiB", group="-1,4").pattern
    back = pickle.loads(pickle.dumps(there))
    assert back.kind == there.kind and back.kind.group_size == 4
    assert replace(back, note="again").kind == there.kind


@pytest.mark.parametrize("blocks", [1.9, "1", np.array([1.0, 2.0])])
def test_tables_of_transfers_take_integers(blocks: object) -> None:
    with pytest.raises(WeftError, match="give integers"):
        TransferTable(np.arange(2)).add(0, 1, blocks)  # type: ignore[arg-type]  # what is refused
