"""Where the time went: the critical path of a run, every picosecond of it under a name.

The walk starts at the last delivery and goes back along what each chunk waited for: the service before it on the
same server, the hop before, the chunk before it at the first server, or the delivery that released it. The parts
sum to the makespan exactly.

One chunk over two servers, and where the walk goes from each `*` (a state: a delivery, or the start of a service):

    server a  ......[ other task ]* service ]~~ latency ~~>
    server b                              ......* service ]~~ latency ~~>* delivery
                                          <- queueing ->|
    delivery -> start of its last service: latency, serialization
    start, the server was busy until then -> start of the service before it there: serialization or queueing
    start, the chunk arrived then         -> start at the hop before: latency, serialization
    start at the first hop                -> the service of the chunk before, or the delivery that released this one

Invariant: each step adds pieces that end where the pieces before began, so there is neither a gap nor an overlap, and
the sum is exact. Where two causes end in the same picosecond, any of them explains it; the first found is taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sim.program import I32, I64, Program
from sim.program.contract import HEAD, UNBOUNDED
from sim.program.outcome import Log, Outcome
from sim.why.walks import Piece, State, Stretch, Walks, clipped
from topologies import WeftError
from topologies.checks import checked
from topologies.text.brief import one_line
from topologies.units import format_time

Part = TypeVar("Part", int, float)

SERIALIZATION, QUEUEING, POSTING, CREDITS = "serialization", "queueing", "posting", "credits"
"""The path's own bytes on a server; those of another transfer in front of it; from the release of a chunk until it is
in the queue of its NIC: posts of the rank, engines, pushes; until a link knows of room that was given back."""


class Labels(NamedTuple):
    """Names for the account.

    Attributes
    ----------
    server : callable (server) -> str
        Class of a server, such as "dimension 0".
    latency : callable (hop index in the routes) -> sequence of (name, ps)
        Named parts of a latency; a rest is called "propagation".
    """

    server: Callable[[int], str]
    latency: Callable[[int], list[tuple[str, int]]]


def _plain_server(server: int) -> str:
    return f"server {server}"


def _plain_latency(hop: int) -> list[tuple[str, int]]:
    return []


PLAIN = Labels(_plain_server, _plain_latency)


@checked
@one_line
@dataclass(frozen=True)
class Why:
    """The critical path and its account.

    Attributes
    ----------
    makespan_ps : int
    pieces : tuple of Piece
        In time order, without gaps, from 0 to the makespan.
    service_ps : dict of str to int
        Services on the path by class of server, other tasks' included: the derivative of the time by the logarithm
        of that class's slowness. Under cut-through, less those of a class that hide the ends of others.
    """

    makespan_ps: int
    pieces: tuple[Piece, ...]
    service_ps: dict[str, int]

    @property
    def parts(self) -> dict[str, int]:
        """Picoseconds under each name, largest first; they sum to the makespan."""
        total: dict[str, int] = {}
        for piece in self.pieces:
            total[piece.name] = total.get(piece.name, 0) + piece.end_ps - piece.start_ps
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        lines = [f"{format_time(self.makespan_ps)} = {self.makespan_ps} ps, of which"]
        for name, part in self.parts.items():
            lines.append(f"  {part:>16} ps  {part / max(self.makespan_ps, 1):6.1%}  {name}")
        return "\n".join(lines)


def by_kind(parts: Mapping[str, Part], mark: str = ",") -> dict[str, Part]:
    """Parts of a path by what stands before the mark: "serialization, dimension 0" is serialization."""
    total: dict[str, Part] = {}
    for name, part in parts.items():
        kind = name.partition(mark)[0]
        total[kind] = total[kind] + part if kind in total else part
    return total


def explain(program: Program, outcome: Outcome, labels: Labels = PLAIN) -> Why:
    """The critical path of a logged run.

    Parameters
    ----------
    program : Program
    outcome : Outcome
        Of a run with `log=True`.
    labels : Labels

    Raises
    ------
    WeftError
        The run kept no log.
    """
    if outcome.log is None:
        raise WeftError("the critical path needs a run with log=True")
    return Walk(program, outcome, outcome.log, labels).walk()


class Wait(NamedTuple):
    """A question to `Walk.path`: why did this task start (or, if `delivered`, end) so late, back to `since_ps`?

    It started as soon as it was released, without queueing.
    """

    task: int
    since_ps: int
    delivered: bool = False


class Walk(Walks):
    """Walks over a log; `sim.why.faulty_path` walks over a journal."""

    def __init__(self, program: Program, outcome: Outcome, log: Log, labels: Labels) -> None:
        super().__init__()
        self.program, self.outcome, self.log, self.labels = program, outcome, log, labels
        self.hops, self.chunks = view(program.hops()), view(program.chunks())
        self.task_cut, self.cut_first = view(program.task_cut), view(program.cut_first)
        self.cut_size, self.server_rate = view(program.cut_size.ravel()), view(program.server_rate)
        self.service_row, self.service_ps = view(program.service_row), view(program.service_ps)
        self.server, self.latency_ps = view(program.route_server), view(program.route_latency_ps)
        self.route_hop, self.hop_last = view(program.route_hop), view(program.hop_last)
        self.first_hop = view(program.route_ptr[program.task_route])
        self.base, self.start_ps, self.before = (view(column) for column in log)
        self.finish_ps = view(outcome.finish_ps)
        self.room = program.route_server if program.buffer_shared else program.route_line
        self.whole_parents = _parents_of(program, *program.whole_edges())
        self.pushed_parents = _parents_of(program, *program.pushed_edges())
        self.stream_parents = _streams_of(program)
        self.service: dict[str, int] = {}
        self.names: dict[tuple[str, int], tuple[str, str]] = {}
        self.latencies: dict[int, list[tuple[str, int]]] = {}
        self.givers: dict[int, tuple[I64, dict[int, list[int]]]] = {}

    def walk(self) -> Why:
        """The path to the last delivery."""
        if self.program.n_tasks and self.outcome.makespan_ps:
            task = int(np.flatnonzero(self.outcome.finish_ps == self.outcome.makespan_ps)[0])
            state: State | None = (task, self.chunks[task] - 1)
            while state is not None:
                state = self.step(state)
        return Why(self.outcome.makespan_ps, tuple(reversed(self.pieces)), self.service)

    def path(self, wait: Wait) -> tuple[Piece, ...]:
        """Pieces of the path to the start or end of a task, the part before `since_ps` cut off."""
        return clipped(self.back_from(wait), wait.since_ps)

    def back_from(self, wait: Wait) -> list[Stretch]:
        """The same in stretches, from late to early, that paths have in common."""
        start = int(self.outcome.start_ps[wait.task])
        last = wait.task, self.chunks[wait.task] - 1
        return self.stretches(last if wait.delivered else self._before_start(wait.task, start), wait.since_ps)

    def step(self, state: State) -> State | None:
        """Account from a delivery or the start of a service to the one before it."""
        return self._delivery(*state) if isinstance(state, tuple) else self._service_start(state)

    def _delivery(self, task: int, chunk: int) -> State | None:
        """Walk from a delivery back to the start of its last service, or to the delivery that released it."""
        if self.hops[task] == 0:
            return self._release(task, chunk, self._delivered(task, chunk))
        hop = self.hops[task] - 1
        start, end = self._service(task, chunk, hop)
        leaves = start if self.delivers_head(self._at(task, hop)) else end
        self._latency(task, hop, leaves)
        if leaves > start:
            self._add(start, end, SERIALIZATION, task, chunk, hop)
        return self._row(task, chunk, hop)

    def _before_start(self, task: int, start: int) -> State | None:
        """What was before the start of a task."""
        return self._release(task, 0, start)

    def _service_start(self, row: int) -> State | None:
        """Walk from the start of a service to that of the one before it, or to the delivery that released it."""
        task, chunk, hop = self._place(row)
        start = self.start_ps[row]
        if hop == 0 and self._has_nic(task):
            return self._nic_start(row, task, chunk, start)
        if hop and self._arrival(task, chunk, hop) == start:
            self._hop_before(task, chunk, hop - 1, start)
            return row - 1
        # At the first server, the chunk before this one or a release decides.
        cause = self._cause(task, chunk, start, {(task, chunk)}) if hop == 0 and start else None
        if cause or (hop == 0 and start == 0):
            return cause
        if self._queued(row, task, start):
            return self.before[row]
        return self._room_given(row, task, self._at(task, hop), start) or self._release(task, chunk, start)

    def _queued(self, row: int, task: int, start: int) -> bool:
        """Account the service before a row on its server, if that ended as this one began."""
        before = self.before[row]
        ahead = self._place(before) if before >= 0 else None
        if ahead is None or self._service(*ahead)[1] != start:
            return False
        self._add(*self._service(*ahead), SERIALIZATION if ahead[0] == task else QUEUEING, *ahead)
        return True

    def _room_given(self, row: int, task: int, at: int, start: int) -> State | None:
        """Walk from a service that waited for room to the service, or the delivery, that gave it back."""
        server = self.server[at]
        if not self.program.has_credits or self.program.server_buffer[server] == UNBOUNDED:
            return None
        credit_ps, holder = int(self.program.server_credit_ps[server]), self.before[row]
        while holder >= 0:
            other, chunk, hop = self._place(holder)
            last = hop == self.hops[other] - 1
            gone = self._delivered(other, chunk) if last else self._service(other, chunk, hop + 1)[1]
            if gone + credit_ps == start and self.room[self._at(other, hop)] == self.room[at]:
                self.pieces.append(Piece(gone, start, CREDITS, task, server))
                if last:
                    return other, chunk
                onward = other, chunk, hop + 1
                self._add(*self._service(*onward), SERIALIZATION if other == task else QUEUEING, *onward)
                return holder + 1
            holder = self.before[holder]
        return None

    def _has_nic(self, task: int) -> bool:
        return self.program.has_nics and bool(self.program.server_nic[self.server[self._at(task, 0)]] >= 0)

    def _nic_start(self, row: int, task: int, chunk: int, start: int) -> State | None:
        """Walk from a service of a NIC to the one before it, or to the last delivery that the chunk waited for.

        When it was pushed leaves no trace, nor when another send was that it waited for: both are posting.
        """
        return self.before[row] if self._queued(row, task, start) else self._posted(task, chunk, start)

    def _posted(self, task: int, chunk: int, time: int) -> State | None:
        """Walk from a time at which a chunk was posted to the last delivery that it waited for."""
        released = max(self._waited_for(task, chunk), default=0)
        if time > released:
            self.pieces.append(Piece(released, time, POSTING, task, self.server[self._at(task, 0)]))
        return self._release(task, chunk, released)

    def _needed(self, task: int, chunk: int, parent: int, lag: int) -> int:
        """Chunks of a stream parent that a chunk waits for."""
        return chunk - lag + 1 if lag else -(-(chunk + 1) * self.chunks[parent] // self.chunks[task])

    def _hop_before(self, task: int, chunk: int, hop: int, ready: int) -> None:
        """Account the time from the start of a service to the arrival at the next server."""
        start, end = self._service(task, chunk, hop)
        left = ready - self.latency_ps[self._at(task, hop)]
        self._latency(task, hop, left)
        if left > start:
            self._add(start, left, SERIALIZATION, task, chunk, hop)
            if left < end:  # cut through: as much of it hides as the next server takes, and slower ones hide more
                self._count(self.server[self._at(task, hop)], end - left)
                self._count(self.server[self._at(task, hop + 1)], left - end)

    def _release(self, task: int, chunk: int, time: int) -> State | None:
        """The delivery that released a chunk or gave it its units, at this time; None at time 0.

        By a server, or of a task without one that waited for pushes.
        """
        if time == 0:
            return None
        seen = {(task, chunk)}
        cause = self._cause(task, chunk, time, seen)
        if cause is not None:
            return cause
        waited = next((one for one in seen if self.hops[one[0]] == 0 and self.pushed_parents(one[0])), None)
        if waited is None:  # a fault of the engine, not of the input
            raise AssertionError(f"nothing released task {task} at {time} ps")
        return self._push(self.pushed_parents(task), time) if waited == (task, chunk) else waited

    def _push(self, tasks: list[int], time: int) -> State | None:
        """Walk from the end of the last push of these tasks to the service of what it pushed, or before its posting.

        When it was pushed leaves no trace: not after that service began.
        """
        start, task = max((self._service(task, self.chunks[task] - 1, 0)[0], task) for task in tasks)
        row = self._row(task, self.chunks[task] - 1, 0)
        if start > time:
            return self._posted(task, self.chunks[task] - 1, time)
        self.pieces.append(Piece(start, time, POSTING, task, self.server[self._at(task, 0)]))
        return row

    def _cause(self, task: int, chunk: int, time: int, seen: set[tuple[int, int]]) -> tuple[int, int] | None:
        """The same; None if nothing did.

        Tasks without servers pass things on within the picosecond, and may give the units that they took
        themselves: each of them is looked at once, and is among those seen then.
        """
        path = [self._causes(task, chunk, time)]
        while path:
            cause = next((one for one in path[-1] if one not in seen), None)
            if cause is None:
                path.pop()
            elif self.hops[cause[0]]:
                return cause
            else:
                seen.add(cause)
                path.append(self._causes(*cause, time))
        return None

    def _causes(self, task: int, chunk: int, time: int) -> Iterator[tuple[int, int]]:
        """Deliveries at this time that a chunk waited for, or that returned units to its task's pool."""
        for parent in self.whole_parents(task):
            if self.finish_ps[parent] == time:
                yield parent, self.chunks[parent] - 1
        for parent, lag in self.stream_parents(task):
            needed = self._needed(task, chunk, parent, lag)
            if needed > 0 and self._delivered(parent, needed - 1) == time:
                yield parent, needed - 1
        if self.program.task_pool.size and self.program.task_pool[task] >= 0:
            yield from self._units_given(int(self.program.task_pool[task]), time)

    def _units_given(self, pool: int, time: int) -> Iterator[tuple[int, int]]:
        """Deliveries at this time that returned units to a pool: of whole tasks, then of chunks."""
        givers, finishing = self._givers(pool)
        for giver in finishing.get(time, ()):
            yield giver, self.chunks[giver] - 1
        for giver in givers.tolist():
            for chunk in range(self.chunks[giver]):
                if self._delivered(giver, chunk) == time:
                    yield giver, chunk

    def _givers(self, pool: int) -> tuple[I64, dict[int, list[int]]]:
        """Tasks that return units to a pool, in their order; and by when they finish."""
        if pool not in self.givers:
            rows = np.flatnonzero(self.program.give_pool == pool)
            givers = np.searchsorted(self.program.give_ptr, rows, side="right").astype(np.int64) - 1
            finishing: dict[int, list[int]] = {}
            for giver in givers.tolist():
                finishing.setdefault(self.finish_ps[giver], []).append(giver)
            self.givers[pool] = givers, finishing
        return self.givers[pool]

    def _arrival(self, task: int, chunk: int, hop: int) -> int:
        """When a chunk reached a server that is not its first."""
        start, end = self._service(task, chunk, hop - 1)
        latency = self.latency_ps[self._at(task, hop - 1)]
        if not self.program.cut_through:
            return end + latency
        return max(start + latency, end + latency - self._duration(task, chunk, hop))

    def _delivered(self, task: int, chunk: int) -> int:
        hops = self.hops[task]
        if hops == 0:
            return self._delivered_at_once(task, chunk)
        start, end = self._service(task, chunk, hops - 1)
        at = self._at(task, hops - 1)
        return (start if self.delivers_head(at) else end) + self.latency_ps[at]

    def _delivered_at_once(self, task: int, chunk: int) -> int:
        """Delivery of a chunk of a task without servers: the last thing that it waited for."""
        times = self._waited_for(task, chunk)
        return max(*times, self.finish_ps[task] if chunk == self.chunks[task] - 1 else 0, 0)

    def _waited_for(self, task: int, chunk: int) -> list[int]:
        """When each delivery was that a chunk waits for."""
        times = [self.finish_ps[parent] for parent in self.whole_parents(task)]
        for parent, lag in self.stream_parents(task):
            needed = self._needed(task, chunk, parent, lag)
            times += [self._delivered(parent, needed - 1)] if needed > 0 else []
        return times

    def _service(self, task: int, chunk: int, hop: int) -> tuple[int, int]:
        start = self.start_ps[self._row(task, chunk, hop)]
        return start, start + self._duration(task, chunk, hop)

    def _duration(self, task: int, chunk: int, hop: int) -> int:
        cut = self.task_cut[task]
        size = self.cut_size[2 * cut + (chunk >= self.cut_first[cut])]
        return self.service_ps[self.service_row[size] + self.server_rate[self.server[self._at(task, hop)]]]

    def delivers_head(self, at: int) -> bool:
        """Whether a hop of the routes is the last one, and delivers heads."""
        return self.hop_last[self.route_hop[at]] == HEAD

    def _at(self, task: int, hop: int) -> int:
        return self.first_hop[task] + hop

    def _row(self, task: int, chunk: int, hop: int) -> int:
        return self.base[task] + chunk * self.hops[task] + hop

    def _place(self, row: int) -> tuple[int, int, int]:
        """Task, chunk and hop of a row of the log."""
        task = bisect_right(self.base, row) - 1
        chunk, hop = divmod(row - self.base[task], self.hops[task])
        return task, chunk, hop

    def _add(self, start: int, end: int, what: str, task: int, chunk: int, hop: int) -> None:
        server = self.server[self._at(task, hop)]
        label, name = self._names(what, server)
        self.service[label] = self.service.get(label, 0) + end - start
        self.pieces.append(Piece(start, end, name, task, server))

    def _count(self, server: int, ps: int) -> None:
        label, _ = self._names(SERIALIZATION, server)
        self.service[label] = self.service.get(label, 0) + ps

    def _names(self, what: str, server: int) -> tuple[str, str]:
        """Label of a server, and the name of what is done there."""
        if (what, server) not in self.names:
            label = self.labels.server(server)
            self.names[what, server] = label, f"{what}, {label}"
        return self.names[what, server]

    def _latency(self, task: int, hop: int, start: int) -> None:
        self._latency_at(task, self._at(task, hop), start)

    def _latency_at(self, task: int, at: int, start: int) -> None:
        """Account the latency after a hop, which begins at `start`."""
        if at not in self.latencies:
            named = self.labels.latency(at)
            rest = self.latency_ps[at] - sum(ps for _, ps in named)
            self.latencies[at] = [part for part in (*reversed(named), ("propagation", rest)) if part[1]]
        server, time = self.server[at], start + self.latency_ps[at]
        for name, ps in self.latencies[at]:
            self.pieces.append(Piece(time - ps, time, name, task, server))
            time -= ps


def view(column: npt.NDArray[np.integer]) -> memoryview:
    """A column to be read entry by entry: it gives plain integers, several times as fast as NumPy gives its own."""
    return column.data


def _parents_of(program: Program, parent: I32, child: I32) -> Callable[[int], list[int]]:
    """Parents of a task, by some edges."""
    order = np.argsort(child, kind="stable")
    ptr = view(np.concatenate(([0], np.cumsum(np.bincount(child, minlength=program.n_tasks)))))
    ordered = view(parent[order])

    def parents(task: int) -> list[int]:
        return ordered[ptr[task] : ptr[task + 1]].tolist()

    return parents


def _streams_of(program: Program) -> Callable[[int], list[tuple[int, int]]]:
    """Stream parents of a task, with their lags."""
    parent, child, lag = program.stream_edges()
    ptr = view(np.searchsorted(child, np.arange(program.n_tasks + 1)))

    def parents(task: int) -> list[tuple[int, int]]:
        first, end = ptr[task], ptr[task + 1]
        return list(zip(parent[first:end].tolist(), lag[first:end].tolist(), strict=True)) if first < end else []

    return parents
