"""Jobs that share a cluster: isolated from each other by optics, or contending in one packet-switched network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.circuits.iterations import run_carried, simulate_iteration
from topologies import Topology, WeftError
from workloads.job import Job
from workloads.topoopt import ONE_RING, PACKETS, Fabric, Iteration, Transport, add_iteration


@dataclass(frozen=True, eq=False)
class ClusterJob:
    """A job in the cluster."""

    iteration: Iteration
    servers: tuple[int, ...]  # where server i of the job is
    arrival_ps: int = 0


def place_randomly(sizes: Sequence[int], n: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Different servers at random for each job.

    WeftError: more servers requested than the cluster has.
    """
    if sum(sizes) > n:
        raise WeftError(f"jobs of {sum(sizes)} servers in a cluster of {n}")
    order = rng.sample(range(n), sum(sizes))
    ends = np.cumsum(sizes).tolist()
    return [tuple(order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def contended_ps(
    jobs: Sequence[ClusterJob], network: Topology, *, iterations: int = 2, transport: Transport = PACKETS
) -> list[float]:
    """Mean iteration time of each job, in ps, when all share one network.

    `network`: with an NPU for each server of the cluster.
    """
    cluster, last_turns = cluster_job(jobs, network, iterations, transport)
    result = run_carried(cluster, transport)
    assert result.outcome is not None  # an engine ran
    last = np.zeros(len(cluster.operations), np.int64)
    np.maximum.at(last, result.lowered.task_operation, result.outcome.finish_ps)
    return [
        (int(last[turn.start : turn.stop].max()) - job.arrival_ps) / iterations
        for job, turn in zip(jobs, last_turns, strict=True)
    ]


def cluster_job(
    jobs: Sequence[ClusterJob], network: Topology, iterations: int, transport: Transport = PACKETS
) -> tuple[Job, list[range]]:
    """All jobs merged into one, and the operations of the last iteration of each.

    An iteration begins on a server when the computations and all-reduces of the previous one have ended there.

    WeftError: a server that two jobs share.
    """
    seats = [server for job in jobs for server in job.servers]
    if len(set(seats)) < len(seats):
        raise WeftError(f"server {next(s for s in seats if seats.count(s) > 1)} is given to two jobs")
    cluster, last_turns = Job(network), []
    for job in jobs:
        before = [cluster.compute("arrival", job.arrival_ps, npus=job.servers)]
        for _ in range(iterations):
            first = len(cluster.operations)
            before = add_iteration(cluster, job.iteration, job.servers, ONE_RING, transport, after=before)
        last_turns.append(range(first, len(cluster.operations)))
    return cluster, last_turns


def isolated_ps(
    jobs: Sequence[ClusterJob], fabrics: Sequence[Fabric], *, transport: Transport = PACKETS,
) -> list[float]:
    """Iteration time of each job, in ps, on dedicated circuits, without contention."""
    return [
        float(simulate_iteration(job.iteration, fabric.topology, fabric.rings, transport).time_ps)
        for job, fabric in zip(jobs, fabrics, strict=True)
    ]
