"""Splits of a budget for an iteration of a language model: times, slopes, bounds, and the answer against a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.analytic.constraints import Feasible, budget
from sim.optimizer.cuts import floor_of
from sim.optimizer.design import design_simulated
from sim.optimizer.programs import Composed, plan_objective
from sim.simulation import simulate
from sim.study.group_times import fabric_times
from tests.workloads.passes.test_passes import plan
from topologies import from_spec
from workloads.passes.iteration import iterate
from workloads.passes.plan import Plan

NETWORK, LINKS = "RI(4)_SW(3)", (2, 1)
"""And links of an NPU into each dimension."""

PLANS: list[dict[str, Any]] = [
    {"tp": 4, "dp": 3, "zero": 1, "sequence_parallel": True, "microbatches": 3}, {"tp": 2, "dp": 6, "zero": 3},
    {"tp": 2, "dp": 2, "pp": 3, "microbatches": 5, "send_overlap": True}, {"cp": 4, "dp": 3, "data_overlap": False},
    {"dp": 4, "pp": 3, "vp": 2, "schedule": "interleaved", "microbatches": 4, "zero": 2},
]


def objective(one: Plan) -> Composed:
    return plan_objective(from_spec(NETWORK), one, "ring", most_GBps=300.0)


def composed_ns(one: Plan, bandwidth_GBps: tuple[float, ...]) -> float:
    """What `weft train` has on links of these bandwidths."""
    rates = [f"{share / links:.15g}GB/s" for share, links in zip(bandwidth_GBps, LINKS, strict=True)]
    fabric = from_spec(NETWORK, rates)
    times = fabric_times(fabric, one.groups, "ring", lambda job: simulate(job, chunks=1).time_ps)
    return iterate(one, times).time_ps / 1e3


@pytest.mark.parametrize("changes", PLANS)
def test_a_split_takes_what_train_has_there(changes: dict[str, Any]) -> None:
    one = plan(**changes)
    of = objective(one)
    for split in ((100.0, 200.0), (37.0, 11.5), (299.0, 1.0)):
        assert of.evaluate(np.array(split)).time_ns == pytest.approx(composed_ns(one, split), rel=1e-9)
        assert of.time_ns(np.array(split)) == of.evaluate(np.array(split)).time_ns


@pytest.mark.parametrize("changes", PLANS)
def test_slopes_are_differences_and_the_bound_holds(changes: dict[str, Any]) -> None:
    of = objective(plan(**changes))
    floor = floor_of(of)
    for split in np.exp(np.random.default_rng(7).uniform(np.log(2), np.log(150), (8, 2))):
        found = of.evaluate(split)
        assert floor.time_ns(split) <= found.time_ns
        for dim, unit in enumerate(np.eye(2)):
            less, more = (of.time_ns(split * (1 + sign * 1e-3 * unit)) for sign in (-1, 1))
            sides = [(found.time_ns - less) / (split[dim] * 1e-3), (more - found.time_ns) / (split[dim] * 1e-3)]
            picosecond = 1e-3 / (split[dim] * 1e-3)  # of the times, in a difference: the norm's few bytes take no more
            within = 0.01 * max(map(abs, sides)) + 1e-3 + 1.001 * picosecond
            assert min(sides) - within <= found.slope_ns[dim] <= max(sides) + within


@pytest.mark.parametrize("changes", PLANS)
def test_the_answer_is_no_worse_than_a_grid(changes: dict[str, Any]) -> None:
    of = objective(plan(**changes))
    found = design_simulated(of, Feasible([budget(300.0, 2, spent=True)], 2), max_evaluations=80)
    least = min(of.time_ns(np.array([first, 300.0 - first])) for first in np.geomspace(1, 299, 60))
    assert found.lower_bound_ns <= least
    assert found.time_ns <= 1.001 * least
