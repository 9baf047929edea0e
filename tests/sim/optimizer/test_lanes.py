"""Whole lanes against every choice of whole lanes."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from sim.analytic.constraints import Feasible, budget, parse_constraint
from sim.analytic.convex import Epigraph
from sim.analytic.cost import Cost
from sim.analytic.libra import Placed, iteration_time
from sim.optimizer.cuts import floor_of
from sim.optimizer.design import design_analytic, design_simulated
from sim.optimizer.lanes import whole_lanes
from sim.optimizer.network import read_any_network
from sim.optimizer.problem import place_workload
from sim.optimizer.programs import collective_objective
from sim.program.model import Model
from topologies import WeftError, from_spec
from workloads.compute import Accelerator
from workloads.workload import Call, Layer, Phase, Workload

LANE = 10.0


def all_lanes(total: float, lane: float, n_dims: int, *more: str) -> list[np.ndarray]:
    """Every whole number of lanes within a budget and constraints, checked one by one."""
    rows = [parse_constraint(text, n_dims) for text in more]
    found = []
    for counts in product(range(1, int(total / lane) + 1), repeat=n_dims):
        point = np.array(counts) * lane
        spent = total - lane * n_dims <= point.sum() <= total
        if spent and all(float(np.dot(row.coefficients, point)) <= row.bound + 1e-9 for row in rows):
            found.append(point)
    return found


def two_calls() -> Epigraph:
    """A formula whose optimum lies where two collectives pull apart."""
    calls = Call("all-reduce", 3e6, "inner"), Call("all-reduce", 1e6, "all")
    layer = Layer("a", Phase(1e3, calls[:1]), Phase(1e3), Phase(1e3, calls[1:]))
    groups = {"inner": (4, 2, 1), "all": (4, 2, 4)}
    return iteration_time([Placed(Workload("two", (layer,)), groups)])


@pytest.mark.table
@pytest.mark.parametrize("more", [(), ("B1 <= 35",), ("B2 >= B1",)])
@pytest.mark.parametrize("goal", ["time", "time-cost"])
@pytest.mark.parametrize("total", [60.0, 97.0])
def test_lanes_of_a_formula_are_the_best_of_all(total: float, goal: str, more: tuple[str, ...]) -> None:
    time = two_calls()
    cost = Cost(np.array([1e3, 2e3, 9e3])) if goal == "time-cost" else None
    feasible = Feasible([budget(total, 3, spent=True), *(parse_constraint(text, 3) for text in more)], 3)

    def value(point: np.ndarray) -> float:
        return time.time_ns(point) * (1.0 if cost is None else cost.of(point))

    design = design_analytic(time, feasible, cost)
    found = whole_lanes(design, LANE, feasible, cost, time.time_ns, time, max_evaluations=500)
    assert found.value == pytest.approx(min(map(value, all_lanes(total, LANE, 3, *more))), rel=1e-12)
    assert np.all(found.bandwidth_GBps % LANE == 0)
    assert found.ended.endswith("no other lanes are better")


@pytest.mark.parametrize(("network", "chunks"), [("RI(4)_SW(2)", 2), ("RI(2)_FC(4)_SW(2)", 1), ("torus:4x2", 3)])
def test_lanes_of_a_simulation_are_the_best_of_all(network: str, chunks: int) -> None:
    topology = from_spec(network)
    objective = collective_objective(topology, "all-reduce", "bucket", "1MiB", model=Model(chunks=chunks))
    feasible = Feasible([budget(90, objective.n_dims, spent=True)], objective.n_dims)
    design = design_simulated(objective, feasible, max_evaluations=10)

    def evaluate(point: np.ndarray) -> float:
        return objective.evaluate(point).time_ns

    found = whole_lanes(design, LANE, feasible, None, evaluate, floor_of(objective), max_evaluations=500)
    assert found.time_ns == min(map(evaluate, all_lanes(90, LANE, objective.n_dims)))


@pytest.mark.table
@pytest.mark.parametrize(("lane", "evaluations"), [(0.01, 5), (0.5, 3), (0.5, 40), (7.0, 5), (30.0, 40)])
def test_lanes_are_never_worse_than_those_nearest_to_where_they_began(lane: float, evaluations: int) -> None:
    """Where the bound is loose, the lanes at its optimum are far from the best."""
    objective = collective_objective(
        from_spec("RI(4)_SW(4)"), "all-reduce", "hierarchical", "1MiB", model=Model(chunks=1), pipeline_chunks=16
    )
    feasible = Feasible([budget(100, 2, spent=True)], 2)
    design = design_simulated(objective, feasible, max_evaluations=12)
    found = whole_lanes(
        design, lane, feasible, None, lambda point: objective.evaluate(point).time_ns, floor_of(objective),
        max_evaluations=evaluations,
    )
    assert np.allclose(np.rint(found.bandwidth_GBps / lane) * lane, found.bandwidth_GBps)
    for start in (design.bandwidth_GBps, np.array([50.0, 50.0])):
        low = np.floor(start / lane + 1e-6)
        near = [low + more for more in product((0, 1), repeat=2) if low.sum() + sum(more) <= 100 / lane + 1e-6]
        most = max(lanes.sum() for lanes in near)
        best = min((one for one in near if one.sum() == most), key=lambda one: abs(one - start / lane).sum())
        assert found.time_ns <= objective.evaluate(best * lane).time_ns


def test_lanes_far_from_the_real_optimum_are_found() -> None:
    """The lanes on both sides of 201 / 50 / 37 / 12 GB/s all exceed the budget."""
    network = read_any_network("RI(4)_FC(8)_RI(4)_SW(32)")
    time = iteration_time([place_workload("gpt-3", network, accelerator=Accelerator(312e12, 0.75))])
    feasible = Feasible([budget(300, 4, spent=True)], 4)
    found = whole_lanes(design_analytic(time, feasible), 50.0, feasible, None, time.time_ns, time, max_evaluations=50)
    assert found.time_ns == min(map(time.time_ns, all_lanes(300, 50, 4)))


def test_impossible_lanes_and_searches_cut_short_are_named() -> None:
    time = two_calls()
    feasible = Feasible([budget(90, 3, spent=True)], 3)
    design = design_analytic(time, feasible)
    with pytest.raises(WeftError, match="no whole lanes of 40 GB/s satisfy the constraints"):
        whole_lanes(design, 40.0, feasible, None, time.time_ns, time, max_evaluations=500)
    short = whole_lanes(design, 1.0, feasible, None, lambda point: 2 * time.time_ns(point), time, max_evaluations=3)
    said = re.search(r"sets of lanes not excluded, better by at most (\S+) of the value$", short.ended)
    least = min(2 * time.time_ns(point) for point in all_lanes(90, 1, 3))
    assert said is not None
    assert 1 - least / short.value <= float(said[1]) < 0.6
    free = Feasible([parse_constraint("B1 = 10", 3)], 3)
    with pytest.raises(WeftError, match="nothing limits the lanes of dimension 2"):
        whole_lanes(design, 1.0, free, None, time.time_ns, time, max_evaluations=3)
