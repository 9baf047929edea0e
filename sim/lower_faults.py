"""From a fault plan on a fabric to the faults of a program: which servers and tasks it means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sim.contract import COMPLETES, DROPS, I32, I64, LOSES, WAITS, Program
from sim.disrupt import Disruptions, Phase, disrupt
from sim.extend import late_task, server_for
from sim.faults import (
    FaultPlan,
    Jitter,
    LinkDown,
    Loss,
    NodeDown,
    Repair,
    SlowLink,
    Straggler,
    links_named,
    node_named,
    quantiles_ps,
)
from topologies import Topology, WeftError
from topologies.routing import ShortestPathRouter
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


class Faulty(NamedTuple):
    """A program with faults, and the names of its servers for reports.

    Attributes
    ----------
    program : Program
    late : dict of int to str
        Servers whose only task is the delay of an NPU, by its name.
    server_link : (S,) int32
    """

    program: Program
    late: dict[int, str]
    server_link: I32

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
        A name that the topology does not have, or what `sim.disrupt` refuses.
    """
    program, late = _late_starts(placed, plan)
    rank_of = np.append(placed.server_rank, np.full(program.n_servers - placed.server_rank.size, -1)).astype(np.int32)
    link_of = np.append(placed.server_link, np.full(program.n_servers - placed.server_link.size, -1)).astype(np.int32)
    history = _History(placed.topology, plan)
    if plan.reroute is not None and history.breaks:
        program, link_of = _with_all_links(program, placed.topology, link_of)
        rank_of = np.append(rank_of, np.full(program.n_servers - rank_of.size, -1)).astype(np.int32)
    faults = Disruptions(seed=plan.seed)
    for server in range(program.n_servers):
        _disturb(faults, server, int(link_of[server]), int(rank_of[server]), history, plan)
    _check_computes(rank_of, history, placed.topology)
    if plan.reroute is not None and history.breaks:
        faults.detours = _detours(program, placed, link_of, history, parse_time(plan.reroute, "reroute"))
    return Faulty(disrupt(program, faults), late, link_of)


def _check_computes(rank_of: I32, history: _History, topology: Topology) -> None:
    """Refuse the jitter of an NPU that computes nothing: it would change nothing."""
    for named, _, of_npu in history.jitter:
        if of_npu and not named & set(rank_of.tolist()):
            name = topology.node_name(min(named))
            raise WeftError(
                f"fault plan, jitter of {name}: it is of what an NPU computes, and {name} computes nothing here; "
                "give the jitter of a link"
            )


def check_names(topology: Topology, plan: FaultPlan) -> None:
    """Refuse a plan that names what the topology does not have, before anything is simulated.

    Raises
    ------
    WeftError
        With the name, and what names there are.
    """
    for fault in plan.faults:
        if isinstance(fault, Straggler):
            node_named(topology, fault.npu, npu=True)
    _History(topology, plan)


def _late_starts(placed: Placed, plan: FaultPlan) -> tuple[Program, dict[int, str]]:
    program, late = placed.program, {}
    for fault in plan.faults:
        if isinstance(fault, Straggler):
            rank, delay_ps = node_named(placed.topology, fault.npu, npu=True), parse_time(fault.delay, "delay")
            if delay_ps:
                program = late_task(program, np.flatnonzero(placed.task_rank == rank), delay_ps)
                late[program.n_servers - 1] = fault.npu
    return program, late


@dataclass
class _State:
    """How a link or an NPU is."""

    share: Fraction = Fraction(1)
    latency_ps: int = 0
    down: bool = False


@dataclass
class _History:
    """Every link and node over time.

    Attributes
    ----------
    breaks : list of (time, links that are down from then on)
        Where routes may change.
    """

    topology: Topology
    plan: FaultPlan
    phases: dict[int, list[Phase]] = field(default_factory=dict)
    npu_phases: dict[int, list[Phase]] = field(default_factory=dict)
    breaks: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    speed: dict[int, Fraction] = field(default_factory=dict)
    jitter: list[tuple[frozenset[int], I64, bool]] = field(default_factory=list)
    loss: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fault in self.plan.faults:
            self._note_constant(fault)
        changes = [fault for fault in self.plan.faults if isinstance(fault, (SlowLink, LinkDown, NodeDown, Repair))]
        self._links: dict[int, _State] = {}
        self._nodes: dict[int, _State] = {}
        for time in sorted({0, *(parse_time(fault.at, "at") for fault in changes)}):
            for fault in changes:
                if parse_time(fault.at, "at") == time:
                    self._apply(fault)
            self._note(time)

    def _note_constant(self, fault: object) -> None:
        if isinstance(fault, Straggler) and fault.speed != 1:
            self.speed[node_named(self.topology, fault.npu, npu=True)] = Fraction(str(fault.speed))
        elif isinstance(fault, Jitter):
            named = (
                links_named(self.topology, fault.link) if fault.link is not None
                else [node_named(self.topology, str(fault.npu), npu=True)]
            )
            self.jitter.append((frozenset(named), quantiles_ps(fault), fault.link is None))
        elif isinstance(fault, Loss):
            for link in links_named(self.topology, fault.link):
                self.loss[link] = fault.probability

    def _apply(self, fault: SlowLink | LinkDown | NodeDown | Repair) -> None:
        if isinstance(fault, NodeDown):
            self._nodes.setdefault(node_named(self.topology, fault.node), _State()).down = True
        elif isinstance(fault, Repair) and fault.node is not None:
            self._nodes[node_named(self.topology, fault.node)] = _State()
        else:
            for link in links_named(self.topology, str(fault.link)):
                state = _State() if isinstance(fault, Repair) else self._links.get(link, _State())
                if isinstance(fault, SlowLink):
                    state = replace(
                        state, share=Fraction(str(fault.share)), latency_ps=parse_time(fault.latency, "latency")
                    )
                elif isinstance(fault, LinkDown):
                    state = replace(state, down=True)
                self._links[link] = state

    def _note(self, time: int) -> None:
        """Write down what is otherwise than before."""
        down = set()
        for link in range(self.topology.n_links):
            ends = int(self.topology.src[link]), int(self.topology.dst[link])
            state = self._links.get(link, _State())
            if state.down or any(node in self._nodes and self._nodes[node].down for node in ends):
                down.add(link)
            share = state.share * self.speed.get(ends[0], Fraction(1))
            _add(self.phases, link, Phase(time, Fraction(0) if link in down else share, state.latency_ps))
        for npu in {*self._nodes, *self.speed}:
            dead = npu in self._nodes and self._nodes[npu].down
            _add(self.npu_phases, npu, Phase(time, Fraction(0) if dead else self.speed.get(npu, Fraction(1))))
        if down != (self.breaks[-1][1] if self.breaks else set()):
            self.breaks.append((time, frozenset(down)))


def _add(phases: dict[int, list[Phase]], key: int, phase: Phase) -> None:
    """Add a phase where it changes something."""
    before = phases[key][-1] if phases.get(key) else Phase(0)
    if before[1:] != phase[1:]:
        phases.setdefault(key, []).append(phase)


def _disturb(faults: Disruptions, server: int, link: int, rank: int, history: _History, plan: FaultPlan) -> None:
    """What a plan does to one server."""
    phases = history.phases.get(link) if link >= 0 else history.npu_phases.get(rank)
    if phases:
        faults.phases[server] = phases
        sent_again = plan.reroute is not None and plan.in_flight != "lost"
        faults.crossing[server] = CROSSING[plan.in_flight] + DROPS * sent_again if link >= 0 else WAITS
    faults.resend_ps[server] = parse_time(plan.timeout, "timeout")
    if link in history.loss:
        faults.loss[server] = history.loss[link]
    for named, quantiles, of_npu in history.jitter:
        if (rank if of_npu else link) in named:
            faults.jitter[server] = quantiles, of_npu


def _with_all_links(program: Program, topology: Topology, server_link: I32) -> tuple[Program, I32]:
    """The program with a server for every link, so that detours may cross those that no route crosses."""
    disciplines = program.server_discipline[server_link >= 0]
    for link in np.setdiff1d(np.arange(topology.n_links), server_link).tolist():
        rate = Fraction(float(topology.bandwidth_Bps[link]))
        program = server_for(program, rate, int(disciplines[0]) if disciplines.size else 0)
        server_link = np.append(server_link, np.int32(link)).astype(np.int32)
    return program, server_link


Path = tuple[tuple[int, int], ...]


def _detours(
    program: Program, placed: Placed, server_link: I32, history: _History, reroute_ps: int
) -> dict[int, list[tuple[int, Path]]]:
    """For every task whose route breaks, the ways that it takes from each time on."""
    topology = placed.topology
    server_of = {int(link): server for server, link in enumerate(server_link.tolist()) if link >= 0}
    found: dict[int, list[tuple[int, Path]]] = {}
    own = [
        tuple(int(link) for link in server_link[program.route_server[a:b]])
        for a, b in zip(program.route_ptr[:-1], program.route_ptr[1:], strict=True)
    ]
    on: dict[int, tuple[int, ...]] = {}
    for time, down in history.breaks:
        ways = _Ways(topology, down)
        for task, route in enumerate(program.task_route.tolist()):
            links = own[route]
            if not links or min(links) < 0:
                continue
            now = on.get(task, links)
            want = links if not down.intersection(links) else ways.between(links)
            if want is not None and want != now:
                found.setdefault(task, []).append((time + reroute_ps, _path(placed, server_of, want)))
                on[task] = want
    return found


@dataclass
class _Ways:
    """Shortest ways over what is up."""

    topology: Topology
    down: frozenset[int]
    known: dict[tuple[int, int], tuple[int, ...] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        t = self.topology
        self.up = np.setdiff1d(np.arange(t.n_links), sorted(self.down))
        self.rest = replace(
            t, src=t.src[self.up], dst=t.dst[self.up], bandwidth_Bps=t.bandwidth_Bps[self.up],
            latency_ps=t.latency_ps[self.up], dimension=t.dimension[self.up], router=ShortestPathRouter(),
        )

    def between(self, links: tuple[int, ...]) -> tuple[int, ...] | None:
        """The way from the start of a route to its end; None where there is none."""
        ends = int(self.topology.src[links[0]]), int(self.topology.dst[links[-1]])
        if ends not in self.known:
            try:
                paths = self.rest.paths(np.array(ends[:1]), np.array(ends[1:]))
                self.known[ends] = tuple(self.up[paths.links].tolist())
            except WeftError:
                self.known[ends] = None
        return self.known[ends]


def _path(placed: Placed, server_of: dict[int, int], links: tuple[int, ...]) -> Path:
    topology = placed.topology
    hops = [
        (server_of[link], int(topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]))
        for link in links
    ]
    server, latency = hops[-1]
    return (*hops[:-1], (server, latency + placed.endpoint_latency_ps))
