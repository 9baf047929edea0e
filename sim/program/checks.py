"""What is checked of every program: no window that never opens, an end within the clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program.contract import CLOCK_END_PS, DOWN, I32, I64, Program
from topologies import WeftError
from topologies.units import format_time

TASK_BYTES, IN_FLIGHT, EVENT_BYTES = 44, 8, 32
"""For estimates of memory: state of a task; chunks of a task in flight at once, and the bytes of one."""


def check_windows(program: Program, parent: I32, child: I32, lag: I32) -> None:
    """No window that never opens: the last chunk of the child needs chunk C_B - 1 - w of the parent to exist."""
    if not lag.size:
        return
    chunks = program.chunks()
    never = chunks[child] - lag > chunks[parent]
    if np.any(never):
        edge = int(np.flatnonzero(never)[0])
        one, other, wait = int(child[edge]), int(parent[edge]), int(lag[edge])
        raise WeftError(
            f"task {one} of {chunks[one]} chunks has a window of {wait} on task {other}, "
            f"whose {chunks[other]} chunks are too few"
        )


def check_nics(program: Program) -> None:
    """NICs are where routes begin, a task that asks a pool has none, and only what a NIC takes is ever pushed."""
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
    parent = program.pushed_edges()[0]
    if np.any(~has_nic[parent]):
        raise WeftError(f"task {parent[~has_nic[parent]][0]} is waited for until it is pushed, and has no NIC")


def served(program: Program) -> npt.NDArray[np.bool_]:
    """Which chunk sizes occur at which rates, (Z, R): on the routes and detours of the tasks, and at any time."""
    cut, route = program.task_cut.astype(np.int64), program.task_route
    if program.detour_ptr.size:
        cut = np.append(cut, np.repeat(cut, np.diff(program.detour_ptr)))
        route = np.append(route, program.detour_route)
    both = np.unique(cut * program.route_ptr.size + route)
    size = program.cut_size[both // program.route_ptr.size].astype(np.int64)
    at, row = _entries(program.route_ptr, both % program.route_ptr.size)
    server = program.route_server[at].astype(np.int64)
    pairs = np.unique(size[row] * program.n_servers + server[:, None])
    size, server = np.divmod(pairs, max(program.n_servers, 1))
    found = np.zeros(program.service_ps.shape, np.bool_)
    found[size, program.server_rate[server]] = True
    if program.timetable_ptr.size:
        at, row = _entries(program.timetable_ptr, server)
        up = program.timetable_rate[at] != DOWN
        found[size[row[up]], program.timetable_rate[at[up]]] = True
    return found


def _entries(ptr: I32, rows: I64) -> tuple[I64, I64]:
    """Places of all entries of some rows of a CSR list, and which of the rows each is of."""
    counts = np.diff(ptr)[rows].astype(np.int64)
    row = np.repeat(np.arange(rows.size), counts)
    return np.arange(row.size) - np.repeat(np.cumsum(counts) - counts - ptr[rows], counts), row


def slowest_ps(program: Program) -> int:
    """The longest service that occurs."""
    return int(program.service_ps[served(program)].max(initial=1))


def check_clock(program: Program) -> None:
    """Every run ends by the sum of all services and latencies; that must fit the clock."""
    if program.n_tasks == 0:
        return
    slowest = program.service_ps.max(initial=1)
    longest = program.hop_latency_ps.max(initial=0)
    bound = program.chunk_hops() * (int(slowest) + int(longest)) + _posting_ps(program)
    if bound >= CLOCK_END_PS:
        bound = _exact_bound(program) + _posting_ps(program)
    if bound >= CLOCK_END_PS:
        last, end = format_time(bound), format_time(CLOCK_END_PS)
        raise WeftError(f"the run could last {last}; the clock ends at {end}")


def _posting_ps(program: Program) -> int:
    """At most the time for all posts, pushes and waits for credits, one after the other."""
    credit_ps = program.chunk_hops() * int(program.server_credit_ps.max(initial=0))
    return int(program.chunks().sum()) * (program.post_ps + int(program.push_ps.max(initial=0))) + credit_ps


def _exact_bound(program: Program) -> int:
    total, servers, latencies = 0, program.route_server, program.route_latency_ps
    pairs, count = np.unique(np.stack([program.task_cut, program.task_route], axis=1), axis=0, return_counts=True)
    for (cut, route), times in zip(pairs, count, strict=True):
        lead, all_ = int(program.cut_first[cut]), int(program.cut_chunks[cut])
        first, rest = program.cut_size[cut]
        for hop in range(program.route_ptr[route], program.route_ptr[route + 1]):
            rate = program.server_rate[servers[hop]]
            services = lead * int(program.service_ps[first, rate]) + (all_ - lead) * int(program.service_ps[rest, rate])
            total += int(times) * (services + all_ * int(latencies[hop]))
    return total
