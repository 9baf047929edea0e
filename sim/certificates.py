"""Cheap checks after a run: each failure is a bug in weft, and says which rule was broken."""

from __future__ import annotations

import numpy as np

from sim.certificates_faults import certify_faulty
from sim.outcome import CertificateError as CertificateError
from sim.outcome import Log, Outcome
from sim.program import I64, Program


def certify(program: Program, outcome: Outcome, lower_bound_ps: int = 0) -> None:
    """Check a finished run: conservation, capacity, causality, bounds.

    Parameters
    ----------
    program : Program
    outcome : Outcome
        With a log, every service is checked as well.
    lower_bound_ps : int
        No run may be faster.

    Raises
    ------
    CertificateError
        With the rule, and the task or server that broke it.
    """
    if program.is_healthy:
        _conservation(program, outcome)
        _capacity(program, outcome)
        _causality(program, outcome)
    else:
        certify_faulty(program, outcome)
    if outcome.makespan_ps < lower_bound_ps:
        raise CertificateError(
            f"bounds: the run took {outcome.makespan_ps} ps, below the lower bound {lower_bound_ps} ps"
        )
    if outcome.log is not None:
        _no_overlap(program, outcome.log)


def _conservation(program: Program, outcome: Outcome) -> None:
    if outcome.events != program.chunk_hops():
        raise CertificateError(
            f"conservation: {outcome.events} services were done where the program has {program.chunk_hops()}"
        )
    due = _work_ps(program)
    if np.any(due != outcome.busy_ps):
        server = int(np.flatnonzero(due != outcome.busy_ps)[0])
        raise CertificateError(
            f"conservation: server {server} was busy for {outcome.busy_ps[server]} ps and has {due[server]} ps of work"
        )


def _work_ps(program: Program) -> I64:
    """Sum of the services that cross each server, (S,)."""
    work = np.zeros(program.n_servers, np.int64)
    for task in range(program.n_tasks):
        cut, route = program.task_cut[task], program.task_route[task]
        servers = program.hop_server[program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]]
        lead, rest = program.service_ps[program.cut_size[cut]][:, program.server_rate[servers]]
        leading = int(program.cut_first[cut])
        np.add.at(work, servers, leading * lead + (int(program.cut_chunks[cut]) - leading) * rest)
    return work


def _capacity(program: Program, outcome: Outcome) -> None:
    # With head delivery the last service of a server may end after the last delivery.
    slack = int(program.service_ps.max(initial=0)) if program.deliver_head else 0
    over = outcome.busy_ps > outcome.makespan_ps + slack
    if np.any(over):
        server = int(np.flatnonzero(over)[0])
        raise CertificateError(
            f"capacity: server {server} was busy for {outcome.busy_ps[server]} ps of {outcome.makespan_ps} ps"
        )


def _causality(program: Program, outcome: Outcome) -> None:
    parent, child = program.whole_edges()
    early = outcome.start_ps[child] < outcome.finish_ps[parent]
    if np.any(early):
        edge = int(np.flatnonzero(early)[0])
        raise CertificateError(
            f"causality: task {child[edge]} started at {outcome.start_ps[child[edge]]} ps, before task "
            f"{parent[edge]} was delivered at {outcome.finish_ps[parent[edge]]} ps"
        )
    backwards = outcome.finish_ps < outcome.start_ps
    if np.any(backwards) or np.any(outcome.start_ps < 0):
        task = int(np.flatnonzero(backwards | (outcome.start_ps < 0))[0])
        raise CertificateError(f"causality: task {task} finished before it started, or never started")


def _no_overlap(program: Program, log: Log) -> None:
    """No server serves two chunks at once."""
    hops, chunks = program.hops(), program.chunks()
    task = np.repeat(np.arange(program.n_tasks), chunks * hops)
    within = np.arange(task.size) - log.base[task]
    chunk, hop = np.divmod(within, np.maximum(hops[task], 1))
    server = program.route_server[program.route_ptr[program.task_route[task]] + hop]
    cut = program.task_cut[task]
    size = np.where(chunk < program.cut_first[cut], program.cut_size[cut, 0], program.cut_size[cut, 1])
    end = log.start_ps + program.service_ps[size, program.server_rate[server]]
    order = np.lexsort((log.start_ps, server))
    same = server[order][1:] == server[order][:-1]
    clash = same & (log.start_ps[order][1:] < end[order][:-1])
    if np.any(clash):
        row = int(order[1:][clash][0])
        raise CertificateError(f"capacity: server {server[row]} serves two chunks at {log.start_ps[row]} ps")
