"""The reference engine: the contract of `sim.program.contract` as SimPy processes, written to be read.

Three kinds of process share one clock. A task injects its chunks one after the other; a chunk crosses the
servers of its route; a server serves one chunk at a time. The order inside one picosecond is the priority of
SimPy's events: whatever is scheduled in an earlier phase of the same picosecond is processed first, also when
it is caused by a later one (a grant that delivers a chunk goes back to SETTLE, and GRANT comes round again).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from sim.engine.reference.policies import Conditions, Nic, Turns, detours_of, route_from
from sim.program import I64, PER_CHUNK, PER_TASK, PUSHED, ROUND_ROBIN_FLOW, ROUND_ROBIN_PORT, WHOLE, Program
from sim.program.contract import ATTEMPTS, CLOCK_END_PS, DOWN, HEAD, LOSES, NEVER_PS, UNBOUNDED, WAITS, WEIGHTS
from sim.program.outcome import Journal, Log, Outcome, Stranded, check_finished, log_base, past_the_clock

SETTLE = NORMAL
"""Ends of service, deliveries, releases and requests; also where SimPy puts every event that succeeds."""
GRANT, POST, ARRIVE, CHOOSE = (EventPriority(SETTLE + phase) for phase in (1, 2, 3, 4))

Steps = Generator[simpy.Event, None, None]
TieKey = tuple[int, int, int, int, int, int]


class Clock(simpy.Environment):
    """Integer picoseconds, and a means to wait for a phase of one of them."""

    @property
    def now_ps(self) -> int:
        """The present time."""
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
    """What a task waits for: another task, whole or pushed, chunk by chunk (lag 0) or in a window (lag >= 1)."""

    parent: TaskProcess
    lag: int

    def deliveries(self, chunk: int, chunks: int) -> int:
        """Chunks that the parent must have delivered before `chunk` (of `chunks`) is released."""
        if self.lag == WHOLE:
            return self.parent.chunks
        if self.lag == 0:
            return -(-(chunk + 1) * self.parent.chunks // chunks)
        return chunk - self.lag + 1

    def missing(self, chunk: int, chunks: int) -> simpy.Event | None:
        """What must happen before `chunk` (of `chunks`) is released; None if it has."""
        if self.lag == PUSHED:
            assert self.parent.pushed is not None
            return None if self.parent.pushed.triggered else self.parent.pushed
        count = self.deliveries(chunk, chunks)
        return self.parent.has_delivered(count) if self.parent.delivered < count else None


@dataclass(eq=False)
class TaskProcess:
    """A task with what it waits for, what it asks of a pool, and how far it has come."""

    clock: Clock
    index: int
    chunks: int
    work: int
    tie_class: int
    priority: int
    port: int = 0
    flow: int = 0
    needs: list[Need] = field(default_factory=list)
    pool: UnitPool | None = None
    units: int = 0
    asks_per: int = PER_CHUNK
    gives: list[tuple[UnitPool, int, int]] = field(default_factory=list)
    deadline: simpy.Event | None = None
    delivered: int = 0
    arrived: set[int] = field(default_factory=set)
    pushed: simpy.Event | None = None
    start_ps: int = -1
    finish_ps: int = -1
    _milestones: dict[int, simpy.Event] = field(default_factory=dict)

    def has_delivered(self, count: int) -> simpy.Event:
        """Happens when `count` chunks, more than now, are delivered."""
        return self._milestones.setdefault(count, self.clock.event())

    def released(self, chunk: int) -> Steps:
        """Wait until nothing that `chunk` depends on is missing."""
        for need in self.needs:
            missing = need.missing(chunk, self.chunks)
            if missing is not None and self.deadline is None:
                yield missing
            elif missing is not None and self.deadline is not None and not self.deadline.processed:
                yield missing | self.deadline

    def granted(self, chunk: int) -> Steps:
        """Wait until the pool, if there is one, has granted `chunk` its units."""
        if self.pool is not None and (self.asks_per == PER_CHUNK or chunk == 0):
            yield self.pool.ask(Request(self, chunk, self.clock.now_ps, self.clock.event()))

    def deliver(self, chunk: int) -> None:
        """A chunk is in; it is delivered with those that waited for it when all before it are in too."""
        self.arrived.add(chunk)
        while self.delivered in self.arrived:
            self._deliver_next()

    def _deliver_next(self) -> None:
        self.delivered += 1
        complete = self.delivered == self.chunks
        if complete:
            self.finish_ps = self.clock.now_ps
        for pool, units, per in self.gives:
            if per == PER_CHUNK or (per == PER_TASK and complete):
                pool.give(units)
        if self.delivered in self._milestones:
            self._milestones.pop(self.delivered).succeed()


def choice_key(discipline: int, task: TaskProcess, chunk: int, hop: int, arrival_ps: int) -> TieKey:
    """The order in which servers and pools choose; the least comes first."""
    of_priority, of_work, of_chunk = WEIGHTS[discipline].tolist()
    rank = of_priority * task.priority + of_work * task.work + of_chunk * chunk
    return rank, arrival_ps, task.tie_class, chunk, hop, task.index


@dataclass(eq=False)
class Request:
    """A chunk that waits for units of its task's pool."""

    task: TaskProcess
    chunk: int
    asked_ps: int
    granted: simpy.Event


@dataclass(eq=False)
class UnitPool:
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
    pools: list[UnitPool] = field(default_factory=list)
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
    """One chunk at one hop: it arrives, is served from `start_ps` to `end_ps`, and goes on or is lost.

    `hop` counts from where the task's own route begins in the program, `place` from where the route taken does.
    """

    task: TaskProcess
    chunk: int
    hop: int
    place: int
    at: int
    attempt: int
    server: Server
    size: int
    latency_ps: int
    row: int
    started: simpy.Event
    ended: simpy.Event
    arrival_ps: int = -1
    start_ps: int = -1
    end_ps: int = -1
    before: int = -1
    lost: bool = False
    onward: Visit | None = None
    before_it: Visit | None = None
    channel: int = 0

    @property
    def service_ps(self) -> int:
        """How long the server was held."""
        return self.end_ps - self.start_ps

    def take(self, way: Visit) -> None:
        """Take another route from here."""
        for name in ("server", "hop", "at", "latency_ps", "row", "onward", "channel"):
            setattr(self, name, getattr(way, name))

    @property
    def room(self) -> Room:
        """What it holds from its service on."""
        return self.server.rooms[self.channel]

    @property
    def fits(self) -> bool:
        """Whether there is room for it behind its server."""
        return self.room.used + self.work <= self.server.limits[self.channel]

    @property
    def work(self) -> int:
        """Bytes or ps of the chunk."""
        return int(self.server.conditions.program.chunk_work[self.size])

    @property
    def cost(self) -> int:
        """What it costs its queue to be served."""
        return max(self.work, 1)

    @property
    def queue(self) -> Hashable:
        """What has its turn, at a server where queues take turns, when this is served."""
        by_port = self.server.discipline == ROUND_ROBIN_PORT
        return id(self.before_it and self.before_it.server) if by_port else (self.task.flow, self.place)

    @property
    def key(self) -> TieKey:
        """The order of service by the discipline of the server; where queues take turns, of the arrivals."""
        return choice_key(self.server.discipline, self.task, self.chunk, self.hop, self.arrival_ps)

    def time_at(self, rate: int) -> int:
        """Service time at a rate."""
        return int(self.server.conditions.program.service(self.size, rate))

    def ready_ps(self, onward: Visit, cut_through: bool) -> int:
        """When the chunk may start at its next hop."""
        if not cut_through:
            return self.end_ps + self.latency_ps
        # The later of the two keeps the tail from underrunning where rates rise.
        nominal = onward.server.conditions.regimes[0].rate
        return max(self.start_ps + self.latency_ps, self.end_ps + self.latency_ps - onward.time_at(nominal))

    def delivery_ps(self, program: Program) -> int:
        """When the chunk is delivered, if this hop is its last."""
        head = program.hop_last[program.route_hop[self.at]] == HEAD
        return (self.start_ps if head else self.end_ps) + self.latency_ps


@dataclass(eq=False)
class Room:
    """A buffer; `number` is that of the contract of deadlocks, s + c S."""

    number: int
    used: int = 0


@dataclass(eq=False)
class Server:
    """Serves one chunk at a time."""

    clock: Clock
    discipline: int
    conditions: Conditions
    way_now: Callable[[Visit], Visit | None]
    nic: Nic | None = None
    turns: list[Turns[Visit]] = field(default_factory=list)  # of each channel, where queues take turns
    served_last: int = -1  # channel
    limits: list[int] = field(default_factory=list)
    rooms: list[Room] = field(default_factory=list)
    credit_ps: int = 1
    waiting: list[Visit] = field(default_factory=list)
    done: list[Visit] = field(default_factory=list)
    dropped: list[Visit] = field(default_factory=list)
    moved: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    asleep_for_good: bool = False
    _arrived: simpy.Event | None = None

    def join(self, visit: Visit) -> None:
        """A chunk arrives."""
        visit.arrival_ps = self.clock.now_ps
        if self.nic is not None and visit.attempt:
            self.nic.arrived_again(visit.work)
        self.waiting.append(visit)
        self._something_changed()

    def give_back(self, room: Room, work: int, time_ps: int) -> Steps:
        """Room behind the server is given back at a time, and known to it later."""
        yield self.clock.at(time_ps + self.credit_ps, SETTLE)
        room.used -= work
        self._something_changed()

    def _looked_at(self) -> Iterator[Visit]:
        """What the server would serve now of each channel, from the one whose turn it is."""
        waiting = [[one for one in self.waiting if one.channel == channel] for channel in range(len(self.rooms))]
        for turns, of_channel in zip(self.turns, waiting, strict=False):
            turns.line_up(of_channel)
        for step in range(1, len(waiting) + 1):
            channel = (self.served_last + step) % len(waiting)
            if waiting[channel]:
                first = min(waiting[channel], key=attrgetter("key"))
                yield self.turns[channel].choose() if self.turns else first

    def _choice(self) -> Visit | None:
        """The chunk to serve now, after all that would be chosen have taken their detours; none without room."""
        while self.waiting:
            for visit in self._looked_at():
                way = self.way_now(visit)
                if way is not None and way.at != visit.at:
                    self._send(visit, way)
                    break
                if visit.fits:
                    return visit
            else:
                return None
        return None

    def _next_look(self) -> simpy.Event:
        """When a server that waits for room looks again, unless something changes: as it begins to drop what waits."""
        down_ps = self.conditions.down_after(self.clock.now_ps) if self.waiting and self.conditions.drops else None
        return self.clock.event() if down_ps is None else self.clock.at(down_ps, SETTLE)

    def _something_changed(self) -> None:
        if self._arrived is not None:
            self._arrived.succeed()
            self._arrived = None

    def serve(self) -> Steps:
        """The life of the server: wait for a chunk, choose, serve."""
        blocked = False
        while True:
            while not self.waiting or blocked:
                blocked, self._arrived = False, self.clock.event()
                yield self._arrived | self._next_look()
            yield self.clock.at(self.clock.now_ps, CHOOSE)
            now = self.clock.now_ps
            down = self.conditions.at(now).rate == DOWN
            if down and self.conditions.drops:
                self._drop_all()
                continue
            visit = None if down else self._choice()
            if visit is None and not down:
                blocked = True
                continue
            begin_ps = self.conditions.up_from(now) if visit is None else self._may_begin(visit)
            if begin_ps is None:
                self.asleep_for_good = True
                return
            if visit is None or begin_ps > now:
                yield self.clock.at(begin_ps, SETTLE)
                continue
            self._leave(visit)
            if self.turns:
                self.turns[visit.channel].pay(visit)
            self.served_last = visit.channel
            self._start(visit)
            yield self.clock.at(visit.end_ps, SETTLE)
            visit.ended.succeed()
            if self.nic is not None:
                self.nic.served(visit.work)

    def _leave(self, visit: Visit) -> None:
        """A chunk waits no more."""
        self.waiting.remove(visit)
        if self.turns:
            self.turns[visit.channel].leave(visit)

    def _send(self, visit: Visit, way: Visit) -> None:
        """Let a chunk at its source take another route, which may start elsewhere."""
        now = self.clock.now_ps
        if way.server is not self:
            self._leave(visit)
            self.moved.append((visit.task.index, visit.chunk, visit.at, ~visit.arrival_ps, now, now, now + 1))
            self.clock.process(_join_at(way.server, visit, now + 1))
        elif self.turns and way.channel != visit.channel:
            self.turns[visit.channel].leave(visit)
        visit.take(way)

    def _end_ps(self, visit: Visit) -> int:
        """When a service that begins now would end."""
        now = self.clock.now_ps
        jitter_ps = self.conditions.jitter_ps(visit.task.index, visit.chunk, visit.hop, visit.attempt, of_service=True)
        return now + visit.time_at(self.conditions.at(now).rate) + jitter_ps

    def _may_begin(self, visit: Visit) -> int | None:
        """Now, or when the server, which is up, is so again after the time for which it waits; None: never."""
        now = self.clock.now_ps
        down_ps = self.conditions.down_after(now)
        if down_ps is None or down_ps >= self._end_ps(visit) or self.conditions.crossing != WAITS:
            return now
        return down_ps if self.conditions.drops else self.conditions.up_from(down_ps)

    def _drop_all(self) -> None:
        """Lose what arrives at a server that is down."""
        for visit in self.waiting:
            visit.start_ps = visit.end_ps = self.clock.now_ps
            visit.lost = True
            visit.started.succeed()
            if self.nic is not None:
                self.nic.dropped(visit.work)
        self.dropped += self.waiting
        self.waiting = []
        for turns in self.turns:
            turns.line = []

    def _start(self, visit: Visit) -> None:
        now = self.clock.now_ps
        visit.start_ps, visit.end_ps = now, self._end_ps(visit)
        down_ps = self.conditions.down_after(now)
        drawn = visit.task.index, visit.chunk, visit.hop, visit.attempt
        if down_ps is not None and down_ps < visit.end_ps and self.conditions.crossing == LOSES:
            visit.end_ps, visit.lost = down_ps, True
        else:
            visit.lost = self.conditions.loses(*drawn)
        visit.latency_ps += self.conditions.at(now).latency_ps + self.conditions.jitter_ps(*drawn, of_service=False)
        visit.before = self.done[-1].row if self.done else -1
        self.done.append(visit)
        visit.room.used += visit.work
        visit.started.succeed()


@dataclass(eq=False)
class Simulation:
    """The processes of one program."""

    program: Program
    clock: Clock = field(default_factory=Clock)
    servers: list[Server] = field(init=False)
    tasks: list[TaskProcess] = field(init=False)

    def __post_init__(self) -> None:
        self.base = log_base(self.program)
        self.given_up: list[Visit] = []
        self.servers = [
            Server(self.clock, int(discipline), Conditions(self.program, index), self.way_now)
            for index, discipline in enumerate(self.program.server_discipline)
        ]
        self.tasks = [self._task(index) for index in range(self.program.n_tasks)]
        self._add_nics()
        self._add_turns()
        self._add_channels()
        self._add_needs()
        self._add_pools()

    def run(self) -> None:
        """Until nothing can happen any more, or the clock ends."""
        for server in self.servers:
            self.clock.process(server.serve())
        for task in self.tasks:
            self.clock.process(self.inject(task))
        while self.clock.peek() < CLOCK_END_PS:
            self.clock.step()
        if self.clock.peek() < math.inf and any(task.delivered < task.chunks for task in self.tasks):
            raise past_the_clock()

    def inject(self, task: TaskProcess) -> Steps:
        """The life of a task: each chunk is released, granted, and joins the first server or is delivered."""
        for chunk in range(task.chunks):
            yield from task.released(chunk)
            yield from task.granted(chunk)
            first = self.sent(task, chunk)
            if first is not None and first.server.nic is not None:
                yield from self.push(first, first.server.nic)
            elif first is not None:
                injected = self.clock.event()
                self.clock.process(self.cross(first, injected))
                yield injected
            else:
                task.start_ps = self.clock.now_ps if chunk == 0 else task.start_ps
                task.deliver(chunk)

    def push(self, first: Visit, nic: Nic) -> Steps:
        """A chunk is posted and pushed into the queue of its NIC, which keeps an engine busy for a while."""
        task = first.task
        yield nic.send(task, first.chunk, first.work, self.clock.event())
        as_pushed = self.sent(task, first.chunk)
        assert as_pushed is not None
        self.clock.process(self.cross(as_pushed, self.clock.event()))
        yield self.clock.at(self.clock.now_ps + int(self.program.push_ps[first.size]), SETTLE)
        is_last = first.chunk == task.chunks - 1
        nic.engine_is_done(task, is_last)
        if is_last and task.pushed is not None:
            task.pushed.succeed()

    def cross(self, first: Visit, injected: simpy.Event) -> Steps:
        """The life of a chunk, from its injection to its delivery; it is sent again as often as it is lost."""
        ready_ps, served = self.clock.now_ps, False
        visit: Visit | None = first
        while visit is not None:
            yield self.clock.at(ready_ps, ARRIVE)
            visit.server.join(visit)
            yield visit.started
            if not served and visit.end_ps > visit.start_ps:
                served = True
                visit.task.start_ps = visit.start_ps if visit.chunk == 0 else visit.task.start_ps
                self.clock.process(_after(visit.ended, injected))
            if visit.before_it is not None:
                self.give_back(visit.before_it, visit.end_ps)
            if visit.lost:
                if visit.end_ps > visit.start_ps:
                    self.give_back(visit, visit.end_ps)
                ready_ps = visit.end_ps + visit.server.conditions.resend_ps
                visit = self.sent_again(visit, ready_ps)
                continue
            if visit.onward is not None:
                ready_ps = visit.ready_ps(visit.onward, bool(self.program.cut_through))
            else:
                delivery_ps = visit.delivery_ps(self.program)
                self.give_back(visit, delivery_ps)
                yield self.clock.at(delivery_ps, SETTLE)
                visit.task.deliver(visit.chunk)
            visit = visit.onward

    def give_back(self, visit: Visit, time_ps: int) -> None:
        """A chunk gives back what it holds behind a server since it was served there."""
        if self.program.has_credits:
            self.clock.process(visit.server.give_back(visit.room, visit.work, time_ps))

    def way_now(self, visit: Visit) -> Visit | None:
        """The current route of a chunk that has not left its source; None where there are no detours."""
        if visit.place or not self.program.detour_ptr.size:
            return None
        return self.sent(visit.task, visit.chunk, visit.attempt)

    def sent_again(self, lost: Visit, ready_ps: int) -> Visit | None:
        """What lies before a chunk that was lost; nothing where it is given up."""
        if lost.attempt + 1 < ATTEMPTS:
            return self.sent(lost.task, lost.chunk, lost.attempt + 1, ready_ps)
        self.given_up.append(lost)
        return None

    def sent(self, task: TaskProcess, chunk: int, attempt: int = 0, ready_ps: int | None = None) -> Visit | None:
        """What lies before a chunk that is sent now, or at `ready_ps`: its first hop, from which the others follow."""
        time_ps = self.clock.now_ps if ready_ps is None else ready_ps
        visits = self.visits(task, chunk, attempt, route_from(self.program, task.index, time_ps))
        return visits[0] if visits else None

    def visits(self, task: TaskProcess, chunk: int, attempt: int, taken: int) -> list[Visit]:
        """A chunk at every hop of a route."""
        p = self.program
        cut, route = p.task_cut[task.index], int(p.task_route[task.index])
        size = p.cut_size[cut, 0 if chunk < p.cut_first[cut] else 1]
        begin = int(p.route_ptr[route])
        row = int(self.base[task.index]) + chunk * (int(p.route_ptr[route + 1]) - begin)
        visits = [
            Visit(
                task,
                chunk,
                at - begin,
                place,
                at,
                attempt,
                self.servers[p.hop_server[p.route_hop[at]]],
                size=int(size),
                latency_ps=int(p.hop_latency_ps[p.route_hop[at]]),
                row=row + at - begin,
                started=self.clock.event(),
                ended=self.clock.event(),
                channel=int(p.hop_channel[p.route_hop[at]]) if p.has_channels else 0,
            )
            for place, at in enumerate(range(p.route_ptr[taken], p.route_ptr[taken + 1]))
        ]
        for visit, onward in pairwise(visits):
            visit.onward, onward.before_it = onward, visit
        return visits

    def stranded(self) -> list[Stranded]:
        """Chunks that faults hold up for good."""
        found = [Stranded(one.task.index, one.chunk, one.server.conditions.index, ATTEMPTS) for one in self.given_up]
        for server in self.servers:
            if server.waiting and server.asleep_for_good:
                found += [
                    Stranded(one.task.index, one.chunk, server.conditions.index, one.attempt) for one in server.waiting
                ]
        return found

    def holding(self) -> set[tuple[int, int]]:
        """The buffer that each waiting chunk needs, and the one that it holds."""
        return {
            (visit.room.number, visit.before_it.room.number)
            for server in self.servers if self.program.has_credits
            for visit in server.waiting if visit.before_it is not None
        }

    def _task(self, index: int) -> TaskProcess:
        p = self.program
        cut = p.task_cut[index]
        deadline_ps = int(p.task_deadline_ps[index]) if p.task_deadline_ps.size else NEVER_PS
        return TaskProcess(
            self.clock,
            index,
            chunks=int(p.cut_chunks[cut]),
            work=int(p.cut_work[cut]),
            tie_class=int(p.task_class[index]),
            priority=int(p.task_priority[index]) if p.task_priority.size else 0,
            flow=int(p.task_flow[index]) if p.task_flow.size else 0,
            deadline=self.clock.at(deadline_ps, SETTLE) if deadline_ps < NEVER_PS else None,
        )

    def _add_channels(self) -> None:
        p = self.program
        for server in self.servers:
            index = server.conditions.index
            numbers = [index + channel * p.n_servers for channel in range(p.channels)]
            rooms = [Room(number) for number in numbers]
            server.rooms = rooms[:1] * p.channels if p.buffer_shared else rooms
            server.limits = [int(p.server_buffer[number]) if p.has_credits else UNBOUNDED for number in numbers]
            server.credit_ps = int(p.server_credit_ps[index]) if p.has_credits else 1

    def _add_turns(self) -> None:
        turning = [one for one in self.servers if one.discipline in (ROUND_ROBIN_FLOW, ROUND_ROBIN_PORT)]
        largest = dict.fromkeys(map(id, turning), 1)
        for task in self.tasks if turning else []:
            own = int(self.program.task_route[task.index])
            for route in (own, *(detour for _, detour in detours_of(self.program, task.index))):
                for chunk in range(task.chunks):
                    for visit in self.visits(task, chunk, 0, route):
                        largest[id(visit.server)] = max(largest.get(id(visit.server), 1), visit.cost)
        for server in turning:
            server.turns = [Turns(largest[id(server)]) for _ in range(self.program.channels)]

    def _add_nics(self) -> None:
        p = self.program
        for server in self.servers if p.has_nics else []:
            number = int(p.server_nic[server.conditions.index])
            if number >= 0:
                server.nic = Nic(
                    lambda: self.clock.now_ps, self._hold_round, int(p.nic_engines[number]), p.nic_queue, p.post_ps,
                    p.ports_in_turn,
                )
        for task in self.tasks if p.has_nics else []:
            task.port = int(p.task_port[task.index])
            task.pushed = self.clock.event()
            first = self.sent(task, 0)
            if first is not None and first.server.nic is not None:
                first.server.nic.unpushed[task.port] += 1

    def _hold_round(self, nic: Nic, time_ps: int) -> None:
        if time_ps not in nic.due:
            nic.due.add(time_ps)
            self.clock.process(self._round(nic, time_ps))

    def _round(self, nic: Nic, time_ps: int) -> Steps:
        yield self.clock.at(time_ps, POST)
        nic.due.remove(time_ps)
        nic.round()

    def _add_needs(self) -> None:
        p = self.program
        for parent, child in zip(*p.pushed_edges(), strict=True):
            self.tasks[child].needs.append(Need(self.tasks[parent], PUSHED))
        for parent, child in zip(*p.whole_edges(), strict=True):
            self.tasks[child].needs.append(Need(self.tasks[parent], WHOLE))
        for parent, child, lag in zip(*p.stream_edges(), strict=True):
            self.tasks[child].needs.append(Need(self.tasks[parent], int(lag)))

    def _add_pools(self) -> None:
        p = self.program
        bank = Bank(self.clock)
        for capacity, discipline in zip(p.pool_capacity, p.pool_discipline, strict=True):
            bank.pools.append(UnitPool(bank, int(capacity), int(discipline)))
        for task in self.tasks if bank.pools else []:
            if p.task_pool[task.index] >= 0:
                task.pool = bank.pools[p.task_pool[task.index]]
                task.units, task.asks_per = int(p.task_units[task.index]), int(p.task_per[task.index])
            for row in range(p.give_ptr[task.index], p.give_ptr[task.index + 1]):
                task.gives.append((bank.pools[p.give_pool[row]], int(p.give_units[row]), int(p.give_per[row])))


def _join_at(server: Server, visit: Visit, time_ps: int) -> Steps:
    yield server.clock.at(time_ps, ARRIVE)
    server.join(visit)


def _after(event: simpy.Event, then: simpy.Event) -> Steps:
    yield event
    then.succeed()


def run_reference(program: Program, *, log: bool = False) -> Outcome:
    """Simulate a program slowly and plainly: what the other engines are compared with.

    `log`: keep the start of every service, and the service before it on the same server; of a program with faults, the
        journal.
    Deadlock: nothing can move any more and tasks are left.
    """
    simulation = Simulation(program)
    simulation.run()
    tasks, servers = simulation.tasks, simulation.servers
    check_finished(program, _column(tasks, "delivered"), simulation.stranded(), simulation.holding())
    finish_ps = _column(tasks, "finish_ps")
    journal = None if program.is_healthy else _journal(simulation)
    return Outcome(
        start_ps=_column(tasks, "start_ps"),
        finish_ps=finish_ps,
        busy_ps=np.array([sum(visit.service_ps for visit in server.done) for server in servers], np.int64),
        makespan_ps=int(finish_ps.max(initial=0)),
        events=sum(len(server.done) for server in servers),
        log=_log(simulation) if log and program.is_healthy else None,
        journal=journal if log else None,
        lapses=None if journal is None else journal.lapses(program),
    )


def _column(tasks: list[TaskProcess], name: str) -> I64:
    return np.array([attrgetter(name)(task) for task in tasks], np.int64)


def _log(simulation: Simulation) -> Log:
    visits = sorted((visit for server in simulation.servers for visit in server.done), key=attrgetter("row"))
    start_ps = np.array([visit.start_ps for visit in visits], np.int64)
    return Log(simulation.base, start_ps, np.array([visit.before for visit in visits], np.int64))


def _journal(simulation: Simulation) -> Journal:
    cut_through = bool(simulation.program.cut_through)
    rows = []
    for visit in [visit for server in simulation.servers for visit in (*server.done, *server.dropped)]:
        if visit.lost:
            ready_ps = ~(visit.end_ps + visit.server.conditions.resend_ps)
        elif visit.onward is not None:
            ready_ps = visit.ready_ps(visit.onward, cut_through)
        else:
            ready_ps = visit.delivery_ps(simulation.program)
        rows.append((visit.task.index, visit.chunk, visit.at, visit.arrival_ps, visit.start_ps, visit.end_ps, ready_ps))
    rows += [row for server in simulation.servers for row in server.moved]
    return Journal.of_rows(np.array(rows, np.int64).reshape(-1, 7))
