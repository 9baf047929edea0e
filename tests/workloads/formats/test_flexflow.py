"""Task graphs of FlexFlow: what is read becomes the job it says, as a flat buffer and as CSV."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from sim import simulate
from sim.cli import main
from tests.places import SHARED
from topologies import Topology, WeftError, circulant, switch
from workloads.formats.flexflow import ENDING, HEADER, Task, open_flexflow
from workloads.job import Communicate

MS = 10**9
TASKS = (
    Task(0, "forward", 0, 0, 1.0, 0, (1,)), Task(1, "message", 0, 1, 0, 10**7, (2,)),
    Task(2, "backward", 1, 1, 2.0, 0, (3, 4)), Task(3, "allreduce", 0, 0, 0.5, 3 * 10**6, (0, 1, 2)),
    Task(4, "allreduce", 0, 0, 0, 10**10, (1,)), Task(5, "backward", 1, 1, 4.0, 0, ()),
)
NODES = 4  # three servers and a switch


def table(tasks: Sequence[Task]) -> str:
    """A graph as CSV."""
    rows = [(one.number, one.kind, one.server, one.target, one.time_ms, one.size_bytes,
             " ".join(map(str, one.following))) for one in tasks]
    return "\n".join([HEADER, *(",".join(map(str, row)) for row in rows)]) + "\n"


def buffer(tasks: Sequence[Task]) -> bytes:
    """A graph as a flat buffer: offsets point ahead, and are filled in when what they point at is written."""
    data = bytearray(4)

    def ahead(place: int) -> None:
        struct.pack_into("<I", data, place, len(data) - place)

    def record(*fields: tuple[str, float]) -> list[int]:
        """Write a table behind its layout; returns where its fields are."""
        body, places = bytearray(4), []
        for kind, value in fields:
            places.append(len(body))
            body += struct.pack("<" + kind, value)
        layout = struct.pack(f"<HH{len(places)}H", 4 + 2 * len(places), len(body), *places)
        struct.pack_into("<i", body, 0, len(layout))
        start = len(data) + len(layout)
        data.extend(layout + body)
        return [start, *(start + place for place in places)]

    def listed(place: int, count: int) -> list[int]:
        """Write a list of offsets; returns where each is."""
        ahead(place)
        data.extend(struct.pack(f"<I{count}I", count, *[0] * count))
        return [len(data) - 4 * (count - at) for at in range(count)]

    start, *fields = record(*[("I", value) for value in (1, 3, 1, 0, 0, 0, 0, 0, 0, 0)])
    struct.pack_into("<I", data, 0, start)
    places, devices = listed(fields[8], len(tasks)), listed(fields[9], len(tasks))
    for at, one in enumerate(tasks):
        start, *_ = record(("h", 0), ("Q", 900 + at), ("Q", one.server), ("Q", one.server * NODES + one.target))
        struct.pack_into("<I", data, devices[at], start - devices[at])
    for at, one in enumerate(tasks):
        kind = {"forward": 0, "backward": 1, "message": 5, "allreduce": 6}[one.kind]
        following = [value if one.kind == "allreduce" else 700 + value for value in one.following]
        start, *fields = record(("h", kind), ("Q", 700 + at), ("Q", 900 + at), ("f", one.time_ms),
                                ("Q", one.size_bytes), ("I", 0))
        struct.pack_into("<I", data, places[at], start - places[at])
        ahead(fields[5])
        data.extend(struct.pack(f"<I{len(following)}Q", len(following), *following))
    return bytes(data)


@pytest.fixture(scope="module")
def three() -> Topology:
    return switch(3, bandwidth="10GB/s", latency="1us", hop_latency="0s")


def written(folder: Path, tasks: Sequence[Task], *, flat: bool = True) -> Path:
    path = folder / f"graph{ENDING if flat else '.csv'}"
    path.write_bytes(buffer(tasks) if flat else table(tasks).encode())
    return path


@pytest.mark.parametrize("flat", [True, False])
def test_a_graph_is_the_job_it_says(tmp_path: Path, three: Topology, flat: bool) -> None:
    job, notes = open_flexflow(written(tmp_path, TASKS, flat=flat), three)
    assert [one.name for one in job.operations] == [  # of one server: nothing
        "forward 0", "message 1", "backward 2", "sum in servers 3", "allreduce 3", "backward 5"]
    result = simulate(job, chunks=1)
    ends = {job.operations[span.operation].name: span.end_ps for span in result.spans()}
    # 10 MB by two links of 1 us after 1 ms; the other backward task of server 1 was first on it.
    assert [ends["backward 5"], ends["backward 2"]] == pytest.approx([4 * MS, 6 * MS], abs=9) and not notes
    # A sum of 0.5 ms in each server, and four rounds of 1 MB, each with its acknowledgment over two links.
    assert ends["allreduce 3"] == pytest.approx(6.5 * MS + 4 * (0.1 * MS + 4 * 10**6), rel=1e-3)


def test_algorithms_of_the_registry_run_it(tmp_path: Path, three: Topology) -> None:
    job = open_flexflow(written(tmp_path, TASKS), three, ("direct",))[0]
    assert [one.work.schedule.pattern.algorithm for one in job.operations if one.kind == "all-reduce"] == ["direct"]


@pytest.mark.parametrize(("change", "said"), [
    ({"server": 3}, "forward 0 names server 3; switch:3 has 3 NPUs"),
    ({"following": (9,)}, "forward 0 is followed by task 9, which is not there"),
    ({"kind": "update"}, "a task of the kind 'update'"),
    ({"time_ms": -1.0}, "forward 0 takes -1.0 ms"),
    ({"number": 1}, "two tasks have one number"),
    ({"following": (0,)}, "task 0 waits for itself in a cycle"),
])
def test_bad_tasks_are_named(tmp_path: Path, three: Topology, change: dict[str, object], said: str) -> None:
    path = written(tmp_path, (TASKS[0]._replace(**change), *TASKS[1:]), flat=False)
    with pytest.raises(WeftError, match=said):
        open_flexflow(path, three)


def test_a_file_that_is_cut_off(tmp_path: Path, three: Topology) -> None:
    path = written(tmp_path, TASKS)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(WeftError, match="is no task graph of FlexFlow, or is cut off"):
        open_flexflow(path, three)


def iteration_ms(name: str, fabric: str, discipline: str, capsys: pytest.CaptureFixture[str]) -> float:
    """Of a released graph, by `weft train` on links of 100 Gb/s; flows send the window of the released simulator."""
    links = ["--link-bandwidth", "100Gb/s", "--link-latency", "1us", "--hop-latency", "0s", "--chunk", "893600B"]
    tie = "ecmp" if fabric.startswith("fat-tree") else "first"
    path = str(SHARED / "topoopt" / f"topoopt_{name}16_100g_dag.csv")
    assert main(["train", "--workload", path, "--topology", fabric, *links, "--tie", tie, "--discipline", discipline,
                 "--quiet"]) == 0
    (line, *_) = [line for line in capsys.readouterr().out.splitlines() if "iteration" in line and "=" in line]
    return float(line.split("iteration ")[1].split(" ms")[0])


@pytest.mark.skipif(not SHARED.exists(), reason="the released graphs are not here")
@pytest.mark.parametrize(("name", "fabric", "ms"), [
    ("dlrm", "switch:16", 61.155), ("dlrm", "fat-tree:4", 61.244), ("dlrm", "circulant:16x1x5", 25.111),
    ("candle", "fat-tree:4", 544.487)])
def test_released_graphs_within_5_percent(
    name: str, fabric: str, ms: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against packet-level values; flows share links in turn, as those of TCP do."""
    assert iteration_ms(name, fabric, "round-robin-flow", capsys) == pytest.approx(ms, rel=0.05)


@pytest.mark.skipif(not SHARED.exists(), reason="the released graphs are not here")
def test_what_flows_share_is_all_that_is_open_of_candle_on_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    """Each round is a flow whose window is whole again, while those of long messages have shrunk: between both."""
    in_turn, whole = (iteration_ms("candle", "switch:16", one, capsys) for one in ("round-robin-flow", "fifo"))
    assert 0.93 * 512.880 < in_turn < 512.880 < whole < 1.08 * 512.880


def test_a_circulant_has_a_ring_for_each_jump(tmp_path: Path) -> None:
    """Groups of all servers; smaller ones go around in both directions."""
    both = (TASKS[0]._replace(following=()), Task(3, "allreduce", 0, 0, 0.0, 10**6, tuple(range(8))),
            Task(4, "allreduce", 0, 0, 0.0, 10**6, (0, 2, 4, 6)))
    job = open_flexflow(written(tmp_path, both, flat=False), circulant(8, (1, 3)))[0]
    found = [one.work.schedule.pattern.transfers() for one in job.operations if isinstance(one.work, Communicate)]
    assert [{(int(dst) - int(src)) % 8 for src, dst in zip(one.src, one.dst, strict=True)} for one in found] == [
        {1, 3, 5, 7}, {2, 6}]
    assert all(one.together for one in job.operations if isinstance(one.work, Communicate))
