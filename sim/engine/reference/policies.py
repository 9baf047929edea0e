"""What a program may have besides, as the reference engine sees it: NICs, queues that take turns, changes in time.

Of NICs: what an NPU posts, which engines take it, and what they push into the queue. A round happens once in a
picosecond, after all that delivers and releases, and before the arrivals. It looks at all that waits, in plain lists.
Queues take turns by deficit round robin. What changes in time is written from the contract, one question a method.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import simpy

from sim.program.contract import DOWN, DROPS, Program
from topologies.core.routing import hash64


class Transfer(Protocol):
    """A task, as far as a NIC knows it."""

    index: int
    tie_class: int
    port: int
    flow: int


@dataclass(eq=False)
class Want:
    """A chunk that waits to be posted, for an engine, or to be pushed, since a picosecond."""

    task: Transfer
    chunk: int
    work: int
    since_ps: int
    pushed: simpy.Event  # into the queue

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The least comes first."""
        return self.since_ps, self.task.tie_class, self.chunk, self.task.index


@dataclass(eq=False)
class Nic:
    """The NIC of one NPU, and the NPU that posts.

    `now_ps` is the clock; `round_at` calls `round` once in the picosecond that it is given.
    """

    now_ps: Callable[[], int]
    round_at: "Callable[[Nic, int], None]"
    engines: int
    room: int  # work that fits into the queue before engines wait
    post_ps: int
    in_turn: int  # ports of a phase that take turns
    unposted: list[Want] = field(default_factory=list)
    posted: list[Want] = field(default_factory=list)
    pushing: list[Want] = field(default_factory=list)
    holder: dict[int, Transfer] = field(default_factory=dict)  # of each flow that has an engine
    paused: list[Transfer] = field(default_factory=list)  # whose engine has just pushed a chunk
    unpushed: Counter[int] = field(default_factory=Counter)  # transfers of each port that are not pushed in full
    last_port: int | None = None
    may_post_ps: int = 0
    due: set[int] = field(default_factory=set)

    def send(self, task: Transfer, chunk: int, work: int, pushed: simpy.Event) -> simpy.Event:
        """A released chunk: happens when it is in the queue."""
        holds = self.holder.get(task.flow) is task
        (self.pushing if holds else self.unposted).append(Want(task, chunk, work, self.now_ps(), pushed))
        self.something_changed()
        return pushed

    def engine_is_done(self, task: Transfer, all_of_it: bool) -> None:
        """An engine has pushed a chunk of a task."""
        self.paused.append(task)
        self.unpushed[task.port] -= all_of_it
        self.something_changed()

    def served(self, work: int) -> None:
        """The server has done its service of a chunk."""
        self.room += work
        self.something_changed()

    def arrived_again(self, work: int) -> None:
        """A chunk that was lost is in the queue of the server again."""
        self.room -= work

    def dropped(self, work: int) -> None:
        """The server is down and has lost a chunk that waited; the arrivals of this picosecond are over."""
        self.room += work
        self.round_at(self, self.now_ps() + 1)

    def something_changed(self) -> None:
        """Hold a round in this picosecond."""
        self.round_at(self, self.now_ps())

    def round(self) -> None:
        """Free the engines that have nothing to push; post; give engines to what is posted; push."""
        for task in self.paused:
            if not any(want.task is task for want in self.pushing):
                del self.holder[task.flow]
                self.engines += 1
        self.paused = []
        self._post()
        for want in sorted(self.posted, key=lambda want: want.key):
            if self.engines and want.task.flow not in self.holder:
                self.posted.remove(want)
                self.engines -= 1
                self.holder[want.task.flow] = want.task
                want.since_ps = self.now_ps()
                self.pushing.append(want)
        for want in sorted(self.pushing, key=lambda want: want.key):
            if self.room > 0:
                self.pushing.remove(want)
                self.room -= want.work
                want.pushed.succeed()

    def _is_left_out(self, port: int) -> bool:
        """Whether a port was posted last, and another of its phase has transfers that are not pushed in full."""
        if self.in_turn == 0 or port != self.last_port:
            return False
        phase = port // self.in_turn
        return any(count for other, count in self.unpushed.items() if other != port and other // self.in_turn == phase)

    def _post(self) -> None:
        while self.unposted:
            if self.now_ps() < self.may_post_ps:
                self.round_at(self, self.may_post_ps)
                return
            choice = [want for want in self.unposted if not self._is_left_out(want.task.port)]
            if not choice:
                return
            want = min(choice, key=lambda want: want.key)
            self.unposted.remove(want)
            want.since_ps = self.now_ps()
            self.posted.append(want)
            self.last_port = want.task.port
            self.may_post_ps = self.now_ps() + self.post_ps


class Waiting(Protocol):
    """A chunk at a hop, as far as turns are concerned."""

    @property
    def queue(self) -> Hashable:
        """What has its turn when it is served."""

    @property
    def key(self) -> tuple[int, ...]:
        """Of the order in which chunks arrive; the least came first."""

    @property
    def cost(self) -> int:
        """What it costs its queue to be served."""


Chunk = TypeVar("Chunk", bound=Waiting)


@dataclass
class _Queue(Generic[Chunk]):
    """Chunks of one flow, or from one port."""

    name: Hashable
    allowance: int
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class Turns(Generic[Chunk]):
    """The line of a channel, in which at most the queue in front is empty. `quantum`: what a queue gets every turn."""

    quantum: int
    line: list[_Queue[Chunk]] = field(default_factory=list)

    def line_up(self, waiting: list[Chunk]) -> None:
        """Let the chunks that are new among all that wait join their queues, before what came after them."""
        known = [chunk for queue in self.line for chunk in queue.chunks]
        for chunk in sorted((one for one in waiting if one not in known), key=lambda one: one.key):
            chunks = self._in_line(chunk.queue).chunks
            later = (at for at, one in enumerate(chunks) if one.key > chunk.key)
            chunks.insert(next(later, len(chunks)), chunk)

    def choose(self) -> Chunk:
        """The chunk to serve now; one waits at least."""
        while True:
            queue = self.line.pop(0)
            if not queue.chunks:
                continue
            if queue.chunks[0].cost <= queue.allowance:
                self.line.insert(0, queue)
                return queue.chunks[0]
            queue.allowance += self.quantum
            self.line.append(queue)

    def leave(self, chunk: Chunk) -> None:
        """Let the chunk that was chosen leave its queue."""
        self.line[0].chunks.remove(chunk)

    def pay(self, chunk: Chunk) -> None:
        """Serve the chunk that was chosen."""
        self.line[0].allowance -= chunk.cost

    def _in_line(self, name: Hashable) -> _Queue[Chunk]:
        found = next((queue for queue in self.line if queue.name == name), None)
        if found is None:
            found = _Queue(name, self.quantum)
            self.line.append(found)
        return found


LOSS, JITTER = 0, 1


class Regime(NamedTuple):
    """What holds for a server from a time on."""

    from_ps: int
    rate: int
    latency_ps: int


@dataclass(eq=False)
class Conditions:
    """What holds for one server, and when it changes."""

    program: Program
    index: int

    def __post_init__(self) -> None:
        p = self.program
        self.regimes = [Regime(-1, int(p.server_rate[self.index]), 0)]
        if p.timetable_ptr.size:
            for row in range(p.timetable_ptr[self.index], p.timetable_ptr[self.index + 1]):
                self.regimes.append(
                    Regime(int(p.timetable_from_ps[row]), int(p.timetable_rate[row]), int(p.timetable_latency_ps[row]))
                )
        flag = int(p.server_crossing[self.index]) if p.server_crossing.size else 0
        self.drops, self.crossing = flag >= DROPS, flag % DROPS
        self.resend_ps = int(p.server_resend_ps[self.index]) if p.server_resend_ps.size else 0

    def at(self, time_ps: int) -> Regime:
        """What holds at a time."""
        return [regime for regime in self.regimes if regime.from_ps <= time_ps][-1]

    def up_from(self, time_ps: int) -> int | None:
        """When the server is up, at a time or after it; None: never again."""
        if self.at(time_ps).rate != DOWN:
            return time_ps
        return next((one.from_ps for one in self.regimes if one.from_ps > time_ps and one.rate != DOWN), None)

    def down_after(self, time_ps: int) -> int | None:
        """When the server next goes down after a time."""
        return next((one.from_ps for one in self.regimes if one.from_ps > time_ps and one.rate == DOWN), None)

    def jitter_ps(self, task: int, chunk: int, hop: int, attempt: int, of_service: bool) -> int:
        """What is drawn for a service, or for its latency."""
        p = self.program
        row = int(p.server_jitter[self.index]) if p.server_jitter.size else -1
        if row < 0 or bool(p.jitter_of_service[row]) != of_service:
            return 0
        return int(p.jitter_ps[row, self._draw(JITTER, task, chunk, hop, attempt) % p.jitter_ps.shape[1]])

    def loses(self, task: int, chunk: int, hop: int, attempt: int) -> bool:
        """Whether a service that nothing cuts off is lost."""
        if not self.program.server_loss.size:
            return False
        return self._draw(LOSS, task, chunk, hop, attempt) < int(self.program.server_loss[self.index])

    def _draw(self, what: int, task: int, chunk: int, hop: int, attempt: int) -> int:
        return int(hash64(self.program.seed, what, task, chunk, hop, attempt)[0]) >> 1


def detours_of(program: Program, task: int) -> list[tuple[int, int]]:
    """From when on a task takes which other route."""
    rows = range(*program.detour_ptr[task : task + 2]) if program.detour_ptr.size else range(0)
    return [(int(program.detour_from_ps[row]), int(program.detour_route[row])) for row in rows]


def route_from(program: Program, task: int, time_ps: int) -> int:
    """The route that chunks of a task take which join, or are sent again, at a time."""
    own = int(program.task_route[task])
    return [own, *(route for from_ps, route in detours_of(program, task) if from_ps <= time_ps)][-1]
