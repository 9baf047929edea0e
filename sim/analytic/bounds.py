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
from topologies.checks import checked
from topologies.text.brief import one_line
from topologies.units import PS_PER_S


@checked
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


@checked
def bounds(lowered: Lowered) -> Bounds:
    """Lower bounds on the time of a schedule under a model.

    With head delivery the service of the last chunk of a transfer does not count, so the bounds leave it out.
    """
    program = lowered.program
    kinds = _kinds(program)
    return Bounds(
        _load_bound_ps(program, kinds), _path_bound_ps(program, kinds), _wire_bound_ps(lowered), _cut_bound_ps(lowered)
    )


def load_bound_ps(program: Program) -> int:
    """Work of the busiest server; with head delivery, without its longest service."""
    return _load_bound_ps(program, _kinds(program))


def path_bound_ps(program: Program) -> int:
    """Longest chain of whole and chunk-by-chunk dependencies, each task alone on its route."""
    return _path_bound_ps(program, _kinds(program))


def busy_and_path_ps(program: Program) -> int:
    """The larger of the two bounds that know nothing but the program."""
    kinds = _kinds(program)
    return max(_load_bound_ps(program, kinds), _path_bound_ps(program, kinds))


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


class _Kinds(NamedTuple):
    """Distinct pairs (cut, route) of the tasks, and the crossings of each, pair after pair in the order of the hops.

    Attributes
    ----------
    row, tasks : (T,) int64, (P,) int64
        Pair of each task, and tasks of each pair.
    chunks, leading : (P,) int64
    ptr : (P+1,) int64
        Crossings of pair x are `ptr[x]:ptr[x+1]`.
    server, latency_ps, lead_ps, rest_ps : (X,) int64
        Server of each crossing, latency after it, service there of a leading and of another chunk.
    """

    row: I64
    tasks: I64
    chunks: I64
    leading: I64
    ptr: I64
    server: I64
    latency_ps: I64
    lead_ps: I64
    rest_ps: I64


def _kinds(program: Program) -> _Kinds:
    n_routes = program.route_ptr.size - 1
    pairs, row = unique_rows(program.task_cut.astype(np.int64) * n_routes + program.task_route)
    cut, route = np.divmod(pairs, max(n_routes, 1))
    start = program.route_ptr[route].astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(program.route_ptr[route + 1] - start)])
    hop = program.route_hop[np.arange(ptr[-1]) + np.repeat(start - ptr[:-1], np.diff(ptr))]
    server = program.hop_server[hop].astype(np.int64)
    size = np.repeat(program.cut_size[cut], np.diff(ptr), axis=0)
    lead, rest = (program.service_ps[size[:, column], program.server_rate[server]] for column in (0, 1))
    chunks, leading = program.cut_chunks[cut].astype(np.int64), program.cut_first[cut].astype(np.int64)
    all_lead, none_leads = (np.repeat(which, np.diff(ptr)) for which in (leading == chunks, leading == 0))
    count = np.bincount(row, minlength=pairs.size)
    return _Kinds(
        row, count, chunks, leading, ptr, server, program.hop_latency_ps[hop].astype(np.int64),
        np.where(none_leads, rest, lead), np.where(all_lead, lead, rest),
    )


def _load_bound_ps(program: Program, kinds: _Kinds) -> int:
    if kinds.server.size == 0:
        return 0
    tasks, chunks, leading = (np.repeat(of, np.diff(kinds.ptr)) for of in (kinds.tasks, kinds.chunks, kinds.leading))
    work = np.zeros(program.n_servers, np.int64)
    np.add.at(work, kinds.server, tasks * (leading * kinds.lead_ps + (chunks - leading) * kinds.rest_ps))
    if program.deliver_head:
        longest = np.zeros(program.n_servers, np.int64)
        np.maximum.at(longest, kinds.server, np.maximum(kinds.lead_ps, kinds.rest_ps))
        work -= longest
    return int(work.max())


def _path_bound_ps(program: Program, kinds: _Kinds) -> int:
    n_tasks = program.n_tasks
    if n_tasks == 0:
        return 0
    first, whole, last = (alone[kinds.row] for alone in _alone(program, kinds))
    waits = program.task_waits
    _, child, lag = program.stream_edges()
    waits += np.bincount(child[lag == 0], minlength=n_tasks).astype(np.int32)
    release, finish = np.zeros(n_tasks, np.int64), np.zeros(n_tasks, np.int64)
    return int(kernel.longest_path(program, first, whole, last, waits, np.zeros(n_tasks, np.int32), release, finish))


def _alone(program: Program, kinds: _Kinds) -> tuple[I64, I64, I64]:
    """Least time to the first delivery, to the last, and between the last two, for each pair alone on its route.

    The first chunk waits at each hop h for the services before it (none in cut-through) and the latencies, and after
    it for what is behind h; the whole task is bound by the slowest hop, which serves every chunk. With head delivery
    the last hop's last service does not count; in cut-through, that of no hop does.
    """
    lead, rest, latency, hops = kinds.lead_ps, kinds.rest_ps, kinds.latency_ps, np.diff(kinds.ptr)
    stored = np.int64(not program.cut_through)
    head = _before(stored * lead + latency, kinds.ptr)
    lead_behind, rest_behind = _behind(stored * lead, kinds.ptr), _behind(stored * rest, kinds.ptr)
    latency_from = latency + _behind(latency, kinds.ptr)
    drop_first = drop_last = np.zeros(lead.size, np.int64)
    if program.deliver_head:
        final = np.repeat(kinds.ptr[1:] - 1, hops)  # the last crossing of the same route
        drop_first, drop_last = (lead, rest) if program.cut_through else (lead[final], rest[final])
    total = np.repeat(kinds.leading, hops) * lead + np.repeat(kinds.chunks - kinds.leading, hops) * rest
    first: I64 = head + lead + lead_behind + latency_from - drop_first
    whole: I64 = head + total + rest_behind + latency_from - drop_last
    last: I64 = rest + rest_behind + latency_from - drop_last
    return _greatest(first, kinds.ptr), _greatest(whole, kinds.ptr), _greatest(last, kinds.ptr)


def _before(values: I64, ptr: I64) -> I64:
    """Sum of what precedes each value in its own segment; a running sum that wraps has the same differences."""
    sums = np.zeros(values.size + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    before: I64 = sums[:-1] - np.repeat(sums[ptr[:-1]], np.diff(ptr))
    return before


def _behind(values: I64, ptr: I64) -> I64:
    """Sum of what follows each value in its own segment."""
    return _before(values[::-1], values.size - ptr[::-1])[::-1]


def _greatest(values: I64, ptr: I64) -> I64:
    """Largest value of each segment; 0 of an empty one, and at least 0."""
    found = np.zeros(ptr.size - 1, np.int64)
    filled = np.diff(ptr) > 0
    if filled.any():
        found[filled] = np.maximum(np.maximum.reduceat(values, ptr[:-1][filled]), 0)
    return found
