"""Timelines of runs with faults: lost services are called so, marks say when links change, late starts have a track."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collectives import ring
from sim.cli import main
from sim.faults.plan import FaultPlan, LinkDown, Loss, Repair, SlowLink, Straggler
from sim.simulation import simulate
from sim.timeline.perfetto import events
from sim.timeline.timeline import LATE, Timeline
from topologies import ring as ring_fabric
from workloads.job import Job

FABRIC = ring_fabric(4)
WORK = ring.all_reduce(FABRIC, "16KiB")
LATE_ONE = FaultPlan(faults=(Straggler(npu="npu1", delay="5us"),))
PLANS = {
    "late": LATE_ONE,
    "down": FaultPlan(timeout="1us", faults=(
        LinkDown(link="npu0->npu1", at="1us"), Repair(link="npu0->npu1", at="3us"), *LATE_ONE.faults,
        SlowLink(link="npu2->npu3", at="2us", share=0.5), Loss(link="*", probability=0.05),
    )),
    "detour": FaultPlan(timeout="1us", reroute="1us", faults=(LinkDown(link="npu0->npu1", at="1us"),)),
}


def phases(timeline: Timeline) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events(timeline):
        found[event["ph"]].append(event)
    return found


def timeline_of(plan: FaultPlan, of_job: bool) -> Timeline:
    if not of_job:
        return simulate(WORK, chunks=2, faults=plan).timeline()
    job = Job(FABRIC)
    job.collective("gradients", WORK, after=[job.compute("forward", 2_000_000)])
    return simulate(job, chunks=2, faults=plan).timeline()


@pytest.mark.parametrize("of_job", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_slices_are_the_services_and_never_overlap(name: str, of_job: bool) -> None:
    timeline = timeline_of(PLANS[name], of_job)
    found = phases(timeline)
    late = [one for one in found["X"] if one["cat"] == "late"]
    assert [(one["name"], one["ts"], one["dur"]) for one in late] == [(LATE, 0, 5)] * (name != "detour")
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for one in found["X"]:
        start = round(one["ts"] * 1e6)
        tracks[one["pid"], one["tid"]].append((start, start + round(one["dur"] * 1e6)))
    for track in tracks.values():
        track.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(track))
    busy = sum(end - start for track in tracks.values() for start, end in track) - 5_000_000 * len(late)
    assert busy == timeline.outcome.busy_ps.sum() - len(late)
    lost = [one for one in found["X"] if one["name"].endswith(", lost")]
    journal = timeline.outcome.journal
    assert len(lost) == (0 if journal is None else journal.lost.sum())
    begins = {(one["pid"], one["tid"], one["ts"]) for one in found["X"]}
    assert all((one["pid"], one["tid"], one["ts"]) in begins for one in found["s"] + found["f"])
    counted = {one["name"] for one in found["C"]}
    assert counted == {"dimension 0, busy %", *(["compute streams, busy %"] if of_job else [])}


def test_marks_say_when_links_change() -> None:
    marks = [(one["name"], one["ts"]) for one in phases(timeline_of(PLANS["down"], False))["i"]]
    assert sorted(marks) == [("as built", 3.0), ("down", 1.0), ("slowed", 2.0)]
    assert not phases(timeline_of(PLANS["late"], False))["i"]


def test_the_commands_draw_faulty_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, drawn = tmp_path / "f.toml", tmp_path / "a.json"
    plan.write_text('timeout = "1us"\n[[loss]]\nlink = "*"\nprobability = 0.1\n', encoding="utf-8")
    words = ["trace", "--topology", "ring:4", "--faults", str(plan), "--quiet", "--perfetto", str(drawn)]
    assert main([*words, "--algorithm", "ring", "-b", "16K"]) == 0
    assert "faults are not the same everywhere" in capsys.readouterr().out
    assert ", lost" in drawn.read_text(encoding="utf-8")
    (tmp_path / "a.goal").write_text(
        "num_ranks 4\nrank 0 {\nl1: send 1024b to 1 tag 0\n}\nrank 1 {\nl1: recv 1024b from 0 tag 0\n}\n"
        "rank 2 {\n}\nrank 3 {\n}\n", encoding="utf-8",
    )
    assert main([*words, "--job", str(tmp_path / "a.goal"), "--json", "-"]) == 0
    assert "# faults: +" in capsys.readouterr().err
    assert json.loads(drawn.read_text(encoding="utf-8"))["otherData"]["symmetry"].startswith("all ranks")
