"""A design problem with its knobs: search them, describe the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.analytic.constraints import Feasible
from sim.analytic.cost import Cost
from sim.analytic.epigraph import Epigraph
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed, iteration_time
from sim.analytic.traffic import F64
from sim.optimizer.choices import Best, best_choice
from sim.optimizer.design import Design, design_analytic, design_simulated, sensitivity
from sim.optimizer.knobs import Knobs
from sim.optimizer.lanes import whole_lanes
from sim.optimizer.model import positive
from sim.optimizer.objective import Objective, Simulated
from sim.optimizer.pareto import FrontPoint, pareto_front
from sim.optimizer.problem import Network
from sim.optimizer.programs import collective_objective, iteration_objective
from sim.program.model import Model
from topologies.text.brief import one_line
from topologies.units import format_size
from workloads.training import Training


@one_line
@dataclass
class Study:
    """A design problem with its knobs.

    Attributes
    ----------
    network : Network
    placed : tuple of Placed
        Empty where one collective is studied.
    collective, size_bytes
        Of that collective.
    feasible : Feasible
    cost : Cost or None
    goal, evaluator, loop : str
    knobs : list of Knobs
        Of which the best is taken.
    counting : str
        How links are charged, for people.
    """

    network: Network
    placed: tuple[Placed, ...]
    collective: str
    size_bytes: int
    feasible: Feasible
    cost: Cost | None
    goal: str
    evaluator: str
    loop: str
    checkpointed: bool
    knobs: list[Knobs]
    lane_GBps: float | None
    evaluations: int
    wants_sensitivity: bool
    symmetry: str
    counting: str
    _objectives: dict[Knobs, Simulated] = field(default_factory=dict)
    _best: Best | None = None

    @property
    def title(self) -> str:
        if not self.placed:
            return f"{self.collective} of {self.size_bytes} B on {self.network.name}"
        return f"{' + '.join(one.workload.name for one in self.placed)} on {self.network.name}"

    def settings(self) -> list[str]:
        """What the answer depends on, for people."""
        said = [f"least {'time' if self.goal == 'time' else 'time x cost'}", f"{self.loop} loop"]
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
            time = self._analytic_time(knobs)
            return [self._row(found, time.time_ns, None if self.placed else knobs)]
        best = self._best_simulated()
        objective = best.objective
        row = self._row(best.design, lambda point: objective.evaluate(point).time_ns, best.knobs)
        if len(best.tried) > 1:
            row["choices"] = [one.row() for one in best.tried]
        if self._has_formulas and self.loop in ANALYTIC_LOOPS:
            time, start = self._analytic_time(best.knobs), self._analytic_start()
            row |= {
                "analytic_bandwidth_GBps": start.tolist(),
                "analytic_time_s": time.time_ns(start) * 1e-9,
                "analytic_simulated_s": objective.evaluate(start).time_ns * 1e-9,
            }
        return [row]

    def front(self, points: int = 9) -> list[FrontPoint]:
        """Time over cost for budgets from a quarter of the answer's total to twice it."""
        assert self.cost is not None
        if self.evaluator == "analytic":
            design, knobs = self._best_analytic()
            time = self._analytic_time(knobs)
            totals = _around(design, points)
            return pareto_front(totals, self.cost, lambda feasible: design_analytic(time, feasible))
        best = self._best_simulated()
        return pareto_front(
            _around(best.design, points), self.cost,
            lambda feasible: design_simulated(best.objective, feasible, max_evaluations=self.evaluations),
        )

    # --- parts

    @property
    def _has_formulas(self) -> bool:
        return bool(self.placed) and self.network.has_formulas

    def _best_analytic(self) -> tuple[Design, Knobs]:
        """The best over the knobs; those of a workload are not part of LIBRA's formulas."""
        choices = self.knobs[:1] if self.placed else self.knobs
        found = [(design_analytic(self._analytic_time(one), self.feasible, self.goal_cost), one) for one in choices]
        return min(found, key=lambda pair: pair[0].value)

    def _analytic_time(self, knobs: Knobs) -> Epigraph:
        """LIBRA's time of a workload; of one collective the load of its busiest links."""
        if self.placed:
            return iteration_time(self.placed, self.loop, self.checkpointed)
        return self._objective(knobs).floors[0]

    def _analytic_start(self) -> F64:
        time = iteration_time(self.placed, "no-overlap", self.checkpointed)
        found = design_analytic(time, self.feasible, self.goal_cost).bandwidth_GBps
        return positive(found)

    def _objective(self, knobs: Knobs) -> Simulated:
        if knobs not in self._objectives:
            self._objectives[knobs] = self._make_objective(knobs)
        return self._objectives[knobs]

    def _make_objective(self, knobs: Knobs) -> Simulated:
        options: dict[str, object] = dict(knobs.options)
        if knobs.is_pipelined:
            options["pipeline_chunks"] = knobs.chunks
        model = Model(chunks=1 if knobs.is_pipelined else knobs.chunks)
        topology = self.network.topology
        if not self.placed:
            return collective_objective(
                topology, self.collective, knobs.algorithm, self.size_bytes, model=model, symmetry=self.symmetry,
                **options,
            )
        training = Training(
            loop=self.loop, algorithm=knobs.algorithm, options=options, orders=dict(knobs.orders)
        )
        if self.loop == "no-overlap":
            training = replace(training, bucket_bytes=None)  # as LIBRA: each row reduces its own
        return iteration_objective(
            topology, self.placed, training, checkpointed=self.checkpointed, model=model, symmetry=self.symmetry
        )

    def _best_simulated(self) -> Best:
        if self._best is None:
            starts = [self._analytic_start()] if self._has_formulas else []

            def solve(objective: Objective) -> Design:
                return design_simulated(
                    objective, self.feasible, self.goal_cost, starts=starts, max_evaluations=self.evaluations
                )

            self._best = best_choice(
                self.knobs, self._make_objective, solve, self.feasible, self.goal_cost, starts
            )
        return self._best

    def _row(self, design: Design, evaluate: Callable[[F64], float], knobs: Knobs | None) -> dict[str, Any]:
        if self.lane_GBps is not None:
            design = whole_lanes(design, self.lane_GBps, self.feasible, self.goal_cost, evaluate)
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
        }
        if self.wants_sensitivity:
            row["saved_s_per_GBps"] = (sensitivity(evaluate, design.bandwidth_GBps) * 1e-9).tolist()
        return row


def _around(design: Design, points: int) -> F64:
    """Total bandwidths from a quarter of the design's to twice it."""
    totals: F64 = float(design.bandwidth_GBps.sum()) * np.geomspace(0.25, 2.0, points)
    return totals


def _pipeline_words(one: Placed, evaluator: str) -> str:
    if one.pipeline is None:
        return ""
    size = format_size(one.pipeline.activation_bytes)
    said = f"pipeline of {one.n_stages} stages, {one.pipeline.microbatches} microbatches ({one.pipeline.order})"
    return f"{said}, messages of {size}{' not counted' if evaluator == 'analytic' else ''}"
