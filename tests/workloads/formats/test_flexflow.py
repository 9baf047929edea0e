"""Task graphs of FlexFlow: what is read becomes the job it says, as a flat buffer and as CSV."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from sim import simulate
from sim.cli import main
from tests.places import SHARED
from topologies import Topology, WeftError, switch
from workloads.formats.flexflow import ENDING, HEADER, Task, open_flexflow

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
    assert [one.name for one in job.operations] == [
        "forward 0", "message 1", "backward 2", "allreduce 3", "backward 5"]  # of one server: nothing
    result = simulate(job, chunks=1)
    ends = {job.operations[span.operation].name: span.end_ps for span in result.spans()}
    # 10 MB by two links of 1 us after 1 ms; the other backward task of server 1 was first on it.
    assert [ends["backward 5"], ends["backward 2"]] == pytest.approx([4 * MS, 6 * MS], abs=9) and not notes
    # Four rounds of 1 MB, each with its acknowledgment over two links.
    assert ends["allreduce 3"] == pytest.approx(6 * MS + 4 * (0.1 * MS + 4 * 10**6), rel=1e-3)


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


@pytest.mark.skipif(not SHARED.exists(), reason="the released graphs are not here")
@pytest.mark.parametrize(("name", "ms"), [("dlrm", 61.155), ("candle", 512.880)])
def test_released_graphs_within_5_percent(name: str, ms: float, capsys: pytest.CaptureFixture[str]) -> None:
    """On an ideal switch of 100 Gb/s, against the released packet-level values; flows share links as TCP's do."""
    links = ["--link-bandwidth", "100Gb/s", "--link-latency", "1us", "--hop-latency", "0s"]
    shares = ["--discipline", "round-robin-flow", "--chunks", "16"]
    path = str(SHARED / "topoopt" / f"topoopt_{name}16_100g_dag.csv")
    assert main(["train", "--workload", path, "--topology", "switch:16", *links, *shares, "--quiet"]) == 0
    (line, *_) = [line for line in capsys.readouterr().out.splitlines() if "iteration" in line and "=" in line]
    assert float(line.split("iteration ")[1].split(" ms")[0]) == pytest.approx(ms, rel=0.05)
