"""The alpha-beta estimate: steps in lockstep, each as long as its slowest transfer and its fullest link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sim.lower.lowered import Lowered
from sim.program import I32, I64, unique_rows
from sim.program.columns import BLOCK, blocks, crossings

PART = BLOCK // 8
"""Tasks whose hops are looked at together."""


class Estimate(NamedTuple):
    """The two sums of the estimate, in ps: latencies of the steps, and the times of their fullest links."""

    latency_ps: int
    load_ps: int


def estimate_ps(lowered: Lowered) -> int:
    """Time if every step began when the previous one had ended everywhere.

    A step takes the longest latency of its routes and the time that the bytes crossing its fullest link need there:
    sum over steps of alpha + n_s * congestion_s / bandwidth. Steps of one number in all ports run together.
    Queueing inside a step, pipelining between steps and chunking are what the simulation adds.
    """
    return sum(estimate_parts(lowered))


def estimate_parts(lowered: Lowered) -> Estimate:
    program = lowered.program
    if program.n_tasks == 0:
        return Estimate(0, 0)
    step = lowered.task_step
    latency = _route_sums(program.route_latency_ps, program.route_ptr)
    alpha = np.zeros(int(step.max()) + 1, np.int64)
    for some in blocks(step.size):
        np.maximum.at(alpha, step[some], latency[program.task_route[some]])
    return Estimate(int(alpha.sum()), int(np.ceil(_step_loads_ps(lowered, step).sum())))


def _step_loads_ps(lowered: Lowered, step: I32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Time of the fullest link in each step."""
    program = lowered.program
    fullest = np.zeros(int(step.max()) + 1)
    for tasks in _whole_steps(step):
        task, server = crossings(program, tasks)
        on_link = lowered.server_link[server] >= 0
        task, server = task[on_link], server[on_link]
        rate = lowered.topology.bandwidth_Bps[lowered.server_link[server]]
        key, row = unique_rows(step[task].astype(np.int64) * program.n_servers + server)
        load = np.bincount(row, weights=lowered.task_bytes[task] * 1e12 / rate, minlength=key.size)
        np.maximum.at(fullest, key // program.n_servers, load)
    return fullest


def _whole_steps(step: I32) -> Iterator[I64]:
    """All tasks, in parts of whole steps: one after the other, they take less memory."""
    if step.size <= PART:
        yield np.arange(step.size)
        return
    order = np.argsort(step, kind="stable")
    ends = np.cumsum(np.bincount(step))
    first = 0
    while first < step.size:
        end = int(ends[min(int(np.searchsorted(ends, first + PART)), ends.size - 1)])
        yield order[first:end]
        first = end


def _route_sums(values: I64, ptr: np.ndarray[tuple[int], np.dtype[np.int32]]) -> I64:
    total: I64 = np.concatenate(([0], np.cumsum(values)))
    sums: I64 = total[ptr[1:]] - total[ptr[:-1]]
    return sums
