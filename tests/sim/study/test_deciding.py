"""A default decides if another is the fastest with the alternative; what is not tried is not claimed."""

from __future__ import annotations

import io
import random
from contextlib import redirect_stdout
from math import inf
from typing import Any

import pytest

from sim.cli import main
from sim.faults.plan import FaultPlan, LinkDown
from sim.study import deciding
from sim.study.points import Task, floor_ps, ready_point, simulate_point
from sim.study.spec import Spec
from topologies import WeftError, from_links


def row(
    name: str, time_us: float, events: int = 10, discipline: str = "fifo", size: int = 1024, progress: str = "free",
    chunks: int = 16, bound_us: float = 99,
) -> dict[str, Any]:
    return {"lower_bound_s": bound_us * 1e-6,
            "algorithm": name, "size_bytes": size, "time_s": time_us * 1e-6, "events": events, "discipline": discipline,
            "trees": None, "spread_low_s": None, "spread_high_s": None, "rank_progress": progress, "chunks": chunks}


def lines(
    monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], times_us: dict[str, float], fabric: str = "torus:4x4",
    ends: bool = True, **model: object,
) -> list[str]:
    """What is said, if the alternatives take these times; `ends`: whether runs end at their limits."""
    def time_s(task: Task, limit_s: float) -> float:
        if task.algorithm not in times_us:
            raise WeftError("cannot run")
        found_s = times_us[task.algorithm] * 1e-6
        return inf if ends and found_s > limit_s else found_s

    monkeypatch.setattr(deciding, "_time_s", time_s)
    monkeypatch.setattr(deciding, "goes_to_neighbors", lambda task: False)  # whatever they send
    names = tuple(dict.fromkeys(one["algorithm"] for one in rows))
    model = {"tie": "first"} | model
    spec = Spec().updated({"topology": {"spec": fabric}, "model": model, "collective": {"algorithms": names}})
    return deciding.deciding_defaults(spec, spec.build_topology(), rows)


PIPELINED = [row("ring", 10), row("pipelined", 12)]


def test_a_discipline_of_the_design_that_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, PIPELINED, {"pipelined": 9}, chunks=16) == [
        "pipelined with fifo; with lowest-chunk-first, pipelined is the fastest at 1 KiB "
        "(--discipline lowest-chunk-first)"
    ]


@pytest.mark.parametrize("times_us", [{"pipelined": 11.0}, {}])
def test_an_alternative_that_does_not_win_or_run_is_not_said(
    monkeypatch: pytest.MonkeyPatch, times_us: dict[str, float]
) -> None:
    assert lines(monkeypatch, PIPELINED, times_us, chunks=16) == []


def test_what_cannot_run_with_an_alternative_hides_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its time; the alternative is told where another is faster than it."""
    rows = [row("ring", 10), row("pipelined", 12), row("direct", 14)]
    told = "of routes of equal length, the first; with all of them, "
    assert lines(monkeypatch, rows, {"pipelined": 9, "direct": 13}, chunks=16, discipline="fifo", tie=None) == [
        f"{told}pipelined is the fastest at 1 KiB, and ring cannot run (--tie split)"
    ]
    assert lines(monkeypatch, rows, {"pipelined": 11, "direct": 13}, chunks=16, discipline="fifo", tie=None) == []


def test_a_winner_that_needs_its_discipline(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("pipelined", 9, discipline="lowest-chunk-first"), row("ring", 10)]
    assert lines(monkeypatch, rows, {"pipelined": 12}) == [
        "pipelined with the discipline of the design; with fifo for all, ring is the fastest at 1 KiB "
        "(--discipline fifo)"
    ]


def test_waits_that_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of algorithms that go on alone, those whose bounds are far below the fastest; not where the rule was chosen."""
    rows = [row("pipelined", 9), row("bfb", 10, bound_us=8), row("direct", 12, bound_us=8.6)]
    told = "ports of a rank go on alone; with ranks of bfb that wait for all of them, bfb is the fastest at 1 KiB "
    assert lines(monkeypatch, rows, {"bfb": 8.5}, chunks=16) == [f"{told}(--rank-progress all)"]
    assert lines(monkeypatch, rows, {"bfb": 9.5}, chunks=16) == []
    assert lines(monkeypatch, rows, {"bfb": 8.5}, chunks=16, rank_progress="auto") == []


def main_lines(command: str, topology: str) -> list[str]:
    """What a command tells of defaults that decide."""
    told = io.StringIO()
    with redirect_stdout(told):
        assert main([command, "--topology", topology, "--algorithms", "swing", "-b", "64M", "--quiet"]) == 0
    return [line for line in told.getvalue().splitlines() if line.startswith("# decided by a default")]


def test_waits_that_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user says nothing of them, and all algorithms that wait go on alone instead."""
    rows = [row("swing", 9, progress="all"), row("bucket", 10, progress="any"), row("direct", 12)]
    assert lines(monkeypatch, rows, {"swing": 13, "bucket": 10}, chunks=16, discipline="fifo") == [
        "ranks of bucket, swing wait for all ports of a step; with ports that go on alone, bucket is the fastest at "
        "1 KiB, swing takes 13 us at 1 KiB (--rank-progress free)"
    ]
    assert lines(monkeypatch, rows, {"swing": 9.4, "bucket": 10}, chunks=16, discipline="fifo") == []
    model = {"chunks": 16, "rank_progress": "authors", "discipline": "fifo"}
    assert lines(monkeypatch, rows, {"swing": 13, "bucket": 10}, **model) == []


def test_waits_of_the_fastest_and_of_a_single_algorithm_are_told_where_they_cost_or_save() -> None:
    """Without waits Swing takes a third more on torus:16x8x4, and on equal tori the same."""
    unequal = main_lines("validate", "torus:16x8x4")
    assert [line.rpartition("; ")[2] for line in unequal] == [
        "with ports that go on alone, swing takes 652.8 us at 64 MiB (--rank-progress free)"
    ]
    assert main_lines("compare", "torus:4x4") == []


def test_turns_of_flows_that_win_or_save_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is near the fastest and served as it arrives; not where a discipline was chosen."""
    rows = [row("ring", 10), row("direct", 10.9), row("swing", 11.1), row("bucket", 10.5, discipline="round-robin")]
    times_us = {"ring": 10, "direct": 9.9, "swing": 1, "bucket": 1}
    told = "links serve chunks as they arrive; with turns of flows, direct is the fastest at 1 KiB "
    assert lines(monkeypatch, rows, times_us, chunks=16, tie="first") == [f"{told}(--discipline round-robin-flow)"]
    assert lines(monkeypatch, rows, {"ring": 10, "direct": 10}, chunks=16, tie="first") == []
    assert lines(monkeypatch, rows, times_us, chunks=16, tie="first", discipline="fifo") == []


@pytest.mark.parametrize(("command", "more"), [("compare", ["-e", "8M", "-f", "8"]), ("validate", []), ("trace", [])])
def test_turns_of_flows_are_told_of_a_single_algorithm(
    command: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Trivance of 1 MiB saves 6 % in turns on dragonfly:3x2x1, and of 8 MiB less than 1 %."""
    words = [command, "--topology", "dragonfly:3x2x1", "--algorithms", "trivance", "-b", "1M", *more]
    assert main([*words, "--quiet"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "decided by a default" in line]
    assert line.endswith("with turns of flows, trivance takes 37.03 us at 1 MiB (--discipline round-robin-flow)")


@pytest.mark.parametrize("size_bytes", [2**23, 2**26])
def test_turns_that_bounds_exclude_are_not_tried(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """Every link of an all-to-all on a ring is busy to the end: a run with turns of flows takes no less."""
    collective = {"name": "all-to-all", "algorithms": ("direct",)}
    spec = Spec().updated({"topology": {"spec": "ring:40"}, "collective": collective})
    task = Task(spec, "direct", size_bytes)
    found = simulate_point(task).result
    turns = simulate_point(task._replace(spec=spec.updated({"model": TURNS}))).result
    assert turns.time_ps > (1 - deciding.WORTH_SAYING) * found.time_ps
    monkeypatch.setattr(deciding, "_time_s", None)
    assert deciding.deciding_alone(spec, [found.row()]) == []


def test_bounds_do_not_hold_where_faults_move_routes() -> None:
    plan = FaultPlan(faults=(LinkDown(link="dimension 0"),), reroute="10us")
    spec = Spec().updated({"topology": {"spec": "ring:8"}, "model": {"faults": plan}})
    assert floor_ps(spec, ready_point(Task(spec, "ring", 2**20))[0].values()) == 0


def test_a_cut_that_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("pipelined", 9, chunks=256), row("ring", 10)]
    assert lines(monkeypatch, rows, {"pipelined": 12}, chunks="auto", discipline="fifo") == [
        "pipelined in as many chunks as suit it; with 16 for all, ring is the fastest at 1 KiB (--chunks 16)"
    ]
    assert lines(monkeypatch, rows, {"pipelined": 12}, chunks=256, discipline="fifo") == []
    rows[1]["chunks"] = 64  # of which 16 for all is another number as well
    assert lines(monkeypatch, rows, {"pipelined": 12, "ring": 13}, chunks="auto", discipline="fifo") == []


def test_what_would_take_long_is_said_to_be_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("ring", 10), row("pipelined", 12, events=10**9)]
    (line,) = lines(monkeypatch, rows, {"pipelined": 9}, chunks=16, tie="first")
    assert line.startswith("perhaps: pipelined with fifo") and "was not tried" in line


def test_many_sizes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(name, time, size=2**n) for n in range(10, 14) for name, time in (("ring", 10), ("direct", 12))]
    (line,) = lines(monkeypatch, rows, {"ring": 13, "direct": 12}, deliver="head", tie="first", discipline="fifo")
    assert "with its tail, direct is the fastest at 4 sizes, 1 KiB to 8 KiB (--deliver tail)" in line


@pytest.mark.parametrize(("times_us", "said"), [
    ({"ring": 10, "direct": 9}, "direct is the fastest at 1 KiB"),
    ({"ring": 9, "direct": 12}, "ring takes 9 us at 1 KiB"),
    ({"ring": 9.6, "direct": 10}, None),
])
def test_split_ties_that_win_or_save_the_winner_time(
    monkeypatch: pytest.MonkeyPatch, times_us: dict[str, float], said: str | None
) -> None:
    found = lines(monkeypatch, [row("ring", 10), row("direct", 12)], times_us, discipline="fifo", tie=None)
    start = "of routes of equal length, the first; with all of them, "
    assert found == ([f"{start}{said} (--tie split)"] if said else [])


def test_limits_change_nothing_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four algorithms with any times and ranges, before and with another value of a default."""
    rng, names, said = random.Random(7), ("ring", "direct", "swing", "bucket"), 0
    for _ in range(600):
        rows = [row(one, rng.randint(95, 112) / 10, progress=rng.choice(("free", "all")), bound_us=1) for one in names]
        for one in rows:
            if rng.random() < 0.6:
                low, high = rng.uniform(0.93, 1), rng.uniform(1, 1.07)
                one |= {"spread_low_s": low * one["time_s"], "spread_high_s": high * one["time_s"]}
        times_us = {name: rng.randint(85, 120) / 10 for name in names if rng.random() < 0.9}
        found = [lines(monkeypatch, rows, times_us, ends=ends, chunks=16, tie=None) for ends in (True, False)]
        assert found[0] == found[1]
        said += len(found[0])
    assert said > 600


@pytest.mark.parametrize("name", ["swing", "direct", "pipelined"])
@pytest.mark.parametrize("fabric", ["torus:4x3", "fat-tree:4", "ocs:5x2"])
def test_what_takes_longer_than_a_limit_is_infinite(fabric: str, name: str) -> None:
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "collective": {"algorithms": [name]}, "sweep": {"begin": 77_777},
    }).choosing()
    task = Task(spec, name, 77_777)
    time_s = simulate_point(task).result.time_s
    assert deciding._time_s(task, inf) == deciding._time_s(task, time_s) == time_s
    assert deciding._time_s(task, 0.5 * time_s) in ((inf, time_s) if "ocs" in fabric else (inf,))


TURNS, SPLIT = {"discipline": "round-robin-flow"}, {"tie": "split"}


@pytest.mark.parametrize("size_bytes", [1000, 2**20, 7_000_001])
@pytest.mark.parametrize(("fabric", "name"), [
    ("torus:4x4", "bucket"), ("torus:5x3", "themis"), ("torus:2x3", "hierarchical"), ("ring:7", "ring"),
    ("ring:2", "ring"), ("ring:3", "bfb"), ("mesh:3x2", "bfb"), ("torus:4x4", "pipelined"),
])
def test_what_goes_to_neighbors_takes_as_long_in_turns_and_with_split_ties(
    fabric: str, name: str, size_bytes: int
) -> None:
    """The engine says so itself: every run of an alternative that is left out ends at the same picosecond."""
    spec = Spec().updated({"topology": {"spec": fabric}})
    task = Task(spec, name, size_bytes)
    assert deciding.goes_to_neighbors(task)
    for model in [SPLIT] if name == "pipelined" else [SPLIT, TURNS]:
        other = task._replace(spec=spec.updated({"model": model}))
        assert simulate_point(other).result.time_ps == simulate_point(task).result.time_ps


@pytest.mark.parametrize(("fabric", "name", "more"), [
    ("torus:4x4", "direct", {}), ("ring:5", "swing", {}), ("fat-tree:4", "ring", {}), ("ring:4", "in-network", {}),
    ("ring:4", "ring", {"model": {"buffer": "1MiB"}}), ("ring:4", "ring", {"model": {"nic": "shared"}}),
])
def test_what_crosses_several_links_or_waits_for_room_is_tried(fabric: str, name: str, more: dict[str, Any]) -> None:
    spec = Spec().updated({"topology": {"spec": fabric}, **more})
    assert not deciding.goes_to_neighbors(Task(spec, name, 2**20))


@pytest.mark.parametrize("to_neighbors", [True, False])
def test_the_discipline_of_a_design_is_no_turn_of_flows(to_neighbors: bool) -> None:
    """Pipelined trees are tried with their own, where the user gives none."""
    turns, split = (
        deciding.Alternative("", "", "", Spec().updated({"model": model}), frozenset(), shared=True)
        for model in (TURNS, SPLIT)
    )
    for one, name, stays in [(split, "pipelined", True), (turns, "pipelined", False), (turns, "bucket", True),
                             (turns._replace(shared=False), "bucket", False)]:
        assert deciding._stays(one, name, 2**20, lambda *point: to_neighbors) == (stays and to_neighbors)


def test_parallel_links_are_several_routes() -> None:
    ends = [(0, 1), (1, 0), (1, 2), (2, 1)]
    one, two = (from_links([(*pair, "1GB/s", 0) for pair in [*ends, *more]], 3) for more in ([], [(0, 1)]))
    assert deciding.has_one_route(one) and not deciding.has_one_route(two)
