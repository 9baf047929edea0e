"""What changes in time: timetables, loss and jitter, detours, deadlines, and the journal of all services.

A server that changes in time chooses when it is free, as in policies/choose.py, so that what holds then is known; the
others are committed on arrival as ever, with what is drawn for the chunk. A chunk that was lost is an event at the
first server of its route; its place says how often it was lost, and whether it has been served at all (FRESH).
Draws are a counter-based hash, so that what is drawn does not depend on the order of a run.
"""

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.nodes import free_node, new_node
from sim.engine.core.state import ATTEMPT_SHIFT, FRESH, RINGS
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import _stack, service_ps
from sim.program.contract import ATTEMPTS, DOWN, DROPS, LOSES, NEVER_PS, WAITS
from topologies.compiled import DISABLED

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64 - 1
_U_STEP, _U_FIRST, _U_SECOND = np.uint64(_STEP), np.uint64(_FIRST), np.uint64(_SECOND)
_30, _27, _31, _1 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(1)


def _plain_mix(state: int) -> int:
    z = (state + _STEP) & _WORD
    z = (z ^ (z >> 30)) * _FIRST & _WORD
    z = (z ^ (z >> 27)) * _SECOND & _WORD
    return z ^ (z >> 31)


def _plain_begin(seed: int, what: int) -> int:
    state = _plain_mix(_plain_mix(int(seed)) ^ int(what))
    return state - (state >> 63 << 64)


def _plain_draw(begun: int, task: int, chunk: int, hop: int, attempt: int) -> int:
    state = int(begun) & _WORD
    for key in (task, chunk, hop, attempt):
        state = _plain_mix(state ^ int(key))
    return state >> 1


@helper
def _mix(state):
    z = state + _U_STEP
    z = (z ^ (z >> _30)) * _U_FIRST
    z = (z ^ (z >> _27)) * _U_SECOND
    return z ^ (z >> _31)


@helper
def _word_begin(seed, what):
    return np.int64(_mix(_mix(np.uint64(seed)) ^ np.uint64(what)))


@helper
def _word_draw(begun, task, chunk, hop, attempt):
    state = _mix(np.uint64(begun) ^ np.uint64(task))
    state = _mix(state ^ np.uint64(chunk))
    state = _mix(state ^ np.uint64(hop))
    return np.int64(_mix(state ^ np.uint64(attempt)) >> _1)


# Without the compiler a product that wraps is a warning of numpy's.
begin_draws, draw = (_plain_begin, _plain_draw) if DISABLED else (_word_begin, _word_draw)
"""What all draws of a seed have in common; 63 bits of that and (task, chunk, hop, attempt)."""


OF_LOSS, OF_JITTER = 0, 1
SPARE_NODES = 4
"""Nodes that must be free before a service: for a chunk that waits or is given up, and two returns of room."""


@helper
def task_of(state, key):
    """The task in the key of a service."""
    return key & ((np.int64(1) << state.run.task_bits) - 1)


@helper
def chunk_of(state, key):
    """The chunk in the key of a service."""
    shift = state.run.task_bits + state.run.hop_bits
    return (key >> shift) & ((np.int64(1) << state.run.chunk_bits) - 1)


@helper
def begins_at(program, at):
    """Whether a hop is the first of a route: the one before it in the routes is a last one."""
    return at == 0 or program.hop_last[program.route_hop[at - 1]] != 0


@helper
def first_hop_at(program, task, time):
    """Where the route begins that a task's chunks take from this time on."""
    route = np.int64(program.task_route[task])
    if program.detour_ptr.size:
        for row in range(program.detour_ptr[task], program.detour_ptr[task + 1]):
            if program.detour_from_ps[row] <= time:
                route = np.int64(program.detour_route[row])
    return np.int64(program.route_ptr[route])


@helper
def _hop_of(state, key):
    """The hop in the key of a service, as it is drawn: counted from where the task's own route begins."""
    return ((key >> state.run.task_bits) & ((np.int64(1) << state.run.hop_bits) - 1)) - state.run.bias


@helper
def key_at(program, state, key, at):
    """The key of a chunk at another hop."""
    mask = ((np.int64(1) << state.run.hop_bits) - 1) << state.run.task_bits
    hop = at - np.int64(program.route_ptr[program.task_route[task_of(state, key)]]) + state.run.bias
    return (key & ~mask) | (hop << state.run.task_bits)


@helper
def injected(program, state, key, place, time):
    """Key and place of a chunk that joins its first server at a time, on the route that holds then.

    `key`, `place`: at the first server of some route of its task, of which most have but one.
    """
    task = task_of(state, key)
    if program.detour_ptr.size == 0 or program.detour_ptr[task] == program.detour_ptr[task + 1]:
        mask = ((np.int64(1) << state.run.hop_bits) - 1) << state.run.task_bits
        return (key & ~mask) | (state.run.bias << state.run.task_bits), place | FRESH
    first = first_hop_at(program, task, time)
    return key_at(program, state, key, first), (first << 32) | FRESH | size_of(place)


@helper
def has_space(state, most):
    """Whether so many events may be put into the calendar, as many services be noted, and a service begin."""
    run = state.run
    if run.blocks < most or run.late + most > state.late.size:
        return False
    if run.free_nodes < SPARE_NODES or run.backlog_free == NONE:
        return False
    return state.journal.size == 0 or run.journaled + most <= state.journal.size


@helper
def journal(program, state, key, place, since, start, end, ready):
    """Note a service, or (start = end) a chunk that a down server lost or that left its queue: lapses, or all."""
    at, noted_from = place >> 32, state.run.noted_from
    if ready < 0 or since < 0 or noted_from == 0 or (at >= noted_from and begins_at(program, at)):
        its = state.journal[state.run.journaled]
        its.task, its.chunk, its.at = task_of(state, key), chunk_of(state, key), at
        its.since_ps, its.start_ps, its.end_ps, its.ready_ps = since, start, end, ready
        state.run.journaled += 1


# --- what holds at a server ------------------------------------------------------------------------------------------


@helper
def _row_in_force(program, state, server):
    """Row of a server's timetable that holds now; the row before its first where none does yet."""
    row = np.int64(state.row[server])
    end = program.timetable_ptr[server + 1]
    while row + 1 < end and program.timetable_from_ps[row + 1] <= state.run.now_ps:
        row += 1
    state.row[server] = row
    return row


@helper
def _rate(program, server, row):
    """The rate of a row, or DOWN."""
    if row >= program.timetable_ptr[server]:
        return np.int64(program.timetable_rate[row])
    return np.int64(program.server_rate[server])


@helper
def _next_change(program, server, row, down):
    """When the server next goes down, or is next up, after a row of its timetable; FAR if never."""
    for later in range(row + 1, program.timetable_ptr[server + 1]):
        if (program.timetable_rate[later] == DOWN) == down:
            return program.timetable_from_ps[later]
    return FAR


@helper
def drops(program, server):
    """Whether a server loses what waits for it when it is down."""
    return program.server_crossing[server] >= DROPS


@helper
def is_down(program, state, server):
    """Whether a server is down at the present epoch."""
    if program.timetable_ptr.size == 0:
        return False
    return _rate(program, server, _row_in_force(program, state, server)) == DOWN


@helper
def next_up(program, state, server):
    """When a server that is down is up again."""
    return _next_change(program, server, np.int64(state.row[server]), False)


@helper
def next_down(program, state, server):
    """When a server that is up goes down."""
    return _next_change(program, server, np.int64(state.row[server]), True)


@helper
def _drawn(state, begun, key, place):
    """The draw of a chunk's present hop and attempt."""
    attempt = (place >> ATTEMPT_SHIFT) & (ATTEMPTS - 1)
    return draw(begun, task_of(state, key), chunk_of(state, key), _hop_of(state, key), attempt)


@helper
def _jitter_ps(program, state, server, key, place, of_service):
    """What is drawn for the service, or for the latency, of a chunk."""
    if program.server_jitter.size:
        row = program.server_jitter[server]
        if row != NONE and (program.jitter_of_service[row] != 0) == of_service:
            column = _drawn(state, state.run.jitter_begun, key, place) % program.jitter_ps.shape[1]
            return program.jitter_ps[u64(row), column]
    return np.int64(0)


@section
def sleeps_until(program, state, server, key, place):
    """Until when a server that is up begins nothing as its service of a chunk may not cross `down`; 0 if it may.

    With DROPS until it goes down, to lose the chunk then; else until it is up again.
    """
    if program.timetable_ptr.size == 0 or program.server_crossing[server] % DROPS != WAITS:
        return np.int64(0)
    row = np.int64(state.row[server])
    lasts = service_ps(program, size_of(place), _rate(program, server, row))
    down = _next_change(program, server, row, True)
    if down >= state.run.now_ps + lasts + _jitter_ps(program, state, server, key, place, True):
        return np.int64(0)
    if drops(program, server):
        return down
    for later in range(row + 1, program.timetable_ptr[server + 1]):
        if program.timetable_from_ps[later] <= down:
            row = np.int64(later)
    return _next_change(program, server, row, False)


@helper
def drawn_conditions(program, state, server, key, place, column):
    """Of a service at a rate: how long it takes, what is added to the latency, whether its chunk is lost."""
    lasts = service_ps(program, size_of(place), column) + _jitter_ps(program, state, server, key, place, True)
    extra = _jitter_ps(program, state, server, key, place, False)
    loss = program.server_loss[server] if program.server_loss.size else np.int64(0)
    return lasts, extra, loss > 0 and _drawn(state, state.run.loss_begun, key, place) < loss


@section
def conditions(program, state, server, key, place):
    """The same of a service that begins now, at a server that may change."""
    column, later, down, now = np.int64(program.server_rate[server]), np.int64(0), FAR, state.run.now_ps
    if program.timetable_ptr.size:
        row = _row_in_force(program, state, server)
        column = _rate(program, server, row)
        if row >= program.timetable_ptr[server]:
            later = program.timetable_latency_ps[row]
        if program.server_crossing[server] % DROPS == LOSES:
            down = _next_change(program, server, row, True)
    lasts, extra, lost = drawn_conditions(program, state, server, key, place, column)
    if down < now + lasts:
        return down - now, later, True
    return lasts, later + extra, lost


# --- loss ------------------------------------------------------------------------------------------------------------


@section
def lose(program, state, server, key, place, start, end):
    """Send a lost chunk again after the timeout, or give it up."""
    again = end + program.server_resend_ps[server]
    journal(program, state, key, place, state.run.arrived_ps, start, end, ~again)
    if (place >> ATTEMPT_SHIFT) & (ATTEMPTS - 1) == ATTEMPTS - 1:
        node = new_node(state, key, place)
        state.nodes[node].next = state.run.given_up
        state.run.given_up = node
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
    if chunk_of(state, key) == state.tasks[task].delivered:
        return True
    node = new_node(state, key, np.int64(0))
    state.nodes[node].next = np.int64(state.held[task])
    state.held[task] = node
    return False


@helper
def next_held(state, task):
    """Take the node of the chunk that is next out of those that wait for one before them; NONE where it is not in."""
    node, before = np.int64(state.held[task]), np.int64(NONE)
    while node != NONE and chunk_of(state, state.nodes[node].key) != state.tasks[task].delivered:
        before, node = node, state.nodes[node].next
    if node != NONE and before == NONE:
        state.held[task] = state.nodes[node].next
    elif node != NONE:
        state.nodes[before].next = state.nodes[node].next
    return node


@section
def begin(program, state):
    """Begin the draws, and set an event at each deadline, once. Returns False where there is no room left."""
    run = state.run
    run.loss_begun, run.jitter_begun = begin_draws(program.seed, OF_LOSS), begin_draws(program.seed, OF_JITTER)
    while run.timer < program.task_deadline_ps.size:
        if not has_space(state, run.most):
            return False
        task = run.timer
        if program.task_deadline_ps[task] < NEVER_PS:
            put(program, state, program.task_deadline_ps[task], task, np.int64(RINGS), NONE)
        run.timer += 1
    return True


@helper
def ring(state, task, chunks):
    """The deadline of a task: it waits for no other any more."""
    state.tasks[task].missing = 0
    state.tasks[task].released = chunks
    _stack(state, task)


@helper
def sleep(state, server, until):
    """Let a server choose nothing before a time."""
    state.servers[server].free_ps = until


@helper
def is_fresh(place):
    """Whether a chunk was not served yet, at its first server."""
    return place & FRESH != 0


_LOW = (1 << 32) - 1


@helper
def changes_route(program, state, node):
    """Whether a chunk is at the first hop of a route that its task does not take any more."""
    at = state.nodes[node].place >> 32
    if not begins_at(program, at):
        return False
    return first_hop_at(program, task_of(state, state.nodes[node].key), state.run.now_ps) != at


@section
def stays(program, state, server, node):
    """Give a chunk the route that holds now. Returns whether it stays at its server, else it is on the way to another.

    A chunk that leaves arrives there in the next picosecond, and its node is free.
    """
    key, place, present = state.nodes[node].key, state.nodes[node].place, state.run.now_ps
    first = first_hop_at(program, task_of(state, key), present)
    key_there, place_there = key_at(program, state, key, first), (first << 32) | (place & _LOW)
    if program.hop_server[program.route_hop[first]] == server:
        state.nodes[node].key, state.nodes[node].place = key_there, place_there
        return True
    journal(program, state, key, place, ~state.node_since[node], present, present, present + 1)
    put(program, state, present + 1, key_there, place_there, NONE)
    free_node(state, node)
    return False
