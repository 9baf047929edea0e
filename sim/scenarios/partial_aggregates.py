"""Partial aggregates after a timeout: what a leaf switch does about a late worker (Canary).

Workers hang on leaves, leaves on a root. A static leaf keeps a slot for each packet until all of its workers have
sent it. A leaf with a timeout forwards what it has, with a count, and frees the slot; a packet that comes later goes up
alone, and the root adds partial sums until the count is complete. No result arrives earlier, but slots are freed.

A worker that is late holds the others back: they wait for results before they send more. So the packets of the first
window miss the timeout, and with them those of later windows only as far as the late worker's link is behind by more
than the timeout. Which packets do depends on the times, and the times depend on which packets do. They are found by
iteration: first as if none missed it, then with those that did, until a run reproduces its own assumption. Whether a
packet misses the timeout depends only on earlier events, so each run is correct for longer, and the answer is unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analytic.closed_form import turns_ps
from sim.faults.retry import packets_of
from sim.how import AS_USUAL, How
from sim.program import I64, Program, ProgramBuilder
from sim.program.builder import NO_SERVER
from sim.program.outcome import Log
from sim.scenarios.pool_streaming import PoolStreaming, Time, picoseconds
from topologies.checks import Count, WeftError, checked
from topologies.units import PS_PER_S


@checked
@dataclass(frozen=True, kw_only=True)
class LateWorker:
    """Worker 0 of a job, on leaf 0, begins late.

    Attributes
    ----------
    job : PoolStreaming
        Its slots are the window of each worker; workers are divided evenly among the leaves.
    leaves : int
    late_ps : int, or text such as "1ms"
    timeout_ps : int, text, or None
        From the arrival of a packet at the leaf; a packet that arrives exactly at the end is in time. None keeps the
        slot until all have arrived.
    """

    job: PoolStreaming
    leaves: Count = 2
    late_ps: Time = 0
    timeout_ps: int | str | None = None

    def __post_init__(self) -> None:
        if self.job.workers % self.leaves or self.job.workers // self.leaves < 2:
            raise WeftError(f"{self.job.workers} workers on {self.leaves} leaves: give each as many, at least 2")
        if self.timer_ps == 0:
            raise WeftError("a timeout of 0 ps would send every packet alone: at least 1 ps, or None")

    @property
    def timer_ps(self) -> int | None:
        """The switch's timer; None if it has none."""
        return None if self.timeout_ps is None else picoseconds(self.timeout_ps, "timeout_ps")

    @property
    def round_trip_ps(self) -> int:
        """From the start of a full packet to its result, through the leaf and the root."""
        return 4 * (self.job.latency_ps + self.job.wire_ps) + 3 * self.job.switch_latency_ps

    def closed_form_ps(self) -> int:
        """Lateness and the time of full packets of leaves without a timeout; see `sim.analytic.streaming_form`."""
        job = self.job
        if job.n_packets == 0:
            return 0
        others = turns_ps(job.n_packets - 1, job.slots, self.round_trip_ps, job.wire_ps)
        return self.late_ps + self.round_trip_ps + others


class Held(NamedTuple):
    """Measurements of a run: its time, how long slots of leaf 0 are held, and what it sends to the root.

    Attributes
    ----------
    makespan_ps : int
    longest_ps, mean_ps : int, float
        From the first packet in a slot until its sum is sent.
    packets_up : int
        Sums, partial sums and late packets.
    partial_sums : int
    """

    makespan_ps: int
    longest_ps: int
    mean_ps: float
    packets_up: int
    partial_sums: int


def late_worker_run(case: LateWorker, how: How = AS_USUAL) -> Held:
    """Run the case and look at the slots of the late worker's leaf."""
    job = case.job
    if job.n_packets == 0:
        return Held(0, 0, 0.0, 0, 0)
    partial = np.zeros(job.n_packets, np.bool_)
    while True:
        built = _build(case, partial)
        outcome = how.run(built.program, log=True)
        assert outcome.log is not None
        arrived = outcome.finish_ps[built.sent]
        first = arrived[:, 1:].min(axis=1)
        missed = np.zeros_like(partial) if case.timer_ps is None else arrived[:, 0] > first + case.timer_ps
        if np.array_equal(missed, partial):
            break
        partial = missed
    held = _starts(outcome.log, built.sums) - first
    n_partial = int(np.count_nonzero(partial))
    return Held(outcome.makespan_ps, int(held.max()), float(held.mean()), job.n_packets + n_partial, n_partial)


def _starts(log: Log, tasks: I64) -> I64:
    """Start of the one service of each task."""
    return log.start_ps[log.base[tasks]]


class _Built(NamedTuple):
    """The program; the uploads to leaf 0, (packets, workers of a leaf); what leaf 0 sends up, late packets left out."""

    program: Program
    sent: I64
    sums: I64


def _build(case: LateWorker, partial: npt.NDArray[np.bool_]) -> _Built:
    """The case if leaf 0 sends partial sums of these packets."""
    job, per_leaf = case.job, case.job.workers // case.leaves
    rates, builder = [Fraction(job.bandwidth_Bps)] * job.workers, ProgramBuilder(forwarding="store-and-forward")
    up, down = builder.servers(rates), builder.servers(rates)
    leaf_up, leaf_down = builder.servers(rates[: case.leaves]), builder.servers(rates[: case.leaves])
    (packet, worker), packets = packets_of(job.n_packets, job.workers), np.arange(job.n_packets)
    work, nothing = job.packet_bytes(packets), np.zeros(job.n_packets, np.int64)
    sums, first_tie = nothing, 2 * packets

    def wait(time_ps: int, after: Sequence[I64], count: int) -> I64:
        """Wait: a service takes at least 1 ps, the rest is latency."""
        timers = builder.servers([Fraction(PS_PER_S)] * count) if time_ps else NO_SERVER
        return builder.tasks(nothing[:count], timers, max(time_ps - 1, 0), after=after)

    sent = builder.tasks(work[packet], up[worker], job.to_switch_ps, tie_class=packet).reshape(-1, job.workers)
    late = wait(case.late_ps, (), 1)
    builder.order(late.repeat(min(job.slots, job.n_packets)), sent[: job.slots, 0])
    at_root = builder.tasks(nothing)
    for leaf in reversed(range(case.leaves)):
        mine = sent[:, leaf * per_leaf : (leaf + 1) * per_leaf]
        complete = ~partial if leaf == 0 else np.ones_like(partial)
        ready = builder.tasks(nothing, after=mine.T[1:])
        builder.order(mine[complete, 0], ready[complete])
        ready[~complete] = wait(case.timer_ps or 0, [ready[~complete]], int(np.count_nonzero(~complete)))
        sums = builder.tasks(work, leaf_up[leaf], job.to_switch_ps, after=[ready], tie_class=first_tie)
        tie = first_tie[~complete] + 1  # a sum precedes the packets that were too late for it
        alone = builder.tasks(
            work[~complete], leaf_up[leaf], job.to_switch_ps, after=[mine[~complete, 0]], tie_class=tie
        )
        builder.order(sums, at_root)
        builder.order(alone, at_root[~complete])
    back = [
        builder.tasks(work, leaf_down[leaf], job.to_switch_ps, after=[at_root], tie_class=packets)
        for leaf in range(case.leaves)
    ]
    results = np.stack(back, axis=1)[:, np.arange(job.workers) // per_leaf].ravel()
    received = builder.tasks(work[packet], down[worker], job.latency_ps, after=[results], tie_class=packet)
    builder.order(received[packet + job.slots < job.n_packets], sent.ravel()[job.slots * job.workers :])
    return _Built(builder.build(), sent[:, :per_leaf], sums)
