"""The certificates of a long log of fifo servers: three compiled passes, and three words a service beside the log.

They prove what `sim.certify.healthy` sorts all services for, or prove nothing; then that names the rule that is broken.
Which service a server did before each is said by the log and looked at: each is before one other at most, on the same
server, and ends before it begins; one on each server is before all. So they are one line, in the order of time, and all
chunks are served in order where each is due after the one before it.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program import contract
from sim.program.contract import FIFO, HEAD, I64, Program
from sim.program.outcome import Log, Outcome
from topologies.compiled import cached, part

_SOURCES = (Path(__file__), Path(contract.__file__))
_entry = partial(cached, sources=_SOURCES, nogil=True, _nrt=False)
_part = partial(part, nogil=True, _nrt=False)

ARRIVAL, END, WHERE = range(3)
"""Words of a service: when it was there, when its service ended, and its server and task in one word."""


class Ran(NamedTuple):
    """A run, its log, and scratch."""

    began_ps: I64  # (T,)
    finish_ps: I64  # (T,)
    base: I64
    start_ps: I64
    before: I64
    whole_ps: I64  # (T,): zeros
    begun: npt.NDArray[np.bool_]  # (S,): zeros
    busy_ps: I64  # (S,): zeros
    words: I64  # (services, 3)


def is_in_turn(program: Program, outcome: Outcome, log: Log) -> bool:
    """Whether the passes prove that services keep the rules; not asked for pools, NICs, buffers and other queues."""
    others = program.task_pool, program.nic_engines, program.server_buffer
    if program.has_channels or any(one.size for one in others) or np.any(program.server_discipline != FIFO):
        return False
    tasks, servers, services = program.n_tasks, program.n_servers, log.start_ps.size
    ran = Ran(
        outcome.start_ps, outcome.finish_ps, *log, np.zeros(tasks, np.int64), np.zeros(servers, np.bool_),
        np.zeros(servers, np.int64), np.empty((services, 3), np.int64),
    )
    return in_turn(program, ran) and outcome.events == services and np.array_equal(ran.busy_ps, outcome.busy_ps)


@_part
def _takes_ps(program, size, server):  # type: ignore[no-untyped-def]  # jitted
    return program.service_ps[program.service_row[size] + program.server_rate[server]]


@_part
def _hops(program, task):  # type: ignore[no-untyped-def]  # jitted
    route = program.task_route[task]
    return program.route_ptr[route + 1] - program.route_ptr[route]


@_part
def _ready_ps(program, at, size, start_ps, end_ps):  # type: ignore[no-untyped-def]  # jitted
    """When a chunk is there for the next server of its route, or delivered."""
    hop = program.route_hop[at]
    latency_ps, last = program.hop_latency_ps[hop], program.hop_last[hop]
    if last == HEAD:
        return start_ps + latency_ps
    if last or not program.cut_through:
        return end_ps + latency_ps
    after = program.hop_server[program.route_hop[at + 1]]
    return latency_ps + max(start_ps, end_ps - _takes_ps(program, size, after))


@_part
def _crosses(program, ran, task):  # type: ignore[no-untyped-def]  # jitted
    """Whether a task's chunks cross its route, each once it is there, and were in when it finished.

    That they do so in order follows: where lines are in order of arrival, so are arrivals behind them.
    """
    cut, route, row = program.task_cut[task], program.task_route[task], ran.base[task]
    first, end = program.route_ptr[route], program.route_ptr[route + 1]
    if row + program.cut_chunks[cut] * (end - first) != ran.base[task + 1]:
        return False
    for chunk in range(program.cut_chunks[cut]):
        size = program.cut_size[cut, 0 if chunk < program.cut_first[cut] else 1]
        ready_ps = 0
        for at in range(first, end):
            server, start_ps = program.hop_server[program.route_hop[at]], ran.start_ps[row]
            end_ps = start_ps + _takes_ps(program, size, server)
            if start_ps < ready_ps or end_ps <= start_ps:
                return False
            ran.words[row, ARRIVAL], ran.words[row, END] = ready_ps, end_ps
            ran.words[row, WHERE] = np.int64(server) << 32 | task
            ran.busy_ps[server] += end_ps - start_ps
            ready_ps = _ready_ps(program, at, size, start_ps, end_ps)
            row += 1
    return first == end or ran.finish_ps[task] == ready_ps


@_part
def _delivered_ps(program, ran, task, chunk):  # type: ignore[no-untyped-def]  # jitted
    """When a chunk was delivered; -1 where a run keeps no trace of it."""
    hops = _hops(program, task)
    if hops:
        row = ran.base[task] + (chunk + 1) * hops - 1
        hop = program.route_hop[program.route_ptr[program.task_route[task] + 1] - 1]
        since_ps = ran.start_ps[row] if program.hop_last[hop] == HEAD else ran.words[row, END]
        return since_ps + program.hop_latency_ps[hop]
    if chunk == program.cut_chunks[program.task_cut[task]] - 1:
        return ran.finish_ps[task]
    return ran.began_ps[task] if chunk == 0 or ran.began_ps[task] == ran.finish_ps[task] else -1


@_part
def _released_ps(program, ran, task, chunk, chunks):  # type: ignore[no-untyped-def]  # jitted
    """When the last of what a chunk waits for was delivered; -1 where that is not known, or was never."""
    released_ps = ran.whole_ps[task]
    if program.parent_ptr.size:
        for edge in range(program.parent_ptr[task], program.parent_ptr[task + 1]):
            parent = program.parent[edge]
            lag = program.parent_lag[edge] if program.parent_lag.size else 0
            of_parent = np.int64(program.cut_chunks[program.task_cut[parent]])
            needed = chunk - lag + 1 if lag else ((chunk + 1) * of_parent + chunks - 1) // chunks
            if needed >= 1:
                due_ps = _delivered_ps(program, ran, parent, needed - 1) if needed <= of_parent else -1
                if due_ps < 0:
                    return -1
                released_ps = max(released_ps, due_ps)
    return released_ps


@_part
def _joins(program, ran, task):  # type: ignore[no-untyped-def]  # jitted
    """Whether a task's chunks join their first server, or are delivered without, when they are released."""
    chunks, hops = program.cut_chunks[program.task_cut[task]], _hops(program, task)
    for chunk in range(chunks):
        arrival_ps = _released_ps(program, ran, task, chunk, chunks)
        row = ran.base[task] + chunk * hops
        began_ps = ran.start_ps[row] if hops else ran.began_ps[task]
        if arrival_ps < 0 or (chunk == 0 and began_ps != ran.began_ps[task]):
            return False
        if hops:
            if chunk:
                arrival_ps = max(arrival_ps, ran.words[row - hops, END])
            if began_ps < arrival_ps:
                return False
            ran.words[row, ARRIVAL] = arrival_ps
        elif (chunk == 0 and arrival_ps != began_ps) or (chunk == chunks - 1 and arrival_ps != ran.finish_ps[task]):
            return False
    return True


@_part
def _turn(program, ran, row, task):  # type: ignore[no-untyped-def]  # jitted
    """By what services that are there in the same picosecond are in order: class, chunk, hop and task."""
    place, hops = row - ran.base[task], _hops(program, task)
    return program.task_class[task], place // hops, place % hops, task


@_part
def _follows(program, ran, row):  # type: ignore[no-untyped-def]  # jitted
    """Whether a service has its place in the line of its server, and begins as soon as it can there."""
    where, other, free_ps = ran.words[row, WHERE], ran.before[row], 0
    where = ~where if where < 0 else where
    if other < 0:
        if ran.begun[where >> 32]:
            return False
        ran.begun[where >> 32] = True
    else:
        behind = ran.words[other, WHERE]  # complemented once it has one behind it
        if behind < 0 or behind >> 32 != where >> 32:
            return False
        ran.words[other, WHERE], free_ps = ~behind, ran.words[other, END]
        later_ps = ran.words[row, ARRIVAL] - ran.words[other, ARRIVAL]
        task, of_other = where & 0xFFFFFFFF, behind & 0xFFFFFFFF
        if later_ps < 0 or (later_ps == 0 and _turn(program, ran, row, task) <= _turn(program, ran, other, of_other)):
            return False
    return free_ps <= ran.start_ps[row] <= max(free_ps, ran.words[row, ARRIVAL])


@_entry
def in_turn(program, ran):  # type: ignore[no-untyped-def]  # jitted
    """Whether all services keep the rules; fills the scratch."""
    tasks, services = program.task_cut.size, ran.start_ps.size
    if ran.base[0] != 0 or ran.base[tasks] != services:
        return False
    for task in range(tasks):
        if not _crosses(program, ran, task):
            return False
    for parent in range(program.whole_ptr.size - 1):
        for edge in range(program.whole_ptr[parent], program.whole_ptr[parent + 1]):
            child = program.whole_child[edge]
            ran.whole_ps[child] = max(ran.whole_ps[child], ran.finish_ps[parent])
    for task in range(tasks):
        if not _joins(program, ran, task):
            return False
    for row in range(services):  # noqa: SIM110  # jitted: no generators
        if ran.before[row] >= services or not _follows(program, ran, row):
            return False
    return True
