"""NICs in the fifo loop: what an NPU posts, which transfers have engines, and what these push into its queue.

A transfer is in one place at a time, a heap in the order in which it got there:

    READY --post--> LINE --engine--> PUSHING --all that is released is pushed--> PAUSED, until the picosecond is settled
      ^  v            ^  v              ^                                           |
    ASIDE           LATER (of its flow) +---------- more is released ---------------+--> the engine is idle

ASIDE has transfers of the port that is left out, LATER those whose flow has an engine. PUSHING has the next chunk of
each engine with the picosecond from which it is to be pushed, which may lie ahead: a run of chunks that are released is
pushed without any event. When a chunk is pushed its service is known too, since the server of a NIC is fifo, and it is
committed with all that were pushed by then, at the latest when it begins.

An engine has pushed the last chunk of a run at a time that is known before where the queue has room: that is an event,
and all that was pushed before is committed then. An engine that had to wait for room has that event when its last chunk
is pushed; as long as there is such an engine, a NIC looks at each push when it happens.
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import put
from sim.engine._fifo_state import (
    ALARM,
    BACKLOG_FREE,
    BLOCKS,
    BUSY_PS,
    CHUNK_BITS,
    CHUNKS,
    DELIVERED,
    ENDED,
    EVENT_WORDS,
    EVENTS,
    FREE_PS,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    NOW,
    PUSHED,
    RELEASED,
    SERVED_NICS,
    SERVER_WORDS,
    SPARE,
    TASK_BITS,
    TOUCHED_NICS,
)
from sim.engine._fifo_task import _free_child, _gate_of, _key, _let, _of, _size, log_service
from sim.engine._jit import helper, section, u64
from sim.engine._state import FAR, NONE

_LOW = (1 << 32) - 1

# Words of a NIC: heaps; the first flow that is paused; idle engines; the port posted last; when the NPU may post again;
# its first engine and how many of them are PUSHING; when it is looked at again, FAR if that is not set; the last push;
# work that the queue has room for, whether it can ever be short of it, first and last of its services that have not
# ended; first chunk of those pushed together, which are to be committed; engines that had to wait for room; when it was
# touched; its server.
(
    READY, ASIDE, LINE, PAUSED, IDLE, LAST_PORT, POST_PS, ENGINES, BUSY, LOOK_PS, LAST_PS, ROOM, WATCHED, OLDEST,
    NEWEST, TOGETHER, WAITED, STAMP, SERVER, NIC_WORDS,
) = range(20)

# Words of a flow: the transfer that has an engine, the heap of those posted after it, the next flow that is paused.
HOLDER, LATER, NEXT_FLOW, FLOW_WORDS = range(4)

# Words of a task: since when it is where it is, or with an engine, when all that was released is pushed; the key of its
# chunk; the next of its siblings, or of the chunks pushed together; its first child, or with an engine, whether it is
# PUSHING and whether it has waited for room.
SINCE, WANTED, NEXT, CHILD, WISH_WORDS = range(5)
IS_PUSHING, HAS_WAITED = 1, 2

# Words of an engine's next chunk: from when, its key, its place.
FROM_PS, NEXT_KEY, NEXT_PLACE, ENGINE_WORDS = range(4)

# Words of a service that has not ended: its end, its work, the one behind it.
END_PS, WORK, BEHIND, BACKLOG_WORDS = range(4)


@helper
def _wish(state, task, what):
    return state.wish[u64(WISH_WORDS * task + what)]


@helper
def _let_wish(state, task, what, value):
    state.wish[u64(WISH_WORDS * task + what)] = value


@section
def _melded(state, one, other):
    since, since_other = _wish(state, one, SINCE), _wish(state, other, SINCE)
    if since_other < since or (since_other == since and _wish(state, other, WANTED) < _wish(state, one, WANTED)):
        one, other = other, one
    _let_wish(state, other, NEXT, _wish(state, one, CHILD))
    _let_wish(state, one, CHILD, other)
    return one


@helper
def _meld(state, one, other):
    """One pairing heap from two; see sim/engine/_heap.py."""
    if one == NONE:
        return np.int64(other)
    if other == NONE:
        return np.int64(one)
    return _melded(state, one, other)


@section
def _without_root(state, root):
    child, pairs = _wish(state, root, CHILD), np.int64(NONE)
    while child != NONE:
        other = _wish(state, child, NEXT)
        after = np.int64(NONE) if other == NONE else _wish(state, other, NEXT)
        pair = _meld(state, child, other)
        _let_wish(state, pair, NEXT, pairs)
        pairs, child = pair, after
    heap = np.int64(NONE)
    while pairs != NONE:
        after = _wish(state, pairs, NEXT)
        heap = _meld(state, heap, pairs)
        pairs = after
    return heap


@helper
def _put_in(state, heap, task):
    """Put a task into a heap of a NIC, given its place in `state.nic`."""
    _let_wish(state, task, NEXT, NONE)
    _let_wish(state, task, CHILD, NONE)
    state.nic[u64(heap)] = _meld(state, state.nic[u64(heap)], task)


@helper
def _taken(state, heap):
    """Take the first task out of a heap of a NIC that has one."""
    task = state.nic[u64(heap)]
    state.nic[u64(heap)] = np.int64(NONE) if _wish(state, task, CHILD) == NONE else _without_root(state, task)
    return task


@helper
def _touch(state, nic):
    """Look at a NIC before the arrivals of this picosecond."""
    if state.nic[u64(nic * NIC_WORDS + STAMP)] != state.register[NOW]:
        state.nic[u64(nic * NIC_WORDS + STAMP)] = state.register[NOW]
        state.touched_nic[u64(state.register[TOUCHED_NICS])] = nic
        state.register[TOUCHED_NICS] += 1


@helper
def nic_at(program, at):
    """The NIC that a hop is, or NONE."""
    return np.int64(program.server_nic[u64(program.hop_server[u64(program.route_hop[u64(at)])])])


@helper
def ask_nic(program, state, nic, task, key):
    """A released chunk: to be pushed if its transfer has an engine, else to be posted. There must be room."""
    holder = state.flow[u64(FLOW_WORDS * program.task_flow[u64(task)] + HOLDER)]
    if holder == task:
        _begin_run(program, state, nic * NIC_WORDS, task, key)
    else:
        _let_wish(state, task, SINCE, state.register[NOW])
        _let_wish(state, task, WANTED, key)
        _put_in(state, nic * NIC_WORDS + READY, task)
    _touch(state, nic)


@helper
def has_room(state):
    """Whether a NIC may do one thing more."""
    register = state.register
    return register[BLOCKS] > 1 and register[LATE] + 2 <= state.late.size and register[BACKLOG_FREE] != NONE


# --- engines: heaps of those that push, in arrays ------------------------------------------------------------------


@helper
def _engine(state, base, place):
    """Where the words of the engine at a place of the heap of a NIC begin."""
    return ENGINE_WORDS * (state.nic[u64(base + ENGINES)] + place)


@helper
def _set_engine(state, at, from_ps, key, place):
    state.engine[u64(at + FROM_PS)] = from_ps
    state.engine[u64(at + NEXT_KEY)] = key
    state.engine[u64(at + NEXT_PLACE)] = place


@helper
def _is_before(state, at, from_ps, key):
    """Whether the engine with its words at `at` pushes before one that pushes a key from a time on."""
    its = state.engine[u64(at + FROM_PS)]
    return its < from_ps or (its == from_ps and state.engine[u64(at + NEXT_KEY)] < key)


@helper
def _copy_engine(state, to, at):
    for word in range(ENGINE_WORDS):
        state.engine[u64(to + word)] = state.engine[u64(at + word)]


@section
def _add_engine(state, base, from_ps, key, place):
    hole = state.nic[u64(base + BUSY)]
    state.nic[u64(base + BUSY)] += 1
    while hole > 0:
        above = (hole - 1) >> 1
        if _is_before(state, _engine(state, base, above), from_ps, key):
            break
        _copy_engine(state, _engine(state, base, hole), _engine(state, base, above))
        hole = above
    _set_engine(state, _engine(state, base, hole), from_ps, key, place)


@helper
def _replace_first(state, base, from_ps, key, place):
    """Replace the first engine of the heap by one that comes later."""
    busy, first = state.nic[u64(base + BUSY)], ENGINE_WORDS * state.nic[u64(base + ENGINES)]
    hole, below = np.int64(0), np.int64(1)
    while below < busy:
        at = first + ENGINE_WORDS * below
        if below + 1 < busy:
            other = at + ENGINE_WORDS
            if _is_before(state, other, state.engine[u64(at + FROM_PS)], state.engine[u64(at + NEXT_KEY)]):
                at, below = other, below + 1
        if not _is_before(state, at, from_ps, key):
            break
        _copy_engine(state, first + ENGINE_WORDS * hole, at)
        hole, below = below, 2 * below + 1
    _set_engine(state, first + ENGINE_WORDS * hole, from_ps, key, place)


@helper
def _remove_first(state, base):
    busy = state.nic[u64(base + BUSY)] - 1
    state.nic[u64(base + BUSY)] = busy
    last = _engine(state, base, busy)
    _replace_first(state, base, state.engine[u64(last + FROM_PS)], state.engine[u64(last + NEXT_KEY)],
                   state.engine[u64(last + NEXT_PLACE)])


# --- runs of chunks, pushes and services ---------------------------------------------------------------------------


@section
def _begin_run(program, state, base, task, key):
    """A transfer has an engine, and chunks from that of `key` on are released."""
    at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
    place = (at << 32) | _size(program, task, _of(state, task, JOINED) - 1)
    _add_engine(state, base, state.register[NOW], key, place)
    _let_wish(state, task, CHILD, IS_PUSHING)
    _expect_end(program, state, base, task)


@section
def _expect_end(program, state, base, task):
    """Set an event for the end of a run, if it does not wait for room any more; or know that it has."""
    if state.nic[u64(base + WATCHED)] != 0 and state.nic[u64(base + ROOM)] <= state.nic[u64(base + WATCHED)]:
        _let_wish(state, task, CHILD, IS_PUSHING | HAS_WAITED)
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
    service = program.service_ps[u64(size), u64(program.server_rate[u64(server)])]
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
        put(program, state, (start if program.deliver_head else end) + latency, key, np.int64(NONE), NONE)
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[u64(program.hop_server[u64(program.route_hop[u64(at + 1)])])]
            ready = max(start + latency, ready - program.service_ps[u64(size), u64(after)])
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
            _replace_first(state, base, done_ps, key, place)
        else:
            _add_engine(state, base, done_ps, key, place)
        return
    if is_first:
        _remove_first(state, base)
    _let_wish(state, task, SINCE, done_ps)
    if _wish(state, task, CHILD) & HAS_WAITED:
        state.nic[u64(base + WAITED)] -= 1
        put(program, state, done_ps, task, np.int64(PUSHED), NONE)
    _let_wish(state, task, CHILD, 0)


@section
def _commit_together(program, state, base):
    """Commit chunks pushed in one picosecond, of which some had waited, in the order of their keys."""
    while state.nic[u64(base + TOGETHER)] != NONE:
        if not has_room(state):
            return False
        task = state.nic[u64(base + TOGETHER)]
        state.nic[u64(base + TOGETHER)] = _wish(state, task, NEXT)
        key = _wish(state, task, WANTED)
        at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
        place = (at << 32) | _size(program, task, _chunk(state, key))
        pushed_ps = state.nic[u64(base + LAST_PS)]
        _commit(program, state, base, pushed_ps, key, place)
        _go_on(program, state, base, pushed_ps, key, place, False)
    return True


@section
def _push_together(state, base):
    """Take the first engine out of the heap, and put its chunk among those that are committed together."""
    first = _engine(state, base, 0)
    key = state.engine[u64(first + NEXT_KEY)]
    task = key & ((np.int64(1) << state.register[TASK_BITS]) - 1)
    _remove_first(state, base)
    _let_wish(state, task, WANTED, key)
    before, behind = np.int64(NONE), state.nic[u64(base + TOGETHER)]
    while behind != NONE and _wish(state, behind, WANTED) < key:
        before, behind = behind, _wish(state, behind, NEXT)
    _let_wish(state, task, NEXT, behind)
    if before == NONE:
        state.nic[u64(base + TOGETHER)] = task
    else:
        _let_wish(state, before, NEXT, task)


@section
def _push_until(program, state, base, present):
    """Commit all that is pushed by the present, or before it. Returns False where there is no room left."""
    watched = state.nic[u64(base + WATCHED)] != 0
    while state.nic[u64(base + BUSY)] > 0 or state.nic[u64(base + TOGETHER)] != NONE:
        if state.nic[u64(base + BUSY)] == 0:
            if not _commit_together(program, state, base):
                return False
            continue
        first = _engine(state, base, 0)
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
        if not has_room(state):
            return False
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
    return _look_at(program, state, base, pushed_ps)


@helper
def _look_at(program, state, base, time):
    """Look at a NIC at a later time. Returns False where there is no room left."""
    if time < state.nic[u64(base + LOOK_PS)]:
        if not has_room(state):
            return False
        state.nic[u64(base + LOOK_PS)] = time
        put(program, state, time, base, np.int64(ALARM), NONE)
    return True


# --- what happens in a picosecond ----------------------------------------------------------------------------------


@helper
def happen(program, state, event, place):
    """An event of a NIC: it is to be looked at, or a transfer may be pushed, which waits for its turn."""
    register = state.register
    key = state.event[u64(EVENT_WORDS * event + KEY)]
    register[SPARE] = event
    if place == ALARM:
        if state.nic[u64(key + LOOK_PS)] == register[NOW]:
            state.nic[u64(key + LOOK_PS)] = FAR
        _touch(state, key // NIC_WORDS)
    else:
        flow = np.int64(program.task_flow[u64(key)])
        state.flow[u64(FLOW_WORDS * flow + NEXT_FLOW)] = register[ENDED]
        register[ENDED] = flow


@helper
def end_runs(program, state):
    """What becomes of engines that may have pushed all that was released. Returns False where there is no room left."""
    register = state.register
    while register[ENDED] != NONE:
        flow = register[ENDED]
        task = state.flow[u64(FLOW_WORDS * flow + HOLDER)]
        nic = nic_at(program, program.route_ptr[u64(program.task_route[u64(task)])])
        base = nic * NIC_WORDS
        if not _push_until(program, state, base, register[NOW] - 1) or not has_room(state):
            return False
        register[ENDED] = state.flow[u64(FLOW_WORDS * flow + NEXT_FLOW)]
        _touch(state, nic)
        if _wish(state, task, CHILD) & IS_PUSHING:
            _expect_end(program, state, base, task)
        elif _wish(state, task, SINCE) > register[NOW]:
            put(program, state, _wish(state, task, SINCE), task, np.int64(PUSHED), NONE)
        elif _of(state, task, JOINED) < _of(state, task, RELEASED):
            joined = _of(state, task, JOINED)
            _let(state, task, JOINED, joined + 1)
            _begin_run(program, state, base, task, _key(program, state, task, joined))
        else:
            _pause(program, state, nic, flow, task)
    return True


@helper
def _pause(program, state, nic, flow, task):
    """An engine has pushed a chunk, and no further one of its transfer waits for it yet."""
    state.flow[u64(FLOW_WORDS * flow + NEXT_FLOW)] = state.nic[u64(nic * NIC_WORDS + PAUSED)]
    state.nic[u64(nic * NIC_WORDS + PAUSED)] = flow
    chunks = _of(state, task, CHUNKS)
    if _of(state, task, DELIVERED) < chunks:
        state.gate_ps[_gate_of(task)] = state.register[NOW]
    if _of(state, task, JOINED) == chunks:
        ports = state.port_left.size // program.nic_engines.size
        state.port_left[u64(nic * ports + program.task_port[u64(task)])] -= 1
        if program.pushed_child.size:
            for edge in range(program.pushed_ptr[u64(task)], program.pushed_ptr[u64(task + 1)]):
                _free_child(state, np.int64(program.pushed_child[u64(edge)]), False)


@helper
def serve_nics(program, state):
    """What touched NICs do once nothing more is delivered or released: none of it delivers or releases anything now.

    Returns False where there is no room left.
    """
    register = state.register
    while register[SERVED_NICS] < register[TOUCHED_NICS]:
        nic = np.int64(state.touched_nic[u64(register[SERVED_NICS])])
        base = nic * NIC_WORDS
        if state.nic[u64(base + PAUSED)] != NONE:
            _free_engines(state, base)
        waits = state.nic[u64(base + READY)] != NONE or state.nic[u64(base + ASIDE)] != NONE
        if waits and not _post(program, state, nic, base):
            return False
        if not _give_engines(program, state, base) or not _push_until(program, state, base, register[NOW]):
            return False
        register[SERVED_NICS] += 1
    register[SERVED_NICS] = register[TOUCHED_NICS] = 0
    return True


@helper
def _free_engines(state, base):
    flow = state.nic[u64(base + PAUSED)]
    while flow != NONE:
        words = FLOW_WORDS * flow
        if state.gate_ps[_gate_of(state.flow[u64(words + HOLDER)])] != FAR:  # no further chunk of it waits
            state.flow[u64(words + HOLDER)] = NONE
            state.nic[u64(base + LINE)] = _meld(state, state.nic[u64(base + LINE)], state.flow[u64(words + LATER)])
            state.flow[u64(words + LATER)] = NONE
            state.nic[u64(base + IDLE)] += 1
        flow = state.flow[u64(words + NEXT_FLOW)]
    state.nic[u64(base + PAUSED)] = NONE


@helper
def _ready_again(state, base):
    """Transfers of the port that was left out have their turn again."""
    if state.nic[u64(base + ASIDE)] != NONE:
        state.nic[u64(base + READY)] = _meld(state, state.nic[u64(base + READY)], state.nic[u64(base + ASIDE)])
        state.nic[u64(base + ASIDE)] = NONE


@helper
def _is_left_out(program, state, nic, port):
    """Whether a port was posted last, and another of its phase has transfers that are not pushed in full."""
    turns = program.ports_in_turn
    if turns == 0 or port != state.nic[u64(nic * NIC_WORDS + LAST_PORT)]:
        return False
    ports = state.port_left.size // program.nic_engines.size
    for other in range(port - port % turns, min(port - port % turns + turns, ports)):
        if other != port and state.port_left[u64(nic * ports + other)] > 0:
            return True
    return False


@helper
def _post(program, state, nic, base):
    present = state.register[NOW]
    _ready_again(state, base)
    while state.nic[u64(base + READY)] != NONE:
        if state.nic[u64(base + POST_PS)] > present:
            return _look_at(program, state, base, state.nic[u64(base + POST_PS)])
        task = _taken(state, base + READY)
        port = np.int64(program.task_port[u64(task)])
        if _is_left_out(program, state, nic, port):
            _put_in(state, base + ASIDE, task)
            continue
        _let_wish(state, task, SINCE, present)
        _put_in(state, base + LINE, task)
        state.nic[u64(base + LAST_PORT)] = port
        state.nic[u64(base + POST_PS)] = present + program.post_ps
        _ready_again(state, base)
    return True


@helper
def _give_engines(program, state, base):
    while state.nic[u64(base + LINE)] != NONE and state.nic[u64(base + IDLE)] > 0:
        if not has_room(state):
            return False
        task = _taken(state, base + LINE)
        flow = FLOW_WORDS * np.int64(program.task_flow[u64(task)])
        if state.flow[u64(flow + HOLDER)] != NONE:
            _let_wish(state, task, NEXT, NONE)
            _let_wish(state, task, CHILD, NONE)
            state.flow[u64(flow + LATER)] = _meld(state, state.flow[u64(flow + LATER)], task)
        else:
            state.flow[u64(flow + HOLDER)] = task
            state.nic[u64(base + IDLE)] -= 1
            _begin_run(program, state, base, task, _wish(state, task, WANTED))
    return True
