"""The loop that runs every program, with an entry for each set of constant flags.

A server on which nothing can interfere is committed when a chunk arrives: start, end and next arrival are known then,
so that the end of a service is no event. The others choose when they are free (sim/engine/policies/choose.py).

In rounds (sim/engine/policies/rounds.py) a chunk is delivered ahead: what waits for it is told as it is served.

A picosecond has three stages, as in the contract:

    events that are due --> deliveries, releases, joins --+   until neither the stack of tasks nor the calendar has any
          ^                                               |
          +------ ends of pushes; then pools grant <------+
    NICs post, give engines and push
    what arrived at each touched server is served, or waits until the server chooses;  then `advance`

A service lasts at least 1 ps, so that nothing that it causes falls into its own picosecond, and no stage is done again.
"""

import numpy as np

from sim.engine.compile.door import entry, helper, section
from sim.engine.core.calendar import advance, put, size_of, take
from sim.engine.core.lines import _arrive, _next_of, arrive_now
from sim.engine.core.nic_room import serves_chosen
from sim.engine.core.nodes import free_node
from sim.engine.core.state import ASKS, FRESH, RINGS, WOKEN
from sim.engine.core.status import FAR, FINISHED, NEEDS_TOKENS, NONE, PAUSED, UNSTACKED
from sim.engine.core.tasks import _deliver, _key, _release, _size, _stack, log_service, service_ps
from sim.engine.nics.posts import ask_nic, end_runs, happen, nic_at, serve_nics
from sim.engine.nics.pushes import has_room
from sim.engine.policies import faults
from sim.engine.policies.choose import SHORT, choose, choose_under_faults, look_at, wake
from sim.engine.policies.pools import ask, asks, grant
from sim.engine.policies.rooms import change_rooms
from sim.engine.policies.rounds import begin_rounds, deliver_ahead
from sim.program.contract import HEAD

_LOW = (1 << 32) - 1


@helper
def _pass_on(program, state, task, joined, ordered, faulty):
    """Deliver the released chunks of a task without servers, each once it has its units. Returns as `_join`."""
    run = state.run
    while joined < state.tasks[task].released:
        if asks(program, state, task, joined, ordered):
            if ordered and run.free_nodes < faults.SPARE_NODES:
                return False
            ask(program, state, task, joined, ordered, faulty)
            return True
        if joined == 0 and state.start_ps.size:
            state.start_ps[task] = run.now_ps
        joined += 1
        state.tasks[task].joined = joined
        _deliver(program, state, task, ordered)
    return True


@helper
def _ask_in_time(program, state, task, joined, gate, faulty):
    """Let a chunk ask for units once the chunk before it has left the first server. Returns as `_join`."""
    run = state.run
    if run.free_nodes < faults.SPARE_NODES or run.blocks == 0 or run.late + 2 > state.late.size:
        return False
    if gate > run.now_ps:
        state.tasks[task].gate_ps = FAR
        put(program, state, gate, task, np.int64(ASKS), NONE)
    else:
        ask(program, state, task, joined, True, faulty)
    return True


@helper
def _join(program, state, task, nics, ordered, faulty):
    """Send a released chunk of a task to its first server, or, without servers, all of them to delivery.

    Returns False where there is no room left; the task then stays on the stack.
    """
    run = state.run
    joined = state.tasks[task].joined
    gate = state.tasks[task].gate_ps
    if joined == state.tasks[task].released or gate == FAR:
        return True
    route = program.task_route[task]
    at = np.int64(program.route_ptr[route])
    if at == program.route_ptr[route + 1]:
        return _pass_on(program, state, task, joined, ordered, faulty)
    if ordered and asks(program, state, task, joined, ordered):
        return _ask_in_time(program, state, task, joined, gate, faulty)
    if nics and nic_at(program, at) != NONE:
        if not has_room(state):
            return False
        state.tasks[task].joined = joined + 1
        state.tasks[task].gate_ps = FAR
        ask_nic(program, state, nic_at(program, at), task, _key(program, state, task, joined), ordered)
        return True
    if run.blocks == 0 or run.late + 2 > state.late.size:
        return False
    key, place = _key(program, state, task, joined), (at << 32) | _size(program, task, joined)
    if faulty:
        key, place = faults.injected(program, state, key, place, max(gate, run.now_ps))
    state.tasks[task].joined = joined + 1
    state.tasks[task].gate_ps = FAR
    if gate > run.now_ps:
        put(program, state, gate, key, place, NONE)
    else:
        arrive_now(program, state, key, place)
    return True


@section
def _settle(program, state, nics, ordered, faulty):
    """Look at every task on the stack, until none is left. Returns False where there is no room left."""
    run = state.run
    while run.top != NONE:
        task = run.top
        run.top = state.tasks[task].link
        state.tasks[task].link = UNSTACKED
        _release(program, state, task)
        if not _join(program, state, task, nics, ordered, faulty):
            _stack(state, task)
            return False
    return True


@helper
def _serve(program, state, server, event, nics, ordered, routers, faulty, rounds):
    """Serve an event that has just arrived at a server, after all that came before it.

    `nics`, `ordered`, `routers` and `faulty` are constants of each entry, here and below: a branch that an entry never
    takes is not compiled.
    """
    run = state.run
    key, place = state.events[event].key, state.events[event].place
    at, size = place >> 32, size_of(place)
    its = state.servers[server]
    start = max(run.now_ps, its.free_ps)
    extra, lost = np.int64(0), False
    if faulty and ordered and state.chooses[server] != 0:
        service, extra, lost = faults.conditions(program, state, server, key, place)
    elif faulty and program.server_loss.size + program.server_jitter.size > 0:
        column = np.int64(program.server_rate[server])
        service, extra, lost = faults.drawn_conditions(program, state, server, key, place, column)
    else:
        service = service_ps(program, size, program.server_rate[server])
    end = start + service
    its.free_ps = end
    its.busy_ps += service
    run.events += 1
    hop = state.events[event].time_ps & _LOW
    latency = program.hop_latency_ps[hop] + extra
    task = key & ((np.int64(1) << run.task_bits) - 1)
    one = np.int64(1) << run.task_bits
    chunk = (key >> (run.task_bits + run.hop_bits)) & ((np.int64(1) << run.chunk_bits) - 1)
    last, onward = program.hop_last[hop] != 0, place + (np.int64(1) << 32)
    if faulty:
        begins, onward = faults.is_fresh(place), onward & ~np.int64(FRESH)
    else:
        begins = (key >> run.task_bits) & ((np.int64(1) << run.hop_bits) - 1) == 0
        if state.log_base.size:
            log_service(program, state, server, start, task, chunk, at)
    ready = end + latency
    if lost:
        faults.lose(program, state, server, key, place & ~np.int64(FRESH), start, end)
    elif last:
        ready = (start if program.hop_last[hop] == HEAD else end) + latency
        if rounds and chunk + 1 < state.tasks[task].chunks:
            begin_rounds(program, state, task, ready, event)
        elif rounds and (not program.whole_child.size or program.whole_ptr[task] == program.whole_ptr[task + 1]):
            deliver_ahead(state, task, ready)
        else:
            put(program, state, ready, key, NONE, event)
    else:
        following = program.hop_server[program.route_hop[at + 1]]
        if program.cut_through:
            after = program.server_rate[following]
            ready = max(start + latency, ready - service_ps(program, size, after))
        put(program, state, ready, key + one, onward, event)
    if faulty and not lost:
        faults.journal(program, state, key, place, run.arrived_ps, start, end, ready)
    if routers:
        first = faults.begins_at(program, at) if faulty else begins
        change_rooms(program, state, server, np.int64(hop), place, first, last, lost, end, ready)
    of_nic = nics and ordered and program.server_nic[server] != NONE
    if of_nic and state.chooses[server] != 0:
        serves_chosen(program, state, server, end, place)
    if begins:
        if chunk == 0 and state.start_ps.size:
            state.start_ps[task] = start
        if not of_nic and not rounds:
            _follow(program, state, server, task, key, at, chunk + 1, end, ordered, faulty)


@helper
def _follow(program, state, server, task, key, at, joined, end, ordered, faulty):
    """Let the next chunk of a task join its first server, which is done with the one before at `end`."""
    run = state.run
    if joined == state.tasks[task].released:
        state.tasks[task].gate_ps = end
    elif ordered and asks(program, state, task, joined, ordered):
        put(program, state, end, task, np.int64(ASKS), NONE)
    else:
        state.tasks[task].joined = joined + 1
        key += np.int64(1) << (run.task_bits + run.hop_bits)
        place = (at << 32) | _size(program, task, joined)
        if faulty:
            key, place = faults.injected(program, state, key, place, end)
        put(program, state, end, key, place, NONE)
        if ordered and (not faulty or program.hop_server[program.route_hop[place >> 32]] == server):
            state.choices[server].wake_ps = end


@helper
def _may_serve(state, ordered, routers, faulty):
    """Whether there is memory for a service: for two events, or for up to MOST of a server that chooses, and nodes."""
    run = state.run
    most = run.most if ordered else np.int64(2)
    if faulty:
        return faults.has_space(state, most)
    if routers and (run.free_nodes < faults.SPARE_NODES or run.backlog_free == NONE):
        return False
    return run.blocks >= most and run.late + most <= state.late.size


@helper
def _serve_all(program, state, nics, ordered, routers, faulty, rounds):
    """Serve what arrived in this picosecond. Returns False where there is no room left."""
    run = state.run
    while run.served < run.touched:
        server = np.int64(state.touched[run.served])
        event = state.servers[server].line >> 32
        while event != NONE:
            if not _may_serve(state, ordered, routers, faulty):
                state.servers[server].line = (event << 32) | (state.servers[server].line & _LOW)
                return False
            after = _next_of(state, event)
            chooses = ordered and state.chooses[server] != 0
            if chooses:
                after = np.int64(NONE)
                if faulty:
                    event = choose_under_faults(program, state, server, event)
                else:
                    event = choose(program, state, server, event, routers)
                if event == SHORT:
                    return False
            elif faulty:
                run.arrived_ps = run.now_ps
            if not chooses or event != NONE:
                _serve(program, state, server, event, nics, ordered, routers, faulty, rounds)
            if chooses:
                wake(program, state, server, routers, faulty)
            event = after
        run.served += 1
    run.served = run.touched = 0
    return True


@helper
def _deliver_in_order(program, state, key):
    """Deliver a chunk that is in, and those that were in before it and waited for it; or let it wait."""
    if not faults.is_next(state, key):
        return
    task = faults.task_of(state, key)
    _deliver(program, state, task, True)
    node = faults.next_held(state, task)
    while node != NONE:
        free_node(state, node)
        _deliver(program, state, task, True)
        node = faults.next_held(state, task)


@helper
def _happen(program, state, event, nics, ordered, faulty):
    """An event of this picosecond: an arrival waits for its turn, the others take effect."""
    run, place = state.run, state.events[event].place
    if place >= 0:
        _arrive(program, state, event)
        return
    key = state.events[event].key
    if ordered and place == WOKEN:
        look_at(state, event)
    elif ordered and place == ASKS:
        run.spare = event
        state.tasks[key].gate_ps = run.now_ps
        _stack(state, key)
    elif faulty and place == RINGS:
        run.spare = event
        faults.ring(state, key, state.tasks[key].chunks)
    elif nics and place != NONE:
        happen(program, state, event, place)
    else:
        run.spare = event
        if faulty:
            _deliver_in_order(program, state, key)
        else:
            _deliver(program, state, key & ((np.int64(1) << run.task_bits) - 1), ordered)


@entry
def run_fifo(program, state, max_events, until_ps):
    """Run a program of fifo servers and simple pools until it ends or a limit is reached, between two picoseconds.

    `state`: updated; a later call goes on from it.
    `max_events`: pause after the picosecond in which this many more services have begun.
    `until_ps`: pause before the first event later than this.
    Returns FINISHED, PAUSED, STUCK, OUT_OF_ORDER, or NEEDS_TOKENS: call again with more room.
    """
    return fifo_loop(program, state, max_events, until_ps, False, False, False, False, False)


@entry
def run_rounds(program, state, max_events, until_ps):
    """Run such a program without pools whose chunks are delivered one by one; see `sim.engine.policies.rounds`."""
    return fifo_loop(program, state, max_events, until_ps, False, False, False, False, True)


@entry
def run_fifo_nics(program, state, max_events, until_ps):
    """Run such a program with NICs."""
    return fifo_loop(program, state, max_events, until_ps, True, False, False, False, False)


@entry
def run_ordered(program, state, max_events, until_ps):
    """Run a program with servers that choose by a rank, and any pools."""
    return fifo_loop(program, state, max_events, until_ps, False, True, False, False, False)


@entry
def run_links(program, state, max_events, until_ps):
    """Run a program with turns, channels or buffers, or with NICs beside ranks or pools; `server_nic` may be -1."""
    return fifo_loop(program, state, max_events, until_ps, True, True, True, False, False)


@entry
def run_drawn(program, state, max_events, until_ps):
    """Run such a program with losses and jitter alone, and without pools."""
    return fifo_loop(program, state, max_events, until_ps, False, False, False, True, False)


@entry
def run_changing(program, state, max_events, until_ps):
    """Run any program without turns, channels, buffers and NICs; `server_nic` is -1."""
    return fifo_loop(program, state, max_events, until_ps, False, True, False, True, False)


@entry
def run_faulty(program, state, max_events, until_ps):
    """Run any program, also one in which something changes in time; `server_nic` may be -1."""
    return fifo_loop(program, state, max_events, until_ps, True, True, True, True, False)


@section
def fifo_loop(program, state, max_events, until_ps, nics, ordered, routers, faulty, rounds):
    """The loop of all entries above."""
    run = state.run
    limit = run.events + max_events
    if faulty and not faults.begin(program, state):
        return NEEDS_TOKENS
    while True:
        if run.top != NONE and not _settle(program, state, nics, ordered, faulty):
            return NEEDS_TOKENS
        # A chunk that is in before another one waits in a node.
        if faulty and run.free_nodes < faults.SPARE_NODES:
            return NEEDS_TOKENS
        due = take(state)
        while due != NONE:
            _happen(program, state, due, nics, ordered, faulty)
            if faulty and run.free_nodes < faults.SPARE_NODES:
                return NEEDS_TOKENS
            due = take(state)
        if nics and not end_runs(program, state, ordered):
            return NEEDS_TOKENS
        if run.top != NONE or (run.stirred != NONE and grant(program, state, ordered, faulty)):
            continue
        if nics and not serve_nics(program, state, ordered, faulty):
            return NEEDS_TOKENS
        if not _serve_all(program, state, nics, ordered, routers, faulty, rounds):
            return NEEDS_TOKENS
        if run.left == 0:
            return FINISHED
        if run.events >= limit:
            return PAUSED
        status = advance(program, state, until_ps)
        if status != FINISHED:
            return status
