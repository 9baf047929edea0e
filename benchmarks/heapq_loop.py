"""The yardstick: what a careful person writes in an afternoon, a heap and a loop, and nothing more.

Store-and-forward, fifo, one class of waits: a chunk of a transfer begins when the same chunk of the transfer it passes
on has arrived. Times of a ring are those of the engine, to the picosecond.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.program import Program


def run(program: Program) -> tuple[int, int]:
    """Makespan in ps and services done, of a program of store-and-forward fifo servers and stream waits."""
    route_ptr, tasks = program.route_ptr.tolist(), range(program.n_tasks)
    servers, latencies = program.route_server.tolist(), program.route_latency_ps.tolist()
    routes = [range(route_ptr[r], route_ptr[r + 1]) for r in program.task_route.tolist()]
    chunks = program.chunks().tolist()
    service = [int(program.service(program.cut_size[cut, 0], 0)) for cut in program.task_cut]
    parents, kids, _ = program.stream_edges()
    children: list[list[int]] = [[] for _ in tasks]
    for parent, child in zip(parents.tolist(), kids.tolist(), strict=True):
        children[parent].append(child)
    waiting = set(kids.tolist())
    free = [0] * program.n_servers
    heap = [(0, task, chunk, 0) for task in tasks if task not in waiting for chunk in range(chunks[task])]
    now = events = 0
    while heap:
        now, task, chunk, hop = heappop(heap)
        route = routes[task]
        if hop == len(route):
            for child in children[task]:
                heappush(heap, (now, child, chunk, 0))
            continue
        server = servers[route[hop]]
        start = free[server] if free[server] > now else now
        free[server] = end = start + service[task]
        heappush(heap, (end + latencies[route[hop]], task, chunk, hop + 1))
        events += 1
    return now, events
