"""Stages: they add up to the whole, and cost nothing that is counted where nobody asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collectives import Schedule, build
from collectives.formats.htsim import to_htsim
from topologies import from_spec, stages
from topologies.stages import OTHER, count, counting_of, doing, end_profile, hearing, staged, start_profile, under_way
from workloads.formats.schedule_writers import schedule_to_goal


def test_a_stage_inside_another_stops_its_clock_and_all_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(stages, "_now", lambda: (at := next(clock), at / 2, 10 * at))

    @staged("inner")
    def inner() -> None: ...

    @staged("outer")
    def outer() -> None:
        inner()
        with pytest.raises(ZeroDivisionError):
            staged("inner")(lambda: 1 // 0)()

    profile = start_profile()
    try:
        outer()
        outer()
        rows = {row["stage"]: row for row in profile.rows()}
    finally:
        end_profile()
    assert list(rows) == [OTHER, "outer", "inner"]
    assert [(row["calls"], row["wall_s"]) for row in rows.values()] == [(0, 3), (2, 6), (4, 4)]
    assert all(row["cpu_s"] == row["wall_s"] / 2 and row["peak_bytes"] == 10 * row["wall_s"] for row in rows.values())
    outer()
    assert profile.stages["outer"].calls == 2  # nobody asks any more


def test_what_is_under_way_is_the_innermost_and_ends_with_an_error() -> None:
    @staged("proof")
    def prove() -> str:
        with doing("a linear program"):
            inside = under_way()
        assert under_way() == "proof"
        assert inside == "a linear program"
        raise ZeroDivisionError

    assert under_way() == ""
    with pytest.raises(ZeroDivisionError):
        prove()
    assert under_way() == ""


def test_counts_of_one_unit_are_named_and_others_are_not() -> None:
    heard: list[tuple[str, int, int]] = []
    with counting_of("search 1", "evaluations"):  # nobody listens
        count("evaluations", 1, 2)
    with hearing(lambda *told: heard.append(told)):
        with counting_of("search 2", "evaluations"):
            count("evaluations", 1, 2)
            count("services", 3, 4)
        count("evaluations", 2, 2)
    assert heard == [("evaluations of search 2", 1, 2), ("services", 3, 4), ("evaluations", 2, 2)]


@pytest.mark.parametrize("written", [schedule_to_goal, to_htsim])
def test_long_texts_are_counted_while_they_are_written(written: Callable[[Schedule], str]) -> None:
    heard: list[tuple[str, int, int]] = []
    schedule = build("ring", "all-reduce", from_spec("ring:32"), "1MiB")
    with hearing(lambda *told: heard.append(told)):
        written(schedule)
    last = max(heard, key=lambda told: told[1])
    assert last[1] >= 1024 and last[2] == 32 * 62 * 2, heard
