"""The fifo loop: healthy programs, from fifo servers alone to servers that choose, NICs, pools and buffers.

A fifo server is committed when a chunk arrives: start, end and next arrival are known then, so that the end of a
service is no event. Servers that choose are in sim/engine/policies/choose.py. The stages of a picosecond are those of
tests/oracles/general_loop/loop.py; the calendar is sim/engine/core/calendar.py.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, helper, section, u64
from sim.engine.core.calendar import advance, put, size_of, take
from sim.engine.core.lines import _arrive, _next_of, arrive_now
from sim.engine.core.nic_room import serves_chosen
from sim.engine.core.nodes import free_node
from sim.engine.core.service import service_ps
from sim.engine.core.state import (
    ARRIVED_PS,
    ASKS,
    BACKLOG_FREE,
    BLOCKS,
    BUSY_PS,
    CHOICE_WORDS,
    CHUNK_BITS,
    CHUNKS,
    EVENT_WORDS,
    EVENTS,
    FREE_NODES,
    FREE_PS,
    FRESH,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    LEFT,
    LINE,
    LINK,
    MOST,
    NOW,
    PLACE,
    RELEASED,
    RINGS,
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
from sim.engine.core.status import FAR, FINISHED, NEEDS_TOKENS, NONE, PAUSED, UNSTACKED
from sim.engine.core.tasks import _deliver, _gate_of, _key, _let, _of, _release, _size, _stack, log_service
from sim.engine.nics.posts import ask_nic, end_runs, happen, nic_at, serve_nics
from sim.engine.nics.pushes import has_room
from sim.engine.policies.choose import SHORT, SPARE_NODES, choose, choose_under_faults, look_at, wake
from sim.engine.policies.faults import (
    begins_at,
    conditions,
    has_space,
    injected,
    is_fresh,
    is_next,
    journal,
    lose,
    next_held,
    ring,
    set_timers,
    task_of,
)
from sim.engine.policies.pools import GRANTED, ask, asks, grant
from sim.engine.policies.rooms import change_rooms
from sim.program.contract import HEAD

_LOW = (1 << 32) - 1


@helper
def _pass_on(program, state, task, joined, ordered, faulty):
    """Deliver the released chunks of a task without servers, each once it has its units. Returns as `_join`."""
    register, granted = state.register, state.gate_ps[_gate_of(task)] == GRANTED
    while joined < _of(state, task, RELEASED):
        if not granted and asks(program, task, joined, ordered):
            if ordered and register[FREE_NODES] < SPARE_NODES:
                return False
            ask(program, state, task, joined, ordered, faulty)
            return True
        if granted:
            state.gate_ps[_gate_of(task)] = register[NOW]
            granted = False
        if joined == 0:
            state.start_ps[u64(task)] = register[NOW]
        joined += 1
        _let(state, task, JOINED, joined)
        _deliver(program, state, task, ordered)
    return True


@helper
def _ask_in_time(program, state, task, joined, gate, faulty):
    """Let a chunk ask for units once the chunk before it has left the first server. Returns as `_join`."""
    register = state.register
    if register[FREE_NODES] < SPARE_NODES or register[BLOCKS] == 0 or register[LATE] + 2 > state.late.size:
        return False
    if gate > register[NOW]:
        state.gate_ps[_gate_of(task)] = FAR
        put(program, state, gate, task, np.int64(ASKS), NONE)
    else:
        ask(program, state, task, joined, True, faulty)
    return True


@helper
def _join(program, state, task, nics, ordered, faulty):
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
        return _pass_on(program, state, task, joined, ordered, faulty)
    if ordered and gate != GRANTED and asks(program, task, joined, ordered):
        return _ask_in_time(program, state, task, joined, gate, faulty)
    if nics and nic_at(program, at) != NONE:
        if not has_room(state):
            return False
        _let(state, task, JOINED, joined + 1)
        state.gate_ps[_gate_of(task)] = FAR
        ask_nic(program, state, nic_at(program, at), task, _key(program, state, task, joined), ordered)
        return True
    if register[BLOCKS] == 0 or register[LATE] + 2 > state.late.size:
        return False
    key, place = _key(program, state, task, joined), (at << 32) | _size(program, task, joined)
    if faulty:
        key, place = injected(program, state, key, place, max(gate, register[NOW]))
    _let(state, task, JOINED, joined + 1)
    state.gate_ps[_gate_of(task)] = FAR
    if gate > register[NOW]:
        put(program, state, gate, key, place, NONE)
    else:
        arrive_now(program, state, key, place)
    return True


@section
def _settle(program, state, nics, ordered, faulty):
    """Look at every task on the stack, until none is left. Returns False where there is no room left."""
    register = state.register
    while register[TOP] != NONE:
        task = register[TOP]
        register[TOP] = _of(state, task, LINK)
        _let(state, task, LINK, UNSTACKED)
        _release(program, state, task)
        if not _join(program, state, task, nics, ordered, faulty):
            _stack(state, task)
            return False
    return True


@helper
def _serve(program, state, server, event, nics, ordered, routers, faulty):
    """Serve an event that has just arrived at a server, after all that came before it.

    `nics`, `ordered`, `routers` and `faulty` are constants of each entry, here and below: a branch that an entry never
    takes is not compiled.
    """
    register = state.register
    key = state.event[u64(EVENT_WORDS * event + KEY)]
    place = state.event[u64(EVENT_WORDS * event + PLACE)]
    at, size = place >> 32, size_of(place)
    base = SERVER_WORDS * server
    start = max(register[NOW], state.server[u64(base + FREE_PS)])
    extra, lost = np.int64(0), False
    if faulty and state.chooses[u64(server)] != 0:
        service, extra, lost = conditions(program, state, server, key, place)
    else:
        service = service_ps(program, size, program.server_rate[u64(server)])
    end = start + service
    state.server[u64(base + FREE_PS)] = end
    state.server[u64(base + BUSY_PS)] += service
    register[EVENTS] += 1
    hop = u64(state.event[u64(EVENT_WORDS * event + TIME)] & _LOW)
    latency = program.hop_latency_ps[hop] + extra
    task = key & ((np.int64(1) << register[TASK_BITS]) - 1)
    one = np.int64(1) << register[TASK_BITS]
    chunk = (key >> (register[TASK_BITS] + register[HOP_BITS])) & ((np.int64(1) << register[CHUNK_BITS]) - 1)
    last, onward = program.hop_last[hop] != 0, place + (np.int64(1) << 32)
    if faulty:
        begins, onward = is_fresh(place), onward & ~np.int64(FRESH)
    else:
        begins = (key >> register[TASK_BITS]) & ((np.int64(1) << register[HOP_BITS]) - 1) == 0
        if state.log_base.size:
            log_service(program, state, server, start, task, chunk, at)
    ready = end + latency
    if lost:
        lose(program, state, server, key, place & ~np.int64(FRESH), start, end)
    elif last:
        ready = (start if program.hop_last[hop] == HEAD else end) + latency
        put(program, state, ready, key, NONE, event)
    else:
        following = program.hop_server[u64(program.route_hop[u64(at + 1)])]
        if program.cut_through:
            after = program.server_rate[u64(following)]
            ready = max(start + latency, ready - service_ps(program, size, after))
        put(program, state, ready, key + one, onward, event)
    if faulty and not lost:
        journal(state, key, place, register[ARRIVED_PS], start, end, ready)
    if routers:
        first = begins_at(program, at) if faulty else begins
        change_rooms(program, state, server, np.int64(hop), place, first, last, lost, end, ready)
    of_nic = nics and ordered and program.server_nic[u64(server)] != NONE
    if of_nic and state.chooses[u64(server)] != 0:
        serves_chosen(program, state, server, end, place)
    if begins:
        if chunk == 0:
            state.start_ps[u64(task)] = start
        if not of_nic:
            _follow(program, state, server, task, key, at, chunk + 1, end, ordered, faulty)


@helper
def _follow(program, state, server, task, key, at, joined, end, ordered, faulty):
    """Let the next chunk of a task join its first server, which is done with the one before at `end`."""
    register = state.register
    if joined == _of(state, task, RELEASED):
        state.gate_ps[_gate_of(task)] = end
    elif ordered and asks(program, task, joined, ordered):
        put(program, state, end, task, np.int64(ASKS), NONE)
    else:
        _let(state, task, JOINED, joined + 1)
        key += np.int64(1) << (register[TASK_BITS] + register[HOP_BITS])
        place = (at << 32) | _size(program, task, joined)
        if faulty:
            key, place = injected(program, state, key, place, end)
        put(program, state, end, key, place, NONE)
        if ordered and (not faulty or program.hop_server[u64(program.route_hop[u64(place >> 32)])] == server):
            state.choice[u64(CHOICE_WORDS * server + WAKE_PS)] = end


@helper
def _may_serve(state, ordered, routers, faulty):
    """Whether there is memory for a service: for two events, or for up to MOST of a server that chooses, and nodes."""
    register = state.register
    most = register[MOST] if ordered else np.int64(2)
    if faulty:
        return has_space(state, most)
    if routers and (register[FREE_NODES] < SPARE_NODES or register[BACKLOG_FREE] == NONE):
        return False
    return register[BLOCKS] >= most and register[LATE] + most <= state.late.size


@helper
def _serve_all(program, state, nics, ordered, routers, faulty):
    """Serve what arrived in this picosecond. Returns False where there is no room left."""
    register = state.register
    while register[SERVED] < register[TOUCHED]:
        server = np.int64(state.touched[u64(register[SERVED])])
        line = u64(SERVER_WORDS * server + LINE)
        event = state.server[line] >> 32
        while event != NONE:
            if not _may_serve(state, ordered, routers, faulty):
                state.server[line] = (event << 32) | (state.server[line] & _LOW)
                return False
            after = _next_of(state, event)
            chooses = ordered and state.chooses[u64(server)] != 0
            if chooses:
                after = np.int64(NONE)
                if faulty:
                    event = choose_under_faults(program, state, server, event)
                else:
                    event = choose(program, state, server, event, routers)
                if event == SHORT:
                    return False
            elif faulty:
                register[ARRIVED_PS] = register[NOW]
            if not chooses or event != NONE:
                _serve(program, state, server, event, nics, ordered, routers, faulty)
            if chooses:
                wake(program, state, server, routers, faulty)
            event = after
        register[SERVED] += 1
    register[SERVED] = register[TOUCHED] = 0
    return True


@helper
def _deliver_in_order(program, state, key):
    """Deliver a chunk that is in, and those that were in before it and waited for it; or let it wait."""
    if not is_next(state, key):
        return
    task = task_of(state, key)
    _deliver(program, state, task, True)
    node = next_held(state, task)
    while node != NONE:
        free_node(state, node)
        _deliver(program, state, task, True)
        node = next_held(state, task)


@helper
def _happen(program, state, event, nics, ordered, faulty):
    """An event of this picosecond: an arrival waits for its turn, the others take effect."""
    register, place = state.register, state.event[u64(EVENT_WORDS * event + PLACE)]
    if place >= 0:
        _arrive(program, state, event)
        return
    key = state.event[u64(EVENT_WORDS * event + KEY)]
    if ordered and place == WOKEN:
        look_at(state, event)
    elif ordered and place == ASKS:
        register[SPARE] = event
        state.gate_ps[_gate_of(key)] = register[NOW]
        _stack(state, key)
    elif faulty and place == RINGS:
        register[SPARE] = event
        ring(state, key, _of(state, key, CHUNKS))
    elif nics and place != NONE:
        happen(program, state, event, place)
    else:
        register[SPARE] = event
        if faulty:
            _deliver_in_order(program, state, key)
        else:
            _deliver(program, state, key & ((np.int64(1) << register[TASK_BITS]) - 1), ordered)


@entry
def run_fifo(program, state, max_events, until_ps):
    """Run a program of fifo servers and simple pools until it ends or a limit is reached, between two picoseconds.

    Parameters
    ----------
    program : Program
    state : FifoState
        Updated; a later call goes on from it.
    max_events : int
        Pause after the picosecond in which this many more services have begun.
    until_ps : int
        Pause before the first event later than this.

    Returns
    -------
    int
        FINISHED, PAUSED, STUCK, OUT_OF_ORDER, or NEEDS_TOKENS: call again with more room.
    """
    return fifo_loop(program, state, max_events, until_ps, False, False, False, False)


@entry
def run_fifo_nics(program, state, max_events, until_ps):
    """Run such a program with NICs."""
    return fifo_loop(program, state, max_events, until_ps, True, False, False, False)


@entry
def run_ordered(program, state, max_events, until_ps):
    """Run a program with servers that choose by a rank, and any pools."""
    return fifo_loop(program, state, max_events, until_ps, False, True, False, False)


@entry
def run_links(program, state, max_events, until_ps):
    """Run a program with turns, channels or buffers, or with NICs beside ranks or pools; `server_nic` may be -1."""
    return fifo_loop(program, state, max_events, until_ps, True, True, True, False)


@entry
def run_faulty(program, state, max_events, until_ps):
    """Run any program, also one in which something changes in time; `server_nic` may be -1."""
    return fifo_loop(program, state, max_events, until_ps, True, True, True, True)


@section
def fifo_loop(program, state, max_events, until_ps, nics, ordered, routers, faulty):
    """The loop of all entries above."""
    register = state.register
    limit = register[EVENTS] + max_events
    if faulty and not set_timers(program, state):
        return NEEDS_TOKENS
    while True:
        if register[TOP] != NONE and not _settle(program, state, nics, ordered, faulty):
            return NEEDS_TOKENS
        # A chunk that is in before another one waits in a node.
        if faulty and register[FREE_NODES] < SPARE_NODES:
            return NEEDS_TOKENS
        due = take(state)
        while due != NONE:
            _happen(program, state, due, nics, ordered, faulty)
            if faulty and register[FREE_NODES] < SPARE_NODES:
                return NEEDS_TOKENS
            due = take(state)
        if nics and not end_runs(program, state, ordered):
            return NEEDS_TOKENS
        if register[TOP] != NONE or (register[STIRRED] != NONE and grant(program, state, ordered, faulty)):
            continue
        if nics and not serve_nics(program, state, ordered, faulty):
            return NEEDS_TOKENS
        if not _serve_all(program, state, nics, ordered, routers, faulty):
            return NEEDS_TOKENS
        if register[LEFT] == 0:
            return FINISHED
        if register[EVENTS] >= limit:
            return PAUSED
        status = advance(program, state, until_ps)
        if status != FINISHED:
            return status
