"""Whom each server serves next, of the chunks that wait: the least by rank, arrival and tie, as the contract has it.

Looked at is each queue: of a server, of a channel of one, or of those that take turns. Which queue a server takes next
is not. Nor is a chunk whose arrival leaves no trace in a log: one that asks a pool, or waits for a chunk in the middle
of a task without servers.
"""

from typing import NamedTuple

import numpy as np

from sim.program.contract import I32, I64, ROUND_ROBIN_FLOW, WEIGHTS, Program


class Overtaken(NamedTuple):
    """A service, and one that should have been before it."""

    early: int
    late: int


def overtaken(
    program: Program, task: I64, chunk: I64, hop: I64, at: I32 | I64, start: I64, arrival: I64, served: I64
) -> Overtaken | None:
    """A service that began while another was due in its queue.

    `at`: place of each in `route_server`; `arrival`: when it came; `served`: the services to look at, all of which have
    an arrival that is known, in the order of server and start.
    """
    task, chunk, hop, at = task[served], chunk[served], hop[served], at[served]
    start, arrival, server = start[served], arrival[served], program.route_server[at]
    queue = _queue(program, at, server, task, hop)
    order: tuple[I32 | I64, ...] = (
        queue, _rank(program, server, task, chunk), arrival, program.task_class[task], chunk,
    )
    if not program.detour_ptr.size:  # which change the hop of chunks that wait, and so their places among equals
        order += hop, task
    if program.takes_turns or program.has_channels:  # elsewhere a server has one queue
        by_queue = np.argsort(queue, kind="stable")
        served, start, queue, arrival = (column[by_queue] for column in (served, start, queue, arrival))
        order = tuple(column[by_queue] for column in order)
    if _rise(order):
        return None  # so it is in nearly every queue of fifo
    due = np.lexsort(order[::-1])
    number = np.empty_like(due)
    number[due] = np.append(0, np.cumsum(np.any([np.diff(column[due]) != 0 for column in order], axis=0)))[: due.size]
    return _passed_over(queue, start, arrival, number, served)


def _rise(columns: tuple[I32 | I64, ...]) -> bool:
    """Whether rows are in the order of columns, the first before the second, and so on."""
    tied = np.ones(max(columns[0].size - 1, 0), np.bool_)
    for value in columns:
        if np.any(tied & (value[1:] < value[:-1])):
            return False
        tied &= value[1:] == value[:-1]
    return True


def _rank(program: Program, server: I32, task: I64, chunk: I64) -> I64:
    """What a discipline looks at before the arrival."""
    of_priority, of_work, of_chunk = WEIGHTS[program.server_discipline[server]].T
    priority = program.task_priority[task] if program.task_priority.size else 0
    return np.asarray(of_priority * priority + of_work * program.cut_work[program.task_cut[task]] + of_chunk * chunk)


def _queue(program: Program, at: I32 | I64, server: I32, task: I64, hop: I64) -> I64:
    """The queue in which each waits."""
    if not program.takes_turns:
        return np.asarray(program.route_line[at], np.int64)
    turns = program.server_discipline[server] >= ROUND_ROBIN_FLOW
    own = program.hop_queue[np.where(turns, _queue_of(program, task, at, hop), 0)]
    return np.where(turns, own + program.n_servers * program.channels, program.route_line[at])


def _queue_of(program: Program, task: I64, at: I32 | I64, hop: I64) -> I64:
    """Place in `hop_queue` of each: that of a hop of its task's own route, or of one of its detours."""
    place = program.task_queue[task] + hop
    away = np.flatnonzero((hop < 0) | (hop >= program.hops()[task]))
    if away.size:
        n_routes = program.route_ptr.size
        owner, route = (column[program.n_tasks :] for column in program.every_route())
        known, row = np.unique(owner * n_routes + route, return_index=True)
        taken = np.searchsorted(program.route_ptr, at[away], side="right") - 1
        detour = row[np.searchsorted(known, task[away] * n_routes + taken)]
        place[away] = program.detour_queue[detour] + at[away] - program.route_ptr[taken]
    return np.asarray(place, np.int64)


def _passed_over(queue: I64, start: I64, arrival: I64, number: I64, row: I64) -> Overtaken | None:
    """The same of services in the order of queue and start, `number` in the order in which all were due."""
    times, rank = np.unique(np.concatenate([start, arrival]), return_inverse=True)
    began, came = queue * times.size + rank.reshape(2, -1)
    place = np.arange(queue.size)
    first = np.searchsorted(began, came)
    highest = _highest(number, first, place)
    late = np.flatnonzero(highest > number)
    if late.size == 0:
        return None
    early = int(first[late[0]] + np.argmax(number[first[late[0]] : late[0]]))
    return Overtaken(int(row[early]), int(row[late[0]]))


def _highest(value: I64, first: I64, end: I64) -> I64:
    """The highest value of each stretch from `first` up to `end`, or -1: of two, each a power of two long."""
    found, width, reach = np.full(value.size, -1, np.int64), 1, value.copy()
    length = end - first
    while width <= length.max(initial=0):
        here = np.flatnonzero((length >= width) & (length < 2 * width))
        found[here] = np.maximum(reach[first[here]], reach[end[here] - width])
        reach[:-width] = np.maximum(reach[:-width], reach[width:])
        width *= 2
    return found
