"""Discrete knobs of the optimizer: what the choices are, which of them is found, and what is rejected."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from sim.analytic.constraints import Feasible, budget
from sim.analytic.libra import Placed
from sim.optimizer.choices import EXCLUDED, SOLVED, best_choice
from sim.optimizer.design import Design, design_simulated
from sim.optimizer.knobs import Asked, Knobs, dimension_algorithms, orders_of_collectives, parse_axis
from sim.optimizer.objective import Objective, Simulated
from sim.optimizer.programs import collective_objective, iteration_objective
from sim.program.model import Model
from topologies import WeftError, from_spec
from workloads.training import Training
from workloads.workload import Call, Layer, Phase, Workload

SPEC = "RI(4)_FC(4)_SW(4)"
SHAPE = (4, 4, 4)


def choices(**asked: object) -> list[Knobs]:
    values: dict[str, object] = {"algorithms": ("hierarchical",), "chunks": (2,)} | asked
    return Asked(**values).choices(SHAPE, (), "all-reduce")  # type: ignore[arg-type]  # its fields


def test_orders_of_one_collective_are_all_permutations() -> None:
    found = choices(orders="all", chunks=(1, 2))
    assert len(found) == 2 * math.factorial(3)
    assert {dict(one.options)["order"] for one in found} == {
        ",".join(map(str, order)) for order in permutations(range(3))
    }


def test_orders_of_a_workload_are_each_collectives_own() -> None:
    """A group of one dimension has no choice; an all-to-all sends the same in every order."""
    calls = Call("all-reduce", 1e6, "tp"), Call("all-reduce", 1e6, "dp"), Call("all-to-all", 1e6, "tp")
    workload = Workload("w", (Layer("l", Phase(0, calls[:1]), Phase(0, calls[2:]), Phase(0, calls[1:2])),))
    placed = Placed(workload, {"tp": (4, 2, 1), "dp": (1, 1, 4)})
    assert orders_of_collectives([placed]) == [[("tp all-reduce", (0, 1, 2)), ("tp all-reduce", (1, 0, 2))]]
    found = Asked(("hierarchical",), (1,), orders="all").choices(SHAPE, [placed], "")
    assert [dict(one.orders)["tp all-reduce"] for one in found] == [(0, 1, 2), (1, 0, 2)]


def test_algorithms_of_dimensions_that_all_groups_can_run() -> None:
    assert len(dimension_algorithms("all", [(4, 4)], ["all-reduce"])) == 9
    assert dimension_algorithms("all", [(6, 1)], ["all-reduce"]) == ["ring,", "direct,"]
    assert len(dimension_algorithms("all", [(4, 4)], ["all-to-all"])) == 4
    assert dimension_algorithms("ring,direct; direct,", [(4, 4)], ["all-reduce"]) == ["ring,direct", "direct,"]


def test_an_option_goes_to_the_algorithms_that_know_it() -> None:
    found = choices(algorithms=("in-network", "swing"), options=("trees=1;2",))
    assert found == [
        Knobs("in-network", 2, (("trees", 1),)), Knobs("in-network", 2, (("trees", 2),)), Knobs("swing", 2)
    ]
    assert parse_axis("service=fifo;smallest-first") == ("service", ["fifo", "smallest-first"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"options": ("trees=1",)}, "--option trees: none of the algorithms hierarchical takes it"),
        ({"options": ("trees",)}, "write NAME=VALUE;VALUE"),
        ({"algorithms": ("swing",), "orders": "all"}, "--orders is for hierarchical collectives, not for swing"),
        ({"algorithms": ("swing",), "dimension_algorithms": "all"}, "--dimension-algorithms is for hierarchical"),
        ({"orders": "all", "dimension_algorithms": "all", "chunks": (1, 2, 3, 4)}, "more than 512 choices"),
    ],
)
def test_what_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        choices(**asked)


def test_the_best_choice_is_that_of_looking_at_all() -> None:
    """Excluded ones are truly no better: their own optimum is not below the answer."""
    topology = from_spec("RI(4)_FC(2)", None, "100ns", "0ns")
    feasible = Feasible([budget(100, 2, spent=True)], 2)
    asked = Asked(("hierarchical",), (2,), orders="all", dimension_algorithms="ring,direct;direct,direct")

    def objective_of(knobs: Knobs) -> Simulated:
        return collective_objective(
            topology, "all-reduce", knobs.algorithm, "4MiB", model=Model(chunks=1), symmetry="auto",
            pipeline_chunks=knobs.chunks, **dict(knobs.options),
        )

    def solve(objective: Objective) -> Design:
        return design_simulated(objective, feasible, max_evaluations=15)

    every = asked.choices((4, 2), (), "all-reduce")
    found = best_choice(every, objective_of, solve, feasible)
    alone = {knobs: solve(objective_of(knobs)).value for knobs in every}
    assert len(found.tried) == len(every) == 4
    assert {one.how for one in found.tried} == {SOLVED, EXCLUDED}
    assert found.design.value == pytest.approx(min(alone.values()), rel=2e-3)
    for one in found.tried:
        if one.how == EXCLUDED:
            assert found.design.value <= one.bound <= alone[one.knobs] * (1 + 1e-9)


def test_an_order_for_each_collective_of_an_iteration() -> None:
    """The order changes the simulated time of its collective alone."""
    calls = Call("all-reduce", 4e6, "tp"), Call("all-reduce", 2e6, "dp")
    layer = Layer("l", Phase(1e3, calls[:1]), Phase(1e3), Phase(1e3, calls[1:]))
    placed = Placed(Workload("w", (layer,)), {"tp": (4, 2, 1), "dp": (1, 2, 4)})
    topology, rates = from_spec(SPEC), np.array([50.0, 30.0, 20.0])
    times = []
    for orders in ({}, {"tp all-reduce": (1, 0, 2)}, {"dp all-reduce": (2, 1, 0)}):
        training = Training(loop="no-overlap", bucket_bytes=None, options={"pipeline_chunks": 2}, orders=orders)
        times.append([part.time_ns for part in iteration_objective(topology, [placed], training).evaluate(rates).parts])
    assert times[1][0] != times[0][0] and times[1][1] == times[0][1]
    assert times[2][0] == times[0][0] and times[2][1] != times[0][1]
