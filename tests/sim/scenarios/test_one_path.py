"""A schedule and a job of one operation are one run; with the joins of an operation it takes the same time."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from collectives import Schedule, algorithms_for, build
from collectives.registry import COLLECTIVES
from sim import FaultPlan, LinkDown, Repair, simulate
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import SWING_PAPER, Model
from topologies import WeftError, from_spec, torus
from workloads.job import Job

MODELS = {
    "cut-through": Model(chunks=3),
    "store-and-forward": Model(chunks=3, forwarding="store-and-forward"),
    "swing-paper": SWING_PAPER,
}
FABRICS = ("torus:4x4", "switch:4")
"""Between them, every algorithm of the registry runs."""


def cases() -> list[tuple[str, str, str]]:
    return [(fabric, kind, name) for fabric in FABRICS for kind in COLLECTIVES for name in algorithms_for(kind)]


def schedule_of(fabric: str, kind: str, name: str) -> Schedule | None:
    try:
        return build(name, kind, from_spec(fabric), "48KiB")
    except WeftError:
        return None  # not on this fabric


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("fabric", "kind", "name"), cases())
def test_a_job_of_one_is_its_schedule(fabric: str, kind: str, name: str, model: Model) -> None:
    schedule = schedule_of(fabric, kind, name)
    if schedule is None:
        return
    job = Job(schedule.topology)
    job.collective("any name", schedule, priority=3)
    one, other = simulate(schedule, model=model), simulate(job, model=model)
    assert (one.time_ps, one.events, one.lower_bound_ps, one.estimate_ps, one.symmetry, one.wire_bytes) == (
        other.time_ps, other.events, other.lower_bound_ps, other.estimate_ps, other.symmetry, other.wire_bytes
    )
    for mine, theirs in zip(one.program, other.program, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.why() == other.why()
    assert run(lower(job, model, joins=True).program).makespan_ps == one.time_ps


def test_every_algorithm_is_among_the_cases() -> None:
    ready = {(kind, name) for fabric, kind, name in cases() if schedule_of(fabric, kind, name) is not None}
    assert ready == {(kind, name) for kind in COLLECTIVES for name in algorithms_for(kind)}


def test_spans_of_a_schedule_alone_end_with_it() -> None:
    """Which NPU has ended when is known from the joins, which a schedule alone has only when it is asked."""
    schedule = build("ring", "all-gather", torus((8,)), "64KiB")
    plan = FaultPlan(faults=(LinkDown(link="npu0->npu1", at="1us"), Repair(link="npu0->npu1", at="9us")))
    for result in (simulate(schedule), simulate(schedule, symmetry="off"), simulate(schedule, faults=plan)):
        spans = result.spans()
        assert max(span.end_ps for span in spans) == result.time_ps
        assert sorted(span.rank for span in spans) == result.ranks
        assert sum(result.exposed_ps(result.ranks[0]).values()) == result.time_ps
    assert len(result.ranks) == 8


def test_a_log_is_kept_where_it_is_asked_for_and_made_where_it_is_needed() -> None:
    job = Job(torus((4,)))
    gradients = build("ring", "all-reduce", job.topology, "64KiB")
    job.collective("gradients", gradients, after=[job.compute("forward", 10**6)])
    bare, kept = simulate(job), simulate(job, log=True)
    assert bare.outcome.log is None and kept.outcome.log is not None and kept.logged is kept.outcome
    assert bare.exposed_ps(0) == kept.exposed_ps(0)
    assert bare.why(by="operation").parts == kept.why(by="operation").parts
    assert set(bare.why(by="kind").parts) == {"forward", "all-reduce"}
    assert sum(bare.why(by="kind").parts.values()) == bare.time_ps
    with pytest.raises(WeftError, match="by"):
        bare.why(by="color")


def test_a_job_is_limited_and_pickled_like_a_schedule() -> None:
    job = Job(torus((4,)))
    first = job.collective("first", build("ring", "all-reduce", job.topology, "64KiB"))
    job.collective("second", build("ring", "all-gather", job.topology, "64KiB"), after=[first])
    with pytest.raises(WeftError):
        simulate(job, max_events=10)
    told = []
    result = simulate(job, progress=told.append)
    again = pickle.loads(pickle.dumps(result))
    assert again.row() == result.row() and again.time_ps == result.time_ps
    assert result.row()["operations"] == 2
    assert simulate(job, deliver="head").time_ps < result.time_ps
