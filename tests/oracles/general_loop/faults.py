"""What changes in time, as the general loop sees it: timetables, loss and jitter, detours, the journal."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import service_ps
from sim.engine.policies.faults import begin_draws, draw
from sim.program.contract import ATTEMPTS, DOWN, DROPS, HEAD, LOSES, WAITS
from tests.oracles.general_loop.event import AT, SIZE, at_of, chunk_of, field, size_of, task_of, time_of
from tests.oracles.general_loop.heap import lone, meld, without_root
from tests.oracles.general_loop.state import EVENTS, FIRST_HOP, JOURNAL_COLUMNS, JOURNALED, NOW
from tests.oracles.general_loop.wheel import push

OF_LOSS, OF_JITTER = 0, 1


@helper
def row_in_force(program, state, server):
    """Row of a server's timetable that holds now; the row before its first where none does yet."""
    row = state.place[u64(server)]
    end = program.timetable_ptr[u64(server + 1)]
    while row + 1 < end and program.timetable_from_ps[u64(row + 1)] <= state.register[NOW]:
        row += 1
    state.place[u64(server)] = row
    return row


@helper
def next_change(program, server, row, down):
    """When the server next goes down, or is next up, after a row of its timetable; FAR if never."""
    for later in range(row + 1, program.timetable_ptr[u64(server + 1)]):
        if (program.timetable_rate[u64(later)] == DOWN) == down:
            return program.timetable_from_ps[u64(later)]
    return FAR


@helper
def sleep(state, server, until):
    """Let a server choose nothing before a time."""
    state.free_ps[u64(server)] = until
    state.first_of[u64(server)] = NONE
    if until != FAR:
        push(state, server, until)


@helper
def first_hop_at(program, task, time):
    """Where the route begins that a task's chunks take from this time on."""
    route = program.task_route[u64(task)]
    if program.detour_ptr.size:
        for row in range(program.detour_ptr[u64(task)], program.detour_ptr[u64(task + 1)]):
            if program.detour_from_ps[u64(row)] <= time:
                route = program.detour_route[u64(row)]
    return program.route_ptr[u64(route)]


@helper
def drawn(program, state, token, what):
    """The draw of a token's present hop and attempt."""
    task = task_of(state.event, token)
    hop = at_of(state.event, token) - program.route_ptr[u64(program.task_route[u64(task)])]
    chunk, attempt = chunk_of(state.event, token), state.attempt[u64(token)]
    return draw(begin_draws(program.seed, what), task, chunk, hop, attempt)


@helper
def jitter_ps(program, state, token, server, of_service):
    """What is drawn for the service, or for the latency, of a token."""
    if program.server_jitter.size:
        row = program.server_jitter[u64(server)]
        if row != NONE and (program.jitter_of_service[u64(row)] != 0) == of_service:
            column = drawn(program, state, token, OF_JITTER) % program.jitter_ps.shape[1]
            return program.jitter_ps[u64(row), u64(column)]
    return np.int64(0)


@helper
def is_lost(program, state, token, server):
    if program.server_loss.size and program.server_loss[u64(server)] > 0:
        return drawn(program, state, token, OF_LOSS) < program.server_loss[u64(server)]
    return False


@helper
def journal(program, state, token, start, end, ready):
    """Record a service, or (start = end) a chunk that a down server lost; `ready` is complemented where it was lost."""
    if state.journal.size:
        row = JOURNAL_COLUMNS * state.register[JOURNALED]
        state.journal[u64(row)] = task_of(state.event, token)
        state.journal[u64(row + 1)] = chunk_of(state.event, token)
        state.journal[u64(row + 2)] = at_of(state.event, token)
        state.journal[u64(row + 3)] = time_of(state.event_ps, token)
        state.journal[u64(row + 4)] = start
        state.journal[u64(row + 5)] = end
        state.journal[u64(row + 6)] = ready
        state.register[JOURNALED] += 1


@helper
def lose(program, state, token, server, start, end):
    """Send a lost chunk again after the timeout, or give it up."""
    again = end + program.server_resend_ps[u64(server)]
    journal(program, state, token, start, end, ~again)
    state.attempt[u64(token)] += 1
    if state.attempt[u64(token)] < ATTEMPTS:
        state.event[field(token, AT)] = first_hop_at(program, task_of(state.event, token), again)
        push(state, token, again)


@helper
def begin_faulty(program, state, token, server, start, end, extra):
    """Account a service that is not lost, and when its chunk is ready for what follows."""
    at = at_of(state.event, token)
    size = size_of(state.event, token)
    hop = program.route_hop[u64(at)]
    latency = program.hop_latency_ps[u64(hop)] + extra + jitter_ps(program, state, token, server, False)
    last = program.hop_last[u64(hop)] != 0
    if last:
        ready = (start if program.hop_last[u64(hop)] == HEAD else end) + latency
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[u64(program.hop_server[u64(program.route_hop[u64(at + 1)])])]
            ready = max(start + latency, ready - service_ps(program, size, after))
    journal(program, state, token, start, end, ready)
    state.event[field(token, AT)] = NONE if last else at + 1
    push(state, token, ready)


@helper
def send_other_ways(program, state, server):
    """Let chunks at their source take the routes that hold now, until one is first whose route has not changed."""
    now = state.register[NOW]
    discipline = program.server_discipline[u64(server)]
    while state.queue[u64(server)] != NONE:
        token = state.queue[u64(server)]
        at = at_of(state.event, token)
        if at > 0 and program.hop_last[u64(program.route_hop[u64(at - 1)])] == 0:
            return
        first = first_hop_at(program, task_of(state.event, token), now)
        if first == at:
            return
        state.queue[u64(server)] = without_root(program, state, discipline, token)
        if program.hop_server[u64(program.route_hop[u64(first)])] == server:
            state.event[field(token, AT)] = first
            alone = lone(state, token)
            state.queue[u64(server)] = meld(program, state, discipline, state.queue[u64(server)], alone)
        else:
            state.event_ps[u64(4 * token)] = ~time_of(state.event_ps, token)
            journal(program, state, token, now, now, now + 1)
            state.event[field(token, AT)] = first
            push(state, token, now + 1)


@helper
def occupy(program, state, token, server, start, end):
    """Let a server be busy with a token, whose mark of the first hop goes."""
    task = task_of(state.event, token)
    state.busy_ps[u64(server)] += end - start
    state.free_ps[u64(server)] = end
    state.register[EVENTS] += 1
    state.first_of[u64(server)] = NONE
    if size_of(state.event, token) >= FIRST_HOP:
        state.first_of[u64(server)] = task
        state.event[field(token, SIZE)] -= FIRST_HOP
        if chunk_of(state.event, token) == 0:
            state.start_ps[u64(task)] = start
    push(state, server, end)


@helper
def room_for_journal(state):
    """Whether every server and every token may be noted in this picosecond."""
    if state.journal.size == 0:
        return True
    most = state.register[JOURNALED] + state.attempt.size
    return most * JOURNAL_COLUMNS <= state.journal.size


@helper
def serve_faulty(program, state, server):
    """Start the service of the token that a free server chooses, if the server is up and may; see the contract."""
    now = state.register[NOW]
    discipline = program.server_discipline[u64(server)]
    column, extra, row, crossing, drops = program.server_rate[u64(server)], np.int64(0), NONE, WAITS, False
    if program.timetable_ptr.size:
        row = row_in_force(program, state, server)
        drops = program.server_crossing[u64(server)] >= DROPS
        crossing = program.server_crossing[u64(server)] % DROPS
        if row >= program.timetable_ptr[u64(server)]:
            column, extra = program.timetable_rate[u64(row)], program.timetable_latency_ps[u64(row)]
    if column == DOWN:
        if not drops:
            sleep(state, server, next_change(program, server, row, False))
            return
        while state.queue[u64(server)] != NONE:
            token = state.queue[u64(server)]
            state.queue[u64(server)] = without_root(program, state, discipline, token)
            lose(program, state, token, server, now, now)
        return
    if program.detour_ptr.size:
        send_other_ways(program, state, server)
        if state.queue[u64(server)] == NONE:
            return
    token = state.queue[u64(server)]
    size = size_of(state.event, token) & (FIRST_HOP - 1)
    end = now + service_ps(program, size, column) + jitter_ps(program, state, token, server, True)
    down = next_change(program, server, row, True) if program.timetable_ptr.size else FAR
    cut = down < end and crossing == LOSES
    if down < end and crossing == WAITS:
        if drops:
            sleep(state, server, down)
            return
        for later in range(row + 1, program.timetable_ptr[u64(server + 1)]):
            if program.timetable_from_ps[u64(later)] <= down:
                row = later
        sleep(state, server, next_change(program, server, row, False))
        return
    state.queue[u64(server)] = without_root(program, state, discipline, token)
    if cut:
        end = down
    occupy(program, state, token, server, now, end)
    if cut or is_lost(program, state, token, server):
        lose(program, state, token, server, now, end)
    else:
        begin_faulty(program, state, token, server, now, end, extra)
