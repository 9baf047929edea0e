"""A time that no run of a program undercuts, whatever the program is of: a schedule, a job, several at once."""

from __future__ import annotations

import numpy as np

from sim.analytic.bounds import load_bound_ps, path_bound_ps
from sim.program import Program
from sim.program.columns import i32


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
