"""What holds for each row of a journal, by the contract: rate, latency, outage, draws, and the route in force.

And, with a log too, what buffers hold over time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.certify.times import sizes
from sim.program.contract import DOWN, DROPS, I32, I64, LOSES, NEVER_PS, Program
from sim.program.outcome import Journal
from topologies.core.routing import hash64

Rows = npt.NDArray[np.bool_]
LOSS, JITTER = 0, 1


class Conditions(NamedTuple):
    """As each row starts; J rows."""

    server: I64
    size: I64  # (J,): chunk size
    rate: I64  # (J,): rate, or DOWN
    down_ps: I64  # (J,): when the server next goes down; NEVER_PS where it does not
    crossing: I64  # (J,): WAITS, LOSES or COMPLETES
    drops: Rows  # (J,): a server that is down loses what waits for it
    wakes: Rows  # (J,): it is up again just then
    falls: Rows  # (J,): it goes down just then
    end_ps: I64  # (J,): of a service that begins then, unless it is cut off
    latency_ps: I64  # (J,): after the hop, with what the timetable and the draw add
    drawn: Rows  # (J,): whether the draw loses a service that is not cut off

    @property
    def cut(self) -> Rows:
        """Whether a service that begins then is cut off as its server goes down."""
        return np.asarray((self.crossing == LOSES) & (self.down_ps < self.end_ps), np.bool_)

    @classmethod
    def of(cls, program: Program, journal: Journal, attempt: I64) -> "Conditions":
        """By the rows of a journal and how often the chunk of each had been lost before it."""
        hop = program.route_hop[journal.at]
        server, size = program.hop_server[hop].astype(np.int64), sizes(program, journal.task, journal.chunk)
        rate, latency, down, wakes, falls = _timetable(program, server, journal.start_ps)
        flag = program.server_crossing[server].astype(np.int64) if program.server_crossing.size else np.zeros_like(rate)
        of_service, of_latency = _jitter(program, journal, server, attempt)
        drawn = np.zeros(server.size, np.bool_)
        if program.server_loss.size:
            drawn = _draw(program, LOSS, journal, attempt) < program.server_loss[server].astype(np.uint64)
        return cls(
            server, size, rate, down, flag % DROPS, flag >= DROPS, wakes, falls,
            journal.start_ps + program.service(size, np.maximum(rate, 0)) + of_service,
            program.hop_latency_ps[hop] + latency + of_latency, drawn,
        )


def _row_at(ptr: I32, from_ps: I64, owner: I64, time: I64) -> I64:
    """Row in force of each owner's part of a table at each time; -1 before its first."""
    times = np.unique(from_ps)
    key = np.repeat(np.arange(ptr.size - 1), np.diff(ptr)) * (times.size + 1) + np.searchsorted(times, from_ps)
    asked = owner * (times.size + 1) + np.searchsorted(times, time, side="right") - 1
    row = np.searchsorted(key, asked, side="right") - 1
    return np.where(row >= ptr[owner], row, -1)


def _timetable(program: Program, server: I64, time: I64) -> tuple[I64, I64, I64, Rows, Rows]:
    """Rate and added latency in force, when the server next goes down, and whether it is up again or down just then."""
    rate = program.server_rate[server].astype(np.int64)
    if not program.timetable_from_ps.size:
        never = np.zeros(rate.size, np.bool_)
        return rate, np.zeros_like(rate), np.full_like(rate, NEVER_PS), never, never
    ptr = program.timetable_ptr.astype(np.int64)
    row = _row_at(program.timetable_ptr, program.timetable_from_ps, server, time)
    none, count = row < 0, program.timetable_rate.size
    down = np.append(np.where(program.timetable_rate == DOWN, np.arange(count), count), count)
    down = np.minimum.accumulate(down[::-1])[::-1][np.where(none, ptr[server], row + 1)]
    down_ps = np.where(down < ptr[server + 1], np.append(program.timetable_from_ps, NEVER_PS)[down], NEVER_PS)
    woken = program.timetable_rate[np.maximum(row - 1, 0)] == DOWN
    changes = ~none & (program.timetable_from_ps[row] == time)
    wakes, falls = (row > ptr[server]) & changes & woken, changes & (program.timetable_rate[row] == DOWN)
    rate = np.where(none, rate, program.timetable_rate[row])
    return rate, np.where(none, 0, program.timetable_latency_ps[row]), down_ps, wakes, falls


def _draw(program: Program, what: int, journal: Journal, attempt: I64) -> npt.NDArray[np.uint64]:
    hop = journal.at - program.route_ptr[program.task_route[journal.task]]
    return hash64(program.seed, what, journal.task, journal.chunk, hop, attempt) >> np.uint64(1)


def _jitter(program: Program, journal: Journal, server: I64, attempt: I64) -> tuple[I64, I64]:
    """What is drawn for the service and for the latency of each row."""
    none = np.zeros(server.size, np.int64)
    if not program.server_jitter.size:
        return none, none
    row = program.server_jitter[server]
    column = (_draw(program, JITTER, journal, attempt) % np.uint64(program.jitter_ps.shape[1])).astype(np.int64)
    drawn = np.where(row < 0, 0, program.jitter_ps[row, column])
    of_service = program.jitter_of_service[row] != 0
    return np.where(of_service, drawn, 0), np.where(of_service, 0, drawn)


def detour_at(program: Program, task: I64, time: I64) -> I64:
    """Row of the detours in force for each task at a time; -1 where it is its own route."""
    if not program.detour_from_ps.size:
        return np.full(task.size, -1, np.int64)
    return _row_at(program.detour_ptr, program.detour_from_ps, task, time)


def route_at(program: Program, task: I64, time: I64) -> I64:
    """Where the route begins in `route_hop` that chunks of each task take at a time."""
    route, row = program.task_route[task].astype(np.int64), detour_at(program, task, time)
    if program.detour_route.size:
        route = np.where(row < 0, route, program.detour_route[row])
    return program.route_ptr[route].astype(np.int64)


class Rooms(NamedTuple):
    """Of each service."""

    over: npt.NDArray[np.bool_]  # there was no room for it behind its server
    given: npt.NDArray[np.bool_]  # room behind its server is known to be there just then


def rooms(program: Program, line: I64, work: I64, start: I64, gone: I64, by_server: bool = False) -> Rooms:
    """Whether services had room behind their servers.

    `line`: server and channel of each; `gone`: when its chunk was served by the next server, or in, or lost.
    `by_server`: room may be given in any buffer of the server.
    """
    rows, server = np.arange(line.size), line % program.n_servers
    room = server if program.buffer_shared else line
    back = gone + program.server_credit_ps[server]
    # At one time room is given back before it is taken.
    order = np.lexsort((np.repeat((1, 0), rows.size), np.append(start, back), np.append(room, room)))
    held = np.cumsum(np.append(work, -work)[order])
    first = np.searchsorted(np.append(room, room)[order], np.arange(program.server_buffer.size))
    at_start = np.flatnonzero(order < rows.size)
    over, taker = np.zeros(rows.size, np.bool_), order[at_start]
    over[taker] = held[at_start] - np.append(0, held)[first][room[taker]] > program.server_buffer[line[taker]]
    times, number = np.unique(np.append(back, start), return_inverse=True)
    of = server if by_server else room
    keys = np.append(of, of) * times.size + number.reshape(-1)
    given = np.isin(keys[rows.size :], keys[: rows.size]) & program.bounded[server]
    return Rooms(over, given)
