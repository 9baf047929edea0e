"""Dumps of PyTorch's flight recorder: collectives and messages when the host called them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sim import simulate
from sim.cli import main
from sim.program.model import Model
from topologies import WeftError, ring
from workloads.formats.chakra_job import chakra_job, open_dumps
from workloads.formats.flight_recorder import read_dumps
from workloads.job import Communicate

ONE = Model(chunks=1)


def entry(name: str, turn: int, at_us: float, shape: Sequence[int] = (256,), **more: Any) -> dict[str, Any]:
    """An operation on tensors of that shape."""
    return {
        "record_id": turn, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": turn,
        "p2p_seq_id": 0, "op_id": turn, "profiling_name": f"nccl:{name}", "time_created_ns": int(at_us * 1000) + 10**18,
        "input_sizes": [list(shape)], "input_dtypes": ["Float"], "output_sizes": [list(shape)],
        "output_dtypes": ["Float"], "state": "completed", "retired": True, "is_p2p": False, **more,
    }


def dump(entries: Sequence[dict[str, Any]], **groups: Sequence[int]) -> dict[str, Any]:
    config = {name: {"name": name, "desc": "x", "ranks": str(list(ranks))} for name, ranks in groups.items()}
    return {"version": "2.5", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def write(folder: Path, dumps: Sequence[dict[str, Any]], ending: str = ".json") -> str:
    for rank, one in enumerate(dumps):
        (folder / f"nccl_trace_rank_{rank}{ending}").write_text(json.dumps(one), encoding="utf-8")
    return str(folder / "nccl_trace_rank_")


def kinds(folder: Path, dumps: Sequence[dict[str, Any]]) -> list[tuple[str, tuple[int, ...] | None, int]]:
    """Collectives of the job, their NPUs and sizes."""
    job, _ = open_dumps(write(folder, dumps), ring(len(dumps)), ())
    return [(one.kind, one.npus, one.work.schedule.size_bytes) for one in job.operations
            if isinstance(one.work, Communicate)]


@pytest.mark.parametrize("ending", ["", ".json"])
def test_calls_at_the_times_of_the_host(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two all-reduces of 1 KiB, the second called 500 us later."""
    both = [dump([entry("all_reduce", 1, 0), entry("all_reduce", 2, 500)], **{"0": (0, 1)})] * 2
    prefix = write(tmp_path, both, ending)
    job, notes = open_dumps(prefix, ring(2), ())
    assert 500_000_000 < simulate(job, model=ONE).time_ps < 510_000_000
    assert notes == ["of a flight recorder: computations are as far as the host's calls tell of them"]
    assert main(["train", "--topology", "ring:2", "--job", prefix]) == 0
    assert "8 operations of dumps of the flight recorder" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind", "bytes_in_all"),
    [("_all_gather_base", "all-gather", 2048), ("_reduce_scatter_base", "reduce-scatter", 1024),
     ("all_to_all", "all-to-all", 1024), ("broadcast", "broadcast", 1024), ("_broadcast_oop", "broadcast", 1024),
     ("all_gather_into_tensor_coalesced", "all-gather", 2048), ("all_reduce_barrier", "all-reduce", 1024),
     ("ALLREDUCE_coalesced", "all-reduce", 1024), ("reduce", "reduce", 1024)],
)
def test_names_of_operations(name: str, kind: str, bytes_in_all: int, tmp_path: Path) -> None:
    assert kinds(tmp_path, [dump([entry(name, 1, 0)])] * 2) == [(kind, (0, 1), bytes_in_all)]


def test_groups_and_messages(tmp_path: Path) -> None:
    """Pairs by their process group, and a message between ranks of one."""
    dumps = []
    for rank in range(4):
        pair = {"process_group": ["1" if rank < 2 else "2", "tp"]}
        way = f"send {rank % 2}->1" if not rank % 2 else f"recv {rank % 2}<-0"
        dumps.append(dump([
            entry("all_reduce", 1, 0, **pair), entry(way, 0, 5, is_p2p=True, **pair),
        ], **{"0": range(4), "1": (0, 1), "2": (2, 3)}))
    assert kinds(tmp_path, dumps) == [("all-reduce", (0, 1), 1024), ("all-reduce", (2, 3), 1024)]
    job, _ = open_dumps(write(tmp_path, dumps), ring(4), ())
    assert [one.name for one in job.operations if one.kind == "send"] == ["nccl:send 0->1"] * 2


def test_what_not_all_ranks_have_is_left_out(tmp_path: Path) -> None:
    """The buffers of ranks are rings: each has lost others."""
    dumps = [dump([entry("all_reduce", turn, turn) for turn in turns]) for turns in ((3, 4, 5), (4, 5, 6))]
    assert len(kinds(tmp_path, dumps)) == 2
    assert "2 collectives are left out" in read_dumps(write(tmp_path, dumps), 2)[1][1]


def test_pickles_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "x0").write_bytes(b"\x80\x02}q\x01(X\t\x00\x00\x00pg_configq\x02}u.")
    with pytest.raises(WeftError, match="is a pickle, which may run any program: write JSON"):
        read_dumps(tmp_path / "x", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profiling_name": "nccl:fly"}, "operation 'nccl:fly' is not known"),
        ({"profiling_name": "nccl:send 0->7", "is_p2p": True}, "names no peer of its group"),
        ({"input_sizes": [["x"]]}, "a list of shapes is expected"),
        ({"time_created_ns": "now"}, "time_created_ns of an entry is 'now'"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeftError) as wrong:
        read_dumps(write(tmp_path, [dump([entry("all_reduce", 1, 0) | change], **{"0": (0, 1)})] * 2), 2)
    assert message in str(wrong.value) and "\n" not in str(wrong.value)


def test_a_rank_that_recorded_nothing(tmp_path: Path) -> None:
    """All of them: nothing happens; one of them: its group has collectives that it lacks."""
    nothing = dump([], **{"0": (0, 1)})
    traces, _ = read_dumps(write(tmp_path, [nothing] * 2), 2)
    assert [len(trace.nodes) for trace in traces] == [1, 1]
    with pytest.raises(WeftError, match="on all of its 2 ranks: rank 1 recorded 0, others up to 1"):
        open_dumps(write(tmp_path, [dump([entry("all_reduce", 1, 0)], **{"0": (0, 1)}), nothing]), ring(2), ())


def test_traces_are_those_of_chakra(tmp_path: Path) -> None:
    traces, _ = read_dumps(write(tmp_path, [dump([entry("all_reduce", 1, 0)])] * 2), 2)
    assert len(chakra_job(traces, ring(2))[0].operations) == 5  # a node of groups and a call each, and the collective


def test_of_gloo_no_dump_tells_the_ranks_of_a_group(tmp_path: Path) -> None:
    """PyTorch 2.14 on CPUs writes one nameless group; of a scatter only the root records the input."""
    def call(turn: int, group: str, name: str, **more: Any) -> dict[str, Any]:
        named = {"process_group": (group, "undefined"), "profiling_name": f"gloo:{name}"}
        return entry(name, turn, turn, **named | more)

    dumps = []
    for rank in range(4):
        of = "1" if rank < 2 else "2"
        given = {"input_sizes": [[4, 256]]} if rank == 0 else {"input_sizes": [], "input_dtypes": []}
        dumps.append(dump([call(1, "0", "scatter", **given), call(2, of, "all_reduce")], **{"": (0, 1)}))
    assert sorted(kinds(tmp_path, dumps)) == [
        ("all-reduce", (0, 1), 1024), ("all-reduce", (2, 3), 1024), ("scatter", (0, 1, 2, 3), 4096)]
    _, notes = open_dumps(write(tmp_path, dumps), ring(4), ())
    assert notes[1:] == ["no dump tells the ranks of group '1', '2': those that recorded it"]
