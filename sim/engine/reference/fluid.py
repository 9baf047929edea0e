"""The oracle of the fluid engine: its contract (sim/program/flows.py) in fractions, written to be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sim.program import Program
from sim.program.outcome import Outcome, check_finished
from topologies.units import PS_PER_S

TOLERANCE = Fraction(1, 65537)


def run_reference_fluid(program: Program, rates: Sequence[Fraction]) -> Outcome:
    """Run a program as flows; parameters and errors as in `sim.engine.fluid.run.run_flows`."""
    capacity = [rate / PS_PER_S for rate in rates]
    routes = [_route(program, task) for task in range(program.n_tasks)]
    parents = _parents(program)
    start, finish = [-1] * program.n_tasks, [-1] * program.n_tasks
    left: dict[int, Fraction] = {}  # bytes of each flow, in the order of their start
    arriving: dict[int, int] = {}  # tasks whose last byte is on its way, and when it is in
    rate: dict[int, Fraction] = {}
    now = 0
    while True:
        while ready := [task for task in range(program.n_tasks)
                        if start[task] < 0 and all(finish[one] >= 0 for one in parents[task])]:
            for task in ready:
                start[task] = now
                if routes[task]:
                    left[task] = Fraction(_bytes(program, task))
                else:
                    finish[task] = now
        rate = max_min([capacity[link] for link in range(program.n_servers)], {task: routes[task] for task in left})
        ends = {task: now + max(math.ceil(left[task] / rate[task] - TOLERANCE), 1) for task in left}
        if not ends and not arriving:
            break
        following = min([*ends.values(), *arriving.values()])
        for task, end in ends.items():
            left[task] -= rate[task] * (following - now)
            if end == following:
                del left[task]
                arriving[task] = end + _latency_ps(program, task)
        now = following
        for task in [task for task, time in arriving.items() if time == now]:
            del arriving[task]
            finish[task] = now
    finished = np.array(finish, np.int64)
    check_finished(program, np.where(finished < 0, 0, program.chunks()))
    return Outcome(
        start_ps=np.array(start, np.int64), finish_ps=finished, busy_ps=np.zeros(program.n_servers, np.int64),
        makespan_ps=int(finished.max(initial=0)), events=sum(map(bool, routes)),
    )


def max_min(capacity: Sequence[Fraction], routes: dict[int, list[int]]) -> dict[int, Fraction]:
    """The max-min fair rates of flows, by progressive filling."""
    rate: dict[int, Fraction] = {}
    while len(rate) < len(routes):
        share: dict[int, Fraction] = {}
        for link in {link for task, route in routes.items() if task not in rate for link in route}:
            taken = sum(rate[task] * route.count(link) for task, route in routes.items() if task in rate)
            rising = sum(route.count(link) for task, route in routes.items() if task not in rate)
            share[link] = (capacity[link] - taken) / rising
        level = min(share.values())
        full = {link for link, value in share.items() if value == level}
        rate |= {task: level for task, route in routes.items() if task not in rate and full & set(route)}
    return rate


def _route(program: Program, task: int) -> list[int]:
    route = program.task_route[task]
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    return [int(link) for link in program.hop_server[hops]]


def _latency_ps(program: Program, task: int) -> int:
    route = program.task_route[task]
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    return int(program.hop_latency_ps[hops].sum())


def _bytes(program: Program, task: int) -> int:
    cut = program.task_cut[task]
    first, rest = (int(program.chunk_work[size]) for size in program.cut_size[cut])
    leading = int(program.cut_first[cut])
    return first * leading + rest * (int(program.cut_chunks[cut]) - leading)


def _parents(program: Program) -> list[list[int]]:
    """Tasks that each task waits for, whole or chunk by chunk."""
    found: list[list[int]] = [[] for _ in range(program.n_tasks)]
    for parent, child in zip(*program.whole_edges(), strict=True):
        found[child].append(int(parent))
    for parent, child, lag in zip(*program.stream_edges(), strict=True):
        if lag == 0:
            found[child].append(int(parent))
    return found
