"""Whether a list of pieces is a critical path: from late to early, each is matched with what a log or a journal says.

Where several deliveries release a chunk at one time, the path may take any of them. Of pools, it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sim.program import Program
from sim.program.outcome import Outcome
from sim.why.path import Labels, Piece


class Delivered(NamedTuple):
    task: int
    chunk: int


class Begun(NamedTuple):
    """A service, by the number of its row; it is the state before it."""

    row: int


class Ended(NamedTuple):
    """The beginning of time."""


State = Delivered | Begun | Ended
Step = tuple[list[Piece], State]


class Service(NamedTuple):
    task: int
    chunk: int
    at: int  # hop in the routes
    arrival: int | None
    start: int
    end: int
    ready: int
    gone: str = ""  # lost, moved


class Paths:
    """What may lie before what, in one run."""

    def __init__(self, program: Program, outcome: Outcome, labels: Labels) -> None:
        self.p, self.outcome, self.labels = program, outcome, labels
        self.rows = list(self._logged() if outcome.journal is None else self._journaled())
        self.of_chunk: dict[Delivered, list[int]] = {}
        last: dict[int, int] = {}
        for row in sorted(range(len(self.rows)), key=lambda row: (self.rows[row].start, row)):
            one = self.rows[row]
            self.of_chunk.setdefault(Delivered(one.task, one.chunk), []).append(row)
        self.before: dict[int, int] = {}
        for row in sorted(range(len(self.rows)), key=lambda row: (self.rows[row].start, self.rows[row].end)):
            server = self._server(self.rows[row].at)
            self.before[row] = last.get(server, -1)
            if self.rows[row].end > self.rows[row].start:
                last[server] = row

    def explain(self, pieces: tuple[Piece, ...]) -> bool:
        """Whether the pieces, in time order, are a path to the first of the last deliveries."""
        finish = self.outcome.finish_ps.tolist()
        if not self.outcome.makespan_ps:
            return not pieces
        task = finish.index(self.outcome.makespan_ps)
        todo: list[tuple[State, int]] = [(Delivered(task, self._chunks(task) - 1), len(pieces))]
        seen = set(todo)
        while todo:
            state, left = todo.pop()
            if isinstance(state, Ended):
                if left == 0:
                    return True
                continue
            for some, before in self._steps(state):
                taken = [piece for piece in some if piece.end_ps > piece.start_ps]
                rest = left - len(taken)
                if rest >= 0 and list(pieces[rest:left]) == taken and (before, rest) not in seen:
                    seen.add((before, rest))
                    todo.append((before, rest))
        return False

    def _logged(self) -> Iterator[Service]:
        log, p = self.outcome.log, self.p
        assert log is not None
        for task in range(p.n_tasks):
            first, end = p.route_ptr[p.task_route[task]], p.route_ptr[p.task_route[task] + 1]
            for chunk in range(self._chunks(task)):
                arrival: int | None = None
                for at in range(first, end):
                    start = int(log.start_ps[log.base[task] + chunk * (end - first) + at - first])
                    stop = start + self._nominal(task, chunk, at)
                    ready = self._leaves(task, chunk, at, start, stop) + int(p.route_latency_ps[at])
                    yield Service(task, chunk, int(at), arrival, start, stop, ready)
                    arrival = ready

    def _journaled(self) -> Iterator[Service]:
        j = self.outcome.journal
        assert j is not None
        for row in range(j.task.size):
            gone = "lost and sent again" if j.lost[row] else "sent another way" if j.moved[row] else ""
            yield Service(int(j.task[row]), int(j.chunk[row]), int(j.at[row]), int(j.arrival_ps[row]),
                          int(j.start_ps[row]), int(j.end_ps[row]), int(j.ready_ps[row]), gone)

    def _chunks(self, task: int) -> int:
        return int(self.p.cut_chunks[self.p.task_cut[task]])

    def _server(self, at: int) -> int:
        return int(self.p.hop_server[self.p.route_hop[at]])

    def _nominal(self, task: int, chunk: int, at: int) -> int:
        p, cut = self.p, self.p.task_cut[task]
        return int(p.service(p.cut_size[cut, int(chunk >= p.cut_first[cut])], p.server_rate[self._server(at)]))

    def _leaves(self, task: int, chunk: int, at: int, start: int, end: int) -> int:
        """When what counts has left a server: the tail, the head, or the head that the tail can follow."""
        if self.p.hop_last[self.p.route_hop[at]]:
            return start if self.p.delivers_heads else end
        return max(start, end - self._nominal(task, chunk, at + 1)) if self.p.cut_through else end

    # --- steps ------------------------------------------------------------------------------------------------

    def _steps(self, state: Delivered | Begun) -> Iterator[Step]:
        if isinstance(state, Delivered):
            time = self._delivery(*state)
            if not self.p.has_hops(state.task):
                yield from self._released(state, time)
                return
            one = next(one for one in range(state.chunk + 1) if self._in(state.task, one) == time)
            row = self.of_chunk[Delivered(state.task, one)][-1]
            yield self._after(row), Begun(row)
            return
        one, before = self.rows[state.row], self.before[state.row]
        arrived = self._arrived(state.row)
        if arrived == one.start:
            yield from self._arrival(state.row, one.start)
            return
        free = self.rows[before].end if before >= 0 else -1
        if self.outcome.journal is None:
            yield self._whole(before, one.task), Begun(before)
            return
        assert arrived is not None
        server = self._server(one.at)
        name = f"waiting for repair, {self.labels.server(server)}"
        repair = [Piece(max(free, arrived), one.start, name, one.task, server)]
        if free > arrived:
            yield [*self._whole(before, one.task), *repair], Begun(before)
        else:
            for some, earlier in self._arrival(state.row, arrived):
                yield [*some, *repair], earlier

    def _arrived(self, row: int) -> int | None:
        """When a chunk came to its server; of a log, at its first server, whether something released it as it began."""
        one = self.rows[row]
        if one.arrival is not None:
            return one.arrival
        return one.start if any(True for _ in self._released(Delivered(one.task, one.chunk), one.start)) else None

    def _arrival(self, row: int, time: int) -> Iterator[Step]:
        """What was before a chunk came to a server: the hop before, the chunk before, a release."""
        one = self.rows[row]
        mine = self.of_chunk[Delivered(one.task, one.chunk)]
        at = mine.index(row)
        if at:
            yield self._after(mine[at - 1]), Begun(mine[at - 1])
            return
        ahead = self.of_chunk.get(Delivered(one.task, one.chunk - 1), []) if self.outcome.journal is not None else []
        served = next((other for other in ahead if self.rows[other].end > self.rows[other].start), -1)
        if served >= 0 and self.rows[served].end == time:
            yield self._whole(served, one.task), Begun(served)
            return
        yield from self._released(Delivered(one.task, one.chunk), time)

    def _released(self, state: Delivered, time: int) -> Iterator[Step]:
        """Deliveries by servers at a time that let a chunk go, tasks without servers in between."""
        if time == 0:
            yield [], Ended()
            return
        todo, seen, found = [state], {state}, False
        while todo:
            for cause in self._parents(todo.pop()):
                if self._delivery(*cause) == time and cause not in seen:
                    seen.add(cause)
                    if self.p.has_hops(cause.task):
                        found = True
                        yield [], cause
                    else:
                        todo.append(cause)
        deadlines = self.p.task_deadline_ps
        if not found and (deadlines == time).any():
            yield [Piece(0, time, "waiting for a deadline", state.task, -1)], Ended()

    def _parents(self, state: Delivered) -> Iterator[Delivered]:
        for parent, child in zip(*self.p.whole_edges(), strict=True):
            if child == state.task:
                yield Delivered(int(parent), self._chunks(int(parent)) - 1)
        for parent, child, lag in zip(*self.p.stream_edges(), strict=True):
            if child == state.task:
                theirs, mine = self._chunks(int(parent)), self._chunks(state.task)
                needed = state.chunk - int(lag) + 1 if lag else -(-(state.chunk + 1) * theirs // mine)
                if needed > 0:
                    yield Delivered(int(parent), needed - 1)

    def _in(self, task: int, chunk: int) -> int:
        rows = self.of_chunk.get(Delivered(task, chunk))
        return self.rows[rows[-1]].ready if rows else 2**63 - 1

    def _delivery(self, task: int, chunk: int) -> int:
        if self.p.has_hops(task):
            return max(self._in(task, one) for one in range(chunk + 1))
        finish = int(self.outcome.finish_ps[task])
        if chunk == self._chunks(task) - 1:
            return finish
        begun = int(self.outcome.start_ps[task]) if self.p.task_pool.size else 0  # with its units
        waited = (self._delivery(*one) for one in self._parents(Delivered(task, chunk)))
        return min(max((begun, *waited)), finish)

    # --- pieces, in time order ----------------------------------------------------------------------------------

    def _after(self, row: int) -> list[Piece]:
        """From the start of a service until its chunk was ready for what followed."""
        one = self.rows[row]
        server = self._server(one.at)
        if one.gone:
            return [Piece(one.start, one.ready, one.gone, one.task, server)]
        leaves = self._leaves(one.task, one.chunk, one.at, one.start, one.end)
        slow = min(leaves - one.start, max(0, one.end - one.start - self._nominal(one.task, one.chunk, one.at)))
        found = self._served(row, leaves, slow, "serialization")
        total, time = int(self.p.route_latency_ps[one.at]), leaves
        named = self.labels.latency(int(self.p.route_hop[one.at]))
        rest, added = total - sum(ps for _, ps in named), one.ready - leaves - total
        for name, ps in [("propagation", rest), *named, ("added latency", added)]:
            found.append(Piece(time, time + ps, name, one.task, server))
            time += ps
        return found

    def _whole(self, row: int, task: int) -> list[Piece]:
        """A service in front of another one, whose task this is."""
        one = self.rows[row]
        slow = max(0, one.end - one.start - self._nominal(one.task, one.chunk, one.at))
        return self._served(row, one.end, slow, "serialization" if one.task == task else "queueing")

    def _served(self, row: int, end: int, slow: int, what: str) -> list[Piece]:
        one = self.rows[row]
        server = self._server(one.at)
        label = self.labels.server(server)
        return [Piece(one.start, end - slow, f"{what}, {label}", one.task, server),
                Piece(end - slow, end, f"slowed, {label}", one.task, server)]
