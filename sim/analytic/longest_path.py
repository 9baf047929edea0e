"""Lower bounds of a program in one pass: work of every server and what is around it, and the longest path."""

import numpy as np

from sim.engine.compile.door import entry, helper, u64
from sim.engine.core.tasks import service_ps
from sim.program.contract import HEAD


@entry
def work_and_path(program, task_kind, kind_cut, kind_route, kind_tasks, busy, longest, kind_ps, waits, order, times):
    """Work of every server, and the latest finish if no task ever waited for another's service.

    `task_kind` (T,): kind of each task; tasks of one kind have the same cut and route.
    `kind_cut`, `kind_route`, `kind_tasks` (K,): cut and route of each kind, and its number of tasks.
    `busy`, `longest` (S,): filled: sum of the services of each server, and its longest service; zeros on entry.
    `kind_ps` (3, K): filled: least time from release to delivery of the first chunk, of the whole task, and of one
        more chunk.
    `waits`, `order` (T,) or (0,): parents of each task, windows left out, and scratch; zeros on entry. Empty where
        tasks wait only for whole ones before them.
    `times` (2, T): scratch, zeros on entry: release and finish. Where waits are not counted (1, W): release of the next
        W tasks, a power of two that no child lies so far behind its parent.
    """
    for kind in range(kind_cut.size):
        cut, route, tasks = kind_cut[u64(kind)], kind_route[u64(kind)], kind_tasks[u64(kind)]
        if tasks > 0:
            _alone(program, kind, cut, route, tasks, busy, longest, kind_ps)
    if waits.size == 0:
        return _path_in_order(program, task_kind, kind_ps, times[0])
    _count_waits(program, waits)
    return _longest_path(program, task_kind, kind_ps, waits, order, times)


@helper
def _alone(program, kind, cut, route, tasks, busy, longest, kind_ps):
    """A task alone on its route, from the last hop to the first.

    The first chunk waits at each hop for the services before it (none in cut-through) and the latencies, and after it
    for what is behind; the whole task is bound by the slowest hop, which serves every chunk. With head delivery the
    last hop's last service does not count; in cut-through, that of no hop does.
    """
    stored = np.int64(1 - program.cut_through)
    begin, end = program.route_ptr[u64(route)], program.route_ptr[u64(route + 1)]
    chunks, leading = np.int64(program.cut_chunks[u64(cut)]), np.int64(program.cut_first[u64(cut)])
    first_size, rest_size = program.cut_size[u64(cut), 0], program.cut_size[u64(cut), 1]
    if leading == 0:
        first_size = rest_size
    if leading == chunks:
        rest_size = first_size
    before = np.int64(0)
    for at in range(begin, end):
        hop = program.route_hop[u64(at)]
        rate = program.server_rate[u64(program.hop_server[u64(hop)])]
        before += stored * service_ps(program, first_size, rate) + program.hop_latency_ps[u64(hop)]
    first_ps = whole_ps = last_ps = lead_behind = rest_behind = latency_behind = np.int64(0)
    drop_first = drop_last = np.int64(0)
    head = end > begin and program.hop_last[u64(program.route_hop[u64(end - 1)])] == HEAD
    for at in range(end - 1, begin - 1, -1):
        hop = program.route_hop[u64(at)]
        server = program.hop_server[u64(hop)]
        rate = program.server_rate[u64(server)]
        lead, rest = service_ps(program, first_size, rate), service_ps(program, rest_size, rate)
        total = leading * lead + (chunks - leading) * rest
        busy[u64(server)] += tasks * total
        if head:
            longest[u64(server)] = max(longest[u64(server)], max(lead, rest))
            if program.cut_through or at == end - 1:
                drop_first, drop_last = lead, rest
        before -= stored * lead + program.hop_latency_ps[u64(hop)]
        latency_behind += program.hop_latency_ps[u64(hop)]
        first_ps = max(first_ps, before + lead + lead_behind + latency_behind - drop_first)
        whole_ps = max(whole_ps, before + total + rest_behind + latency_behind - drop_last)
        last_ps = max(last_ps, rest + rest_behind + latency_behind - drop_last)
        lead_behind += stored * lead
        rest_behind += stored * rest
    kind_ps[0, u64(kind)], kind_ps[1, u64(kind)], kind_ps[2, u64(kind)] = first_ps, whole_ps, last_ps


@helper
def _count_waits(program, waits):
    for edge in range(program.whole_child.size):
        waits[u64(program.whole_child[u64(edge)])] += 1
    for edge in range(program.stream_child.size):
        if program.stream_lag.size == 0 or program.stream_lag[u64(edge)] == 0:
            waits[u64(program.stream_child[u64(edge)])] += 1


@helper
def _path_in_order(program, task_kind, kind_ps, release):
    """The same of tasks that wait for whole ones before them."""
    latest, last = np.int64(0), release.size - 1
    for task in range(task_kind.size):
        finish = release[u64(task & last)] + kind_ps[1, u64(task_kind[u64(task)])]
        release[u64(task & last)] = 0
        latest = max(latest, finish)
        if program.whole_child.size:
            for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
                child = program.whole_child[u64(edge)] & last
                release[u64(child)] = max(release[u64(child)], finish)
    return latest


@helper
def _longest_path(program, task_kind, kind_ps, waits, order, times):
    release, finish = times[0], times[1]
    n_tasks = waits.size
    head, tail = 0, 0
    for task in range(n_tasks):
        if waits[u64(task)] == 0:
            order[u64(tail)] = task
            tail += 1
    latest = np.int64(0)
    while head < tail:
        task = order[u64(head)]
        head += 1
        finish[u64(task)] = max(finish[u64(task)], release[u64(task)] + kind_ps[1, u64(task_kind[u64(task)])])
        latest = max(latest, finish[u64(task)])
        first, last = 0, 0
        if program.whole_child.size:
            first, last = program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]
        for edge in range(first, last):
            child = program.whole_child[u64(edge)]
            release[u64(child)] = max(release[u64(child)], finish[u64(task)])
            waits[u64(child)] -= 1
            if waits[u64(child)] == 0:
                order[u64(tail)] = child
                tail += 1
        first, last = 0, 0
        if program.stream_child.size:
            first, last = program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]
        for edge in range(first, last):
            if program.stream_lag.size == 0 or program.stream_lag[u64(edge)] == 0:
                child = program.stream_child[u64(edge)]
                first_ps, last_ps = kind_ps[0, u64(task_kind[u64(task)])], kind_ps[2, u64(task_kind[u64(child)])]
                release[u64(child)] = max(release[u64(child)], release[u64(task)] + first_ps)
                finish[u64(child)] = max(finish[u64(child)], finish[u64(task)] + last_ps)
                waits[u64(child)] -= 1
                if waits[u64(child)] == 0:
                    order[u64(tail)] = child
                    tail += 1
    return latest


@entry
def latencies_around(program, path_ps, waits, order, times, around):
    """Least latencies before the first and behind the last service of every server, whatever services take.

    `path_ps` (3, R): latency of each route, three times.
    `waits`, `order` (T,), `times` (2, T): scratch, zeros on entry.
    `around` (2, S): the least so far; filled for servers that a task crosses.
    """
    _count_waits(program, waits)
    _longest_path(program, program.task_route, path_ps, waits, order, times)
    release, behind = times[0], times[1]
    for at in range(order.size - 1, -1, -1):
        task = order[u64(at)]
        longest = np.int64(0)
        if program.whole_child.size:
            for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
                child = program.whole_child[u64(edge)]
                longest = max(longest, path_ps[0, u64(program.task_route[u64(child)])] + behind[u64(child)])
        if program.stream_child.size:
            for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
                if program.stream_lag.size == 0 or program.stream_lag[u64(edge)] == 0:
                    child = program.stream_child[u64(edge)]
                    longest = max(longest, path_ps[0, u64(program.task_route[u64(child)])] + behind[u64(child)])
        behind[u64(task)] = longest
        route, before = program.task_route[u64(task)], release[u64(task)]
        after = longest + path_ps[0, u64(route)]
        for place in range(program.route_ptr[u64(route)], program.route_ptr[u64(route + 1)]):
            hop = program.route_hop[u64(place)]
            server = program.hop_server[u64(hop)]
            around[0, u64(server)] = min(around[0, u64(server)], before)
            around[1, u64(server)] = min(around[1, u64(server)], after)
            before += program.hop_latency_ps[u64(hop)]
            after -= program.hop_latency_ps[u64(hop)]
