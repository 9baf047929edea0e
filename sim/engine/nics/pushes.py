"""What engines of NICs push in the fifo loop, and the services that follow from it.

An engine pushes a run of released chunks without an event for each. Since the server of a NIC is fifo, a push also
determines the service; it is committed, with all pushes before it, at the latest when it begins.

Where the queue has room, the time at which an engine pushes the last chunk of a run is known beforehand: that is an
event, at which everything pushed before is committed. An engine that had to wait for room has that event when its last
chunk is pushed. As long as there is such an engine, the NIC looks at each push when it happens.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.lines import arrive_now
from sim.engine.core.nic_room import has_room, look_at, take_room_back, wait_for_end
from sim.engine.core.nic_state import (
    BACKLOG_WORDS,
    BUSY,
    CHILD,
    END_PS,
    FROM_PS,
    HAS_WAITED,
    IS_PUSHING,
    LAST_PS,
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
)
from sim.engine.core.service import service_ps
from sim.engine.core.state import (
    BUSY_PS,
    CHUNK_BITS,
    EVENTS,
    FREE_PS,
    HOP_BITS,
    JOINED,
    NOW,
    PUSHED,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
)
from sim.engine.core.status import NONE
from sim.engine.core.tasks import _let, _of, _size, log_service
from sim.engine.nics.heaps import add_engine, engine_at, let_wish, remove_first, replace_first, wish
from sim.engine.policies.faults import injected
from sim.program.contract import HEAD


@helper
def chooses(state, base):
    """Whether the server of a NIC chooses when it is free: what is pushed does not determine its service yet."""
    return state.chooses[u64(state.nic[u64(base + SERVER)])] != 0


@section
def begin_run(program, state, base, task, key, ordered):
    """A transfer has an engine, and chunks from that of `key` on are released."""
    at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
    place = (at << 32) | _size(program, task, _of(state, task, JOINED) - 1)
    add_engine(state, base, state.register[NOW], key, place)
    if ordered and chooses(state, base):
        return
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
    at, size = place >> 32, size_of(place)
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
        wait_for_end(state, base, end, program.chunk_work[u64(size)])


@helper
def _go_on(program, state, base, pushed_ps, key, place, is_first):
    """An engine has begun to push a chunk: what it pushes next, if that is released.

    `is_first`: whether the engine is the first of the heap, else it is not in the heap.
    """
    register = state.register
    task = key & ((np.int64(1) << register[TASK_BITS]) - 1)
    joined = _of(state, task, JOINED)
    done_ps = pushed_ps + program.push_ps[u64(size_of(place))]
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
            take_room_back(state, base, min(pushed_ps, present))
            while state.nic[u64(base + ROOM)] <= 0:
                end_ps = state.backlog[u64(BACKLOG_WORDS * state.nic[u64(base + OLDEST)] + END_PS)]
                pushed_ps = max(pushed_ps, end_ps)
                if pushed_ps > present:
                    break
                take_room_back(state, base, pushed_ps)
        if pushed_ps > present:
            return _look_again(program, state, base, pushed_ps)
        state.nic[u64(base + LAST_PS)] = pushed_ps
        key, place = state.engine[u64(first + NEXT_KEY)], state.engine[u64(first + NEXT_PLACE)]
        if watched:
            state.nic[u64(base + ROOM)] -= program.chunk_work[u64(size_of(place))]
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


@section
def push_now(program, state, base, faulty):
    """Push chunks into the queue of a server that chooses, when it happens. Returns False where there is no room."""
    present = state.register[NOW]
    take_room_back(state, base, present)
    while state.nic[u64(base + BUSY)] > 0 and state.nic[u64(base + ROOM)] > 0:
        if not has_room(state):
            return False
        first = engine_at(state, base, 0)
        key, place = state.engine[u64(first + NEXT_KEY)], state.engine[u64(first + NEXT_PLACE)]
        task = key & ((np.int64(1) << state.register[TASK_BITS]) - 1)
        remove_first(state, base)
        if state.nic[u64(base + WATCHED)] != 0:
            state.nic[u64(base + ROOM)] -= program.chunk_work[u64(size_of(place))]
        done_ps = present + program.push_ps[u64(size_of(place))]
        let_wish(state, task, SINCE, done_ps)
        let_wish(state, task, CHILD, 0)
        put(program, state, done_ps, task, np.int64(PUSHED), NONE)
        if faulty:
            key, place = injected(program, state, key, place, present)
        arrive_now(program, state, key, place)
    if state.nic[u64(base + BUSY)] > 0 and state.nic[u64(base + OLDEST)] != NONE:
        end_ps = state.backlog[u64(BACKLOG_WORDS * state.nic[u64(base + OLDEST)] + END_PS)]
        return look_at(program, state, base, end_ps)
    return True
