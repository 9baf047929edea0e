"""Solving a design problem, analytically or against the simulation, into one row of a table; and time over cost."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.constraints import Feasible, budget
from sim.analytic.convex import Epigraph, least_time
from sim.analytic.cost import Cost, worth
from sim.analytic.time_cost import least_time_cost
from sim.analytic.traffic import F64
from sim.optimizer.cuts import MAX_EVALUATIONS, optimize
from sim.optimizer.model import rounded, toward
from sim.optimizer.objective import Objective
from topologies import WeftError

NS = 1e-9
VIOLATION = 1e-6
"""Relative tolerance of constraints."""


@dataclass(frozen=True)
class Design:
    """Bandwidths of the dimensions, their time and money, and what nothing allowed is better than."""

    bandwidth_GBps: F64  # (D,)
    time_ns: float  # at the bandwidths
    equal_time_ns: float  # at the equal split; infinite where it cannot run
    lower_bound_ns: float  # certified: no allowed bandwidths are faster (nan where no bound is known)
    value: float  # of the objective, ns or ns x $
    bound: float  # of the objective: nothing feasible is below it
    evaluations: int = 0
    runs: int = 0
    ended: str = ""

    @property
    def gap(self) -> float:
        """Relative distance of the objective to its bound; nan where no bound is known."""
        return self.value / self.bound - 1.0

    def row(self, cost: Cost | None, feasible: Feasible) -> dict[str, Any]:
        """As the table and the JSON have it: bandwidths in GB/s, times in seconds."""
        equal = equal_split(self.bandwidth_GBps, feasible)
        row: dict[str, Any] = {
            "bandwidth_GBps": self.bandwidth_GBps.tolist(),
            "time_s": self.time_ns * NS,
            "equal_time_s": known(self.equal_time_ns * NS),
            "speedup": known(self.equal_time_ns / self.time_ns),
            "lower_bound_s": known(self.lower_bound_ns * NS),
            "gap": known(self.gap),
            "cost": None,
            "equal_cost": None,
            "perf_per_cost_gain": None,
            "evaluations": self.evaluations,
            "simulations": self.runs,
            "ended": self.ended,
        }
        if cost is not None:
            mine, other = cost.of(self.bandwidth_GBps), cost.of(equal)
            gain = self.equal_time_ns * other / (self.time_ns * mine)
            row |= {"cost": mine, "equal_cost": other, "perf_per_cost_gain": known(gain)}
        return row


def known(value: float) -> float | None:
    """A number as a table has it: None where it is not finite."""
    return float(value) if np.isfinite(value) else None


def equal_split(bandwidth_GBps: F64, feasible: Feasible) -> F64:
    """Equal bandwidths, of as much as is spent: of the same total, or less where money or another limit allows less.

    Where no budget limits the total, they cost the same money. A solver spends a budget to about nine digits, and a
    simulation may be another at the tenth: eight digits are kept.
    """
    limits = [one for one in feasible.constraints if min(one.coefficients) > 0]
    has_budget = not limits or any(one.is_budget for one in limits)
    each = [float(bandwidth_GBps.mean())] if has_budget else []
    for one in limits:
        if not one.is_budget:
            spent = one.bound if has_budget else float(np.dot(one.coefficients, bandwidth_GBps))
            each.append(spent / sum(one.coefficients))
    size = bandwidth_GBps.size
    return rounded(np.full(size, float(f"{min(each) * size:.8g}") / size))


def design_analytic(time: Epigraph, feasible: Feasible, cost: Cost | None = None) -> Design:
    """The global optimum of an analytic time, or of time x cost where a cost is given."""
    fastest = least_time(time, feasible)
    bound_ns = fastest.certificate.bound_ns
    if cost is None:
        bandwidth, time_ns, value, bound = fastest.bandwidth_GBps, fastest.time_ns, fastest.time_ns, bound_ns
    else:
        best = least_time_cost(time, feasible, cost)
        bandwidth, time_ns, value, bound = best.bandwidth_GBps, best.time_ns, best.product, best.bound
    equal_ns = time.time_ns(equal_split(bandwidth, feasible))
    return Design(bandwidth, time_ns, equal_ns, bound_ns, value, bound, ended="optimum of the formula")


def design_simulated(
    objective: Objective, feasible: Feasible, cost: Cost | None = None, *, starts: Sequence[F64] = (),
    max_evaluations: int = MAX_EVALUATIONS,
) -> Design:
    """The best bandwidths for a simulated time; the equal split is simulated too, and is the answer if it is best."""
    evaluations, runs = objective.evaluations, objective.runs
    found = optimize(objective, feasible, cost=cost, starts=starts, max_evaluations=max_evaluations)
    best, value = found.best, found.value
    equal = objective.evaluate(equal_split(best.bandwidth_GBps, feasible))
    of_equal = worth(equal.time_ns, equal.bandwidth_GBps, cost)
    if of_equal < value and feasible.violation(equal.bandwidth_GBps) <= VIOLATION:
        best, value = equal, of_equal
    return Design(
        best.bandwidth_GBps,
        best.time_ns,
        equal.time_ns,
        found.time_bound_ns,
        value,
        float("nan") if found.bound is None else found.bound,
        objective.evaluations - evaluations,
        objective.runs - runs,
        found.ended,
    )


def sensitivity(here_ns: float, evaluate: Callable[[F64], float], bandwidth_GBps: F64) -> F64:
    """Nanoseconds that one more GB/s in each dimension saves, (D,): differences, not derivatives.

    At an optimum several paths tie, and one more GB/s in one dimension alone may buy nothing.

    `evaluate`: holds where the budget is a GB/s larger.
    """
    return np.array([here_ns - evaluate(rounded(bandwidth_GBps + unit)) for unit in np.eye(bandwidth_GBps.size)])


class Grown(NamedTuple):
    """The same constraints with a larger budget."""

    feasible: Feasible
    step_GBps: float  # 1, or 1 % of the budget where that is less, or a lane


def grown(feasible: Feasible, lane_GBps: float | None) -> Grown | None:
    """One more GB/s of the budget; None where no budget limits the sum of the bandwidths, or the others fix it."""
    budgets = [one for one in feasible.constraints if one.is_budget]
    if not budgets:
        return None
    step = lane_GBps or min(1.0, *(0.01 * one.bound / one.coefficients[0] for one in budgets))
    rows = [
        replace(one, bound=one.bound + step * one.coefficients[0]) if one.is_budget else one
        for one in feasible.constraints
    ]
    try:
        return Grown(Feasible(rows, feasible.n_dims), step)
    except WeftError:  # they could be met before: a larger budget cannot be spent
        return None


def budget_saving(
    more: Grown, bandwidth_GBps: F64, evaluate: Callable[[F64], float], lane_GBps: float | None
) -> float | None:
    """Seconds that one more GB/s of the budget saves in the simulation: one-sided and measured, not a derivative.

    The growth goes to one dimension, or to all in proportion, or to none where the budget need not be spent, whichever
    saves most: no less is saved where the bandwidths are optimized anew. None where the constraints allow none of them,
    or it can run at none.
    """
    larger = (rounded(bandwidth_GBps + more.step_GBps * unit) for unit in np.eye(bandwidth_GBps.size))
    points = [bandwidth_GBps, *larger]
    if lane_GBps is None:
        points.append(toward(more.feasible, bandwidth_GBps))
    allowed = [point for point in points if more.feasible.violation(point) <= VIOLATION]
    least_ns = min((evaluate(point) for point in allowed), default=inf)
    return known((evaluate(bandwidth_GBps) - least_ns) / more.step_GBps * NS)


class FrontPoint(NamedTuple):
    """The best design at a total bandwidth, and the equal split."""

    total_GBps: float
    design: Design
    cost: float
    equal_cost: float
    dominated: bool  # whether another point is faster and costs no more

    def row(self) -> dict[str, Any]:
        """The point as plain data."""
        return {
            "total_GBps": self.total_GBps, "bandwidth_GBps": self.design.bandwidth_GBps.tolist(), "cost": self.cost,
            "time_s": self.design.time_ns / 1e9, "equal_cost": self.equal_cost,
            "equal_time_s": self.design.equal_time_ns / 1e9, "dominated": self.dominated,
        }


def pareto_front(totals: Iterable[float], cost: Cost, solve: Callable[[Feasible], Design]) -> list[FrontPoint]:
    """Solve for each total bandwidth.

    `totals`: GB/s of an NPU over all dimensions.
    """
    n_dims = cost.price.size
    found = []
    for total in totals:
        feasible = Feasible([budget(float(total), n_dims, spent=True)], n_dims)
        design = solve(feasible)
        equal = cost.of(equal_split(design.bandwidth_GBps, feasible))
        found.append(FrontPoint(float(total), design, cost.of(design.bandwidth_GBps), equal, False))
    return [
        point._replace(dominated=any(
            other.cost <= point.cost and other.design.time_ns < point.design.time_ns for other in found
        ))
        for point in found
    ]
