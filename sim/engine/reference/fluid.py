"""The oracle of the fluid engine: its contract (sim/program/flows.py) in fractions, written to be read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from sim.engine.reference.policies import Conditions, route_from
from sim.program.contract import COMPLETES, NEVER_PS, PER_CHUNK, WEIGHTS, Program
from sim.program.flows import Speeds
from sim.program.outcome import Outcome, check_finished
from topologies.units import PS_PER_S

TOLERANCE = Fraction(1, 65537)


def run_reference_fluid(program: Program, speeds: Speeds) -> Outcome:
    """Run a program as flows; parameters and errors as in `sim.engine.fluid.run.run_flows`."""
    run = _Run(program, speeds)
    while run.step():
        pass
    finished = np.array(run.finish, np.int64)
    check_finished(program, np.where(finished < 0, 0, program.chunks()))
    return Outcome(
        start_ps=np.array(run.start, np.int64), finish_ps=finished, busy_ps=np.zeros(program.n_servers, np.int64),
        makespan_ps=int(finished.max(initial=0)), events=int(np.count_nonzero(program.hops())),
    )


@dataclass
class _Line:
    """Who waits for units of a pool, or for a server alone."""

    free: int
    discipline: int
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)  # rank, ps, class, task


class _Run:
    """A run, from one picosecond in which something happens to the next."""

    def __init__(self, program: Program, speeds: Speeds) -> None:
        self.p, n = program, program.n_tasks
        self.parents = _parents(program)
        self.start, self.finish = [-1] * n, [-1] * n
        self.released, self.pooled = set[int](), set[int]()
        self.left: dict[int, Fraction] = {}  # bytes of each flow
        self.way: dict[int, list[int]] = {}  # links of each that is not stopped
        self.route: dict[int, int] = {}
        self.arriving: dict[int, int] = {}  # tasks whose last byte is on its way, and when it is in
        self.servers = [Conditions(program, server) for server in range(program.n_servers)]
        row, self.capacity = iter(speeds.shares), list[list[Fraction]]()
        for server, rate in zip(self.servers, speeds.rates, strict=True):
            shares = [Fraction(1), *(next(row) for _ in server.regimes[1:])]
            self.capacity.append([rate * share / PS_PER_S for share in shares])
        pools = zip(program.pool_capacity.tolist(), program.pool_discipline.tolist(), strict=True)
        self.pools = [_Line(*pool) for pool in pools]
        self.alone = {one: _Line(1, int(program.server_discipline[one])) for one in speeds.alone}
        deadlines = program.task_deadline_ps.tolist() or [NEVER_PS] * n
        self.deadline = [NEVER_PS if one == NEVER_PS else int(one) for one in deadlines]
        self.changes = {regime.from_ps for server in self.servers for regime in server.regimes}
        self.changes |= {*program.detour_from_ps.tolist(), *self.deadline} - {NEVER_PS}
        self.now = 0

    def step(self) -> bool:
        """All of this picosecond after the ends in it, and the time until the next; whether there is one."""
        self._find_ways()
        while self._release() or self._grant_pools():
            pass
        for server, line in self.alone.items():
            if self._rate(server) and line.free and line.waiting:
                line.free = 0
                self._begin(line.waiting.pop(0)[3])
        rate = max_min([self._kept_rate(link) for link in range(self.p.n_servers)], self.way)
        ends = {task: self.now + max(math.ceil(self.left[task] / rate[task] - TOLERANCE), 1) for task in self.way}
        later = [*ends.values(), *self.arriving.values(), *(time for time in self.changes if time > self.now)]
        if not later:
            return False
        following = min(later)
        for task in ends:
            self.left[task] -= rate[task] * (following - self.now)
        for task in [task for task, end in ends.items() if end == following]:
            self._end(task, following)
        self.now = following
        for task in [task for task, time in self.arriving.items() if time == following]:
            del self.arriving[task]
            self._deliver(task)
        return True

    def _rate(self, server: int) -> Fraction:
        """What a server has now; 0 where it is down."""
        return self.capacity[server][self.servers[server].regimes.index(self.servers[server].at(self.now))]

    def _kept_rate(self, server: int) -> Fraction:
        """The last rate that a server had."""
        known = [one for one, regime in zip(self.capacity[server], self.servers[server].regimes, strict=True)
                 if regime.from_ps <= self.now and one]
        return known[-1]

    def _find_ways(self) -> None:
        """Flows that a link which is down stops, and those that find a way."""
        for task in list(self.left):
            down = [self.servers[link] for link in self.way.get(task, []) if not self._rate(link)]
            if any(one.crossing != COMPLETES for one in down):
                del self.way[task]
            if task not in self.way:
                route = route_from(self.p, task, self.now)
                if all(self._rate(link) for link in _links(self.p, route)):
                    self.way[task], self.route[task] = _links(self.p, route), route

    def _release(self) -> bool:
        """Whether a task took its place in a line, or started."""
        ready = [
            task for task in range(self.p.n_tasks) if task not in self.released
            and (self.now >= self.deadline[task] or all(self.finish[one] >= 0 for one in self.parents[task]))
        ]
        for task in ready:
            self.released.add(task)
            if self.pools and self.p.task_pool[task] >= 0:
                self._wait(self.pools[self.p.task_pool[task]], task)
            else:
                self._start(task)
        return bool(ready)

    def _wait(self, line: _Line, task: int) -> None:
        of_priority, of_work, _ = WEIGHTS[line.discipline].tolist()
        rank = of_work * int(self.p.cut_work[self.p.task_cut[task]])
        if of_priority:
            rank += of_priority * int(self.p.task_priority[task])
        line.waiting.append((rank, self.now, int(self.p.task_class[task]), task))
        line.waiting.sort()

    def _grant_pools(self) -> bool:
        granted = []
        for line in self.pools:
            while line.waiting and self.p.task_units[task := line.waiting[0][3]] <= line.free:
                line.free -= int(self.p.task_units[task])
                granted.append(line.waiting.pop(0)[3])
        for task in granted:
            self._start(task)
        return bool(granted)

    def _start(self, task: int) -> None:
        links = _links(self.p, int(self.p.task_route[task]))
        if not links:
            self.start[task] = self.now
            self._deliver(task)
        elif links[0] in self.alone:
            self._wait(self.alone[links[0]], task)
        else:
            self._begin(task)

    def _begin(self, task: int) -> None:
        server = _links(self.p, int(self.p.task_route[task]))[0]
        more_ps = self.servers[server].jitter_ps(task, 0, 0, 0, of_service=True)
        self.start[task] = self.now
        self.left[task] = _bytes(self.p, task) + more_ps * self.capacity[server][0]
        self._find_ways()

    def _end(self, task: int, time: int) -> None:
        """The last byte of a flow is on its way; before what changes at that time."""
        del self.left[task]
        added_ps = sum(self.servers[link].at(time - 1).latency_ps for link in self.way[task])
        self.arriving[task] = time + _latency_ps(self.p, self.route[task]) + added_ps
        if self.way[task][0] in self.alone:
            self.alone[self.way[task][0]].free = 1
        del self.way[task]

    def _deliver(self, task: int) -> None:
        self.finish[task] = self.now
        for row in range(*self.p.give_ptr[task : task + 2]) if self.p.give_ptr.size else ():
            times = self.p.chunks()[task] if self.p.give_per[row] == PER_CHUNK else 1
            self.pools[self.p.give_pool[row]].free += int(self.p.give_units[row] * times)


def max_min(capacity: Sequence[Fraction], routes: dict[int, list[int]]) -> dict[int, Fraction]:
    """The max-min fair rates of flows, by progressive filling."""
    rate: dict[int, Fraction] = {}
    while len(rate) < len(routes):
        share: dict[int, Fraction] = {}
        for link in {link for task, route in routes.items() if task not in rate for link in route}:
            taken = sum(rate[task] * route.count(link) for task, route in routes.items() if task in rate)
            rising = sum(route.count(link) for task, route in routes.items() if task not in rate)
            share[link] = (capacity[link] - taken) / rising
        level = min(share.values())
        full = {link for link, value in share.items() if value == level}
        rate |= {task: level for task, route in routes.items() if task not in rate and full & set(route)}
    return rate


def _links(program: Program, route: int) -> list[int]:
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    return [int(link) for link in program.hop_server[hops]]


def _latency_ps(program: Program, route: int) -> int:
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    return int(program.hop_latency_ps[hops].sum())


def _bytes(program: Program, task: int) -> int:
    cut = program.task_cut[task]
    first, rest = (int(program.chunk_work[size]) for size in program.cut_size[cut])
    leading = int(program.cut_first[cut])
    return first * leading + rest * (int(program.cut_chunks[cut]) - leading)


def _parents(program: Program) -> list[list[int]]:
    """Tasks that each task waits for, whole or chunk by chunk."""
    found: list[list[int]] = [[] for _ in range(program.n_tasks)]
    for parent, child in zip(*program.whole_edges(), strict=True):
        found[child].append(int(parent))
    for parent, child, lag in zip(*program.stream_edges(), strict=True):
        if lag == 0:
            found[child].append(int(parent))
    return found
