"""What changes in time: timetables, loss and jitter, detours, deadlines, and the journal of all services.

A server on which something may go wrong chooses when it is free, as in policies/choose.py, so that what holds then is
known; the others are committed on arrival as ever. A chunk that was lost is an event at the first server of its route;
its place says how often it was lost, and whether it has been served at all (FRESH).
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.nodes import let_next, new_node, next_node, word_of
from sim.engine.core.service import service_ps
from sim.engine.core.state import (
    ARRIVED_PS,
    ATTEMPT_SHIFT,
    BACKLOG_FREE,
    BIAS,
    BLOCKS,
    CHUNK_BITS,
    DELIVERED,
    FREE_NODES,
    FREE_PS,
    FRESH,
    GIVEN_UP,
    HOP_BITS,
    JOURNAL_COLUMNS,
    JOURNALED,
    KEY,
    LATE,
    MISSING,
    MOST,
    NOW,
    RELEASED,
    RINGS,
    SERVER_WORDS,
    TASK_BITS,
    TIMER,
)
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import _let, _of, _stack
from sim.engine.policies.draw import draw
from sim.program.contract import ATTEMPTS, DOWN, DROPS, LOSES, NEVER_PS, WAITS

OF_LOSS, OF_JITTER = 0, 1
SPARE_NODES = 4
"""Nodes that must be free before a service: for a chunk that waits or is given up, and two returns of room."""


@helper
def task_of(state, key):
    return key & ((np.int64(1) << state.register[TASK_BITS]) - 1)


@helper
def chunk_of(state, key):
    shift = state.register[TASK_BITS] + state.register[HOP_BITS]
    return (key >> shift) & ((np.int64(1) << state.register[CHUNK_BITS]) - 1)


@helper
def begins_at(program, at):
    """Whether a hop is the first of a route: the one before it in the routes is a last one."""
    return at == 0 or program.hop_last[u64(program.route_hop[u64(at - 1)])] != 0


@helper
def first_hop_at(program, task, time):
    """Where the route begins that a task's chunks take from this time on."""
    route = np.int64(program.task_route[u64(task)])
    if program.detour_ptr.size:
        for row in range(program.detour_ptr[u64(task)], program.detour_ptr[u64(task + 1)]):
            if program.detour_from_ps[u64(row)] <= time:
                route = np.int64(program.detour_route[u64(row)])
    return np.int64(program.route_ptr[u64(route)])


@helper
def _hop(program, task, at):
    """A hop as it is compared and drawn: counted from where the task's own route begins."""
    return at - np.int64(program.route_ptr[u64(program.task_route[u64(task)])])


@helper
def key_at(program, state, key, at):
    """The key of a chunk at another hop."""
    mask = ((np.int64(1) << state.register[HOP_BITS]) - 1) << state.register[TASK_BITS]
    hop = _hop(program, task_of(state, key), at) + state.register[BIAS]
    return (key & ~mask) | (hop << state.register[TASK_BITS])


@helper
def injected(program, state, key, place, time):
    """Key and place of a chunk that joins its first server at a time, on the route that holds then."""
    first = first_hop_at(program, task_of(state, key), time)
    return key_at(program, state, key, first), (first << 32) | FRESH | size_of(place)


@helper
def has_space(state, most):
    """Whether so many events may be put into the calendar, as many services be noted, and a service begin."""
    register = state.register
    if register[BLOCKS] < most or register[LATE] + most > state.late.size:
        return False
    if register[FREE_NODES] < SPARE_NODES or register[BACKLOG_FREE] == NONE:
        return False
    return state.journal.size == 0 or (register[JOURNALED] + most) * JOURNAL_COLUMNS <= state.journal.size


@helper
def journal(state, key, place, since, start, end, ready):
    """Note a service, or (start = end) a chunk that a down server lost or that left its queue."""
    if state.journal.size:
        row = JOURNAL_COLUMNS * state.register[JOURNALED]
        state.journal[u64(row)] = task_of(state, key)
        state.journal[u64(row + 1)] = chunk_of(state, key)
        state.journal[u64(row + 2)] = place >> 32
        state.journal[u64(row + 3)] = since
        state.journal[u64(row + 4)] = start
        state.journal[u64(row + 5)] = end
        state.journal[u64(row + 6)] = ready
        state.register[JOURNALED] += 1


# --- what holds at a server ------------------------------------------------------------------------------------------


@helper
def _row_in_force(program, state, server):
    """Row of a server's timetable that holds now; the row before its first where none does yet."""
    row = np.int64(state.row[u64(server)])
    end = program.timetable_ptr[u64(server + 1)]
    while row + 1 < end and program.timetable_from_ps[u64(row + 1)] <= state.register[NOW]:
        row += 1
    state.row[u64(server)] = row
    return row


@helper
def _rate(program, server, row):
    """The rate of a row, or DOWN."""
    if row >= program.timetable_ptr[u64(server)]:
        return np.int64(program.timetable_rate[u64(row)])
    return np.int64(program.server_rate[u64(server)])


@helper
def _next_change(program, server, row, down):
    """When the server next goes down, or is next up, after a row of its timetable; FAR if never."""
    for later in range(row + 1, program.timetable_ptr[u64(server + 1)]):
        if (program.timetable_rate[u64(later)] == DOWN) == down:
            return program.timetable_from_ps[u64(later)]
    return FAR


@helper
def drops(program, server):
    """Whether a server loses what waits for it when it is down."""
    return program.server_crossing[u64(server)] >= DROPS


@helper
def is_down(program, state, server):
    if program.timetable_ptr.size == 0:
        return False
    return _rate(program, server, _row_in_force(program, state, server)) == DOWN


@helper
def next_up(program, state, server):
    """When a server that is down is up again."""
    return _next_change(program, server, np.int64(state.row[u64(server)]), False)


@helper
def next_down(program, state, server):
    """When a server that is up goes down."""
    return _next_change(program, server, np.int64(state.row[u64(server)]), True)


@helper
def _drawn(program, state, key, place, what):
    """The draw of a chunk's present hop and attempt."""
    task, attempt = task_of(state, key), (place >> ATTEMPT_SHIFT) & (ATTEMPTS - 1)
    return draw(program.seed, what, task, chunk_of(state, key), _hop(program, task, place >> 32), attempt)


@helper
def _jitter_ps(program, state, server, key, place, of_service):
    """What is drawn for the service, or for the latency, of a chunk."""
    if program.server_jitter.size:
        row = program.server_jitter[u64(server)]
        if row != NONE and (program.jitter_of_service[u64(row)] != 0) == of_service:
            column = _drawn(program, state, key, place, OF_JITTER) % program.jitter_ps.shape[1]
            return program.jitter_ps[u64(row), u64(column)]
    return np.int64(0)


@section
def sleeps_until(program, state, server, key, place):
    """Until when a server that is up begins nothing as its service of a chunk may not cross `down`; 0 if it may.

    With DROPS until it goes down, to lose the chunk then; else until it is up again.
    """
    if program.timetable_ptr.size == 0 or program.server_crossing[u64(server)] % DROPS != WAITS:
        return np.int64(0)
    row = np.int64(state.row[u64(server)])
    lasts = service_ps(program, size_of(place), _rate(program, server, row))
    down = _next_change(program, server, row, True)
    if down >= state.register[NOW] + lasts + _jitter_ps(program, state, server, key, place, True):
        return np.int64(0)
    if drops(program, server):
        return down
    for later in range(row + 1, program.timetable_ptr[u64(server + 1)]):
        if program.timetable_from_ps[u64(later)] <= down:
            row = np.int64(later)
    return _next_change(program, server, row, False)


@section
def conditions(program, state, server, key, place):
    """Of a service that begins now: how long it takes, what is added to the latency, whether its chunk is lost."""
    column, extra, down, now = np.int64(program.server_rate[u64(server)]), np.int64(0), FAR, state.register[NOW]
    if program.timetable_ptr.size:
        row = _row_in_force(program, state, server)
        column = _rate(program, server, row)
        if row >= program.timetable_ptr[u64(server)]:
            extra = program.timetable_latency_ps[u64(row)]
        if program.server_crossing[u64(server)] % DROPS == LOSES:
            down = _next_change(program, server, row, True)
    lasts = service_ps(program, size_of(place), column) + _jitter_ps(program, state, server, key, place, True)
    if down < now + lasts:
        return down - now, extra, True
    extra += _jitter_ps(program, state, server, key, place, False)
    loss = program.server_loss[u64(server)] if program.server_loss.size else np.int64(0)
    return lasts, extra, loss > 0 and _drawn(program, state, key, place, OF_LOSS) < loss


# --- loss ------------------------------------------------------------------------------------------------------------


@section
def lose(program, state, server, key, place, start, end):
    """Send a lost chunk again after the timeout, or give it up."""
    again = end + program.server_resend_ps[u64(server)]
    journal(state, key, place, state.register[ARRIVED_PS], start, end, ~again)
    if (place >> ATTEMPT_SHIFT) & (ATTEMPTS - 1) == ATTEMPTS - 1:
        node = new_node(state, key, place)
        let_next(state, node, state.register[GIVEN_UP])
        state.register[GIVEN_UP] = node
        return
    first = first_hop_at(program, task_of(state, key), again)
    place = (first << 32) | (place & ((np.int64(1) << 32) - 1)) + (1 << ATTEMPT_SHIFT)
    put(program, state, again, key_at(program, state, key, first), place, NONE)


@helper
def was_lost(place):
    """Whether a chunk was lost before, and sent again."""
    return (place >> ATTEMPT_SHIFT) & (ATTEMPTS - 1) > 0


# --- order of deliveries, and deadlines ------------------------------------------------------------------------------


@helper
def is_next(state, key):
    """Whether all chunks before a chunk that is in were delivered; if not, it waits. There must be a free node."""
    task = task_of(state, key)
    if chunk_of(state, key) == _of(state, task, DELIVERED):
        return True
    node = new_node(state, key, np.int64(0))
    let_next(state, node, np.int64(state.held[u64(task)]))
    state.held[u64(task)] = node
    return False


@helper
def next_held(state, task):
    """Take the node of the chunk that is next out of those that wait for one before them; NONE where it is not in."""
    node, before = np.int64(state.held[u64(task)]), np.int64(NONE)
    while node != NONE and chunk_of(state, state.node[word_of(node, KEY)]) != _of(state, task, DELIVERED):
        before, node = node, next_node(state, node)
    if node != NONE and before == NONE:
        state.held[u64(task)] = next_node(state, node)
    elif node != NONE:
        let_next(state, before, next_node(state, node))
    return node


@section
def set_timers(program, state):
    """Set an event at each deadline, once. Returns False where there is no room left."""
    register = state.register
    while register[TIMER] < program.task_deadline_ps.size:
        if not has_space(state, register[MOST]):
            return False
        task = register[TIMER]
        if program.task_deadline_ps[u64(task)] < NEVER_PS:
            put(program, state, program.task_deadline_ps[u64(task)], task, np.int64(RINGS), NONE)
        register[TIMER] += 1
    return True


@helper
def ring(state, task, chunks):
    """The deadline of a task: it waits for no other any more."""
    _let(state, task, MISSING, 0)
    _let(state, task, RELEASED, chunks)
    _stack(state, task)


@helper
def sleep(state, server, until):
    """Let a server choose nothing before a time."""
    state.server[u64(SERVER_WORDS * server + FREE_PS)] = until


@helper
def is_fresh(place):
    """Whether a chunk was not served yet, at its first server."""
    return place & FRESH != 0
