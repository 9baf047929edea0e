"""Rows of the table of what is absent that no other module tests: a file without the value is read as one with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectives.formats import msccl_program
from collectives.formats.msccl_program import parse_msccl
from docs.producers import producers
from sim.measured.read import read_measurements
from tests.collectives.formats.test_msccl_order import long_program
from tests.workloads.formats import test_flight_recorder as recorder
from tests.workloads.formats import test_kineto as kineto
from topologies import ring
from topologies.text.schema import Absent
from workloads.formats.astra_memory import read_remote_memory
from workloads.formats.chakra_job import open_dumps, open_profiles

Case = tuple[Any, Any]
TWO = ring(2)


def both(row: Absent, folder: Path) -> Case:
    """What a file without the value is read as, and one with it."""
    return CASES[row.where, row.name](row, folder)


def _msccl(row: Absent, folder: Path) -> Case:
    explicit = {"outofplace": "0"}.get(row.name, row.value)
    algos = [parse_msccl(long_program(2, **{"inplace": "1", **more})) for more in ({}, {row.name: explicit})]
    spans = [[msccl_program.not_run(one, "msccl", size) == "" for size in (0, 4, 2**27 - 4, 2**27, 2**28)]
             for one in algos]
    return (algos[0].aliased, spans[0]), (algos[1].aliased, spans[1])


def _memory(row: Absent, folder: Path) -> Case:
    own, path = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-bw": 50}, folder / "memory.json"
    found = []
    for more in ({}, {row.name: json.loads(row.value)}):
        path.write_text(json.dumps(own | more))
        found.append(read_remote_memory(path))
    return found[0], found[1]


def _operations(job: Any) -> list[Any]:
    return [(one.name, one.npus, str(one.work), one.after) for one in job.operations]


def _recorded(change: Callable[[dict[str, Any]], None]) -> Callable[[Absent, Path], Case]:
    def read(row: Absent, folder: Path) -> Case:
        found = []
        for number in range(2):
            calls = [recorder.entry("all_reduce", 1, 0), recorder.entry("broadcast", 2, 9)]
            dump = recorder.dump(calls, **{"0": (0, 1)})
            if number == 0:
                change(dump)
            found.append(_operations(open_dumps(recorder.write(folder, [dump] * 2), TWO, ())[0]))
        return found[0], found[1]
    return read


def _drop(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(dump: dict[str, Any]) -> None:
        for one in dump["entries"]:
            for key in keys:
                del one[key]
    return change


def _profiled(row: Absent, folder: Path) -> Case:
    found = []
    for without in (True, False):
        for rank in range(2):
            one = kineto.document(rank, *[kineto.kernel(number, number, 9 * number, 9 * number + 5, 20,
                                                        **kineto.said("allreduce", number)) for number in (1, 2)])
            for event in one["traceEvents"] if without else ():
                event["args"].pop(row.name, None)
            if without and row.where == "distributedInfo":
                del one["distributedInfo"]["rank"]
            (folder / f"host_{rank}.pt.trace.json").write_text(json.dumps(one))
        found.append(_operations(open_profiles(str(folder), TWO, ())[0]))
    return found[0], found[1]


def _table(row: Absent, folder: Path) -> Case:
    found, path = [], folder / "table.txt"
    for head in ("size time busbw", "size(B) time(us) busbw(GB/s)"):
        path.write_text(f"{head}\n1024 10 0.5\n2048 12 0.9\n")
        found.append(read_measurements(path, n_ranks=4, collective="all-reduce").points)
    return found[0], found[1]


CASES: dict[tuple[str, str], Callable[[Absent, Path], Case]] = {
    ("algo", "minBytes"): _msccl, ("algo", "maxBytes"): _msccl, ("algo", "outofplace"): _msccl,
    ("header", "units"): _table, ("memory", "remote-mem-latency"): _memory,
    ("record_param_comms", "Seq"): _profiled, ("record_param_comms", "Process Group Ranks"): _profiled,
    ("distributedInfo", "rank"): _profiled,
    ("pg_config", "ranks"): _recorded(lambda dump: dump["pg_config"]["0"].pop("ranks")),
    ("entry", "process_group"): _recorded(_drop("process_group")), ("entry", "is_p2p"): _recorded(_drop("is_p2p")),
}
ROWS = [row for one in producers() for row in one.absent if (row.where, row.name) in CASES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.where} {row.name}")
def test_absent_equals_explicit(row: Absent, tmp_path: Path) -> None:
    without, explicit = both(row, tmp_path)
    assert without == explicit


def test_every_row_has_a_test() -> None:
    """Here, or in the module of its format, by a test of that name that runs over the rows."""
    assert len(ROWS) == len(CASES)
