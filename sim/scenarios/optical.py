"""Runs on circuits: TopoOpt's iterations, alone and several in a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sim.how import AS_USUAL, How
from sim.lower.lowered import Lowered
from sim.program.model_options import ModelOptions
from sim.result import Result
from sim.simulation import simulate, time_ps
from topologies import Topology, WeftError
from topologies.units import PS_PER_S
from workloads.job import COMPUTE_STREAM, Communicate, Compute, Job
from workloads.topoopt import ONE_RING, PACKETS, PER_FLOW, Iteration, Rings, Transport


def simulate_iteration(
    iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS, how: How = AS_USUAL
) -> Result:
    """Run an iteration on a fabric, without a log."""
    return run_carried(iteration.job(fabric, rings, transport), transport, how)


def iteration_time_ps(
    iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS, how: How = AS_USUAL
) -> int:
    """The time of that run, and nothing else of it."""
    return time_ps(iteration.job(fabric, rings, transport), how, **_options(transport))


def run_carried(job: Job, transport: Transport, how: How = AS_USUAL) -> Result:
    """Run a job with this transport of messages and rounds, without a log."""
    return simulate(job, **_options(transport), **how.arguments())


def _options(transport: Transport) -> ModelOptions:
    tie = "first" if transport.tie == PER_FLOW else transport.tie  # routes are named
    return {"chunks": transport.message_chunks, "tie": tie, "seed": transport.seed}


def bandwidth_tax(lowered: Lowered) -> float:
    """Bytes on all links divided by bytes sent between servers; 1 if nothing moves."""
    program, hops = lowered.program, lowered.program.hops()
    first = program.route_ptr[program.task_route]
    moves = hops > 0
    moves[moves] = lowered.server_link[program.route_server[first[moves]]] >= 0
    size = program.cut_work[program.task_cut[moves]]
    return float(np.dot(size, hops[moves]) / size.sum()) if size.any() else 1.0


def compute_ps(job: Job) -> int:
    """Computation of the busiest server."""
    busy = np.zeros(job.topology.n_npus, np.int64)
    for one in job.operations:
        if isinstance(one.work, Compute) and one.work.stream == COMPUTE_STREAM:
            busy[job.ranks(one)] += one.work.duration_ps
    return int(busy.max(initial=0))


def lower_bound_ps(job: Job, rate_Bps: float) -> int:
    """No run is faster where a server sends `rate_Bps`: it computes, and its all-reduces follow their first operation.

    Each all-reduce of k servers sends 2 (k-1)/k of its bytes from every member, none before its operation ends. The
    bound is the largest, over all moments, of that moment plus the time to send the bytes that become ready after it.
    """
    best, n = compute_ps(job), job.topology.n_npus
    if any(one.npus is not None for one in job.operations):
        return best
    ready: list[int] = []  # when each operation may begin, then when it ends
    sent: list[tuple[int, int]] = []
    for one in job.operations:
        ready.append(max((ready[other] for other in one.after), default=0))
        if isinstance(one.work, Communicate):
            sent.append((ready[-1], one.work.schedule.size_bytes))
        elif isinstance(one.work, Compute):
            ready[-1] += one.work.duration_ps
    share, left = Fraction(2 * (n - 1), n) * PS_PER_S / Fraction(rate_Bps), 0
    for moment, size in sorted(sent, reverse=True):
        left += size
        best = max(best, moment + int(share * left))
    return best


@dataclass(frozen=True, eq=False)
class ClusterJob:
    """A job in the cluster."""

    iteration: Iteration
    servers: tuple[int, ...]  # where server i of the job is
    arrival_ps: int = 0


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
            before = job.iteration.onto(cluster, job.servers, ONE_RING, transport, after=before)
        last_turns.append(range(first, len(cluster.operations)))
    return cluster, last_turns
