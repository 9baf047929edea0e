"""Least simulated time by cutting planes from critical paths.

For a fixed order of service the simulated time is a maximum over paths of constant + sum w_d / B_d, convex in the
bandwidths. Each run gives the path that was longest there: a row of a convex model (`Epigraph`), whose optimum is the
next point to simulate. Plain descent would stall where several dimensions tie, which is where the optimum lies and
rows meet. Where the order of service changes, a row may lie above the time elsewhere: the model is then trusted in a
smaller box around the best point, and rows that contradict simulations there are dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.constraints import Feasible
from sim.analytic.convex import Epigraph, least_time
from sim.analytic.cost import Cost, worth
from sim.analytic.time_cost import check_well_posed, least_time_cost
from sim.analytic.traffic import F64
from sim.optimizer.model import ROUNDING, Row, box_around, convex_model, near, paths_of, positive, toward
from sim.optimizer.objective import Evaluation, Objective
from topologies.checks import Count, NotNegative, WeftError, checked
from topologies.stages import count, imported
from topologies.text.brief import Tabular, one_line

EVALUATIONS = "evaluations at most"
"""What a search counts."""

TOLERANCE = 1e-4
MAX_EVALUATIONS = 150
FIRST_BOX, SMALL_BOX, LARGEST_BOX, LEAST_BOX = 0.1, 0.05, 4.0, 1e-4
"""Half-width of the box in the logarithm of the bandwidths."""
SAME_END = 0.01
ON_THE_WAY = (0.85, 0.7, 0.6, 0.5, 0.35)
"""Points between the optimum of the floor (1) and the middle (0), in the logarithm."""
DESCENTS = 3
POLISH, SIMPLEX, KICKS, KICK = 15, 0.06, 3, 0.15
"""Simplex steps for each free dimension, their first size, and the spread of new starts, in the logarithm."""


@checked
@one_line
@dataclass(frozen=True, eq=False)
class Optimum(Tabular):
    """What the optimizer found.

    Attributes
    ----------
    best : Evaluation
    starts : tuple of Evaluation
        The points it began from, simulated.
    value, bound : float
        ns, or ns x $; nothing feasible is below the bound, None where no floor is known.
    time_bound_ns : float
        No feasible time is below; nan where no floor is known.
    evaluations, runs : int
        Distinct bandwidths evaluated; programs simulated by the engine.
    history : tuple of float
        Best value after each evaluation at which it can run.
    ended : str
        Why it stopped.
    """

    best: Evaluation
    starts: tuple[Evaluation, ...]
    value: float
    bound: float | None
    time_bound_ns: float
    evaluations: int
    runs: int
    history: tuple[float, ...]
    ended: str

    @property
    def gap(self) -> float | None:
        """Relative distance to the bound."""
        return None if self.bound is None else self.value / self.bound - 1.0

    def rows(self) -> list[dict[str, Any]]:
        """The best point, then those it began from: bandwidths, time, and the time that one more GB/s of each saves."""
        points = {"best": self.best} | {f"start {number}": one for number, one in enumerate(self.starts, 1)}
        return [
            {
                "point": name, "bandwidth_GBps": one.bandwidth_GBps.tolist(), "time_s": one.time_ns * 1e-9,
                "saved_s_per_GBps": (-one.slope_ns * 1e-9).tolist(),
            }
            for name, one in points.items()
        ]


@checked
def optimize(
    objective: Objective, feasible: Feasible, *, cost: Cost | None = None, starts: Sequence[F64] = (),
    tolerance: NotNegative = TOLERANCE, max_evaluations: Count = MAX_EVALUATIONS,
) -> Optimum:
    """The bandwidths of least simulated time, or time x cost.

    Parameters
    ----------
    objective : Objective
    feasible : Feasible
    cost : Cost, optional
        Minimize time x cost instead of time.
    starts : sequence of (D,) float64
        Points to begin from besides the optimum of the floor, the middle of the feasible set and a point between them;
        the result is never worse than the best of them.
    tolerance : float
        Relative improvement that the model must promise for another run.
    max_evaluations : int

    Raises
    ------
    WeftError
        A start that violates the constraints, or an ill-posed time x cost.
    """
    return _Search(objective, feasible, cost, tolerance, max_evaluations).run(starts)


class FloorOptimum(NamedTuple):
    """Where the floors of an objective are least."""

    bound: float  # ns, or ns x $: certified, nothing feasible is below
    time_bound_ns: float  # no feasible time is below
    bandwidth_GBps: F64  # (D,)


def floor_optimum(objective: Objective, feasible: Feasible, cost: Cost | None = None) -> FloorOptimum | None:
    """The least of the floors, and its certificate; None where no floor is known."""
    if not objective.floors:
        return None
    floor = floor_of(objective)
    least = least_time(floor, feasible)
    bound_ns = least.certificate.bound_ns
    if cost is None:
        return FloorOptimum(bound_ns, bound_ns, positive(least.bandwidth_GBps))
    product = least_time_cost(floor, feasible, cost)
    return FloorOptimum(product.bound, bound_ns, positive(product.bandwidth_GBps))


def floor_of(objective: Objective) -> Epigraph:
    """The weighted sum of the floors of an objective: its time is never less."""
    return model_of(objective, ())


def model_of(objective: Objective, paths: Sequence[Row]) -> Epigraph:
    """The convex model of an objective: its parts above their floors and these paths."""
    return convex_model(objective.constant_ns, objective.weights, objective.floors, paths, objective.n_dims)


class _Search:
    def __init__(
        self, objective: Objective, feasible: Feasible, cost: Cost | None, tolerance: float, max_evaluations: int
    ) -> None:
        if cost is not None:
            check_well_posed(feasible, cost)
        self.objective, self.feasible, self.cost = objective, feasible, cost
        self.tolerance, self.max_evaluations = tolerance, max_evaluations
        self.before = objective.runs
        self.rows: list[Row] = []
        self.seen: list[Evaluation] = []
        self.known: set[bytes] = set()  # their bandwidths
        self.history: list[float] = []
        self.bound: float | None = None
        self.time_bound_ns = float("nan")

    def run(self, starts: Sequence[F64]) -> Optimum:
        self.bound, points = self._starts(starts)
        begun: list[Evaluation] = []
        for point in points:
            if not any(near(point, one.bandwidth_GBps, 1e-6) for one in begun):
                begun.append(self._look(point))
        ended, reached = "", list[F64]()
        begun = [one for one in begun if one.parts]
        if not begun:
            raise WeftError(next(iter(self.objective.left_out.values())))
        for start in sorted(begun, key=self._value)[:DESCENTS]:
            ended = self._descend(start, reached)
            if not self._order_changes():
                break
        ended = self._look_around(begun, reached) or ended
        best = min(self.seen, key=self._value)
        return Optimum(
            best, tuple(begun), self._value(best), self.bound, self.time_bound_ns, len(self.seen),
            self.objective.runs - self.before, tuple(self.history), ended,
        )

    def _starts(self, given: Sequence[F64]) -> tuple[float | None, list[F64]]:
        """The certified bound of the floor, and points to begin from.

        The floor is accurate with many chunks; with one, bandwidths scale with the square root of the bytes. The points
        are those given, the optimum of the floor, the middle of the feasible set and some points between them.
        """
        for point in given:
            if self.feasible.violation(point) > 1e-6:
                raise WeftError(f"start {np.round(point, 4).tolist()} GB/s does not satisfy the constraints")
        middle = positive(self.feasible.middle_GBps)
        floor = floor_optimum(self.objective, self.feasible, self.cost)
        if floor is None:
            return None, [*given, middle]
        self.time_bound_ns, lowest = floor.time_bound_ns, floor.bandwidth_GBps
        between = [toward(self.feasible, lowest**share * middle ** (1 - share)) for share in ON_THE_WAY]
        return floor.bound, [*given, lowest, *between, middle]

    def _value(self, one: Evaluation) -> float:
        return worth(one.time_ns, one.bandwidth_GBps, self.cost)

    def _look(self, point: F64) -> Evaluation:
        found = self.objective.evaluate(point)
        if (key := found.bandwidth_GBps.tobytes()) in self.known:
            return found
        self.known.add(key)
        self.seen.append(found)
        count(EVALUATIONS, len(self.seen), self.max_evaluations)
        if found.parts:
            self.history.append(min([self._value(found), *self.history[-1:]]))
        return found

    def _descend(self, best: Evaluation, reached: list[F64], box: float = FIRST_BOX) -> str:
        """Descend from a point; `reached` are the ends of earlier descents, where this one stops; adds its own end."""
        self.rows, widest = paths_of(best), LARGEST_BOX
        while len(self.seen) < self.max_evaluations:
            if any(near(best.bandwidth_GBps, end, SAME_END) for end in reached):
                return "every descent ends at the same point"
            self.rows = [row.lowered_onto(best) for row in self.rows]
            point, promised = self._model_optimum(best, box)
            gain = self._value(best) - promised
            free = near(point, best.bandwidth_GBps, 0.99 * box)
            if gain <= self.tolerance * self._value(best):
                if free or box >= widest:
                    reached.append(best.bandwidth_GBps)
                    return "the model promises no more"
                box = min(2 * box, widest)
                continue
            n_seen = len(self.seen)
            found = self._look(point)
            is_known = len(self.seen) == n_seen  # a known point teaches nothing: boxes that lead there are too large
            won = self._value(best) - self._value(found)
            newest = paths_of(found)
            changed = not newest or any(row.above(best) for row in newest) or any(row.above(found) for row in self.rows)
            self.rows += newest
            if won < 0.1 * gain and (changed or is_known):
                box = 0.5 * min(box, float(np.abs(np.log(point / best.bandwidth_GBps)).max()))
                widest = box if is_known else widest
            elif won > 0.5 * gain and not free:
                box = min(2 * box, widest)
            if won > 0:
                best = found
            if box < LEAST_BOX:
                reached.append(best.bandwidth_GBps)
                return "the order of service changes in every direction"
        return f"stopped: limit of {self.max_evaluations} evaluations in a search reached"

    def _look_around(self, begun: Sequence[Evaluation], reached: list[F64]) -> str:
        """Simplex steps at the best point, and more if they or the paths show other orders of service.

        Then the best start also gets simplex steps (a descent from it may have stepped over a valley), and descents
        begin at random points around the best.
        """
        rng = np.random.default_rng(0)
        polished: Evaluation | None = None
        first = True
        while len(self.seen) < self.max_evaluations:
            n_seen, best = len(self.seen), min(self.seen, key=self._value)
            if self.bound is not None and self._value(best) <= self.bound * (1 + self.tolerance):
                return "nothing better can exist"
            if self.objective.n_dims == 1:
                return "there is nothing to share out"
            if best is not polished:
                self._polish(best)
            better = polished = min(self.seen, key=self._value)
            if self._value(better) > self._value(best) * (1 - self.tolerance) and not self._order_changes():
                return ""
            for start in sorted(begun, key=self._value)[:1] if first else ():
                self._polish(start)
            first = False
            better = min(self.seen, key=self._value)
            for _ in range(KICKS):
                kick = np.exp(rng.normal(0.0, KICK, self.objective.n_dims))
                if len(self.seen) < self.max_evaluations:
                    start = self._look(toward(self.feasible, better.bandwidth_GBps * kick))
                    if start.parts:
                        self._descend(start, reached, SMALL_BOX)
            if len(self.seen) == n_seen:
                return "there is nothing else to look at"
        return f"stopped: limit of {self.max_evaluations} evaluations in a search reached"

    def _polish(self, best: Evaluation) -> None:
        """A few simplex steps around the best point: no model holds across changes of the order of service."""
        n_dims = self.objective.n_dims
        steps = min(POLISH * (n_dims - 1), self.max_evaluations - len(self.seen))

        def value(logs: F64) -> float:
            return self._value(self._look(toward(self.feasible, np.exp(np.append(logs, last)))))

        *logs, last = np.log(best.bandwidth_GBps)
        simplex = np.vstack([logs, logs + SIMPLEX * (np.eye(n_dims - 1) - 0.5)])
        options = {"maxfev": steps, "initial_simplex": simplex, "xatol": 1e-5, "fatol": 0.0}
        imported("scipy.optimize").minimize(value, np.array(logs), method="Nelder-Mead", options=options)

    def _order_changes(self) -> bool:
        """Whether a critical path of one point is longer than the simulated time of another: no convex model holds."""
        points = [one for one in self.seen if one.parts]
        rows = [row for one in points for row in paths_of(one)]
        offset_ns, slope, at = (np.array(column) for column in (
            [row.offset_ns for row in rows], [row.slope_bytes for row in rows], [one.bandwidth_GBps for one in points]))
        time_ns = np.array([[part.time_ns for part in one.parts] for one in points])[:, [row.part for row in rows]]
        return bool((offset_ns + (slope / at[:, None]).sum(axis=2) > time_ns * (1 + ROUNDING)).any())

    def _model_optimum(self, best: Evaluation, box: float) -> tuple[F64, float]:
        model = model_of(self.objective, self.rows)
        center = best.bandwidth_GBps
        narrowed = Feasible((*self.feasible.constraints, *box_around(center, box)), center.size, inside=center)
        caps = np.minimum(self.feasible.caps_GBps, center * np.exp(box))
        if self.cost is None:
            least = least_time(model, narrowed, caps)
            return positive(least.bandwidth_GBps), least.certificate.bound_ns
        product = least_time_cost(model, narrowed, self.cost, 0.1 * self.tolerance, caps)
        return positive(product.bandwidth_GBps), product.bound
