"""Bandwidth comes in lanes: the best integer multiples near a continuous optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.cost import Cost
from sim.analytic.traffic import F64
from sim.optimizer.design import Design, equal_split
from topologies import WeftError

MOST_LOOKED_AT = 16


def whole_lanes(
    design: Design, lane_GBps: float, feasible: Feasible, cost: Cost | None, evaluate: Callable[[F64], float]
) -> Design:
    """The best of the integer numbers of lanes just below and above each bandwidth.

    A budget that must be spent may then be left over in part, by less than one lane per dimension: integer numbers of
    lanes rarely add up to it. The nearest in the logarithm are evaluated, at most 16.

    `cost`: minimize time x cost instead of time.
    `evaluate`: ns at (D,) GB/s.
    WeftError: no integer numbers of lanes satisfy the constraints.
    """
    relaxed = Feasible([_at_most(one) for one in feasible.constraints], feasible.n_dims)
    count = design.bandwidth_GBps / lane_GBps
    choices = [sorted({max(int(np.floor(one)), 1), max(int(np.ceil(one)), 1)}) for one in count]
    points = [np.array(lanes, np.float64) * lane_GBps for lanes in product(*choices)]
    points = [point for point in points if relaxed.violation(point) <= 1e-9]
    if not points:
        near = np.round(count, 2).tolist()
        raise WeftError(f"no whole lanes of {lane_GBps:g} GB/s near {near} satisfy the constraints")
    points.sort(key=lambda point: float(np.abs(np.log(point / design.bandwidth_GBps)).sum()))

    def value(point: F64) -> float:
        return evaluate(point) * (cost.of(point) if cost is not None else 1.0)

    looked = len(points[:MOST_LOOKED_AT]) + 1
    best = min(points[:MOST_LOOKED_AT], key=value)
    return replace(
        design, bandwidth_GBps=best, time_ns=evaluate(best), equal_time_ns=evaluate(equal_split(best)),
        value=value(best), evaluations=design.evaluations + looked if design.evaluations else 0,
        ended=f"whole lanes of {lane_GBps:g} GB/s",
    )


def _at_most(one: Constraint) -> Constraint:
    """A sum that must be met exactly becomes a limit; other equalities stay."""
    total = one.equal and all(value > 0 for value in one.coefficients)
    return replace(one, equal=False) if total else one
