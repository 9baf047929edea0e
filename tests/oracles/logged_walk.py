"""Walks over a log, step by step, each from late to early along what a chunk waited for."""

from __future__ import annotations

from bisect import bisect_right

from sim.program import Program
from sim.program.contract import UNBOUNDED
from sim.program.outcome import Outcome
from sim.why.faulty_path import State, Steps, view
from sim.why.path import CREDITS, POSTING, QUEUEING, SERIALIZATION, Labels


class LoggedSteps(Steps):
    """As `sim.why.path.LoggedWalk`; its classes of servers know nothing of what cutting through hides."""

    def __init__(self, program: Program, outcome: Outcome, labels: Labels) -> None:
        super().__init__(program, outcome, labels)
        assert outcome.log is not None
        self.base, self.start_ps, self.before = (view(column) for column in outcome.log)
        self.task_cut, self.cut_first = view(program.task_cut), view(program.cut_first)
        self.cut_size, self.server_rate = view(program.cut_size.ravel()), view(program.server_rate)

    def _delivery(self, task: int, chunk: int) -> State | None:
        """Walk from a delivery back to the start of its last service, or to the delivery that released it."""
        if self.hops[task] == 0:
            return self._release(task, chunk, self._delivered(task, chunk))
        hop = self.hops[task] - 1
        start, end = self._service(task, chunk, hop)
        leaves = start if self.delivers_head(self._at(task, hop)) else end
        self._latency_at(task, self._at(task, hop), leaves)
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
                self._piece(gone, start, CREDITS, task, server)
                if last:
                    return other, chunk
                onward = other, chunk, hop + 1
                self._add(*self._service(*onward), SERIALIZATION if other == task else QUEUEING, *onward)
                return holder + 1
            holder = self.before[holder]
        return None

    def _nic_start(self, row: int, task: int, chunk: int, start: int) -> State | None:
        """Walk from a service of a NIC to the one before it, or to the last delivery that the chunk waited for.

        When it was pushed leaves no trace, nor when another send was that it waited for: both are posting.
        """
        return self.before[row] if self._queued(row, task, start) else self._posted(task, chunk, start)

    def _posted(self, task: int, chunk: int, time: int) -> State | None:
        """Walk from a time at which a chunk was posted to the last delivery that it waited for."""
        released = max(self._waited_for(task, chunk), default=0)
        if time > released:
            self._piece(released, time, POSTING, task, self.server[self._at(task, 0)])
        return self._release(task, chunk, released)

    def _hop_before(self, task: int, chunk: int, hop: int, ready: int) -> None:
        """Account the time from the start of a service to the arrival at the next server."""
        start, _ = self._service(task, chunk, hop)
        left = ready - self.latency_ps[self._at(task, hop)]
        self._latency_at(task, self._at(task, hop), left)
        if left > start:
            self._add(start, left, SERIALIZATION, task, chunk, hop)

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
        waited = next((one for one in seen if self.pushed_parents(one[0])), None)
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
        self._piece(start, time, POSTING, task, self.server[self._at(task, 0)])
        return row

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

    def _service(self, task: int, chunk: int, hop: int) -> tuple[int, int]:
        start = self.start_ps[self._row(task, chunk, hop)]
        return start, start + self._duration(task, chunk, hop)

    def _duration(self, task: int, chunk: int, hop: int) -> int:
        cut = self.task_cut[task]
        size = self.cut_size[2 * cut + (chunk >= self.cut_first[cut])]
        return int(self.program.service(size, self.server_rate[self.server[self._at(task, hop)]]))

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
        self._piece(start, end, f"{what}, {self.labels.server(server)}", task, server)
