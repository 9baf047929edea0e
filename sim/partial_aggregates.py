"""Partial aggregates after a timeout: what a leaf switch does about a late worker (Canary).

Workers hang on leaves, leaves on a root. A static leaf keeps a slot for each packet until all of its workers have
sent it. A leaf with a timeout sends on what it has, with a count, and frees the slot; the late packets go up by
themselves, and the root adds partial sums until the count is full. Nobody's result is earlier, but the slots are free.

Which packets miss the timeout is decided when the program is built: all of the late worker's, if it is later than the
timeout, and none otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sim.engine import run
from sim.outcome import Log
from sim.pool_streaming import TIMER_RATE, PoolStreaming
from sim.program import Cutting, Program, ProgramBuilder
from topologies import WeftError


@dataclass(frozen=True, kw_only=True)
class LateWorker:
    """Worker 0 of a job begins late; its leaf is leaf 0.

    Attributes
    ----------
    job : PoolStreaming
        Its slots are the window of each worker; workers are divided evenly among the leaves.
    leaves : int
    late_ps : int
    timeout_ps : int or None
        From the arrival of a packet at the leaf; None keeps the slot until all are there.
    """

    job: PoolStreaming
    leaves: int = 2
    late_ps: int = 0
    timeout_ps: int | None = None

    def __post_init__(self) -> None:
        if self.leaves < 1 or self.job.workers % self.leaves or self.job.workers // self.leaves < 2:
            raise WeftError(f"{self.job.workers} workers on {self.leaves} leaves: give each leaf as many, at least two")
        if self.late_ps < 0 or (self.timeout_ps is not None and self.timeout_ps < 1):
            raise WeftError(f"a worker late by {self.late_ps} ps, a timeout of {self.timeout_ps} ps: at least 0 and 1")

    @property
    def sends_partial_sums(self) -> bool:
        """Whether the timeout ends before the late worker begins."""
        return self.timeout_ps is not None and self.timeout_ps < self.late_ps


class Held(NamedTuple):
    """What a run shows: its time; how long a slot of leaf 0 is held at most and on average; packets up from leaf 0."""

    makespan_ps: int
    longest_ps: int
    mean_ps: float
    packets_up: int


def late_worker_run(case: LateWorker) -> Held:
    """Run the case and look at the slots of the late worker's leaf."""
    program, on_time, upward = _build(case)
    outcome = run(program, log=True)
    assert outcome.log is not None
    wire = case.job.wire_ps + case.job.latency_ps + case.job.switch_latency_ps
    arrived = np.min([_starts(outcome.log, program, task) for task in on_time], axis=0) + wire
    held = _starts(outcome.log, program, upward[0])[:, -1:].ravel() - arrived.ravel()
    packets = sum(int(program.chunks()[task]) for task in upward)
    return Held(outcome.makespan_ps, int(held.max()), float(held.mean()), packets)


def _starts(log: Log, program: Program, task: int) -> np.ndarray:
    """Start of each service of a task, (chunks, hops)."""
    rows = log.start_ps[log.base[task] : log.base[task + 1]]
    return rows.reshape(int(program.chunks()[task]), -1)


def _build(case: LateWorker) -> tuple[Program, list[int], list[int]]:
    """The program, uploads of leaf 0's punctual workers, and the transfers from leaf 0 to the root."""
    job, builder = case.job, ProgramBuilder(forwarding="store-and-forward")
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    rate, to_switch = Fraction(job.bandwidth_Bps), job.latency_ps + job.switch_latency_ps
    late = [builder.task(case.late_ps, [(builder.server(TIMER_RATE), 0)])] if case.late_ps else []
    sent = [
        builder.task(job.size_bytes, [(builder.server(rate), to_switch)], cutting, after=() if worker else late)
        for worker in range(job.workers)
    ]
    per_leaf = job.workers // case.leaves
    upward: list[list[int]] = []
    for leaf in range(case.leaves):
        mine, uplink = sent[leaf * per_leaf : (leaf + 1) * per_leaf], builder.server(rate)
        if leaf == 0 and case.sends_partial_sums:
            wait = (builder.server(TIMER_RATE * 10**6), case.timeout_ps or 0)  # any number of timers run at once
            partial = builder.task(job.size_bytes, [wait, (uplink, to_switch)], cutting, stream=mine[1:])
            upward.append([partial, builder.task(job.size_bytes, [(uplink, to_switch)], cutting, stream=mine[:1])])
        else:
            upward.append([builder.task(job.size_bytes, [(uplink, to_switch)], cutting, stream=mine)])
    at_root = [task for tasks in upward for task in tasks]
    received = []
    for _ in range(case.leaves):
        link = builder.server(rate)
        down = builder.task(job.size_bytes, [(link, to_switch)], cutting, stream=at_root)
        received += [
            builder.task(job.size_bytes, [(builder.server(rate), job.latency_ps)], cutting, stream=[down])
            for _ in range(per_leaf)
        ]
    for up, down in zip(sent, received, strict=True):
        builder.window(up, down, job.slots)
    return builder.build(), sent[1:per_leaf], upward[0]
