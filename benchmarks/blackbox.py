"""Least value of any function of the bandwidths, for objectives without a critical path."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from sim.analytic.constraints import Feasible
from sim.analytic.traffic import F64
from topologies import WeftError

VIOLATION = 1e-6
"""Relative, by which a constraint may be missed."""

METHODS = ("nelder-mead", "cobyqa")


class BlackBoxOptimum(NamedTuple):
    """The best point seen, its value, and how often the function was called."""

    bandwidth_GBps: F64
    value: float
    evaluations: int


def minimize_black_box(
    function: Callable[[F64], float],
    feasible: Feasible,
    *,
    method: str = "nelder-mead",
    start: F64 | None = None,
    max_evaluations: int = 1000,
    tolerance: float = 1e-6,
) -> BlackBoxOptimum:
    """Minimize without derivatives; no bound comes with the answer.

    Parameters
    ----------
    function : callable ((D,) GB/s) -> float
    feasible : Feasible
    method : {"nelder-mead", "cobyqa"}
        Nelder-Mead walks on the shares of one budget and takes no other constraint; COBYQA takes any.
    start : (D,) float64, optional
        The middle of the feasible set unless given.
    max_evaluations : int
    tolerance : float
        On the shares (Nelder-Mead) or the final radius (COBYQA).

    Raises
    ------
    WeftError
        An unknown method, or constraints that the method does not take.
    """
    start = feasible.middle_GBps if start is None else np.asarray(start, np.float64)
    seen = _Best(function, feasible)
    if method == "nelder-mead":
        _nelder_mead(seen, feasible, start, max_evaluations, tolerance)
    elif method == "cobyqa":
        _cobyqa(seen, feasible, start, max_evaluations, tolerance)
    else:
        raise WeftError(f"method {method!r} is unknown: choose one of {', '.join(METHODS)}")
    if seen.point is None:
        raise WeftError(f"{method} found no bandwidths that satisfy the constraints in {seen.count} evaluations")
    return BlackBoxOptimum(seen.point, seen.value, seen.count)


class _Best:
    """Counts calls and keeps the best point that satisfies the constraints: COBYQA looks at others too."""

    def __init__(self, function: Callable[[F64], float], feasible: Feasible) -> None:
        self.function, self.feasible, self.count, self.value = function, feasible, 0, np.inf
        self.point: F64 | None = None

    def __call__(self, point: F64) -> float:
        value = float(self.function(point))
        self.count += 1
        if value < self.value and self.feasible.violation(point) <= VIOLATION:
            self.point, self.value = np.array(point), value
        return value


def _nelder_mead(seen: _Best, feasible: Feasible, start: F64, max_evaluations: int, tolerance: float) -> None:
    if len(feasible.constraints) != 1 or np.any(feasible.matrix[0] != feasible.matrix[0, 0]):
        raise WeftError("nelder-mead walks on the shares of one budget: with other constraints take cobyqa")
    total = float(feasible.bound[0] / feasible.matrix[0, 0])

    def shares(logits: F64) -> F64:
        weights = np.exp(np.append(logits, 0.0) - max(float(logits.max(initial=0.0)), 0.0))
        point: F64 = np.maximum(total * weights / weights.sum(), 1e-9 * total)
        return point

    logits = np.log(start[:-1] / start[-1])
    if not logits.size:
        seen(np.array([total]))
        return
    minimize(
        lambda x: seen(shares(x)),
        logits,
        method="Nelder-Mead",
        options={"maxfev": max_evaluations, "xatol": tolerance, "fatol": 0.0, "adaptive": True},
    )


def _cobyqa(seen: _Best, feasible: Feasible, start: F64, max_evaluations: int, tolerance: float) -> None:
    scale = max(float(start.max()), 1e-300)
    low = np.where(feasible.equal, feasible.bound, -np.inf) / scale
    least = 1e-9
    minimize(
        lambda x: seen(np.maximum(x, least) * scale),
        start / scale,
        method="COBYQA",
        bounds=[(least, None)] * start.size,
        constraints=[LinearConstraint(feasible.matrix, low, feasible.bound / scale)],
        options={"maxfev": max_evaluations, "final_tr_radius": tolerance},
    )
