"""The convex model of a simulated time: rows from critical paths, above floors that hold everywhere."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sim.analytic.constraints import Constraint, Feasible
from sim.analytic.convex import Epigraph, EpigraphRow
from sim.analytic.traffic import F64
from sim.optimizer.objective import Evaluation

ROUNDING = 1e-5
"""Services are rounded up to whole picoseconds: a row this little above a time does not contradict it."""


class Row(NamedTuple):
    """A critical path: below `part`'s time wherever the order of service is the same."""

    part: int
    offset_ns: float
    slope_bytes: F64

    def at(self, bandwidth_GBps: F64) -> float:
        """Its length in ns."""
        return float(self.offset_ns + (self.slope_bytes / bandwidth_GBps).sum())

    def above(self, one: Evaluation) -> bool:
        """Whether it is longer than the simulated time: the order of service is different there."""
        return self.at(one.bandwidth_GBps) > one.parts[self.part].time_ns * (1 + ROUNDING)

    def lowered_onto(self, one: Evaluation) -> "Row":
        """The row, moved down if it lies above the simulated time."""
        over = self.at(one.bandwidth_GBps) - one.parts[self.part].time_ns
        return self if over <= 0 else self._replace(offset_ns=self.offset_ns - over)


def paths_of(found: Evaluation) -> list[Row]:
    """The critical paths of a simulated point."""
    return [
        Row(index, part.time_ns - float(part.service_ns.sum()), part.service_ns * found.bandwidth_GBps)
        for index, part in enumerate(found.parts)
    ]


def convex_model(
    constant_ns: float, weights: Sequence[float], floors: Sequence[Epigraph], paths: Iterable[Row], n_dims: int
) -> Epigraph:
    """The weighted sum of parts that are above their floors and above their paths.

    `weights`: of the parts.
    `floors`: one per part, or none at all.
    """
    first = np.cumsum([0, *(floor.weight.size for floor in floors)]).tolist()
    n_vars = first[-1] + len(weights)
    rows: list[EpigraphRow] = []
    for part, floor in enumerate(floors):
        wide = np.zeros((floor.target.size + 1, n_vars))
        own = slice(first[part], first[part + 1])
        wide[:-1, own], wide[-1, own] = floor.inner, floor.weight
        target = (floor.target + first[part]).tolist()
        rows += zip(target, floor.offset_ns.tolist(), floor.slope_bytes, wide[:-1], strict=True)
        rows.append((first[-1] + part, floor.constant_ns, np.zeros(n_dims), wide[-1]))
    rows += [(first[-1] + row.part, row.offset_ns, row.slope_bytes, np.zeros(n_vars)) for row in paths]
    return Epigraph.of(constant_ns, [0.0] * first[-1] + list(weights), rows, n_dims)


def near(one: F64, other: F64, width: float) -> bool:
    """Whether no bandwidth differs by more than `width` in the logarithm."""
    return bool(np.all(np.abs(np.log(one / other)) < width))


def toward(feasible: Feasible, wanted: F64) -> F64:
    """The feasible point whose least ratio to the wanted bandwidths is largest."""
    return positive(feasible.toward(wanted))


def box_around(center: F64, width: float) -> list[Constraint]:
    """|log (B_d / center_d)| <= width for every dimension."""
    return [
        Constraint(tuple(sign * unit), sign * value * np.exp(sign * width), False, f"B{dim} in the box")
        for dim, (value, unit) in enumerate(zip(center, np.eye(center.size), strict=True), start=1) for sign in (1, -1)
    ]


def positive(bandwidth: F64) -> F64:
    """A point that an engine can run: a dimension without traffic still needs some bandwidth."""
    return rounded(np.maximum(bandwidth, 1e-9 * bandwidth.max()))


def rounded(bandwidth: F64) -> F64:
    """To 12 digits: a solver ends a little below a round rate, where each service takes a picosecond more."""
    return np.array([float(f"{one:.12g}") for one in bandwidth])
