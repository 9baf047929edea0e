"""What an engine returns: when each task ran and how busy each server was."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.contract import ATTEMPTS, CLOCK_END_PS, I64, Program
from topologies import WeftError
from topologies.text.brief import one_line
from topologies.units import format_time


@one_line
class Log(NamedTuple):
    """Every service of a run, in the order task, chunk, hop."""

    base: I64  # (T+1,): services of task t are rows `base[t]:base[t+1]`; row `base[t] + chunk * hops + hop`
    start_ps: I64  # (n_services,): start of each service; -1 if it never started
    before: I64  # (n_services,): row of the service that the same server did just before; -1 for its first


class CertificateError(WeftError):
    """A run broke a rule of the model: a bug in weft."""


@one_line
class Journal(NamedTuple):
    """Every service of a run with faults, in the order of start, task, chunk; J rows."""

    task: I64  # (J,)
    chunk: I64  # (J,)
    at: I64  # (J,): place of the hop in `route_hop`
    arrival_ps: I64  # (J,)
    start_ps: I64  # (J,)
    end_ps: I64  # (J,): equal to the start where a server that was down lost a chunk that had arrived
    # (J,): when the chunk is ready for the next hop or delivered; where it was lost, when it arrives again at its first
    ready_ps: I64
    lost: npt.NDArray[np.bool_]  # (J,)
    # (J,): not served: it left the queue of its first server, at its start and end, for a route that begins elsewhere
    moved: npt.NDArray[np.bool_]

    @classmethod
    def of_rows(cls, rows: I64) -> "Journal":
        """From rows of (task, chunk, at, arrival, start, end, ready): ready complemented if lost, arrival if moved."""
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 4]))]
        task, chunk, at, arrival, start, end, ready = rows.T
        lost, moved = ready < 0, arrival < 0
        arrival, ready = np.where(moved, ~arrival, arrival), np.where(lost, ~ready, ready)
        return cls(task, chunk, at, arrival, start, end, ready, lost, moved)

    def lapses(self, program: Program) -> "Journal":
        """Of these what was lost or sent another way, and first services of routes from the first that is a detour."""
        begins = (self.at >= noted_from(program)) & (program.hop_last[program.route_hop[self.at - 1]] != 0)
        return Journal._make(column[self.lost | self.moved | begins] for column in self)


def noted_from(program: Program) -> int:
    """The first place in the routes at which a route begins that is no task's own."""
    return int(program.route_ptr[program.other_routes()].min(initial=program.route_hop.size))


@one_line
class Rates(NamedTuple):
    """Every change of a rate of a fluid run, in the order of time; 0 for a flow that stops, no row for its end."""

    time_ps: I64
    task: I64
    rate: I64  # units of `sim.program.flows.Flows`
    way: I64  # which of these a flow takes


@one_line
class Outcome(NamedTuple):
    """Times of one run."""

    # start_ps, finish_ps: (T,), or (0,) of a run without times: start of the first service of a task, delivery of its
    # last chunk; of a task with an empty route, delivery of its first chunk and of its last
    start_ps: I64
    finish_ps: I64
    busy_ps: I64  # (S,): sum of the services of each server
    makespan_ps: int  # last delivery; 0 for a program without tasks
    events: int  # services done: chunks crossing servers, or flows. Those that were lost are counted.
    log: Log | None = None  # every service, where it was asked for, of a healthy program
    journal: Journal | None = None  # the same of a program with faults
    lapses: Journal | None = None  # of a program with faults, whatever was asked for
    rates: Rates | None = None  # every change of a rate, where a log of a fluid run was asked for


SERVICES = "services"
"""What runs count."""


class Progress(NamedTuple):
    """What a long run reports: services done and in all, picoseconds simulated, services a second; or flows."""

    events: int
    total_events: int
    now_ps: int
    events_per_s: float
    unit: str = SERVICES

    @property
    def seconds_left(self) -> float:
        """At this rate; 0 when more services are done than a healthy run has."""
        return max(self.total_events - self.events, 0) / max(self.events_per_s, 1e-9)


WAITS_TOLD = 3


class Stranded(NamedTuple):
    """A chunk that cannot go on: lost as often as it may be, or in front of a server that is down for good."""

    task: int
    chunk: int
    server: int
    attempts: int  # how often it was lost; ATTEMPTS where it was given up


class Stopped(WeftError):
    """A run that reached its limit or was interrupted, and how far it got."""


class Outrun(WeftError):
    """A run whose clock went past the limit that it was given.

    Attributes
    ----------
    limit_ps : int
        It takes longer than this.
    """

    def __init__(self, limit_ps: int) -> None:
        super().__init__(f"not ended at the limit of {format_time(limit_ps)} of simulated time")
        self.limit_ps = limit_ps


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
    circle : tuple of int
        Servers each of which waits for room behind it, held by chunks that wait at the next one.
    """

    def __init__(
        self, message: str, stranded: Iterable[Stranded] = (), waits: Iterable[tuple[int, int]] = (),
        unfinished: int = 0, circle: Iterable[int] = (),
    ) -> None:
        super().__init__(message)
        self.stranded, self.waits, self.unfinished = tuple(stranded), tuple(waits), unfinished
        self.circle = tuple(circle)


def past_the_clock() -> WeftError:
    """What an engine raises where the next event lies beyond the end of the clock."""
    return WeftError(f"the run goes on beyond the end of the clock, which is at {format_time(CLOCK_END_PS)}")


def log_base(program: Program) -> I64:
    """First row of each task in a `Log`, (T+1,)."""
    base = np.zeros(program.n_tasks + 1, np.int64)
    np.cumsum(program.chunks() * program.hops(), out=base[1:])
    return base


def check_finished(
    program: Program, delivered: I64, stranded: Iterable[Stranded] = (), holding: Iterable[tuple[int, int]] = ()
) -> None:
    """Raise `Deadlock`, naming what waits for what, unless every chunk was delivered.

    `delivered` (T,): chunks delivered of each task.
    `holding`: buffers that chunks need, and the one that each of these holds; s + c S is that of server s, channel c.
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
    circle = [room % program.n_servers for room in _circle(holding)]
    if circle:
        reasons, more = f"no server of a circle has room behind it: {' > '.join(map(str, (*circle, circle[0])))}", ""
    message = f"{stuck.size} of {program.n_tasks} tasks can never finish: {reasons}{more}"
    raise Deadlock(message, held, waits, stuck.size, circle)


def _circle(holding: Iterable[tuple[int, int]]) -> list[int]:
    """Buffers, from the least, each of which waits for room that chunks at the next one hold; none without buffers."""
    at: dict[int, int] = {}
    for waits, holds in sorted(holding, reverse=True):
        at[holds] = waits
    server, seen = min(at, default=-1), []
    while server in at and server not in seen:
        seen.append(server)
        server = at[server]
    found = seen[seen.index(server) :] if server in seen else []
    first = found.index(min(found)) if found else 0
    return found[first:] + found[:first]


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
        return f"task {task} waits for {', '.join(f'task {one}' for one in waiting[:3])}"
    if program.task_pool.size and program.task_pool[task] >= 0:
        return f"task {task} waits for {program.task_units[task]} units of pool {program.task_pool[task]}"
    return f"task {task} waits for its own window"
