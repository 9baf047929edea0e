"""The fifo loop: healthy programs, from fifo servers alone to servers that choose, NICs, pools and buffers.

A fifo server is committed when a chunk arrives: start, end and next arrival are known then, so that the end of a
service is no event. Servers that choose are in sim/engine/_ordered.py. The stages of a picosecond are those of
sim/engine/_kernel.py; the calendar is sim/engine/_calendar.py.
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import advance, append, hop_of, put, take
from sim.engine._fifo_line import _arrive, _next_of
from sim.engine._fifo_nic import ask_nic, end_runs, happen, nic_at, serve_nics
from sim.engine._fifo_nic_pushes import has_room
from sim.engine._fifo_pools import GRANTED, ask, asks, grant
from sim.engine._fifo_state import (
    ASKS,
    BLOCKS,
    BUSY_PS,
    CHOICE_WORDS,
    CHUNK_BITS,
    EVENT_WORDS,
    EVENTS,
    FREE_NODES,
    FREE_PS,
    FULL,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    LEFT,
    LINE,
    LINK,
    MOST,
    NOW,
    OPEN,
    OWN,
    PLACE,
    RELEASED,
    SERVED,
    SERVER_WORDS,
    SPARE,
    STIRRED,
    TASK_BITS,
    TIME,
    TOP,
    TOUCHED,
    WAKE_PS,
    WOKEN,
)
from sim.engine._fifo_task import _deliver, _gate_of, _key, _let, _of, _release, _size, _stack, log_service
from sim.engine._jit import entry, helper, section, u64
from sim.engine._mail import send, tell
from sim.engine._ordered import SHORT, SPARE_NODES, choose, look_at, wake
from sim.engine._rooms import change_rooms
from sim.engine._service import service_ps
from sim.engine._state import FAR, FINISHED, NEEDS_TOKENS, NONE, PAUSED, UNSTACKED
from sim.program.contract import HEAD

_LOW = (1 << 32) - 1


@helper
def _pass_on(program, state, task, joined, parted, ordered):
    """Deliver the released chunks of a task without servers, each once it has its units. Returns as `_join`."""
    register, granted = state.register, state.gate_ps[_gate_of(task)] == GRANTED
    while joined < _of(state, task, RELEASED):
        if not granted and asks(program, task, joined, ordered):
            if ordered and register[FREE_NODES] < SPARE_NODES:
                return False
            ask(program, state, task, joined, ordered)
            return True
        if granted:
            state.gate_ps[_gate_of(task)] = register[NOW]
            granted = False
        if joined == 0:
            state.start_ps[u64(task)] = register[NOW]
        joined += 1
        _let(state, task, JOINED, joined)
        _deliver(program, state, task, parted, ordered)
    return True


@helper
def _ask_in_time(program, state, task, joined, gate):
    """Let a chunk ask for units once the chunk before it has left the first server. Returns as `_join`."""
    register = state.register
    if register[FREE_NODES] < SPARE_NODES or register[BLOCKS] == 0 or register[LATE] + 2 > state.late.size:
        return False
    if gate > register[NOW]:
        state.gate_ps[_gate_of(task)] = FAR
        put(program, state, gate, task, np.int64(ASKS), NONE)
    else:
        ask(program, state, task, joined, True)
    return True


@helper
def _join(program, state, task, parted, nics, ordered):
    """Send a released chunk of a task to its first server, or, without servers, all of them to delivery.

    Returns False where there is no room left; the task then stays on the stack.
    """
    register = state.register
    joined = _of(state, task, JOINED)
    gate = state.gate_ps[_gate_of(task)]
    if joined == _of(state, task, RELEASED) or gate == FAR:
        return True
    route = program.task_route[u64(task)]
    at = np.int64(program.route_ptr[u64(route)])
    if at == program.route_ptr[u64(route + 1)]:
        return _pass_on(program, state, task, joined, parted, ordered)
    if ordered and gate != GRANTED and asks(program, task, joined, ordered):
        return _ask_in_time(program, state, task, joined, gate)
    if nics and nic_at(program, at) != NONE:
        if not has_room(state):
            return False
        _let(state, task, JOINED, joined + 1)
        state.gate_ps[_gate_of(task)] = FAR
        ask_nic(program, state, nic_at(program, at), task, _key(program, state, task, joined))
        return True
    if register[BLOCKS] == 0 or register[LATE] + 2 > state.late.size:
        return False
    key, place = _key(program, state, task, joined), (at << 32) | _size(program, task, joined)
    _let(state, task, JOINED, joined + 1)
    state.gate_ps[_gate_of(task)] = FAR
    if gate > register[NOW]:
        put(program, state, gate, key, place, NONE)
    else:
        event = register[SPARE]
        if event == NONE:
            event = append(state, OPEN)
        register[SPARE] = NONE
        state.event[u64(EVENT_WORDS * event + TIME)] = hop_of(program, place)
        state.event[u64(EVENT_WORDS * event + KEY)] = key
        state.event[u64(EVENT_WORDS * event + PLACE)] = place
        _arrive(program, state, event)
    return True


@section
def _settle(program, state, parted, nics, ordered):
    """Look at every task on the stack, until none is left. Returns False where there is no room left."""
    register = state.register
    while register[TOP] != NONE:
        task = register[TOP]
        register[TOP] = _of(state, task, LINK)
        _let(state, task, LINK, UNSTACKED)
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
    register = state.register
    key = state.event[u64(EVENT_WORDS * event + KEY)]
    place = state.event[u64(EVENT_WORDS * event + PLACE)]
    at, size = place >> 32, place & _LOW
    base = SERVER_WORDS * server
    service = service_ps(program, size, program.server_rate[u64(server)])
    start = max(register[NOW], state.server[u64(base + FREE_PS)])
    end = start + service
    state.server[u64(base + FREE_PS)] = end
    state.server[u64(base + BUSY_PS)] += service
    register[EVENTS] += 1
    hop = u64(state.event[u64(EVENT_WORDS * event + TIME)] & _LOW)
    latency = program.hop_latency_ps[hop]
    task = key & ((np.int64(1) << register[TASK_BITS]) - 1)
    one = np.int64(1) << register[TASK_BITS]
    chunk = (key >> (register[TASK_BITS] + register[HOP_BITS])) & ((np.int64(1) << register[CHUNK_BITS]) - 1)
    if state.log_base.size:
        log_service(program, state, server, start, task, chunk, at)
    if program.hop_last[hop] != 0:
        ready = (start if program.hop_last[hop] == HEAD else end) + latency
        if parted:
            tell(program, state, task, ready, key, event)
        else:
            put(program, state, ready, key, NONE, event)
    else:
        ready = end + latency
        following = program.hop_server[u64(program.route_hop[u64(at + 1)])]
        if program.cut_through:
            after = program.server_rate[u64(following)]
            ready = max(start + latency, ready - service_ps(program, size, after))
        if not parted or state.server_part[u64(following)] == state.own[OWN]:
            put(program, state, ready, key + one, place + (1 << 32), event)
        else:
            send(state, np.int64(state.server_part[u64(following)]), ready, key + one, place + (1 << 32))
    begins = (key >> register[TASK_BITS]) & ((np.int64(1) << register[HOP_BITS]) - 1) == 0
    if routers:
        change_rooms(program, state, server, np.int64(hop), place, begins, program.hop_last[hop] != 0, end, ready)
    if begins:
        if chunk == 0:
            state.start_ps[u64(task)] = start
        joined = chunk + 1
        if ordered and joined < _of(state, task, RELEASED) and asks(program, task, joined, ordered):
            put(program, state, end, task, np.int64(ASKS), NONE)
        elif joined < _of(state, task, RELEASED):
            _let(state, task, JOINED, joined + 1)
            key += np.int64(1) << (register[TASK_BITS] + register[HOP_BITS])
            put(program, state, end, key, (at << 32) | _size(program, task, joined), NONE)
            if ordered:
                state.choice[u64(CHOICE_WORDS * server + WAKE_PS)] = end
        else:
            state.gate_ps[_gate_of(task)] = end


@helper
def _serve_all(program, state, parted, ordered, routers):
    """Serve what arrived in this picosecond. Returns False where there is no room left."""
    register = state.register
    while register[SERVED] < register[TOUCHED]:
        server = np.int64(state.touched[u64(register[SERVED])])
        line = u64(SERVER_WORDS * server + LINE)
        event = state.server[line] >> 32
        while event != NONE:
            # A service puts at most two events into the calendar, one of a server that chooses up to MOST.
            most = register[MOST] if ordered else 2
            if routers and register[FREE_NODES] < SPARE_NODES:
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return False
            if register[BLOCKS] < most or register[LATE] + most > state.late.size or (parted and state.own[FULL] != 0):
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return False
            after = _next_of(state, event)
            chooses = ordered and state.chooses[u64(server)] != 0
            if chooses:
                event, after = choose(program, state, server, event, routers), np.int64(NONE)
                if event == SHORT:
                    return False
            if not chooses or event != NONE:
                _serve(program, state, server, event, parted, ordered, routers)
            if chooses:
                wake(program, state, server, routers)
            event = after
        register[SERVED] += 1
    register[SERVED] = register[TOUCHED] = 0
    return True


@entry
def run_fifo(program, state, max_events, until_ps):
    """Run a program of fifo servers and simple pools, see `sim.engine.fifo.loop`; the rest as in `run_general`."""
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
    register = state.register
    limit = register[EVENTS] + max_events
    while True:
        if register[TOP] != NONE and not _settle(program, state, parted, nics, ordered):
            return NEEDS_TOKENS
        due = take(state)
        while due != NONE:
            place = state.event[u64(EVENT_WORDS * due + PLACE)]
            if place >= 0:
                _arrive(program, state, due)
            elif ordered and place == WOKEN:
                look_at(state, due)
            elif ordered and place == ASKS:
                task = state.event[u64(EVENT_WORDS * due + KEY)]
                register[SPARE] = due
                state.gate_ps[_gate_of(task)] = register[NOW]
                _stack(state, task)
            elif nics and place != NONE:
                happen(program, state, due, place)
            else:
                key = state.event[u64(EVENT_WORDS * due + KEY)]
                register[SPARE] = due
                _deliver(program, state, key & ((np.int64(1) << register[TASK_BITS]) - 1), parted, ordered)
            due = take(state)
        if nics and not end_runs(program, state):
            return NEEDS_TOKENS
        if register[TOP] != NONE or (register[STIRRED] != NONE and grant(program, state, ordered)):
            continue
        if nics and not serve_nics(program, state):
            return NEEDS_TOKENS
        if not _serve_all(program, state, parted, ordered, routers):
            return NEEDS_TOKENS
        if register[LEFT] == 0:
            return FINISHED
        if register[EVENTS] >= limit:
            return PAUSED
        status = advance(program, state, until_ps)
        if status != FINISHED:
            return status
