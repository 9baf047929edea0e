"""What an engine returns: when each task ran and how busy each server was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program import I64, Program
from sim.program.contract import ATTEMPTS, CLOCK_END_PS
from topologies import WeftError
from topologies.text.brief import one_line
from topologies.units import format_time


@one_line
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


class CertificateError(WeftError):
    """A run broke a rule of the model: a bug in weft."""


@one_line
class Journal(NamedTuple):
    """Every service of a run with faults, in the order of start, task, chunk; J rows.

    Attributes
    ----------
    task, chunk : (J,) int64
    at : (J,) int64
        Place of the hop in `route_hop`.
    arrival_ps, start_ps, end_ps : (J,) int64
        Start and end are equal where a server that was down lost a chunk that had arrived.
    ready_ps : (J,) int64
        When the chunk is ready for the next hop or delivered; where it was lost, when it arrives again at its first.
    lost : (J,) bool
    moved : (J,) bool
        Not served: it left the queue of its first server, at its start and end, for a route that begins elsewhere.
    """

    task: I64
    chunk: I64
    at: I64
    arrival_ps: I64
    start_ps: I64
    end_ps: I64
    ready_ps: I64
    lost: npt.NDArray[np.bool_]
    moved: npt.NDArray[np.bool_]

    @classmethod
    def of_rows(cls, rows: I64) -> Journal:
        """From rows of (task, chunk, at, arrival, start, end, ready): ready complemented if lost, arrival if moved."""
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 4]))]
        task, chunk, at, arrival, start, end, ready = rows.T
        lost, moved = ready < 0, arrival < 0
        arrival, ready = np.where(moved, ~arrival, arrival), np.where(lost, ~ready, ready)
        return cls(task, chunk, at, arrival, start, end, ready, lost, moved)


@one_line
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
        Those that were lost are counted.
    log : Log or None
        Every service, where it was asked for, of a healthy program.
    journal : Journal or None
        The same of a program with faults.
    """

    start_ps: I64
    finish_ps: I64
    busy_ps: I64
    makespan_ps: int
    events: int
    log: Log | None = None
    journal: Journal | None = None


WAITS_TOLD = 3


class Stranded(NamedTuple):
    """A chunk that cannot go on: lost as often as it may be, or in front of a server that is down for good.

    Attributes
    ----------
    task, chunk, server : int
    attempts : int
        How often it was lost; ATTEMPTS where it was given up.
    """

    task: int
    chunk: int
    server: int
    attempts: int


class Stopped(WeftError):
    """A run that reached its limit or was interrupted, and how far it got."""


class Deadlock(WeftError):
    """Nothing can move any more and tasks are left.

    Attributes
    ----------
    stranded : tuple of Stranded
        What faults hold up, and everything else with it.
    waits : tuple of (task, task)
        A few of the tasks that wait, and the unfinished ones that they wait for.
    unfinished : int
        Tasks that can never finish.
    """

    def __init__(
        self, message: str, stranded: Iterable[Stranded] = (), waits: Iterable[tuple[int, int]] = (),
        unfinished: int = 0,
    ) -> None:
        super().__init__(message)
        self.stranded, self.waits, self.unfinished = tuple(stranded), tuple(waits), unfinished


def past_the_clock() -> WeftError:
    """What an engine raises where the next event lies beyond the end of the clock."""
    return WeftError(f"the run goes on beyond the end of the clock, which is at {format_time(CLOCK_END_PS)}")


def log_base(program: Program) -> I64:
    """First row of each task in a `Log`, (T+1,)."""
    base = np.zeros(program.n_tasks + 1, np.int64)
    np.cumsum(program.chunks() * program.hops(), out=base[1:])
    return base


def check_finished(program: Program, delivered: I64, stranded: Iterable[Stranded] = ()) -> None:
    """Raise `Deadlock`, naming what waits for what, unless every chunk was delivered.

    Parameters
    ----------
    program : Program
    delivered : (T,) int64
        Chunks delivered of each task.
    stranded : iterable of Stranded
    """
    stuck = np.flatnonzero(delivered < program.chunks())
    if stuck.size == 0:
        return
    held = sorted(stranded)
    tasks = stuck.tolist()
    if held:
        tasks = list(dict.fromkeys([*(one.task for one in held), *tasks]))
    by_task = {one.task: one for one in reversed(held)}
    reasons = "; ".join(
        _held_up(by_task[task]) if task in by_task else _reason(program, delivered, task) for task in tasks[:3]
    )
    more = f" (and {stuck.size - 3} more)" if stuck.size > 3 else ""
    waiting = [task for task in stuck.tolist() if task not in by_task][:WAITS_TOLD]
    waits = [(task, parent) for task in waiting for parent in _waiting_for(program, delivered, task)[:1]]
    message = f"{stuck.size} of {program.n_tasks} tasks can never finish: {reasons}{more}"
    raise Deadlock(message, held, waits, stuck.size)


def _held_up(one: Stranded) -> str:
    if one.attempts >= ATTEMPTS:
        return f"chunk {one.chunk} of task {one.task} was lost {one.attempts} times, at last by server {one.server}"
    return f"task {one.task} waits for server {one.server}, which is down for good"


def _waiting_for(program: Program, delivered: I64, task: int) -> list[int]:
    """Unfinished tasks that a task waits for."""
    chunks = program.chunks()
    whole, child = program.whole_edges()
    stream, stream_child, _ = program.stream_edges()
    parents = (*whole[child == task], *stream[stream_child == task])
    return [int(parent) for parent in parents if parent != task and delivered[parent] < chunks[parent]]


def _reason(program: Program, delivered: I64, task: int) -> str:
    waiting = _waiting_for(program, delivered, task)
    if waiting:
        return f"task {task} waits for task {', '.join(map(str, waiting[:3]))}"
    if program.task_pool.size and program.task_pool[task] >= 0:
        return f"task {task} waits for {program.task_units[task]} units of pool {program.task_pool[task]}"
    return f"task {task} waits for its own window"
