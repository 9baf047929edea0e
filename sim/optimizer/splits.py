"""The splits that an answer is shown beside, the range of each over perturbed runs, and the one to build."""

from collections.abc import Callable
from typing import Any

from sim.analytic.constraints import Feasible
from sim.analytic.cost import Cost
from sim.analytic.traffic import F64
from sim.optimizer.choices import Forms
from sim.optimizer.design import NS, VIOLATION, equal_split, known
from sim.optimizer.lanes import in_lanes
from sim.optimizer.objective import Simulated


def side_by_side(
    answer_GBps: F64, analytic_GBps: F64, formula_ns: Callable[[F64], float], feasible: Feasible,
    simulated: Simulated | Forms | None, cost: Cost | None, is_goal: bool, lane_GBps: float | None,
) -> dict[str, Any]:
    """Keys of a result: the equal, the analytic and the chosen split by simulation and by formula.

    A split is tied with the answer where their ranges over perturbed runs overlap, of the time or of time x cost.
    The equal split is recommended where it is tied, can be built, and costs no more.

    `formula_ns`: the time by formula at any bandwidths.
    `simulated`: None where the evaluator is a formula.
    `is_goal`: time x cost is minimized.
    `lane_GBps`: bandwidths are multiples of it, if given.
    """
    points = {"equal": equal_split(answer_GBps, feasible), "analytic": analytic_GBps}
    answer = "analytic"
    if simulated is not None or lane_GBps is not None:
        answer = "whole lanes" if simulated is None else "simulated"
        points[answer] = answer_GBps
    rows = [
        {
            "split": name, "bandwidth_GBps": point.tolist(),
            "simulated_s": None if simulated is None else known(simulated.evaluate(point).time_ns * NS),
            "form": simulated.fastest(point)[0] if isinstance(simulated, Forms) else "",
            "formula_s": formula_ns(point) * NS,
            "allowed": bool(feasible.violation(point) <= VIOLATION),
            "whole_lanes": None if lane_GBps is None else in_lanes(point, lane_GBps),
            **_range(point, answer_GBps, simulated, cost if is_goal else None),
        }
        for name, point in points.items()
    ]
    equal = rows[0]
    is_simplest = (
        equal["tied"] and equal["allowed"] and in_lanes(points["equal"], lane_GBps)
        and (cost is None or cost.of(points["equal"]) <= cost.of(answer_GBps))
    )
    return {"splits": rows, "tied": equal["tied"], "recommended": "equal" if is_simplest else answer}


def _range(point: F64, answer: F64, simulated: Simulated | Forms | None, cost: Cost | None) -> dict[str, Any]:
    """The range of a split's time, and whether its value and that of the answer overlap; of one that cannot run none.
    """
    if simulated is None or not simulated.evaluate(point).parts:
        none = None if simulated is None else False
        return {"spread_low_s": None, "spread_high_s": None, "alone_s": None, "tied": none}
    mine, other = simulated.spread(point), simulated.spread(answer)
    price = 1.0 if cost is None else cost.of(point) / cost.of(answer)
    starts, ends = max(mine.low_ps * price, other.low_ps), min(mine.high_ps * price, other.high_ps)
    return {"spread_low_s": mine.low_s, "spread_high_s": mine.high_s, "alone_s": mine.alone_s, "tied": starts <= ends}
