"""The kernel that resumes the engine from a tape: the state of a run at the begin of a picosecond, out of a sweep.

A sweep with other times goes wrong where an op arrives before the one in front of it at its server, or together with
it and their tie reversed. The first change is the least arrival of all such ops. All before that picosecond is true:

    At each server, the ops that arrive before the first change are the first on the tape, and in order; else one of
    them would come too soon behind another, and be a change before the first. Suppose that an arrival before the
    first change is not that of the run, or one of the run is missing, and take the earliest. What it waits for arrived
    earlier still, hence truly; and began truly, as what came to its server before it is the same, in the same order.
    So its own arrival is true.

The sweep does not end where it finds a change: ops are in the order of their recorded starts, and any op behind may
still arrive earlier. Any picosecond before the first change would do as well, but is no sooner known.

What the fifo loop knows at the begin of a picosecond follows from what arrived before it, as a service is committed on
arrival: free and busy times of servers, chunks that joined and were delivered, and by these how many are released and
what the next one misses. What waits in the calendar are arrivals and deliveries from that picosecond on, of which the
cause lies before it: the service at the hop before, or at the first hop that of the chunk before. What is released in
that picosecond or later is not known yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.engine.compile.door import entry, helper, u64
from sim.engine.compile.pointers import by_pointer
from sim.engine.core.calendar import put
from sim.engine.core.state import (
    BUSY_PS,
    CHUNKS,
    DELIVERED,
    EVENT_WORDS,
    EVENTS,
    FREE_PS,
    JOINED,
    KEY,
    LEFT,
    LINK,
    MAKESPAN,
    MISSING,
    NOW,
    PLACE,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
    TIME,
    TOP,
    WIDTH,
)
from sim.engine.core.status import FAR, NONE, UNSTACKED
from sim.engine.core.tasks import _gate_of, _key, _let, _needed, _of, _size
from sim.program import I32, I64


@by_pointer
class Places(NamedTuple):
    """Where the services and deliveries of a program are on its tape.

    Attributes
    ----------
    log_base : (T+1,) int64
        Rows of each task, as in a log.
    op_of : (n_services,) int32
        Op of each row.
    before : (n_services,) int64
        Row of the service that the same server did before, -1 for its first.
    empty_base, empty_op : (T,), (n,) int32
        Where the ops of a task without servers begin in `empty_op`, -1 for others; its deliveries.
    """

    log_base: I64
    op_of: I32
    before: I64
    empty_base: I32
    empty_op: I32


@by_pointer
class Swept(NamedTuple):
    """What a sweep found: when what follows an op may begin, and the end of its service, (n,) each; and the service of
    each kind.
    """

    out: I64
    end: I64
    service_ps: I64


@helper
def _arrival(ops, swept, op):
    return max(swept.out[u64(ops.pred[u64(op)])], swept.end[u64(ops.gate[u64(op)])])


@helper
def _wait(events, count, time, key, place):
    """Note an event; returns how many there are."""
    at = EVENT_WORDS * count
    events[u64(at + TIME)] = time
    events[u64(at + KEY)] = key
    events[u64(at + PLACE)] = place
    return count + 1


@helper
def _commit(state, places, row, server, end, service):
    """Bring a service that arrived before the first change into the state; its server did the same before it."""
    base = SERVER_WORDS * server
    state.server[u64(base + BUSY_PS)] += service
    state.register[EVENTS] += 1
    if state.log_base.size:
        state.log_start_ps[u64(row)] = end - service
        state.log_before[u64(row)] = places.before[u64(row)]
        if end > state.server[u64(base + FREE_PS)]:
            state.last_row[u64(server)] = row
    state.server[u64(base + FREE_PS)] = max(state.server[u64(base + FREE_PS)], end)


@helper
def _restore_chunk(program, state, ops, swept, places, before_ps, events, count, task, chunk, first, hops):
    """Let a chunk that joined before the first change come as far as it did; returns how many events there are."""
    key, size = _key(program, state, task, chunk), _size(program, task, chunk)
    row = places.log_base[u64(task)] + chunk * hops
    op = np.int64(0)
    for hop in range(hops):
        op = np.int64(places.op_of[u64(row + hop)])
        arrival = _arrival(ops, swept, op)
        if arrival >= before_ps:
            key += np.int64(hop) << state.register[TASK_BITS]
            return _wait(events, count, arrival, key, ((first + hop) << 32) | size)
        service = swept.service_ps[u64(ops.kind[u64(op)] >> 1)]
        _commit(state, places, row + hop, np.int64(ops.server[u64(op)]), swept.end[u64(op)], service)
    if swept.out[u64(op)] >= before_ps:
        key += np.int64(hops - 1) << state.register[TASK_BITS]
        return _wait(events, count, swept.out[u64(op)], key, np.int64(NONE))
    _let(state, task, DELIVERED, chunk + 1)
    state.gate_ps[_gate_of(task)] = swept.out[u64(op)]
    return count


@helper
def _restore_chunks(program, state, ops, swept, places, before_ps, events, count, task, first, hops):
    """Let all chunks of a task do so. Its gate is its finish if it has one, else the end at the first server."""
    chunks, chunk, gate = _of(state, task, CHUNKS), np.int64(0), np.int64(0)
    while chunk < chunks:
        op = np.int64(places.op_of[u64(places.log_base[u64(task)] + chunk * hops)])
        if _arrival(ops, swept, op) >= before_ps:
            break
        gate = swept.end[u64(op)]
        if chunk == 0:
            state.start_ps[u64(task)] = gate - swept.service_ps[u64(ops.kind[u64(op)] >> 1)]
        count = _restore_chunk(program, state, ops, swept, places, before_ps, events, count, task, chunk, first, hops)
        chunk += 1
    _let(state, task, JOINED, chunk)
    if _of(state, task, DELIVERED) < chunks:
        state.gate_ps[_gate_of(task)] = gate
    return count


@helper
def _restore_empty(state, swept, places, before_ps, task):
    """Deliver what a task without servers delivered before the first change."""
    chunks, chunk = _of(state, task, CHUNKS), np.int64(0)
    while chunk < chunks:
        delivery = swept.out[u64(places.empty_op[u64(places.empty_base[u64(task)] + chunk)])]
        if delivery >= before_ps:
            break
        if chunk == 0:
            state.start_ps[u64(task)] = delivery
        chunk += 1
        if chunk == chunks:
            state.gate_ps[_gate_of(task)] = delivery
    _let(state, task, JOINED, chunk)
    _let(state, task, DELIVERED, chunk)


@helper
def _released(program, state, task):
    """Chunks of a task that are released, by what its parents delivered."""
    chunks = _of(state, task, CHUNKS)
    released = chunks
    if _of(state, task, MISSING) > 0:
        return np.int64(0)
    if program.parent.size:
        for edge in range(program.parent_ptr[u64(task)], program.parent_ptr[u64(task + 1)]):
            parent = np.int64(program.parent[u64(edge)])
            lag = np.int64(program.parent_lag[u64(edge)]) if program.parent_lag.size else np.int64(0)
            delivered = _of(state, parent, DELIVERED)
            if lag > 0:
                released = min(released, delivered + lag)
            else:
                released = min(released, delivered * chunks // _of(state, parent, CHUNKS))
    return released


@helper
def _restore_waits(program, state, task):
    """Release the chunks of a task, and count the parents that hold back the next; whole ones are counted."""
    chunks, released = _of(state, task, CHUNKS), _released(program, state, task)
    missing = _of(state, task, MISSING)
    if released < chunks and program.parent.size:
        for edge in range(program.parent_ptr[u64(task)], program.parent_ptr[u64(task + 1)]):
            parent = np.int64(program.parent[u64(edge)])
            lag = np.int64(program.parent_lag[u64(edge)]) if program.parent_lag.size else np.int64(0)
            missing += _needed(released, _of(state, parent, CHUNKS), chunks, lag) > _of(state, parent, DELIVERED)
    _let(state, task, MISSING, missing)
    _let(state, task, RELEASED, released)


@helper
def _count_whole(program, state, task):
    """Note a task that has finished, or let its children wait for it."""
    register = state.register
    if _of(state, task, DELIVERED) == _of(state, task, CHUNKS):
        register[LEFT] -= 1
        register[MAKESPAN] = max(register[MAKESPAN], state.gate_ps[_gate_of(task)])
    elif program.whole_child.size:
        for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
            child = np.int64(program.whole_child[u64(edge)])
            _let(state, child, MISSING, _of(state, child, MISSING) + 1)


@helper
def _restore_first(program, state, task, first, events, count):
    """Let the next chunk of a task wait for its first server, if it is released; returns how many events there are."""
    joined = _of(state, task, JOINED)
    if joined == _of(state, task, RELEASED):
        return count
    gate = state.gate_ps[_gate_of(task)]
    _let(state, task, JOINED, joined + 1)
    state.gate_ps[_gate_of(task)] = FAR
    place = (first << 32) | _size(program, task, joined)
    return _wait(events, count, gate, _key(program, state, task, joined), place)


@helper
def _hops(program, task):
    """Place of the first hop of a task, and how many it has."""
    route = program.task_route[u64(task)]
    first = np.int64(program.route_ptr[u64(route)])
    return first, np.int64(program.route_ptr[u64(route + 1)]) - first


@entry
def restore(program, state, ops, swept, places, before_ps, events):
    """Bring a state from before the first picosecond to the begin of a later one, but for its calendar.

    Parameters
    ----------
    places : Places
    before_ps : int
        The picosecond, not later than the first change, and not 0.
    events : (n * EVENT_WORDS,) int64
        Becomes what waits; with room for an event of each service and each task.

    Returns
    -------
    int
        Events that wait.
    """
    tasks = program.task_route.size
    for task in range(tasks):
        _let(state, task, MISSING, 0)
        _let(state, task, LINK, UNSTACKED)
    state.register[TOP] = NONE
    count = np.int64(0)
    for task in range(tasks):
        first, hops = _hops(program, task)
        if hops == 0:
            _restore_empty(state, swept, places, before_ps, task)
        else:
            count = _restore_chunks(program, state, ops, swept, places, before_ps, events, count, task, first, hops)
        _count_whole(program, state, task)
    for task in range(tasks):
        _restore_waits(program, state, task)
        first, hops = _hops(program, task)
        if hops > 0:
            count = _restore_first(program, state, task, first, events, count)
    return count


@entry
def fill(program, state, events, count, before_ps):
    """Put what waits into the empty calendar, which has a block for each; the present becomes a time before all."""
    register = state.register
    register[NOW] = ((before_ps >> register[WIDTH]) << register[WIDTH]) - 1
    for i in range(count):
        at = EVENT_WORDS * i
        put(program, state, events[u64(at + TIME)], events[u64(at + KEY)], events[u64(at + PLACE)], NONE)
