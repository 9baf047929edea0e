"""A design problem with its knobs: search them, describe the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from collectives.registry import algorithm
from sim.analytic.constraints import Feasible
from sim.analytic.convex import Epigraph, least_time
from sim.analytic.cost import Cost
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed, iteration_time
from sim.analytic.traffic import F64
from sim.how import AS_USUAL, How
from sim.optimizer.choices import Best, Forms, best_choice, is_timed, ranked, ready_choices, spent
from sim.optimizer.cuts import floor_of
from sim.optimizer.design import (
    NS,
    Design,
    FrontPoint,
    Grown,
    budget_saving,
    design_analytic,
    design_simulated,
    equal_split,
    grown,
    known,
    pareto_front,
    sensitivity,
)
from sim.optimizer.knobs import Knobs
from sim.optimizer.lanes import in_lanes, loosened, whole_lanes
from sim.optimizer.model import positive, toward
from sim.optimizer.network import Network
from sim.optimizer.objective import Objective, Simulated
from sim.optimizer.programs import collective_objective, iteration_objective, plan_objective
from sim.optimizer.retime import switches
from sim.optimizer.splits import side_by_side
from sim.program.model import Model
from topologies import WeftError
from topologies.stages import staged
from topologies.text.brief import one_line
from topologies.units import counted, format_size
from workloads.passes.plan import Plan
from workloads.training import Training

FEW_CHUNKS, WORTH_CUTTING = (1, 2, 4), 0.01
"""Other numbers of chunks that the answer is timed with, and the share of its time that one must save to be told."""


@one_line
@dataclass
class Study:
    """A design problem with its knobs."""

    network: Network
    plan: Plan | None  # of a language model, whose iteration is studied
    placed: tuple[Placed, ...]  # empty where one collective is studied, or a plan
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
    is_open: bool = False  # whether nobody named the algorithms
    not_searched: Mapping[str, str] = field(default_factory=dict)  # why others are none of the knobs
    how: How = AS_USUAL
    _objectives: dict[Knobs, Simulated] = field(default_factory=dict)
    _best: Best | None = None

    @property
    def title(self) -> str:
        """What is optimized, and on which network."""
        if self.plan:
            return f"{self.plan.words} on {self.network.name}"
        if not self.placed:
            return f"{self.collective} of {format_size(self.size_bytes)} on {self.network.name}"
        return f"{' + '.join(one.workload.name for one in self.placed)} on {self.network.name}"

    def settings(self) -> list[str]:
        """What the answer depends on, for people."""
        said = [f"least {_GOALS[self.goal]}", self.plan.assumptions if self.plan else f"{self.loop} loop"]
        said += [constraint.text for constraint in self.feasible.constraints]
        if self.lane_GBps is not None:
            said.append(f"lanes of {self.lane_GBps:g} GB/s (a sum is missed by less than one per dimension)")
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

    @staged("search")
    def rows(self) -> list[dict[str, Any]]:
        """One row: the best answer over the knobs."""
        if self.evaluator == "analytic":
            design, found, knobs = self._built_analytic()
            formula = self._formula([knobs])
            return [self._row(design, formula.time_ns, knobs, formula, found)]
        best = self._best_simulated()
        forms = self._forms(best.knobs)
        formula = self._formula([replace(best.knobs, form=form) for form in forms.ready])
        analytic = formula.least(self.feasible, self.goal_cost)
        before = spent(forms.ready.values())
        knobs, design = self._built(best, forms)
        evaluate = _evaluator(forms)
        design = replace(design, equal_time_ns=evaluate(equal_split(design.bandwidth_GBps, self.feasible)))
        more = [after - first for after, first in zip(spent(forms.ready.values()), before, strict=True)]
        design = replace(design, evaluations=design.evaluations + more[0], runs=design.runs + more[1])
        row = self._row(design, _evaluator(self._objective(knobs)), knobs, formula, analytic, forms)
        start = positive(analytic.bandwidth_GBps)
        row |= {
            "analytic_bandwidth_GBps": start.tolist(),
            "analytic_time_s": formula.time_ns(start) * NS,
            "analytic_simulated_s": known(evaluate(start) * NS),
        }
        row |= {"choices": ranked(best.tried, self._objective), "recut": self._recut(row)}
        return [row | {"left_out": self._left_out(), "not_searched": {**self.not_searched, **best.refused}}]

    def _left_out(self) -> list[str]:
        """At how many of the splits that were tried an algorithm could not run, and why."""
        return [
            f"{one.algorithm} was left out at {len(made.left_out)} of {counted(made.evaluations, 'split')}: {why}"
            for one, made in self._objectives.items() for why in list(made.left_out.values())[:1]
        ]

    def _recut(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fastest of other numbers of chunks at the split of a row of one collective, where one was asked for."""
        asked = {one.chunks for one in self.knobs}
        if self.plan or self.placed or len(asked) > 1 or self._is_timed(row["algorithm"]):
            return None
        at, worth_ns = np.array(row["bandwidth_GBps"]), (1 - WORTH_CUTTING) * row["time_s"] / NS
        found = None
        for knobs in (one for one in self.knobs if not self.is_open or one.algorithm == row["algorithm"]):
            for chunks in set(FEW_CHUNKS) - asked:
                other = replace(knobs, chunks=chunks)
                try:
                    if _carried_ns(self._objective(knobs), at) >= worth_ns:
                        break  # however it is cut, servers carry as much
                    time_ns = self._make_objective(other, self.feasible.most_GBps).evaluate(at).time_ns
                except WeftError:  # it cannot run so
                    continue
                if time_ns < worth_ns:
                    found, worth_ns = {"knobs": other.words, "time_s": time_ns * NS}, time_ns
        return found

    def _is_timed(self, name: str) -> bool:
        """Whether an algorithm is only timed at few splits."""
        return is_timed(name, self.is_open)

    def front(self) -> list[FrontPoint]:
        """Time over cost for budgets from a quarter of the answer's total to twice it."""
        assert self.cost is not None
        if self.evaluator == "analytic":
            design, knobs = self._best_analytic()
            return pareto_front(
                _around(design), self.cost,
                lambda feasible: self._formula([knobs], feasible.most_GBps).least(feasible),
            )
        best = self._best_simulated()
        objective = self._make_objective(best.knobs, TWICE * self.feasible.most_GBps)  # its bounds hold for all of them
        return pareto_front(
            _around(best.design), self.cost,
            lambda feasible: design_simulated(objective, feasible, max_evaluations=self.evaluations),
        )

    # --- parts

    def _forms(self, knobs: Knobs) -> Forms:
        """A choice in all its forms, itself first."""
        family = [one for one in self.knobs if replace(one, form=knobs.form) == knobs]
        ready = ready_choices(family, self._objective)
        return Forms({one.form: self._objective(one) for one in ready.family(knobs)},
                     {one.form: why for one, why in ready.refused.items()})

    def _built(self, best: Best, forms: Forms) -> tuple[Knobs, Design]:
        """The best design in whole lanes, where they are asked for, in the form that is fastest there."""
        knobs, design = best.knobs, self._in_form(best.design, forms.ready[best.knobs.form])
        while (form := forms.fastest(design.bandwidth_GBps)[0]) != knobs.form:
            knobs, design = replace(knobs, form=form), self._in_form(design, forms.ready[form])
        return knobs, design

    def _in_form(self, design: Design, objective: Simulated) -> Design:
        return self._in_lanes(design, _evaluator(objective), floor_of(objective))

    @property
    def _switches(self) -> bool:
        return switches(self.network.topology)

    @property
    def _has_formulas(self) -> bool:
        return bool(self.placed) and self.network.has_formulas

    def _best_analytic(self) -> tuple[Design, Knobs]:
        """The best over the knobs; those of a workload are not part of LIBRA's formulas."""
        choices = self.knobs[:1] if self.placed else self.knobs
        if not self._has_formulas:
            choices = list(ready_choices(choices, self._objective, self.is_open).objectives)
        found = [(self._formula([one]).least(self.feasible, self.goal_cost), one) for one in choices]
        return min(found, key=lambda pair: pair[0].value)

    def _built_analytic(self) -> tuple[Design, Design, Knobs]:
        """The answer by formula, in lanes where bandwidth comes in lanes, and that of any bandwidths."""
        found, knobs = self._best_analytic()
        (time,) = self._formula([knobs]).times
        return self._in_lanes(found, time.time_ns, time), found, knobs

    def _formula(self, forms: Sequence[Knobs], most_GBps: float | None = None) -> Formula:
        """LIBRA's time of a workload; of one collective, and of what LIBRA does not cover, the load of the links.

        `forms`: of an algorithm.
        `most_GBps`: of the budget that it is asked for, if another: what limits a run at any split depends on it.
        """
        if self._has_formulas and self.loop in ANALYTIC_LOOPS:
            return Formula(LIBRA, tuple(forms), (iteration_time(self.placed, self.loop, self.checkpointed),))
        make = self._objective if most_GBps is None else partial(self._make_objective, budget_GBps=most_GBps)
        return Formula(self._load(forms[0]), tuple(forms), tuple(floor_of(make(one)) for one in forms))

    def _saved_by_formula(self, more: Grown, formula: Formula, analytic: Design) -> float:
        """Seconds that one more GB/s of the budget saves: the difference to the answer with the larger budget."""
        if self.evaluator == "analytic":
            wider = replace(self, feasible=more.feasible, _objectives={}, _best=None)
            saved_ns = self._built_analytic()[0].time_ns - wider._built_analytic()[0].time_ns
        else:
            times = self._formula(formula.forms, more.feasible.most_GBps).times
            least_ns = min(least_time(time, more.feasible).time_ns for time in times)
            saved_ns = formula.time_ns(analytic.bandwidth_GBps) - least_ns
        if abs(saved_ns) <= SOLVED_TO * formula.time_ns(analytic.bandwidth_GBps):
            return 0.0
        return saved_ns / more.step_GBps * NS

    def _load(self, knobs: Knobs) -> str:
        """What bounds the simulated time from below."""
        if self.plan:
            return ONE_PATH
        return SENT if algorithm(knobs.algorithm).built_from_rates else LOAD

    def _objective(self, knobs: Knobs) -> Simulated:
        if knobs not in self._objectives:
            made = self._make_objective(knobs, self.feasible.most_GBps)
            if knobs.form or self.is_open:
                made.check_memory()
            self._objectives[knobs] = made
        return self._objectives[knobs]

    def _make_objective(self, knobs: Knobs, budget_GBps: float) -> Simulated:
        """The budget is the most that is asked of it."""
        options: dict[str, Any] = dict(knobs.options)
        if knobs.is_pipelined:
            options["pipeline_chunks"] = knobs.chunks
        model = Model(chunks=1 if knobs.is_pipelined else knobs.chunks)
        topology = self.network.topology
        most_GBps = budget_GBps if math.isfinite(budget_GBps) else None
        if self.plan:
            return plan_objective(
                topology, self.plan, knobs.algorithm, model=replace(model, chunks=knobs.chunks), symmetry=self.symmetry,
                most_GBps=most_GBps, how=self.how,
            )
        if not self.placed:
            return collective_objective(
                topology, self.collective, knobs.algorithm, self.size_bytes, model=model, symmetry=self.symmetry,
                most_GBps=most_GBps, form=knobs.form or None, how=self.how, keeps=self.is_open, **options,
            )
        training = Training(loop=self.loop, algorithm=knobs.algorithm, options=options, orders=dict(knobs.orders))
        if self.loop == "no-overlap":
            training = replace(training, bucket_bytes=None)  # as LIBRA: each row reduces its own
        return iteration_objective(
            topology, self.placed, training, checkpointed=self.checkpointed, model=model, symmetry=self.symmetry,
            most_GBps=most_GBps, how=self.how,
        )

    def _best_simulated(self) -> Best:
        if self._best is None:
            starts = []
            if self._has_formulas:
                time = iteration_time(self.placed, "no-overlap", self.checkpointed)
                starts.append(positive(design_analytic(time, self.feasible, self.goal_cost).bandwidth_GBps))
            if self._switches:  # circuits may carry all, or nothing: other plans are the quickest then
                corners = ONE_ALONE + (1 - ONE_ALONE) * np.eye(self.network.n_dims)
                starts += [toward(self.feasible, one) for one in corners]

            def solve(objective: Objective, *more: F64) -> Design:
                return design_simulated(
                    objective, self.feasible, self.goal_cost, starts=[*more, *starts],
                    max_evaluations=self.evaluations,
                )

            self._best = best_choice(
                self.knobs, self._objective, solve, self.feasible, self.goal_cost, starts, is_open=self.is_open)
        return self._best

    def _in_lanes(self, design: Design, evaluate: Callable[[F64], float], floor: Epigraph) -> Design:
        """The design, or the best whole lanes where bandwidth comes in lanes."""
        if self.lane_GBps is None:
            return design
        return whole_lanes(
            design, self.lane_GBps, self.feasible, self.goal_cost, evaluate, floor, max_evaluations=self.evaluations
        )

    def _row(
        self, design: Design, evaluate: Callable[[F64], float], knobs: Knobs, formula: Formula, analytic: Design,
        forms: Forms | None = None,
    ) -> dict[str, Any]:
        is_formula = self.evaluator == "analytic"
        shown = None if is_formula and self.placed else knobs  # those of a workload are not part of LIBRA's formulas
        row: dict[str, Any] = {
            "network": self.network.name,
            "workload": self.title.rpartition(" on ")[0],
            "objective": self.goal,
            "evaluator": self.evaluator,
            "loop": None if self.plan else self.loop,
            "algorithm": shown.algorithm if shown else None,
            "form": shown.form if shown else "",
            "other_forms": {} if forms is None else forms.others(design.bandwidth_GBps),
            "chunks": shown.chunks if shown else None,
            "knobs": shown.words if shown else None,
            "rank_progress": self._objective(shown).rank_progress if shown else None,
            **({"circuits": self._objective(knobs).circuits(design.bandwidth_GBps)} if self._switches else {}),
            **design.row(self.cost, self.feasible),
            "formula": formula.name,
            "bound_of": formula.name if is_formula else self._load(knobs),
            "certified": self._certified(design, formula, analytic),
            **side_by_side(
                design.bandwidth_GBps, positive(analytic.bandwidth_GBps), formula.time_ns,
                self.feasible if self.lane_GBps is None else loosened(self.feasible, self.lane_GBps),
                forms,
                self.cost, self.goal_cost is not None, self.lane_GBps,
            ),
        }
        if self.goal == "time":
            more = grown(self.feasible, self.lane_GBps)
            of_formula = is_formula or self._is_timed(knobs.algorithm)
            row["budget_saved_s_per_GBps"] = None if more is None or of_formula else budget_saving(
                more, design.bandwidth_GBps, evaluate, self.lane_GBps
            )
            row["budget_saved_by_formula_s_per_GBps"] = None if more is None else self._saved_by_formula(
                more, formula, analytic
            )
        if self.wants_sensitivity:
            then = self._formula([knobs], self.feasible.most_GBps + 1).time_ns if is_formula else evaluate
            saved_s = sensitivity(design.time_ns, then, design.bandwidth_GBps) * NS
            row["saved_s_per_GBps"] = [known(one) for one in saved_s.tolist()]
        return row

    def _certified(self, design: Design, formula: Formula, analytic: Design) -> str:
        """What is proved by a formula: of the chosen lanes, or of the analytic split."""
        if self.lane_GBps is not None and self.evaluator == "analytic":
            return f"{design.ended} by {formula.name}"
        unbuilt = "" if in_lanes(analytic.bandwidth_GBps, self.lane_GBps) else ", which is not in whole lanes,"
        within = f"within {max(analytic.gap, 0):.1g}"
        return f"the analytic split{unbuilt} has the least {_GOALS[self.goal]} by {formula.name}, {within}"


class Formula(NamedTuple):
    """A time in closed form, and what to call it: the least over forms, as every split may be run in any of them."""

    name: str
    forms: tuple[Knobs, ...]
    times: tuple[Epigraph, ...]  # of each form; of LIBRA, which knows none, one

    def time_ns(self, bandwidth_GBps: F64) -> float:
        """The least time of the algorithms by their formulas."""
        return min(time.time_ns(bandwidth_GBps) for time in self.times)

    def least(self, feasible: Feasible, cost: Cost | None = None) -> Design:
        """The best design by it."""
        return min((design_analytic(time, feasible, cost) for time in self.times), key=lambda one: one.value)


ONE_ALONE = 0.01
"""Bandwidth of other dimensions where a search begins with most of it in one."""

SOLVED_TO = 1e-9
"""Share of a time by formula below which a difference is the solver's."""

TWICE = 2.0
"""The largest budget of a front, over that of its design."""

_GOALS = {"time": "time", "time-cost": "time x cost"}
LIBRA, LOAD = "LIBRA's formulas", "the busiest links and the longest chain"
SENT = "the bytes that NPUs have to send in any schedule"
"""Of schedules that are built from the bandwidths: it holds for every order, and for this budget only."""
ONE_PATH = "one path of passes and collectives"


def _evaluator(objective: Objective | Forms) -> Callable[[F64], float]:
    return lambda point: objective.evaluate(point).time_ns


def _carried_ns(objective: Simulated, bandwidth_GBps: F64) -> float:
    """What the busiest server of one collective takes to carry what it has to."""
    return max(float((floor.slope_bytes / bandwidth_GBps).sum(axis=1).max()) for floor in objective.floors)


def _around(design: Design) -> F64:
    """Total bandwidths from a quarter of the design's to twice it, a third of an octave apart: itself among them."""
    totals: F64 = float(design.bandwidth_GBps.sum()) * np.exp2(np.arange(-6, 4) / 3)
    return totals


def _pipeline_words(one: Placed, evaluator: str) -> str:
    if one.pipeline is None:
        return ""
    size = format_size(one.pipeline.activation_bytes)
    stages, each = counted(one.n_stages, "stage"), counted(one.pipeline.microbatches, "microbatch", "es")
    said = f"pipeline of {stages}, {each} ({one.pipeline.order})"
    return f"{said}, messages of {size}{' not counted' if evaluator == 'analytic' else ''}"
