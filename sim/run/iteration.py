"""The simulated iteration: when each operation ran, and what of the communication computations had to wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import NamedTuple

import numpy as np

from sim.analytic.program_bound import program_bound_ps
from sim.certify.circuits import certify_circuits
from sim.certify.healthy import certify
from sim.engine.reference import run_reference
from sim.engine.run import check_memory, run
from sim.faults.apply import add_faults, check_names
from sim.faults.cost import FAULTS_BREAK, FaultCost
from sim.faults.plan import FaultPlan, check_plan
from sim.lower.job import LoweredJob, lower_job
from sim.lower.names import task_names
from sim.program import I32, I64, Program, check_choice
from sim.program.model import Model
from sim.program.outcome import Outcome
from sim.run.faulty_run import LATE, place_job, run_faulty
from sim.why.faulty_path import MOVED, REPAIR, RESENT, walk_of
from sim.why.path import Labels, Wait
from sim.why.walks import Piece
from topologies.text.brief import one_line
from topologies.units import PS_PER_S
from workloads.job import COMPUTE_STREAM, Compute, Job, Reconfigure

IDLE_ELSEWHERE = "computation of others"
"""Time in which an NPU waits for what another one computes: the bubbles of a pipeline."""

NO_DIMENSION = ""


class Span(NamedTuple):
    """An operation on an NPU."""

    operation: int
    rank: int
    start_ps: int
    end_ps: int


@one_line
@dataclass(frozen=True, eq=False, kw_only=True)
class IterationResult:
    """One run of a job.

    Attributes
    ----------
    lowered : LoweredJob
    outcome : Outcome
    wall_s : float
        Lowering included.
    faults : FaultCost or None
        What faults cost, where there were any.
    """

    lowered: LoweredJob = field(repr=False)
    outcome: Outcome = field(repr=False)
    wall_s: float
    faults: FaultCost | None = field(default=None, repr=False)

    @property
    def symmetry(self) -> str:
        """Which NPUs were simulated."""
        return self.lowered.symmetry if self.faults is None else FAULTS_BREAK

    @property
    def job(self) -> Job:
        return self.lowered.job

    @property
    def program(self) -> Program:
        """What was run: with its faults, where there were any."""
        return self.lowered.program if self.faults is None else self.faults.faulty.program

    @cached_property
    def lower_bound_ps(self) -> int:
        """No run is faster: the work of the busiest link or stream, or the longest chain of operations."""
        return program_bound_ps(self.program)

    @property
    def time_ps(self) -> int:
        return self.outcome.makespan_ps

    @property
    def time_s(self) -> float:
        """From the first operation to the end of the last."""
        return self.time_ps / PS_PER_S

    @property
    def ranks(self) -> list[int]:
        """NPUs that were simulated, each for those like it."""
        return sorted({rank for _, rank in self.lowered.end_task})

    def notes(self) -> list[str]:
        """What a reader of the time should know: the cost of faults, and which of them did nothing."""
        if self.faults is None:
            return []
        from sim.faults.effects import without_effect

        plan, faulty = self.faults.plan, self.faults.faulty
        return [str(self.faults), *without_effect(plan, faulty, self.job.topology, self.outcome)]

    def spans(self) -> list[Span]:
        """Every operation on every simulated NPU, by start."""
        spans = []
        for (operation, rank), end in self.lowered.end_task.items():
            begin = self.lowered.begin_task[operation, rank]
            start = self.outcome.start_ps if begin == end else self.outcome.finish_ps
            spans.append(Span(operation, rank, int(start[begin]), int(self.outcome.finish_ps[end])))
        return sorted(spans, key=lambda span: (span.start_ps, span.operation))

    def compute_ps(self, rank: int) -> int:
        """Time for which the compute stream of an NPU is busy, up to the delivery of each computation."""
        return _covered([(span.start_ps, span.end_ps) for span in self._stream(rank)])

    def _stream(self, rank: int) -> list[Span]:
        works = [operation.work for operation in self.job.operations]
        return [
            span for span in self.spans() if span.rank == rank
            and isinstance(work := works[span.operation], Compute) and work.stream == COMPUTE_STREAM
        ]

    def communication_ps(self, rank: int) -> dict[str, int]:
        """Time for which an NPU has an operation of each kind of communication under way."""
        found: dict[str, list[tuple[int, int]]] = {}
        for span in self.spans():
            operation = self.job.operations[span.operation]
            if span.rank == rank and not isinstance(operation.work, Compute):
                found.setdefault(operation.kind, []).append((span.start_ps, span.end_ps))
        return {kind: _covered(intervals) for kind, intervals in found.items()}

    def busy_ps(self) -> dict[tuple[str, str], int]:
        """Time that each kind of communication takes on the busiest link of each dimension."""
        kinds = [operation.kind for operation in self.job.operations]
        names = list(dict.fromkeys(kinds))
        kind_of_task = np.array([names.index(kind) for kind in kinds], np.int64)[self.lowered.task_operation]
        task, server, service = self._crossings()
        busy = np.zeros((len(names), self._server_link.size), np.int64)
        np.add.at(busy, (kind_of_task[task], server), service)
        return {
            (name, dimension): int(row[busiest].max())
            for name, row in zip(names, busy, strict=True)
            for dimension, busiest in self._dimensions().items()
            if row[busiest].any()
        }

    def _crossings(self) -> tuple[I64, I64, I64]:
        """Task and server of everything that was served, and for how long."""
        journal, program = self.outcome.journal, self.program
        n_tasks = self.lowered.task_operation.size  # what begins late comes after them
        if journal is not None:
            kept = journal.task < n_tasks
            server = program.route_server[journal.at[kept]]
            return journal.task[kept], server.astype(np.int64), (journal.end_ps - journal.start_ps)[kept]
        task, at = _crossings(program.hops()[:n_tasks], program.route_ptr[program.task_route[:n_tasks]])
        server = program.route_server[at]
        cut = program.task_cut[task]
        lead, rest = (program.service_ps[program.cut_size[cut, k], program.server_rate[server]] for k in (0, 1))
        leading = program.cut_first[cut].astype(np.int64)
        service = leading * lead + (program.cut_chunks[cut] - leading) * rest
        return task, server.astype(np.int64), service

    @property
    def _server_link(self) -> I32:
        """Link of each server; -1 for others."""
        return self.lowered.server_link if self.faults is None else self.faults.faulty.server_link

    def exposed_ps(self, rank: int) -> dict[tuple[str, str], int]:
        """Where the time goes in which an NPU does not compute, by kind of communication and dimension.

        Each gap between computations is filled with the critical path to the computation after it (or to the end),
        so that compute and exposed times sum to the makespan.
        """
        gaps = self._gaps(rank)
        walk = walk_of(self.program, self.outcome, _LABELS)
        found: dict[tuple[str, str], int] = {}
        for gap in gaps:
            for piece in walk.path(gap):
                key = self._name(piece)
                found[key] = found.get(key, 0) + piece.end_ps - piece.start_ps
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _gaps(self, rank: int) -> list[Wait]:
        """Gaps of the compute stream, each with the task that ends it."""
        gaps, free = [], 0
        for span in self._stream(rank):
            if span.start_ps > free:
                gaps.append(Wait(self.lowered.end_task[span.operation, rank], free))
            free = max(free, span.end_ps)
        if self.time_ps > free:
            last = int(np.flatnonzero(self.outcome.finish_ps == self.time_ps)[-1])
            gaps.append(Wait(last, free, delivered=True))
        return gaps

    def _name(self, piece: Piece) -> tuple[str, str]:
        if piece.task >= self.lowered.task_operation.size:
            return LATE, NO_DIMENSION
        operation = self.job.operations[int(self.lowered.task_operation[piece.task])]
        if piece.name.startswith((REPAIR, RESENT, MOVED)):
            return operation.kind, piece.name.partition(",")[0]
        if isinstance(operation.work, Compute):
            return IDLE_ELSEWHERE, NO_DIMENSION
        if isinstance(operation.work, Reconfigure):
            return operation.kind, NO_DIMENSION
        return operation.kind, self._dimension(int(self._server_link[piece.server]))

    def _dimension(self, link: int) -> str:
        number = int(self.job.topology.dimension[link])
        return f"dimension {number}" if number >= 0 else "links"

    def _dimensions(self) -> dict[str, list[int]]:
        """Servers of each dimension."""
        found: dict[str, list[int]] = {}
        for server, link in enumerate(self._server_link.tolist()):
            if link >= 0:
                found.setdefault(self._dimension(link), []).append(server)
        return found


_LABELS = Labels(lambda server: "", lambda hop: [])


def simulate_job(
    job: Job, model: Model = Model(), *, engine: str = "chunk", symmetry: str = "auto", check: bool = False,
    faults: FaultPlan | None = None,
) -> IterationResult:
    """Run a job; keeps a log, which the exposed times need.

    Parameters
    ----------
    job : Job
    model : Model
    engine : {"chunk", "reference"}
    symmetry : {"auto", "off"}
    check : bool
        Check the certificates.
    faults : FaultPlan, optional
        What goes wrong on the way; the healthy job is run too.

    Raises
    ------
    WeftError
        A job that does not fit memory or model, or a broken certificate.
    Deadlock
        Faults leave operations that can never end: who waits for whom.
    """
    check_choice(engine, ("chunk", "reference"), "engine of a job")
    if faults is not None:
        check_plan(faults)
        check_names(job.topology, faults)
    started = perf_counter()
    lowered = lower_job(job, model, symmetry)
    check_memory(lowered.program, log=True)
    outcome = run(lowered.program, log=True) if engine == "chunk" else run_reference(lowered.program, log=True)
    healthy = IterationResult(lowered=lowered, outcome=outcome, wall_s=perf_counter() - started)
    if check:
        certify(healthy.program, outcome, healthy.lower_bound_ps)
        certify_circuits(healthy.program, outcome, job.topology, lowered.server_link, lowered.changes)
    return healthy if faults is None else _with_faults(healthy, faults, engine, check)


def _with_faults(healthy: IterationResult, plan: FaultPlan, engine: str, check: bool) -> IterationResult:
    """The same job once more, with faults."""
    started = perf_counter()
    lowered = lower_job(healthy.job, healthy.lowered.model, "off")
    placed = place_job(lowered)
    faulty = add_faults(placed, plan)
    outcome = run_faulty(faulty, placed, task_names(lowered), engine, plan=plan)
    result = IterationResult(
        lowered=lowered, outcome=outcome, wall_s=healthy.wall_s + perf_counter() - started,
        faults=FaultCost.of(plan, faulty, healthy.time_ps, outcome),
    )
    if check:
        certify(result.program, outcome, result.lower_bound_ps)
    return result


def _covered(intervals: list[tuple[int, int]]) -> int:
    """Length of a union of intervals."""
    total = end = 0
    for start, stop in sorted(intervals):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def _crossings(
    hops: np.ndarray[tuple[int], np.dtype[np.int64]], first: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Task and place in the routes of every crossing of a server."""
    task = np.repeat(np.arange(hops.size), hops)
    within = np.arange(task.size) - np.repeat(np.cumsum(hops) - hops, hops)
    return task, np.repeat(first.astype(np.int64), hops) + within
