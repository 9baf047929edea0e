"""Least time x cost as a geometric program, where the budget may be left over in part (cvxpy and Clarabel).

With t_j for the maxima and c for the cost the problem is to minimise (constant + sum weight_j t_j) (fixed + price . B)
under posynomials: offset + sum w_d / B_d <= t_j. It is convex in the logarithms, hence solved globally. A constraint
fits if one side has a single term. A budget that must be spent does not: `time_cost` takes any constraints, and its
bound needs no trust in a solver; this is the second way, to compare with.
"""

from __future__ import annotations

import warnings

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.cost import Cost
from sim.analytic.epigraph import Epigraph
from sim.analytic.time_cost import check_well_posed
from sim.analytic.traffic import F64
from topologies import WeftError


def geometric_time_cost(time: Epigraph, feasible: Feasible, cost: Cost) -> F64:
    """The bandwidths of least time x cost, (D,) GB/s.

    Raises
    ------
    WeftError
        An ill-posed problem, a constraint that is no posynomial one, or a solver that gives up.
    """
    check_well_posed(feasible, cost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cvxpy tells of its own rewriting of the problem
        import cvxpy as cp

        scale = feasible.middle_GBps
        unit_ns = time.time_ns(scale)
        b = cp.Variable(time.n_dims, pos=True)
        t = cp.Variable(time.weight.size, pos=True)
        rows = []
        for row in range(time.target.size):
            terms = _terms(time.slope_bytes[row] / scale / unit_ns, [1 / b[dim] for dim in range(time.n_dims)])
            terms += _terms(time.inner[row], [t[one] for one in range(time.weight.size)])
            terms += _terms(np.array([time.offset_ns[row] / unit_ns]), [1.0])
            if terms:
                rows.append(sum(terms[1:], terms[0]) <= t[int(time.target[row])])
        rows += [_posynomial(one, b, scale) for one in feasible.constraints if not _holds_anyway(one)]
        spent = _terms(np.append(cost.price * scale, cost.fixed), [*(b[dim] for dim in range(time.n_dims)), 1.0])
        taken = _terms(np.append(time.weight, time.constant_ns / unit_ns), [*(t[one] for one in range(t.size)), 1.0])
        product = sum(taken[1:], taken[0]) * sum(spent[1:], spent[0]) / float(cost.of(scale))
        problem = cp.Problem(cp.Minimize(product), rows)
        problem.solve(gp=True, solver=cp.CLARABEL)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise WeftError(f"the geometric program was not solved: {problem.status}")
    return np.asarray(b.value, np.float64) * scale


def _terms(coefficients, variables):  # type: ignore[no-untyped-def]
    """Monomials with a coefficient above zero."""
    return [float(value) * variable for value, variable in zip(coefficients, variables, strict=True) if value > 0]


def _holds_anyway(one: Constraint) -> bool:
    """Whether bandwidths above zero satisfy it by themselves, such as B1 >= 0."""
    return not one.equal and one.bound >= 0 and all(value <= 0 for value in one.coefficients)


def _posynomial(one: Constraint, b, scale: F64):  # type: ignore[no-untyped-def]
    """A constraint with a single term on the larger side."""
    row, bound = np.asarray(one.coefficients) * scale, one.bound
    dims = range(row.size)
    left = _terms(np.append(row, -bound), [*(b[dim] for dim in dims), 1.0])
    right = _terms(np.append(-row, bound), [*(b[dim] for dim in dims), 1.0])
    if len(right) != 1 or (one.equal and len(left) != 1):
        raise WeftError(f"constraint {one.text!r} has no single term on one side: it fits no geometric program")
    small, large = sum(left[1:], left[0]), right[0]
    return small == large if one.equal else small <= large
