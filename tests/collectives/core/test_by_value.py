"""Schedules go to other processes: pickled and copied, closures and all, without being checked again."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collectives import Pattern, Schedule, algorithms_for, build
from topologies import Topology, WeftError, from_spec


def assert_same(one: Schedule, other: Schedule) -> None:
    assert (one.name, one.kind.name, one.size_bytes, one.proof) == (
        other.name, other.kind.name, other.size_bytes, other.proof
    )
    for left, right in zip(one.pattern.transfers(), other.pattern.transfers(), strict=True):
        assert np.array_equal(left, right) if left is not None else right is None


@pytest.mark.parametrize(
    ("spec", "kind", "least"),
    [("torus:4x4", "all-reduce", 15), ("switch:8", "all-gather", 8), ("RI(4)_SW(2)", "all-to-all", 3),
     ("fat-tree:4", "broadcast", 2), ("ring:5", "all-reduce", 10)],
)
def test_every_algorithm_comes_back_with_its_transfers(spec: str, kind: str, least: int) -> None:
    topology = from_spec(spec)
    schedules = list(those_that_run(topology, kind))
    assert len(schedules) >= least
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pattern, "_to_prove", lambda self, *others: pytest.fail("checked again"))
        for schedule in schedules:
            back = pickle.loads(pickle.dumps(schedule))
            assert_same(schedule, back)
            assert back.topology is back.pattern.topology


def those_that_run(topology: Topology, kind: str) -> Iterator[Schedule]:
    for name in algorithms_for(kind):
        try:
            yield build(name, kind, topology, "64KiB")
        except WeftError:  # not on this fabric
            continue


def test_a_copy_is_the_same() -> None:
    schedule = build("pipelined", "all-reduce", from_spec("torus:3x3"), "64KiB")
    assert_same(schedule, copy.deepcopy(schedule))


def test_a_topology_that_is_shared_stays_one() -> None:
    topology = from_spec("torus:4x4")
    schedules = [build(name, "all-reduce", topology, "64KiB") for name in ("swing", "ring")]
    there, first, second = pickle.loads(pickle.dumps((topology, *schedules)))
    assert there is first.topology is second.topology


def test_another_process_reads_it(tmp_path: Path) -> None:
    schedule = build("bucket", "all-reduce", from_spec("torus:4x4"), "64KiB")
    (tmp_path / "schedule").write_bytes(pickle.dumps(schedule))
    code = "import pickle, sys; print(len(pickle.load(open(sys.argv[1], 'rb')).pattern.transfers().src))"
    command = [sys.executable, "-c", code, str(tmp_path / "schedule")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) == schedule.pattern.transfers().src.size
