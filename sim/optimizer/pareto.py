"""Time over cost: the best design at each total bandwidth, and which of them are not dominated."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sim.analytic.constraints import Feasible, budget
from sim.analytic.cost import Cost
from sim.optimizer.design import Design, equal_split


class FrontPoint(NamedTuple):
    """The best design at a total bandwidth, and the equal split."""

    total_GBps: float
    design: Design
    cost: float
    equal_cost: float
    dominated: bool  # whether another point is faster and costs no more

    def row(self) -> dict[str, Any]:
        """The point as plain data."""
        return {
            "total_GBps": self.total_GBps, "bandwidth_GBps": self.design.bandwidth_GBps.tolist(), "cost": self.cost,
            "time_s": self.design.time_ns / 1e9, "equal_cost": self.equal_cost,
            "equal_time_s": self.design.equal_time_ns / 1e9, "dominated": self.dominated,
        }


def pareto_front(totals: Iterable[float], cost: Cost, solve: Callable[[Feasible], Design]) -> list[FrontPoint]:
    """Solve for each total bandwidth.

    `totals`: GB/s of an NPU over all dimensions.
    """
    n_dims = cost.price.size
    found = []
    for total in totals:
        feasible = Feasible([budget(float(total), n_dims, spent=True)], n_dims)
        design = solve(feasible)
        equal = cost.of(equal_split(design.bandwidth_GBps, feasible))
        found.append(FrontPoint(float(total), design, cost.of(design.bandwidth_GBps), equal, False))
    return [
        point._replace(dominated=any(
            other.cost <= point.cost and other.design.time_ns < point.design.time_ns for other in found
        ))
        for point in found
    ]
