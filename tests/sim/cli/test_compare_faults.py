"""`weft compare` on a faulty fabric: who cannot end is told, the others go on; notes say of which size, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectives import Schedule
from sim import simulate
from sim.cli import main
from sim.cli.compare import _never
from sim.cli.flags import EXIT_BAD_INPUT
from sim.faults.cost import FaultCost, finite, slowdown, times
from sim.result import Result
from sim.study import points
from sim.study.points import Task
from sim.study.ranked import compute_all
from sim.study.spec import Spec
from topologies import WeftError

RATE = ("--aggregation-rate", "1TB/s")
"""A fabric that says that it reduces, so that in-network is among the algorithms."""

CUT = 'timeout = "1us"\n[[link-down]]\nlink = "npu0->npu3"\n'


@pytest.fixture
def cut(tmp_path: Path) -> str:
    (tmp_path / "cut.toml").write_text(CUT, encoding="utf-8")
    return str(tmp_path / "cut.toml")


def test_an_algorithm_that_cannot_end_is_refused_and_the_others_run(
    cut: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--topology", "ring:4", "--collective", "broadcast", "-b", "64K", *RATE, "--faults", cut,
             "--quiet"]
    assert main([*words, "--json", str(tmp_path / "a.json")]) == 0
    found: dict[str, Any] = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [row["algorithm"] for row in found["rows"]] == ["tree"]
    assert "npu0 to npu3" in found["refused"]["in-network"] and "can never finish" in found["refused"]["pipelined"]
    said = capsys.readouterr().out
    assert "# in-network can never end: 1 of 3 transfers can never finish: link npu0->npu3 is down" in said
    # The other form of the tree crosses the link; the file alone runs again, without the plan.
    Path(cut).unlink()
    assert main(["compare", "--spec", str(tmp_path / "a.json"), "--quiet", "--json", str(tmp_path / "b.json")]) == 0
    again = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    assert [row | {"wall_s": 0} for row in again["rows"]] == [row | {"wall_s": 0} for row in found["rows"]]


def test_validate_goes_on_too(cut: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "--topology", "ring:4", "--collective", "broadcast", "-b", "64K", *RATE, "--faults", cut,
             "--quiet"]
    assert main([*words, "--json", str(tmp_path / "a.json")]) == 0
    found: dict[str, Any] = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [row["algorithm"] for row in found["rows"]] == ["tree"]
    assert set(found["refused"]) >= {"in-network", "pipelined"}
    assert "in-network can never end: 1 of 3 transfers can never finish" in capsys.readouterr().out


def test_an_algorithm_named_alone_ends_with_its_report(cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "ring:4", "-b", "1K", "-e", "2K", "--faults", cut, "--quiet", "--algorithms"]
    assert main([*words, "ring"]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith("weft compare: 18 of 48 transfers can never finish: link npu0->npu3 is down from 0 ps on")
    assert main([*words, "ring,swing"]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith("weft compare: no algorithm can end; ring: 18 of 48") and "; swing: 5 of 16" in said
    assert said.count("\n") == 1


def test_sizes_that_cannot_end_are_named() -> None:
    wrong = WeftError("stuck")
    assert _never({1024: wrong, 2048: wrong}, [1024, 2048]) == "stuck"
    assert _never({2048: wrong}, [1024, 2048]) == "at 2 KiB: stuck"
    assert _never({1024: wrong, 2048: WeftError("lost")}, [1024, 2048]) == "at 1 KiB: stuck; at 2 KiB: lost"


def test_the_first_deadlock_is_raised_unless_it_is_asked_for(cut: str) -> None:
    spec = Spec.from_dict({"topology": {"spec": "ring:4"}, "model": {"faults": cut}})
    with pytest.raises(WeftError, match="can never finish"):
        compute_all([Task(spec, "ring", 1024)])


def test_notes_name_the_size_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "late.toml").write_text('[[straggler]]\nnpu = "npu0"\ndelay = "1us"\n', encoding="utf-8")
    words = ["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", "-e", "4K", "-f", "4", "--quiet"]
    assert main([*words, "--faults", str(tmp_path / "late.toml")]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "faults: +" in line]
    for note, size in zip(notes, ("1 KiB", "4 KiB"), strict=True):
        assert note.startswith(f"# note: ring at {size}: faults: +1 us on the healthy")


def test_faults_that_make_it_faster_come_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of flows that ECMP lets meet, a dead link parts some; every run for it has the limit that was asked for."""
    limits: list[int | None] = []

    def limited(schedule: Schedule, *, max_events: int | None = None, **how: Any) -> Result:
        limits.append(max_events)
        return simulate(schedule, max_events=max_events, **how)

    monkeypatch.setattr(points, "simulate", limited)
    (tmp_path / "f.toml").write_text(
        'timeout = "1us"\nreroute = "0s"\n[[link-down]]\nlink = "leaf1->spine0"\n', encoding="utf-8"
    )
    words = ["compare", "--topology", "leaf-spine:2x2x3", "--algorithms", "swing", "-b", "256K", "--chunks", "1",
             "--tie", "ecmp", "--form", "bandwidth", "--faults", str(tmp_path / "f.toml"), "--quiet", "--check",
             "--max-events", "100000"]
    assert main(words) == 0
    assert len(limits) >= 2 and set(limits) == {100_000}
    said = capsys.readouterr().out
    assert "faults: -144.6 ns on the healthy 11.12 us (0.99 times), 8 chunks sent on detours" in said
    assert "faster than healthy: the critical path has " in said
    assert "with these faults chunks meet in another order or on other links" in said


def test_a_slowdown_of_nothing() -> None:
    """1 where both times are 0; where the healthy run alone takes no time, no number says how often."""
    assert slowdown(0, 0) == 1 and slowdown(3, 2) == 1.5
    cost = FaultCost(None, 0, 5, 0, 0)  # type: ignore[arg-type]  # times alone matter here
    assert cost.slowdown == float("inf") and finite(cost.slowdown) is None and finite(2.0) == 2
    assert str(cost) == "faults: +5 ps on the healthy 0 ps (it took no time)" and times(2) == "(2.00 times)"
