"""A schedule or a job on a fabric with faults, beside the same on the healthy one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from collectives.core.schedule import Schedule
from sim.engine.reference import run_reference
from sim.engine.run import check_memory, run
from sim.faults.apply import Faulty, Placed, add_faults
from sim.faults.cost import named_deadlock
from sim.faults.plan import FaultPlan
from sim.lower.job import LoweredJob
from sim.lower.schedule import Lowered, lower
from sim.program.model import Model
from sim.program.outcome import Deadlock, Outcome
from sim.why.faulty_path import explain_faults
from sim.why.path import Labels, Why, explain
from topologies import WeftError
from workloads.job import CLOCK, Compute

if TYPE_CHECKING:
    from sim.engine.run import Progress

LATE = "late worker"


def place(lowered: Lowered) -> Placed:
    """What the servers and tasks of a schedule's program stand for."""
    shape = lowered.shape
    return Placed(
        lowered.program, lowered.schedule.topology, shape.server_link, np.full(shape.server_link.size, -1, np.int32),
        shape.quotient.transfers.src[shape.task_row].astype(np.int32), lowered.model.endpoint_latency_ps,
    )


def place_job(lowered: LoweredJob) -> Placed:
    """What the servers and tasks of a job's program stand for; clocks, and those who wait for them, are of no NPU."""
    clocks = [number for number, name in enumerate(lowered.streams) if name.startswith(CLOCK)]
    waiting = [number for number, operation in enumerate(lowered.job.operations)
               if isinstance(operation.work, Compute) and operation.work.stream.startswith(CLOCK)]
    return Placed(
        lowered.program, lowered.job.topology, lowered.server_link,
        np.where(np.isin(lowered.server_stream, clocks), -1, lowered.server_rank).astype(np.int32),
        np.where(np.isin(lowered.task_operation, waiting), -1, lowered.task_rank).astype(np.int32),
        lowered.model.endpoint_latency_ps,
    )


def run_schedule(
    schedule: Schedule, model: Model, plan: FaultPlan, engine: str = "chunk",
    progress: Callable[[Progress], None] | None = None, max_events: int | None = None,
) -> tuple[Lowered, Faulty, Outcome]:
    """Run a schedule with faults; all ranks, with a journal.

    Raises
    ------
    Deadlock
        With the names of links and NPUs: who waits for whom.
    """
    lowered = lower(schedule, model, "off")
    placed = place(lowered)
    faulty = add_faults(placed, plan)
    transfers, row = lowered.shape.quotient.transfers, lowered.shape.task_row

    def name(task: int) -> str:
        if task >= row.size:
            return "a late start"
        src, dst = (schedule.topology.node_name(int(end[row[task]])) for end in (transfers.src, transfers.dst))
        return f"{src} to {dst} (step {transfers.step[row[task]]})"

    return lowered, faulty, run_faulty(faulty, placed, name, engine, progress, max_events, plan=plan)


def run_faulty(
    faulty: Faulty, placed: Placed, task_name: Callable[[int], str], engine: str = "chunk",
    progress: Callable[[Progress], None] | None = None, max_events: int | None = None, *, plan: FaultPlan,
) -> Outcome:
    """Run a program with faults; a deadlock is told in the names of the topology."""
    if engine == "analytic":
        raise WeftError("the analytic engine knows no faults: choose the chunk or the reference engine")
    try:
        if engine == "reference":
            return run_reference(faulty.program, log=True)
        check_memory(faulty.program, log=True)
        return run(faulty.program, log=True, progress=progress, max_events=max_events)
    except Deadlock as stuck:
        raise named_deadlock(stuck, faulty, placed, task_name, plan) from None


def explain_schedule(lowered: Lowered, faulty: Faulty, outcome: Outcome) -> Why:
    """The critical path of a run of a schedule with faults."""
    labels = faulty_labels(faulty, place(lowered))
    walk = explain if outcome.journal is None else explain_faults  # without a journal nothing but starts is late
    found = walk(faulty.program, outcome, labels)
    pieces = tuple(
        piece._replace(name=labels.server(piece.server)) if piece.server in faulty.late else piece
        for piece in found.pieces
    )
    return Why(found.makespan_ps, pieces, found.service_ps)


def faulty_labels(faulty: Faulty, placed: Placed) -> Labels:
    """Names for the critical path: links by their dimension, and what begins late."""
    topology, program = placed.topology, faulty.program

    def server(index: int) -> str:
        if index in faulty.late:
            return f"{LATE} {faulty.late[index]}"
        link = int(faulty.server_link[index])
        dimension = int(topology.dimension[link]) if link >= 0 else -1
        if index in faulty.timers:
            return "timeout"
        return "compute" if link < 0 else f"dimension {dimension}" if dimension >= 0 else "links"

    def latency(at: int) -> list[tuple[str, int]]:
        kind = program.route_hop[at]
        link = int(faulty.server_link[program.hop_server[kind]])
        if link < 0:
            return [(server(int(program.hop_server[kind])), int(program.hop_latency_ps[kind]))]
        hop = int(topology.hop_latency_ps[topology.dst[link]])
        return [("hop processing", hop), ("endpoint", placed.endpoint_latency_ps if program.hop_last[kind] else 0)]

    return Labels(server, latency)
