"""An iteration as a job: what the engine makes of it is what is composed, where nothing shares a link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sim.simulation import simulate
from sim.study.group_times import fabric_times
from tests.workloads.passes.test_passes import SMALL, plan
from topologies import switch
from topologies.checks import WeftError
from workloads.job import Job
from workloads.passes.device import stack
from workloads.passes.iteration import Iteration, iterate
from workloads.passes.job import iteration_job
from workloads.passes.orders import ORDERS, slots_of
from workloads.passes.plan import Plan

ALONE: list[dict[str, Any]] = [
    {"tp": 4}, {"tp": 4, "sequence_parallel": True}, {"pp": 4, "microbatches": 8}, {"dp": 4, "zero": 1},
    {"pp": 2, "vp": 2, "schedule": "interleaved", "microbatches": 4}, {"dp": 4, "zero": 3}, {"dp": 4, "zero": 2},
    {"pp": 4, "microbatches": 8, "schedule": "zb-h1", "send_overlap": True}, {"cp": 4, "data_overlap": False},
    {"cp": 4, "data_overlap": False, "context": "ulysses"},
    {"pp": 4, "microbatches": 8, "schedule": "gpipe", "recompute": "full"}, {"dp": 4, "zero": 3, "stack": stack("fms")},
]


def time_ps(job: Job) -> int:
    return simulate(job, chunks=1).time_ps


def both(one: Plan) -> tuple[Iteration, int]:
    """Composed, and by the engine, in ps."""
    fabric = switch(one.n_ranks, bandwidth="100GB/s")
    times = fabric_times(fabric, one.groups, "ring", time_ps)
    job = iteration_job(one, fabric, times, "ring")
    return iterate(one, times), time_ps(job)


@pytest.mark.table
@pytest.mark.parametrize("changes", ALONE)
def test_composed_and_inlined_are_equal_to_the_picosecond(changes: dict[str, Any]) -> None:
    composed, inlined = both(plan(**changes))
    assert composed.beside == []
    assert composed.time_ps == inlined


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Layers that do not divide, one microbatch or few, odd groups, mixtures, tied or not, all orders and stacks."""
    schedule = draw(st.sampled_from(sorted(ORDERS)))
    experts = draw(st.sampled_from([{}, {}, {"experts": 6, "active": 2, "expert_width": 4096, "gated": True}]))
    model = replace(SMALL, layers=draw(st.sampled_from([5, 8, 11])), tied=draw(st.booleans()),
                    vocabulary=draw(st.sampled_from([1000, 32000])), **experts)
    changes = {
        "tp": [1, 2], "pp": [1, 2, 3, 4], "dp": [1, 2, 3, 4], "cp": [1, 1, 2], "ep": [1, 2, 3] if experts else [1],
        "replicas": [1, 1, 2], "zero": [0, 1, 2, 3], "microbatches": [1, 2, 3, 4, 7], "send_overlap": [False, True],
        "data_overlap": [False, True], "sequence_parallel": [False, True], "tensor_overlap": ["none", "pipelined"],
        "recompute": ["none", "full", "selective"], "vp": [ORDERS[schedule].chunks or 3],
        "stack": [stack("megatron"), stack("torchtitan"), stack("fms"), stack("llm-foundry")],
    }
    chosen = {name: draw(st.sampled_from(some)) for name, some in changes.items()}
    assume(chosen["tp"] * chosen["pp"] * chosen["dp"] * chosen["cp"] <= 16)
    try:
        one = plan(model, schedule=schedule, **chosen)
        slots_of(schedule, one.pp, one.vp, one.microbatches)
    except WeftError:
        assume(False)
        raise
    return one


@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
@given(one=plans())
def test_composed_is_inlined_or_what_a_rank_has_at_once_is_named(one: Plan) -> None:
    """On ports of its own, what shares them takes longer, never less; two passes may end one after the other."""
    composed, inlined = both(one)
    assert inlined >= composed.time_ps or ("pass", "pass") in composed.beside
    assert inlined == composed.time_ps or composed.beside


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("pp", [2, 4])
def test_no_rank_is_sent_what_it_has_not_begun(zero: int, pp: int) -> None:
    """The last stage is there first: gradients of tied embeddings wait for the first, whose own are on the links."""
    composed, inlined = both(plan(replace(SMALL, tied=True), pp=pp, dp=2, zero=zero))
    assert composed.parts[0]["ends all-reduce"]
    assert composed.time_ps == inlined


def test_what_is_sent_beside_gathered_weights_is_named() -> None:
    composed, inlined = both(plan(pp=2, dp=2, zero=3, microbatches=4, send_overlap=True))
    assert ("dp all-gather", "pp send") in composed.beside
    assert 1.001 * composed.time_ps < inlined < 1.005 * composed.time_ps


def test_collectives_that_meet_take_longer() -> None:
    """Keys and values of context parallelism beside gradients on the same links."""
    composed, inlined = both(plan(cp=4))
    assert composed.beside == [("cp send", "dp gradients")]
    assert 1.05 * composed.time_ps < inlined < 1.15 * composed.time_ps


def test_passes_beside_each_other_overlap_by_themselves() -> None:
    composed, inlined = both(plan(pp=4, vp=2, schedule="dualpipe", microbatches=16))
    assert inlined == pytest.approx(composed.time_ps, rel=1e-3)


def test_a_plan_needs_as_many_npus() -> None:
    one, fabric = plan(tp=4), switch(8)
    with pytest.raises(WeftError, match="has 4 ranks: name as many NPUs"):
        iteration_job(one, fabric, lambda kind, size_bytes, group: 1, "ring")
