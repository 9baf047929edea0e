"""What faults cost a run, and, where it cannot end, who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.contract import DOWN, Program
from sim.faults import FaultPlan
from sim.lower_faults import Faulty, Placed
from sim.outcome import Deadlock, Outcome
from topologies.units import PS_PER_S, format_time

FAULTS_BREAK = "all ranks simulated (symmetry is off: faults are not the same everywhere)"


@dataclass(frozen=True, eq=False)
class FaultCost:
    """A run with faults beside the healthy one.

    Attributes
    ----------
    plan : FaultPlan
    faulty : Faulty
    healthy_ps, time_ps : int
    lost : int
        Chunks lost and sent again; one that was lost twice counts twice.
    detours : int
        Chunks that took another route than the healthy one, each time they were sent.
    """

    plan: FaultPlan
    faulty: Faulty
    healthy_ps: int
    time_ps: int
    lost: int
    detours: int

    @classmethod
    def of(cls, plan: FaultPlan, faulty: Faulty, healthy_ps: int, outcome: Outcome) -> FaultCost:
        """From a run with a journal (without one, nothing can be lost)."""
        lost = detours = 0
        if outcome.journal is not None:
            lost = int(np.count_nonzero(outcome.journal.lost))
            detours = _detours(faulty, outcome)
        return cls(plan, faulty, healthy_ps, outcome.makespan_ps, lost, detours)

    @property
    def slowdown(self) -> float:
        """Time over the healthy time; 1 where both are 0."""
        return self.time_ps / self.healthy_ps if self.healthy_ps else 1.0

    def row(self) -> dict[str, Any]:
        """For tables and JSON."""
        return {
            "faults": self.plan.to_dict(), "healthy_time_s": self.healthy_ps / PS_PER_S, "slowdown": self.slowdown,
            "chunks_lost": self.lost, "chunks_detoured": self.detours,
        }

    def __str__(self) -> str:
        more = self.time_ps - self.healthy_ps
        sign = "+" if more >= 0 else "-"
        said = f"faults: {sign}{format_time(abs(more))} on the healthy {format_time(self.healthy_ps)} "
        said += f"({self.slowdown:.2f} times)"
        said += f", {self.lost} chunks lost and sent again" if self.lost else ""
        return said + (f", {self.detours} chunks sent on detours" if self.detours else "")


def _detours(faulty: Faulty, outcome: Outcome) -> int:
    journal, program = outcome.journal, faulty.program
    if journal is None or not program.detour_ptr.size:
        return 0
    other = program.detour_route[~np.isin(program.detour_route, program.task_route)]
    return int(np.count_nonzero(np.isin(journal.at, program.route_ptr[other])))


def named_deadlock(stuck: Deadlock, faulty: Faulty, placed: Placed, task_name: Callable[[int], str]) -> Deadlock:
    """The same report with the names of the topology."""
    if not stuck.stranded:
        return stuck
    down = {one.server for one in stuck.stranded}
    lines = []
    for server in sorted(down)[:3]:
        here = [one for one in stuck.stranded if one.server == server]
        tasks = list(dict.fromkeys(one.task for one in here))
        named = ", ".join(task_name(task) for task in tasks[:3]) + (f" and {len(tasks) - 3} more" * (len(tasks) > 3))
        most = max(one.attempts for one in here)
        lines.append(f"{_why_held(faulty.program, server, most, _server_name(server, faulty, placed))}: {named}")
    more = f"; and {len(down) - 3} more links" if len(down) > 3 else ""
    waits = "".join(f"; {task_name(child)} waits for {task_name(parent)}" for child, parent in stuck.waits[:3])
    count = f"{stuck.unfinished} of {placed.program.n_tasks} transfers can never finish"
    return Deadlock(f"{count}: {'; '.join(lines)}{more}{waits}", stuck.stranded, stuck.waits, stuck.unfinished)


def _why_held(program: Program, server: int, attempts: int, name: str) -> str:
    if program.timetable_ptr.size:
        rows = slice(program.timetable_ptr[server], program.timetable_ptr[server + 1])
        rates = program.timetable_rate[rows]
        if rates.size and rates[-1] == DOWN:
            since = program.timetable_from_ps[rows][-1]
            lost = f", which lost them {attempts} times" if attempts else ""
            return f"{name} is down from {format_time(int(since))} on, and nothing repairs it{lost}"
    return f"{name} lost chunks {attempts} times each"


def _server_name(server: int, faulty: Faulty, placed: Placed) -> str:
    if faulty.server_link[server] >= 0:
        return f"link {placed.topology.link_name(int(faulty.server_link[server]))}"
    if server in faulty.late:
        return f"the start of {faulty.late[server]}"
    return placed.topology.node_name(int(placed.server_rank[server]))
