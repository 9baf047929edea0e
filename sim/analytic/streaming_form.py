"""Closed form of arrays that stream along trees: aggregation in the network, chains and broadcasts in chunks.

    T = RTT + q max(RTT_s, s service) + r service,        C - 1 = q s + r

The first of C chunks needs RTT from the first sender to the last receiver, and the others follow at the pace of the
slowest link. If at most s chunks are in flight at once (in-network aggregation: one slot per chunk), they go in
turns of s, each as long as the round trip RTT_s to what a chunk waits for. For many chunks that is the published RTT
+ (C - 1) max(service, RTT / s), which counts part of a turn as that part of a round trip.
"""

import numpy as np

from sim.program.columns import blocks
from sim.program.contract import I64, Program
from topologies.core.paths import distinct_of, ranges


def streaming_ps(program: Program) -> int | None:
    """Time by the formula; None where transfers share links, or wait for whole transfers.

    The last chunk counts as a full one.

    `program`: healthy, as lowered.
    """
    if not _streams(program):
        return None
    longest, time_ps = first_chunk(program)
    (first,), service = first_delivered(program, time_ps), int(longest.max())
    others = int(program.chunks().max()) - 1
    parent, _, lag = program.stream_edges()
    waits = [turns_ps(others, 1, 0, service)]
    for window in distinct_of(lag[lag > 0]).tolist():
        waits.append(turns_ps(others, window, int(first[parent[lag == window]].max()), service))
    return int(first.max()) + max(waits)


def turns_ps(chunks: int, window: int, round_trip_ps: int, service_ps: int) -> int:
    """Time of chunks behind a first one: whole turns of a window, and the rest of one at the pace of the link."""
    turns, rest = divmod(chunks, window)
    return turns * max(round_trip_ps, window * service_ps) + rest * service_ps


def _streams(program: Program) -> bool:
    if program.n_tasks == 0 or not program.is_healthy or program.whole_child.size or program.pool_capacity.size:
        return False
    hops = program.route_server[_hops_of(program, np.arange(program.n_tasks))]
    return bool(distinct_of(program.chunks()).size == 1 and distinct_of(hops).size == hops.size)


def _hops_of(program: Program, tasks: I64) -> I64:
    """Hops of some tasks, task by task."""
    route = program.task_route[tasks]
    first = program.route_ptr[route].astype(np.int64)
    return ranges(first, program.route_ptr[route + 1] - first)


def first_chunk(program: Program) -> tuple[I64, I64]:
    """Longest service of the first chunk of each task, and its time from release to delivery, (T,) each."""
    longest, time_ps = np.zeros((2, program.n_tasks), np.int64)
    for some in blocks(program.n_tasks):
        tasks = np.arange(some.start, min(some.stop, program.n_tasks))
        at = _hops_of(program, tasks)
        row = np.repeat(np.arange(tasks.size), np.diff(program.route_ptr)[program.task_route[tasks]])
        size = program.cut_size[program.task_cut[tasks[row]], 0]
        service = program.service(size, program.server_rate[program.route_server[at]])
        np.maximum.at(longest[some], row, service)
        counted = program.route_latency_ps[at] if program.cut_through else program.route_latency_ps[at] + service
        time_ps[some] = np.bincount(row, weights=counted, minlength=tasks.size).astype(np.int64)
        time_ps[some] += longest[some] if program.cut_through else 0
    return longest, time_ps


def first_delivered(program: Program, *times_ps: I64) -> list[I64]:
    """When the first chunk of each task is delivered without contention, for each of several times of its own."""
    parent, child, lag = program.stream_edges()
    order = np.argsort(parent[lag == 0], kind="stable")
    parent, child = parent[lag == 0][order], child[lag == 0][order]
    many = np.bincount(parent, minlength=program.n_tasks)
    first, waits = np.cumsum(many) - many, np.bincount(child, minlength=program.n_tasks)
    done, place = [time_ps.copy() for time_ps in times_ps], np.empty(program.n_tasks, np.int64)
    at = np.flatnonzero((waits == 0) & (many > 0))
    while at.size:  # tasks all of whose parents are done: each edge is passed once
        edges = ranges(first[at], many[at])
        begin, to = parent[edges], child[edges]
        for ends_ps, time_ps in zip(done, times_ps, strict=True):
            np.maximum.at(ends_ps, to, ends_ps[begin] + time_ps[to])
        np.subtract.at(waits, to, 1)
        at = to[waits[to] == 0]
        place[at] = np.arange(at.size)
        at = at[place[at] == np.arange(at.size)]  # each task once, without sorting
    return done
