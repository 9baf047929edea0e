"""What engines of NICs push in the fifo loop, and the services that follow from it.

An engine pushes a run of released chunks without an event for each. Since the server of a NIC is fifo, a push also
determines the service; it is committed, with all pushes before it, at the latest when it begins.

Where the queue has room, the time at which an engine pushes the last chunk of a run is known beforehand: that is an
event, at which everything pushed before is committed. An engine that had to wait for room has that event when its last
chunk is pushed. As long as there is such an engine, the NIC looks at each push when it happens.
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import put
from sim.engine._fifo_nic_heaps import add_engine, engine_at, let_wish, remove_first, replace_first, wish
from sim.engine._fifo_nic_state import (
    BACKLOG_WORDS,
    BEHIND,
    BUSY,
    CHILD,
    END_PS,
    FROM_PS,
    HAS_WAITED,
    IS_PUSHING,
    LAST_PS,
    LOOK_PS,
    NEWEST,
    NEXT,
    NEXT_KEY,
    NEXT_PLACE,
    OLDEST,
    ROOM,
    SERVER,
    SINCE,
    TOGETHER,
    WAITED,
    WANTED,
    WATCHED,
    WORK,
)
from sim.engine._fifo_state import (
    ALARM,
    BACKLOG_FREE,
    BLOCKS,
    BUSY_PS,
    CHUNK_BITS,
    EVENTS,
    FREE_PS,
    HOP_BITS,
    JOINED,
    LATE,
    NOW,
    PUSHED,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
)
from sim.engine._fifo_task import _let, _of, _size, log_service
from sim.engine._jit import helper, section, u64
from sim.engine._service import service_ps
from sim.engine._state import NONE
from sim.program.contract import HEAD

_LOW = (1 << 32) - 1


@helper
def has_room(state):
    """Whether a NIC may do one thing more."""
    register = state.register
    return register[BLOCKS] > 1 and register[LATE] + 2 <= state.late.size and register[BACKLOG_FREE] != NONE


@section
def begin_run(program, state, base, task, key):
    """A transfer has an engine, and chunks from that of `key` on are released."""
    at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
    place = (at << 32) | _size(program, task, _of(state, task, JOINED) - 1)
    add_engine(state, base, state.register[NOW], key, place)
    let_wish(state, task, CHILD, IS_PUSHING)
    expect_end(program, state, base, task)


@section
def expect_end(program, state, base, task):
    """Set an event for the end of a run, if it does not wait for room any more; or know that it has."""
    if state.nic[u64(base + WATCHED)] != 0 and state.nic[u64(base + ROOM)] <= state.nic[u64(base + WATCHED)]:
        let_wish(state, task, CHILD, IS_PUSHING | HAS_WAITED)
        state.nic[u64(base + WAITED)] += 1
        return
    cut, chunk = u64(program.task_cut[u64(task)]), _of(state, task, JOINED) - 1
    n_chunks = _of(state, task, RELEASED) - chunk
    n_first = min(max(np.int64(program.cut_first[cut]) - chunk, 0), n_chunks)
    lasts = n_first * program.push_ps[u64(program.cut_size[cut, 0])]
    lasts += (n_chunks - n_first) * program.push_ps[u64(program.cut_size[cut, 1])]
    put(program, state, state.register[NOW] + lasts, task, np.int64(PUSHED), NONE)


@helper
def _chunk(state, key):
    register = state.register
    return (key >> (register[TASK_BITS] + register[HOP_BITS])) & ((np.int64(1) << register[CHUNK_BITS]) - 1)


@helper
def _commit(program, state, base, pushed_ps, key, place):
    """The service of a chunk that was pushed: after all that were pushed before."""
    register = state.register
    at, size = place >> 32, place & _LOW
    server = state.nic[u64(base + SERVER)]
    words = SERVER_WORDS * server
    service = service_ps(program, size, program.server_rate[u64(server)])
    start = max(pushed_ps, state.server[u64(words + FREE_PS)])
    end = start + service
    state.server[u64(words + FREE_PS)] = end
    state.server[u64(words + BUSY_PS)] += service
    register[EVENTS] += 1
    hop = u64(program.route_hop[u64(at)])
    latency = program.hop_latency_ps[hop]
    task, chunk = key & ((np.int64(1) << register[TASK_BITS]) - 1), _chunk(state, key)
    if chunk == 0:
        state.start_ps[u64(task)] = start
    if state.log_base.size:
        log_service(program, state, server, start, task, chunk, at)
    if program.hop_last[hop] != 0:
        put(program, state, (start if program.hop_last[hop] == HEAD else end) + latency, key, np.int64(NONE), NONE)
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[u64(program.hop_server[u64(program.route_hop[u64(at + 1)])])]
            ready = max(start + latency, ready - service_ps(program, size, after))
        put(program, state, ready, key + (np.int64(1) << register[TASK_BITS]), place + (np.int64(1) << 32), NONE)
    if state.nic[u64(base + WATCHED)] != 0:
        _wait_for_end(state, base, end, program.chunk_work[u64(size)])


@helper
def _wait_for_end(state, base, end, work):
    """Remember a service until its end gives room back."""
    node = state.register[BACKLOG_FREE]
    words = BACKLOG_WORDS * node
    state.register[BACKLOG_FREE] = state.backlog[u64(words + BEHIND)]
    state.backlog[u64(words + END_PS)] = end
    state.backlog[u64(words + WORK)] = work
    state.backlog[u64(words + BEHIND)] = NONE
    if state.nic[u64(base + OLDEST)] == NONE:
        state.nic[u64(base + OLDEST)] = node
    else:
        state.backlog[u64(BACKLOG_WORDS * state.nic[u64(base + NEWEST)] + BEHIND)] = node
    state.nic[u64(base + NEWEST)] = node


@helper
def _take_room_back(state, base, present):
    """What services that have ended give back."""
    node = state.nic[u64(base + OLDEST)]
    while node != NONE and state.backlog[u64(BACKLOG_WORDS * node + END_PS)] <= present:
        words = BACKLOG_WORDS * node
        state.nic[u64(base + ROOM)] += state.backlog[u64(words + WORK)]
        after = state.backlog[u64(words + BEHIND)]
        state.backlog[u64(words + BEHIND)] = state.register[BACKLOG_FREE]
        state.register[BACKLOG_FREE] = node
        node = after
    state.nic[u64(base + OLDEST)] = node


@helper
def _go_on(program, state, base, pushed_ps, key, place, is_first):
    """An engine has begun to push a chunk: what it pushes next, if that is released.

    `is_first`: whether the engine is the first of the heap, else it is not in the heap.
    """
    register = state.register
    task = key & ((np.int64(1) << register[TASK_BITS]) - 1)
    joined = _of(state, task, JOINED)
    done_ps = pushed_ps + program.push_ps[u64(place & _LOW)]
    if joined < _of(state, task, RELEASED):
        _let(state, task, JOINED, joined + 1)
        key += np.int64(1) << (register[TASK_BITS] + register[HOP_BITS])
        place = (place >> 32 << 32) | _size(program, task, joined)
        if is_first:
            replace_first(state, base, done_ps, key, place)
        else:
            add_engine(state, base, done_ps, key, place)
        return
    if is_first:
        remove_first(state, base)
    let_wish(state, task, SINCE, done_ps)
    if wish(state, task, CHILD) & HAS_WAITED:
        state.nic[u64(base + WAITED)] -= 1
        put(program, state, done_ps, task, np.int64(PUSHED), NONE)
    let_wish(state, task, CHILD, 0)


@section
def _commit_together(program, state, base):
    """Commit chunks pushed in one picosecond, of which some had waited, in the order of their keys."""
    while state.nic[u64(base + TOGETHER)] != NONE:
        if not has_room(state):
            return False
        task = state.nic[u64(base + TOGETHER)]
        state.nic[u64(base + TOGETHER)] = wish(state, task, NEXT)
        key = wish(state, task, WANTED)
        at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
        place = (at << 32) | _size(program, task, _chunk(state, key))
        pushed_ps = state.nic[u64(base + LAST_PS)]
        _commit(program, state, base, pushed_ps, key, place)
        _go_on(program, state, base, pushed_ps, key, place, False)
    return True


@section
def _push_together(state, base):
    """Take the first engine out of the heap, and put its chunk among those that are committed together."""
    first = engine_at(state, base, 0)
    key = state.engine[u64(first + NEXT_KEY)]
    task = key & ((np.int64(1) << state.register[TASK_BITS]) - 1)
    remove_first(state, base)
    let_wish(state, task, WANTED, key)
    before, behind = np.int64(NONE), state.nic[u64(base + TOGETHER)]
    while behind != NONE and wish(state, behind, WANTED) < key:
        before, behind = behind, wish(state, behind, NEXT)
    let_wish(state, task, NEXT, behind)
    if before == NONE:
        state.nic[u64(base + TOGETHER)] = task
    else:
        let_wish(state, before, NEXT, task)


@section
def push_until(program, state, base, present):
    """Commit all that is pushed by the present, or before it. Returns False where there is no room left."""
    watched = state.nic[u64(base + WATCHED)] != 0
    while state.nic[u64(base + BUSY)] > 0 or state.nic[u64(base + TOGETHER)] != NONE:
        if state.nic[u64(base + BUSY)] == 0:
            if not _commit_together(program, state, base):
                return False
            continue
        # Room of the queue and the time of the last push change together or not at all: memory is reserved before.
        if not has_room(state):
            return False
        first = engine_at(state, base, 0)
        from_ps = state.engine[u64(first + FROM_PS)]
        pushed_ps = max(from_ps, state.nic[u64(base + LAST_PS)])
        if state.nic[u64(base + TOGETHER)] != NONE and (
            state.nic[u64(base + ROOM)] <= 0 or pushed_ps > state.nic[u64(base + LAST_PS)]
        ):
            if not _commit_together(program, state, base):
                return False
            continue
        if watched:
            _take_room_back(state, base, min(pushed_ps, present))
            while state.nic[u64(base + ROOM)] <= 0:
                end_ps = state.backlog[u64(BACKLOG_WORDS * state.nic[u64(base + OLDEST)] + END_PS)]
                pushed_ps = max(pushed_ps, end_ps)
                if pushed_ps > present:
                    break
                _take_room_back(state, base, pushed_ps)
        if pushed_ps > present:
            return _look_again(program, state, base, pushed_ps)
        state.nic[u64(base + LAST_PS)] = pushed_ps
        key, place = state.engine[u64(first + NEXT_KEY)], state.engine[u64(first + NEXT_PLACE)]
        if watched:
            state.nic[u64(base + ROOM)] -= program.chunk_work[u64(place & _LOW)]
        others_may = pushed_ps > from_ps and state.nic[u64(base + ROOM)] > 0  # be pushed now, and served before
        if watched and (others_may or state.nic[u64(base + TOGETHER)] != NONE):
            _push_together(state, base)
        else:
            _commit(program, state, base, pushed_ps, key, place)
            _go_on(program, state, base, pushed_ps, key, place, True)
    return True


@helper
def _look_again(program, state, base, pushed_ps):
    """Set an event for the next push, or for the begin of its service, unless the NIC is looked at now anyway."""
    if pushed_ps <= state.register[NOW]:
        return True
    if state.nic[u64(base + WAITED)] == 0:
        server = state.nic[u64(base + SERVER)]
        pushed_ps = max(pushed_ps, state.server[u64(SERVER_WORDS * server + FREE_PS)])
    return look_at(program, state, base, pushed_ps)


@helper
def look_at(program, state, base, time):
    """Look at a NIC at a later time. Returns False where there is no room left."""
    if time < state.nic[u64(base + LOOK_PS)]:
        if not has_room(state):
            return False
        state.nic[u64(base + LOOK_PS)] = time
        put(program, state, time, base, np.int64(ALARM), NONE)
    return True
