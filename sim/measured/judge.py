"""The judge of measurements: latency and bandwidth of the links, the most likely algorithm, and how good the
numbers are.

Each candidate is simulated at the measured sizes and fitted: a latency for every transfer (what the network's
latencies do not include: launch, software, protocol) and one share of the links' bandwidth for all of them, by least
squares of relative errors. Most curves are nearly straight lines, which two parameters fit for any algorithm. So a
candidate whose links would have to be faster than in the topology is ranked last, and the others are ordered by their
score: n ln(residual^2), twice the log-likelihood of n points, plus the square of ln(share) over `SHARE_SPREAD`, for
real links run close to their nominal rate. Scores that differ by less than `TELLS_APART` do not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from collectives.core.collective import collective
from sim.analytic.cut_bound import cut_bound, is_cheap
from sim.analytic.traffic import F64
from sim.measured.curves import Curve
from sim.measured.read import Measurements
from topologies import Topology
from topologies.checks import WeftError, checked, choice
from topologies.text.brief import one_line
from topologies.text.notebook import Tabular
from topologies.units import PS_PER_S

CONFIDENCE = 0.95
LEAST_POINTS = 4
SHARE_SPREAD = 0.25
"""Standard deviation that the score gives to ln(share): a choice, not a measurement."""

TELLS_APART = 6.0
"""Difference of two scores from which one candidate is 20 times as likely as the other: 2 ln 20."""

LEAST_RESIDUAL = 1e-4
"""Residuals below this are rounding, and count as this."""

GOOD, FAIR = 0.8, 0.5
"""Shares of the bound at the largest size from which a number is called good, and fair."""

FASTER_THAN_BOUND = 0.02
"""Noise up to which a time below the bound is not called impossible."""

KNOWN = ("latency", "bandwidth")
_START_SHARE = 0.9
_FARTHEST = 7.0
"""Logarithm of a share, up or down, at which the search ends: a thousand times the bandwidth, or a thousandth."""

_STEP = 0.05
"""Half a width over which slopes are taken, of the logarithm of the share and of the latency in its scale: another
order of chunks at a busy link makes simulated times jump by a percent or two, and slopes must average over that."""


class Interval(NamedTuple):
    """An estimate and the ends of its interval at `CONFIDENCE`; infinite where the sizes do not determine it."""

    value: float
    low: float
    high: float


@one_line
@dataclass(frozen=True)
class Fit:
    """A candidate at its best-fit latency and bandwidth."""

    algorithm: str
    latency_s: Interval  # per transfer, on top of the network's latencies
    share: Interval  # of the links' bandwidth
    residual: float  # root mean square of the relative errors
    times_s: F64  # (n_sizes,): simulated, at the sizes of the curve

    @property
    def possible(self) -> bool:
        """Whether no link would have to be faster than in the topology, by more than rounding."""
        return self.share.low <= 1.0 + LEAST_RESIDUAL

    def score(self, n_points: int) -> float:
        """How unlikely the candidate is; see the module."""
        likelihood = n_points * float(np.log(max(self.residual, LEAST_RESIDUAL) ** 2))
        return likelihood + float(np.log(self.share.value) / SHARE_SPREAD) ** 2


@checked
@one_line
@dataclass(frozen=True)
class Judgment(Tabular):
    """Verdict on some measurements.

    Attributes
    ----------
    measured : Measurements
    topology : Topology
    fits : tuple of Fit
        Most likely first.
    alike : tuple of str
        Algorithms that these points cannot distinguish from the first.
    bound_s_per_byte : float or None
        Of the exact cut; None where it is too expensive to compute.
    """

    measured: Measurements
    topology: Topology
    fits: tuple[Fit, ...]
    alike: tuple[str, ...]
    bound_s_per_byte: float | None

    @property
    def best(self) -> Fit:
        """The most likely candidate."""
        return self.fits[0]

    def rows(self) -> list[dict[str, Any]]:
        """One row per point: measured, simulated, error, and share of the bound."""
        sizes = unique_sizes(self.measured)
        simulated = dict(zip(sizes, self.best.times_s.tolist(), strict=True))
        factor = collective(self.measured.collective or "").bus_factor(self.topology.n_npus)
        rows = []
        for point in self.measured.points:
            time_s, bound_s = simulated[point.size_bytes], self.bound_s(point.size_bytes)
            rows.append({
                "size_bytes": point.size_bytes, "measured_s": point.time_s, "simulated_s": time_s,
                "error": time_s / point.time_s - 1, "busbw_GBps": point.size_bytes / point.time_s * factor / 1e9,
                "bound_s": bound_s, "share_of_bound": None if bound_s is None else bound_s / point.time_s,
            })
        return rows

    def bound_s(self, size_bytes: int) -> float | None:
        """Least time of a size on this fabric, whatever the algorithm."""
        return None if self.bound_s_per_byte is None else self.bound_s_per_byte * size_bytes

    def too_fast(self) -> list[int]:
        """Sizes measured faster than the bound allows."""
        return [
            row["size_bytes"] for row in self.rows() if (row["share_of_bound"] or 0) > 1 + FASTER_THAN_BOUND
        ]

    def grade(self) -> str:
        """good, fair or poor, by the share of the bound at the largest size; impossible above it."""
        if self.too_fast():
            return "impossible"
        share = self.rows()[-1]["share_of_bound"]
        if share is None:
            return "unknown"
        return "good" if share >= GOOD else "fair" if share >= FAIR else "poor"


@checked
def judge(
    measured: Measurements, topology: Topology, curves: Sequence[Curve], known: Sequence[str] = (), *,
    reducing_switches: bool = False, done: Callable[[str], None] = lambda name: None,
) -> Judgment:
    """Fit every candidate, and identify the algorithm.

    Parameters
    ----------
    measured : Measurements
    topology : Topology
    curves : sequence of Curve
        Candidates, at `unique_sizes(measured)`.
    known : sequence of {"latency", "bandwidth"}
        Taken from the topology, not fitted.
    reducing_switches : bool
        Whether the bound of an all-reduce may count on switches that add.
    done : callable (name)
        Called as each candidate is fitted.

    Raises
    ------
    WeftError
        Too few points, no candidate, or an unknown word in `known`.
    """
    for word in known:
        choice(word, KNOWN, "--known")
    if len(unique_sizes(measured)) < LEAST_POINTS:
        raise WeftError(f"{measured.source} has {len(unique_sizes(measured))} sizes; at least {LEAST_POINTS} needed")
    if not curves:
        raise WeftError(f"no algorithm can run {measured.collective} on {topology.name}")
    fits = []
    for one in curves:
        fits.append(_fit(one, measured, known))
        done(one.name)
    fits, alike = _ranked(fits, len(measured.points))
    bound = None
    if is_cheap(topology):
        kind = measured.collective or ""
        bound = float(cut_bound(topology, kind, reducing_switches=reducing_switches).s_per_byte)
    return Judgment(measured, topology, tuple(fits), tuple(alike), bound)


def unique_sizes(measured: Measurements) -> list[int]:
    """The measured sizes, ascending."""
    return sorted({point.size_bytes for point in measured.points})


def _fit(one: Curve, measured: Measurements, known: Sequence[str]) -> Fit:
    from scipy.optimize import least_squares  # heavy: loaded where it is used
    from scipy.stats import t as t_distribution

    place = {size: at for at, size in enumerate(one.sizes_bytes)}
    at = np.array([place[point.size_bytes] for point in measured.points])
    times = np.array([point.time_s for point in measured.points])
    scale = _latency_scale(one, at, times)
    free = [name for name in KNOWN if name not in known]

    def parameters(x: F64) -> tuple[float, float]:
        values = dict(zip(free, x.tolist(), strict=True))
        return values.get("latency", 0.0) * scale, float(np.exp(values.get("bandwidth", 0.0)))

    def errors(x: F64) -> F64:
        result: F64 = np.log(one.times_s(*parameters(x))[at] / times)
        return result

    start = [{"latency": 1.0, "bandwidth": float(np.log(_START_SHARE))}[name] for name in free]
    lowest = np.array([{"latency": 0.0, "bandwidth": -_FARTHEST}[name] for name in free])
    highest = [{"latency": np.inf, "bandwidth": _FARTHEST}[name] for name in free]
    if not free:
        return _result(one, errors(np.zeros(0)), {}, parameters(np.zeros(0)), scale)

    def slopes(x: F64) -> F64:
        columns = []
        for unit in np.eye(len(free)):
            below = np.maximum(x - _STEP * unit, lowest)
            columns.append((errors(x + _STEP * unit) - errors(below)) / np.sum(x + _STEP * unit - below))
        return np.stack(columns, axis=1)

    solved = least_squares(
        errors, start, jac=slopes, bounds=(lowest, highest), x_scale="jac", xtol=1e-5, ftol=1e-6
    )
    error = dict(zip(free, _standard_errors(solved.jac, solved.fun), strict=True))
    spread = float(t_distribution.ppf(0.5 + CONFIDENCE / 2, max(times.size - len(free), 1)))
    half = {name: spread * value for name, value in error.items()}
    return _result(one, solved.fun, half, parameters(solved.x), scale)


def _latency_scale(one: Curve, at: np.ndarray[Any, np.dtype[np.int64]], times: F64) -> float:
    """A latency per transfer that explains the smallest size; the fit starts there."""
    unit = 1e-6
    bare, slowed = one.times_s(0.0, 1.0)[at[0]], one.times_s(unit, 1.0)[at[0]]
    transfers = max((slowed - bare) / unit, 1.0)
    return float(max((times[0] - bare) / transfers, 1e-8))


def _standard_errors(jacobian: F64, residuals: F64) -> list[float]:
    """Of each parameter; infinite where the points do not determine it."""
    n, k = jacobian.shape
    variance = float(residuals @ residuals) / max(n - k, 1)
    size = np.linalg.norm(jacobian, axis=0)
    if not np.all(size > 0):
        return [float("inf")] * k
    information = (jacobian / size).T @ (jacobian / size)
    if np.linalg.cond(information) > 1e10:
        return [float("inf")] * k
    return [float(one) for one in np.sqrt(variance * np.diag(np.linalg.inv(information))) / size]


def _result(
    one: Curve, residuals: F64, half: dict[str, float], parameters: tuple[float, float], scale: float
) -> Fit:
    share = parameters[1]
    latency_s = round(parameters[0] * PS_PER_S) / PS_PER_S
    wide = half.get("latency", 0.0) * scale
    log_wide = min(half.get("bandwidth", 0.0), 700.0)
    return Fit(
        one.name,
        Interval(latency_s, max(0.0, latency_s - wide), latency_s + wide),
        Interval(share, share * float(np.exp(-log_wide)), share * float(np.exp(log_wide))),
        float(np.sqrt(np.mean(residuals**2))),
        one.times_s(latency_s, share),
    )


def _ranked(fits: Sequence[Fit], n_points: int) -> tuple[list[Fit], list[str]]:
    """The fits, most likely first, and the names of those indistinguishable from the first."""
    ordered = sorted(fits, key=lambda fit: (not fit.possible, fit.score(n_points)))
    first = ordered[0]
    alike = [
        fit.algorithm for fit in ordered[1:]
        if fit.possible == first.possible and fit.score(n_points) < first.score(n_points) + TELLS_APART
    ]
    return ordered, alike
