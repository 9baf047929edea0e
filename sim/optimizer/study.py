"""A design problem with its knobs: search them, describe the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from collectives.registry import algorithm
from sim.analytic.constraints import Feasible
from sim.analytic.cost import Cost
from sim.analytic.epigraph import Epigraph
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed, iteration_time
from sim.analytic.traffic import F64
from sim.optimizer.choices import Best, best_choice
from sim.optimizer.cuts import floor_of
from sim.optimizer.design import NS, Design, budget_saving, design_analytic, design_simulated, sensitivity
from sim.optimizer.knobs import Knobs
from sim.optimizer.lanes import whole_lanes
from sim.optimizer.model import positive
from sim.optimizer.objective import Objective, Simulated
from sim.optimizer.pareto import FrontPoint, pareto_front
from sim.optimizer.problem import Network
from sim.optimizer.programs import collective_objective, iteration_objective
from sim.optimizer.splits import side_by_side
from sim.program.model import Model
from topologies.text.brief import one_line
from topologies.units import format_size
from workloads.training import Training


@one_line
@dataclass
class Study:
    """A design problem with its knobs."""

    network: Network
    placed: tuple[Placed, ...]  # empty where one collective is studied
    collective: str
    size_bytes: int  # of the collective
    feasible: Feasible
    cost: Cost | None
    goal: str
    evaluator: str
    loop: str
    checkpointed: bool
    knobs: list[Knobs]  # of which the best is taken
    lane_GBps: float | None
    evaluations: int
    wants_sensitivity: bool
    symmetry: str
    counting: str  # how links are charged, for people
    _objectives: dict[Knobs, Simulated] = field(default_factory=dict)
    _best: Best | None = None

    @property
    def title(self) -> str:
        if not self.placed:
            return f"{self.collective} of {format_size(self.size_bytes)} on {self.network.name}"
        return f"{' + '.join(one.workload.name for one in self.placed)} on {self.network.name}"

    def settings(self) -> list[str]:
        """What the answer depends on, for people."""
        said = [f"least {_GOALS[self.goal]}", f"{self.loop} loop"]
        said += [constraint.text for constraint in self.feasible.constraints]
        if self.placed:
            said.append(f"compute {sum(one.weight * one.compute_ns for one in self.placed) / 1e6:.6g} ms")
            said += [words for one in self.placed if (words := _pipeline_words(one, self.evaluator))]
        if self.cost is not None:
            said.append(f"{self.counting} counting of links")
        return said

    @property
    def goal_cost(self) -> Cost | None:
        """The cost where it is part of what is minimized."""
        return self.cost if self.goal == "time-cost" else None

    def rows(self) -> list[dict[str, Any]]:
        """One row: the best answer over the knobs."""
        if self.evaluator == "analytic":
            found, knobs = self._best_analytic()
            formula = self._formula(knobs)
            design = self._in_lanes(found, formula.time.time_ns, formula.time)
            return [self._row(design, formula.time.time_ns, None if self.placed else knobs, formula, found)]
        best = self._best_simulated()
        formula = self._formula(best.knobs)
        analytic = design_analytic(formula.time, self.feasible, self.goal_cost)
        evaluate = _evaluator(best.objective)
        design = self._in_lanes(best.design, evaluate, floor_of(best.objective))
        row = self._row(design, evaluate, best.knobs, formula, analytic)
        start = positive(analytic.bandwidth_GBps)
        row |= {
            "analytic_bandwidth_GBps": start.tolist(),
            "analytic_time_s": formula.time.time_ns(start) * NS,
            "analytic_simulated_s": evaluate(start) * NS,
        }
        if len(best.tried) > 1:
            row["choices"] = [one.row() for one in best.tried]
        return [row]

    def front(self) -> list[FrontPoint]:
        """Time over cost for budgets from a quarter of the answer's total to twice it."""
        assert self.cost is not None
        if self.evaluator == "analytic":
            design, knobs = self._best_analytic()
            time = self._formula(knobs).time
            return pareto_front(_around(design), self.cost, lambda feasible: design_analytic(time, feasible))
        best = self._best_simulated()
        objective = self._make_objective(best.knobs, TWICE)  # its bounds hold for all of these budgets
        return pareto_front(
            _around(best.design), self.cost,
            lambda feasible: design_simulated(objective, feasible, max_evaluations=self.evaluations),
        )

    # --- parts

    @property
    def _has_formulas(self) -> bool:
        return bool(self.placed) and self.network.has_formulas

    def _best_analytic(self) -> tuple[Design, Knobs]:
        """The best over the knobs; those of a workload are not part of LIBRA's formulas."""
        choices = self.knobs[:1] if self.placed else self.knobs
        found = [(design_analytic(self._formula(one).time, self.feasible, self.goal_cost), one) for one in choices]
        return min(found, key=lambda pair: pair[0].value)

    def _formula(self, knobs: Knobs) -> Formula:
        """LIBRA's time of a workload; of one collective, and of what LIBRA does not cover, the load of the links."""
        if self._has_formulas and self.loop in ANALYTIC_LOOPS:
            return Formula(LIBRA, iteration_time(self.placed, self.loop, self.checkpointed))
        return Formula(self._load(knobs), floor_of(self._objective(knobs)))

    def _load(self, knobs: Knobs) -> str:
        """What bounds the simulated time from below."""
        return SENT if algorithm(knobs.algorithm).built_from_rates else LOAD

    def _objective(self, knobs: Knobs) -> Simulated:
        if knobs not in self._objectives:
            self._objectives[knobs] = self._make_objective(knobs)
        return self._objectives[knobs]

    def _make_objective(self, knobs: Knobs, times: float = 1.0) -> Simulated:
        """`times` the budget is the most that is asked of it."""
        options: dict[str, Any] = dict(knobs.options)
        if knobs.is_pipelined:
            options["pipeline_chunks"] = knobs.chunks
        model = Model(chunks=1 if knobs.is_pipelined else knobs.chunks)
        topology, budget_GBps = self.network.topology, times * self.feasible.most_GBps
        most_GBps = budget_GBps if math.isfinite(budget_GBps) else None
        if not self.placed:
            return collective_objective(
                topology, self.collective, knobs.algorithm, self.size_bytes, model=model, symmetry=self.symmetry,
                most_GBps=most_GBps, **options,
            )
        training = Training(
            loop=self.loop, algorithm=knobs.algorithm, options=options, orders=dict(knobs.orders)
        )
        if self.loop == "no-overlap":
            training = replace(training, bucket_bytes=None)  # as LIBRA: each row reduces its own
        return iteration_objective(
            topology, self.placed, training, checkpointed=self.checkpointed, model=model, symmetry=self.symmetry,
            most_GBps=most_GBps,
        )

    def _best_simulated(self) -> Best:
        if self._best is None:
            starts = []
            if self._has_formulas:
                time = iteration_time(self.placed, "no-overlap", self.checkpointed)
                starts.append(positive(design_analytic(time, self.feasible, self.goal_cost).bandwidth_GBps))

            def solve(objective: Objective) -> Design:
                return design_simulated(
                    objective, self.feasible, self.goal_cost, starts=starts, max_evaluations=self.evaluations
                )

            self._best = best_choice(self.knobs, self._objective, solve, self.feasible, self.goal_cost, starts)
        return self._best

    def _in_lanes(self, design: Design, evaluate: Callable[[F64], float], floor: Epigraph) -> Design:
        """The design, or the best whole lanes where bandwidth comes in lanes."""
        if self.lane_GBps is None:
            return design
        return whole_lanes(
            design, self.lane_GBps, self.feasible, self.goal_cost, evaluate, floor, max_evaluations=self.evaluations
        )

    def _row(
        self, design: Design, evaluate: Callable[[F64], float], knobs: Knobs | None, formula: Formula, analytic: Design
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "network": self.network.name,
            "workload": self.title.rpartition(" on ")[0],
            "objective": self.goal,
            "evaluator": self.evaluator,
            "loop": self.loop,
            "algorithm": knobs.algorithm if knobs else None,
            "chunks": knobs.chunks if knobs else None,
            "knobs": knobs.words if knobs else None,
            **design.row(self.cost),
            "formula": formula.name,
            "bound_of": formula.name if self.evaluator == "analytic" or knobs is None else self._load(knobs),
            "certified": f"the analytic split has the least {_GOALS[self.goal]} by {formula.name}, within "
            f"{max(analytic.gap, 0):.1g}",
            **side_by_side(
                design.bandwidth_GBps, positive(analytic.bandwidth_GBps), formula.time, self.feasible,
                self._objective(knobs) if knobs is not None and self.evaluator == "simulated" else None,
                self.cost, self.goal_cost is not None, self.lane_GBps,
            ),
        }
        if self.goal == "time":
            row["budget_saved_s_per_GBps"] = budget_saving(
                self.feasible, design.bandwidth_GBps, evaluate, self.lane_GBps
            )
            row["budget_saved_by_formula_s_per_GBps"] = None if formula.name == SENT else budget_saving(
                self.feasible, analytic.bandwidth_GBps, formula.time.time_ns, formula=formula.time
            )
        if self.wants_sensitivity:
            row["saved_s_per_GBps"] = (sensitivity(evaluate, design.bandwidth_GBps) * NS).tolist()
        return row


class Formula(NamedTuple):
    """A time in closed form, and what to call it."""

    name: str
    time: Epigraph


TWICE = 2.0
"""The largest budget of a front, over that of its design."""

_GOALS = {"time": "time", "time-cost": "time x cost"}
LIBRA, LOAD = "LIBRA's formulas", "the busiest links and the longest chain"
SENT = "the bytes that NPUs have to send in any schedule"
"""Of schedules that are built from the bandwidths: it holds for every order, and for this budget only."""


def _evaluator(objective: Objective) -> Callable[[F64], float]:
    return lambda point: objective.evaluate(point).time_ns


def _around(design: Design) -> F64:
    """Total bandwidths from a quarter of the design's to twice it."""
    totals: F64 = float(design.bandwidth_GBps.sum()) * np.geomspace(1 / 4, TWICE, 9)
    return totals


def _pipeline_words(one: Placed, evaluator: str) -> str:
    if one.pipeline is None:
        return ""
    size = format_size(one.pipeline.activation_bytes)
    said = f"pipeline of {one.n_stages} stages, {one.pipeline.microbatches} microbatches ({one.pipeline.order})"
    return f"{said}, messages of {size}{' not counted' if evaluator == 'analytic' else ''}"
