"""Shares of links' rates and a factor on latency from measured times: robust, with priors and intervals.

All parameters are logarithms. A prior says how far each may be from its center, so that one point is enough and what
the points do not determine stays where it was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.analytic.traffic import F64
from topologies.text.brief import one_line

STEP = 0.05
"""Half a width over which slopes are taken: chunks that swap at a busy link make simulated times jump by a percent or
two, and slopes must average over that."""

MANY = 1.96
ENOUGH_POINTS = 6
_ROUNDS = 12
_FARTHEST = 1.5
"""Most that a parameter moves in a round."""

_ENOUGH = 1e-4


class Prior(NamedTuple):
    """What is known of a parameter beforehand: the center and the standard deviation of its logarithm."""

    center: float
    spread: float


class Interval(NamedTuple):
    """An estimate and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float


@one_line
@dataclass(frozen=True, eq=False)
class Fitted:
    """The most likely parameters."""

    x: F64  # (n_parameters,): logarithms
    deviations: F64  # (n_parameters,): standard deviations of the logarithms
    priors: tuple[Prior, ...]
    residuals: F64  # (n_points,): logarithms of modeled over measured times
    cost: float  # twice the negative logarithm of the likelihood and the priors

    def determined(self, at: int) -> bool:
        """Whether the points say more of a parameter than the prior did."""
        return bool(self.deviations[at] < 0.5 * self.priors[at].spread)

    def interval(self, at: int, spare: int | None = None) -> Interval:
        """A parameter, no longer as a logarithm.

        `spare`: points beyond the parameters, where the noise was estimated from them.
        """
        many = MANY if spare is None else _student(max(spare, 2))
        middle, half = float(self.x[at]), min(many * float(self.deviations[at]), 300.0)
        return Interval(*(float(np.exp(middle + one)) for one in (0.0, -half, half)))


def _student(freedom: int) -> float:
    """The quantile of Student's distribution that `MANY` is of the normal one, to 2 % from three degrees of freedom."""
    z = MANY
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def fit(
    times: Callable[[F64], F64], measured_s: F64, priors: tuple[Prior, ...], noise: float, weight: float | F64 = 1.0
) -> Fitted:
    """Fit modeled to measured times.

    `times`: modeled, in seconds, at the logarithms of the parameters.
    `noise`: standard deviation of a logarithm of a time. Errors far beyond it count only linearly: from one deviation
        on where there are `ENOUGH_POINTS`, later where there are fewer, of which none can be called an outlier.
    `weight`: of each point: below 1 where errors of neighbors are alike.
    """
    center, spread = np.array(priors, np.float64).T
    measured = np.log(measured_s)
    bend = noise * max(1.0, ENOUGH_POINTS / measured.size)

    def residuals(x: F64) -> F64:
        found: F64 = np.log(times(x)) - measured
        return found

    def cost_of(x: F64, error: F64) -> float:
        robust = 2 * (bend / noise) ** 2 * (np.sqrt(1 + (error / bend) ** 2) - 1)
        return float((weight * robust).sum() + (((x - center) / spread) ** 2).sum())

    x = center.copy()
    error = residuals(x)
    cost = cost_of(x, error)
    information = np.diag(1 / spread**2)
    for _ in range(_ROUNDS):
        slopes = np.stack([(residuals(x + unit) - residuals(x - unit)) / (2 * STEP)
                           for unit in STEP * np.eye(x.size)], axis=1)
        weights = weight / noise**2 / np.sqrt(1 + (error / bend) ** 2)
        information = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spread**2)
        move = -np.linalg.solve(information, slopes.T @ (weights * error) + (x - center) / spread**2)
        move = np.clip(move, -_FARTHEST, _FARTHEST)
        for _ in range(6):  # a step that makes it worse is halved
            tried = residuals(x + move)
            if cost_of(x + move, tried) <= cost:
                break
            move = move / 2
        else:
            break
        x, error = x + move, tried
        before, cost = cost, cost_of(x, tried)
        if before - cost < _ENOUGH:
            break
    deviations = np.sqrt(np.diag(np.linalg.inv(information)))
    return Fitted(x, deviations, priors, error, cost)
