"""The best of several choices of the discrete knobs: each has a certified bound, and the most promising are solved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from typing import NamedTuple

import numpy as np

from collectives.registry import algorithm
from sim.analytic.constraints import Feasible
from sim.analytic.cost import Cost, worth
from sim.analytic.traffic import F64
from sim.optimizer.cuts import EVALUATIONS, FloorOptimum, floor_of, floor_optimum
from sim.optimizer.design import VIOLATION, Design, equal_split
from sim.optimizer.knobs import Knobs
from sim.optimizer.model import positive
from sim.optimizer.objective import Evaluation, Objective, Simulated
from sim.why.spread import Spread
from topologies import WeftError
from topologies.stages import counting_of
from topologies.units import format_time

MOST_SOLVED = 12
"""Choices whose bandwidths are optimized; the others are only evaluated at the starting points of such a search."""

SOLVED, EXCLUDED, LOOKED_AT = "optimized", "excluded by its bound", "not optimized"
TIMED = "timed at few splits, being built anew at each"
"""Of algorithms that nobody named: the others' best split and the middle are two."""


class Tried(NamedTuple):
    """A choice and how far it was pursued."""

    knobs: Knobs
    value: float  # least seen, ns or ns x $; infinite where none was simulated
    time_ns: float  # the time there
    bound: float  # no bandwidths are better with this choice; nan if unknown
    how: str  # SOLVED, EXCLUDED or LOOKED_AT
    bandwidth_GBps: F64  # (D,): where that was; (0,) where nothing was simulated

    def row(self) -> dict[str, object]:
        """As the JSON has it."""
        time_s = self.time_ns * 1e-9 if isfinite(self.time_ns) else None
        return {"knobs": self.knobs.words, "algorithm": self.knobs.algorithm, "time_s": time_s, "how": self.how}


def is_timed(name: str, is_open: bool) -> bool:
    """Whether an algorithm is not optimized: its schedules are built anew at all bandwidths, and nobody named it."""
    return is_open and algorithm(name).built_from_rates


class Best(NamedTuple):
    """The best choice, its design and objective, and all that were tried, best first."""

    knobs: Knobs
    design: Design
    objective: Objective
    tried: tuple[Tried, ...]
    refused: Mapping[str, str] = {}  # why algorithms that nobody named cannot run


NEAR = 0.05
"""Choices within this share of the best are perturbed: ranges are seldom wider."""


def ranked(tried: Sequence[Tried], objective_of: Callable[[Knobs], Simulated]) -> list[dict[str, object]]:
    """Rows of the choices, best first, with those tied with the best: their ranges over perturbed runs overlap."""

    def end(one: Tried, name: str) -> float:
        spread = objective_of(one.knobs).spread(one.bandwidth_GBps)
        return float(getattr(spread, name)) * one.value / one.time_ns

    first, near = tried[0], [one for one in tried[1:] if one.value <= (1 + NEAR) * tried[0].value]
    tied = {one.knobs for one in near if end(one, "low_ps") <= end(first, "high_ps")}
    return [one.row() | {"tied": one.knobs in tied} for one in tried]


class Ready(NamedTuple):
    """The choices that can run, and why other forms of the same cannot."""

    objectives: dict[Knobs, Objective]
    refused: dict[Knobs, str]

    @property
    def unable(self) -> dict[str, str]:
        """Why algorithms cannot run in any form."""
        able = {one.algorithm for one in self.objectives}
        return {one.algorithm: why for one, why in self.refused.items() if one.algorithm not in able}

    def family(self, knobs: Knobs) -> list[Knobs]:
        """The choices that differ in the form alone, itself first."""
        others = (one for one in self.objectives if one != knobs and replace(one, form=knobs.form) == knobs)
        return [knobs, *others]


def ready_choices(
    choices: Sequence[Knobs], objective_of: Callable[[Knobs], Objective], is_open: bool = False
) -> Ready:
    """Build every choice; a form that cannot run is left out where another form of the same can.

    `is_open`: nobody named the algorithms, and those that can run in no form are left out as well.
    WeftError: a choice that can run in no form; where nobody named it, only if no other can.
    """
    ready = Ready({}, {})
    faults: dict[Knobs, WeftError] = {}
    for knobs in choices:
        try:
            ready.objectives[knobs] = objective_of(knobs)
        except WeftError as wrong:
            if not (knobs.form or is_open):
                raise
            ready.refused[knobs] = str(wrong)
            faults.setdefault(replace(knobs, form=""), wrong)
    able = {replace(knobs, form="") for knobs in ready.objectives}
    if is_open and able:
        return ready
    if (fault := next((wrong for knobs, wrong in faults.items() if knobs not in able), None)) is not None:
        raise fault
    return ready


def best_choice(
    choices: Sequence[Knobs], objective_of: Callable[[Knobs], Objective], solve: Callable[..., Design],
    feasible: Feasible, cost: Cost | None = None, starts: Sequence[F64] = (), *, is_open: bool = False,
) -> Best:
    """Evaluate every choice at a few bandwidths, then optimize the bandwidths of the most promising, best first.

    A choice whose certified bound is not below the best value so far is skipped without loss. At most MOST_SOLVED
    are optimized; the result reports which others were only evaluated. Of the forms of an algorithm those that are
    slower at the start, and not small, are evaluated once more at the optimum and at its equal split,
    and optimized where they are faster there.

    Where nobody named the algorithms, those that cannot run are left out, those whose bound is not below what others
    were seen to take are not simulated, and those that are built from bandwidths are timed only, where that is not
    excluded: in the middle of the feasible set, and at the best bandwidths of the others.

    `solve`: of an objective, and bandwidths to begin from as well.
    `cost`: minimize time x cost instead of time.
    `starts`: (D,) each, where to evaluate, in addition to the middle of the feasible set and the optimum of the
        load bound.
    `is_open`: whether nobody named the algorithms.
    """
    ready = ready_choices(choices, objective_of, is_open)
    if len(ready.objectives) == 1:
        ((knobs, objective),) = ready.objectives.items()
        design = solve(objective)
        return Best(knobs, design, objective, (_solved(knobs, design),), ready.unable)
    return _Choosing(ready, solve, feasible, cost, starts, is_open).run()


class _Choosing:
    def __init__(
        self, ready: Ready, solve: Callable[..., Design], feasible: Feasible, cost: Cost | None, starts: Sequence[F64],
        is_open: bool,
    ) -> None:
        self.ready, self.solve, self.feasible, self.cost, self.starts = ready, solve, feasible, cost, starts
        self.is_open = is_open
        self.floors = {knobs: floor_optimum(objective, feasible, cost) for knobs, objective in ready.objectives.items()}
        self.tried: dict[Knobs, Tried] = {}
        self.best: tuple[Knobs, Design] | None = None
        self.searches = 0

    def run(self) -> Best:
        leaders = self._look()
        for number, first in enumerate(sorted(self.tried.values(), key=lambda one: one.value)):
            if self.best is not None and first.bound >= self.best[1].value:
                self.tried[first.knobs] = first._replace(how=EXCLUDED)
            elif self._is_timed(first.knobs) or not isfinite(first.value):
                continue
            elif number < MOST_SOLVED and (first.knobs in leaders or self.ready.objectives[first.knobs].is_small):
                self._solve(first.knobs)
        if self.best is None:  # all are built from bandwidths
            self._solve(min(self.tried.values(), key=lambda one: one.value).knobs)
        while (faster := self._faster_form()) is not None:
            self._solve(*faster)
        self._time_others()
        assert self.best is not None
        knobs, design = self.best
        evaluations, runs = spent(self.ready.objectives.values())
        floors = [self.floors[one] for one in self.ready.family(knobs)]
        known = [floor for floor in floors if floor is not None]
        if len(known) == len(floors):  # the bound of all forms
            least_ns = min(floor.time_bound_ns for floor in known)
            design = replace(design, bound=min(floor.bound for floor in known), lower_bound_ns=least_ns)
        design = replace(design, evaluations=evaluations, runs=runs)
        tried = tuple(sorted(self.tried.values(), key=lambda one: one.value))
        return Best(knobs, design, self.ready.objectives[knobs], tried, self.ready.unable)

    def _better(self, one: Tried, point: F64) -> Tried:
        """A choice, at other bandwidths if it is better there."""
        found = self.ready.objectives[one.knobs].evaluate(point)
        value = worth(found.time_ns, point, self.cost)
        if value >= one.value:
            return one
        return one._replace(value=value, time_ns=found.time_ns, bandwidth_GBps=found.bandwidth_GBps, how=LOOKED_AT)

    def _design_of(self, one: Tried) -> Design:
        """The design of a choice that is not optimized."""
        objective, floor = self.ready.objectives[one.knobs], self.floors[one.knobs]
        equal = objective.evaluate(equal_split(one.bandwidth_GBps, self.feasible))
        least = (nan, nan) if floor is None else (floor.time_bound_ns, floor.bound)
        ended = f"{TIMED}: --algorithms {one.knobs.algorithm} searches"
        return Design(one.bandwidth_GBps, one.time_ns, equal.time_ns, least[0], one.value, least[1], ended=ended)

    def _time_others(self) -> None:
        """Those that are not optimized, at the best bandwidths of the others; the fastest is the best if it is faster.
        """
        assert self.best is not None
        design, least = self.best[1], inf
        timed = sorted((one for one in self.tried.values() if self._is_timed(one.knobs)), key=lambda one: one.value)
        for one in timed:
            objective = self.ready.objectives[one.knobs]
            least = min(least, self.best[1].value, one.value)
            if worth(_floor_ns(objective, design.bandwidth_GBps), design.bandwidth_GBps, self.cost) < least:
                one = self._better(one, design.bandwidth_GBps)
            self.tried[one.knobs] = one if one.how == EXCLUDED else one._replace(how=TIMED)
        first = min((self.tried[one.knobs] for one in timed), key=lambda one: one.value, default=None)
        if first is not None and first.value < self.best[1].value:
            self.best = first.knobs, self._design_of(first)

    def _is_timed(self, knobs: Knobs) -> bool:
        return is_timed(knobs.algorithm, self.is_open)

    def _look(self) -> set[Knobs]:
        """Every choice where a search begins: in the form of the least bound, and other forms at its best point.

        Returns the fastest forms. A form whose bound is above the least value so far is not evaluated.
        """
        leaders: set[Knobs] = set()
        families = dict.fromkeys(frozenset(self.ready.family(knobs)) for knobs in self.ready.objectives)
        orders = [sorted((one for one in self.ready.objectives if one in family), key=self._bound)
                  for family in families]
        orders.sort(key=lambda order: (self._is_timed(order[0]), self.is_open and self._bound(order[0])))
        points = [self._look_at(order[0], self._begin(order[0]), self.is_open) for order in orders]
        for order, point in zip(orders, points, strict=True):
            for knobs in order[1:]:
                self._look_at(knobs, [point], True)
            leaders.add(min(order, key=lambda knobs: self.tried[knobs].value))
        return leaders

    def _bound(self, knobs: Knobs) -> float:
        floor = self.floors[knobs]
        return 0.0 if floor is None else floor.bound

    def _begin(self, knobs: Knobs) -> list[F64]:
        floor: FloorOptimum | None = self.floors[knobs]
        lowest = [] if floor is None else [floor.bandwidth_GBps]
        middle = positive(self.feasible.middle_GBps)
        return [middle] if self._is_timed(knobs) else [middle, *lowest, *self.starts]

    def _look_at(self, knobs: Knobs, points: Sequence[F64], if_better: bool) -> F64:
        """Evaluate a choice at some bandwidths; the best of them.

        `if_better`: not where its bound says that none are better than the best of all choices so far.
        """
        if if_better and self._bound(knobs) >= min((one.value for one in self.tried.values()), default=inf):
            self.tried[knobs] = Tried(knobs, inf, inf, self._bound(knobs), EXCLUDED, np.zeros(0))
            return points[0]
        found = [self.ready.objectives[knobs].evaluate(point) for point in points]
        best = min(found, key=lambda one: worth(one.time_ns, one.bandwidth_GBps, self.cost))
        value = worth(best.time_ns, best.bandwidth_GBps, self.cost)
        bound = float("nan") if self.floors[knobs] is None else self._bound(knobs)
        self.tried[knobs] = Tried(knobs, value, best.time_ns, bound, LOOKED_AT, best.bandwidth_GBps)
        return best.bandwidth_GBps

    def _solve(self, knobs: Knobs, *starts: F64) -> None:
        self.searches += 1
        with counting_of(f"search {self.searches} ({knobs.words})", EVALUATIONS):
            design = self.solve(self.ready.objectives[knobs], *starts)
        self.tried[knobs] = _solved(knobs, design)
        if self.best is None or design.value < self.best[1].value:
            self.best = knobs, design

    def _faster_form(self) -> tuple[Knobs, F64] | None:
        """A form that is faster than the best design there, or at its equal split, and where."""
        assert self.best is not None
        knobs, design = self.best
        points = (design.bandwidth_GBps, equal_split(design.bandwidth_GBps, self.feasible))
        allowed = [point for point in points if self.feasible.violation(point) <= VIOLATION]
        for other in self.ready.family(knobs)[1:]:
            objective = self.ready.objectives[other]
            for point in allowed:
                if worth(_floor_ns(objective, point), point, self.cost) >= design.value:
                    continue
                if worth(objective.evaluate(point).time_ns, point, self.cost) < design.value:
                    return other, point
        return None


class Forms:
    """A choice in all its forms: at each bandwidths the fastest of them.

    `ready`: its forms, the one that was chosen first.
    `refused`: why others cannot run.
    """

    def __init__(self, ready: dict[str, Simulated], refused: dict[str, str]) -> None:
        self.ready, self.refused = ready, refused

    def fastest(self, bandwidth_GBps: F64) -> tuple[str, Evaluation]:
        """The fastest form and its time; one whose floor is above another's time is not simulated."""
        best: tuple[str, Evaluation] | None = None
        for form, objective in self.ready.items():
            if best is None or _floor_ns(objective, bandwidth_GBps) < best[1].time_ns:
                found = objective.evaluate(bandwidth_GBps)
                if best is None or found.time_ns < best[1].time_ns:
                    best = form, found
        assert best is not None
        return best

    def evaluate(self, bandwidth_GBps: F64) -> Evaluation:
        """The time in the fastest form."""
        return self.fastest(bandwidth_GBps)[1]

    def spread(self, bandwidth_GBps: F64) -> Spread:
        """The range of the fastest form over perturbed runs."""
        return self.ready[self.fastest(bandwidth_GBps)[0]].spread(bandwidth_GBps)

    def others(self, bandwidth_GBps: F64) -> dict[str, str]:
        """What the forms but the fastest take, why they were not simulated, or why they cannot run."""
        best, found = self.fastest(bandwidth_GBps)
        said = dict(self.refused)
        for form, objective in self.ready.items():
            floor_ns = _floor_ns(objective, bandwidth_GBps)
            if form != best and floor_ns >= found.time_ns:
                said[form] = f"at least {format_time(floor_ns * 1e3)}, not simulated"
            elif form != best:
                time_ns, why = objective.evaluate(bandwidth_GBps).time_ns, objective.left_out
                said[form] = why.get(bandwidth_GBps.tobytes()) or format_time(time_ns * 1e3)
        return dict(sorted(said.items()))


def spent(objectives: Iterable[Objective]) -> tuple[int, int]:
    """Evaluations and engine runs of some objectives together."""
    counts = [(one.evaluations, one.runs) for one in objectives]
    evaluations, runs = (sum(column) for column in zip(*counts, strict=True))
    return evaluations, runs


def _floor_ns(objective: Objective, bandwidth_GBps: F64) -> float:
    """No run at these bandwidths is faster."""
    return floor_of(objective).time_ns(bandwidth_GBps) if objective.floors else 0.0


def _solved(knobs: Knobs, design: Design) -> Tried:
    return Tried(knobs, design.value, design.time_ns, design.bound, SOLVED, design.bandwidth_GBps)
