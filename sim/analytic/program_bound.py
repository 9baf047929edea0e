"""A time that no run undercuts, whatever it is of: a schedule, a job, several at once, with and without faults."""

from __future__ import annotations

import numpy as np

from sim.analytic.bounds import bounds, load_bound_ps, path_bound_ps
from sim.faults.plan import FaultPlan, bound_under
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.columns import i32


def lower_bound_ps(lowered: Lowered, plan: FaultPlan | None = None) -> int:
    """Of a run with the faults of a plan, in ps; of a schedule alone also what any algorithm must move."""
    if lowered.job.alone is None:
        return program_bound_ps(lowered.program)
    return bound_under(plan, bounds(lowered if plan is None else lower(lowered.job, lowered.model)))


def program_bound_ps(program: Program) -> int:
    """Work of the busiest server, or the longest chain of dependencies, in ps.

    Faults only add to services and latencies, so that the bound of the healthy servers holds for them. A task that may
    take a detour crosses other servers: nothing of it is counted.
    """
    fixed = _without_detoured(program)
    return max(load_bound_ps(fixed), path_bound_ps(fixed))


def _without_detoured(program: Program) -> Program:
    """The program in which tasks that have detours take no time."""
    if not program.detour_ptr.size:
        return program
    nowhere = program.route_ptr.size - 1
    return program._replace(
        route_ptr=i32(np.append(program.route_ptr, program.route_ptr[-1])),
        task_route=i32(np.where(np.diff(program.detour_ptr) > 0, nowhere, program.task_route)),
    )
