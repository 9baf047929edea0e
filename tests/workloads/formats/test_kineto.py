"""Kineto profiles of PyTorch: what order they tell, and what takes their times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sim import simulate
from sim.cli import main
from sim.program.model import Model
from topologies import WeftError, ring
from workloads.formats.chakra_job import open_profiles
from workloads.formats.kineto import read_profiles
from workloads.job import Communicate

ONE = Model(chunks=1)
ELEMENTS = 2**18
"""Of four bytes: 1 MiB."""

EVENTS = list[dict[str, Any]]


def kernel(number: int, launch: float, begin: float, end: float, stream: int = 7, **args: Any) -> EVENTS:
    """A kernel, and the call that launched it."""
    name = "ncclDevKernel_Generic" if args else "gemm"
    both = {"correlation": number, "External id": args.pop("id", number)}
    return [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": args.pop("thread", 1), "ts": launch,
         "dur": 1, "args": both},
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": end - begin,
         "args": {**both, "stream": stream, **args}},
    ]


def said(name: str, turn: int = 1, elements: int = ELEMENTS, **more: Any) -> dict[str, Any]:
    """What `record_param_comms` says of a collective of all."""
    return {"Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "Group size": 2,
            "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": turn, **more}


def call(at: float, **args: Any) -> EVENTS:
    return [{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "tid": 1, "ts": at, "dur": 1, "args": args}]


def runtime(name: str, at: float, dur: float, number: int = -1) -> EVENTS:
    return [{"ph": "X", "cat": "cuda_runtime", "name": name, "tid": 1, "ts": at, "dur": dur,
             "args": {"correlation": number}}]


def document(rank: int, *events: EVENTS) -> dict[str, Any]:
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": "[0, 1]"}
    return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2,
                                                    "pg_config": [group]},
            "traceEvents": [one for some in events for one in some]}


def write(folder: Path, *ranks: Sequence[EVENTS]) -> str:
    for rank, events in enumerate(ranks):
        (folder / f"host_{rank}.pt.trace.json").write_text(json.dumps(document(rank, *events)), encoding="utf-8")
    return str(folder)


PROFILE = document(0, kernel(1, 0, 0, 100), kernel(2, 1, 102, 150, 20, **said("allreduce")),
                   call(2, **said("wait", elements=0)), kernel(3, 3, 300, 330))


def time_us(folder: Path, *ranks: Sequence[EVENTS]) -> float:
    """Of both ranks alike, where one is given."""
    name = write(folder, *(ranks if len(ranks) > 1 else ranks * 2))
    return simulate(open_profiles(name, ring(2), ())[0], model=ONE).time_ps / 1e6


def of_all_reduce(folder: Path, name: str = "allreduce") -> float:
    """What 1 MiB takes by itself."""
    return time_us(folder, [kernel(1, 0, 0, 9, 20, **said(name))])


FIRST, REDUCED = kernel(1, 0, 0, 100), kernel(2, 1, 102, 150, 20, **said("allreduce"))


def test_a_collective_waits_for_what_was_launched_before_it(tmp_path: Path) -> None:
    alone = of_all_reduce(tmp_path)
    assert 10 < alone < 100
    assert time_us(tmp_path, [FIRST, REDUCED]) == pytest.approx(100 + alone, abs=0.01)


def test_what_follows_a_wait_begins_behind_the_collective_and_other_work_does_not(tmp_path: Path) -> None:
    alone, late = of_all_reduce(tmp_path), kernel(3, 3, 300, 330)
    waited = [FIRST, REDUCED, call(2, **said("wait", elements=0)), late]
    assert time_us(tmp_path, waited) == pytest.approx(100 + alone + 30, abs=0.01)
    assert time_us(tmp_path, [FIRST, REDUCED, kernel(3, 3, 101, 301)]) == pytest.approx(300, abs=1.1)
    older = [{**one, "args": {key: value for key, value in one["args"].items() if key != "Seq"}}
             for some in waited for one in some]
    assert time_us(tmp_path, [older]) == pytest.approx(100 + alone + 30, abs=0.01)


def test_work_that_was_seen_to_wait_waits(tmp_path: Path) -> None:
    """Without a wait that is recorded, as in DDP: launched on an idle stream, it begins as the collective ends."""
    alone = of_all_reduce(tmp_path)
    assert time_us(tmp_path, [FIRST, REDUCED, kernel(3, 3, 151, 181)]) == pytest.approx(100 + alone + 30, abs=0.01)
    assert time_us(tmp_path, [FIRST, REDUCED, kernel(3, 140, 149, 179)]) == pytest.approx(140 + 30, abs=0.01)
    assert time_us(tmp_path, [FIRST, REDUCED, kernel(3, 150.5, 152, 182)]) == pytest.approx(150.5 + 30, abs=0.01)


def test_a_wait_for_nobody_knows_what_is_one_for_what_was_called_before(tmp_path: Path) -> None:
    """As DDP waits for its buckets; where an event was recorded just before, the wait is of that."""
    alone, late = of_all_reduce(tmp_path), kernel(3, 300, 305, 335)
    waits = runtime("cudaStreamWaitEvent", 280, 1, 40)
    fast = time_us(tmp_path, [FIRST, REDUCED, waits, late])
    assert fast == pytest.approx(300 + 30, abs=0.01) and 100 + alone < 300
    slow = [kernel(1, 0, 0, 100), kernel(2, 1, 102, 150, 20, **said("allreduce", elements=2**24)), waits, late]
    ends = time_us(tmp_path, slow)
    paired = [*slow[:2], runtime("cudaEventRecord", 279, 1, 39), *slow[2:]]
    assert time_us(tmp_path, paired) == pytest.approx(ends - 30, abs=0.01) and ends > 1000


def test_the_host_takes_its_time_and_waits_for_the_gpu(tmp_path: Path) -> None:
    alone = of_all_reduce(tmp_path)
    assert time_us(tmp_path, [FIRST, kernel(2, 400, 405, 435)]) == pytest.approx(430, abs=0.01)
    held = [FIRST, REDUCED, runtime("cudaDeviceSynchronize", 10, 142), kernel(3, 160, 165, 195)]
    assert time_us(tmp_path, held) == pytest.approx(100 + alone + 8 + 30, abs=0.01)
    meanwhile = [FIRST, runtime("cudaDeviceSynchronize", 1, 300), kernel(3, 160, 165, 195)]
    assert time_us(tmp_path, meanwhile) == pytest.approx(160 + 30, abs=0.01)  # launches: it was another thread


def test_streams_run_at_once_and_wait_for_events_of_each_other(tmp_path: Path) -> None:
    other = kernel(2, 1, 2, 82, 8)
    assert time_us(tmp_path, [FIRST, other]) == pytest.approx(100, abs=0.01)
    sync = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "tid": 8, "ts": 1.5, "dur": 0, "args": {
        "stream": 8, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 50, "correlation": 51}}
    waits = [FIRST, runtime("cudaEventRecord", 0.5, 0, 50), runtime("cudaStreamWaitEvent", 0.7, 0, 51), [sync], other]
    assert time_us(tmp_path, waits) == pytest.approx(180, abs=0.01)


def test_work_that_follows_closely_is_one_computation(tmp_path: Path) -> None:
    many = [kernel(number, number, 10 * number, 10 * number + 9) for number in range(1, 40)]
    traces, _ = read_profiles(write(tmp_path, many, many), 2)
    assert len(traces[0].nodes) == 3 and traces[0].nodes[-1].duration_us == 389


def test_messages_of_a_group_are_those_that_were_asked_for(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        names = (("send", "Dst Rank"), ("recv", "Src Rank"))
        asked = [call(1 + at, **said(name, elements=1000, **{"External id": 90 + at, key: 1 - rank}))
                 for at, (name, key) in enumerate(names)]
        ranks.append([kernel(1, 0, 0, 50), *asked, kernel(2, 4, 52, 60, 20, **said("coalesced", 2, 0))])
    job, _ = open_profiles(write(tmp_path, *ranks), ring(2), ())
    sends = [one for one in job.operations if one.kind == "send"]
    assert [(one.work.src, one.work.dst, one.work.size_bytes) for one in sends] == [((0,), (1,), 4000),
                                                                                    ((1,), (0,), 4000)]


@pytest.mark.parametrize(("name", "kind", "whole"), [
    ("_allgather_base", "all-gather", 2), ("_reduce_scatter_base", "reduce-scatter", 1), ("broadcast", "broadcast", 1),
    ("all_to_allv", "all-to-all", 1), ("allgather_into_tensor_coalesced", "all-gather", 2),
])
def test_names_and_sizes(name: str, kind: str, whole: int, tmp_path: Path) -> None:
    both = [kernel(1, 0, 0, 9, 20, **said(name))]
    job, notes = open_profiles(write(tmp_path, both, both), ring(2), ())
    found = [(one.kind, one.work.schedule.size_bytes) for one in job.operations if isinstance(one.work, Communicate)]
    assert found == [(kind, whole * 4 * ELEMENTS)] and notes == []


def test_what_not_all_ranks_have_is_left_out_and_unequal_parts_are_told(tmp_path: Path) -> None:
    early = kernel(1, 0, 0, 9, 20, **said("allreduce", 6))
    both = [kernel(2, 20, 20, 29, 20, **said("all_to_allv", 7, 100)),
            kernel(2, 20, 20, 29, 20, **said("all_to_allv", 7, 300))]
    with pytest.raises(WeftError, match="group '0': no collective is on all of its 2 ranks: rank 1 recorded 0"):
        open_profiles(write(tmp_path, [early], [kernel(1, 0, 0, 9)]), ring(2), ())
    _, notes = open_profiles(write(tmp_path, [early, both[0]], [both[1]]), ring(2), ())
    assert notes == ["1 collectives are left out that not all ranks of their group have recorded",
                     "1 all-to-alls of unequal parts are timed as equal ones of the same bytes"]


def test_older_kernels_are_told_by_the_call_they_are_linked_to(tmp_path: Path) -> None:
    one = [call(0, **said("allreduce", **{"External id": 5})), kernel(1, 0.5, 1, 9, 20, id=5)]
    one[1][1]["name"] = "ncclKernel_AllReduce_RING_LL_Sum_float"
    assert time_us(tmp_path, one) == pytest.approx(of_all_reduce(tmp_path), abs=0.01)


def test_the_command_takes_a_folder_and_a_prefix_and_compressed_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, [FIRST, REDUCED], [FIRST, REDUCED])
    plain = tmp_path / "host_1.pt.trace.json"
    (tmp_path / "host_1.pt.trace.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    for name in (folder, f"{folder}/host_"):
        assert main(["train", "--topology", "ring:2", "--workload", name]) == 0
        assert "of Kineto profiles" in capsys.readouterr().out
    assert main(["compare", "--topology", "ring:2", "--workload", folder, "--algorithms", "ring,direct"]) == 0
    assert main(["train", "--topology", "ring:2", "--workload", f"{folder}/host_0.pt.trace.json"]) == 2
    assert "is the Kineto profile of one rank: give the folder" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "why"), [
    ({"traceEvents": []}, "has no kernels"), ({"traceEvents": 3}, "a list of events"),
    ({"distributedInfo": {"rank": 7}}, "is of rank 7: the network has 2 NPUs"),
    ({"distributedInfo": {"rank": 1}}, "is of rank 1, as"),
    ({"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": "[0, 9]"}]}}, "has rank 9 of 2 NPUs"),
    ({"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": "[0, 1]", "pg_size": 4}]}},
     "has 2 ranks, and a size of 4"),
    ({"distributedInfo": {"rank": 0, "world_size": 8}}, "is of a job of 8 ranks: the network has 2 NPUs"),
    ({"traceEvents": kernel(1, 0, 0, 9, 20, **said("allreduce", elements=-1))}, "In msg nelems of 'allreduce' is -1"),
    ({"traceEvents": kernel(1, 0, 0, 9, 20, **said("frobnicate"))}, "operation 'frobnicate' is not known"),
    ({"traceEvents": kernel(1, 0, 0, 9, 20, **said("send"))}, "or names no peer"),
    ({"traceEvents": kernel(1, 0, 0, 9, 20, **said("coalesced"))}, "no record_param_comms says what"),
    ({"traceEvents": kernel(1, 0, 9, 0)}, "event 'gemm' has no time"),
])
def test_what_is_wrong_is_one_line(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    folder = write(tmp_path, [FIRST, REDUCED], [FIRST, REDUCED])
    (tmp_path / "host_0.pt.trace.json").write_text(json.dumps(document(0, FIRST) | change))
    with pytest.raises(WeftError, match=why) as wrong:
        open_profiles(folder, ring(2), ())
    assert "\n" not in str(wrong.value)
    (tmp_path / "host_0.pt.trace.json").unlink()
    with pytest.raises(WeftError, match="no profile of rank 0"):
        open_profiles(folder, ring(2), ())
