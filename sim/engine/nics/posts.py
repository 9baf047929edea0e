"""NICs in the fifo loop: which transfers an NPU has posted, and which have engines.

A transfer is in one place at a time, a heap in the order in which it got there:

    READY --post--> LINE --engine--> PUSHING --all that is released is pushed--> PAUSED, until the picosecond is settled
      ^  v            ^  v              ^                                           |
    ASIDE           LATER (of its flow) +---------- more is released ---------------+--> the engine is idle

ASIDE has the transfers of the port that is left out, LATER those whose flow already has an engine. PUSHING has the
next chunk of each engine with the picosecond of its push, which may lie ahead (sim/engine/nics/pushes.py).
"""

import numpy as np

from sim.engine.compile.door import helper
from sim.engine.core.calendar import put
from sim.engine.core.nic_room import has_room, look_at
from sim.engine.core.state import ALARM, PUSHED
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import _free_child, _key
from sim.engine.nics.heaps import meld, with_task, without_root
from sim.engine.nics.pushes import IS_PUSHING, begin_run, chooses, expect_end, push_now, push_until


@helper
def _touch(state, nic):
    """Look at a NIC before the arrivals of this picosecond."""
    run, its = state.run, state.nics[nic]
    if its.stamp_ps != run.now_ps:
        its.stamp_ps = run.now_ps
        state.touched_nic[run.touched_nics] = nic
        run.touched_nics += 1


@helper
def nic_at(program, at):
    """The NIC that a hop is, or NONE."""
    return np.int64(program.server_nic[program.hop_server[program.route_hop[at]]])


@helper
def ask_nic(program, state, nic, task, key, ordered):
    """A released chunk: to be pushed if its transfer has an engine, else to be posted. There must be room."""
    holder = state.flows[program.task_flow[task]].holder
    if holder == task:
        begin_run(program, state, nic, task, key, ordered)
    else:
        its = state.wishes[task]
        its.since_ps, its.wanted = state.run.now_ps, key
        state.nics[nic].ready = with_task(state, state.nics[nic].ready, task)
    _touch(state, nic)


@helper
def happen(program, state, event, place):
    """An event of a NIC: it is to be looked at, or a transfer may be pushed, which waits for its turn."""
    run = state.run
    key = state.events[event].key
    run.spare = event
    if place == ALARM:
        if state.nics[key].look_ps == run.now_ps:
            state.nics[key].look_ps = FAR
        _touch(state, key)
    else:
        flow = np.int64(program.task_flow[key])
        state.flows[flow].next_flow = run.ended
        run.ended = flow


@helper
def end_runs(program, state, ordered):
    """What becomes of engines that may have pushed all that was released. Returns False where there is no room left."""
    run = state.run
    while run.ended != NONE:
        flow = run.ended
        task = state.flows[flow].holder
        nic = nic_at(program, program.route_ptr[program.task_route[task]])
        if not (ordered and chooses(state, nic)) and not push_until(program, state, nic, run.now_ps - 1):
            return False
        if not has_room(state):
            return False
        run.ended = state.flows[flow].next_flow
        _touch(state, nic)
        wish, its = state.wishes[task], state.tasks[task]
        if wish.child & IS_PUSHING:
            expect_end(program, state, nic, task)
        elif wish.since_ps > run.now_ps:
            put(program, state, wish.since_ps, task, np.int64(PUSHED), NONE)
        elif its.joined < its.released:
            its.joined += 1
            begin_run(program, state, nic, task, _key(program, state, task, its.joined - 1), ordered)
        else:
            _pause(program, state, nic, flow, task)
    return True


@helper
def _pause(program, state, nic, flow, task):
    """An engine has pushed a chunk, and no further one of its transfer waits for it yet."""
    state.flows[flow].next_flow = state.nics[nic].paused
    state.nics[nic].paused = flow
    chunks = state.tasks[task].chunks
    if state.tasks[task].delivered < chunks:
        state.tasks[task].gate_ps = state.run.now_ps
    if state.tasks[task].joined == chunks:
        ports = state.port_left.size // program.nic_engines.size
        state.port_left[nic * ports + program.task_port[task]] -= 1
        if program.pushed_child.size:
            for edge in range(program.pushed_ptr[task], program.pushed_ptr[task + 1]):
                _free_child(state, np.int64(program.pushed_child[edge]))


@helper
def serve_nics(program, state, ordered, faulty):
    """What touched NICs do once nothing more is delivered or released: none of it delivers or releases anything now.

    Returns False where there is no room left.
    """
    run = state.run
    while run.served_nics < run.touched_nics:
        nic = np.int64(state.touched_nic[run.served_nics])
        if state.nics[nic].paused != NONE:
            _free_engines(state, nic)
        waits = state.nics[nic].ready != NONE or state.nics[nic].aside != NONE
        if waits and not _post(program, state, nic):
            return False
        if not _give_engines(program, state, nic, ordered):
            return False
        if ordered and chooses(state, nic):
            if not push_now(program, state, nic, faulty):
                return False
        elif not push_until(program, state, nic, run.now_ps):
            return False
        run.served_nics += 1
    run.served_nics = run.touched_nics = 0
    return True


@helper
def _free_engines(state, nic):
    its = state.nics[nic]
    paused = its.paused
    while paused != NONE:
        flow = state.flows[paused]
        if state.tasks[flow.holder].gate_ps != FAR:  # no further chunk of it waits
            its.line = meld(state, its.line, flow.later)
            flow.holder = flow.later = NONE
            its.idle += 1
        paused = flow.next_flow
    its.paused = NONE


@helper
def _ready_again(state, nic):
    """Transfers of the port that was left out have their turn again."""
    its = state.nics[nic]
    if its.aside != NONE:
        its.ready = meld(state, its.ready, its.aside)
        its.aside = NONE


@helper
def _is_left_out(program, state, nic, port):
    """Whether a port was posted last, and another of its phase has transfers that are not pushed in full."""
    turns = program.ports_in_turn
    if turns == 0 or port != state.nics[nic].last_port:
        return False
    ports = state.port_left.size // program.nic_engines.size
    for other in range(port - port % turns, min(port - port % turns + turns, ports)):
        if other != port and state.port_left[nic * ports + other] > 0:
            return True
    return False


@helper
def _post(program, state, nic):
    present, its = state.run.now_ps, state.nics[nic]
    _ready_again(state, nic)
    while its.ready != NONE:
        if its.post_ps > present:
            return look_at(program, state, nic, its.post_ps)
        task = its.ready
        its.ready = without_root(state, task)
        port = np.int64(program.task_port[task])
        if _is_left_out(program, state, nic, port):
            its.aside = with_task(state, its.aside, task)
            continue
        state.wishes[task].since_ps = present
        its.line = with_task(state, its.line, task)
        its.last_port = port
        its.post_ps = present + program.post_ps
        _ready_again(state, nic)
    return True


@helper
def _give_engines(program, state, nic, ordered):
    its = state.nics[nic]
    while its.line != NONE and its.idle > 0:
        if not has_room(state):
            return False
        task = its.line
        its.line = without_root(state, task)
        flow = state.flows[program.task_flow[task]]
        if flow.holder != NONE:
            flow.later = with_task(state, flow.later, task)
        else:
            flow.holder = task
            its.idle -= 1
            begin_run(program, state, nic, task, state.wishes[task].wanted, ordered)
    return True
