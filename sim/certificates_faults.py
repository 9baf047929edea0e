"""The certificates of a run with faults: every service, lost or not, is in its journal and is looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sim.contract import COMPLETES, DOWN, DROPS, I64, NEVER_PS, Program
from sim.outcome import CertificateError, Journal, Outcome

Rows = npt.NDArray[np.bool_]


def certify_faulty(program: Program, outcome: Outcome) -> None:
    """Conservation, capacity and causality of a finished run with faults.

    Raises
    ------
    CertificateError
        With the rule, and the task or server that broke it.
    """
    if outcome.journal is None:
        raise CertificateError("conservation: a run with faults is checked by its journal: run it with log=True")
    journal = outcome.journal
    server = program.hop_server[program.route_hop[journal.at]].astype(np.int64)
    _conservation(program, outcome, journal, server)
    _capacity(program, journal, server)
    _up(program, journal, server)
    _durations(program, journal, server)
    _causality(program, outcome, journal)


def _refuse(bad: Rows, journal: Journal, what: str) -> None:
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise CertificateError(
            f"{what}: chunk {journal.chunk[row]} of task {journal.task[row]}, from {journal.start_ps[row]} ps"
        )


def _conservation(program: Program, outcome: Outcome, journal: Journal, server: I64) -> None:
    """Every chunk crosses, in its last attempt, a whole route of its task; every ps of busy time is a service's."""
    order = np.lexsort((journal.start_ps, journal.chunk, journal.task))
    task, chunk, at = (column[order] for column in (journal.task, journal.chunk, journal.at))
    lost, moved = journal.lost[order], journal.moved[order]
    first = np.append(True, (task[1:] != task[:-1]) | (chunk[1:] != chunk[:-1]))[: task.size]
    begins = first | np.append(False, (lost | moved)[:-1])[: task.size]
    of_task = np.isin(np.stack([task, at]).T @ [program.route_hop.size, 1], _first_hops(program))
    sorted_rows = Journal._make(column[order] for column in journal)
    _refuse(begins & ~of_task, sorted_rows, "conservation: an attempt begins in the middle of a route")
    follows = np.append(False, at[1:] == at[:-1] + 1)[: task.size]
    _refuse(~begins & ~follows, sorted_rows, "conservation: a hop is left out or taken twice")
    ends = np.append(first[1:], True)[: task.size]
    last = program.hop_last[program.route_hop[at]] != 0
    _refuse(ends & (lost | moved | ~last), sorted_rows, "conservation: never delivered")
    _refuse(moved & ~begins, sorted_rows, "conservation: sent another way after it had left its source")
    sent = int(np.count_nonzero(first))
    due = int(program.chunks()[program.hops() > 0].sum())
    if sent != due:
        raise CertificateError(f"conservation: {sent} chunks were sent where the program has {due}")
    services = int(np.count_nonzero(journal.end_ps > journal.start_ps))
    if outcome.events != services:
        raise CertificateError(f"conservation: {outcome.events} services were done where the journal has {services}")
    busy = np.zeros(program.n_servers, np.int64)
    np.add.at(busy, server, journal.end_ps - journal.start_ps)
    if np.any(busy != outcome.busy_ps):
        one = int(np.flatnonzero(busy != outcome.busy_ps)[0])
        raise CertificateError(
            f"conservation: server {one} was busy for {outcome.busy_ps[one]} ps and did {busy[one]} ps of services"
        )


def _first_hops(program: Program) -> I64:
    """Where attempts may begin, as task x hops + place."""
    task, route = np.arange(program.n_tasks), program.task_route.astype(np.int64)
    if program.detour_ptr.size:
        task = np.concatenate([task, np.repeat(task, np.diff(program.detour_ptr))])
        route = np.concatenate([route, program.detour_route])
    return task * program.route_hop.size + program.route_ptr[route]


def _capacity(program: Program, journal: Journal, server: I64) -> None:
    """No server serves two chunks at once."""
    served = np.flatnonzero(journal.end_ps > journal.start_ps)
    order = served[np.lexsort((journal.start_ps[served], server[served]))]
    same = server[order][1:] == server[order][:-1]
    clash = same & (journal.start_ps[order][1:] < journal.end_ps[order][:-1])
    if np.any(clash):
        row = int(order[1:][clash][0])
        raise CertificateError(f"capacity: server {server[row]} serves two chunks at {journal.start_ps[row]} ps")


def _up(program: Program, journal: Journal, server: I64) -> None:
    """No service begins while its server is down, or crosses that unless it may."""
    served = journal.end_ps > journal.start_ps
    asleep, crosses = np.zeros(server.size, np.bool_), np.zeros(server.size, np.bool_)
    for one, rows, place in _in_force(program, journal, server):
        first, last = program.timetable_ptr[one], program.timetable_ptr[one + 1]
        down = program.timetable_rate[first:last] == DOWN
        # By the row in force, -1 before the first: when the server next goes down after it.
        times = np.append(np.where(down, program.timetable_from_ps[first:last], NEVER_PS), NEVER_PS)
        next_down = np.minimum.accumulate(times[::-1])[::-1]
        asleep[rows] = served[rows] & (place >= 0) & down[np.maximum(place, 0)]
        if program.server_crossing[one] % DROPS != COMPLETES:
            crosses[rows] = served[rows] & (journal.end_ps[rows] > next_down[place + 1])
    for bad, what in ((asleep, "is down and serves"), (crosses, "goes down while it serves")):
        if np.any(bad):
            _refuse(bad, journal, f"capacity: server {server[np.flatnonzero(bad)[0]]} {what}")


def _in_force(program: Program, journal: Journal, server: I64) -> Iterator[tuple[int, I64, I64]]:
    """Each server with a timetable, its rows of the journal, and the row in force as they start (-1: none)."""
    order = np.argsort(server, kind="stable")
    ends = np.searchsorted(server[order], np.arange(program.n_servers + 1))
    for one in np.flatnonzero(np.diff(program.timetable_ptr)).tolist():
        rows = order[ends[one] : ends[one + 1]]
        times = program.timetable_from_ps[program.timetable_ptr[one] : program.timetable_ptr[one + 1]]
        yield one, rows, np.searchsorted(times, journal.start_ps[rows], side="right") - 1


def _durations(program: Program, journal: Journal, server: I64) -> None:
    """No service is shorter than at the rate in force, but for those that were cut off."""
    cut = program.task_cut[journal.task]
    size = np.where(journal.chunk < program.cut_first[cut], program.cut_size[cut, 0], program.cut_size[cut, 1])
    rate = program.server_rate[server].astype(np.int64)
    for one, rows, place in _in_force(program, journal, server):
        rates = program.timetable_rate[program.timetable_ptr[one] : program.timetable_ptr[one + 1]]
        rate[rows] = np.where(place >= 0, rates[np.maximum(place, 0)], rate[rows])
    short = (rate != DOWN) & ~journal.lost & ~journal.moved
    least = program.service_ps[size, np.maximum(rate, 0)]
    _refuse(short & (journal.end_ps - journal.start_ps < least), journal, "capacity: served faster than its server can")


def _causality(program: Program, outcome: Outcome, journal: Journal) -> None:
    """Nothing is served before it arrives, arrives before it is ready, or starts before what it waits for."""
    _refuse(journal.start_ps < journal.arrival_ps, journal, "causality: served before it arrived")
    order = np.lexsort((journal.start_ps, journal.chunk, journal.task))
    rows = Journal._make(column[order] for column in journal)
    same = (rows.task[1:] == rows.task[:-1]) & (rows.chunk[1:] == rows.chunk[:-1])
    early = np.append(False, same & (rows.arrival_ps[1:] < rows.ready_ps[:-1]))[: rows.task.size]
    _refuse(early, rows, "causality: arrived before it was ready")
    parent, child = program.whole_edges()
    early = outcome.start_ps[child] < outcome.finish_ps[parent]
    if program.task_deadline_ps.size:
        early &= outcome.start_ps[child] < program.task_deadline_ps[child]
    if np.any(early):
        edge = int(np.flatnonzero(early)[0])
        raise CertificateError(
            f"causality: task {child[edge]} started at {outcome.start_ps[child[edge]]} ps, before task "
            f"{parent[edge]} was delivered at {outcome.finish_ps[parent[edge]]} ps"
        )
    wrong = (program.hops() > 0) & (outcome.finish_ps != _delivered(program, journal))
    if np.any(wrong):
        task = int(np.flatnonzero(wrong)[0])
        raise CertificateError(
            f"causality: task {task} finished at {outcome.finish_ps[task]} ps and its chunks were not in then"
        )


def _delivered(program: Program, journal: Journal) -> I64:
    """When the last chunk of each task was in, (T,)."""
    final = (program.hop_last[program.route_hop[journal.at]] != 0) & ~journal.lost & ~journal.moved
    last = np.full(program.n_tasks, -1, np.int64)
    np.maximum.at(last, journal.task[final], journal.ready_ps[final])
    return last
