"""Jobs that share a cluster: isolated from each other by optics, or contending in one packet-switched network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.circuits.ring_iteration import PACKETS, Rings, Transport, simulate_iteration
from topologies import PatchPanel, Topology, WeftError
from workloads.topoopt import AllReduce, Fabric, Flows, Iteration, Op


@dataclass(frozen=True, eq=False)
class ClusterJob:
    """A job in the cluster.

    Attributes
    ----------
    iteration : Iteration
    servers : tuple of int
        Where server i of the job is.
    arrival_ps : int
    """

    iteration: Iteration
    servers: tuple[int, ...]
    arrival_ps: int = 0


def place_randomly(sizes: Sequence[int], n: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Different servers at random for each job.

    Raises
    ------
    WeftError
        More servers asked than there are.
    """
    if sum(sizes) > n:
        raise WeftError(f"jobs of {sum(sizes)} servers in a cluster of {n}")
    order = rng.sample(range(n), sum(sizes))
    ends = np.cumsum(sizes).tolist()
    return [tuple(order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def merge(jobs: Sequence[ClusterJob], n: int, iterations: int = 1) -> tuple[Iteration, list[list[range]]]:
    """All jobs as one iteration of the cluster, and the operations of each job and turn.

    A turn begins on a server when the computations and all-reduces of the turn before have ended there.

    Raises
    ------
    WeftError
        A server that two jobs share.
    """
    seats = [server for job in jobs for server in job.servers]
    if len(set(seats)) < len(seats):
        raise WeftError(f"server {next(s for s in seats if seats.count(s) > 1)} is given to two jobs")
    ops: list[Op] = []
    spans: list[list[range]] = []
    for job in jobs:
        arrival = len(ops)
        ops.append(Op("arrival", job.arrival_ps, job.servers))
        spans.append([])
        before = range(arrival, arrival + 1)
        for _ in range(iterations):
            first = len(ops)
            ops += [_moved(op, job, first, tuple(before)) for op in job.iteration.ops]
            before = range(first, len(ops))
            spans[-1].append(before)
    return Iteration("cluster", n, tuple(ops)), spans


def _moved(op: Op, job: ClusterJob, first: int, before: tuple[int, ...]) -> Op:
    place = np.array(job.servers, np.int64)
    starts = not op.after and not op.receives
    return Op(
        op.name, op.duration_ps,
        job.servers if op.servers is None else tuple(job.servers[server] for server in op.servers),
        tuple(first + other for other in op.after) + (before if starts else ()),
        tuple(Flows(first + one.producer, place[one.src], place[one.dst], one.size_bytes) for one in op.receives),
        tuple(
            AllReduce(one.size_bytes, job.servers if one.group is None else tuple(job.servers[s] for s in one.group))
            for one in op.all_reduces
        ),
        before if starts else (),
    )


def contended_ps(
    jobs: Sequence[ClusterJob], network: Topology, *, iterations: int = 2, transport: Transport = PACKETS
) -> list[float]:
    """Mean iteration time of each job, in ps, when all share one network.

    Parameters
    ----------
    jobs : sequence of ClusterJob
    network : Topology
        With an NPU for each server of the cluster.
    iterations : int
    transport : Transport
    """
    merged, spans = merge(jobs, network.n_npus, iterations)
    lowered, outcome = simulate_iteration(merged, network, Rings((1,), {}), transport)
    last = np.zeros(len(merged.ops), np.int64)
    np.maximum.at(last, lowered.task_op, outcome.finish_ps)
    return [
        (int(last[turns[-1].start : turns[-1].stop].max()) - job.arrival_ps) / iterations
        for job, turns in zip(jobs, spans, strict=True)
    ]


def isolated_ps(
    jobs: Sequence[ClusterJob], fabrics: Sequence[Fabric], *, transport: Transport = PACKETS,
) -> list[float]:
    """Iteration time of each job, in ps, on circuits of its own: nobody else is on them."""
    times = []
    for job, fabric in zip(jobs, fabrics, strict=True):
        rings = Rings(fabric.jumps, fabric.group_jumps)
        times.append(float(simulate_iteration(job.iteration, fabric.topology, rings, transport)[1].makespan_ps))
    return times


def start_times_ps(jobs: Sequence[ClusterJob], durations_ps: Sequence[int], n: int, panel: PatchPanel) -> list[int]:
    """When each job starts in a cluster of n servers, first come first served; its circuits are laid ahead or not.

    With look-ahead the robot lays the circuits of a waiting job from its arrival on, one job after the other.
    """
    provision = replace(panel, lookahead=False).start_delay_ps() - replace(panel, lookahead=True).start_delay_ps()
    flip = replace(panel, lookahead=True).start_delay_ps()
    running: list[tuple[int, int]] = []  # end, servers
    free, now, robot = n, 0, 0
    starts = [0] * len(jobs)
    for at in sorted(range(len(jobs)), key=lambda at: (jobs[at].arrival_ps, at)):
        size = len(jobs[at].servers)
        if size > n:
            raise WeftError(f"a job of {size} servers in a cluster of {n}")
        now = max(now, jobs[at].arrival_ps)
        while free < size:
            end, freed = min(running)
            running.remove((end, freed))
            now, free = max(now, end), free + freed
        begin = max(robot, jobs[at].arrival_ps if panel.lookahead else now)
        robot = begin + provision
        starts[at] = max(now, robot) + flip
        running.append((starts[at] + int(durations_ps[at]), size))
        free -= size
    return starts
