"""What engines of NICs push in the fifo loop, and the services that follow from it.

An engine pushes a run of released chunks without an event for each. Since the server of a NIC is fifo, a push also
determines the service; it is committed, with all pushes before it, at the latest when it begins.

Where the queue has room, the time at which an engine pushes the last chunk of a run is known beforehand: that is an
event, at which everything pushed before is committed. An engine that had to wait for room has that event when its last
chunk is pushed. As long as there is such an engine, the NIC looks at each push when it happens.
"""

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.calendar import put, size_of
from sim.engine.core.lines import arrive_now
from sim.engine.core.nic_room import has_room, look_at, take_room_back, wait_for_end
from sim.engine.core.state import PUSHED
from sim.engine.core.status import NONE
from sim.engine.core.tasks import _size, log_service, service_ps
from sim.engine.nics.heaps import add_engine, engine_at, remove_first, replace_first
from sim.engine.policies.faults import injected
from sim.program.contract import HEAD

IS_PUSHING, HAS_WAITED = 1, 2
"""What an engine does, in place of the first child of its transfer."""


@helper
def chooses(state, nic):
    """Whether the server of a NIC chooses when it is free: what is pushed does not determine its service yet."""
    return state.chooses[state.nics[nic].server] != 0


@section
def begin_run(program, state, nic, task, key, ordered):
    """A transfer has an engine, and chunks from that of `key` on are released."""
    at = np.int64(program.route_ptr[program.task_route[task]])
    place = (at << 32) | _size(program, task, state.tasks[task].joined - 1)
    add_engine(state, nic, state.run.now_ps, key, place)
    if ordered and chooses(state, nic):
        return
    state.wishes[task].child = IS_PUSHING
    expect_end(program, state, nic, task)


@section
def expect_end(program, state, nic, task):
    """Set an event for the end of a run, if it does not wait for room any more; or know that it has."""
    its = state.nics[nic]
    if its.watched != 0 and its.room <= its.watched:
        state.wishes[task].child = IS_PUSHING | HAS_WAITED
        its.waited += 1
        return
    cut, chunk = program.task_cut[task], state.tasks[task].joined - 1
    n_chunks = state.tasks[task].released - chunk
    n_first = min(max(np.int64(program.cut_first[cut]) - chunk, 0), n_chunks)
    lasts = n_first * program.push_ps[program.cut_size[u64(cut), 0]]
    lasts += (n_chunks - n_first) * program.push_ps[program.cut_size[u64(cut), 1]]
    put(program, state, state.run.now_ps + lasts, task, np.int64(PUSHED), NONE)


@helper
def _chunk(state, key):
    run = state.run
    return (key >> (run.task_bits + run.hop_bits)) & ((np.int64(1) << run.chunk_bits) - 1)


@helper
def _commit(program, state, nic, pushed_ps, key, place):
    """The service of a chunk that was pushed: after all that were pushed before."""
    run = state.run
    at, size = place >> 32, size_of(place)
    server = state.nics[nic].server
    its = state.servers[server]
    service = service_ps(program, size, program.server_rate[server])
    start = max(pushed_ps, its.free_ps)
    end = start + service
    its.free_ps = end
    its.busy_ps += service
    run.events += 1
    hop = program.route_hop[at]
    latency = program.hop_latency_ps[hop]
    task, chunk = key & ((np.int64(1) << run.task_bits) - 1), _chunk(state, key)
    if chunk == 0 and state.start_ps.size:
        state.start_ps[task] = start
    if state.log_base.size:
        log_service(program, state, server, start, task, chunk, at)
    if program.hop_last[hop] != 0:
        put(program, state, (start if program.hop_last[hop] == HEAD else end) + latency, key, np.int64(NONE), NONE)
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[program.hop_server[program.route_hop[at + 1]]]
            ready = max(start + latency, ready - service_ps(program, size, after))
        put(program, state, ready, key + (np.int64(1) << run.task_bits), place + (np.int64(1) << 32), NONE)
    if state.nics[nic].watched != 0:
        wait_for_end(state, nic, end, program.chunk_work[size])


@helper
def _go_on(program, state, nic, pushed_ps, key, place, is_first):
    """An engine has begun to push a chunk: what it pushes next, if that is released.

    `is_first`: whether the engine is the first of the heap, else it is not in the heap.
    """
    run = state.run
    task = key & ((np.int64(1) << run.task_bits) - 1)
    joined = state.tasks[task].joined
    done_ps = pushed_ps + program.push_ps[size_of(place)]
    if joined < state.tasks[task].released:
        state.tasks[task].joined = joined + 1
        key += np.int64(1) << (run.task_bits + run.hop_bits)
        place = (place >> 32 << 32) | _size(program, task, joined)
        if is_first:
            replace_first(state, nic, done_ps, key, place)
        else:
            add_engine(state, nic, done_ps, key, place)
        return
    if is_first:
        remove_first(state, nic)
    wish = state.wishes[task]
    wish.since_ps = done_ps
    if wish.child & HAS_WAITED:
        state.nics[nic].waited -= 1
        put(program, state, done_ps, task, np.int64(PUSHED), NONE)
    wish.child = 0


@section
def _commit_together(program, state, nic):
    """Commit chunks pushed in one picosecond, of which some had waited, in the order of their keys."""
    its = state.nics[nic]
    while its.together != NONE:
        if not has_room(state):
            return False
        task = its.together
        its.together = state.wishes[task].next
        key = state.wishes[task].wanted
        at = np.int64(program.route_ptr[program.task_route[task]])
        place = (at << 32) | _size(program, task, _chunk(state, key))
        pushed_ps = its.last_ps
        _commit(program, state, nic, pushed_ps, key, place)
        _go_on(program, state, nic, pushed_ps, key, place, False)
    return True


@section
def _push_together(state, nic):
    """Take the first engine out of the heap, and put its chunk among those that are committed together."""
    key = engine_at(state, nic, 0).next_key
    task = key & ((np.int64(1) << state.run.task_bits) - 1)
    remove_first(state, nic)
    state.wishes[task].wanted = key
    before, behind = np.int64(NONE), state.nics[nic].together
    while behind != NONE and state.wishes[behind].wanted < key:
        before, behind = behind, state.wishes[behind].next
    state.wishes[task].next = behind
    if before == NONE:
        state.nics[nic].together = task
    else:
        state.wishes[before].next = task


@section
def push_until(program, state, nic, present):
    """Commit all that is pushed by the present, or before it. Returns False where there is no room left."""
    its = state.nics[nic]
    watched = its.watched != 0
    while its.busy > 0 or its.together != NONE:
        if its.busy == 0:
            if not _commit_together(program, state, nic):
                return False
            continue
        # Room of the queue and the time of the last push change together or not at all: memory is reserved before.
        if not has_room(state):
            return False
        first = engine_at(state, nic, 0)
        from_ps = first.from_ps
        pushed_ps = max(from_ps, its.last_ps)
        if its.together != NONE and (its.room <= 0 or pushed_ps > its.last_ps):
            if not _commit_together(program, state, nic):
                return False
            continue
        if watched:
            take_room_back(state, nic, min(pushed_ps, present))
            while its.room <= 0:
                end_ps = state.backlog[its.oldest].end_ps
                pushed_ps = max(pushed_ps, end_ps)
                if pushed_ps > present:
                    break
                take_room_back(state, nic, pushed_ps)
        if pushed_ps > present:
            return _look_again(program, state, nic, pushed_ps)
        its.last_ps = pushed_ps
        key, place = first.next_key, first.next_place
        if watched:
            its.room -= program.chunk_work[size_of(place)]
        others_may = pushed_ps > from_ps and its.room > 0  # be pushed now, and served before
        if watched and (others_may or its.together != NONE):
            _push_together(state, nic)
        else:
            _commit(program, state, nic, pushed_ps, key, place)
            _go_on(program, state, nic, pushed_ps, key, place, True)
    return True


@helper
def _look_again(program, state, nic, pushed_ps):
    """Set an event for the next push, or for the begin of its service, unless the NIC is looked at now anyway."""
    if pushed_ps <= state.run.now_ps:
        return True
    if state.nics[nic].waited == 0:
        server = state.nics[nic].server
        pushed_ps = max(pushed_ps, state.servers[server].free_ps)
    return look_at(program, state, nic, pushed_ps)


@section
def push_now(program, state, nic, faulty):
    """Push chunks into the queue of a server that chooses, when it happens. Returns False where there is no room."""
    present = state.run.now_ps
    take_room_back(state, nic, present)
    while state.nics[nic].busy > 0 and state.nics[nic].room > 0:
        if not has_room(state):
            return False
        first = engine_at(state, nic, 0)
        key, place = first.next_key, first.next_place
        task = key & ((np.int64(1) << state.run.task_bits) - 1)
        remove_first(state, nic)
        if state.nics[nic].watched != 0:
            state.nics[nic].room -= program.chunk_work[size_of(place)]
        done_ps = present + program.push_ps[size_of(place)]
        wish = state.wishes[task]
        wish.since_ps, wish.child = done_ps, 0
        put(program, state, done_ps, task, np.int64(PUSHED), NONE)
        if faulty:
            key, place = injected(program, state, key, place, present)
        arrive_now(program, state, key, place)
    if state.nics[nic].busy > 0 and state.nics[nic].oldest != NONE:
        end_ps = state.backlog[state.nics[nic].oldest].end_ps
        return look_at(program, state, nic, end_ps)
    return True
