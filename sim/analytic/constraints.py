"""Linear constraints on the bandwidths of the dimensions: budgets, fixed, ordered and capped dimensions."""

import math
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from sim.analytic.traffic import F64
from topologies.checks import Count, InUnit, Number, WeftError, checked
from topologies.text.brief import WIDTH, cut, one_line
from topologies.units import counted, parse_bandwidth

GBps = Annotated[float, InUnit(Number(0, above=True), lambda text, what: parse_bandwidth(text, what) / 1e9, "100GB/s")]

MOST = 1e15
"""In GB/s, or in dollars."""

SAME = 1e-14
"""Relative error of a sum of a few bandwidths."""

_SIDES = re.compile(r"(<=|>=|==|=)")
_TERM = re.compile(r"^(?:(?P<factor>[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*\*?\s*)?B(?P<dim>[0-9]+)$")


@one_line
@dataclass(frozen=True)
class Constraint:
    """`coefficients . B <= bound`, or `=`, with B in GB/s."""

    coefficients: tuple[float, ...]
    bound: float
    equal: bool
    text: str  # as the user wrote it, for messages

    @property
    def is_budget(self) -> bool:
        """Whether it limits the sum of all bandwidths from above."""
        return len(set(self.coefficients)) == 1 and self.coefficients[0] > 0


@checked
def budget(total_GBps: GBps, n_dims: Count, *, spent: bool) -> Constraint:
    """The sum over dimensions is at most `total_GBps` (or "100GB/s"), and equal to it if it must be `spent`."""
    sign = "=" if spent else "<="
    return Constraint((1.0,) * n_dims, total_GBps, spent, f"sum of B {sign} {total_GBps:g} GB/s")


def parse_constraint(text: str, n_dims: int) -> Constraint:
    """Parse a constraint as users write it: "B1 >= B2", "B3 + B4 = 200GB/s", "2*B1 <= B2 + 10".

    B1 is the bandwidth of an NPU into dimension 1, the innermost; a bare number is GB/s.

    WeftError: not of this form, or a dimension that is not there.
    """
    sides = _SIDES.split(text)
    if len(sides) != 3:
        raise WeftError(f"constraint {text!r}: write two sums joined by one of <=, >=, =, such as B1 >= 2*B2")
    left, right = (_sum(side, text, n_dims) for side in (sides[0], sides[2]))
    row, bound = left[0] - right[0], right[1] - left[1]
    if sides[1] == ">=":
        row, bound = -row, -bound
    if not row.any():
        raise WeftError(f"constraint {text!r} constrains no dimension: they are B1 to B{n_dims}")
    return Constraint(tuple(row.tolist()), bound, sides[1] in ("=", "=="), text)


def _sum(side: str, text: str, n_dims: int) -> tuple[F64, float]:
    row, constant = np.zeros(n_dims), 0.0
    if not side.strip():
        raise WeftError(f"constraint {text!r}: one side is empty")
    for sign, term in re.findall(r"([+-]?)\s*((?:[eE][+-]|[^+-])+)", side.strip()):
        term, factor = term.strip(), -1.0 if sign == "-" else 1.0
        match = _TERM.match(term)
        if match is None:
            constant += factor * _rate(term, text)
            continue
        dim = int(match["dim"])
        if not 1 <= dim <= n_dims:
            raise WeftError(f"constraint {text!r}: no dimension B{dim}; the network has B1 to B{n_dims}")
        row[dim - 1] += factor * float(match["factor"] or 1)
    return row, constant


def _rate(term: str, text: str) -> float:
    try:
        if math.isfinite(float(term)):
            return float(term)
    except ValueError:
        pass
    try:
        return parse_bandwidth(term) / 1e9
    except WeftError:
        raise WeftError(f"constraint {text!r}: {term!r} is neither a dimension such as B1 nor a rate in GB/s") from None


@checked
class Feasible:
    """The bandwidths that satisfy all constraints; rejects an empty set when it is built.

    Parameters
    ----------
    constraints : sequence of Constraint
    n_dims : int
    inside : (D,) float64, optional
        A point that is known to satisfy them, so that none is looked for.

    Raises
    ------
    WeftError
        Names a minimal set of constraints that contradict each other, or the dimension left without bandwidth.
    """

    def __init__(self, constraints: Sequence[Constraint], n_dims: int, *, inside: F64 | None = None) -> None:
        self.constraints, self.n_dims = tuple(constraints), n_dims
        for one in self.constraints:
            if len(one.coefficients) != n_dims:
                count = len(one.coefficients)
                raise WeftError(f"constraint {one.text!r} has {counted(count, 'dimension')}; the network has {n_dims}")
        self.matrix = np.array([one.coefficients for one in self.constraints], np.float64).reshape(-1, n_dims)
        self.bound = np.array([one.bound for one in self.constraints], np.float64)
        self.equal = np.array([one.equal for one in self.constraints], bool)
        if (large := next((one for one in self.constraints if abs(one.bound) > MOST), None)) is not None:
            raise WeftError(f"constraint {large.text}: the most that a solver tells apart from its error is {MOST:g}")
        self._inside = inside
        if inside is None:
            if self._widest is None:
                self._refuse_empty()
            self._refuse_starved()

    def __repr__(self) -> str:
        return f"<{cut('; '.join(one.text for one in self.constraints) or 'all bandwidths', WIDTH - 20)}>"

    @property
    def contains_zero(self) -> bool:
        """Whether all bandwidths may shrink to zero together."""
        return bool(np.all(np.where(self.equal, self.bound == 0, self.bound >= 0)))

    @cached_property
    def caps_GBps(self) -> F64:
        """The most that each dimension can have, (D,); infinite where nothing limits it."""
        caps = np.full(self.n_dims, np.inf)
        for dim in range(self.n_dims):
            result = self._extreme(-np.eye(self.n_dims)[dim])
            if result is not None:
                caps[dim] = result[dim] * (1 + 1e-9)  # a cap may be too loose, never too tight
        return caps

    @cached_property
    def most_GBps(self) -> float:
        """The largest sum of all bandwidths; infinite where nothing limits it."""
        result = self._extreme(-np.ones(self.n_dims))
        return float("inf") if result is None else float(result.sum()) * (1 + 1e-9)

    @cached_property
    def middle_GBps(self) -> F64:
        """A point bounded away from zero in every dimension, (D,)."""
        if self._inside is not None:
            return self._inside
        assert self._widest is not None  # it was refused
        return self._widest

    def toward(self, wanted_GBps: F64) -> F64:
        """The point whose least ratio to some bandwidths, all above zero, is largest, (D,)."""
        scaled = copy(self)
        vars(scaled).pop("_widest", None)
        scaled.matrix = self.matrix * wanted_GBps
        assert scaled._widest is not None  # as these
        return scaled._widest * wanted_GBps

    def cheapest(self, price: F64) -> F64:
        """Where `price . B` is least, (D,)."""
        result = self._extreme(price)
        return np.zeros(self.n_dims) if result is None else result

    def violation(self, bandwidth_GBps: F64) -> float:
        """Relative violation of the worst constraint."""
        if not self.constraints:
            return 0.0
        over = self.matrix @ bandwidth_GBps - self.bound
        over = np.where(self.equal, np.abs(over), over)
        scale = np.maximum(np.abs(self.matrix) @ np.abs(bandwidth_GBps), np.abs(self.bound))
        return float(np.max(over / np.maximum(scale, 1e-300)))

    def _linprog(self, price: F64, rows: slice | list[int] = slice(None), extra_low: F64 | None = None) -> Any:
        from scipy.optimize import linprog  # heavy: loaded where it is used

        matrix, bound, equal = self.matrix[rows], self.bound[rows], self.equal[rows]
        width = price.size
        if width > self.n_dims:
            matrix = np.hstack([matrix, np.zeros((len(matrix), width - self.n_dims))])
        upper, limit = matrix[~equal], bound[~equal]
        if extra_low is not None:
            upper, limit = np.vstack([upper, extra_low]), np.concatenate([limit, np.zeros(len(extra_low))])
        return linprog(
            price,
            A_ub=upper if upper.size else None, b_ub=limit if upper.size else None,
            A_eq=matrix[equal] if equal.any() else None, b_eq=bound[equal] if equal.any() else None,
            bounds=(0, None), method="highs",
        )

    def _extreme(self, price: F64) -> F64 | None:
        if len(self.constraints) == 1 and (self.matrix > 0).all() and (price <= 0).all() and price.any():
            dim = int(np.argmin(price / self.matrix[0]))  # all into the dimension where a share of the limit gains most
            most: F64 = np.eye(self.n_dims)[dim] * self.bound[0] / self.matrix[0, dim]
            return most
        result = self._linprog(price)
        return np.asarray(result.x, np.float64) if result.status == 0 else None

    @cached_property
    def _widest(self) -> F64 | None:
        """The point with the largest minimum bandwidth; None where there may be no point."""
        limits = (self.matrix > 0).all(axis=1)
        equal = np.full(self.n_dims, (self.bound[limits] / self.matrix[limits].sum(axis=1)).min(initial=np.inf))
        if limits.any() and equal[0] > 0 and self.violation(equal) <= SAME:
            return equal  # the only one: where all are more, the limit that all share is exceeded
        low = np.hstack([-np.eye(self.n_dims), np.ones((self.n_dims, 1))])
        price = np.zeros(self.n_dims + 1)
        price[-1] = -1.0
        result = self._linprog(price, extra_low=low)
        if result.status == 3:  # nothing limits it: any point will do
            return np.ones(self.n_dims)
        return np.asarray(result.x[:-1], np.float64) if result.status == 0 else None

    def _refuse_empty(self) -> None:
        nothing = np.zeros(self.n_dims)
        if not self.constraints or self._linprog(nothing).status != 2:
            return
        kept = list(range(len(self.constraints)))
        for row in list(kept):  # drop rows that the contradiction does not need
            fewer = [other for other in kept if other != row]
            if fewer and self._linprog(nothing, fewer).status == 2:
                kept = fewer
        texts = "; ".join(self.constraints[row].text for row in kept)
        what = "cannot be met" if len(kept) == 1 else "contradict each other"
        raise WeftError(f"constraints {what} with bandwidths of zero or more: {texts}")

    def _refuse_starved(self) -> None:
        assert self._widest is not None, "constraints that can be met have a widest point"
        point = self._widest
        if point.min() <= 1e-9 * max(float(point.max()), 1e-300):
            for dim in range(self.n_dims):
                best = self._extreme(-np.eye(self.n_dims)[dim])
                if best is not None and best[dim] <= 1e-9 * max(float(point.max()), 1.0):
                    texts = "; ".join(one.text for one in self.constraints)
                    raise WeftError(f"constraints leave dimension {dim + 1} without any bandwidth: {texts}")
