"""Several jobs that share the slots of one aggregating switch: divided, first come, locked, or hashed.

Jobs have workers and links of their own and meet only at the switch. Under every rule a worker has as many packets on
the way as the job's window and its share of the slots allow, whichever is less; a packet holds its slot from when its
workers send it until they have the result, as the switch keeps a sum until it sees who follows in its slot. The rules
differ in what a job's share is.

static
    An equal part of the slots, for itself.
shared
    All slots; requests queue, first come first served.
locked
    All slots, one job after the other, from the first packet to the last result (SHARP on Quantum: one a switch).
port-locked
    All slots of its ports, which it locks as long as it runs (SHARP on Quantum-2: one a port). As jobs have ports of
    their own here, none waits, and each runs as if alone.
hashed
    All slots, but a packet's is a hash of (job, number). Where another packet on the way has the same one, of any job,
    the workers' packets go to the job's parameter server instead, all through its one link (ATP). Which packets
    collide is decided when the program is built, as if all jobs kept pace; a packet that went to the server still
    counts, as it does in the published formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program import I64, PER_CHUNK, PER_TASK, Cutting, Program, ProgramBuilder
from sim.program.packets import PacketTasks, packets_of
from sim.program.quantity_fields import Count
from sim.streaming.pool_streaming import PoolStreaming
from topologies import WeftError
from topologies.core.routing import hash64

RULES = ("static", "shared", "locked", "port-locked", "hashed")

MOST_WORKERS = 2**20


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Jobs alike on one switch.

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
    jobs: Count = Count()
    slots: Count = Count()
    rule: str
    seed: Count = Count(0, least=0, most=2**64 - 1)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise WeftError(f"slot rule {self.rule!r} is unknown: choose one of {', '.join(RULES)}")
        if self.jobs * self.job.workers > MOST_WORKERS:
            raise WeftError(f"{self.jobs} jobs of {self.job.workers} workers: at most {MOST_WORKERS} workers together")
        if self.rule == "static" and self.slots < self.jobs:
            raise WeftError(f"{self.jobs} jobs on {self.slots} slots: a static share needs a slot for each")

    @property
    def window(self) -> int:
        """Packets that a worker may have on the way: the job's window, or its share of the slots if that is less."""
        return min(self.job.slots, self.slots // self.jobs if self.rule == "static" else self.slots)


def sharing_program(sharing: Sharing) -> tuple[Program, list[list[int]]]:
    """The program, and the tasks whose end is the end of each job."""
    if sharing.rule == "hashed":
        return _hashed_program(sharing)
    builder = ProgramBuilder(forwarding="store-and-forward")
    pool = None
    if sharing.rule in ("shared", "locked"):
        pool = builder.pool(sharing.slots if sharing.rule == "shared" else 1)
    ends = [[_job(builder, sharing, pool)] for _ in range(sharing.jobs)]
    return builder.build(), ends


class Collisions(NamedTuple):
    """For each packet of a job, whether its slot is that of another on the way: of another job, or of its own."""

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
    """The last packet, `upto` at most, whose slot is the wanted one; far back where there is none."""
    n = slots.size
    keys = np.sort(slots * n + np.arange(n))
    place = np.searchsorted(keys, wanted * n + upto, side="right") - 1
    found, packet = np.divmod(keys[np.maximum(place, 0)], n)
    return np.where((place >= 0) & (found == wanted), packet, -(2**62))


def _job(builder: ProgramBuilder, sharing: Sharing, pool: int | None) -> int:
    """Add a job; returns the task that ends with it."""
    job = sharing.job
    if job.n_packets == 0:
        return builder.task(0)
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    rate = Fraction(job.bandwidth_Bps)
    granted = builder.task(job.size_bytes, (), cutting)
    up = [
        builder.task(job.size_bytes, [(builder.server(rate), job.to_switch_ps)], cutting, stream=[granted])
        for _ in range(job.workers)
    ]
    summed = builder.task(job.size_bytes, (), cutting, stream=up)
    down = [
        builder.task(job.size_bytes, [(builder.server(rate), job.latency_ps)], cutting, stream=[summed])
        for _ in range(job.workers)
    ]
    received = builder.task(job.size_bytes, (), cutting, stream=down)
    builder.window(granted, received, sharing.window)
    if pool is not None:
        per = PER_CHUNK if sharing.rule == "shared" else PER_TASK
        builder.ask(granted, pool, 1, per)
        builder.give(received, pool, 1, per)
    return received


def _hashed_program(sharing: Sharing) -> tuple[Program, list[list[int]]]:
    """Every packet is a task, as each goes its own way."""
    job = sharing.job
    tasks = PacketTasks(job.size_bytes, job.payload_bytes, job.header_bytes)
    ends = [_hashed_job(tasks, sharing, number) for number in range(sharing.jobs)]
    program, number_of = tasks.build()
    return program, [number_of[end].tolist() for end in ends]


def _hashed_job(tasks: PacketTasks, sharing: Sharing, number: int) -> I64:
    """Add a job with its server; a packet takes one place on the server's link if it is a sum, else one a worker."""
    job = sharing.job
    rate = Fraction(job.bandwidth_Bps)
    up, down = (tasks.links([rate] * job.workers) for _ in range(2))
    into, out_of = tasks.links([rate] * 2)
    packet, worker = packets_of(job.n_packets, job.workers)
    collides = np.logical_or(*collisions(sharing, number))
    sent = tasks.send(packet, up[worker], job.to_switch_ps, tie=worker)
    summed = tasks.join(np.flatnonzero(~collides))
    alone, alike = np.flatnonzero(collides[packet]), np.flatnonzero(~collides[packet])
    tasks.order(sent[alike], summed[np.cumsum(~collides)[packet[alike]] - 1])
    sums = tasks.send(np.flatnonzero(~collides), into, job.latency_ps, after=[summed])
    singles = tasks.send(packet[alone], into, job.latency_ps, after=[sent[alone]], tie=worker[alone])
    added = tasks.join(np.arange(job.n_packets))
    tasks.order(sums, added[~collides])
    tasks.order(singles, added[packet[alone]])
    back = tasks.send(np.arange(job.n_packets), out_of, job.to_switch_ps, after=[added])
    received = tasks.send(packet, down[worker], job.latency_ps, after=[back[packet]], tie=worker)
    tasks.order(received[packet + sharing.window < job.n_packets], sent[sharing.window * job.workers :])
    end = tasks.join(np.full(1, max(0, job.n_packets - 1)))
    tasks.order(received, np.repeat(end, received.size))
    return end
