"""A lower bound on any run: of a schedule, a job, or several at once, with and without faults."""

from typing import Protocol

import numpy as np

from sim.analytic.bounds import Bounds, bounds, busy_and_path_ps
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.columns import i32
from sim.program.flows import TOLERANCE


class Faults(Protocol):
    """What a bound needs to know of a fault plan."""

    @property
    def moves_routes(self) -> bool:
        """Whether chunks may take other routes than on the healthy fabric."""


def lower_bound_ps(lowered: Lowered, plan: Faults | None = None) -> int:
    """Lower bound of a run with the faults of a plan, in ps; for a schedule alone also what any algorithm must move."""
    if lowered.job.alone is None:
        return program_bound_ps(lowered.program)
    return bound_under(plan, bounds(lowered if plan is None else lower(lowered.job, lowered.model)))


def flows_bound_ps(lowered: Lowered, plan: Faults | None = None) -> int:
    """Lower bound of a fluid run with the faults of a plan, in ps.

    Flows share links: only the end of each is rounded, where the chunk engine rounds every service.
    """
    alone = lowered.job.alone is not None
    healthy = lower(lowered.job, lowered.model) if alone and plan is not None else lowered
    program = healthy.program._replace(service_ps=np.maximum(healthy.program.service_ps - 1, 0))
    found = bound_under(plan, bounds(healthy._replace(program=program))) if alone else program_bound_ps(program)
    return max(found - 1 - program.n_tasks // TOLERANCE, 0)


def bound_under(plan: Faults | None, found: Bounds) -> int:
    """The tightest of the bounds of a healthy fabric that holds under a plan, in ps.

    What servers must serve, and the path of every transfer, hold for the healthy routes: where chunks may take others,
    what has to enter and leave the NPUs, and to cross the tightest cut, is what is left.
    """
    return found.best_ps if plan is None or not plan.moves_routes else max(found.wire_ps, found.cut_ps)


def program_bound_ps(program: Program) -> int:
    """Work of the busiest server, or the longest chain of dependencies, in ps.

    Faults only add to services and latencies, so that the bound of the healthy servers holds for them. A task that may
    take a detour crosses other servers: nothing of it is counted.
    """
    return max(busy_and_path_ps(_without_detoured(program)))


def _without_detoured(program: Program) -> Program:
    """The program in which tasks that have detours take no time."""
    if not program.detour_ptr.size:
        return program
    nowhere = program.route_ptr.size - 1
    return program._replace(
        route_ptr=i32(np.append(program.route_ptr, program.route_ptr[-1])),
        task_route=i32(np.where(np.diff(program.detour_ptr) > 0, nowhere, program.task_route)),
    )
