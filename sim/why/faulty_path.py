"""The critical path of a run with faults: waits for repairs, chunks lost and sent again, and late starts have names.

A chunk that waited at a free server, and was not given room just then, waited for the repair of the server or, where
it has a buffer and was not repaired just then, for room behind it, or for another chunk that did and went elsewhere.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.engine.compile.rows import Rows, rows
from sim.program.contract import HEAD, I32, I64, NEVER_PS, PER_CHUNK, Program
from sim.program.outcome import Journal, Outcome
from sim.why.backward import MEETS, NONE, PieceRow
from sim.why.path import (
    CREDITS,
    PLAIN,
    POSTING,
    QUEUEING,
    SERIALIZATION,
    Alike,
    Labels,
    LoggedWalk,
    Trail,
    Wait,
    Waits,
    Walks,
)
from topologies.stages import staged

State = int | tuple[int, int]
"""Where a walk is: a row of the log or journal (the start of that service), or the delivery of a (task, chunk)."""

NAMED = MEETS + 1
"""A piece whose `at` is its server and whose `size` is the number of its name."""

RESENT, MOVED, ADDED, SLOWED, DEADLINE = (
    "lost and sent again", "sent another way", "added latency", "slowed", "waiting for a deadline"
)


def walk_of(program: Program, outcome: Outcome, labels: Labels, alike: Alike | None = None) -> Walks:
    """Walks over the journal of a run or, without one, its log; `labels`: names for the account.

    `alike`: what makes pieces of a log one.

    WeftError: the run kept neither.
    """
    if outcome.journal is not None:
        return _FaultyWalk(program, outcome, outcome.journal, labels)
    return LoggedWalk(program, outcome, labels, alike=alike)


@staged("critical path")
def services_on_path(program: Program, outcome: Outcome) -> I64:
    """Services on the critical path of a run with a journal or a log, by server, (S,) ps."""
    walk = walk_of(program, outcome, PLAIN._replace(server=str))
    path, found = walk.followed(walk.end())[0], np.zeros(program.n_servers, np.int64)
    if isinstance(walk, LoggedWalk):
        return walk.served_ps(path)
    for server, time_ps in walk.served(path).items():
        found[int(server)] += time_ps
    return found


class Steps(Walks):
    """Walks step by step, in Python."""

    def __init__(self, program: Program, outcome: Outcome, labels: Labels) -> None:
        super().__init__(program, outcome, labels)
        self.hops, self.chunks = view(program.hops()), view(program.chunks())
        self.server, self.latency_ps = view(program.route_server), view(program.route_latency_ps)
        self.first_hop = view(program.route_ptr[program.task_route])
        self.route_hop, self.hop_last = view(program.route_hop), view(program.hop_last)
        self.finish_ps = view(outcome.finish_ps)
        self.room = program.route_server if program.buffer_shared else program.route_line
        self.whole_parents = _parents_of(program, *program.whole_edges())
        self.pushed_parents = _parents_of(program, *program.pushed_edges())
        self.stream_parents = _streams_of(program)
        self.givers: dict[int, tuple[I64, dict[int, list[int]]]] = {}
        self.found: list[tuple[int, ...]] = []  # rows of pieces
        self.places: dict[State, int] = {}
        self._pieces = rows(PieceRow)

    def step(self, state: State) -> State | None:
        """Account from a delivery or the start of a service to the one before it; None at the beginning of time."""
        return self._delivery(*state) if isinstance(state, tuple) else self._service_start(state)

    @abstractmethod
    def _delivery(self, task: int, chunk: int) -> State | None: ...

    @abstractmethod
    def _service_start(self, row: int) -> State | None: ...

    @abstractmethod
    def _before_start(self, task: int, start: int) -> State | None:
        """What was before the start of a task."""

    @abstractmethod
    def _delivered(self, task: int, chunk: int) -> int: ...

    def walked(self, waits: Waits) -> tuple[Rows[PieceRow], I64]:
        """Pieces of all paths walked so far, and the first one of each wait, (n,)."""
        first = np.array([self._walk_from(wait) for wait in waits.listed()], np.int64)
        if len(self._pieces) < len(self.found):
            new = np.array(self.found[len(self._pieces) :], PieceRow.words)
            self._pieces = rows(PieceRow, np.append(self._pieces.view(np.ndarray), new))
        return self._pieces, first

    def _walk_from(self, wait: Wait) -> int:
        """Walk on until an earlier walk is met; the first piece."""
        first, task = len(self.found), wait.task
        state: State | None = task, self.chunks[task] - 1
        if not wait.delivered:
            state = self._before_start(task, int(self.outcome.start_ps[task]))
        while state is not None and state not in self.places:
            self.places[state] = len(self.found)
            state = self.step(state)
        self.found.append((0, NEVER_PS, MEETS, -1, NONE if state is None else self.places[state], 0))
        return first

    def named(self, piece: Any, times: I64 | int = 1) -> tuple[Trail, I64]:
        """A path with the number of the name of each piece."""
        return self.told(piece), np.arange(piece.size)

    def alike(self, piece: Any) -> I64:
        """Pieces of one name on one server, or on none."""
        return np.asarray(piece["size"] * np.int64(self.program.n_servers + 1) + piece["at"] + 1, np.int64)

    def told(self, piece: Any) -> Trail:
        """Pieces with their own names."""
        return Trail(*(piece[word].astype(np.int64) for word in ("start_ps", "end_ps", "size", "task", "at")))

    def served(self, piece: Any) -> dict[str, int]:
        """Time on each server, ps, by its label."""
        found: dict[str, int] = {}
        for name, start, end in zip(*(piece[word].tolist() for word in ("size", "start_ps", "end_ps")), strict=True):
            what, _, label = self.names[name].partition(", ")
            if what in (SERIALIZATION, QUEUEING, SLOWED):
                found[label] = found.get(label, 0) + end - start
        return found

    def _piece(self, start: int, end: int, name: str, task: int, server: int) -> None:
        if end > start:
            self.found.append((start, end, NAMED, task, server, self.number(name)))

    def _latency_at(self, task: int, at: int, start: int) -> None:
        """Account the latency after a hop, which begins at `start`."""
        time = start + self.latency_ps[at]
        for name, ps in self.latency_parts(self.route_hop[at]):
            self.found.append((time - ps, time, NAMED, task, self.server[at], name))
            time -= ps

    def _has_nic(self, task: int) -> bool:
        return self.program.has_nics and bool(self.program.server_nic[self.server[self.first_hop[task]]] >= 0)

    def _needed(self, task: int, chunk: int, parent: int, lag: int) -> int:
        """Chunks of a stream parent that a chunk waits for."""
        return chunk - lag + 1 if lag else -(-(chunk + 1) * self.chunks[parent] // self.chunks[task])

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
        """Tasks that return units to a pool chunk by chunk, in their order; and all, by when they finish."""
        if pool not in self.givers:
            rows = np.flatnonzero(self.program.give_pool == pool)
            givers = np.searchsorted(self.program.give_ptr, rows, side="right").astype(np.int64) - 1
            finishing: dict[int, list[int]] = {}
            for giver in givers.tolist():
                finishing.setdefault(self.finish_ps[giver], []).append(giver)
            self.givers[pool] = givers[self.program.give_per[rows] == PER_CHUNK], finishing
        return self.givers[pool]

    def _delivered_at_once(self, task: int, chunk: int) -> int:
        """Delivery of a chunk of a task without servers: the last thing that it waited for, or its units."""
        times = self._waited_for(task, chunk)
        begun = int(self.outcome.start_ps[task]) if self.program.task_pool.size else 0
        return max(*times, self.finish_ps[task] if chunk == self.chunks[task] - 1 else begun, 0)

    def _waited_for(self, task: int, chunk: int) -> list[int]:
        """When each delivery was that a chunk waits for."""
        times = [self.finish_ps[parent] for parent in self.whole_parents(task)]
        for parent, lag in self.stream_parents(task):
            needed = self._needed(task, chunk, parent, lag)
            times += [self._delivered(parent, needed - 1)] if needed > 0 else []
        return times

    def delivers_head(self, at: int) -> bool:
        """Whether a hop of the routes is the last one, and delivers heads."""
        return self.hop_last[self.route_hop[at]] == HEAD


class _FaultyWalk(Steps):
    """Walks back along the rows of a journal."""

    def __init__(self, program: Program, outcome: Outcome, journal: Journal, labels: Labels) -> None:
        super().__init__(program, outcome, labels)
        self.journal = journal
        self.on = program.hop_server[program.route_hop[journal.at]].astype(np.int64)
        chunks = program.chunks()
        self.first = np.cumsum(chunks) - chunks
        place = self.first[journal.task] + journal.chunk
        self.order, self.row_ptr = _grouped(place, int(chunks.sum()))  # rows by task, chunk and start
        services = np.flatnonzero(journal.end_ps > journal.start_ps)
        order, ptr = _grouped(self.on[services], program.n_servers)
        self.services, self.service_ptr = view(services[order]), view(ptr)  # by server and start
        self.begins = view(journal.start_ps[services[order]])
        self.in_order: dict[int, I64] = {}
        self.room_of = self.room[journal.at]

    def _rows(self, task: int, chunk: int) -> list[int]:
        """Rows of a chunk, by start."""
        place = int(self.first[task]) + chunk
        rows: list[int] = self.order[self.row_ptr[place] : self.row_ptr[place + 1]].tolist()
        return rows

    def _delivery(self, task: int, chunk: int) -> State | None:
        """Walk from a delivery to the start of its last service, or to the delivery before it."""
        if self.hops[task] == 0:
            return self._release(task, chunk, self._delivered(task, chunk))
        time = self._delivered(task, chunk)
        # Delivered in order: an earlier chunk may have been the last one in.
        return self._after_service(
            next(self._rows(task, one)[-1] for one in range(chunk + 1) if self._in_ps(task, one) == time)
        )

    def _before_start(self, task: int, start: int) -> State | None:
        rows = self._rows(task, 0)
        first = next((row for row in rows if self.journal.end_ps[row] > self.journal.start_ps[row]), None)
        return self._release(task, 0, start) if first is None else first

    def _after_service(self, row: int) -> int:
        """Account from the start of a service until its chunk was ready; returns the row."""
        j = self.journal
        start, end, ready = int(j.start_ps[row]), int(j.end_ps[row]), int(j.ready_ps[row])
        if j.lost[row] or j.moved[row]:
            self._piece_of(row, start, ready, RESENT if j.lost[row] else MOVED)
            return row
        at = int(j.at[row])
        latency = self.latency_ps[at]
        if self.program.hop_last[self.program.route_hop[at]]:
            leaves = start if self.delivers_head(at) else end
        elif self.program.cut_through:
            leaves = max(start, end - self._nominal_ps(row, at + 1))
        else:
            leaves = end
        added = ready - latency - leaves
        self._piece_of(row, ready - added, ready, ADDED)
        self._latency_at(int(j.task[row]), at, leaves)
        slow = min(leaves - start, self._slow_ps(row))
        self._serve(row, leaves - slow, leaves, SLOWED)
        self._serve(row, start, leaves - slow, SERIALIZATION)
        return row

    def _service_start(self, row: int) -> State | None:
        """Walk from the start of a service to that of the row before it, or to the delivery that released its chunk."""
        j = self.journal
        start, arrival = int(j.start_ps[row]), int(j.arrival_ps[row])
        if arrival < start:
            ahead = self._ahead(row)
            free = int(j.end_ps[ahead]) if ahead >= 0 else -1
            if free < start and (holder := self.holders.get((int(self.room_of[row]), start))) is not None:
                return self._room_given_by(holder, row, start)
            down = f"{self.labels.down}, {self.labels.server(int(self.on[row]))}"
            what = CREDITS if self._waited_for_room(row) else down
            self._piece_of(row, max(free, arrival), start, what)
            if free > arrival:
                return self._serve_all(ahead, SERIALIZATION if j.task[ahead] == j.task[row] else QUEUEING)
        return self._to_injection(row, arrival)

    def _ahead(self, row: int) -> int:
        """The service before a row on its server; -1 for the first."""
        # What was sent another way or dropped, in no time, was so before the service that starts in that picosecond.
        first, end = self.service_ptr[self.on[row]], self.service_ptr[self.on[row] + 1]
        at = bisect_left(self.begins, int(self.journal.start_ps[row]), first, end) - 1
        return -1 if at < first else self.services[at]

    def _to_injection(self, row: int, time: int) -> State | None:
        j = self.journal
        task, chunk = int(j.task[row]), int(j.chunk[row])
        mine = self._rows(task, chunk)
        place = mine.index(row)
        if place:
            return self._after_service(mine[place - 1])
        if self._has_nic(task):
            released = min(time, self._released(task, chunk))
            self._piece_of(row, released, time, POSTING)
            return self._release(task, chunk, released)
        if chunk:
            served = next((one for one in self._rows(task, chunk - 1) if j.end_ps[one] > j.start_ps[one]), None)
            if served is not None and j.end_ps[served] == time:
                return self._serve_all(served, SERIALIZATION)
        return self._release(task, chunk, time)

    def _room_given_by(self, holder: int, row: int, time: int) -> State:
        """Walk from a service that waited for room, until a time, to that which gave it back."""
        j = self.journal
        gone = time - int(self.program.server_credit_ps[self.on[row]])
        self._piece_of(row, gone, time, CREDITS)
        if j.lost[holder]:
            return self._serve_all(holder, SERIALIZATION if j.task[holder] == j.task[row] else QUEUEING)
        if self.program.hop_last[self.program.route_hop[j.at[holder]]]:
            return self._after_service(holder)
        mine = self._rows(int(j.task[holder]), int(j.chunk[holder]))
        onward = mine[mine.index(holder) + 1]
        return self._serve_all(onward, SERIALIZATION if j.task[onward] == j.task[row] else QUEUEING)

    @cached_property
    def holders(self) -> dict[tuple[int, int], int]:
        """Services by the buffer that they gave back, and when that was known."""
        p, j = self.program, self.journal
        if not p.has_credits:
            return {}
        last, onward = p.hop_last[p.route_hop[j.at]] != 0, np.empty(self.order.size, np.int64)
        onward[self.order] = np.roll(self.order, -1)
        gone = np.where(j.lost, j.end_ps, np.where(last, j.ready_ps, j.end_ps[onward]))
        rows = np.flatnonzero((j.end_ps > j.start_ps) & p.bounded[self.on])
        back = (gone + p.server_credit_ps[self.on])[rows]
        return dict(zip(zip(self.room_of[rows].tolist(), back.tolist(), strict=True), rows.tolist(), strict=True))

    def _waited_for_room(self, row: int) -> bool:
        """Whether the server of a service has a buffer, and nothing changed there as it began."""
        p, server, start = self.program, int(self.on[row]), int(self.journal.start_ps[row])
        if not p.bounded[server]:
            return False
        begins = p.timetable_from_ps[slice(*p.timetable_ptr[server : server + 2])] if p.timetable_ptr.size else ()
        return start not in begins

    def _released(self, task: int, chunk: int) -> int:
        """When a chunk was released, units of a pool left out."""
        times = [*self._waited_for(task, chunk), *(self._push_end(parent)[1] for parent in self.pushed_parents(task))]
        deadlines = self.program.task_deadline_ps
        return min(max(times, default=0), int(deadlines[task]) if deadlines.size else NEVER_PS)

    def _push_end(self, task: int) -> tuple[int, int]:
        """The first row of a task's last chunk, and when an engine had pushed that."""
        p, chunk = self.program, self.chunks[task] - 1
        row, cut = self._rows(task, chunk)[0], p.task_cut[task]
        size = p.cut_size[cut, 0 if chunk < p.cut_first[cut] else 1]
        return row, int(self.journal.arrival_ps[row]) + int(p.push_ps[size])

    def _release(self, task: int, chunk: int, time: int) -> State | None:
        if time == 0:
            return None
        seen = {(task, chunk)}
        if (cause := self._cause(task, chunk, time, seen)) is not None:
            return cause
        if (row := self._push_at(seen, time)) is not None:
            pushed = int(self.journal.arrival_ps[row])
            self._piece_of(row, pushed, time, POSTING)
            return self._to_injection(row, pushed)
        deadlines = self.program.task_deadline_ps
        if not deadlines.size or not np.any(deadlines[deadlines < NEVER_PS] == time):  # a fault of the engine
            raise AssertionError(f"nothing released task {task} at {time} ps")
        self._piece(0, time, DEADLINE, task, -1)
        return None

    def _push_at(self, seen: set[tuple[int, int]], time: int) -> int | None:
        """First row of the chunk with whose push, at this time, a wait of one of some tasks without servers ended."""
        for task in sorted({task for task, _ in seen}) if self.program.has_nics else ():
            for parent in self.pushed_parents(task):
                row, end = self._push_end(parent)
                if end == time:
                    return row
        return None

    def _in_ps(self, task: int, chunk: int) -> int:
        """When a chunk was in, delivered or not yet."""
        rows = self._rows(task, chunk)
        return int(self.journal.ready_ps[rows[-1]]) if rows else NEVER_PS

    def _delivered(self, task: int, chunk: int) -> int:
        if self.hops[task] == 0:
            return self._delivered_at_once(task, chunk)
        if task not in self.in_order:
            times = [self._in_ps(task, one) for one in range(self.chunks[task])]
            self.in_order[task] = np.maximum.accumulate(np.array(times, np.int64))
        return int(self.in_order[task][chunk])

    def _delivered_at_once(self, task: int, chunk: int) -> int:
        pushes = [self._push_end(parent)[1] for parent in self.pushed_parents(task)]
        time = max(super()._delivered_at_once(task, chunk), *pushes, 0)
        finish = int(self.outcome.finish_ps[task])
        return min(time, finish) if self.program.task_deadline_ps.size else time

    def _nominal_ps(self, row: int, at: int) -> int:
        """Service time of a row's chunk at a hop that nothing slows."""
        p, task, chunk = self.program, int(self.journal.task[row]), int(self.journal.chunk[row])
        cut = p.task_cut[task]
        size = p.cut_size[cut, 0 if chunk < p.cut_first[cut] else 1]
        return int(p.service(size, p.server_rate[self.server[at]]))

    def _slow_ps(self, row: int) -> int:
        """How much longer a service took than its server takes when nothing slows it."""
        j = self.journal
        return max(0, int(j.end_ps[row] - j.start_ps[row]) - self._nominal_ps(row, int(j.at[row])))

    def _serve_all(self, row: int, what: str) -> int:
        """Account a whole service; returns its row."""
        start, end = int(self.journal.start_ps[row]), int(self.journal.end_ps[row])
        slow = self._slow_ps(row)
        self._serve(row, end - slow, end, SLOWED)
        self._serve(row, start, end - slow, what)
        return row

    def _serve(self, row: int, start: int, end: int, what: str) -> None:
        self._piece_of(row, start, end, f"{what}, {self.labels.server(int(self.on[row]))}")

    def _piece_of(self, row: int, start: int, end: int, name: str) -> None:
        self._piece(start, end, name, int(self.journal.task[row]), int(self.on[row]))


def _grouped(number: I64, n: int) -> tuple[I64, I64]:
    """Rows by a number from 0 to n - 1, in their order where it is equal, and where each number begins, (n + 1,)."""
    order = np.argsort(number.astype(np.uint16), kind="stable")  # by 16 bits at a time, which NumPy sorts by radix
    for bits in range(16, n.bit_length(), 16):
        order = order[np.argsort((number[order] >> bits).astype(np.uint16), kind="stable")]
    return order, np.concatenate(([0], np.cumsum(np.bincount(number, minlength=n))))


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
