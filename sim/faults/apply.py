"""From a fault plan on a fabric to the faults of a program: which servers and tasks it means."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sim.faults.detours import Links, Path, detours
from sim.faults.history import History
from sim.faults.plan import FaultPlan, check_plan
from sim.faults.retry import NPU, with_retries
from sim.program.contract import COMPLETES, DROPS, I32, I64, LOSES, WAITS, Program
from sim.program.disrupt import Disruptions, disrupt
from sim.program.extend import late_task, server_for
from topologies import Topology, WeftError
from topologies.text.brief import one_line
from topologies.units import parse_time

CROSSING = {"lost": LOSES + DROPS, "wait": WAITS, "complete": COMPLETES}


class Placed(NamedTuple):
    """A program of a topology, and what its servers and tasks stand for.

    Attributes
    ----------
    program : Program
    topology : Topology
    server_link : (S,) int32
        -1 for a server of another kind.
    server_rank : (S,) int32
        NPU of a compute stream; -1 for a link.
    task_rank : (T,) int32
        NPU (or other source) on which each task begins.
    endpoint_latency_ps : int
    """

    program: Program
    topology: Topology
    server_link: I32
    server_rank: I32
    task_rank: I32
    endpoint_latency_ps: int


@one_line
class Faulty(NamedTuple):
    """A program with faults, and the names of its servers for reports.

    Attributes
    ----------
    program : Program
    late : dict of int to str
        Servers whose only task is the delay of an NPU, by its name.
    server_link : (S,) int32
    resent : int
        Chunks that NPUs send again, where the plan has them do so.
    timers : range
        Servers that pass the time until then.
    """

    program: Program
    late: dict[int, str]
    server_link: I32
    resent: int = 0
    timers: range = range(0)

    def link_busy_ps(self, n_links: int, busy_ps: I64) -> I64:
        """Busy time of every link, (n_links,), from that of the servers."""
        busy = np.zeros(n_links, np.int64)
        is_link = self.server_link >= 0
        busy[self.server_link[is_link]] = busy_ps[is_link]
        return busy


def add_faults(placed: Placed, plan: FaultPlan) -> Faulty:
    """The program with the faults of a plan.

    Raises
    ------
    WeftError
        A name that the topology does not have, or what `sim.program.disrupt` refuses.
    """
    history = History(placed.topology, plan)
    resent, timers = 0, range(0)
    if plan.retry == NPU and history.loss:
        placed, resent = _retried(placed, history, plan)
        timers = range(placed.server_link.size, placed.program.n_servers)
    program, late = _late_starts(placed, history)
    rank_of, link_of = _longer(placed.server_rank, program), _longer(placed.server_link, program)
    moves = plan.reroute is not None and bool(history.breaks)
    if moves:
        program, link_of = _with_all_links(program, placed.topology, link_of)
        rank_of = _longer(rank_of, program)
    _check_computes(rank_of, history, placed.topology)
    faults = _disruptions(link_of, rank_of, history, plan, placed.topology)
    if moves:
        server_of = {link: server for server, link in enumerate(link_of.tolist()) if link >= 0}
        faults.detours = detours(
            program, placed.topology, link_of, history.breaks, parse_time(plan.reroute or 0, "reroute"),
            lambda links: _path(placed, server_of, links),
        )
    return Faulty(disrupt(program, faults), late, link_of, resent, timers)


def _retried(placed: Placed, history: History, plan: FaultPlan) -> tuple[Placed, int]:
    """The program with every loss of the plan written into it, and how many chunks are sent again."""
    shares = {
        link: min((phase.factor for phase in phases if phase.factor), default=Fraction(1))
        for link, phases in history.phases.items()
    }
    timeout_ps, losses, history.loss = parse_time(plan.timeout, "timeout"), history.loss, {}
    program, task_rank, lost = with_retries(
        placed.program, placed.topology, placed.server_link, losses, timeout_ps, plan.seed, shares
    )
    return placed._replace(program=program, task_rank=task_rank), lost


def _longer(of_server: I32, program: Program) -> I32:
    """An array with -1 for every server that came later."""
    return np.append(of_server, np.full(program.n_servers - of_server.size, -1)).astype(np.int32)


def _check_computes(rank_of: I32, history: History, topology: Topology) -> None:
    """Refuse the jitter of an NPU that computes nothing: it would change nothing."""
    idle = np.setdiff1d(np.array(list(history.npu_jitter), np.int64), rank_of)
    if idle.size:
        name = topology.node_name(int(idle[0]))
        raise WeftError(
            f"fault plan, jitter of {name}: it is of what an NPU computes, and {name} computes nothing here; "
            "give the jitter of a link"
        )


def check_names(topology: Topology, plan: FaultPlan) -> None:
    """Refuse what is not a plan, or one that names what the topology does not have, before anything is simulated.

    Raises
    ------
    WeftError
        With the name, and what names there are.
    """
    check_plan(plan)
    History(topology, plan)


def _late_starts(placed: Placed, history: History) -> tuple[Program, dict[int, str]]:
    program, late = placed.program, {}
    for rank, delay_ps in history.delay_ps.items():
        if delay_ps:
            program = late_task(program, np.flatnonzero(placed.task_rank == rank), delay_ps)
            late[program.n_servers - 1] = placed.topology.node_name(rank)
    return program, late


def _disruptions(
    link_of: I32, rank_of: I32, history: History, plan: FaultPlan, topology: Topology
) -> Disruptions:
    """What a plan does to each server."""
    faults = Disruptions(seed=plan.seed)
    resend_ps = parse_time(plan.timeout, "timeout")
    crossing = CROSSING[plan.in_flight] + DROPS * (plan.reroute is not None and plan.in_flight != "lost")
    for server, (link, rank) in enumerate(zip(link_of.tolist(), rank_of.tolist(), strict=True)):
        phases = history.phases.get(link) if link >= 0 else history.npu_phases.get(rank)
        jitter = history.link_jitter.get(link) if link >= 0 else history.npu_jitter.get(rank)
        if phases:
            faults.phases[server] = phases
            if link >= 0:
                faults.rates[server] = Fraction(float(topology.bandwidth_Bps[link]))
            faults.crossing[server] = crossing if link >= 0 else WAITS
        if jitter is not None:
            faults.jitter[server] = jitter, link < 0
        if link in history.loss:
            faults.loss[server] = history.loss[link]
        faults.resend_ps[server] = resend_ps
    return faults


def _with_all_links(program: Program, topology: Topology, server_link: I32) -> tuple[Program, I32]:
    """The program with a server for every link, so that detours may cross those that no route crosses."""
    disciplines = program.server_discipline[server_link >= 0]
    for link in np.setdiff1d(np.arange(topology.n_links), server_link).tolist():
        rate = Fraction(float(topology.bandwidth_Bps[link]))
        program = server_for(program, rate, int(disciplines[0]) if disciplines.size else 0)
        server_link = np.append(server_link, np.int32(link)).astype(np.int32)
    return program, server_link


def _path(placed: Placed, server_of: dict[int, int], links: Links) -> Path:
    topology = placed.topology
    hops = [
        (server_of[link], int(topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]))
        for link in links
    ]
    server, latency = hops[-1]
    return (*hops[:-1], (server, latency + placed.endpoint_latency_ps))
