"""What an engine returns: when each task ran and how busy each server was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.program import I64, Program
from topologies import WeftError


class Log(NamedTuple):
    """Every service of a run, in the order task, chunk, hop.

    Attributes
    ----------
    base : (T+1,) int64
        Services of task t are rows `base[t]:base[t+1]`; row `base[t] + chunk * hops + hop`.
    start_ps : (n_services,) int64
        Start of each service; -1 if it never started.
    before : (n_services,) int64
        Row of the service that the same server did just before; -1 for its first.
    """

    base: I64
    start_ps: I64
    before: I64


class Outcome(NamedTuple):
    """Times of one run.

    Attributes
    ----------
    start_ps : (T,) int64
        Start of the first service of a task; of a task with an empty route, delivery of its first chunk.
    finish_ps : (T,) int64
        Delivery of the last chunk.
    busy_ps : (S,) int64
        Sum of the services of each server.
    makespan_ps : int
        Last delivery; 0 for a program without tasks.
    events : int
        Services done: chunks crossing servers.
    log : Log or None
        Every service, where it was asked for.
    """

    start_ps: I64
    finish_ps: I64
    busy_ps: I64
    makespan_ps: int
    events: int
    log: Log | None = None


class Deadlock(WeftError):
    """Nothing can move any more and tasks are left."""


def log_base(program: Program) -> I64:
    """First row of each task in a `Log`, (T+1,)."""
    base = np.zeros(program.n_tasks + 1, np.int64)
    np.cumsum(program.chunks() * program.hops(), out=base[1:])
    return base


def check_finished(program: Program, delivered: I64) -> None:
    """Raise `Deadlock`, saying who waits for whom, unless every chunk was delivered.

    Parameters
    ----------
    program : Program
    delivered : (T,) int64
        Chunks delivered of each task.
    """
    stuck = np.flatnonzero(delivered < program.chunks())
    if stuck.size == 0:
        return
    reasons = "; ".join(_reason(program, delivered, int(task)) for task in stuck[:3])
    more = f" (and {stuck.size - 3} more)" if stuck.size > 3 else ""
    raise Deadlock(f"{stuck.size} of {program.n_tasks} tasks can never finish: {reasons}{more}")


def _reason(program: Program, delivered: I64, task: int) -> str:
    chunks = program.chunks()
    whole, child = program.whole_edges()
    parents = whole[child == task]
    stream, child, _ = program.stream_edges()
    streams = stream[child == task]
    waiting = [int(p) for p in (*parents, *streams) if p != task and delivered[p] < chunks[p]]
    if waiting:
        return f"task {task} waits for task {', '.join(map(str, waiting[:3]))}"
    if program.task_pool.size and program.task_pool[task] >= 0:
        return f"task {task} waits for {program.task_units[task]} units of pool {program.task_pool[task]}"
    return f"task {task} waits for its own window"
