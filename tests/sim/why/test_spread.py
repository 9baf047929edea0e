"""Do perturbed runs show which times are accidents, are they repeatable, and are ties in a table marked?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from collectives import ALGORITHMS, build, registry
from sim import FaultPlan, SlowLink, simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.perturb import SHARE, perturb
from sim.study.tables import comparison_table, tied_with
from topologies import WeftError, from_spec

ACCIDENT = ("torus:16x8x4", "all-reduce", "16MiB")


def test_swing_where_its_ports_collide_is_an_accident_and_bucket_is_not() -> None:
    fabric, kind, size = ACCIDENT
    ranges = {}
    for name in ("swing", "bucket"):
        found = simulate(build(name, kind, from_spec(fabric), size)).spread(8)
        ranges[name] = (found.high_ps - found.low_ps) / found.time_ps
    assert ranges["swing"] > 0.2 and ranges["bucket"] < 0.005


@pytest.mark.table
@pytest.mark.parametrize("name", [name for name, one in ALGORITHMS.items() if "all-reduce" in one.functions])
@pytest.mark.parametrize("fabric", ["torus:4x4", "mi250:1", "RI(4)_SW(2)"])
def test_a_range_holds_the_time_and_is_the_same_again(name: str, fabric: str) -> None:
    try:
        schedule = registry.build(name, "all-reduce", from_spec(fabric), "256KiB")
    except WeftError:
        return  # limits of algorithms are tested with the registry
    result = simulate(schedule)
    found = result.spread(5)
    assert found.low_ps <= result.time_ps <= found.high_ps and len(found.times_ps) == 5
    assert result.spread(5) == found
    assert result.spread(6).times_ps[:5] == found.times_ps
    assert "in 5 perturbed runs" in str(found)


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_the_symmetry_holds_in_perturbed_runs(name: str) -> None:
    """Rates belong to classes of links, so that one rank and all ranks take as long, but for starts and ties."""
    program = lower(build(name, "all-reduce", from_spec("torus:4x4"), "1MiB")).program
    time_ps = run(program).makespan_ps
    for seed in range(4):
        changed = perturb(program, np.random.default_rng(seed), time_ps)
        assert abs(run(changed).makespan_ps / time_ps - 1) < 10 * SHARE
        assert np.abs(changed.service_ps.max() / program.service_ps.max() - 1) <= 1.01 * SHARE
        assert sorted(set(changed.task_class[: program.n_tasks].tolist())) == sorted(set(program.task_class.tolist()))


def test_routes_that_only_numbers_decide_are_taken_differently() -> None:
    direct = simulate(build("direct", "all-gather", from_spec("mi250:1"), "16MiB"), chunks=4)
    times = direct.spread(8).times_ps
    assert max(abs(time / direct.time_ps - 1) for time in times[2::4]) > 0.02


def test_only_healthy_simulated_runs_are_perturbed() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "4KiB")
    faulty = simulate(schedule, faults=FaultPlan(faults=(SlowLink(link="npu0->npu1", at="0s", share=0.5),)))
    for result in (faulty, simulate(schedule, engine="analytic")):
        with pytest.raises(WeftError, match="simulated runs without faults"):
            result.spread(2)
    for n in (0, -1, True, 1.5):
        with pytest.raises(WeftError, match="give an integer from 1"):
            simulate(schedule).spread(n)  # type: ignore[arg-type]  # what a user may write


def test_compare_shows_ranges_and_marks_what_is_tied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "torus:16x8x4", "--algorithms", "swing,bucket", "-b", "16M", "--quiet"]
    assert main([*words, "--json", str(tmp_path / "a.json")]) == 0
    said = capsys.readouterr().out
    rows = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["rows"]
    assert all(row["spread_low_s"] <= row["time_s"] <= row["spread_high_s"] for row in rows)
    assert tied_with(sorted(rows, key=lambda row: float(row["time_s"]))) == ("bucket",)
    assert "% B *" in said and " =" in said and "tied" in said and "its range overlaps" in said
    assert main([*words, "--spread", "0"]) == 0
    without = capsys.readouterr().out
    assert "tied" not in without and "no perturbed runs of swing, bucket" in without
    assert main([*words, "--spread", "-1"]) == EXIT_BAD_INPUT


def test_only_overlapping_ranges_are_tied() -> None:
    def row(name: str, time_s: float, low_s: float | None, high_s: float | None) -> dict[str, object]:
        ends = {"spread_low_s": low_s, "spread_high_s": high_s}
        return {"algorithm": name, "time_s": time_s, "size_bytes": 1024, "form": ""} | ends

    rows = [row("a", 1e-6, 1e-6, 1.2e-6), row("b", 1.1e-6, 1.1e-6, 1.3e-6), row("c", 2e-6, 1.9e-6, 2e-6),
            row("d", 1.1e-6, None, None)]
    assert tied_with(rows) == ("b",) and tied_with(rows[2:]) == () and tied_with(rows[3:]) == ()
    assert "1 us +0% +20% *" in comparison_table(rows) and "1.1 us +0% +18% =" in comparison_table(rows)
