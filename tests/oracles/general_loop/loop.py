"""The general loops of the chunk engine: what changes in time, NICs whose own server chooses, and large keys.

The rest, which they can run too, is run by sim/engine/loop.py, and compared with them by the tests.

The contract is that of sim/program/contract.py; the arrays come from sim/engine/run.py, which has cast them. Numba
keys its cache on a function's own file; compile/door.py keys it on all files of jitted code, so that none can go
stale unnoticed.

A picosecond has three stages, as in the contract, and all loops run them in this order (sim/engine/loop.py is the
third):

    batch of events --> deliveries, joins, releases --+   until neither the stack (TOP) nor the batch has any left
          ^                                           |
          +------------- pools grant <----------------+
    arrivals join the queue or line of their server
    every touched server that is free chooses once;  then `advance` moves the present to the next event

A service lasts at least 1 ps, so nothing that a choice causes falls into its own picosecond, and no stage has to be
done again. A task goes through `released` (nothing holds the chunk back) >= `joined` (it has gone to its first server
or pool) >= `delivered`; `gate_ps` is FAR while a chunk that joined has not been served by the first server, which is
what lets tasks of one source take turns.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, helper, section, u64
from sim.engine.core.status import FAR, FINISHED, NEEDS_TOKENS, NONE, PAUSED, UNSTACKED
from sim.engine.core.tasks import service_ps
from sim.program.contract import FIFO, HEAD, PER_CHUNK, ROUND_ROBIN_FLOW
from tests.oracles.general_loop.credits import fits, give_back, hold, line_of, rings, room_for_returns
from tests.oracles.general_loop.event import (
    AT,
    CHUNK,
    NEXT,
    SIZE,
    TASK,
    at_of,
    chunk_of,
    field,
    next_of,
    size_of,
    task_of,
)
from tests.oracles.general_loop.faults import first_hop_at, room_for_journal, serve_faulty
from tests.oracles.general_loop.heap import lone, meld, without_root
from tests.oracles.general_loop.nic import (
    ALARM,
    NIC_WORDS,
    SERVING,
    ask_nic,
    engine_is_done,
    join_line,
    serve_nics,
    served,
    touch_nic,
)
from tests.oracles.general_loop.state import (
    ARM,
    ARRIVING,
    BATCH,
    EVENTS,
    FIRST_HOP,
    FREE,
    LEFT,
    MAKESPAN,
    NEEDS_JOURNAL,
    NOW,
    RETURN,
    RING,
    TOKENS_FROM,
    TOP,
    TOUCHED,
)
from tests.oracles.general_loop.turns import line_up, next_in_turn
from tests.oracles.general_loop.wheel import advance, push

# --- releases and deliveries -------------------------------------------------------------------------------------


@helper
def _stack(state, task):
    """Remember to look at a task before this picosecond ends."""
    if state.link[u64(task)] == UNSTACKED:
        state.link[u64(task)] = state.register[TOP]
        state.register[TOP] = task


@helper
def _needed(chunk, parent_chunks, chunks, lag):
    """Chunks of a stream parent that chunk `chunk` waits for: ceil((chunk + 1) * parent_chunks / chunks)."""
    if lag > 0:
        return max(chunk - lag + 1, 0)
    if parent_chunks == chunks:
        return chunk + 1
    return -((-(chunk + 1) * np.int64(parent_chunks)) // chunks)


@helper
def _release(program, state, task):
    """Release every chunk that nothing holds back any more."""
    chunks = program.cut_chunks[u64(program.task_cut[u64(task)])]
    if program.parent.size == 0 or program.parent_ptr[u64(task)] == program.parent_ptr[u64(task + 1)]:
        if state.missing[u64(task)] == 0:
            state.released[u64(task)] = chunks
        return
    first = program.parent_ptr[u64(task)]
    last = program.parent_ptr[u64(task + 1)]
    # `missing` counts the parents that hold back chunk `released` and no later one: a chunk that gets free makes it
    # count anew for the next, so that each edge is looked at once per chunk of the child.
    released = state.released[u64(task)]
    while released < chunks and state.missing[u64(task)] == 0:
        released += 1
        if released < chunks:
            missing = 0
            for edge in range(first, last):
                parent = program.parent[u64(edge)]
                parent_chunks = program.cut_chunks[u64(program.task_cut[u64(parent)])]
                lag = program.parent_lag[u64(edge)] if program.parent_lag.size else 0
                if _needed(released, parent_chunks, chunks, lag) > state.delivered[u64(parent)]:
                    missing += 1
            state.missing[u64(task)] = missing
    state.released[u64(task)] = released


@helper
def _free_child(state, child):
    """One parent less holds a child back."""
    state.missing[u64(child)] -= 1
    if state.missing[u64(child)] == 0:
        _stack(state, child)


@helper
def _deliver(program, state, task):
    """Deliver the next chunk of a task: free what waits for it, give units back."""
    delivered = state.delivered[u64(task)] + 1
    state.delivered[u64(task)] = delivered
    chunks = program.cut_chunks[u64(program.task_cut[u64(task)])]
    if program.stream_child.size:
        for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
            child = program.stream_child[u64(edge)]
            child_chunks = program.cut_chunks[u64(program.task_cut[u64(child)])]
            following = state.released[u64(child)]
            lag = program.stream_lag[u64(edge)] if program.stream_lag.size else 0
            if following < child_chunks and _needed(following, chunks, child_chunks, lag) == delivered:
                _free_child(state, child)
    if program.give_pool.size:
        for give in range(program.give_ptr[u64(task)], program.give_ptr[u64(task + 1)]):
            if program.give_per[u64(give)] == PER_CHUNK or delivered == chunks:
                pool = program.give_pool[u64(give)]
                state.pool_free[u64(pool)] += program.give_units[u64(give)]
    if delivered == chunks:
        present = state.register[NOW]
        state.finish_ps[u64(task)] = present
        state.register[MAKESPAN] = present
        state.register[LEFT] -= 1
        if program.whole_child.size:
            for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
                _free_child(state, program.whole_child[u64(edge)])


@helper
def _token(program, state, task, chunk, at, faulty):
    """Make the next chunk of a task a token, or return NONE where there is no token left."""
    token = state.register[FREE]
    if token != NONE:
        state.register[FREE] = next_of(state.event, token)
        cut = program.task_cut[u64(task)]
        size = program.cut_size[u64(cut), 0] if chunk < program.cut_first[u64(cut)] else program.cut_size[u64(cut), 1]
        state.event[field(token, TASK)] = task
        state.event[field(token, CHUNK)] = chunk
        state.event[field(token, AT)] = at
        state.event[field(token, SIZE)] = size | FIRST_HOP
        if faulty:
            state.attempt[u64(token)] = 0
    return token


@helper
def _free(state, token):
    """Give a token back."""
    state.event[field(token, NEXT)] = state.register[FREE]
    state.register[FREE] = token


@helper
def _join(program, state, task, faulty, nics):
    """Send the released chunks of a task to its pool, its NIC, its first server, or straight to delivery.

    `faulty` and `nics` are constants in each loop, here and below, and the branch not taken is not compiled.
    Returns False where tokens ran out; the task then stays on the stack.
    """
    if state.joined[u64(task)] == state.released[u64(task)] or state.gate_ps[u64(task)] == FAR:
        return True
    route = program.task_route[u64(task)]
    at = program.route_ptr[u64(route)]
    empty = at == program.route_ptr[u64(route + 1)]
    present = state.register[NOW]
    while state.joined[u64(task)] < state.released[u64(task)] and state.gate_ps[u64(task)] != FAR:
        chunk = state.joined[u64(task)]
        pool = program.task_pool[u64(task)] if program.task_pool.size else NONE
        asks = pool != NONE and (chunk == 0 or program.task_per[u64(task)] == PER_CHUNK)
        if empty and not asks:
            state.joined[u64(task)] += 1
            if chunk == 0:
                state.start_ps[u64(task)] = present
            _deliver(program, state, task)
            continue
        if faulty and not empty and not asks:
            at = first_hop_at(program, task, present)
        token = _token(program, state, task, chunk, NONE if empty else at, faulty)
        if token == NONE:
            return False
        state.joined[u64(task)] += 1
        if asks:
            state.event_ps[u64(4 * token)] = present
            discipline = program.pool_discipline[u64(pool)]
            alone = lone(state, token)
            state.pool_queue[u64(pool)] = meld(program, state, discipline, state.pool_queue[u64(pool)], alone)
        elif nics and program.server_nic[u64(program.hop_server[u64(program.route_hop[u64(at)])])] != NONE:
            ask_nic(program, state, program.server_nic[u64(program.hop_server[u64(program.route_hop[u64(at)])])], token)
        else:
            push(state, token, max(present, state.gate_ps[u64(task)]))
        state.gate_ps[u64(task)] = FAR
    return True


@helper
def _settle(program, state, faulty, nics):
    """Look at every task on the stack, until none is left. Returns False where tokens ran out."""
    register = state.register
    while register[TOP] != NONE:
        task = register[TOP]
        register[TOP] = state.link[u64(task)]
        state.link[u64(task)] = UNSTACKED
        _release(program, state, task)
        if not _join(program, state, task, faulty, nics):
            _stack(state, task)
            return False
    return True


@helper
def _begin(program, state, token, server, start):
    """Log a service; returns its end and when the token is ready for what follows."""
    at = at_of(state.event, token)
    size = size_of(state.event, token)
    first_hop = size >= FIRST_HOP
    size &= FIRST_HOP - 1
    service = service_ps(program, size, program.server_rate[u64(server)])
    end = start + service
    state.busy_ps[u64(server)] += service
    state.free_ps[u64(server)] = end
    state.register[EVENTS] += 1
    hop = program.route_hop[u64(at)]
    latency = program.hop_latency_ps[u64(hop)]
    if first_hop and chunk_of(state.event, token) == 0:
        state.start_ps[u64(task_of(state.event, token))] = start
    if state.log_base.size:
        task = task_of(state.event, token)
        route = program.task_route[u64(task)]
        first = program.route_ptr[u64(route)]
        chunk = chunk_of(state.event, token)
        row = state.log_base[u64(task)] + chunk * (program.route_ptr[u64(route + 1)] - first) + (at - first)
        state.log_start_ps[u64(row)] = start
        state.log_before[u64(row)] = state.last_row[u64(server)]
        state.last_row[u64(server)] = row
    last = program.hop_last[u64(hop)] != 0
    if last:
        ready = (start if program.hop_last[u64(hop)] == HEAD else end) + latency
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[u64(program.hop_server[u64(program.route_hop[u64(at + 1)])])]
            ready = max(start + latency, ready - service_ps(program, size, after))
    state.event[field(token, SIZE)] = size  # without FIRST_HOP
    state.event[field(token, AT)] = NONE if last else at + 1
    return end, ready


# --- general: servers choose when they are free, pools grant -------------------------------------------------------


@helper
def _touch(state, server):
    if state.touched_ps[u64(server)] != state.register[NOW]:
        state.touched_ps[u64(server)] = state.register[NOW]
        state.touched[u64(state.register[TOUCHED])] = server
        state.register[TOUCHED] += 1


@helper
def _ring(program, state, task):
    """The deadline of a task: it waits for no other any more."""
    state.missing[u64(task)] = 0
    state.released[u64(task)] = program.cut_chunks[u64(program.task_cut[u64(task)])]
    _stack(state, task)


@helper
def _deliver_in_order(program, state, token):
    """Deliver a token, and those that were in before it and waited for it; or let it wait."""
    events = state.event
    task = task_of(events, token)
    if chunk_of(events, token) != state.delivered[u64(task)]:
        events[field(token, NEXT)] = state.held[u64(task)]
        state.held[u64(task)] = token
        return
    while token != NONE:
        _free(state, token)
        _deliver(program, state, task)
        token, before = state.held[u64(task)], NONE
        while token != NONE and chunk_of(events, token) != state.delivered[u64(task)]:
            token, before = next_of(events, token), token
        if token != NONE:
            after = next_of(events, token)
            if before == NONE:
                state.held[u64(task)] = after
            else:
                events[field(before, NEXT)] = after


@helper
def _pushed(program, state, engine):
    """An engine has pushed a chunk: the next one of its transfer may follow, or those that wait for the last."""
    task = task_of(state.event, engine)
    if state.joined[u64(task)] < state.released[u64(task)]:
        at = program.route_ptr[u64(program.task_route[u64(task)])]
        token = _token(program, state, task, state.joined[u64(task)], at, False)
        if token != NONE:  # else it is on the stack when there are tokens again
            state.joined[u64(task)] += 1
            ask_nic(program, state, chunk_of(state.event, engine), token)
            return
    is_last = state.joined[u64(task)] == program.cut_chunks[u64(program.task_cut[u64(task)])]
    engine_is_done(program, state, engine, is_last)
    state.gate_ps[u64(task)] = state.register[NOW]
    if not is_last:
        _stack(state, task)
    elif program.pushed_child.size:
        for edge in range(program.pushed_ptr[u64(task)], program.pushed_ptr[u64(task + 1)]):
            _free_child(state, program.pushed_child[u64(edge)])


@helper
def _happen(program, state, event, faulty, nics, routers):
    """An event of this picosecond: the end of a service, a delivery, or an arrival, which waits for its turn."""
    if event < program.server_rate.size:
        _touch(state, event)
        if nics and program.server_nic[u64(event)] != NONE:
            served(state, program.server_nic[u64(event)])
        task = state.first_of[u64(event)]
        if task != NONE:
            state.gate_ps[u64(task)] = state.register[NOW]
            _stack(state, task)
        return
    if nics and event < state.register[TOKENS_FROM]:
        nic = event - program.server_rate.size
        if nic < program.nic_engines.size:
            state.nic[u64(nic * NIC_WORDS + ALARM)] = 0
            touch_nic(state, nic)
        else:
            _pushed(program, state, event)
        return
    token = event
    if at_of(state.event, token) != NONE:
        state.event[field(token, NEXT)] = state.register[ARRIVING]
        state.register[ARRIVING] = token
        return
    if routers and chunk_of(state.event, token) == RETURN:
        _touch(state, rings(program, state, token))
        return
    task = task_of(state.event, token)
    if faulty and chunk_of(state.event, token) < 0:
        if chunk_of(state.event, token) == ARM:
            state.event[field(token, CHUNK)] = RING
            push(state, token, program.task_deadline_ps[u64(task)])
        else:
            _free(state, token)
            _ring(program, state, task)
        return
    if size_of(state.event, token) >= FIRST_HOP:  # of a task without servers
        state.gate_ps[u64(task)] = state.register[NOW]
        _stack(state, task)
    if faulty:
        _deliver_in_order(program, state, token)
    else:
        _free(state, token)
        _deliver(program, state, task)


@helper
def _grant(program, state, faulty):
    """Let every pool grant what it can; what that delivers joins the batch."""
    for pool in range(program.pool_capacity.size):
        token = state.pool_queue[u64(pool)]
        discipline = program.pool_discipline[u64(pool)]
        while token != NONE:
            task = task_of(state.event, token)
            if program.task_units[u64(task)] > state.pool_free[u64(pool)]:
                break
            state.pool_free[u64(pool)] -= program.task_units[u64(task)]
            state.pool_queue[u64(pool)] = without_root(program, state, discipline, token)
            if at_of(state.event, token) == NONE:
                if chunk_of(state.event, token) == 0:
                    state.start_ps[u64(task)] = state.register[NOW]
                push(state, token, state.register[NOW])
            else:
                if faulty:
                    state.event[field(token, AT)] = first_hop_at(program, task, state.register[NOW])
                state.event[field(token, NEXT)] = state.register[ARRIVING]
                state.register[ARRIVING] = token
            token = state.pool_queue[u64(pool)]


@helper
def _serve(program, state, server, nics, routers):
    """Start the service of the token that a free server chooses."""
    token = state.queue[u64(server)]
    discipline = program.server_discipline[u64(server)]
    if routers and not fits(program, state, server, server, token):
        return
    if nics and discipline == FIFO:
        state.queue[u64(server)] = next_of(state.event, token)
    else:
        state.queue[u64(server)] = without_root(program, state, discipline, token)
    _serve_token(program, state, server, token, nics, routers)


@helper
def _serve_in_turn(program, state, server):
    """Let the tokens that arrived get in line, and start the service of the next one if the server is free."""
    line_up(program, state, server)
    if state.free_ps[u64(server)] <= state.register[NOW]:
        token = next_in_turn(program, state, server)
        if token != NONE:
            _serve_token(program, state, server, token, True, True)


@helper
def _serve_channels(program, state, server):
    """Start the service of the first chunk of the next channel that has one with room for it."""
    channel = state.channel[u64(server)]
    for _ in range(program.channels):
        line = server + program.server_rate.size * channel
        channel = 0 if channel + 1 == program.channels else channel + 1
        token = state.queue[u64(line)]
        if token != NONE and fits(program, state, server, line, token):
            state.channel[u64(server)] = channel
            state.queue[u64(line)] = next_of(state.event, token)
            _serve_token(program, state, server, token, True, True)
            return


@helper
def _serve_token(program, state, server, token, nics, routers):
    """Start a service."""
    first_hop = size_of(state.event, token) >= FIRST_HOP
    state.first_of[u64(server)] = task_of(state.event, token) if first_hop else NONE
    if nics and program.server_nic[u64(server)] != NONE:
        state.first_of[u64(server)] = NONE  # its engine lets the next chunk follow
        work = program.chunk_work[u64(size_of(state.event, token) & (FIRST_HOP - 1))]
        state.nic[u64(program.server_nic[u64(server)] * NIC_WORDS + SERVING)] = work
    at, size = at_of(state.event, token), size_of(state.event, token)
    end, ready = _begin(program, state, token, server, state.register[NOW])
    if routers and program.server_buffer.size:
        hop = program.route_hop[u64(at)]
        hold(program, state, server, hop, size & (FIRST_HOP - 1))
        if size < FIRST_HOP:
            give_back(program, state, program.route_hop[u64(at - 1)], size, end)
        if at_of(state.event, token) == NONE:
            give_back(program, state, hop, size & (FIRST_HOP - 1), ready)
    push(state, server, end)
    push(state, token, ready)


@section
def _general(program, state, max_events, until_ps, faulty, nics, routers):
    """The loop of `run_general`, `run_faulty`, `run_nics` and `run_routers`."""
    register = state.register
    limit = register[EVENTS] + max_events
    while True:
        settled = False
        while not settled:
            if not _settle(program, state, faulty, nics):
                return NEEDS_TOKENS
            while register[BATCH] != NONE:
                event = register[BATCH]
                register[BATCH] = next_of(state.event, event)
                _happen(program, state, event, faulty, nics, routers)
            if register[TOP] == NONE:
                _grant(program, state, faulty)
                settled = register[BATCH] == NONE
        if nics:
            serve_nics(program, state)
        while register[ARRIVING] != NONE:
            token = register[ARRIVING]
            register[ARRIVING] = next_of(state.event, token)
            server = program.hop_server[u64(program.route_hop[u64(at_of(state.event, token))])]
            # A chunk that comes out of a pool arrives now, whenever it asked.
            state.event_ps[u64(4 * token)] = register[NOW]
            discipline = program.server_discipline[u64(server)]
            if nics and discipline == FIFO:
                if routers:
                    line = line_of(program, server, program.route_hop[u64(at_of(state.event, token))])
                    join_line(program, state, line, token)
                else:
                    join_line(program, state, server, token)
            else:
                alone = lone(state, token)
                state.queue[u64(server)] = meld(program, state, discipline, state.queue[u64(server)], alone)
            _touch(state, server)
        if faulty and not room_for_journal(state):
            return NEEDS_JOURNAL
        if routers and not room_for_returns(program, state):
            return NEEDS_TOKENS
        for i in range(register[TOUCHED]):
            server = state.touched[u64(i)]
            if routers and program.server_discipline[u64(server)] >= ROUND_ROBIN_FLOW:
                _serve_in_turn(program, state, server)
            elif routers and program.channels > 1 and program.server_discipline[u64(server)] == FIFO:
                if state.free_ps[u64(server)] <= register[NOW]:
                    _serve_channels(program, state, server)
            elif state.queue[u64(server)] != NONE and state.free_ps[u64(server)] <= register[NOW]:
                if faulty:
                    serve_faulty(program, state, server)
                else:
                    _serve(program, state, server, nics, routers)
        register[TOUCHED] = 0
        if register[LEFT] == 0:
            return FINISHED
        if register[EVENTS] >= limit:
            return PAUSED
        status = advance(state, until_ps)
        if status != FINISHED:
            return status


@entry
def run_general(program, state, max_events, until_ps):
    """Run a program until it ends or a limit is reached, between two picoseconds.

    Parameters
    ----------
    program : Program
    state : State
        Updated; a later call goes on from it.
    max_events : int
        Pause after the picosecond in which this many more services have begun.
    until_ps : int
        Pause before the first event later than this.

    Returns
    -------
    int
        FINISHED, PAUSED, NEEDS_TOKENS (grow the token arrays, link the new ones, and call again) or STUCK.
    """
    return _general(program, state, max_events, until_ps, False, False, False)


@entry
def run_faulty(program, state, max_events, until_ps):
    """Run a program in which something changes in time; see `run_general`. NEEDS_JOURNAL asks for more of that."""
    return _general(program, state, max_events, until_ps, True, False, False)


@entry
def run_nics(program, state, max_events, until_ps):
    """Run a program with NICs; see `run_general`."""
    return _general(program, state, max_events, until_ps, False, True, False)


@entry
def run_routers(program, state, max_events, until_ps):
    """Run a program with turns or buffers, with NICs or (`server_nic` is -1) without; see `run_general`."""
    return _general(program, state, max_events, until_ps, False, True, True)
