"""Lower bounds on every run, exact in integer picoseconds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sim.analytic.cut_bound import cut_bound, is_cheap
from sim.engine import _longest_path as kernel
from sim.lower.lowered import Lowered
from sim.program import I64, Program, unique_rows
from topologies import egress_Bps, ingress_Bps
from topologies.text.brief import one_line
from topologies.units import PS_PER_S


@one_line
class Bounds(NamedTuple):
    """Lower bounds on the makespan, in ps.

    Attributes
    ----------
    load_ps : int
        The busiest server must serve all traffic that crosses it.
    path_ps : int
        The longest chain of dependencies, without contention.
    wire_ps : int
        Traffic that any algorithm must move into and out of the NPUs; 0 where heads count as delivery.
    cut_ps : int
        Traffic that any algorithm must move across the tightest cut; 0 where heads count as delivery, where the cut
        would take long to find (`sim.analytic.cut_bound`), and for process groups.
    """

    load_ps: int
    path_ps: int
    wire_ps: int
    cut_ps: int = 0

    @property
    def best_ps(self) -> int:
        """The tightest of them."""
        return max(self)


def bounds(lowered: Lowered) -> Bounds:
    """Lower bounds on the time of a schedule under a model.

    With head delivery the service of the last chunk of a transfer does not count, so the bounds leave it out.
    """
    program = lowered.program
    return Bounds(load_bound_ps(program), path_bound_ps(program), _wire_bound_ps(lowered), _cut_bound_ps(lowered))


def load_bound_ps(program: Program) -> int:
    """Work of the busiest server; with head delivery, without its longest service."""
    if program.chunk_hops() == 0:
        return 0
    task, at = _crossings(program)
    lead, rest = _services(program, task, at)
    leading = program.cut_first[program.task_cut[task]].astype(np.int64)
    chunks = program.chunks()[task]
    work = np.zeros(program.n_servers, np.int64)
    np.add.at(work, program.route_server[at], leading * lead + (chunks - leading) * rest)
    if program.deliver_head:
        longest = np.zeros(program.n_servers, np.int64)
        np.maximum.at(longest, program.route_server[at], np.maximum(lead, rest))
        work -= longest
    return int(work.max())


def path_bound_ps(program: Program) -> int:
    """Longest chain of whole and chunk-by-chunk dependencies, each task alone on its route."""
    n_tasks = program.n_tasks
    if n_tasks == 0:
        return 0
    first, whole, last = _alone(program)
    waits = program.task_waits
    _, child, lag = program.stream_edges()
    waits += np.bincount(child[lag == 0], minlength=n_tasks).astype(np.int32)
    release, finish = np.zeros(n_tasks, np.int64), np.zeros(n_tasks, np.int64)
    return int(kernel.longest_path(program, first, whole, last, waits, np.zeros(n_tasks, np.int32), release, finish))


def _wire_bound_ps(lowered: Lowered) -> int:
    """Bytes that must enter and leave NPUs, whatever the algorithm, at the bandwidth of their links.

    An NPU that wants what others have must receive it; one whose contribution others need must send it. All-reduce
    without reducing switches moves at least 2(p-1) times the array in all (Patarasuk and Yuan, 2009, section 2).
    """
    schedule, size, p = lowered.schedule, lowered.schedule.size_bytes, lowered.schedule.pattern.p
    n = schedule.pattern.group_size
    if lowered.program.deliver_head or n == 1 or size == 0:
        return 0
    into, out_of = ingress_Bps(schedule.topology), egress_Bps(schedule.topology)
    share = size * (n - 1) / n
    root = schedule.pattern.root
    others = np.arange(p) != root
    reduced_on_the_way = (schedule.pattern.n_sources or p) > p  # switches are among the sources
    all_groups = 0 if reduced_on_the_way else 2 * (p - p // n) * size
    seconds = {
        "all-reduce": max(size / into.min(), size / out_of.min(), all_groups / min(into.sum(), out_of.sum())),
        "reduce-scatter": max(share / into.min(), share / out_of.min()),
        "all-gather": max(share / into.min(), (share / (n - 1)) / out_of.min()),
        "all-to-all": max(share / into.min(), share / out_of.min()),
        "broadcast": max(size / into[others].min(), size / out_of[root]),
        "reduce": max(size / into[root], size / out_of[others].min()),
    }[schedule.kind.name]
    return int(np.floor(seconds * PS_PER_S * (1 - 1e-12)))


def _cut_bound_ps(lowered: Lowered) -> int:
    """Time for the traffic that must cross the tightest cut of the collective."""
    schedule = lowered.schedule
    pattern, topology = schedule.pattern, schedule.topology
    nothing = lowered.program.deliver_head or schedule.size_bytes == 0 or pattern.group_size < pattern.p
    if nothing or not is_cheap(topology):
        return 0
    reducing = (pattern.n_sources or pattern.p) > pattern.p
    found = cut_bound(topology, schedule.kind.name, pattern.root, reducing_switches=reducing)
    return math.floor(found.s_per_byte * schedule.size_bytes * PS_PER_S)


def _alone(program: Program) -> tuple[I64, I64, I64]:
    """Least time to the first delivery, to the last, and between the last two, for each (cut, route) alone."""
    n_routes = program.route_ptr.size - 1
    pairs, row = unique_rows(program.task_cut.astype(np.int64) * n_routes + program.task_route)
    times = np.array([_alone_on(program, *divmod(int(pair), n_routes)) for pair in pairs], np.int64).reshape(-1, 3)
    first, whole, last = times[row].T
    return first.copy(), whole.copy(), last.copy()


def _alone_on(program: Program, cut: int, route: int) -> tuple[int, int, int]:
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    if hops.size == 0:
        return 0, 0, 0
    servers = program.hop_server[hops]
    chunks, leading = int(program.cut_chunks[cut]), int(program.cut_first[cut])
    lead_size, rest_size = program.cut_size[cut]
    if leading == chunks:
        rest_size = lead_size
    if leading == 0:
        lead_size = rest_size
    lead = [int(program.service_ps[lead_size, program.server_rate[server]]) for server in servers]
    rest = [int(program.service_ps[rest_size, program.server_rate[server]]) for server in servers]
    latency = [int(program.hop_latency_ps[hop]) for hop in hops]
    total = [leading * a + (chunks - leading) * b for a, b in zip(lead, rest, strict=True)]
    before, after = (lead, rest) if not program.cut_through else ([0] * len(lead), [0] * len(rest))
    whole = first = last = 0
    for h in range(len(lead)):
        head = sum(before[:h]) + sum(latency[:h])
        tail = sum(after[h + 1 :]) + sum(latency[h:])
        drop_first = drop_last = 0
        if program.deliver_head:
            # The last hop's last service does not count; upstream of it, cut-through does not either.
            drop = program.cut_through or h == len(lead) - 1
            drop_first, drop_last = (lead[h], rest[h]) if drop else (0, 0)
            if not program.cut_through and h < len(lead) - 1:
                drop_first, drop_last = lead[-1], rest[-1]
        whole = max(whole, head + total[h] + tail - drop_last)
        first = max(first, head + lead[h] + sum(before[h + 1 :]) + sum(latency[h:]) - drop_first)
        last = max(last, rest[h] + sum(after[h + 1 :]) + sum(latency[h:]) - drop_last)
    return first, whole, last


def _crossings(program: Program) -> tuple[I64, I64]:
    """Task and hop index of every crossing of a server by a task."""
    hops = program.hops()
    task = np.repeat(np.arange(program.n_tasks), hops)
    first = program.route_ptr[program.task_route].astype(np.int64)
    at = np.arange(task.size) - np.repeat(np.cumsum(hops) - hops - first, hops)
    return task, at


def _services(program: Program, task: I64, at: I64) -> tuple[I64, I64]:
    """Service of a leading and of another chunk at each crossing."""
    size, rate = program.cut_size[program.task_cut[task]], program.server_rate[program.route_server[at]]
    return program.service_ps[size[:, 0], rate], program.service_ps[size[:, 1], rate]
