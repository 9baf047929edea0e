"""LIBRA's formulas as loops, and its optimum by a general solver: slow, and sharing no code with sim/analytic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

Bandwidth = Sequence[float]


def traffic(kind: str, size: float, groups: Sequence[int]) -> list[float]:
    """Bytes an NPU sends in each dimension, dimension by dimension."""
    sent = [0.0] * len(groups)
    if kind == "all-gather":
        for dim in reversed(range(len(groups))):
            sent[dim] = size * (groups[dim] - 1)
            size *= groups[dim]
        return sent
    for dim, p in enumerate(groups):
        share = size * (p - 1) / p
        sent[dim] = 2 * share if kind == "all-reduce" else share
        if kind != "all-to-all":
            size /= p
    return sent


def collective_ns(call: Sequence[float], bandwidth: Bandwidth) -> float:
    """The busiest dimension."""
    return max([0.0, *(m / b for m, b in zip(call, bandwidth, strict=True) if m)])


def least_sum_of_maxima(constant: float, calls: Sequence[tuple[float, Sequence[float]]], total: float) -> float:
    """Least constant + sum of weight * max_d M_d / B_d with sum B = total: SLSQP on the epigraph, many starts."""
    weights = np.array([weight for weight, _ in calls])
    rows = np.array([row for _, row in calls])
    n_calls, n_dims = rows.shape
    unit = rows.sum() / total
    best = np.inf
    rng = np.random.default_rng(0)
    for start in [np.full(n_dims, 1 / n_dims), *rng.dirichlet(np.ones(n_dims), 6)]:
        b = start * total
        x0 = np.concatenate([start, (rows / b).max(axis=1) / unit])
        found = minimize(
            lambda x: float(weights @ x[n_dims:]), x0, method="SLSQP",
            jac=lambda x: np.concatenate([np.zeros(n_dims), weights]),
            bounds=[(1e-6, 1)] * n_dims + [(0, None)] * n_calls,
            constraints=[
                {"type": "eq", "fun": lambda x: x[:n_dims].sum() - 1},
                {"type": "ineq", "fun": lambda x: (x[n_dims:, None] - rows / (x[:n_dims] * total) / unit).ravel()},
            ],
            options={"maxiter": 500, "ftol": 1e-13},
        )
        b = found.x[:n_dims] / found.x[:n_dims].sum() * total
        best = min(best, constant + float(weights @ (rows / b).max(axis=1)))
    return best
