"""Timelines: slices that never overlap on a track, arrows that lead forward, counters that say what was busy."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT, OUTPUTS
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import Model
from sim.timeline.perfetto import MOST_EVENTS, check_size, events, write_perfetto
from sim.timeline.timeline import Timeline, timeline
from topologies import WeftError, from_spec
from topologies.stages import end_profile, start_profile
from workloads.job import Job


def timeline_of(spec: str, algorithm: str, size: str = "64KiB", **model: Any) -> Timeline:
    schedule = build(algorithm, "all-reduce", from_spec(spec), size)
    lowered = lower(schedule, Model(**model), "off")
    return timeline(lowered, run(lowered.program, log=True))


def phases(timeline: Timeline) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events(timeline):
        found[event["ph"]].append(event)
    return found


CASES = (
    ("torus:2x4", "swing", {"chunks": 4}), ("switch:4", "ring", {"chunks": 3}),
    ("switch:4", "in-network", {"chunks": 2}), ("fc:4", "pipelined", {"chunks": 2, "forwarding": "store-and-forward"}),
    ("torus:2x2", "hierarchical", {"chunks": 1}),
)


@pytest.mark.parametrize(("spec", "algorithm", "model"), CASES)
def test_slices_are_the_services_and_never_overlap(spec: str, algorithm: str, model: dict[str, Any]) -> None:
    timeline = timeline_of(spec, algorithm, **model)
    slices = phases(timeline)["X"]
    assert len(slices) == timeline.outcome.events
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for one in slices:
        start = round(one["ts"] * 1e6)
        tracks[one["pid"], one["tid"]].append((start, start + round(one["dur"] * 1e6)))
    busy = timeline.outcome.busy_ps.tolist()
    assert sorted(sum(end - start for start, end in track) for track in tracks.values()) == sorted(filter(None, busy))
    for track in tracks.values():
        track.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(track))


@pytest.mark.parametrize(("spec", "algorithm", "model"), CASES)
def test_arrows_lead_from_slices_to_later_ones(spec: str, algorithm: str, model: dict[str, Any]) -> None:
    found = phases(timeline_of(spec, algorithm, **model))
    begins = {(one["pid"], one["tid"], one["ts"]) for one in found["X"]}
    ends = {one["id"]: one for one in found["f"]}
    assert len(found["s"]) == len(ends) > 0
    for start in found["s"]:
        end = ends[start["id"]]
        assert end["bp"] == "e"
        assert start["ts"] <= end["ts"]
        for one in (start, end):
            assert (one["pid"], one["tid"], one["ts"]) in begins


def test_counters_sum_to_the_busy_time() -> None:
    timeline = timeline_of("torus:2x4", "swing", chunks=4)
    counters = phases(timeline)["C"]
    makespan_us = timeline.outcome.makespan_ps / 1e6
    for group in {track.group for track in timeline.tracks}:
        mine = [one for one in counters if one["name"] == f"{group}, busy %"]
        width = makespan_us / (len(mine) - 1)
        servers = [at for at, track in enumerate(timeline.tracks) if track.group == group]
        busy_us = float(timeline.outcome.busy_ps[servers].sum()) / 1e6
        area = sum(one["args"]["busy"] for one in mine) / 100 * width * len(servers)
        assert area == pytest.approx(busy_us, rel=1e-3)
        assert max(one["args"]["busy"] for one in mine) <= 100.001


def test_every_track_has_a_name_and_links_are_directions() -> None:
    timeline = timeline_of("switch:4", "ring", chunks=1)
    found = phases(timeline)["M"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in found if one["name"] == "thread_name"}
    processes = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    assert {(processes[pid], name) for (pid, _), name in names.items()} == {
        *((f"npu{rank}", "link to switch0") for rank in range(4)),
        *(("switch0", f"link to npu{rank}") for rank in range(4)),
    }


def iteration() -> Timeline:
    topology = from_spec("ring:4")
    job = Job(topology)
    first = job.compute("forward", 10**7)
    reduce = job.collective("reduce", build("ring", "all-reduce", topology, "64KiB"), after=[first])
    job.compute("update", 10**6, after=[reduce])
    return simulate(job, chunks=2, symmetry="off").timeline()


def test_an_iteration_has_streams_beside_links() -> None:
    timeline = iteration()
    found = phases(timeline)
    computations = [one for one in found["X"] if one["cat"] == "compute"]
    assert sorted(one["name"] for one in computations) == ["forward"] * 4 + ["update"] * 4
    assert {one["dur"] for one in computations} == {10.0, 1.0}
    starts = {one["id"]: one for one in found["s"]}
    into_update = [one for one in found["f"] if one["ts"] == max(c["ts"] for c in computations)]
    assert into_update
    assert all(starts[one["id"]]["ts"] < one["ts"] for one in into_update)  # the join between is not drawn
    assert any(track.group == "compute streams" for track in timeline.tracks)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_files_are_json_and_the_same_every_time(name: str, tmp_path: Path) -> None:
    timeline = iteration()
    write_perfetto(timeline, tmp_path / name)
    once = (tmp_path / name).read_bytes()
    write_perfetto(timeline, tmp_path / name)
    assert (tmp_path / name).read_bytes() == once
    data = json.loads(gzip.decompress(once) if name.endswith(".gz") else once)
    assert data["displayTimeUnit"] == "ns"
    assert len(data["traceEvents"]) == len(list(events(timeline)))
    assert data["otherData"]["time_s"] == timeline.outcome.makespan_ps / 1e12


def test_nothing_to_do_is_a_file_without_slices(tmp_path: Path) -> None:
    timeline = timeline_of("ring:1", "ring")
    write_perfetto(timeline, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["otherData"]["time_s"] == 0


def test_too_much_for_a_picture_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sim.timeline.perfetto.MOST_EVENTS", 10)
    with pytest.raises(WeftError, match="slices and arrows; at most 10: use fewer or larger chunks"):
        write_perfetto(iteration(), tmp_path / "a.json")
    assert not list(tmp_path.iterdir()) or (tmp_path / "a.json").stat().st_size == 0


ITERATION = ["--workload", "resnet-50", "--samples", "1", "--peak", "312", "--efficiency", "0.5"]


@pytest.mark.parametrize("words", [
    ["trace", "--algorithm", "ring", "-b", "64K"], ["trace", *ITERATION], ["train", *ITERATION],
    ["share", "--tenant", "all-reduce ring 64KiB", "--tenant", "all-to-all direct 64KiB"],
], ids=["schedule", "iteration", "train", "share"])
def test_commands_refuse_it_before_they_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("it runs")

    monkeypatch.setattr("sim.timeline.perfetto.MOST_EVENTS", 10)
    monkeypatch.setattr("sim.simulation.run", never)
    words = [*words, "--topology", "ring:4", "--perfetto", str(tmp_path / "a.json")]
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert "slices and arrows; at most 10: use fewer or larger chunks" in said.err
    assert said.out == ""
    assert not list(tmp_path.iterdir())


def test_the_count_before_a_run_is_that_of_its_timeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sim.timeline.perfetto.MOST_EVENTS", 10)
    schedule = build("swing", "all-reduce", from_spec("torus:2x4"), "64KiB")
    with pytest.raises(WeftError) as before:
        check_size(schedule, Model(chunks=4), "off")
    with pytest.raises(WeftError) as after:
        write_perfetto(timeline_of("torus:2x4", "swing", chunks=4), tmp_path / "a.json")
    assert str(before.value) == str(after.value)


def test_the_help_of_trace_names_its_limit_and_symmetry(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"at most {MOST_EVENTS:,} slices" in OUTPUTS["perfetto"]
    with pytest.raises(SystemExit):
        main(["trace", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "off: simulate all ranks (default: off, and auto for a workload)" in said
    for words, told in ((["--algorithm", "ring", "-b", "64K"], "simulated (off)"), (ITERATION, "1 of 4 ranks")):
        assert main(["trace", "--topology", "ring:4", *words]) == 0
        assert told in capsys.readouterr().out


def test_writing_is_in_the_stage_of_output(tmp_path: Path) -> None:
    profile = start_profile()
    try:
        write_perfetto(iteration(), tmp_path / "a.json")
        assert [row["calls"] for row in profile.rows() if row["stage"] == "output"] == [1]
    finally:
        end_profile()


def test_the_command_writes_a_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ring.json.gz"
    words = ["trace", "--topology", "switch:4", "--algorithm", "ring", "-b", "64K", "--chunks", "16"]
    assert main([*words, "--perfetto", str(file)]) == 0
    assert "1,536 slices on 8 link directions" in capsys.readouterr().out
    data = json.loads(gzip.decompress(file.read_bytes()))
    schedule = build("ring", "all-reduce", from_spec("switch:4"), "64KiB")
    assert data["otherData"]["time_s"] == simulate(schedule).time_s


def test_the_command_runs_goal_files_and_workloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = tmp_path / "ring.goal"
    words = ["--topology", "ring:4", "--algorithm", "ring", "-b", "64K"]
    assert main(["schedule", *words, "--goal", str(goal), "--htsim", str(tmp_path / "ring.cm")]) == 0
    assert main(["trace", "--topology", "ring:4", "--job", str(goal)]) == 0
    said = capsys.readouterr().out
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "64KiB")
    assert f"Host 3: {simulate(schedule, chunks=1).time_ps / 1e3:.3f} ns" in said
    table = tmp_path / "work.txt"
    table.write_text("layer -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 65536 0\n", encoding="utf-8")
    groups = ["--groups", "forward=4;input_grad=4;weight_grad=4"]
    file = tmp_path / "iteration.json"
    training = ["--topology", "ring:4", "--workload", str(table), *groups, "--perfetto", str(file)]
    assert main(["trace", *training]) == 0
    assert main(["train", *training]) == 0
    capsys.readouterr()
    assert main(["trace", *training, "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["slices"] > 0
    assert {track["group"] for track in row["tracks"]} == {"compute streams", "dimension 0"}
    assert any(event.get("cat") == "compute" for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trace", "--topology", "ring:4"], "no algorithm is given: write --algorithms"),
        (["trace", "--topology", "torus:4x4", "--algorithms", "swing,ring"], "a timeline shows one schedule"),
        (["trace", "--topology", "ring:4", "--algorithm", "ring", "--engine", "reference"], "needs the chunk engine"),
        (["trace", "--topology", "ring:4", "--job", "none.goal"], "none.goal cannot be read"),
        (["trace", "--topology", "ring:4", "--job", "a", "--workload", "b"], "are two jobs"),
        (["trace", "--topology", "ring:4", "--algorithm", "ring", "--perfetto", "a.txt"], "has the suffix '.txt'"),
        (["trace", "--topology", "ring:4", "--algorithm", "ring", "--perfetto", "-"], "--perfetto - is standard"),
        (["compare", "--topology", "ring:4", "--plot", "-"], "--plot - is standard output, which takes text"),
        (["compare", "--topology", "ring:4", "--nccl-json", "no/a"], "--nccl-json no/a: there is no folder no"),
        (["schedule", "--topology", "torus:4x4", "--algorithm", "swing", "--goal", "-"], "hold one schedule"),
        (["compare", "--topology", "ring:4", "--algorithm", "none.xml"], "none.xml cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1


ALL_GATHER_OF_TWO = """\
<algo name="swap" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1">
 <gpu id="0" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
  <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  <step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
 <gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
  <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
</algo>
"""


def test_an_algorithm_may_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "swap.xml"
    file.write_text(ALL_GATHER_OF_TWO, encoding="utf-8")
    words = ["--topology", "switch:2", "--collective", "all-gather", "-b", "64K"]
    assert main(["compare", *words, "--algorithms", f"{file},direct", "--quiet"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("       65536")]
    assert rows[0][5] == rows[1][5]
    assert main(["compare", *words[:2], "--collective", "all-reduce", "--algorithm", str(file)]) == EXIT_BAD_INPUT
    assert "does not implement all-reduce" in capsys.readouterr().err
    older = ALL_GATHER_OF_TWO.replace('inplace="1"', 'inplace="1" maxcount="1" nthreadblocks="24"')
    file.write_text(older.replace('chan="0"', 'chan="0" lane="3"'), encoding="utf-8")
    assert main(["compare", *words, "--algorithm", str(file)]) == 0
    assert capsys.readouterr().err.count(
        f"# note: {file}: passed over, as the runtime does: maxcount of <algo>, nthreadblocks of <algo>, lane of <tb>\n"
    ) == 1
    broken = ALL_GATHER_OF_TWO.replace('srcoff="1" dstbuf="o" dstoff="1"', 'srcoff="0" dstbuf="o" dstoff="0"')
    file.write_text(broken, encoding="utf-8")
    assert main(["compare", *words, "--algorithm", str(file)]) == EXIT_BAD_INPUT  # read anew, and proved anew
