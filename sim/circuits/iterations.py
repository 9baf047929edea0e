"""Simulated iterations of TopoOpt's jobs: their times, and the bytes that servers forward for each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sim.how import AS_USUAL, How
from sim.lower.lowered import Lowered
from sim.result import Result
from sim.simulation import simulate
from topologies import Topology
from topologies.units import PS_PER_S
from workloads.job import Job
from workloads.topoopt import PACKETS, Iteration, Rings, Transport, iteration_job


def simulate_iteration(
    iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS, how: How = AS_USUAL
) -> Result:
    """Run an iteration on a fabric, without a log."""
    return run_carried(iteration_job(iteration, fabric, rings, transport), transport, how)


def run_carried(job: Job, transport: Transport, how: How = AS_USUAL) -> Result:
    """Run a job with this transport of messages and rounds, without a log."""
    return simulate(job, chunks=transport.message_chunks, tie=transport.tie, seed=transport.seed, **how.arguments())


def bandwidth_tax(lowered: Lowered) -> float:
    """Bytes on all links divided by bytes sent between servers; 1 if nothing moves."""
    program, hops = lowered.program, lowered.program.hops()
    first = program.route_ptr[program.task_route]
    moves = hops > 0
    moves[moves] = lowered.server_link[program.route_server[first[moves]]] >= 0
    size = program.cut_work[program.task_cut[moves]]
    return float(np.dot(size, hops[moves]) / size.sum()) if size.any() else 1.0


def lower_bound_ps(iteration: Iteration, rate_Bps: float) -> int:
    """No run is faster where a server sends `rate_Bps`: it computes, and its all-reduces follow their first operation.

    Each all-reduce of k servers sends 2 (k-1)/k of its bytes from every member, none before its operation ends. The
    bound is the largest, over all moments, of that moment plus the time to send the bytes that become ready after it.
    """
    done, best = 0, iteration.compute_ps()
    if not iteration.is_uniform():
        return best
    left = [(op.duration_ps, sum(one.size_bytes for one in op.all_reduces)) for op in iteration.ops]
    share = Fraction(2 * (iteration.n - 1), iteration.n) * PS_PER_S / Fraction(rate_Bps)
    for at, (duration, _) in enumerate(left):
        done += duration
        best = max(best, done + int(share * sum(size for _, size in left[at:])))
    return best
