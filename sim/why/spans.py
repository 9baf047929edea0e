"""When the operations of a job ran on each NPU, and what of the communication its computations had to wait for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import I64
from sim.program.columns import crossings, services_ps
from sim.program.outcome import Outcome
from sim.why.explain import run_with_log
from sim.why.faulty_path import walk_of
from sim.why.names import NO_DIMENSION, WAIT_ELSEWHERE, Names
from sim.why.path import Wait, Walk
from sim.why.walks import Piece
from workloads.job import COMPUTE_STREAM, Compute, Reconfigure


class Union:
    """A union of intervals from time 0 on, for what of it lies between any two times."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._before = [0]  # length of the union before each of its disjoint intervals, and of all
        end = 0
        for start, stop in sorted(intervals):
            if stop > max(start, end):
                self._starts.append(max(start, end))
                self._before.append(self.length + stop - self._starts[-1])
                end = stop

    @property
    def length(self) -> int:
        """Of the union."""
        return self._before[-1]

    def between(self, start: int, end: int) -> int:
        """Length of what lies between two times."""
        return self._until(end) - self._until(start)

    def _until(self, time: int) -> int:
        at = bisect_right(self._starts, time) - 1
        return min(self._before[at] + time - self._starts[at], self._before[at + 1]) if at >= 0 else 0


class Span(NamedTuple):
    """An operation on an NPU."""

    operation: int
    rank: int
    start_ps: int
    end_ps: int


class Spans:
    """The operations of one run.

    `lowered`: with the joins of its operations.
    """

    def __init__(self, lowered: Lowered, outcome: Outcome) -> None:
        self.lowered, self.outcome, self.operations = lowered, outcome, lowered.job.operations
        self.names = Names(lowered)
        spans = []
        for (operation, rank), end in lowered.end_task.items():
            begin = lowered.begin_task[operation, rank]
            start = outcome.start_ps if begin == end else outcome.finish_ps
            spans.append(Span(operation, rank, int(start[begin]), int(outcome.finish_ps[end])))
        self.all = sorted(spans, key=lambda span: (span.start_ps, span.operation))
        self.of_rank: dict[int, list[Span]] = {}
        for span in self.all:
            self.of_rank.setdefault(span.rank, []).append(span)
        self._exposed: dict[int, dict[tuple[str, str], int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_walk"}  # closures; walked again

    def compute_ps(self, rank: int) -> int:
        """Time for which the compute stream of an NPU is busy, up to the delivery of each computation."""
        return Union((span.start_ps, span.end_ps) for span in self._stream(rank)).length

    def _stream(self, rank: int) -> list[Span]:
        return [
            span for span in self.of_rank.get(rank, ())
            if isinstance(work := self.operations[span.operation].work, Compute) and work.stream == COMPUTE_STREAM
        ]

    def communication_ps(self, rank: int) -> dict[str, int]:
        """Time for which an NPU has an operation of each kind of communication in progress."""
        return {kind: union.length for kind, union in self._under_way(rank).items()}

    def _under_way(self, rank: int) -> dict[str, Union]:
        """When an NPU has an operation of each kind of communication in progress."""
        found: dict[str, list[tuple[int, int]]] = {}
        for span in self.of_rank.get(rank, ()):
            operation = self.operations[span.operation]
            if not isinstance(operation.work, Compute):
                found.setdefault(operation.kind, []).append((span.start_ps, span.end_ps))
        return {kind: Union(intervals) for kind, intervals in found.items()}

    @cached_property
    def busy_ps(self) -> dict[tuple[str, str], int]:
        """Time that each kind of communication takes on the busiest link of each dimension."""
        kinds = [operation.kind for operation in self.operations]
        names = list(dict.fromkeys(kinds))
        kind_of_task = np.array([names.index(kind) for kind in kinds], np.int64)[self.lowered.task_operation]
        task, server, service = self._crossings()
        busy = np.zeros((len(names), self.lowered.server_link.size), np.int64)
        np.add.at(busy, (kind_of_task[task], server), service)
        return {
            (name, dimension): int(row[busiest].max())
            for name, row in zip(names, busy, strict=True)
            for dimension, busiest in self._dimensions().items()
            if row[busiest].any()
        }

    def _crossings(self) -> tuple[I64, I64, I64]:
        """Task and server of everything that was served, and for how long."""
        journal, program = self.outcome.journal, self.lowered.program
        n_tasks = self.lowered.task_operation.size  # what begins late comes after them
        if journal is not None:
            kept = journal.task < n_tasks
            server = program.route_server[journal.at[kept]].astype(np.int64)
            return journal.task[kept], server, (journal.end_ps - journal.start_ps)[kept]
        task, server = crossings(program, n_tasks)
        return task, server, services_ps(program, task, server)

    def exposed_ps(self, rank: int) -> dict[tuple[str, str], int]:
        """Where the time goes in which an NPU does not compute, by kind of communication and dimension.

        Each gap between computations is filled with the critical path to the computation after it (or to the end),
        so that compute and exposed times sum to the makespan. What the path spends in a kind of communication while
        the NPU itself has none in progress is communication of others: no kind is exposed for longer than it is in
        progress. The run must have kept a log.
        """
        if rank not in self._exposed:
            self._exposed[rank] = self._work_out_exposed(rank)
        return dict(self._exposed[rank])

    def _work_out_exposed(self, rank: int) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        under_way = self._under_way(rank)
        for gap in self._gaps(rank):
            for piece in self._walk.path(gap):
                key = self.names.exposed(piece)
                length = own = piece.end_ps - piece.start_ps
                if self._communicates(piece):
                    own = under_way[key[0]].between(piece.start_ps, piece.end_ps) if key[0] in under_way else 0
                for name, part in ((key, own), ((WAIT_ELSEWHERE, NO_DIMENSION), length - own)):
                    if part:
                        found[name] = found.get(name, 0) + part
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _communicates(self, piece: Piece) -> bool:
        """Whether a piece of a path belongs to an operation that NPUs take part in, and does not compute."""
        operation = self.names.operation(piece)
        return operation is not None and not isinstance(operation.work, Compute | Reconfigure)

    @cached_property
    def _walk(self) -> Walk:
        """The one walk of the run: where the paths of two NPUs meet, they are one."""
        return walk_of(self.lowered.program, self.outcome, self.names.labels)

    def _gaps(self, rank: int) -> list[Wait]:
        """Gaps of the compute stream, each with the task that ends it."""
        gaps, free = [], 0
        for span in self._stream(rank):
            if span.start_ps > free:
                gaps.append(Wait(self.lowered.end_task[span.operation, rank], free))
            free = max(free, span.end_ps)
        if self.outcome.makespan_ps > free:
            last = int(np.flatnonzero(self.outcome.finish_ps == self.outcome.makespan_ps)[-1])
            gaps.append(Wait(last, free, delivered=True))
        return gaps

    def _dimensions(self) -> dict[str, list[int]]:
        """Servers of each dimension."""
        found: dict[str, list[int]] = {}
        for server, link in enumerate(self.lowered.server_link.tolist()):
            if link >= 0:
                found.setdefault(self.names.dimension(link), []).append(server)
        return found


def run_with_joins(lowered: Lowered, change: Callable[[Lowered], Lowered]) -> tuple[Lowered, Outcome]:
    """A schedule alone once more, as an operation that shows when each NPU has finished; with a log.

    `change` adds the faults of the run to the program, where it has any.
    """
    symmetry = "off" if lowered.is_whole else "auto"
    joined = change(lower(lowered.job, lowered.model, symmetry, joins=True, marks=lowered.marks))
    return joined, run_with_log(joined)
