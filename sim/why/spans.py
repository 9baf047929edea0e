"""When the operations of a job ran on each NPU, and what of the communication its computations had to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import I64
from sim.program.columns import crossings, services_ps
from sim.program.outcome import Outcome
from sim.why.explain import NO_DIMENSION, WAIT_ELSEWHERE, Names, run_with_log
from sim.why.faulty_path import walk_of
from sim.why.path import Wait, Walk
from sim.why.walks import Branch, Piece, Stretch
from topologies.garbage import few_searches
from topologies.stages import count, staged
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

    def between(self, start: I64, end: I64) -> I64:
        """Length of what lies between each two times."""
        return self._until(end) - self._until(start)

    def _until(self, time: I64) -> I64:
        starts, before = np.array([0, *self._starts], np.int64), np.array([0, *self._before], np.int64)
        at = np.searchsorted(starts[1:], time, side="right")
        found: I64 = np.minimum(before[at] + time - starts[at], before[at + 1])
        return found


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

    @staged("critical path")
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
        self._numbers: dict[tuple[tuple[str, str], bool], int] = {}
        self._number_of: dict[tuple[str, int, int], int] = {}  # by name, server and operation
        self._pieces: dict[Branch, I64] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_walk", "_pieces")} | {
            "_pieces": {}}  # closures; walked again

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
        task, server = crossings(program, np.arange(n_tasks))
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

    @staged("critical path")
    @few_searches()
    def _work_out_exposed(self, rank: int) -> dict[tuple[str, str], int]:
        parts, gaps = list[I64](), self._gaps(rank)
        for done, gap in enumerate(gaps):
            count("gaps between computations", done, len(gaps))
            parts += [self._stretch(stretch, gap.since_ps) for stretch in reversed(self._walk.back_from(gap))]
        start, end, number = np.concatenate([np.zeros((3, 0), np.int64), *parts], axis=1)
        length, under_way = np.maximum(end - start, 0), self._under_way(rank)
        own = length.copy()
        for (key, communicates), at in self._numbers.items():
            if communicates:
                mine = np.flatnonzero(number == at)
                ends = start[mine], start[mine] + length[mine]
                own[mine] = under_way[key[0]].between(*ends) if key[0] in under_way else 0
        found: dict[tuple[str, str], tuple[int, int]] = {}  # time, and the first piece
        others = length - own
        rows = [(key, own, np.flatnonzero((number == at) & (own > 0))) for (key, _), at in self._numbers.items()]
        for key, times, pieces in (*rows, ((WAIT_ELSEWHERE, NO_DIMENSION), others, np.flatnonzero(others))):
            if pieces.size:
                before, first = found.get(key, (0, length.size))
                found[key] = before + int(times[pieces].sum()), min(first, int(pieces[0]))
        return {key: time for key, (time, _) in sorted(found.items(), key=lambda one: (-one[1][0], one[1][1]))}

    def _stretch(self, stretch: Stretch, since_ps: int) -> I64:
        """Start and end of the pieces of a stretch in time order, and the number of what each is exposed as, (3, n)."""
        branch, begin, end = stretch
        known = self._pieces.get(branch, np.zeros((3, 0), np.int64))
        if known.shape[1] < end:
            new = branch.pieces[known.shape[1]:]
            table = [(piece.start_ps, piece.end_ps, self._number(piece)) for piece in new]
            known = self._pieces[branch] = np.concatenate([known, np.array(table, np.int64).T], axis=1)
        found = known[:, begin:end][:, ::-1].copy()
        found[0] = np.maximum(found[0], since_ps)
        return found

    def _number(self, piece: Piece) -> int:
        """Number of the kind of communication and dimension of a piece, and whether NPUs communicate in it."""
        asked = piece.name, piece.server, self.names.number(piece)
        if asked not in self._number_of:
            operation = self.names.operation(piece)
            communicates = operation is not None and not isinstance(operation.work, Compute | Reconfigure)
            key = self.names.exposed(piece), communicates
            self._number_of[asked] = self._numbers.setdefault(key, len(self._numbers))
        return self._number_of[asked]

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
        """Servers of each dimension, and of the NICs."""
        found: dict[str, list[int]] = {}
        for server, link in enumerate(self.lowered.server_link.tolist()):
            if link >= 0 or self.lowered.is_end(server):
                found.setdefault(self.names.labels.server(server), []).append(server)
        return found


def run_with_joins(lowered: Lowered, change: Callable[[Lowered], Lowered]) -> tuple[Lowered, Outcome]:
    """A schedule alone once more, as an operation that shows when each NPU has finished; with a log.

    `change` adds the faults of the run to the program, where it has any.
    """
    symmetry = "off" if lowered.is_whole else "auto"
    joined = change(lower(lowered.job, lowered.model, symmetry, joins=True, marks=lowered.marks))
    return joined, run_with_log(joined)
