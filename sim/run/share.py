"""One tenant's part of a run."""

from __future__ import annotations

from dataclasses import dataclass

from sim.faults.cost import slowdown, times
from topologies.units import format_time


@dataclass(frozen=True)
class Share:
    """One tenant's part of a run."""

    name: str
    time_ps: int  # from its arrival to its end
    alone_ps: int  # the same with the fabric to itself, and healthy
    arrival_ps: int = 0
    operations: range = range(0)  # its operations in the job of all tenants

    @property
    def slowdown(self) -> float:
        """Time over the time alone; 1 where both are 0, and infinite where it takes no time alone."""
        return slowdown(self.time_ps, self.alone_ps)

    def __str__(self) -> str:
        return f"{self.name}: {format_time(self.time_ps)}, alone {format_time(self.alone_ps)} {times(self.slowdown)}"
