"""An iteration as a job: what the engine makes of it is what is composed, where nothing shares a link."""

from __future__ import annotations

from typing import Any

import pytest

from sim.simulation import simulate
from sim.study.group_times import fabric_times
from tests.workloads.passes.test_passes import plan
from topologies import switch
from topologies.checks import WeftError
from workloads.job import Job
from workloads.passes.device import stack
from workloads.passes.iteration import iterate
from workloads.passes.job import iteration_job
from workloads.passes.plan import Plan

ALONE: list[dict[str, Any]] = [
    {"tp": 4}, {"tp": 4, "sequence_parallel": True}, {"pp": 4, "microbatches": 8}, {"dp": 4, "zero": 1},
    {"pp": 2, "vp": 2, "schedule": "interleaved", "microbatches": 4}, {"dp": 4, "zero": 3}, {"dp": 4, "zero": 2},
    {"pp": 4, "microbatches": 8, "schedule": "zb-h1", "send_overlap": True}, {"cp": 4, "data_overlap": False},
    {"pp": 4, "microbatches": 8, "schedule": "gpipe", "recompute": "full"}, {"dp": 4, "zero": 3, "stack": stack("fms")},
]


def time_ps(job: Job) -> int:
    return simulate(job, chunks=1).time_ps


def both(one: Plan) -> tuple[int, int]:
    """Composed, and by the engine, in ps."""
    fabric = switch(one.n_ranks, bandwidth="100GB/s")
    times = fabric_times(fabric, one.groups, "ring", time_ps)
    job = iteration_job(one, fabric, times, "ring")
    return iterate(one, times).time_ps, time_ps(job)


@pytest.mark.table
@pytest.mark.parametrize("changes", ALONE)
def test_composed_and_inlined_are_equal_to_the_picosecond(changes: dict[str, Any]) -> None:
    composed, inlined = both(plan(**changes))
    assert composed == inlined


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_shards_of_a_pipeline_are_inlined_as_composed(zero: int) -> None:
    """But for single ps of rounded works: a microbatch is nowhere beside another one."""
    composed, inlined = both(plan(pp=4, dp=2, zero=zero))
    assert inlined == pytest.approx(composed, rel=1e-8)


def test_collectives_that_meet_take_longer() -> None:
    """Keys and values of context parallelism beside gradients on the same links."""
    composed, inlined = both(plan(cp=4))
    assert 1.05 * composed < inlined < 1.15 * composed


def test_passes_beside_each_other_overlap_by_themselves() -> None:
    composed, inlined = both(plan(pp=4, vp=2, schedule="dualpipe", microbatches=16))
    assert inlined == pytest.approx(composed, rel=1e-3)


def test_a_plan_needs_as_many_npus() -> None:
    one, fabric = plan(tp=4), switch(8)
    with pytest.raises(WeftError, match="has 4 ranks: name as many NPUs"):
        iteration_job(one, fabric, lambda kind, size_bytes, group: 1, "ring")
