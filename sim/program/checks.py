"""What is checked of every program: no window that never opens, an end within the clock."""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from sim.program.columns import blocks
from sim.program.contract import CLOCK_END_PS, Program
from topologies import WeftError
from topologies.units import format_time

TASK_BYTES, IN_FLIGHT, EVENT_BYTES = 44, 8, 32
"""For estimates of memory: state of a task; chunks of a task in flight at once, and the bytes of one."""


def check_windows(program: Program) -> None:
    """No window that never opens: the last chunk of the child needs chunk C_B - 1 - w of the parent to exist."""
    if not program.parent_lag.size:
        return
    parent, child, lag = program.stream_edges()
    own, other = (program.cut_chunks[program.task_cut[task]] for task in (child, parent))
    for at in np.flatnonzero((lag > 0) & (own - lag > other))[:1].tolist():
        raise WeftError(
            f"task {child[at]} of {own[at]} chunks has a window of {lag[at]} on task {parent[at]}, "
            f"whose {other[at]} chunks are too few"
        )


def check_nics(program: Program) -> None:
    """NICs are where routes begin, all of a task at one, if any; a task that asks a pool has none, and only what a NIC
    takes is ever pushed."""
    if not program.has_nics and not program.pushed_child.size:
        return
    nic = program.server_nic if program.has_nics else np.full(program.n_servers, -1, np.int32)
    first = np.zeros(program.route_hop.size, np.bool_)
    first[program.route_ptr[:-1][np.diff(program.route_ptr) > 0]] = True
    at = np.flatnonzero((nic[program.route_server] >= 0) & ~first)
    if at.size:
        raise WeftError(f"server {program.route_server[at[0]]} is a NIC: routes begin there, and do not cross it")
    has_nic = np.zeros(program.n_tasks, np.bool_)
    routed = program.hops() > 0
    has_nic[routed] = nic[program.route_server[program.route_ptr[program.task_route[routed]]]] >= 0
    if program.task_pool.size and np.any(both := has_nic & (program.task_pool >= 0)):
        raise WeftError(f"task {np.flatnonzero(both)[0]} asks a pool and a NIC; a task may ask one of them")
    own = np.full(program.n_tasks, -1, np.int64)
    own[has_nic] = program.route_server[program.route_ptr[program.task_route[has_nic]]]
    task, route = (column[program.n_tasks :] for column in program.every_route())
    begins = program.route_server[program.route_ptr[route]].astype(np.int64)
    if np.any(astray := np.where(nic[begins] >= 0, begins, -1) != own[task]):
        raise WeftError(
            f"task {task[astray][0]} has a detour that begins at another server than its own route, and one of them is "
            "a NIC: all routes of what a NIC sends begin there"
        )
    parent = program.pushed_edges()[0]
    if np.any(~has_nic[parent]):
        raise WeftError(f"task {parent[~has_nic[parent]][0]} is waited for until it is pushed, and has no NIC")


def check_clock(program: Program, rates: Sequence[Fraction]) -> None:
    """Every run ends by the sum of all services and latencies; that must fit the clock.

    `rates`: work per second.
    """
    if program.n_tasks == 0:
        return
    slowest = program.service_ps.max(initial=1)
    longest = program.hop_latency_ps.max(initial=0)
    bound, posting_ps = CLOCK_END_PS, 0
    for many in (program.most_chunk_hops, program.chunk_hops):  # of most programs the first tells
        if bound >= CLOCK_END_PS:
            services = many()
            posting_ps = _posting_ps(program, services)
            bound = services * (int(slowest) + int(longest)) + posting_ps
    for closer in (partial(_loose_bound, rates=rates), _exact_bound):
        bound = closer(program) + posting_ps if bound >= CLOCK_END_PS else bound
    if bound >= CLOCK_END_PS:
        last, end = format_time(bound), format_time(CLOCK_END_PS)
        raise WeftError(f"the run could last {last}; the clock ends at {end}: give more bandwidth, or send less")


def _posting_ps(program: Program, services: int) -> int:
    """At most the time for all posts, pushes and waits for credits, one after the other."""
    credit_ps = services * int(program.server_credit_ps.max(initial=0))
    each_ps = program.post_ps + int(program.push_ps.max(initial=0))
    return program.over_tasks(program.cut_chunks) * each_ps + credit_ps


def _loose_bound(program: Program, rates: Sequence[Fraction]) -> int:
    """With services that are not rounded, and another picosecond for each: a few sums along the routes.

    A billionth more, so that sums of floats are above the exact ones.
    """
    if not program.route_hop.size:
        return 0
    per_unit = np.array([1e12 / float(rate) for rate in rates])[program.server_rate[program.hop_server]]
    begins = np.flatnonzero(np.diff(program.route_ptr))
    of_route = np.zeros((2, program.route_ptr.size - 1))  # of a unit, of a chunk
    for found, column in zip(of_route, (per_unit, program.hop_latency_ps + 1.0), strict=True):
        found[begins] = np.add.reduceat(column[program.route_hop], program.route_ptr[begins])
    lead, rest = program.chunk_work[program.cut_size].T.astype(np.float64)
    work = program.cut_first * lead + (program.cut_chunks - program.cut_first) * rest
    of_cut = work, program.cut_chunks.astype(np.float64)
    # Not `np.dot`: of floats it runs on threads, which go on spinning for longer than it took.
    total = sum(float((one.take(program.task_cut[some]) * other.take(program.task_route[some])).sum())
                for some in blocks(program.n_tasks) for one, other in zip(of_cut, of_route, strict=True))
    return int((1 + 1e-9) * total) + 1


def _exact_bound(program: Program) -> int:
    n_routes = max(program.route_ptr.size - 1, 1)
    pairs, times = np.unique(program.task_cut.astype(np.int64) * n_routes + program.task_route, return_counts=True)
    cut, route = np.divmod(pairs, n_routes)
    first, n_hops = program.route_ptr[route], np.diff(program.route_ptr)[route]
    hop = np.repeat(first - np.cumsum(n_hops) + n_hops, n_hops) + np.arange(n_hops.sum())
    cut, times = np.repeat(cut, n_hops), np.repeat(times, n_hops)
    rate, latency = program.server_rate[program.route_server[hop]], program.route_latency_ps[hop]
    lead_ps, rest_ps = (program.service(program.cut_size[cut, one], rate) for one in (0, 1))
    # In floating point it shows whether sums of 64 bits hold it; those of Python hold all.
    for kind in (np.float64, np.int64):
        columns = program.cut_first[cut], program.cut_chunks[cut], times
        lead, chunks, count = (np.asarray(one, kind) for one in columns)
        total = np.sum(count * (lead * lead_ps + (chunks - lead) * rest_ps + chunks * latency))
        if total >= CLOCK_END_PS:
            break
    return int(total)
