"""Times that are sums and maxima of bytes over bandwidth: convex in the bandwidths, and bounded by their own weights.

    time(B) = constant + sum_j weight_j t_j,
    t_j     = max over its rows r of  offset_r + sum_d slope_rd / B_d + sum_i inner_ri t_i   (i < j).

LIBRA's training loops have this form, and so has the bundle of critical paths that the optimizer collects.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analytic.traffic import F64


class Floor(NamedTuple):
    """A lower bound `constant_ns + sum_d bytes_d / B_d` on a time, valid at every B."""

    constant_ns: float
    bytes: F64


EpigraphRow = tuple[int, float, F64, F64]
"""Variable, offset_ns, slope_bytes and inner of a row."""


class Epigraph(NamedTuple):
    """A time as a function of D bandwidths in GB/s; R rows on n variables."""

    constant_ns: float
    weight: F64  # (n,): not negative
    target: npt.NDArray[np.int64]  # (R,): the variable that a row bounds from below; each variable has a row
    offset_ns: F64  # (R,)
    slope_bytes: F64  # (R, D): not negative; bytes / (GB/s) = ns
    inner: F64  # (R, n): multiples of variables of lower index

    @classmethod
    def of(cls, constant_ns: float, weight: npt.ArrayLike, rows: Sequence[EpigraphRow], n_dims: int) -> "Epigraph":
        """From its rows."""
        n_vars = np.size(weight)
        return cls(
            constant_ns, np.asarray(weight, np.float64),
            np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64),
            np.array([row[2] for row in rows], np.float64).reshape(len(rows), n_dims),
            np.array([row[3] for row in rows], np.float64).reshape(len(rows), n_vars),
        )

    @property
    def n_dims(self) -> int:
        return int(self.slope_bytes.shape[1])

    def variables(self, bandwidth_GBps: npt.ArrayLike) -> F64:
        """Value of every variable at a bandwidth, (n,)."""
        slowness = _slowness(np.asarray(bandwidth_GBps, np.float64), self.slope_bytes)
        own = self.offset_ns + self.slope_bytes @ slowness
        time = np.full(self.weight.size, -np.inf)
        flat = ~self.inner.any(axis=1)
        np.maximum.at(time, self.target[flat], own[flat])
        for row in np.flatnonzero(~flat)[np.argsort(self.target[~flat], kind="stable")]:
            used = np.flatnonzero(self.inner[row])
            value = own[row] + self.inner[row, used] @ time[used]
            time[self.target[row]] = max(time[self.target[row]], value)
        return time

    def time_ns(self, bandwidth_GBps: npt.ArrayLike) -> float:
        """The time at a bandwidth; infinite where a dimension that carries bytes has none."""
        return float(self.constant_ns + self.weight @ self.variables(bandwidth_GBps))

    def floor(self, multiplier: F64) -> Floor:
        """The lower bound that weights on the rows prove.

        `multiplier` (R,): any weights, such as a solver's dual variables. Negative ones are dropped and the rest scaled
            so that the rows of each variable sum to the weight of the variable: no trust in the solver is needed.
        """
        share = np.maximum(multiplier, 0.0)
        worth = self.weight.copy()
        for variable in range(self.weight.size - 1, -1, -1):
            rows = np.flatnonzero(self.target == variable)
            total = share[rows].sum()
            share[rows] = share[rows] * (worth[variable] / total) if total > 0 else worth[variable] / rows.size
            worth += share[rows] @ self.inner[rows]
        return Floor(float(self.constant_ns + share @ self.offset_ns), share @ self.slope_bytes)


def _slowness(bandwidth_GBps: F64, slope: F64) -> F64:
    """1 / B, and 0 where no row sends anything, so that an unused dimension may be left without bandwidth."""
    used = slope.any(axis=0)
    with np.errstate(divide="ignore"):
        return np.where(used, 1.0 / np.maximum(bandwidth_GBps, 0.0), 0.0)


def flat_epigraph(constant_ns: float, weight: F64, rows: list[tuple[int, float, F64]], n_dims: int) -> Epigraph:
    """An epigraph whose rows (variable, offset_ns, slope_bytes) do not contain other variables."""
    return Epigraph.of(constant_ns, weight, [(*row, np.zeros(np.size(weight))) for row in rows], n_dims)
