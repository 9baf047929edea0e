"""The reference engine: the contract of `sim.program` as SimPy processes, written to be read.

Three kinds of process share one clock. A task injects its chunks one after the other; a chunk crosses the
servers of its route; a server serves one chunk at a time. The order inside one picosecond is the priority of
SimPy's events: whatever is scheduled in an earlier phase of the same picosecond is processed first, also when
it is caused by a later one (a grant that delivers a chunk goes back to SETTLE, and GRANT comes round again).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from sim.outcome import Log, Outcome, check_finished, log_base
from sim.program import (
    FIFO,
    I64,
    LOWEST_CHUNK_FIRST,
    PER_CHUNK,
    PER_TASK,
    PRIORITY,
    SMALLEST_FIRST,
    WHOLE,
    Program,
    check_supported,
)

SETTLE = NORMAL
"""Ends of service, deliveries, releases and requests; also where SimPy puts every event that succeeds."""
GRANT, ARRIVE, CHOOSE = (EventPriority(SETTLE + phase) for phase in (1, 2, 3))

Steps = Generator[simpy.Event, None, None]
TieKey = tuple[int, int, int, int, int, int]


class Clock(simpy.Environment):
    """Integer picoseconds, and a way to wait for a phase of one of them."""

    @property
    def now_ps(self) -> int:
        return int(self.now)

    def at(self, time_ps: int, phase: EventPriority) -> simpy.Event:
        """Happens in that phase of that picosecond."""
        return _Moment(self, time_ps - self.now_ps, phase)


class _Moment(simpy.Event):
    """A SimPy timeout with a phase."""

    def __init__(self, clock: Clock, delay_ps: int, phase: EventPriority) -> None:
        super().__init__(clock)
        self._ok = True
        self._value = None
        clock.schedule(self, phase, delay_ps)


@dataclass
class Need:
    """What a task waits for: another task, whole, chunk by chunk (lag 0) or in a window (lag >= 1)."""

    parent: Task
    lag: int

    def deliveries(self, chunk: int, chunks: int) -> int:
        """Chunks that the parent must have delivered before `chunk` (of `chunks`) is released."""
        if self.lag == WHOLE:
            return self.parent.chunks
        if self.lag == 0:
            return -(-(chunk + 1) * self.parent.chunks // chunks)
        return chunk - self.lag + 1


@dataclass(eq=False)
class Task:
    """A task with what it waits for, what it asks of a pool, and how far it has come."""

    clock: Clock
    index: int
    chunks: int
    work: int
    tie_class: int
    priority: int
    needs: list[Need] = field(default_factory=list)
    pool: Pool | None = None
    units: int = 0
    asks_per: int = PER_CHUNK
    gives: list[tuple[Pool, int, int]] = field(default_factory=list)
    delivered: int = 0
    start_ps: int = -1
    finish_ps: int = -1
    _milestones: dict[int, simpy.Event] = field(default_factory=dict)

    def has_delivered(self, count: int) -> simpy.Event:
        """Happens when `count` chunks, more than now, are delivered."""
        return self._milestones.setdefault(count, self.clock.event())

    def released(self, chunk: int) -> Steps:
        """Wait until nothing that `chunk` depends on is missing."""
        for need in self.needs:
            count = need.deliveries(chunk, self.chunks)
            if need.parent.delivered < count:
                yield need.parent.has_delivered(count)

    def granted(self, chunk: int) -> Steps:
        """Wait until the pool, if there is one, has granted `chunk` its units."""
        if self.pool is not None and (self.asks_per == PER_CHUNK or chunk == 0):
            yield self.pool.ask(Request(self, chunk, self.clock.now_ps, self.clock.event()))

    def deliver(self) -> None:
        """The next chunk is in."""
        self.delivered += 1
        complete = self.delivered == self.chunks
        if complete:
            self.finish_ps = self.clock.now_ps
        for pool, units, per in self.gives:
            if per == PER_CHUNK or (per == PER_TASK and complete):
                pool.give(units)
        if self.delivered in self._milestones:
            self._milestones.pop(self.delivered).succeed()


def choice_key(discipline: int, task: Task, chunk: int, hop: int, arrival_ps: int) -> TieKey:
    """The order in which servers and pools choose; the least comes first."""
    rank = {FIFO: 0, PRIORITY: task.priority, SMALLEST_FIRST: task.work, LOWEST_CHUNK_FIRST: chunk}[discipline]
    return rank, arrival_ps, task.tie_class, chunk, hop, task.index


@dataclass(eq=False)
class Request:
    """A chunk that waits for units of its task's pool."""

    task: Task
    chunk: int
    asked_ps: int
    granted: simpy.Event


@dataclass(eq=False)
class Pool:
    """Units that chunks take before they join their first server."""

    bank: Bank
    free: int
    discipline: int
    requests: list[Request] = field(default_factory=list)

    def ask(self, request: Request) -> simpy.Event:
        """Queue a request; the event is its grant."""
        self.requests.append(request)
        self.bank.something_changed()
        return request.granted

    def give(self, units: int) -> None:
        """Take units back."""
        self.free += units
        self.bank.something_changed()

    def grant(self) -> None:
        """Serve requests in order, up to the first that asks for more than is free."""
        self.requests.sort(key=self._key)
        while self.requests and self.requests[0].task.units <= self.free:
            request = self.requests.pop(0)
            self.free -= request.task.units
            request.granted.succeed()

    def _key(self, request: Request) -> TieKey:
        return choice_key(self.discipline, request.task, request.chunk, 0, request.asked_ps)


@dataclass(eq=False)
class Bank:
    """All pools. They grant in the same round, before anything that one of their grants causes."""

    clock: Clock
    pools: list[Pool] = field(default_factory=list)
    _round_is_due: bool = False

    def something_changed(self) -> None:
        """Hold a round of grants once this picosecond has settled."""
        if not self._round_is_due:
            self._round_is_due = True
            self.clock.process(self._round())

    def _round(self) -> Steps:
        yield self.clock.at(self.clock.now_ps, GRANT)
        self._round_is_due = False
        for pool in self.pools:
            pool.grant()


@dataclass(eq=False)
class Visit:
    """One chunk at one hop: it arrives, is served from `start_ps` to `end_ps`, and goes on."""

    task: Task
    chunk: int
    hop: int
    server: Server
    service_ps: int
    latency_ps: int
    row: int
    started: simpy.Event
    ended: simpy.Event
    arrival_ps: int = -1
    start_ps: int = -1
    before: int = -1

    @property
    def end_ps(self) -> int:
        return self.start_ps + self.service_ps

    def ready_ps(self, onward: Visit, cut_through: bool) -> int:
        """When the chunk may start at its next hop."""
        if not cut_through:
            return self.end_ps + self.latency_ps
        # The later of the two keeps the tail from underrunning where rates rise.
        return max(self.start_ps + self.latency_ps, self.end_ps + self.latency_ps - onward.service_ps)

    def delivery_ps(self, deliver_head: bool) -> int:
        """When the chunk is delivered, if this hop is its last."""
        return (self.start_ps if deliver_head else self.end_ps) + self.latency_ps


@dataclass(eq=False)
class Server:
    """Serves one chunk at a time."""

    clock: Clock
    discipline: int
    waiting: list[Visit] = field(default_factory=list)
    done: list[Visit] = field(default_factory=list)
    _arrived: simpy.Event | None = None

    def join(self, visit: Visit) -> None:
        """A chunk arrives."""
        visit.arrival_ps = self.clock.now_ps
        self.waiting.append(visit)
        if self._arrived is not None:
            self._arrived.succeed()
            self._arrived = None

    def serve(self) -> Steps:
        """The life of the server: wait for a chunk, choose, serve."""
        while True:
            if not self.waiting:
                self._arrived = self.clock.event()
                yield self._arrived
            yield self.clock.at(self.clock.now_ps, CHOOSE)
            visit = min(self.waiting, key=self._key)
            self.waiting.remove(visit)
            self._start(visit)
            yield self.clock.at(visit.end_ps, SETTLE)
            visit.ended.succeed()

    def _start(self, visit: Visit) -> None:
        visit.start_ps = self.clock.now_ps
        visit.before = self.done[-1].row if self.done else -1
        self.done.append(visit)
        visit.started.succeed()

    def _key(self, visit: Visit) -> TieKey:
        return choice_key(self.discipline, visit.task, visit.chunk, visit.hop, visit.arrival_ps)


@dataclass(eq=False)
class Simulation:
    """The processes of one program."""

    program: Program
    clock: Clock = field(default_factory=Clock)
    servers: list[Server] = field(init=False)
    tasks: list[Task] = field(init=False)

    def __post_init__(self) -> None:
        self.base = log_base(self.program)
        self.servers = [Server(self.clock, int(discipline)) for discipline in self.program.server_discipline]
        self.tasks = [self._task(index) for index in range(self.program.n_tasks)]
        self._add_needs()
        self._add_pools()

    def run(self) -> None:
        """Until nothing can happen any more."""
        for server in self.servers:
            self.clock.process(server.serve())
        for task in self.tasks:
            self.clock.process(self.inject(task))
        self.clock.run()

    def inject(self, task: Task) -> Steps:
        """The life of a task: each chunk is released, granted, and joins the first server or is delivered."""
        for chunk in range(task.chunks):
            yield from task.released(chunk)
            yield from task.granted(chunk)
            visits = self.visits(task, chunk)
            if visits:
                self.clock.process(self.cross(visits))
                yield visits[0].ended
            else:
                task.start_ps = self.clock.now_ps if chunk == 0 else task.start_ps
                task.deliver()

    def cross(self, visits: list[Visit]) -> Steps:
        """The life of a chunk, from its injection to its delivery."""
        ready_ps = self.clock.now_ps
        for visit, onward in zip(visits, [*visits[1:], None], strict=True):
            yield self.clock.at(ready_ps, ARRIVE)
            visit.server.join(visit)
            yield visit.started
            if visit.chunk == 0 and visit.hop == 0:
                visit.task.start_ps = visit.start_ps
            if onward is not None:
                ready_ps = visit.ready_ps(onward, bool(self.program.cut_through))
        yield self.clock.at(visits[-1].delivery_ps(bool(self.program.deliver_head)), SETTLE)
        visits[-1].task.deliver()

    def visits(self, task: Task, chunk: int) -> list[Visit]:
        """What lies before a chunk, hop by hop."""
        p = self.program
        cut, route = p.task_cut[task.index], p.task_route[task.index]
        size = p.cut_size[cut, 0 if chunk < p.cut_first[cut] else 1]
        first, end = int(p.route_ptr[route]), int(p.route_ptr[route + 1])
        row = int(self.base[task.index]) + chunk * (end - first)
        return [
            Visit(
                task,
                chunk,
                hop,
                self.servers[p.hop_server[p.route_hop[at]]],
                service_ps=int(p.service_ps[size, p.server_rate[p.hop_server[p.route_hop[at]]]]),
                latency_ps=int(p.hop_latency_ps[p.route_hop[at]]),
                row=row + hop,
                started=self.clock.event(),
                ended=self.clock.event(),
            )
            for hop, at in enumerate(range(first, end))
        ]

    def _task(self, index: int) -> Task:
        p = self.program
        cut = p.task_cut[index]
        return Task(
            self.clock,
            index,
            chunks=int(p.cut_chunks[cut]),
            work=int(p.cut_work[cut]),
            tie_class=int(p.task_class[index]),
            priority=int(p.task_priority[index]) if p.task_priority.size else 0,
        )

    def _add_needs(self) -> None:
        p = self.program
        for parent, child in zip(*p.whole_edges(), strict=True):
            self.tasks[child].needs.append(Need(self.tasks[parent], WHOLE))
        for parent, child, lag in zip(*p.stream_edges(), strict=True):
            self.tasks[child].needs.append(Need(self.tasks[parent], int(lag)))

    def _add_pools(self) -> None:
        p = self.program
        bank = Bank(self.clock)
        for capacity, discipline in zip(p.pool_capacity, p.pool_discipline, strict=True):
            bank.pools.append(Pool(bank, int(capacity), int(discipline)))
        for task in self.tasks if bank.pools else []:
            if p.task_pool[task.index] >= 0:
                task.pool = bank.pools[p.task_pool[task.index]]
                task.units, task.asks_per = int(p.task_units[task.index]), int(p.task_per[task.index])
            for row in range(p.give_ptr[task.index], p.give_ptr[task.index + 1]):
                task.gives.append((bank.pools[p.give_pool[row]], int(p.give_units[row]), int(p.give_per[row])))


def run_reference(program: Program, *, log: bool = False) -> Outcome:
    """Simulate a program slowly and plainly: what the other engines are compared with.

    Parameters
    ----------
    program : Program
        What to run; nothing in it may use the reserved arrays.
    log : bool
        Keep the start of every service, and the service before it on the same server.

    Returns
    -------
    Outcome

    Raises
    ------
    Deadlock
        Nothing can move any more and tasks are left.
    WeftError
        The program has something that no engine simulates yet.
    """
    check_supported(program)
    simulation = Simulation(program)
    simulation.run()
    tasks, servers = simulation.tasks, simulation.servers
    check_finished(program, _column(tasks, "delivered"))
    finish_ps = _column(tasks, "finish_ps")
    return Outcome(
        start_ps=_column(tasks, "start_ps"),
        finish_ps=finish_ps,
        busy_ps=np.array([sum(visit.service_ps for visit in server.done) for server in servers], np.int64),
        makespan_ps=int(finish_ps.max(initial=0)),
        events=sum(len(server.done) for server in servers),
        log=_log(simulation) if log else None,
    )


def _column(tasks: list[Task], name: str) -> I64:
    return np.array([attrgetter(name)(task) for task in tasks], np.int64)


def _log(simulation: Simulation) -> Log:
    visits = sorted((visit for server in simulation.servers for visit in server.done), key=attrgetter("row"))
    start_ps = np.array([visit.start_ps for visit in visits], np.int64)
    return Log(simulation.base, start_ps, np.array([visit.before for visit in visits], np.int64))
