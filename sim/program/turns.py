"""Servers that serve flows, or the ports from which chunks come, in turn; servers with buffers, and with channels."""

import numpy as np

from sim.program.columns import i32, unique_rows
from sim.program.contract import I64, ROUND_ROBIN_FLOW, ROUND_ROBIN_PORT, Program
from topologies import WeftError
from topologies.core.paths import ranges


def with_turns(program: Program) -> Program:
    """The program with its queues and quanta, where a server takes turns."""
    turning = np.isin(program.server_discipline, (ROUND_ROBIN_FLOW, ROUND_ROBIN_PORT))
    if not turning.any():
        return program
    task, route = program.every_route()
    flow = program.task_flow[task] if program.task_flow.size else np.zeros(task.size, np.int32)
    flows, route, kind = _in_use(flow.astype(np.int64), route, program.route_ptr.size - 1)
    hops = np.diff(program.route_ptr)[route].astype(np.int64)
    base = np.cumsum(hops) - hops
    at = ranges(program.route_ptr[:-1][route].astype(np.int64), hops)
    hop = np.arange(at.size) - np.repeat(base, hops)
    server = program.route_server[at].astype(np.int64)
    before = np.where(hop > 0, program.route_server[at - 1], -1)
    by_flow = np.repeat(flows, hops) * (int(hops.max(initial=0)) + 1) + hop
    by_port = program.server_discipline[server] == ROUND_ROBIN_PORT
    key = np.where(turning[server], np.where(by_port, before + 1, by_flow), 0)
    keys, key = unique_rows(key)
    line = program.route_line[at]
    queue = unique_rows(line * max(keys.size, 1) + key)[1]
    return program._replace(
        task_queue=i32(base[kind[: program.n_tasks]]), detour_queue=i32(base[kind[program.n_tasks :]]),
        hop_queue=i32(queue), server_quantum=np.maximum(largest_chunks(program), 1),
    )


def _in_use(flow: I64, route: I64, n_routes: int) -> tuple[I64, I64, I64]:
    """Pairs of a flow and a route that tasks have, by flow and then route, and which of them each task has."""
    of_route = np.full(n_routes, -1, np.int64)
    of_route[route] = flow
    if np.array_equal(of_route[route], flow):  # each route has one flow: routes are sorted, not tasks
        used = np.flatnonzero(of_route >= 0)
        used, number = used[np.argsort(of_route[used], kind="stable")], np.empty(n_routes, np.int64)
        number[used] = np.arange(used.size)
        return of_route[used], used, number[route]
    kinds, kind = unique_rows(flow * n_routes + route)
    return *np.divmod(kinds, max(n_routes, 1)), kind


def with_buffers(program: Program, buffer: I64, credit_ps: I64, bubble: bool = False) -> Program:
    """The program with buffers, and the time until room in them is known again, (S,) each.

    `bubble`: channels share the buffer, and channel 1 leaves room in it for one more of the largest chunks.
    WeftError: a buffer that is smaller than a chunk, or with `bubble` than two.
    """
    largest, bubble = largest_chunks(program), bubble and program.has_channels
    least = 2 * largest if bubble else largest
    if np.any(least > buffer):
        server = int(np.flatnonzero(least > buffer)[0])
        what = f"two chunks of {largest[server]} need it" if bubble else f"a chunk of {largest[server]} crosses it"
        raise WeftError(
            f"the buffer behind server {server} has room for {buffer[server]}, and {what}: give larger buffers, or cut "
            "smaller chunks"
        )
    of_channels = (buffer, buffer - largest) if bubble else (buffer,) * program.channels
    return program._replace(
        server_buffer=np.concatenate(of_channels).astype(np.int64), buffer_shared=int(bubble),
        server_credit_ps=np.maximum(np.ascontiguousarray(credit_ps, np.int64), 1),
    )


def largest_chunks(program: Program) -> I64:
    """Work of the largest chunk that may cross each server."""
    lead = np.where(program.cut_first > 0, program.chunk_work[program.cut_size[:, 0]], 0)
    rest = np.where(program.cut_first < program.cut_chunks, program.chunk_work[program.cut_size[:, 1]], 0)
    largest, (task, route) = np.zeros(program.route_ptr.size - 1, np.int64), program.every_route()
    np.maximum.at(largest, route, np.maximum(lead, rest)[program.task_cut[task]])
    found = np.zeros(program.n_servers, np.int64)
    np.maximum.at(found, program.route_server, np.repeat(largest, np.diff(program.route_ptr)))
    return found
