"""One task alone on its route, and the work of every server, by sums that are written out."""

from __future__ import annotations

from sim.program import Program


def busiest(program: Program) -> int:
    """Work of the busiest server, chunk by chunk kind; with head delivery without its longest service."""
    work, longest = [0] * program.n_servers, [0] * program.n_servers
    for task in range(program.n_tasks):
        cut, route = program.task_cut[task], program.task_route[task]
        chunks, leading = int(program.cut_chunks[cut]), int(program.cut_first[cut])
        for hop in program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]:
            server = program.hop_server[hop]
            counts = zip((leading, chunks - leading), program.cut_size[cut], strict=True)
            for count, size in counts:
                if count:
                    service = int(program.service(size, program.server_rate[server]))
                    work[server] += count * service
                    longest[server] = max(longest[server], service)
    return max((a - b if program.delivers_heads else a for a, b in zip(work, longest, strict=True)), default=0)


def longest_chain(program: Program) -> int:
    """Longest chain of whole and chunk-by-chunk dependencies (no windows), by relaxing the edges until none moves."""
    alone = [alone_on(program, int(c), int(r)) for c, r in zip(program.task_cut, program.task_route, strict=True)]
    whole, stream = _edges(program)
    release, finish = [0] * program.n_tasks, [time for _, time, _ in alone]
    moved = True
    while moved:
        before = list(release), list(finish)
        for parent, child in whole:
            release[child] = max(release[child], finish[parent])
        for parent, child in stream:
            release[child] = max(release[child], release[parent] + alone[parent][0])
            finish[child] = max(finish[child], finish[parent] + alone[child][2])
        finish = [max(finish[task], release[task] + alone[task][1]) for task in range(program.n_tasks)]
        moved = (release, finish) != before
    return max(finish, default=0)


def load_and_latencies(program: Program) -> int:
    """The most of any server: its work, and the least latencies from the first begin and to the last end of a task."""
    routes = [program.route_hop[program.route_ptr[at] : program.route_ptr[at + 1]] for at in program.task_route]
    latency = [program.hop_latency_ps[hops].tolist() for hops in routes]
    before, behind = [0] * program.n_tasks, [0] * program.n_tasks
    edges, moved = [*_edges(program)[0], *_edges(program)[1]], True
    while moved:
        last = list(before), list(behind)
        for parent, child in edges:
            before[child] = max(before[child], before[parent] + sum(latency[parent]))
            behind[parent] = max(behind[parent], behind[child] + sum(latency[child]))
        moved = (before, behind) != last
    found = 0
    for server in range(program.n_servers):
        at = [(task, hop) for task, hops in enumerate(routes)
              for hop, one in enumerate(hops) if program.hop_server[one] == server]
        chunks = [(int(program.task_cut[task]), server) for task, _ in at]
        if at:
            head = min(before[task] + sum(latency[task][:hop]) for task, hop in at)
            tail = min(behind[task] + sum(latency[task][hop:]) for task, hop in at)
            found = max(found, head + sum(_work(program, *one) for one in chunks) + tail)
    return found


def _work(program: Program, cut: int, server: int) -> int:
    counts = int(program.cut_first[cut]), int(program.cut_chunks[cut] - program.cut_first[cut])
    sizes = zip(counts, program.cut_size[cut], strict=True)
    return sum(count * int(program.service(size, program.server_rate[server])) for count, size in sizes if count)


def _edges(program: Program) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    whole, stream = [], []
    for task in range(program.n_tasks):
        if program.whole_child.size:
            first, last = program.whole_ptr[task : task + 2]
            whole += [(task, int(child)) for child in program.whole_child[first:last]]
        if program.stream_child.size:
            for edge in range(program.stream_ptr[task], program.stream_ptr[task + 1]):
                if program.stream_lag.size == 0 or program.stream_lag[edge] == 0:
                    stream.append((task, int(program.stream_child[edge])))
    return whole, stream


def alone_on(program: Program, cut: int, route: int) -> tuple[int, int, int]:
    """Least time to the first delivery, to the last, and between the last two."""
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
    lead = [int(program.service(lead_size, program.server_rate[server])) for server in servers]
    rest = [int(program.service(rest_size, program.server_rate[server])) for server in servers]
    latency = [int(program.hop_latency_ps[hop]) for hop in hops]
    total = [leading * a + (chunks - leading) * b for a, b in zip(lead, rest, strict=True)]
    before, after = (lead, rest) if not program.cut_through else ([0] * len(lead), [0] * len(rest))
    whole = first = last = 0
    for h in range(len(lead)):
        head = sum(before[:h]) + sum(latency[:h])
        tail = sum(after[h + 1 :]) + sum(latency[h:])
        drop_first = drop_last = 0
        if program.delivers_heads:
            # The last hop's last service does not count; upstream of it, cut-through does not either.
            drop = program.cut_through or h == len(lead) - 1
            drop_first, drop_last = (lead[h], rest[h]) if drop else (0, 0)
            if not program.cut_through and h < len(lead) - 1:
                drop_first, drop_last = lead[-1], rest[-1]
        whole = max(whole, head + total[h] + tail - drop_last)
        first = max(first, head + lead[h] + sum(before[h + 1 :]) + sum(latency[h:]) - drop_first)
        last = max(last, rest[h] + sum(after[h + 1 :]) + sum(latency[h:]) - drop_last)
    return first, whole, last
