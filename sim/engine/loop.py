"""The fifo loop: healthy programs, from fifo servers alone to servers that choose, NICs, pools and buffers.

A fifo server is committed when a chunk arrives: start, end and next arrival are known then, so that the end of a
service is no event. Servers that choose are in sim/engine/policies/choose.py. The stages of a picosecond are those of
sim/engine/general/loop.py; the calendar is sim/engine/core/calendar.py.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, helper, section
from sim.engine.core.calendar import advance, append, hop_of, put, take
from sim.engine.core.lines import _arrive, _next_of
from sim.engine.core.mail import send, tell
from sim.engine.core.service import service_ps
from sim.engine.core.state import (
    ASKS,
    FULL,
    OPEN,
    OWN,
    WOKEN,
)
from sim.engine.core.status import FAR, FINISHED, NEEDS_TOKENS, NONE, PAUSED, UNSTACKED
from sim.engine.core.tasks import _deliver, _key, _release, _size, _stack, log_service
from sim.engine.nics.posts import ask_nic, end_runs, happen, nic_at, serve_nics
from sim.engine.nics.pushes import has_room
from sim.engine.policies.choose import SHORT, SPARE_NODES, choose, look_at, wake
from sim.engine.policies.pools import GRANTED, ask, asks, grant
from sim.engine.policies.rooms import change_rooms

_LOW = (1 << 32) - 1


@helper
def _pass_on(program, state, task, joined, parted, ordered):
    """Deliver the released chunks of a task without servers, each once it has its units. Returns as `_join`."""
    run, granted = state.run, state.tasks[task].gate_ps == GRANTED
    while joined < state.tasks[task].released:
        if not granted and asks(program, task, joined, ordered):
            if ordered and run.free_nodes < SPARE_NODES:
                return False
            ask(program, state, task, joined, ordered)
            return True
        if granted:
            state.tasks[task].gate_ps = run.now_ps
            granted = False
        if joined == 0:
            state.start_ps[task] = run.now_ps
        joined += 1
        state.tasks[task].joined = joined
        _deliver(program, state, task, parted, ordered)
    return True


@helper
def _ask_in_time(program, state, task, joined, gate):
    """Let a chunk ask for units once the chunk before it has left the first server. Returns as `_join`."""
    run = state.run
    if run.free_nodes < SPARE_NODES or run.blocks == 0 or run.late + 2 > state.late.size:
        return False
    if gate > run.now_ps:
        state.tasks[task].gate_ps = FAR
        put(program, state, gate, task, np.int64(ASKS), NONE)
    else:
        ask(program, state, task, joined, True)
    return True


@helper
def _join(program, state, task, parted, nics, ordered):
    """Send a released chunk of a task to its first server, or, without servers, all of them to delivery.

    Returns False where there is no room left; the task then stays on the stack.
    """
    run = state.run
    joined = state.tasks[task].joined
    gate = state.tasks[task].gate_ps
    if joined == state.tasks[task].released or gate == FAR:
        return True
    route = program.task_route[task]
    at = np.int64(program.route_ptr[route])
    if at == program.route_ptr[route + 1]:
        return _pass_on(program, state, task, joined, parted, ordered)
    if ordered and gate != GRANTED and asks(program, task, joined, ordered):
        return _ask_in_time(program, state, task, joined, gate)
    if nics and nic_at(program, at) != NONE:
        if not has_room(state):
            return False
        state.tasks[task].joined = joined + 1
        state.tasks[task].gate_ps = FAR
        ask_nic(program, state, nic_at(program, at), task, _key(program, state, task, joined))
        return True
    if run.blocks == 0 or run.late + 2 > state.late.size:
        return False
    key, place = _key(program, state, task, joined), (at << 32) | _size(program, task, joined)
    state.tasks[task].joined = joined + 1
    state.tasks[task].gate_ps = FAR
    if gate > run.now_ps:
        put(program, state, gate, key, place, NONE)
    else:
        event = run.spare
        if event == NONE:
            event = append(state, OPEN)
        run.spare = NONE
        its = state.events[event]
        its.time_ps, its.key, its.place = hop_of(program, place), key, place
        _arrive(program, state, event)
    return True


@section
def _settle(program, state, parted, nics, ordered):
    """Look at every task on the stack, until none is left. Returns False where there is no room left."""
    run = state.run
    while run.top != NONE:
        task = run.top
        run.top = state.tasks[task].link
        state.tasks[task].link = UNSTACKED
        _release(program, state, task)
        if not _join(program, state, task, parted, nics, ordered):
            _stack(state, task)
            return False
    return True


@helper
def _serve(program, state, server, event, parted, ordered, routers):
    """Serve an event that has just arrived at a server, after all that came before it.

    `parted`, `nics`, `ordered` and `routers` are constants of each entry, here and below: a branch that an entry never
    takes is not compiled.
    """
    run = state.run
    key, place = state.events[event].key, state.events[event].place
    at, size = place >> 32, place & _LOW
    its = state.servers[server]
    service = service_ps(program, size, program.server_rate[server])
    start = max(run.now_ps, its.free_ps)
    end = start + service
    its.free_ps = end
    its.busy_ps += service
    run.events += 1
    hop = state.events[event].time_ps & _LOW
    latency = program.hop_latency_ps[hop]
    task = key & ((np.int64(1) << run.task_bits) - 1)
    one = np.int64(1) << run.task_bits
    chunk = (key >> (run.task_bits + run.hop_bits)) & ((np.int64(1) << run.chunk_bits) - 1)
    if state.log_base.size:
        log_service(program, state, server, start, task, chunk, at)
    if program.hop_last[hop] != 0:
        ready = (start if program.deliver_head else end) + latency
        if parted:
            tell(program, state, task, ready, key, event)
        else:
            put(program, state, ready, key, NONE, event)
    else:
        ready = end + latency
        following = program.hop_server[program.route_hop[at + 1]]
        if program.cut_through:
            after = program.server_rate[following]
            ready = max(start + latency, ready - service_ps(program, size, after))
        if not parted or state.server_part[following] == state.own[OWN]:
            put(program, state, ready, key + one, place + (1 << 32), event)
        else:
            send(state, np.int64(state.server_part[following]), ready, key + one, place + (1 << 32))
    begins = (key >> run.task_bits) & ((np.int64(1) << run.hop_bits) - 1) == 0
    if routers:
        change_rooms(program, state, server, np.int64(hop), place, begins, program.hop_last[hop] != 0, end, ready)
    if begins:
        if chunk == 0:
            state.start_ps[task] = start
        joined = chunk + 1
        if ordered and joined < state.tasks[task].released and asks(program, task, joined, ordered):
            put(program, state, end, task, np.int64(ASKS), NONE)
        elif joined < state.tasks[task].released:
            state.tasks[task].joined = joined + 1
            key += np.int64(1) << (run.task_bits + run.hop_bits)
            put(program, state, end, key, (at << 32) | _size(program, task, joined), NONE)
            if ordered:
                state.choices[server].wake_ps = end
        else:
            state.tasks[task].gate_ps = end


@helper
def _serve_all(program, state, parted, ordered, routers):
    """Serve what arrived in this picosecond. Returns False where there is no room left."""
    run = state.run
    while run.served < run.touched:
        server = np.int64(state.touched[run.served])
        event = state.servers[server].line >> 32
        while event != NONE:
            # A service puts at most two events into the calendar, one of a server that chooses up to MOST.
            most = run.most if ordered else 2
            if routers and run.free_nodes < SPARE_NODES:
                state.servers[server].line = (event << 32) | (state.servers[server].line & _LOW)
                return False
            if run.blocks < most or run.late + most > state.late.size or (parted and state.own[FULL] != 0):
                state.servers[server].line = (event << 32) | (state.servers[server].line & _LOW)
                return False
            after = _next_of(state, event)
            chooses = ordered and state.chooses[server] != 0
            if chooses:
                event, after = choose(program, state, server, event, routers), np.int64(NONE)
                if event == SHORT:
                    return False
            if not chooses or event != NONE:
                _serve(program, state, server, event, parted, ordered, routers)
            if chooses:
                wake(program, state, server, routers)
            event = after
        run.served += 1
    run.served = run.touched = 0
    return True


@entry
def run_fifo(program, state, max_events, until_ps):
    """Run a program of fifo servers and simple pools, see `sim.engine.setup.loop`; the rest as in `run_general`."""
    return fifo_loop(program, state, max_events, until_ps, False, False, False, False)


@entry
def run_fifo_nics(program, state, max_events, until_ps):
    """Run such a program with NICs."""
    return fifo_loop(program, state, max_events, until_ps, False, True, False, False)


@entry
def run_ordered(program, state, max_events, until_ps):
    """Run a program with servers that choose by a rank, and any pools; the rest as in `run_general`."""
    return fifo_loop(program, state, max_events, until_ps, False, False, True, False)


@entry
def run_links(program, state, max_events, until_ps):
    """Run a program with turns, channels or buffers, or with NICs beside ranks or pools; `server_nic` may be -1."""
    return fifo_loop(program, state, max_events, until_ps, False, True, True, True)


@section
def fifo_loop(program, state, max_events, until_ps, parted, nics, ordered, routers):
    """The loop of all entries above, of `run_skipping` between its tries, and of `run_part` within a window."""
    run = state.run
    limit = run.events + max_events
    while True:
        if run.top != NONE and not _settle(program, state, parted, nics, ordered):
            return NEEDS_TOKENS
        due = take(state)
        while due != NONE:
            place = state.events[due].place
            if place >= 0:
                _arrive(program, state, due)
            elif ordered and place == WOKEN:
                look_at(state, due)
            elif ordered and place == ASKS:
                task = state.events[due].key
                run.spare = due
                state.tasks[task].gate_ps = run.now_ps
                _stack(state, task)
            elif nics and place != NONE:
                happen(program, state, due, place)
            else:
                key = state.events[due].key
                run.spare = due
                _deliver(program, state, key & ((np.int64(1) << run.task_bits) - 1), parted, ordered)
            due = take(state)
        if nics and not end_runs(program, state):
            return NEEDS_TOKENS
        if run.top != NONE or (run.stirred != NONE and grant(program, state, ordered)):
            continue
        if nics and not serve_nics(program, state):
            return NEEDS_TOKENS
        if not _serve_all(program, state, parted, ordered, routers):
            return NEEDS_TOKENS
        if run.left == 0:
            return FINISHED
        if run.events >= limit:
            return PAUSED
        status = advance(program, state, until_ps)
        if status != FINISHED:
            return status
