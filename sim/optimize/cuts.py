"""Least simulated time by cutting planes from critical paths.

For a fixed order of service the simulated time is a maximum over paths of constant + sum w_d / B_d, convex in the
bandwidths. Each run gives the path that was longest there: a row of a convex model (`Epigraph`), whose optimum is the
next point to simulate. Plain descent would stall where several dimensions tie, which is where the optimum lies; rows
meet there. Where the order of service changes a row may lie above the time elsewhere: the model is then trusted in a
smaller box around the best point, and rows that contradict what was simulated there are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.convex import least_time
from sim.analytic.cost import Cost
from sim.analytic.epigraph import Epigraph
from sim.analytic.time_cost import check_well_posed, least_time_cost
from sim.analytic.traffic import F64
from sim.optimize.objective import Evaluation, Objective
from topologies import WeftError

GOALS = ("time", "time-cost")
TOLERANCE = 1e-4
MAX_EVALUATIONS = 60
FIRST_BOX, LARGEST_BOX, LEAST_BOX = 1.0, 4.0, 1e-4
"""Half-width of the box in the logarithm of the bandwidths."""
SAME_END = 0.01


class Optimum(NamedTuple):
    """What the optimizer found.

    Attributes
    ----------
    best : Evaluation
    starts : tuple of Evaluation
        The points it began from, simulated.
    value, bound : float
        ns, or ns x $; nothing feasible is below the bound, None where no floor is known.
    evaluations, runs, replays : int
        Choices of bandwidths looked at; programs simulated by the engine; programs replayed from a tape.
    history : tuple of float
        Best value after each evaluation.
    ended : str
        Why it stopped.
    """

    best: Evaluation
    starts: tuple[Evaluation, ...]
    value: float
    bound: float | None
    evaluations: int
    runs: int
    replays: int
    history: tuple[float, ...]
    ended: str

    @property
    def gap(self) -> float | None:
        """Relative distance to the bound."""
        return None if self.bound is None else self.value / self.bound - 1.0


def optimize(
    objective: Objective,
    feasible: Feasible,
    *,
    cost: Cost | None = None,
    starts: Sequence[F64] = (),
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
) -> Optimum:
    """The bandwidths of least simulated time, or time x cost.

    Parameters
    ----------
    objective : Objective
    feasible : Feasible
    cost : Cost, optional
        Minimise time x cost instead of time.
    starts : sequence of (D,) float64
        Points to begin from besides the optimum of the floor, the middle of the feasible set and a point between them;
        the result is never worse than the best of them.
    tolerance : float
        Relative improvement that the model must promise for another run.
    max_evaluations : int

    Raises
    ------
    WeftError
        A start that the constraints forbid, or an ill-posed time x cost.
    """
    search = _Search(objective, feasible, cost, tolerance, max_evaluations)
    return search.run(starts)


class _Row(NamedTuple):
    """A critical path: below `part`'s time wherever the order of service is the same."""

    part: int
    offset_ns: float
    slope: F64

    def at(self, bandwidth: F64) -> float:
        return float(self.offset_ns + (self.slope / bandwidth).sum())


class _Search:
    def __init__(
        self, objective: Objective, feasible: Feasible, cost: Cost | None, tolerance: float, max_evaluations: int
    ) -> None:
        if cost is not None:
            check_well_posed(feasible, cost)
        self.objective, self.feasible, self.cost = objective, feasible, cost
        self.tolerance, self.max_evaluations = tolerance, max_evaluations
        self.before = objective.runs, objective.replays
        self.floor = objective.floor
        self.rows: list[_Row] = []
        self.seen: list[Evaluation] = []
        self.history: list[float] = []

    def run(self, starts: Sequence[F64]) -> Optimum:
        bound, points = self._starts(starts)
        begun: list[Evaluation] = []
        for point in points:
            if not any(_near(point, one.bandwidth_GBps, 1e-6) for one in begun):
                begun.append(self._look(point))
        ended, reached = "", list[F64]()
        for start in sorted(begun, key=self._value):
            ended = self._descend(start, reached)
        best = min(self.seen, key=self._value)
        runs, replays = self.objective.runs - self.before[0], self.objective.replays - self.before[1]
        return Optimum(
            best, tuple(begun), self._value(best), bound, len(self.seen), runs, replays, tuple(self.history), ended
        )

    def _starts(self, given: Sequence[F64]) -> tuple[float | None, list[F64]]:
        """The certified bound of the floor, and points to begin from.

        The floor is right with many chunks; with one, bandwidths go with the square root of the bytes. The points are
        those asked for, the optimum of the floor, the middle of the feasible set and a point half-way between.
        """
        for point in given:
            if self.feasible.violation(point) > 1e-6:
                raise WeftError(f"start {np.round(point, 4).tolist()} GB/s does not satisfy the constraints")
        middle = self.feasible.middle_GBps
        bound, lowest = self._floor_optimum()
        if lowest is None:
            return bound, [*given, middle]
        half = _toward(self.feasible, np.sqrt(lowest * middle))
        return bound, [*given, lowest, half, middle]

    def _floor_optimum(self) -> tuple[float | None, F64 | None]:
        """The certified bound of the floor, and where the floor is least."""
        if self.floor is None:
            return None, None
        if self.cost is None:
            least = least_time(self.floor, self.feasible)
            return least.certificate.bound_ns, _positive(least.bandwidth_GBps)
        product = least_time_cost(self.floor, self.feasible, self.cost)
        return product.bound, _positive(product.bandwidth_GBps)

    def _value(self, one: Evaluation) -> float:
        return one.time_ns * (self.cost.of(one.bandwidth_GBps) if self.cost is not None else 1.0)

    def _look(self, point: F64) -> Evaluation:
        """Simulate a point."""
        found = self.objective.evaluate(point)
        self.seen.append(found)
        self.history.append(min([self._value(found), *self.history[-1:]]))
        return found

    def _keep_paths(self, found: Evaluation) -> None:
        """The critical paths of a point, as rows of the model."""
        for index, part in enumerate(found.parts):
            constant = part.time_ns - float(part.service_ns.sum())
            self.rows.append(_Row(index, constant, part.service_ns * found.bandwidth_GBps))

    def _descend(self, best: Evaluation, reached: list[F64]) -> str:
        """Go down from a point; `reached` are the ends of earlier descents, where this one stops, and gets its own."""
        box = FIRST_BOX
        self.rows = []
        self._keep_paths(best)
        while len(self.seen) < self.max_evaluations:
            if any(_near(best.bandwidth_GBps, end, SAME_END) for end in reached):
                return "every descent ends at the same point"
            self._lower_contradicted(best)
            point, promised = self._model_optimum(best, box)
            gain = self._value(best) - promised
            free = _near(point, best.bandwidth_GBps, 0.99 * box)
            if gain <= self.tolerance * self._value(best):
                if free or box >= LARGEST_BOX:
                    reached.append(best.bandwidth_GBps)
                    return "the model promises no more"
                box = min(2 * box, LARGEST_BOX)
                continue
            found = self._look(point)
            self._keep_paths(found)
            won = self._value(best) - self._value(found)
            if won < 0.1 * gain and self._contradicts(found, best, won):
                box = 0.5 * min(box, float(np.abs(np.log(point / best.bandwidth_GBps)).max()))
            elif won > 0.5 * gain and not free:
                box = min(2 * box, LARGEST_BOX)
            if won > 0:
                best = found
            if box < LEAST_BOX:
                reached.append(best.bandwidth_GBps)
                return "the order of service changes in every direction"
        return f"{self.max_evaluations} evaluations are used up"

    def _contradicts(self, found: Evaluation, best: Evaluation, won: float) -> bool:
        """Whether the order of service changed between two points: a path of one is longer than the time at the other."""
        newest = self.rows[-len(found.parts) :]
        return won > 0 or any(row.at(best.bandwidth_GBps) > best.parts[row.part].time_ns * (1 + 1e-6) for row in newest)

    def _lower_contradicted(self, best: Evaluation) -> None:
        """Lower rows that lie above the time at the best point onto it: they were paths of another order there."""
        kept = []
        for row in self.rows:
            over = row.at(best.bandwidth_GBps) - best.parts[row.part].time_ns
            kept.append(row if over <= 0 else row._replace(offset_ns=row.offset_ns - over))
        self.rows = kept

    def _model_optimum(self, best: Evaluation, box: float) -> tuple[F64, float]:
        model = self._model(best)
        narrowed = Feasible((*self.feasible.constraints, *_box(best.bandwidth_GBps, box)), self.objective.n_dims)
        if self.cost is None:
            least = least_time(model, narrowed)
            return _positive(least.bandwidth_GBps), least.certificate.bound_ns
        product = least_time_cost(model, narrowed, self.cost, tolerance=0.1 * self.tolerance)
        return _positive(product.bandwidth_GBps), product.bound

    def _model(self, best: Evaluation) -> Epigraph:
        """All rows, and those of the floor, which hold everywhere."""
        n_dims = self.objective.n_dims
        target = [row.part for row in self.rows]
        offset = [row.offset_ns for row in self.rows]
        slope = [row.slope for row in self.rows]
        if self.floor is not None:
            target += self.floor.target.tolist()
            offset += self.floor.offset_ns.tolist()
            slope += list(self.floor.slope_bytes)
        return Epigraph(
            constant_ns=best.constant_ns,
            weight=np.array([part.weight for part in best.parts]),
            target=np.array(target, np.int64),
            offset_ns=np.array(offset),
            slope_bytes=np.array(slope).reshape(-1, n_dims),
            inner=np.zeros((len(target), len(best.parts))),
        )


def _near(one: F64, other: F64, width: float) -> bool:
    """Whether no bandwidth differs by more than `width` in the logarithm."""
    return bool(np.all(np.abs(np.log(one / other)) < width))


def _toward(feasible: Feasible, wanted: F64) -> F64:
    """The feasible point whose least ratio to the wanted bandwidths is largest."""
    n_dims = wanted.size
    scaled = [
        Constraint(tuple(np.asarray(one.coefficients) * wanted), one.bound, one.equal, one.text)
        for one in feasible.constraints
    ]
    return _positive(Feasible(scaled, n_dims).middle_GBps * wanted)


def _box(centre: F64, width: float) -> list[Constraint]:
    """|log (B_d / centre_d)| <= width for every dimension."""
    rows = []
    for dim, value in enumerate(centre):
        unit = np.eye(centre.size)[dim]
        rows.append(Constraint(tuple(unit), value * np.exp(width), False, f"B{dim + 1} in the box"))
        rows.append(Constraint(tuple(-unit), -value * np.exp(-width), False, f"B{dim + 1} in the box"))
    return rows


def _positive(bandwidth: F64) -> F64:
    """A point that an engine can run: a dimension without traffic still needs some bandwidth."""
    return np.maximum(bandwidth, 1e-9 * bandwidth.max())
