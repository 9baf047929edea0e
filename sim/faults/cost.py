"""What faults cost a run; which of them changed nothing; and, where it cannot end, which transfers wait for which."""

import math
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.faults.names import links_named, node_named
from sim.faults.plan import Fault, FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.lower.lowered import Lowered
from sim.program.columns import pieces
from sim.program.contract import DOWN, I64, Program
from sim.program.outcome import Deadlock, Outcome, Stranded
from topologies import Topology
from topologies.core.paths import distinct_of, ranges
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, counted, format_time, parse_time


def slowdown(time_ps: int, alone_ps: int) -> float:
    """One time over another; 1 where both are 0, and infinite where the other alone is."""
    if alone_ps:
        return time_ps / alone_ps
    return math.inf if time_ps else 1.0


def finite(value: float) -> float | None:
    """The value for JSON, which knows no infinity."""
    return value if math.isfinite(value) else None


def times(value: float) -> str:
    """A slowdown for people: "(1.43 times)"."""
    return f"({value:.2f} times)" if math.isfinite(value) else "(it took no time)"


@one_line
@dataclass(frozen=True, eq=False)
class FaultCost:
    """A run with faults beside the healthy one."""

    plan: FaultPlan
    healthy_ps: int
    time_ps: int
    lost: int  # chunks lost and sent again; one that was lost twice counts twice
    detours: int  # chunks that took another route than the healthy one, each time they were sent

    @classmethod
    def of(cls, plan: FaultPlan, lowered: Lowered, healthy_ps: int, outcome: Outcome) -> "FaultCost":
        """From a run; a fluid one with its rates."""
        lost, detours, program, lapses = lowered.resent or 0, 0, lowered.program, outcome.lapses
        other = program.other_routes()
        if lapses is not None:
            images = np.append(lowered.images(), np.ones(program.n_tasks, np.int64))  # late starts: never lost
            lost += int(images[lapses.task[lapses.lost]].sum())
            detours = int(np.count_nonzero(np.isin(lapses.at[~lapses.moved], program.route_ptr[other])))
        elif outcome.rates is not None:
            rows = distinct_of(outcome.rates.way) - program.n_tasks
            detours = int(np.count_nonzero(np.isin(program.detour_route[rows[rows >= 0]], other)))
        return cls(plan, healthy_ps, outcome.makespan_ps, lost, detours)

    @property
    def slowdown(self) -> float:
        """Time over the healthy time; 1 where both are 0, and infinite where the healthy run alone takes no time."""
        return slowdown(self.time_ps, self.healthy_ps)

    def row(self) -> dict[str, Any]:
        """For tables and JSON; an infinite slowdown is None."""
        return {
            "faults": self.plan.to_dict(), "healthy_time_s": self.healthy_ps / PS_PER_S,
            "slowdown": finite(self.slowdown), "chunks_lost": self.lost, "chunks_detoured": self.detours,
        }

    def __str__(self) -> str:
        more = self.time_ps - self.healthy_ps
        sign = "+" if more >= 0 else "-"
        said = f"faults: {sign}{format_time(abs(more))} on the healthy {format_time(self.healthy_ps)} "
        said += times(self.slowdown)
        said += f", {counted(self.lost, 'chunk')} lost and sent again" if self.lost else ""
        return said + (f", {counted(self.detours, 'chunk')} sent on detours" if self.detours else "")


def named_deadlock(stuck: Deadlock, lowered: Lowered, task_name: Callable[[int], str], plan: FaultPlan) -> Deadlock:
    """The same report with the names of the topology: a node that is down replaces all its links."""
    if not stuck.stranded:
        return named_circle(stuck, lowered) if stuck.circle else named_tasks(stuck, task_name)
    dead = _dead_nodes(plan, lowered.topology)
    held: dict[str, list[Stranded]] = {}
    for one in sorted(stuck.stranded, key=lambda one: (one.server, one.task)):
        held.setdefault(_who_holds(one.server, lowered, dead), []).append(one)
    down = {one.server for one in stuck.stranded}
    lines = []
    for who, here in list(held.items())[:3]:
        tasks = list(dict.fromkeys(one.task for one in here))
        named = ", ".join(task_name(task) for task in tasks[:3]) + (f" and {len(tasks) - 3} more" * (len(tasks) > 3))
        why = _why_held(lowered.program, here, who, dead.get(who))
        around = "" if plan.reroute is None else _around(lowered.program, tasks, down)
        lines.append(f"{why}{around}: {named}")
    more = f"; and {len(held) - 3} more places" if len(held) > 3 else ""
    said = dict.fromkeys(f"; {task_name(child)} waits for {task_name(parent)}" for child, parent in stuck.waits[:3])
    n_tasks = lowered.task_operation.size  # late starts left out
    what = "transfers" if np.all(lowered.program.hops()[:n_tasks] > 0) else "tasks"
    count = f"{stuck.unfinished} of {n_tasks} {what} can never finish"
    return Deadlock(f"{count}: {'; '.join(lines)}{more}{''.join(said)}", stuck.stranded, stuck.waits, stuck.unfinished)


def named_tasks(stuck: Deadlock, task_name: Callable[[int], str]) -> Deadlock:
    """The same report with what tasks are in place of their numbers."""
    said = re.sub(r"\btask (\d+)", lambda found: task_name(int(found[1])), str(stuck))
    return Deadlock(said, stuck.stranded, stuck.waits, stuck.unfinished, stuck.circle)


def named_circle(stuck: Deadlock, lowered: Lowered) -> Deadlock:
    """The report on a circle of full buffers with the names of the links."""
    names = [lowered.topology.link_name(int(lowered.server_link[server])) for server in stuck.circle]
    few = names[:8] + [f"{len(names) - 8} more"] * (len(names) > 8) + names[:1]
    message = (
        f"{stuck.unfinished} of {lowered.program.n_tasks} transfers can never finish: buffers are full in a circle, "
        f"each of chunks that wait for room behind the next link: {', '.join(few)}"
    )
    return Deadlock(message, stuck.stranded, stuck.waits, stuck.unfinished, stuck.circle)


def _dead_nodes(plan: FaultPlan, topology: Topology) -> dict[str, int]:
    """Nodes that stay down, as "node npu2", and since when."""
    dead: dict[str, int] = {}
    changes = [fault for fault in plan.faults if isinstance(fault, (NodeDown, Repair)) and fault.node is not None]
    for fault in sorted(changes, key=lambda fault: (parse_time(fault.at, "at"), isinstance(fault, NodeDown))):
        name = f"node {topology.node_name(node_named(topology, str(fault.node)))}"
        if isinstance(fault, NodeDown):
            dead.setdefault(name, parse_time(fault.at, "at"))
        else:
            dead.pop(name, None)
    return dead


def _who_holds(server: int, lowered: Lowered, dead: Container[str]) -> str:
    """The node that is down, or else the link or the NPU of a server."""
    topology, link = lowered.topology, int(lowered.server_link[server])
    if link >= 0:
        ends = (f"node {topology.node_name(int(end[link]))}" for end in (topology.dst, topology.src))
        return next((node for node in ends if node in dead), f"link {topology.link_name(link)}")
    if server in lowered.late:
        return f"the start of {lowered.late[server]}"
    return f"node {topology.node_name(int(lowered.server_rank[server]))}"


def _why_held(program: Program, here: Sequence[Stranded], who: str, since_ps: int | None) -> str:
    most = max(one.attempts for one in here)
    if since_ps is None:
        first, end = program.timetable_ptr[here[0].server :][:2] if program.timetable_ptr.size else (0, 0)
        rows = slice(first, end)
        rates = program.timetable_rate[rows]
        if not rates.size or rates[-1] != DOWN:
            return f"{who} lost chunks {most} times each"
        since_ps = int(program.timetable_from_ps[rows][-1])
    lost = f", which lost them {most} times" if most else ""
    return f"{who} is down from {format_time(since_ps)} on, and nothing repairs it{lost}"


def _around(program: Program, tasks: Sequence[int], down: Container[int]) -> str:
    """What became of the detours of tasks that are held up although routes change."""
    ways = []
    for task in tasks if program.detour_ptr.size else ():
        for row in range(program.detour_ptr[task], program.detour_ptr[task + 1]):
            route = program.detour_route[row]
            servers = program.route_server[program.route_ptr[route] : program.route_ptr[route + 1]]
            if not any(server in down for server in servers.tolist()):
                ways.append(int(program.detour_from_ps[row]))
    return f", and gave up before routes change at {format_time(min(ways))}" if ways else ", and no other route is left"


TOLD = 5


def without_effect(plan: FaultPlan, lowered: Lowered, outcome: Outcome) -> list[str]:
    """A line for each of the first entries that cannot have changed anything, and how many more there are.

    That is an entry from a time on at which the run was over, one with nothing in it, and one of links that no chunk
    came to, unless new routes led around them.
    """
    used = None
    if not lowered.program.is_healthy:
        link = lowered.server_link[_serving(lowered.program, outcome)]
        used = set(np.flatnonzero(np.isin(lowered.orbits.link, link)).tolist())
    resent = [fault for fault in plan.faults if isinstance(fault, Loss) and lowered.resent]
    reasons = (
        (fault, _why_not(fault, plan, used, lowered.topology, outcome)) for fault in plan.faults if fault not in resent
    )
    said = [f"no effect: {fault_name(fault)}: {why}" for fault, why in reasons if why is not None]
    return said[:TOLD] + [f"no effect: {len(said) - TOLD} more entries of the plan"] * (len(said) > TOLD)


def fault_name(fault: Fault) -> str:
    """Kind, place and time of an entry: "LinkDown of npu0->npu1 at 5us"."""
    place = next(value for name in ("link", "node", "npu") if (value := getattr(fault, name, None)) is not None)
    at = getattr(fault, "at", None)
    return f"{type(fault).__name__} of {place}" + (f" at {at}" if at is not None else "")


def _serving(program: Program, outcome: Outcome) -> I64:
    """Servers that served what is noted, or what flows took: without a journal, and detours, of all routes of tasks."""
    there = np.zeros(program.n_servers, np.bool_)
    if outcome.journal is not None:
        there[program.hop_server[program.route_hop[outcome.journal.at]]] = True
        return np.flatnonzero(there)
    taken, rates = np.zeros(program.route_ptr.size - 1, np.bool_), outcome.rates
    taken[program.task_route if rates is None else program.every_route()[1][distinct_of(rates.way)]] = True
    route = np.flatnonzero(taken)
    hops = np.diff(program.route_ptr)[route]
    for some in pieces(hops):  # an all-to-all has as many routes as tasks
        at = ranges(program.route_ptr[route[some]].astype(np.int64), hops[some])
        there[program.hop_server[program.route_hop[at]]] = True
    return np.flatnonzero(there)


def _why_not(fault: Fault, plan: FaultPlan, used: set[int] | None, topology: Topology, outcome: Outcome) -> str | None:
    if isinstance(fault, Straggler):
        return "it changes nothing" if fault.speed == 1 and fault.delay == "0s" else None
    if used is None:
        return "it changes nothing"
    if parse_time(getattr(fault, "at", "0s")) >= outcome.makespan_ps:
        return f"the run was over at {format_time(outcome.makespan_ps)}"
    kept_off = isinstance(fault, LinkDown) and plan.reroute is not None  # no chunk came, because it was down
    link = fault.link if isinstance(fault, (SlowLink, Loss, Jitter, LinkDown)) and not kept_off else None
    if link is not None and not used.intersection(links_named(topology, link)):
        return "no chunk came to it"
    return None
