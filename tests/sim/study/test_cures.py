"""Does every command tell one story of a point, and does a wide range name what narrows it?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sim.cli import main
from sim.study import deciding
from sim.study.points import Task, simulate_point
from sim.study.spec import Spec
from sim.study.tables import range_words
from topologies import WeftError

ALONE = ["--topology", "torus:8x4x2", "--algorithm", "swing", "-b", "4M", "--rank-progress", "free"]
"""Ports that go on alone on unequal extents collide."""

SERVER = ["--topology", "torus:4x4", "--algorithm", "parameter-server", "-b", "4M"]


@pytest.mark.parametrize("asked", [ALONE, SERVER, ["--topology", "switch:4", "--algorithm", "ring", "-b", "64K"]])
def test_compare_validate_trace_and_python_tell_one_story(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One time, one range and one cure, by the chunks, the form and the discipline that are chosen."""
    told: list[dict[str, Any]] = []
    said: list[list[str]] = []
    for command in ("compare", "validate", "trace"):
        assert main([command, *asked]) == 0
        said.append([line for line in capsys.readouterr().out.splitlines() if "an accident" in line])
        assert main([command, *asked, "--json", "-"]) == 0
        told += json.loads(capsys.readouterr().out)["rows"]
    keys = dict(zip(asked[::2], asked[1::2], strict=True))
    spec = Spec().updated({
        "topology": {"spec": keys["--topology"]}, "model": {"rank_progress": keys.get("--rank-progress")},
        "collective": {"algorithms": (keys["--algorithm"],)}, "sweep": {"begin": keys["-b"]},
    }).choosing()
    result = simulate_point(Task(spec, spec.algorithms[0], spec.sizes_bytes[0])).result
    assert {row["time_s"] for row in told} == {result.time_s}
    ends = result.spread()
    assert {(row["spread_low_s"], row["spread_high_s"]) for row in told} == {(ends.low_s, ends.high_s)}
    assert said[0] == said[1] == said[2] and len(said[0]) == (ends.high_ps - ends.low_ps > 0.05 * ends.time_ps)


def row(low: float, high: float, progress: str = "free", name: str = "swing") -> dict[str, Any]:
    return {"algorithm": name, "size_bytes": 1024, "time_s": 1e-6, "events": 10, "discipline": "fifo",
            "rank_progress": progress, "spread_low_s": low * 1e-6, "spread_high_s": high * 1e-6}


@pytest.mark.parametrize(("narrow", "progress", "said"), [
    ("rank_progress", "free", "an accident; with --rank-progress all 1 us"),
    ("discipline", "all", "an accident; with --discipline lowest-chunk-first 1 us"),
    ("tie", "free", "an accident; with --tie split 1 us"),
    ("nothing", "free", "an accident that no flag tried narrows without more time: take the range for the answer"),
])
def test_the_first_flag_that_narrows_a_range_is_named(
    narrow: str, progress: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(task: Task) -> dict[str, Any]:
        if task.spec.model.discipline == "round-robin-flow":
            raise WeftError("it cannot run")
        return row(1, 1) if getattr(task.spec.model, narrow, None) else row(0.9, 1.1)

    monkeypatch.setattr(deciding, "compute", compute)
    spec = Spec().updated({"topology": {"spec": "torus:4x4"}, "collective": {"algorithms": ("swing", "ring")}})
    wide = [row(1, 1.06, progress), row(0.9, 1.1, progress), row(0.98, 1.03, progress, "ring")]
    assert deciding.cures(spec, wide) == [f"swing at 1 KiB takes 1 us{range_words(wide[1])}, {said}"]


def test_what_is_told_alike_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times and ranges at one size that read the same have one line; one that reads otherwise has its own."""
    monkeypatch.setattr(deciding, "compute", lambda task: row(0.9, 1.1))
    names = "swing", "ring", "bucket"
    spec = Spec().updated({"topology": {"spec": "torus:4x4"}, "collective": {"algorithms": names}})
    others = [row(0.9, 1.1, name="ring"), row(0.9, 1.2, name="bucket")]
    first, second = deciding.cures(spec, [row(0.9, 1.1), *others])
    assert first.startswith(f"swing at 1 KiB takes 1 us{range_words(others[0])} (so does ring), an accident")
    assert second.startswith(f"bucket at 1 KiB takes 1 us{range_words(others[1])}, an accident")


@pytest.mark.parametrize(("fabric", "services"), [("torus:4x4", 10**7), ("ocs:5x2", 10)])
def test_what_takes_long_is_said_to_be_untried(fabric: str, services: int) -> None:
    """Many services, or circuits that would be planned anew."""
    spec = Spec().updated({"topology": {"spec": fabric}, "collective": {"algorithms": ("swing",)}})
    (line,) = deciding.cures(spec, [row(0.9, 1.1) | {"events": services}])
    assert "was not tried, for it takes long (--rank-progress all)" in line
