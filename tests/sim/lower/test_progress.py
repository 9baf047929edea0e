"""What ranks wait for beyond a schedule's dependencies, and what is not simulated with it."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.lower.job import lower
from sim.program.model import SWING_SST, Model
from topologies import from_spec, torus

SHAPE = torus((4, 4))


def parents(algorithm: str, model: Model) -> list[int]:
    """How many tasks each task waits for, whole or pushed."""
    program = lower(build(algorithm, "all-reduce", SHAPE, "1MiB"), model, "off").program
    return sorted(set((program.task_waits + program.pushed_waits).tolist()))


@pytest.mark.parametrize(
    ("algorithm", "progress", "counts"),
    [
        ("swing", "free", [0, 2]), ("swing", "all", [0, 8]), ("swing", "authors", [0, 8]),
        ("recursive-doubling", "authors", [0, 2]), ("bucket", "free", [0, 2]), ("bucket", "all", [0, 8]),
    ],
)
def test_a_step_waits_for_all_ports(algorithm: str, progress: str, counts: list[int]) -> None:
    """A send and a receive of its own port, or of all four."""
    assert parents(algorithm, Model(chunks=1, rank_progress=progress)) == counts


def test_only_phases_of_bucket_begin_together() -> None:
    """With a NIC and the authors' progress: first steps of phases wait for all ports, the others for their own."""
    assert parents("bucket", SWING_SST) == [0, 2, 8]


def test_own_sends_end_when_they_are_pushed() -> None:
    """One half of what a step waits for is sent by its own rank."""
    program = lower(build("ring", "all-reduce", SHAPE, "1MiB"), SWING_SST, "off").program
    assert program.pushed_child.size == program.whole_child.size > 0
    np.testing.assert_array_equal(np.unique(program.pushed_waits), [0, 1])


@pytest.mark.table
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize("algorithm", ["totient-rings", "ring", "swing", "recursive-doubling"])
@pytest.mark.parametrize("spec", ["ring:2", "ring:4", "torus:4x4"])
def test_the_step_of_a_representative_waits_as_often_as_those_it_stands_for(
    spec: str, algorithm: str, symmetry: str
) -> None:
    """Its own send and that of another rank of its orbit are two things to wait for; certified."""
    schedule = build(algorithm, "all-reduce", from_spec(spec), "1KiB")
    simulate(schedule, chunks=1, rank_progress="all", symmetry=symmetry, check=True)
    assert lower(schedule, Model(chunks=1, rank_progress="all"), symmetry).waits() == lower(
        schedule, Model(chunks=1, rank_progress="all"), "off").waits()


def test_ports_that_wait_for_each_other_do_not_drift_apart() -> None:
    """Swing on unequal extents takes as long with few chunks as with many; ports alone collide, by how they are cut."""
    schedule = build("swing", "all-reduce", torus((16, 8, 4)), "16MiB")
    free, together = (
        [simulate(schedule, chunks=chunks, rank_progress=progress).time_s for chunks in (2, 16, 64)]
        for progress in ("free", "all")
    )
    assert max(together) / min(together) < 1.01
    assert max(free) / min(free) > 1.3
