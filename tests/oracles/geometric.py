"""Least time x cost as a geometric program, where the budget may be left over in part (cvxpy and Clarabel).

With t_j for the maxima the problem is to minimize (constant + sum weight_j t_j) (fixed + price . B) under posynomials
offset + sum w_d / B_d <= t_j. It is convex in the logarithms, hence solved globally. A constraint fits if one side has
a single term. A budget that must be spent does not: `sim.analytic.time_cost` takes any constraints, and its bound needs
no trust in a solver; this is the second method, to compare with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import cvxpy as cp
import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.convex import Epigraph
from sim.analytic.cost import Cost
from sim.analytic.time_cost import check_well_posed
from sim.analytic.traffic import F64
from topologies import WeftError

SOLVED = ("optimal", "optimal_inaccurate")


def geometric_time_cost(time: Epigraph, feasible: Feasible, cost: Cost) -> F64:
    """The bandwidths of least time x cost, (D,) GB/s.

    Raises
    ------
    WeftError
        An ill-posed problem, a constraint that is no posynomial one, or a solver that gives up.
    """
    check_well_posed(feasible, cost)
    scale = feasible.middle_GBps
    unit_ns, unit_cost = time.time_ns(scale), cost.of(scale)
    bandwidth = cp.Variable(time.n_dims, pos=True)
    maxima = cp.Variable(time.weight.size, pos=True)
    b, t = list(bandwidth), list(maxima)
    slowness = [1 / one for one in b]
    rows = []
    for row in range(time.target.size):
        terms = _terms([*(time.slope_bytes[row] / scale / unit_ns), *time.inner[row]], [*slowness, *t])
        terms += _terms([time.offset_ns[row] / unit_ns], [1.0])
        if terms:
            rows.append(_sum(terms) <= t[int(time.target[row])])
    rows += [_posynomial(one, b, scale) for one in feasible.constraints if not _holds_anyway(one)]
    took = _sum(_terms([*time.weight, time.constant_ns / unit_ns], [*t, 1.0]))
    spent = _sum(_terms([*(cost.price * scale / unit_cost), cost.fixed / unit_cost], [*b, 1.0]))
    problem = cp.Problem(cp.Minimize(took * spent), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cvxpy tells of its own rewriting of the problem
        problem.solve(gp=True, solver=cp.CLARABEL)  # type: ignore[no-untyped-call]  # cvxpy has no types
    if problem.status not in SOLVED:
        raise WeftError(f"the geometric program was not solved: {problem.status}")
    return np.asarray(bandwidth.value, np.float64) * scale


def _terms(coefficients: Iterable[float], variables: Sequence[Any]) -> list[Any]:
    """Monomials with a coefficient above zero."""
    return [float(value) * variable for value, variable in zip(coefficients, variables, strict=True) if value > 0]


def _sum(terms: list[Any]) -> Any:
    return reduce(add, terms)


def _holds_anyway(one: Constraint) -> bool:
    """Whether bandwidths above zero satisfy it by themselves, such as B1 >= 0."""
    return not one.equal and one.bound >= 0 and all(value <= 0 for value in one.coefficients)


def _posynomial(one: Constraint, b: list[Any], scale: F64) -> Any:
    """A constraint with a single term on the larger side."""
    row = np.asarray(one.coefficients) * scale
    left = _terms([*row, -one.bound], [*b, 1.0])
    right = _terms([*-row, one.bound], [*b, 1.0])
    if len(right) != 1 or not left or (one.equal and len(left) != 1):
        raise WeftError(f"constraint {one.text!r} has no single term on one side: it fits no geometric program")
    return _sum(left) == right[0] if one.equal else _sum(left) <= right[0]
