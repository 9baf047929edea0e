"""Bandwidth comes in lanes: the best integer multiples of a lane, by branch and bound.

A box of lane counts is bounded by the least floor over its real bandwidths: no lanes in it are better. Boxes are
explored best bound first, each at the lanes nearest to its optimum, and cut there, until none can hold better lanes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.convex import Epigraph, least_time
from sim.analytic.cost import Cost, worth
from sim.analytic.time_cost import least_time_cost
from sim.analytic.traffic import F64
from sim.optimizer.design import Design, equal_split
from sim.optimizer.model import rounded
from topologies import WeftError

MOST_BOXES = 1000
"""Limit on the boxes that are cut."""
WHOLE = 1e-6
"""A count this close to an integer is one."""

Counts = tuple[int, ...]


def whole_lanes(
    design: Design, lane_GBps: float, feasible: Feasible, cost: Cost | None, evaluate: Callable[[F64], float],
    floor: Epigraph, *, max_evaluations: int,
) -> Design:
    """The best integer numbers of lanes, at least one in each dimension.

    A budget that must be spent may be left over in part, by less than one lane per dimension: integer numbers of lanes
    rarely add up to it. `evaluate` gives ns at (D,) GB/s, of which `floor` is a lower bound. The answer is never worse
    than the lanes nearest to `design` and to the equal split, and says in `ended` whether it is proved best, or how
    much better lanes that were not looked at can be.

    WeftError: no integer numbers of lanes satisfy the constraints, or nothing limits a dimension.
    """
    search = _Search(lane_GBps, loosened(feasible, lane_GBps), cost, evaluate, floor, max_evaluations)
    open_boxes = search.run((design.bandwidth_GBps, equal_split(design.bandwidth_GBps, feasible)))
    if search.best is None:
        raise WeftError(f"no whole lanes of {lane_GBps:g} GB/s satisfy the constraints")
    value, best = search.best
    proved = "no other lanes are better"
    if open_boxes:
        gain = 1.005 * (1 - min(open_boxes) / value)  # three digits are never less than it is
        proved = f"{len(open_boxes)} sets of lanes not excluded, better by at most {gain:.3g} of the value"
    return replace(
        design, bandwidth_GBps=best, time_ns=evaluate(best), equal_time_ns=evaluate(equal_split(best, feasible)),
        value=value, ended=f"whole lanes of {lane_GBps:g} GB/s: {proved}",
    )


def in_lanes(bandwidth_GBps: F64, lane_GBps: float | None) -> bool:
    """Whether all bandwidths are multiples of a lane, if they come in lanes."""
    if lane_GBps is None:
        return True
    return bool(np.allclose(np.rint(bandwidth_GBps / lane_GBps) * lane_GBps, bandwidth_GBps))


def loosened(feasible: Feasible, lane_GBps: float) -> Feasible:
    """The constraints that whole lanes have to satisfy."""
    return Feasible([row for one in feasible.constraints for row in _loosened(one, lane_GBps)], feasible.n_dims)


def _loosened(one: Constraint, lane_GBps: float) -> list[Constraint]:
    """A sum that must be met exactly becomes a limit that is missed by less than a lane per dimension."""
    if not one.equal or not all(value >= 0 for value in one.coefficients):
        return [one]
    least = one.bound - lane_GBps * sum(one.coefficients)
    below = Constraint(tuple(-value for value in one.coefficients), -least, False, one.text)
    return [replace(one, equal=False), below]


class _Search:
    def __init__(
        self, lane_GBps: float, feasible: Feasible, cost: Cost | None, evaluate: Callable[[F64], float],
        floor: Epigraph, max_evaluations: int,
    ) -> None:
        self.lane, self.feasible, self.cost, self.evaluate = lane_GBps, feasible, cost, evaluate
        self.floor, self.max_evaluations = floor, max_evaluations
        self.seen: set[Counts] = set()
        self.best: tuple[float, F64] | None = None
        self.boxes: list[tuple[float, int, Counts, Counts, F64]] = []  # bound, number, low, high, counts at the bound
        self.pushed = 0

    def run(self, starts: Sequence[F64]) -> list[float]:
        """Find `best`, from the lanes nearest to some bandwidths on; bounds of the boxes that may hold better lanes."""
        caps = self.feasible.caps_GBps
        if np.any(np.isinf(caps)):
            dim = int(np.flatnonzero(np.isinf(caps))[0]) + 1
            raise WeftError(f"nothing limits the lanes of dimension {dim}: give a budget or a cap")
        low, high = (1,) * caps.size, tuple(np.floor(caps / self.lane + WHOLE).astype(int).tolist())
        if all(most >= 1 for most in high):
            for start in starts:
                self._try(low, high, start / self.lane)
        self._push(low, high)
        cut = 0
        while self.boxes and self._hopeful(self.boxes[0][0]):
            if cut >= MOST_BOXES or len(self.seen) >= self.max_evaluations:
                return [bound for bound, *_ in self.boxes if self._hopeful(bound)]
            _, _, low, high, counts = heappop(self.boxes)
            self._try(low, high, counts)
            self._cut(low, high, counts)
            cut += 1
        return []

    def _hopeful(self, bound: float) -> bool:
        return self.best is None or bound < self.best[0]

    def _push(self, low: Counts, high: Counts) -> None:
        """Keep a box if it has feasible bandwidths and may hold better lanes."""
        if any(one > other for one, other in zip(low, high, strict=True)):
            return
        unit = np.eye(len(low))
        rows = [
            Constraint(tuple(sign * unit[dim]), sign * ends[dim] * self.lane, False, "lanes of the box")
            for dim in range(len(low)) for sign, ends in ((1, high), (-1, low))
        ]
        try:
            box = Feasible((*self.feasible.constraints, *rows), len(low))
        except WeftError:  # empty
            return
        if self.cost is None:
            fastest = least_time(self.floor, box)
            bound, point = fastest.certificate.bound_ns, fastest.bandwidth_GBps
        else:
            least = least_time_cost(self.floor, box, self.cost)
            bound, point = least.bound, least.bandwidth_GBps
        if self._hopeful(bound):
            self.pushed += 1
            heappush(self.boxes, (bound, self.pushed, low, high, point / self.lane))

    def _try(self, low: Counts, high: Counts, counts: F64) -> None:
        """Evaluate the lanes below the real optimum of a box, with what is left given to the largest fractions."""
        lanes = np.clip(np.floor(counts + WHOLE), low, high)
        for dim in np.argsort(lanes - counts, kind="stable"):
            more = lanes + np.eye(lanes.size)[dim]
            if more[dim] <= high[dim] and self._allowed(more):
                lanes = more
        key = tuple(lanes.astype(int).tolist())
        if key in self.seen or not self._allowed(lanes):
            return
        self.seen.add(key)
        point = rounded(lanes * self.lane)
        value = worth(self.evaluate(point), point, self.cost)
        if self.best is None or value < self.best[0]:
            self.best = value, point

    def _allowed(self, lanes: F64) -> bool:
        return self.feasible.violation(lanes * self.lane) <= 1e-9

    def _cut(self, low: Counts, high: Counts, counts: F64) -> None:
        """The parts of a box on both sides of its real optimum, in the dimension that is furthest from whole lanes."""
        width = np.subtract(high, low)
        if not width.any():
            return
        off = np.abs(counts - np.round(counts)) + 1e-9 * width
        dim = int(np.argmax(np.where(width > 0, off, -1.0)))
        below = int(np.clip(np.floor(counts[dim] + WHOLE), low[dim], high[dim] - 1))
        self._push(low, (*high[:dim], below, *high[dim + 1 :]))
        self._push((*low[:dim], below + 1, *low[dim + 1 :]), high)
