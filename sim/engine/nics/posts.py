"""NICs in the fifo loop: which transfers an NPU has posted, and which have engines.

A transfer is in one place at a time, a heap in the order in which it got there:

    READY --post--> LINE --engine--> PUSHING --all that is released is pushed--> PAUSED, until the picosecond is settled
      ^  v            ^  v              ^                                           |
    ASIDE           LATER (of its flow) +---------- more is released ---------------+--> the engine is idle

ASIDE has the transfers of the port that is left out, LATER those whose flow already has an engine. PUSHING has the
next chunk of each engine with the picosecond of its push, which may lie ahead (sim/engine/nics/pushes.py).
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, u64
from sim.engine.core.calendar import put
from sim.engine.core.nic_room import has_room, look_at
from sim.engine.core.nic_state import (
    ASIDE,
    CHILD,
    FLOW_WORDS,
    HOLDER,
    IDLE,
    IS_PUSHING,
    LAST_PORT,
    LATER,
    LINE,
    LOOK_PS,
    NEXT,
    NEXT_FLOW,
    NIC_WORDS,
    PAUSED,
    POST_PS,
    READY,
    SINCE,
    STAMP,
    WANTED,
)
from sim.engine.core.state import (
    ALARM,
    CHUNKS,
    DELIVERED,
    ENDED,
    EVENT_WORDS,
    JOINED,
    KEY,
    NOW,
    PUSHED,
    RELEASED,
    SERVED_NICS,
    SPARE,
    TOUCHED_NICS,
)
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import _free_child, _gate_of, _key, _let, _of
from sim.engine.nics.heaps import let_wish, meld, put_in, taken, wish
from sim.engine.nics.pushes import begin_run, chooses, expect_end, push_now, push_until


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
def ask_nic(program, state, nic, task, key, ordered):
    """A released chunk: to be pushed if its transfer has an engine, else to be posted. There must be room."""
    holder = state.flow[u64(FLOW_WORDS * program.task_flow[u64(task)] + HOLDER)]
    if holder == task:
        begin_run(program, state, nic * NIC_WORDS, task, key, ordered)
    else:
        let_wish(state, task, SINCE, state.register[NOW])
        let_wish(state, task, WANTED, key)
        put_in(state, nic * NIC_WORDS + READY, task)
    _touch(state, nic)


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
def end_runs(program, state, ordered):
    """What becomes of engines that may have pushed all that was released. Returns False where there is no room left."""
    register = state.register
    while register[ENDED] != NONE:
        flow = register[ENDED]
        task = state.flow[u64(FLOW_WORDS * flow + HOLDER)]
        nic = nic_at(program, program.route_ptr[u64(program.task_route[u64(task)])])
        base = nic * NIC_WORDS
        if not (ordered and chooses(state, base)) and not push_until(program, state, base, register[NOW] - 1):
            return False
        if not has_room(state):
            return False
        register[ENDED] = state.flow[u64(FLOW_WORDS * flow + NEXT_FLOW)]
        _touch(state, nic)
        if wish(state, task, CHILD) & IS_PUSHING:
            expect_end(program, state, base, task)
        elif wish(state, task, SINCE) > register[NOW]:
            put(program, state, wish(state, task, SINCE), task, np.int64(PUSHED), NONE)
        elif _of(state, task, JOINED) < _of(state, task, RELEASED):
            joined = _of(state, task, JOINED)
            _let(state, task, JOINED, joined + 1)
            begin_run(program, state, base, task, _key(program, state, task, joined), ordered)
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
                _free_child(state, np.int64(program.pushed_child[u64(edge)]))


@helper
def serve_nics(program, state, ordered, faulty):
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
        if not _give_engines(program, state, base, ordered):
            return False
        if ordered and chooses(state, base):
            if not push_now(program, state, base, faulty):
                return False
        elif not push_until(program, state, base, register[NOW]):
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
            state.nic[u64(base + LINE)] = meld(state, state.nic[u64(base + LINE)], state.flow[u64(words + LATER)])
            state.flow[u64(words + LATER)] = NONE
            state.nic[u64(base + IDLE)] += 1
        flow = state.flow[u64(words + NEXT_FLOW)]
    state.nic[u64(base + PAUSED)] = NONE


@helper
def _ready_again(state, base):
    """Transfers of the port that was left out have their turn again."""
    if state.nic[u64(base + ASIDE)] != NONE:
        state.nic[u64(base + READY)] = meld(state, state.nic[u64(base + READY)], state.nic[u64(base + ASIDE)])
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
            return look_at(program, state, base, state.nic[u64(base + POST_PS)])
        task = taken(state, base + READY)
        port = np.int64(program.task_port[u64(task)])
        if _is_left_out(program, state, nic, port):
            put_in(state, base + ASIDE, task)
            continue
        let_wish(state, task, SINCE, present)
        put_in(state, base + LINE, task)
        state.nic[u64(base + LAST_PORT)] = port
        state.nic[u64(base + POST_PS)] = present + program.post_ps
        _ready_again(state, base)
    return True


@helper
def _give_engines(program, state, base, ordered):
    while state.nic[u64(base + LINE)] != NONE and state.nic[u64(base + IDLE)] > 0:
        if not has_room(state):
            return False
        task = taken(state, base + LINE)
        flow = FLOW_WORDS * np.int64(program.task_flow[u64(task)])
        if state.flow[u64(flow + HOLDER)] != NONE:
            let_wish(state, task, NEXT, NONE)
            let_wish(state, task, CHILD, NONE)
            state.flow[u64(flow + LATER)] = meld(state, state.flow[u64(flow + LATER)], task)
        else:
            state.flow[u64(flow + HOLDER)] = task
            state.nic[u64(base + IDLE)] -= 1
            begin_run(program, state, base, task, wish(state, task, WANTED), ordered)
    return True
