"""Least time under linear constraints, with a certificate that needs no trust in the solver.

Times are sums and maxima of bytes over bandwidth, convex in the bandwidths, and bounded by their own weights:

    time(B) = constant + sum_j weight_j t_j,
    t_j     = max over its rows r of  offset_r + sum_d slope_rd / B_d + sum_i inner_ri t_i   (i < j).

LIBRA's training loops have this form, and so has the bundle of critical paths that the optimizer collects. With
u_d >= 1 / B_d as a second-order cone it is a conic program, solved by Clarabel. From the solver's dual variables a
lower bound is computed anew in closed form (`certify`): weights on the rows of the maximum give a floor
c + sum w_d / B_d, multipliers of the constraints a separable minimum of it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analytic.constraints import Feasible
from sim.analytic.traffic import F64
from topologies import WeftError
from topologies.stages import imported

PASSES = 2
"""The second solve is scaled by the first: bandwidths of one optimum differ by a factor of thousands."""

CLOSED = 1e-11
"""What the solver is asked for: another solve gains nothing."""

Bools = npt.NDArray[np.bool_]


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
        """Dimensions of the fabric."""
        return int(self.slope_bytes.shape[1])

    def variables(self, bandwidth_GBps: npt.ArrayLike) -> F64:
        """Value of every variable at a bandwidth, (n,)."""
        slowness = _slowness(np.asarray(bandwidth_GBps, np.float64), self.slope_bytes)
        own = self.offset_ns + self.slope_bytes @ slowness
        time = np.full(self.weight.size, -np.inf)
        deep = self.inner.any(axis=1)
        np.maximum.at(time, self.target, np.where(deep, -np.inf, own))
        for row in sorted(np.flatnonzero(deep).tolist(), key=self.target.__getitem__):
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
    bandwidth, used = np.maximum(bandwidth_GBps, 0.0), slope.any(axis=0)
    return np.where(used, np.divide(1.0, bandwidth, out=np.full(bandwidth.shape, np.inf), where=bandwidth > 0), 0.0)


def flat_epigraph(constant_ns: float, weight: F64, rows: list[tuple[int, float, F64]], n_dims: int) -> Epigraph:
    """An epigraph whose rows (variable, offset_ns, slope_bytes) do not contain other variables."""
    return Epigraph.of(constant_ns, weight, [(*row, np.zeros(np.size(weight))) for row in rows], n_dims)


class Certificate(NamedTuple):
    """Proof of a lower bound."""

    floor: Floor  # a lower bound on the time at every bandwidth
    multiplier: F64  # (m,): of the constraints; not negative for inequalities. ns per unit of the bound
    bound_ns: float  # no feasible bandwidth is faster


class Least(NamedTuple):
    """The least time, where it is reached, and the proof."""

    bandwidth_GBps: F64  # (D,)
    time_ns: float  # evaluated at the bandwidths, not taken from the solver
    certificate: Certificate

    @property
    def gap(self) -> float:
        """Relative distance to the bound."""
        return self.time_ns / self.certificate.bound_ns - 1.0 if self.certificate.bound_ns > 0 else float("inf")


def least_time(time: Epigraph, feasible: Feasible, caps_GBps: F64 | None = None) -> Least:
    """The bandwidths of least time.

    `caps_GBps` (D,): upper limits of the bandwidths, for the certificate; default: those of `feasible`.
    WeftError: nothing limits a dimension that shortens the time, or the solver gives up.
    """
    used: Bools = np.asarray(time.slope_bytes.any(axis=0))
    caps = feasible.caps_GBps if caps_GBps is None else caps_GBps
    if np.any(used & np.isinf(caps)):
        dim = int(np.flatnonzero(used & np.isinf(caps))[0]) + 1
        raise WeftError(f"nothing limits the bandwidth of dimension {dim}: give a budget or a cap")
    scale = feasible.middle_GBps.copy()
    best: Least | None = None
    for _ in range(PASSES):
        scale, rows, multiplier = _solve(time, feasible, scale, used)
        certificate = certify(time, feasible, rows, multiplier, caps)
        found = Least(scale, time.time_ns(scale), certificate)
        if best is None or found.gap < best.gap:
            best = found
        if best.gap <= CLOSED:
            break
        scale = np.maximum(scale, 1e-9 * scale.max())
    assert best is not None
    return best


def certify(time: Epigraph, feasible: Feasible, rows: F64, multiplier: F64, caps_GBps: F64) -> Certificate:
    """A lower bound from any weights on the rows of the maximum and any multipliers of the constraints.

    With floor c + sum w_d / B_d and multipliers y, every feasible B has
    time >= c - y.h + sum_d (w_d / B_d + (G'y)_d B_d), and each term is least at sqrt(w_d / (G'y)_d).
    """
    floor = time.floor(rows)
    multiplier = np.where(feasible.equal, multiplier, np.maximum(multiplier, 0.0))
    slope = feasible.matrix.T @ multiplier
    terms = least_terms(floor.bytes, slope, caps_GBps)
    return Certificate(floor, multiplier, float(floor.constant_ns - multiplier @ feasible.bound + terms.sum()))


def least_terms(weight: F64, slope: F64, caps: F64) -> F64:
    """Minimum over 0 < B <= cap of weight / B + slope B, for each dimension, (D,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(slope > 0, np.sqrt(weight / np.where(slope > 0, slope, 1.0)), np.inf)
        at = np.minimum(at, caps)
        value = np.where(np.isinf(at), np.where(slope < 0, -np.inf, 0.0), weight / at + slope * at)
    return np.where((weight == 0) & (slope >= 0), 0.0, value)


def _solve(time: Epigraph, feasible: Feasible, scale: F64, used: Bools) -> tuple[F64, F64, F64]:
    """One solve in units of `scale`: bandwidths, weights of the rows, multipliers of the constraints."""
    clarabel, sparse = imported("clarabel"), imported("scipy.sparse")
    n_dims, n_vars, n_rows = time.n_dims, time.weight.size, time.target.size
    unit_ns = max(float(time.variables(scale).max(initial=0.0)), 1e-300)
    size = np.maximum(np.abs(feasible.matrix * scale).max(axis=1, initial=0.0), np.abs(feasible.bound))
    size = np.where(size > 0, size, 1.0)
    limit = feasible.bound / size
    equal, below = np.flatnonzero(feasible.equal), np.flatnonzero(~feasible.equal)
    slow = slice(n_vars, n_vars + n_dims)  # u_d, and behind it B_d
    linear = np.zeros((size.size, n_vars + 2 * n_dims))
    linear[:, slow.stop :] = feasible.matrix * scale / size[:, None]
    epigraph = np.zeros((n_rows, n_vars + 2 * n_dims))
    epigraph[:, :n_vars], epigraph[:, slow] = time.inner, time.slope_bytes / scale / unit_ns
    epigraph[np.arange(n_rows), time.target] -= 1.0
    last, last_limit, nothing = _last_rows(n_vars, n_dims, tuple(np.flatnonzero(used).tolist()))
    matrix = sparse.csc_matrix(np.vstack([linear[equal], epigraph, linear[below], last]))
    right = np.concatenate([limit[equal], -time.offset_ns / unit_ns, limit[below], last_limit])
    kinds = [clarabel.ZeroConeT(equal.size), clarabel.NonnegativeConeT(n_rows + below.size + n_dims)]
    kinds += [clarabel.SecondOrderConeT(3)] * int(used.sum())
    price = np.concatenate([time.weight, np.zeros(2 * n_dims)])
    worth = max(float(time.weight.max(initial=0.0)), 1e-300)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(nothing, price / worth, matrix, right, kinds, settings).solve()
    if str(solution.status) not in ("Solved", "AlmostSolved", "InsufficientProgress"):
        raise WeftError(f"no least time was found: the solver reports {solution.status}")
    point, dual = np.array(solution.x), np.array(solution.z) * worth
    rows = dual[equal.size : equal.size + n_rows]
    multiplier = np.zeros(size.size)
    multiplier[equal] = dual[: equal.size]
    multiplier[below] = dual[equal.size + n_rows : equal.size + n_rows + below.size]
    bandwidth = np.maximum(point[n_vars + n_dims :], 0.0) * scale
    return bandwidth, rows, multiplier * unit_ns / size


@lru_cache(maxsize=64)
def _last_rows(n_vars: int, n_dims: int, used: tuple[int, ...]) -> tuple[F64, F64, Any]:
    """What solves of one shape have in common: the last rows and their limits, and a quadratic objective of nothing.

    B_d >= 0, and for each used dimension u b >= 1 as (u + b, u - b, 2) in the second-order cone.
    """
    n_all = n_vars + 2 * n_dims
    cones = np.zeros((len(used), 3, n_all))
    for cone, dim in zip(cones, used, strict=True):
        cone[:2, n_vars + dim], cone[:2, n_vars + n_dims + dim] = -1.0, (-1.0, 1.0)
    nonnegative = np.eye(n_dims, n_all, n_vars + n_dims) * -1.0
    limit = np.concatenate([np.zeros(n_dims), np.tile([0.0, 0.0, 2.0], len(used))])
    nothing = imported("scipy.sparse").csc_matrix((n_all, n_all))
    return np.vstack([nonnegative, cones.reshape(-1, n_all)]), limit, nothing
