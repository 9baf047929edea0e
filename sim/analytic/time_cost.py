"""Least time x cost under any linear constraints, by a certified search over the cost.

For a network that may cost at most c the least time T(c) is a convex problem, and T falls with c and is convex in it.
Every solve gives T at one c and, from its certificate, a line below T everywhere. Between two solves c T(c) is at
least the minimum of c times the two lines, a concave function on either side of where they cross: it is least at an
end or at the crossing. The search solves where that minimum is least, until nothing can be better.
"""

import itertools
from typing import NamedTuple

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.convex import Epigraph, Least, least_time
from sim.analytic.cost import Cost
from sim.analytic.traffic import F64
from topologies import WeftError

TOLERANCE = 1e-7
MAX_SOLVES = 200


class LeastProduct(NamedTuple):
    """The least time x cost, where it is reached, and a lower bound."""

    bandwidth_GBps: F64  # (D,)
    time_ns: float
    cost: float
    bound: float  # ns x $; no feasible bandwidth has less
    solves: int  # convex problems solved

    @property
    def product(self) -> float:
        """ns x $."""
        return self.time_ns * self.cost

    @property
    def gap(self) -> float:
        """Relative distance to the bound."""
        return self.product / self.bound - 1.0


class _Point(NamedTuple):
    """One solve: the optimum at a cost limit, and a line `value + slope (c - limit)` below the least time."""

    limit: float
    least: Least
    slope: float

    def line(self, cost: float) -> float:
        return self.least.certificate.bound_ns + self.slope * (cost - self.limit)


def check_well_posed(feasible: Feasible, cost: Cost) -> None:
    """Reject time x cost where shrinking the network to nothing always pays.

    WeftError: the cost has no fixed term and the constraints allow every bandwidth to go to zero.
    """
    if cost.fixed == 0.0 and feasible.contains_zero:
        raise WeftError(
            "time x cost has no optimum: the cost has no fixed term and the constraints let all bandwidths shrink to "
            "zero, where communication time x cost stays as it is and compute time x cost vanishes; spend the budget "
            "in full (sum of B = budget), or give the cost of what does not depend on bandwidth"
        )


def least_time_cost(
    time: Epigraph, feasible: Feasible, cost: Cost, tolerance: float = TOLERANCE, caps_GBps: F64 | None = None
) -> LeastProduct:
    """The bandwidths of least time x cost.

    `tolerance`: relative gap at which the search ends.
    `caps_GBps` (D,): as of `least_time`.
    WeftError: the problem is ill-posed, or the gap does not close.
    """
    check_well_posed(feasible, cost)
    caps = feasible.caps_GBps if caps_GBps is None else caps_GBps
    fastest = least_time(time, feasible, caps)
    top = cost.of(fastest.bandwidth_GBps)  # a more expensive network is no faster
    least = feasible.cheapest(cost.price)
    low = cost.of(least)
    points = [_Point(top, fastest, 0.0)]
    for solves in range(1, MAX_SOLVES):
        bound, at = _weakest(points, low)
        best = min((point.least for point in points), key=lambda one: one.time_ns * cost.of(one.bandwidth_GBps))
        found = LeastProduct(best.bandwidth_GBps, best.time_ns, cost.of(best.bandwidth_GBps), bound, solves)
        if found.gap <= tolerance:
            return found
        inside = least + (at - low) / max(top - low, 1e-300) * (fastest.bandwidth_GBps - least)
        points = sorted([*points, _solve_at(time, feasible, cost, at, caps, inside)], key=lambda point: point.limit)
    raise WeftError(f"time x cost: the gap is still {found.gap:.1e} after {MAX_SOLVES} solves")


def _weakest(points: list[_Point], low: float) -> tuple[float, float]:
    """A lower bound of c T(c) over all costs, and the cost at which to solve next."""
    first, last = points[0], points[-1]
    cheap = low * max(first.line(low), last.line(low))
    found = [(cheap, 0.5 * (low + first.limit))]
    found += [(point.limit * point.line(point.limit), point.limit) for point in points]
    for left, right in itertools.pairwise(points):
        cross = _crossing(left, right)
        found.append((cross * max(left.line(cross), right.line(cross)), cross))
    return min(found)


def _crossing(left: _Point, right: _Point) -> float:
    """Where two lines cross."""
    fall = right.slope - left.slope
    if fall <= 0:
        return 0.5 * (left.limit + right.limit)
    cross = (left.line(0.0) - right.line(0.0)) / fall
    return min(max(cross, left.limit), right.limit)


def _solve_at(time: Epigraph, feasible: Feasible, cost: Cost, limit: float, caps: F64, inside: F64) -> _Point:
    row = Constraint(tuple(cost.price.tolist()), limit - cost.fixed, False, f"cost <= {limit:g} $")
    cheaper = Feasible((*feasible.constraints, row), feasible.n_dims, inside=np.maximum(inside, 1e-9 * inside.max()))
    # With the caps of the larger set the bound is linear in the limit: a line below the least time at any cost.
    least = least_time(time, cheaper, caps)
    return _Point(limit, least, -float(least.certificate.multiplier[-1]))
