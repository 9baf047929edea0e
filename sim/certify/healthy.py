"""Cheap checks after a run: each failure is a bug in weft, and names the rule that was broken."""

import numpy as np
import numpy.typing as npt

from sim.certify.conditions import rooms
from sim.certify.faulty import certify_faulty, waits
from sim.certify.in_turn import is_in_turn
from sim.certify.order import overtaken
from sim.certify.times import deliveries, free_ps, joins, ready_ps, sizes
from sim.program.columns import work_ps
from sim.program.contract import I32, I64, Program
from sim.program.outcome import CertificateError as CertificateError
from sim.program.outcome import Log, Outcome
from sim.program.service_table import slowest_ps

MANY = 2**16
"""Services: a longer log is proved by compiled passes if they can; to sort takes 200 bytes and 20 runs' time each."""


def certify(program: Program, outcome: Outcome, lower_bound_ps: int = 0) -> None:
    """Check a finished run: conservation, capacity, causality, bounds.

    `outcome`: with a log, every service is checked as well.
    `lower_bound_ps`: no run may be faster.
    CertificateError: with the rule, and the task or server that broke it.
    """
    log = outcome.log
    proved = log is not None and log.start_ps.size > MANY and is_in_turn(program, outcome, log)
    if program.is_healthy:
        if not proved:
            _conservation(program, outcome)
        _capacity(program, outcome)
        _causality(program, outcome)
    else:
        certify_faulty(program, outcome)
    if outcome.makespan_ps < lower_bound_ps:
        raise CertificateError(
            f"bounds: the run took {outcome.makespan_ps} ps, below the lower bound {lower_bound_ps} ps"
        )
    if log is not None and not proved:
        _services(program, outcome, log)


def _conservation(program: Program, outcome: Outcome) -> None:
    if outcome.events != program.chunk_hops():
        raise CertificateError(
            f"conservation: {outcome.events} services were done where the program has {program.chunk_hops()}"
        )
    due = work_ps(program)
    if np.any(due != outcome.busy_ps):
        server = int(np.flatnonzero(due != outcome.busy_ps)[0])
        raise CertificateError(
            f"conservation: server {server} was busy for {outcome.busy_ps[server]} ps and has {due[server]} ps of work"
        )


def _capacity(program: Program, outcome: Outcome) -> None:
    # With head delivery the last service of a server may end after the last delivery.
    slack = slowest_ps(program) if program.delivers_heads else 0
    over = outcome.busy_ps > outcome.makespan_ps + slack
    if np.any(over):
        server = int(np.flatnonzero(over)[0])
        raise CertificateError(
            f"capacity: server {server} was busy for {outcome.busy_ps[server]} ps of {outcome.makespan_ps} ps"
        )


def _causality(program: Program, outcome: Outcome) -> None:
    waits(program, outcome)
    backwards = outcome.finish_ps < outcome.start_ps
    if np.any(backwards) or np.any(outcome.start_ps < 0):
        task = int(np.flatnonzero(backwards | (outcome.start_ps < 0))[0])
        raise CertificateError(f"causality: task {task} finished before it started, or never started")


def _services(program: Program, outcome: Outcome, log: Log) -> None:
    """No server serves two chunks at once or lets one wait while it is free, and none is served before it is there.

    Whom servers choose is looked at by `sim.certify.order`, when NICs push by `sim.certify.times`. When a pool granted
    is not looked at.
    """
    hops, chunks = program.hops(), program.chunks()
    task = np.repeat(np.arange(program.n_tasks), chunks * hops)
    chunk, hop = np.divmod(np.arange(task.size) - log.base[task], np.maximum(hops[task], 1))
    at = program.route_ptr[program.task_route[task]] + hop
    server, size, start = program.route_server[at], sizes(program, task, chunk), log.start_ps
    end = start + program.service(size, program.server_rate[server])
    served = np.lexsort((start, server))
    free = free_ps(served, server, end)
    _refuse(start < free, "capacity: server {server} serves two chunks at {start} ps", task, chunk, server, start)
    ready = ready_ps(program, at, size, start, end, program.route_latency_ps[at])
    first, last = hop == 0, hop == hops[task] - 1
    wrong = first & (chunk == 0) & (start != outcome.start_ps[task])
    what = "causality: task {task} started at another time than its first service, at {start} ps"
    _refuse(wrong, what, task, chunk, server, start)
    joining = joins(program, outcome, deliveries(program, outcome, ready[last]), end[first])
    earliest, latest = (np.roll(ready, 1) for _ in joining)
    earliest[first], latest[first] = joining
    what = "causality: chunk {chunk} of task {task} is served by server {server} at {start} ps, before it is there"
    _refuse(start < earliest, what, task, chunk, server, start)
    if program.has_credits:
        gone = np.where(last, ready, np.roll(end, -1))
        behind = rooms(program, program.route_line[at], program.chunk_work[size], start, gone)
        what = "capacity: chunk {chunk} of task {task} starts at server {server} at {start} ps, without room behind it"
        _refuse(behind.over, what, task, chunk, server, start)
        free = np.where(behind.given, start, free)
    what = "capacity: chunk {chunk} of task {task} waits at server {server}, which is free, until {start} ps"
    _refuse(start > np.maximum(latest, free), what, task, chunk, server, start)
    known = earliest == latest
    _order(program, task, chunk, hop, at, start, earliest, served[known[served]])


def _order(
    program: Program, task: I64, chunk: I64, hop: I64, at: I32 | I64, start: I64, arrival: I64, served: I64
) -> None:
    """No server serves a chunk while another is due; `served`: those whose arrival is known, by server and start."""
    wrong = overtaken(program, task, chunk, hop, at, start, arrival, served)
    if wrong is not None:
        early, late = wrong
        raise CertificateError(
            f"order: server {program.route_server[at[early]]} serves chunk {chunk[early]} of task {task[early]} at "
            f"{start[early]} ps, before chunk {chunk[late]} of task {task[late]}, which is there since "
            f"{arrival[late]} ps"
        )


def _refuse(bad: npt.NDArray[np.bool_], what: str, task: I64, chunk: I64, server: I32, start: I64) -> None:
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise CertificateError(what.format(task=task[row], chunk=chunk[row], server=server[row], start=start[row]))
