"""The critical path of a run with faults: waits for repairs, chunks lost and sent again, and late starts have names."""

from __future__ import annotations

import numpy as np

from sim.program import I64
from sim.program.contract import NEVER_PS, Program
from sim.program.outcome import Journal, Log, Outcome
from sim.why.path import QUEUEING, SERIALIZATION, Labels, Walk, view
from sim.why.walks import Piece, State
from topologies import WeftError

REPAIR, RESENT, MOVED, ADDED, SLOWED, DEADLINE = (
    "waiting for repair", "lost and sent again", "sent another way", "added latency", "slowed", "waiting for a deadline"
)


def walk_of(program: Program, outcome: Outcome, labels: Labels) -> Walk:
    """Walks over the journal of a run or, without one, its log; arguments as in `sim.why.path.explain`.

    WeftError: the run kept neither.
    """
    if outcome.journal is not None:
        return _FaultyWalk(program, outcome, outcome.journal, labels)
    if outcome.log is None:
        raise WeftError("the critical path needs a run with log=True")
    return Walk(program, outcome, outcome.log, labels)


class _FaultyWalk(Walk):
    """Walks back along the rows of a journal."""

    def __init__(self, program: Program, outcome: Outcome, journal: Journal, labels: Labels) -> None:
        none = np.zeros(0, np.int64)
        super().__init__(program, outcome, Log(none, none, none), labels)
        self.journal = journal
        self.on = program.hop_server[program.route_hop[journal.at]].astype(np.int64)
        chunks = program.chunks()
        self.first = np.cumsum(chunks) - chunks
        place = self.first[journal.task] + journal.chunk
        self.order = np.argsort(place, kind="stable")  # rows by task, chunk and start
        self.row_ptr = np.searchsorted(place[self.order], np.arange(int(chunks.sum()) + 1))
        self.before = view(_before(self.on, journal))
        self.in_order: dict[int, I64] = {}

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
            self._piece(row, start, ready, RESENT if j.lost[row] else MOVED)
            return row
        at = int(j.at[row])
        latency = self.latency_ps[at]
        if self.program.hop_last[self.program.route_hop[at]]:
            leaves = start if self.program.deliver_head else end
        elif self.program.cut_through:
            leaves = max(start, end - self._nominal_ps(row, at + 1))
        else:
            leaves = end
        added = ready - latency - leaves
        self._piece(row, ready - added, ready, ADDED)
        self._latency_at(int(j.task[row]), at, leaves)
        slow = min(leaves - start, self._slow_ps(row))
        self._serve(row, leaves - slow, leaves, SLOWED)
        self._serve(row, start, leaves - slow, SERIALIZATION)
        return row

    def _service_start(self, row: int) -> State | None:
        """Walk from the start of a service to that of the row before it, or to the delivery that released its chunk."""
        j = self.journal
        start, arrival = int(j.start_ps[row]), int(j.arrival_ps[row])
        ahead = self.before[row]
        if arrival < start:
            free = int(j.end_ps[ahead]) if ahead >= 0 else -1
            self._piece(row, max(free, arrival), start, f"{REPAIR}, {self.labels.server(int(self.on[row]))}")
            if free > arrival:
                return self._serve_all(ahead, SERIALIZATION if j.task[ahead] == j.task[row] else QUEUEING)
        return self._to_injection(row, arrival)

    def _to_injection(self, row: int, time: int) -> State | None:
        j = self.journal
        task, chunk = int(j.task[row]), int(j.chunk[row])
        mine = self._rows(task, chunk)
        place = mine.index(row)
        if place:
            return self._after_service(mine[place - 1])
        if chunk:
            served = next((one for one in self._rows(task, chunk - 1) if j.end_ps[one] > j.start_ps[one]), None)
            if served is not None and j.end_ps[served] == time:
                return self._serve_all(served, SERIALIZATION)
        return self._release(task, chunk, time)

    def _release(self, task: int, chunk: int, time: int) -> State | None:
        try:
            return super()._release(task, chunk, time)
        except AssertionError:
            deadlines = self.program.task_deadline_ps
            if not deadlines.size or not np.any(deadlines[deadlines < NEVER_PS] == time):
                raise
            self.pieces.append(Piece(0, time, DEADLINE, task, -1))
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
        time = super()._delivered_at_once(task, chunk)
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
        if end > start:
            label = self.labels.server(int(self.on[row]))
            self.service[label] = self.service.get(label, 0) + end - start
            self._piece(row, start, end, f"{what}, {label}")

    def _piece(self, row: int, start: int, end: int, name: str) -> None:
        if end > start:
            self.pieces.append(Piece(start, end, name, int(self.journal.task[row]), int(self.on[row])))


def _before(server: I64, journal: Journal) -> I64:
    """The service before each row on its server; -1 for the first."""
    # What was sent another way or dropped, in no time, was so before the service that starts in that picosecond.
    order = np.lexsort((journal.end_ps, journal.start_ps, server))
    places = np.arange(server.size)
    served = np.maximum.accumulate(np.where((journal.end_ps > journal.start_ps)[order], places, -1))
    ahead = np.concatenate([[-1], served[:-1]])[: server.size]
    on_this = ahead >= np.searchsorted(server[order], server[order])
    before = np.empty(server.size, np.int64)
    before[order] = np.where(on_this, order[ahead], -1)
    return before
