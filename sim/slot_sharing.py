"""Several jobs that share the slots of one aggregating switch: divided, first come, locked, or hashed.

Jobs have workers and links of their own and meet only at the switch. Under every rule a worker keeps a window of
packets; the rules differ in who may use a slot.

static
    Each job has its share of the slots for itself.
shared
    A packet of a job takes a slot before its workers send it and returns it when the sum is complete; requests
    queue, first come first served.
locked
    One job after the other has the whole switch, from its first packet to its last result (SHARP on Quantum).
hashed
    A packet's slot is a hash of (job, number). Where the slot is taken by another job's packet on the way, the
    workers' packets go to the job's parameter server instead, all through its one link (ATP). Which packets collide is
    decided when the program is built, as if all jobs kept pace and full windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sim.pool_streaming import PoolStreaming
from sim.program import PER_CHUNK, PER_TASK, Cutting, Program, ProgramBuilder
from topologies import WeftError
from topologies.routing import hash64

RULES = ("static", "shared", "locked", "hashed")


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
    rule : {"static", "shared", "locked", "hashed"}
    seed : int
        For "hashed".
    """

    job: PoolStreaming
    jobs: int
    slots: int
    rule: str
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise WeftError(f"slot rule {self.rule!r} is unknown: choose one of {', '.join(RULES)}")
        if self.jobs < 1 or self.slots < self.jobs:
            raise WeftError(f"{self.jobs} jobs on {self.slots} slots: at least one job and a slot for each")


def sharing_program(sharing: Sharing) -> tuple[Program, list[list[int]]]:
    """The program, and the tasks whose end is the end of each job."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    pool = None
    if sharing.rule in ("shared", "locked"):
        pool = builder.pool(sharing.slots if sharing.rule == "shared" else 1)
    ends = [_job(builder, sharing, number, pool) for number in range(sharing.jobs)]
    return builder.build(), ends


def fallback_share(sharing: Sharing, number: int = 0) -> float:
    """Share of a job's packets that find their slot taken."""
    return float(np.mean(_collides(sharing, number)))


def _collides(sharing: Sharing, number: int) -> np.ndarray:
    packets, window = sharing.job.n_packets, sharing.job.slots
    place = np.arange(-window, packets)
    slot = [hash64(sharing.seed, job, place) % np.uint64(sharing.slots) for job in range(sharing.jobs)]
    mine = slot[number][window:]
    taken = np.zeros(packets, np.bool_)
    for other in range(sharing.jobs):
        for back in range(window) if other != number else ():
            taken |= mine == slot[other][window - back : window - back + packets]
    return taken


def _job(builder: ProgramBuilder, sharing: Sharing, number: int, pool: int | None) -> list[int]:
    job = sharing.job
    rate = Fraction(job.bandwidth_Bps)
    uplinks = [builder.server(rate) for _ in range(job.workers)]
    downlinks = [builder.server(rate) for _ in range(job.workers)]
    if sharing.rule == "hashed":
        return _with_server(builder, sharing, number, uplinks, downlinks)
    window = max(1, sharing.slots // sharing.jobs) if sharing.rule == "static" else job.slots
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    grant = builder.task(job.size_bytes, (), cutting)
    to_switch = job.latency_ps + job.switch_latency_ps
    up = [builder.task(job.size_bytes, [(link, to_switch)], cutting, stream=[grant]) for link in uplinks]
    summed = builder.task(job.size_bytes, (), cutting, stream=up)
    down = [builder.task(job.size_bytes, [(link, job.latency_ps)], cutting, stream=[summed]) for link in downlinks]
    for sent, received in zip(up, down, strict=True):
        builder.window(sent, received, window)
    if sharing.rule == "shared" and pool is not None:
        builder.window(grant, summed, window)  # a job asks for no more than it could use
        builder.ask(grant, pool, 1, PER_CHUNK)
        builder.give(summed, pool, 1, PER_CHUNK)
    elif sharing.rule == "locked" and pool is not None:
        end = builder.task(0, (), after=down)
        builder.ask(grant, pool, 1, PER_TASK)
        builder.give(end, pool, 1, PER_TASK)
    return down


def _with_server(
    builder: ProgramBuilder, sharing: Sharing, number: int, uplinks: list[int], downlinks: list[int]
) -> list[int]:
    """Aggregated packets take one place on the server's link, others one of each worker."""
    job = sharing.job
    into, out_of = builder.server(Fraction(job.bandwidth_Bps)), builder.server(Fraction(job.bandwidth_Bps))
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    to_switch = job.latency_ps + job.switch_latency_ps
    missed = int(np.count_nonzero(_collides(sharing, number))) * job.payload_bytes
    ends = []
    for aggregated, size in ((True, max(0, job.size_bytes - missed)), (False, min(missed, job.size_bytes))):
        if size == 0:
            continue
        if aggregated:
            up = [builder.task(size, [(link, to_switch)], cutting) for link in uplinks]
            summed = [builder.task(size, [(into, job.latency_ps)], cutting, stream=up)]
        else:
            up = [builder.task(size, [(link, to_switch), (into, job.latency_ps)], cutting) for link in uplinks]
            summed = up
        back = builder.task(size, [(out_of, to_switch)], cutting, stream=summed)
        down = [builder.task(size, [(link, job.latency_ps)], cutting, stream=[back]) for link in downlinks]
        for sent, received in zip(up, down, strict=True):
            builder.window(sent, received, job.slots)
        ends += down
    return ends
