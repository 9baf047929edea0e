"""Several jobs that share the slots of one aggregating switch: divided, first come, first served, locked, or hashed.

Jobs have dedicated workers and links and meet only at the switch. Under every rule a worker has as many packets in
flight as the job's window and its share of the slots allow, whichever is less; a packet holds its slot from when its
workers send it until they have the result, as the switch keeps a sum until the next packet in its slot. The rules
differ in a job's share.

static
    An equal part of the slots, reserved.
shared
    All slots; requests queue, first come, first served.
locked
    All slots, one job after the other, from the first packet to the last result (SHARP on Quantum: one per switch).
port-locked
    All slots of its ports, which it locks as long as it runs (SHARP on Quantum-2: one per port). As jobs have
    dedicated ports here, none waits, and each runs as if alone.
hashed
    All slots, but a packet's is a hash of (job, number). If another packet in flight, of any job, has the same slot,
    the workers' packets go to the job's parameter server instead, all through its one link (ATP). Which packets
    collide is decided when the program is built, as if all jobs kept pace; a packet that went to the server still
    counts, as it does in the published formula.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.faults.retry import packets_of
from sim.how import AS_USUAL, How
from sim.program import I64, Cutting, Program, ProgramBuilder
from sim.scenarios.pool_streaming import PoolStreaming, time_ps
from topologies.checks import Choice, Count, Integer, WeftError, checked
from topologies.core.routing import hash64

RULES = ("static", "shared", "locked", "port-locked", "hashed")

MOST_WORKERS = 2**20


@checked
@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Identical jobs on one switch.

    Attributes
    ----------
    job : PoolStreaming
        One job; its slots are the window of each worker.
    jobs : int
    slots : int
        Of the switch.
    rule : {"static", "shared", "locked", "port-locked", "hashed"}
    seed : int
        For "hashed".
    """

    job: PoolStreaming
    jobs: Count
    slots: Count
    rule: Annotated[str, Choice(RULES)]
    seed: Annotated[int, Integer(0, 2**64 - 1)] = 0

    def __post_init__(self) -> None:
        if self.jobs * self.job.workers > MOST_WORKERS:
            raise WeftError(f"{self.jobs} jobs of {self.job.workers} workers: at most {MOST_WORKERS} workers in total")
        if self.rule == "static" and self.slots < self.jobs:
            raise WeftError(f"{self.jobs} jobs on {self.slots} slots: a static share needs a slot for each")

    @property
    def window(self) -> int:
        """Packets that a worker may have in flight: the job's window, or its share of the slots if that is less."""
        return min(self.job.slots, self.slots // self.jobs if self.rule == "static" else self.slots)


def finishes_ps(sharing: Sharing, how: How = AS_USUAL) -> list[int]:
    """When each job ends."""
    if sharing.rule in ("shared", "hashed"):
        program, ends = sharing_program(sharing)
        return [int(end_ps) for end_ps in how.run(program).finish_ps[ends]]
    alone = time_ps(replace(sharing.job, slots=sharing.window), how=how)
    return [alone * (number if sharing.rule == "locked" else 1) for number in range(1, sharing.jobs + 1)]


def sharing_program(sharing: Sharing) -> tuple[Program, I64]:
    """The program of jobs that meet at the switch, shared or hashed, and the task that ends each job, (jobs,)."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    if sharing.rule == "shared":
        pool = builder.pool(sharing.slots)
        ends = [_shared_job(builder, sharing, pool) for _ in range(sharing.jobs)]
    else:
        ends = [_hashed_job(builder, sharing, number) for number in range(sharing.jobs)]
    return builder.build(), np.array(ends)


class Collisions(NamedTuple):
    """For each packet of a job, whether its slot is that of another in flight, of another job or of the same one."""

    others: npt.NDArray[np.bool_]
    own: npt.NDArray[np.bool_]


def collisions(sharing: Sharing, number: int = 0) -> Collisions:
    """Where the packets of a job collide, if all jobs kept pace: packet i with i - w + 1 to i of the others."""
    packets, _ = packets_of(sharing.job.n_packets, 1)
    slot = [
        (hash64(sharing.seed, job, packets) % np.uint64(sharing.slots)).astype(np.int64) for job in range(sharing.jobs)
    ]
    others = np.zeros(packets.size, np.bool_)
    for job in range(sharing.jobs):
        if job != number:
            others |= packets - _last_in(slot[job], slot[number], packets) < sharing.window
    return Collisions(others, packets - _last_in(slot[number], slot[number], packets - 1) < sharing.window)


def fallback_share(sharing: Sharing, number: int = 0) -> float:
    """Share of a job's packets that find their slot taken; none unless slots are hashed."""
    if sharing.rule != "hashed" or sharing.job.n_packets == 0:
        return 0.0
    return float(np.mean(np.logical_or(*collisions(sharing, number))))


def _last_in(slots: I64, wanted: I64, upto: I64) -> I64:
    """The last packet up to `upto` that has the wanted slot; a large negative number if there is none."""
    n = slots.size
    keys = np.sort(slots * n + np.arange(n))
    place = np.searchsorted(keys, wanted * n + upto, side="right") - 1
    found, packet = np.divmod(keys[np.maximum(place, 0)], n)
    return np.where((place >= 0) & (found == wanted), packet, -(2**62))


def _shared_job(builder: ProgramBuilder, sharing: Sharing, pool: int) -> int:
    """Add a job, with one worker representing all: they do the same at the same time. Returns the task that ends it.

    A packet requests its slot before it is sent, which a schedule cannot express.
    """
    job = sharing.job
    if job.n_packets == 0:
        return builder.task(0)
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    rate, size = Fraction(job.bandwidth_Bps), job.size_bytes
    granted = builder.task(size, (), cutting)
    up = builder.task(size, [(builder.server(rate), job.to_switch_ps)], cutting, stream=[granted])
    down = builder.task(size, [(builder.server(rate), job.latency_ps)], cutting, stream=[up])
    builder.window(granted, down, sharing.window)
    builder.ask(granted, pool)
    builder.give(down, pool)
    return down


def _hashed_job(builder: ProgramBuilder, sharing: Sharing, number: int) -> int:
    """Add a job with its server; a packet takes one place on the server's link if it is a sum, else one per worker.

    Every packet is a task, as each takes its own path. Ties go to the lower worker, then to the lower packet.
    """
    job = sharing.job
    rates = [Fraction(job.bandwidth_Bps)] * job.workers
    up, down, (into, out_of) = builder.servers(rates), builder.servers(rates), builder.servers(rates[:1] * 2)
    (packet, worker), packets = packets_of(job.n_packets, job.workers), np.arange(job.n_packets)
    collides = np.logical_or(*collisions(sharing, number))
    tie, work = 2 * (worker * job.n_packets + packet), job.packet_bytes(packets)
    sent = builder.tasks(work[packet], up[worker], job.to_switch_ps, tie_class=tie)
    alone, alike = np.flatnonzero(collides[packet]), np.flatnonzero(~collides[packet])
    summed = builder.tasks(np.zeros_like(packets))
    builder.order(sent[alike], summed[packet[alike]])
    whole = np.flatnonzero(~collides)
    sums = builder.tasks(work[whole], into, job.latency_ps, after=[summed[whole]], tie_class=2 * whole)
    singles = builder.tasks(work[packet[alone]], into, job.latency_ps, after=[sent[alone]], tie_class=tie[alone] + 1)
    added = builder.tasks(np.zeros_like(packets))
    builder.order(sums, added[whole])
    builder.order(singles, added[packet[alone]])
    back = builder.tasks(work, out_of, job.to_switch_ps, after=[added], tie_class=2 * packets)
    received = builder.tasks(work[packet], down[worker], job.latency_ps, after=[back[packet]], tie_class=tie)
    builder.order(received[packet + sharing.window < job.n_packets], sent[sharing.window * job.workers :])
    end = builder.tasks(np.zeros(1, np.int64))
    builder.order(received, np.repeat(end, received.size))
    return int(end[0])
