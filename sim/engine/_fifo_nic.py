"""NICs in the fifo loop: what an NPU posts, which transfers have engines, and what these push into its queue.

A transfer is in one place at a time, a heap in the order in which it got there:

    READY --post--> LINE --engine--> PUSHING --push--> the engine is busy; the chunk is an arrival at the server
      ^  v            ^  v              ^                   | it has pushed it
    ASIDE           LATER (of its flow) +-- the next chunk -+--> PAUSED, until all that is released now is known

ASIDE has transfers of the port that is left out, LATER those whose flow has an engine. The queue of the NIC is the
server's, which commits a chunk when it is pushed; a NIC whose queue holds all that is sent at once is not watched, and
else the end of each service gives room back.
"""

from __future__ import annotations

import numpy as np

from sim.engine._calendar import append, hop_of, put
from sim.engine._fifo_line import _arrive
from sim.engine._fifo_state import (
    ALARM,
    BLOCKS,
    CHUNK_BITS,
    CHUNKS,
    DELIVERED,
    EVENT_WORDS,
    HOP_BITS,
    JOINED,
    KEY,
    LATE,
    NOW,
    OPEN,
    PLACE,
    RELEASED,
    ROOM_BACK,
    SERVED_NICS,
    SPARE,
    TASK_BITS,
    TIME,
    TOUCHED_NICS,
)
from sim.engine._fifo_task import _free_child, _gate_of, _let, _of, _size
from sim.engine._jit import helper, section, u64
from sim.engine._state import FAR, NONE

_LOW = (1 << 32) - 1

# Words of a NIC: heaps; the first flow that is paused; idle engines; the port posted last; when the NPU may post again,
# and whether an alarm is set for that; work that the queue has room for, whether it can be short of it, and what all
# engines can push at once; when it was touched.
(
    READY, ASIDE, LINE, PUSHING, PAUSED, IDLE, LAST_PORT, POST_PS, ALARMED, ROOM, WATCHED, AT_ONCE, STAMP, NIC_WORDS,
) = range(14)

# Words of a flow: the transfer that has an engine, the heap of those posted after it, the flow paused before it.
HOLDER, LATER, NEXT_PAUSED, FLOW_WORDS = range(4)

# Words of a task: since when it is where it is, the key of its chunk, the next of its siblings and its first child.
SINCE, WANTED, NEXT, CHILD, WISH_WORDS = range(5)


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
    """A released chunk: to be pushed if its transfer has an engine, else to be posted."""
    holder = state.flow[u64(FLOW_WORDS * program.task_flow[u64(task)] + HOLDER)]
    _let_wish(state, task, SINCE, state.register[NOW])
    _let_wish(state, task, WANTED, key)
    _put_in(state, nic * NIC_WORDS + (PUSHING if holder == task else READY), task)
    _touch(state, nic)


@helper
def has_room(state):
    """Whether a NIC may push, or set its alarm."""
    return state.register[BLOCKS] > 1 and state.register[LATE] + 2 <= state.late.size


@helper
def _push(program, state, base, at, key, size, event):
    """Push a chunk into the queue; `event`: one of this bucket whose place is free, or NONE."""
    state.nic[u64(base + ROOM)] -= program.chunk_work[u64(size)]
    pushed_ps = state.register[NOW] + program.push_ps[u64(size)]
    put(program, state, pushed_ps, key, (np.int64(ALARM) - 1 - at) << 32, NONE)
    if event == NONE:
        event = append(state, OPEN)
    place = (at << 32) | size
    state.event[u64(EVENT_WORDS * event + TIME)] = hop_of(program, place)
    state.event[u64(EVENT_WORDS * event + KEY)] = key
    state.event[u64(EVENT_WORDS * event + PLACE)] = place
    _arrive(program, state, event)


@helper
def happen(program, state, event, place, parted):
    """An event of a NIC: it may post again, a service has ended, or an engine has pushed a chunk."""
    register = state.register
    key = state.event[u64(EVENT_WORDS * event + KEY)]
    if place == ALARM:
        state.nic[u64(key * NIC_WORDS + ALARMED)] = 0
        _touch(state, key)
    elif place == ROOM_BACK:
        nic = key >> 32
        state.nic[u64(nic * NIC_WORDS + ROOM)] += program.chunk_work[u64(key & _LOW)]
        if state.nic[u64(nic * NIC_WORDS + PUSHING)] != NONE:
            _touch(state, nic)
    else:
        at = np.int64(ALARM) - 1 - (place >> 32)
        task = key & ((np.int64(1) << register[TASK_BITS]) - 1)
        joined, nic = _of(state, task, JOINED), nic_at(program, at)
        base = nic * NIC_WORDS
        if joined == _of(state, task, RELEASED):
            _pause(program, state, nic, task, parted)
            return
        _let(state, task, JOINED, joined + 1)
        key += np.int64(1) << (register[TASK_BITS] + register[HOP_BITS])
        if state.nic[u64(base + ROOM)] > state.nic[u64(base + AT_ONCE)]:  # whatever else is pushed now
            _push(program, state, base, at, key, _size(program, task, joined), event)
        else:
            _let_wish(state, task, SINCE, register[NOW])
            _let_wish(state, task, WANTED, key)
            _put_in(state, base + PUSHING, task)
            _touch(state, nic)


@helper
def _pause(program, state, nic, task, parted):
    """An engine has pushed a chunk, and no further one of its transfer waits for it yet."""
    flow = np.int64(program.task_flow[u64(task)])
    state.flow[u64(FLOW_WORDS * flow + NEXT_PAUSED)] = state.nic[u64(nic * NIC_WORDS + PAUSED)]
    state.nic[u64(nic * NIC_WORDS + PAUSED)] = flow
    _touch(state, nic)
    chunks = _of(state, task, CHUNKS)
    if _of(state, task, DELIVERED) < chunks:
        state.gate_ps[_gate_of(task)] = state.register[NOW]
    if _of(state, task, JOINED) == chunks:
        ports = state.port_left.size // program.nic_engines.size
        state.port_left[u64(nic * ports + program.task_port[u64(task)])] -= 1
        if program.pushed_child.size:
            for edge in range(program.pushed_ptr[u64(task)], program.pushed_ptr[u64(task + 1)]):
                _free_child(state, np.int64(program.pushed_child[u64(edge)]), parted)


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
        if not _post(program, state, nic, base):
            return False
        _give_engines(program, state, base)
        if not _push_chunks(program, state, base):
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
        flow = np.int64(state.flow[u64(words + NEXT_PAUSED)])
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
            if state.nic[u64(base + ALARMED)] == 0:
                if not has_room(state):
                    return False
                state.nic[u64(base + ALARMED)] = 1
                put(program, state, state.nic[u64(base + POST_PS)], nic, np.int64(ALARM), NONE)
            return True
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
        task = _taken(state, base + LINE)
        flow = FLOW_WORDS * np.int64(program.task_flow[u64(task)])
        if state.flow[u64(flow + HOLDER)] != NONE:
            _let_wish(state, task, NEXT, NONE)
            _let_wish(state, task, CHILD, NONE)
            state.flow[u64(flow + LATER)] = _meld(state, state.flow[u64(flow + LATER)], task)
        else:
            state.flow[u64(flow + HOLDER)] = task
            state.nic[u64(base + IDLE)] -= 1
            _let_wish(state, task, SINCE, state.register[NOW])
            _put_in(state, base + PUSHING, task)


@helper
def _push_chunks(program, state, base):
    register = state.register
    while state.nic[u64(base + PUSHING)] != NONE and state.nic[u64(base + ROOM)] > 0:
        if not has_room(state):
            return False
        task = _taken(state, base + PUSHING)
        key = _wish(state, task, WANTED)
        chunk = (key >> (register[TASK_BITS] + register[HOP_BITS])) & ((np.int64(1) << register[CHUNK_BITS]) - 1)
        event, register[SPARE] = register[SPARE], NONE
        at = np.int64(program.route_ptr[u64(program.task_route[u64(task)])])
        _push(program, state, base, at, key, _size(program, task, chunk), event)
    return True


@helper
def serve_nic(program, state, server, end, size):
    """The server of a NIC begins a service: its end gives room back, if that is ever short."""
    nic = np.int64(program.server_nic[u64(server)])
    if state.nic[u64(nic * NIC_WORDS + WATCHED)] != 0:
        put(program, state, end, (nic << 32) | size, np.int64(ROOM_BACK), NONE)
