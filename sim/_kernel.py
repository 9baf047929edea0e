"""The chunk engine's kernel: all jitted code of the engine, in this one file.

Numba keys its cache on a function's own file, so a callee in another file could go stale unnoticed.
The contract is that of sim/program.py; the arrays come from sim/engine.py, which has cast them.

Events wait in a wheel of eleven levels of 64 slots: an event lies on the level of the highest 6-bit digit in which
its time differs from the present, in the slot of that digit, and moves down a level when the present reaches its
slot. All times of a run being integers, a push is a shift and a compare, and equal times come out as one batch,
which is how the contract orders a picosecond.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim._jit import entry, helper, shared
from sim.program import FIFO, I8, I32, I64, LOWEST_CHUNK_FIRST, PER_CHUNK, PER_TASK, PRIORITY, SMALLEST_FIRST, Program

FINISHED, PAUSED, NEEDS_TOKENS, STUCK = 0, 1, 2, 3
"""Status of a run: no task is left; a limit was reached; more tokens are needed; tasks are left and no event is."""

LEVELS, DIGIT, SLOTS = 11, 6, 64
FAR = np.int64(2**63 - 1)
NONE = -1
_BIT = np.array([1 << i for i in range(63)] + [-(1 << 63)], np.int64)

# Registers of a run, kept between calls: present, services done, tasks left, last delivery, first event of the
# present, first token arriving at the present, first free token, height of the stack, number of touched servers.
NOW, EVENTS, LEFT, MAKESPAN, BATCH, ARRIVING, FREE, HEIGHT, TOUCHED, REGISTERS = range(10)


class State(NamedTuple):
    """State of a run; S servers, T tasks, P pools, N tokens.

    A token is a chunk on its way. Event e < S is the end of service of server e (general discipline only); event
    S + n is what token n does next.

    Attributes
    ----------
    register : (REGISTERS,) int64
    released, joined, delivered : (T,) int32
        Chunks released; of these, that went to the first server (or the pool); delivered.
    missing, waits : (T,) int32
        Stream parents that hold back the next chunk; whole parents not delivered.
    gate_ps : (T,) int64
        When the first server is done with the chunk before; FAR while that chunk has not been served.
    start_ps, finish_ps : (T,) int64
    stack : (T,) int32
        Tasks to look at in this picosecond.
    stacked : (T,) int8
    free_ps : (S,) int64
        End of the last service begun.
    busy_ps : (S,) int64
    first_of : (S,) int32
        Task whose first hop is being served, or NONE (general discipline only).
    queue, tail : (S,) int32
        Waiting tokens: a list in order (fifo, within one picosecond) or the root of a pairing heap.
    touched : (S,) int32
        Servers to look at in this picosecond.
    touched_ps : (S,) int64
    event_ps, event_next : (S+N,) int64, int32
    token_task, token_chunk, token_at, token_size : (N,) int32
        Task and chunk, index of the hop in the routes (NONE: delivery), row of the service table.
    token_child, token_rank : (N,) int32, int64
        Pairing heap.
    slot, occupied : (LEVELS * SLOTS,) int32, (LEVELS,) int64
        Heads of the wheel's lists, and which are not empty.
    pool_free, pool_queue : (P,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.outcome.Log.
    """

    register: I64
    released: I32
    joined: I32
    delivered: I32
    missing: I32
    waits: I32
    gate_ps: I64
    start_ps: I64
    finish_ps: I64
    stack: I32
    stacked: I8
    free_ps: I64
    busy_ps: I64
    first_of: I32
    queue: I32
    tail: I32
    touched: I32
    touched_ps: I64
    event_ps: I64
    event_next: I32
    token_task: I32
    token_chunk: I32
    token_at: I32
    token_size: I32
    token_child: I32
    token_rank: I64
    slot: I32
    occupied: I64
    pool_free: I32
    pool_queue: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64


# --- the wheel ---------------------------------------------------------------------------------------------------


@helper
def _lowest_bit(word):
    """Index of the lowest set bit of a word that is not zero."""
    index = 0
    if word & 0xFFFFFFFF == 0:
        index += 32
        word >>= 32
    if word & 0xFFFF == 0:
        index += 16
        word >>= 16
    if word & 0xFF == 0:
        index += 8
        word >>= 8
    if word & 0xF == 0:
        index += 4
        word >>= 4
    if word & 3 == 0:
        index += 2
        word >>= 2
    if word & 1 == 0:
        index += 1
    return index


@helper
def _push(state, event, time):
    """Let an event happen at a time that is not past."""
    register, event_next = state.register, state.event_next
    state.event_ps[event] = time
    differs = time ^ register[NOW]
    if differs == 0:
        event_next[event] = register[BATCH]
        register[BATCH] = event
        return
    level = 0
    while differs >= SLOTS:
        differs >>= DIGIT
        level += 1
    digit = (time >> (DIGIT * level)) & (SLOTS - 1)
    at = level * SLOTS + digit
    event_next[event] = state.slot[at]
    state.slot[at] = event
    state.occupied[level] |= _BIT[digit]


@helper
def _advance(state, until_ps):
    """Move the present to the next event and make the events of that picosecond the batch.

    Returns FINISHED, PAUSED when the next event lies after `until_ps`, or STUCK when there is none.
    """
    register, slot, occupied = state.register, state.slot, state.occupied
    while register[BATCH] == NONE:
        level = 0
        while level < LEVELS and occupied[level] == 0:
            level += 1
        if level == LEVELS:
            return STUCK
        digit = _lowest_bit(occupied[level])
        shift = DIGIT * level
        present = ((register[NOW] >> (shift + DIGIT)) << (shift + DIGIT)) | (np.int64(digit) << shift)
        if present > until_ps:
            return PAUSED
        register[NOW] = present
        at = level * SLOTS + digit
        event = slot[at]
        slot[at] = NONE
        occupied[level] &= ~_BIT[digit]
        if level == 0:
            register[BATCH] = event
            return FINISHED
        while event != NONE:
            after = state.event_next[event]
            _push(state, event, state.event_ps[event])
            event = after
    return FINISHED


# --- releases and deliveries -------------------------------------------------------------------------------------


@helper
def _stack(state, task):
    """Remember to look at a task before this picosecond ends."""
    if state.stacked[task] == 0:
        state.stacked[task] = 1
        state.stack[state.register[HEIGHT]] = task
        state.register[HEIGHT] += 1


@helper
def _needed(chunk, parent_chunks, chunks, lag):
    """Chunks of a stream parent that chunk `chunk` waits for."""
    if lag > 0:
        return max(chunk - lag + 1, 0)
    if parent_chunks == chunks:
        return chunk + 1
    return -((-(chunk + 1) * np.int64(parent_chunks)) // chunks)


@helper
def _release(program, state, task):
    """Release every chunk that nothing holds back any more."""
    chunks = program.cut_chunks[program.task_cut[task]]
    first = program.parent_ptr[task]
    last = program.parent_ptr[task + 1]
    if first == last:
        state.released[task] = chunks
        return
    released = state.released[task]
    while released < chunks and state.missing[task] == 0:
        released += 1
        if released < chunks:
            missing = 0
            for edge in range(first, last):
                parent = program.parent[edge]
                parent_chunks = program.cut_chunks[program.task_cut[parent]]
                if _needed(released, parent_chunks, chunks, program.parent_lag[edge]) > state.delivered[parent]:
                    missing += 1
            state.missing[task] = missing
    state.released[task] = released


@helper
def _deliver(program, state, task):
    """Deliver the next chunk of a task: free what waits for it, give units back."""
    delivered = state.delivered[task] + 1
    state.delivered[task] = delivered
    chunks = program.cut_chunks[program.task_cut[task]]
    if program.stream_child.size:
        for edge in range(program.stream_ptr[task], program.stream_ptr[task + 1]):
            child = program.stream_child[edge]
            child_chunks = program.cut_chunks[program.task_cut[child]]
            following = state.released[child]
            if following < child_chunks:
                if _needed(following, chunks, child_chunks, program.stream_lag[edge]) == delivered:
                    state.missing[child] -= 1
                    if state.missing[child] == 0 and state.waits[child] == 0:
                        _stack(state, child)
    if program.give_pool.size:
        for row in range(program.give_ptr[task], program.give_ptr[task + 1]):
            if program.give_per[row] == PER_CHUNK or delivered == chunks:
                state.pool_free[program.give_pool[row]] += program.give_units[row]
    if delivered == chunks:
        present = state.register[NOW]
        state.finish_ps[task] = present
        state.register[MAKESPAN] = present
        state.register[LEFT] -= 1
        for edge in range(program.whole_ptr[task], program.whole_ptr[task + 1]):
            child = program.whole_child[edge]
            state.waits[child] -= 1
            if state.waits[child] == 0 and state.missing[child] == 0:
                _stack(state, child)


@helper
def _size_row(program, task, chunk):
    cut = program.task_cut[task]
    return program.cut_size[cut, 0] if chunk < program.cut_first[cut] else program.cut_size[cut, 1]


@helper
def _token(program, state, task, chunk, at):
    """Make the next chunk of a task a token, or return NONE where there is no token left."""
    token = state.register[FREE]
    if token != NONE:
        state.register[FREE] = state.event_next[program.server_rate.size + token]
        state.token_task[token] = task
        state.token_chunk[token] = chunk
        state.token_at[token] = at
        state.token_size[token] = _size_row(program, task, chunk)
    return token


@helper
def _free(program, state, token):
    state.event_next[program.server_rate.size + token] = state.register[FREE]
    state.register[FREE] = token


@helper
def _join(program, state, task):
    """Send the released chunks of a task to its pool, its first server, or straight to delivery.

    Returns False where tokens ran out; the task then stays on the stack.
    """
    route = program.task_route[task]
    at = program.route_ptr[route]
    empty = at == program.route_ptr[route + 1]
    present = state.register[NOW]
    while state.joined[task] < state.released[task] and state.gate_ps[task] != FAR:
        chunk = state.joined[task]
        pool = program.task_pool[task] if program.task_pool.size else NONE
        asks = pool != NONE and (chunk == 0 or program.task_per[task] == PER_CHUNK)
        if empty and not asks:
            state.joined[task] += 1
            if chunk == 0:
                state.start_ps[task] = present
            _deliver(program, state, task)
            continue
        token = _token(program, state, task, chunk, NONE if empty else at)
        if token == NONE:
            return False
        state.joined[task] += 1
        event = program.server_rate.size + token
        if asks:
            state.event_ps[event] = present
            state.token_rank[token] = _rank(program, program.pool_discipline[pool], task, chunk)
            state.pool_queue[pool] = _meld(program, state, state.pool_queue[pool], _lone(program, state, token))
        else:
            _push(state, event, max(present, state.gate_ps[task]))
        state.gate_ps[task] = FAR
    return True


@helper
def _settle(program, state):
    """Look at every task on the stack, until none is left. Returns False where tokens ran out."""
    register = state.register
    while register[HEIGHT] > 0:
        task = state.stack[register[HEIGHT] - 1]
        register[HEIGHT] -= 1
        state.stacked[task] = 0
        if state.waits[task] == 0:
            _release(program, state, task)
        if not _join(program, state, task):
            _stack(state, task)
            return False
    return True


@helper
def _begin(program, state, token, server, start):
    """Log and account a service; returns its end and when the token is ready for what follows."""
    at = state.token_at[token]
    task = state.token_task[token]
    service = program.service_ps[state.token_size[token], program.server_rate[server]]
    end = start + service
    state.busy_ps[server] += service
    state.free_ps[server] = end
    state.register[EVENTS] += 1
    route = program.task_route[task]
    if state.log_base.size:
        first = program.route_ptr[route]
        row = state.log_base[task] + state.token_chunk[token] * (program.route_ptr[route + 1] - first) + (at - first)
        state.log_start_ps[row] = start
        state.log_before[row] = state.last_row[server]
        state.last_row[server] = row
    if at == program.route_ptr[route] and state.token_chunk[token] == 0:
        state.start_ps[task] = start
    latency = program.route_latency_ps[at]
    if at + 1 == program.route_ptr[route + 1]:
        state.token_at[token] = NONE
        ready = (start if program.deliver_head else end) + latency
    else:
        state.token_at[token] = at + 1
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[program.route_server[at + 1]]
            ready = max(start + latency, ready - program.service_ps[state.token_size[token], after])
    return end, ready


# --- fifo: a server may be committed when a chunk arrives ---------------------------------------------------------


@helper
def _before(program, state, a, b):
    """Whether token a comes before token b at a server: (rank, arrival, class, chunk, hop, task)."""
    n_servers = program.server_rate.size
    if state.token_rank[a] != state.token_rank[b]:
        return state.token_rank[a] < state.token_rank[b]
    if state.event_ps[n_servers + a] != state.event_ps[n_servers + b]:
        return state.event_ps[n_servers + a] < state.event_ps[n_servers + b]
    task_a, task_b = state.token_task[a], state.token_task[b]
    if program.task_class[task_a] != program.task_class[task_b]:
        return program.task_class[task_a] < program.task_class[task_b]
    if state.token_chunk[a] != state.token_chunk[b]:
        return state.token_chunk[a] < state.token_chunk[b]
    hop_a = state.token_at[a] - program.route_ptr[program.task_route[task_a]]
    hop_b = state.token_at[b] - program.route_ptr[program.task_route[task_b]]
    if hop_a != hop_b and state.token_at[a] != NONE and state.token_at[b] != NONE:
        return hop_a < hop_b
    return task_a < task_b


@helper
def _line_up(program, state, server, token):
    """Put a token into the server's list of this picosecond's arrivals, in order of tie.

    Arrivals mostly come in order or in reverse, so both ends are tried first.
    """
    n_servers = program.server_rate.size
    event_next = state.event_next
    if state.touched_ps[server] != state.register[NOW]:
        state.touched_ps[server] = state.register[NOW]
        state.touched[state.register[TOUCHED]] = server
        state.register[TOUCHED] += 1
        state.queue[server] = token
        state.tail[server] = token
        event_next[n_servers + token] = NONE
    elif _before(program, state, state.tail[server], token):
        event_next[n_servers + state.tail[server]] = token
        event_next[n_servers + token] = NONE
        state.tail[server] = token
    elif _before(program, state, token, state.queue[server]):
        event_next[n_servers + token] = state.queue[server]
        state.queue[server] = token
    else:
        at = state.queue[server]
        while _before(program, state, event_next[n_servers + at], token):
            at = event_next[n_servers + at]
        event_next[n_servers + token] = event_next[n_servers + at]
        event_next[n_servers + at] = token


@helper
def _commit(program, state, token, server):
    """Serve a token that has just arrived at a fifo server, after all that came before it."""
    n_servers = program.server_rate.size
    task = state.token_task[token]
    at = state.token_at[token]
    end, ready = _begin(program, state, token, server, max(state.register[NOW], state.free_ps[server]))
    _push(state, n_servers + token, ready)
    if at == program.route_ptr[program.task_route[task]]:
        state.gate_ps[task] = end
        chunk = state.joined[task]
        if chunk < state.released[task]:
            following = _token(program, state, task, chunk, at)
            if following == NONE:
                _stack(state, task)
            else:
                state.joined[task] = chunk + 1
                state.gate_ps[task] = FAR
                _push(state, n_servers + following, end)


@entry
def run_fifo(program, state, max_events, until_ps):
    """Run a program whose servers are all fifo and that has no pools; see `run_general`."""
    register = state.register
    n_servers = program.server_rate.size
    limit = register[EVENTS] + max_events
    while True:
        if not _settle(program, state):
            return NEEDS_TOKENS
        while register[BATCH] != NONE:
            event = register[BATCH]
            register[BATCH] = state.event_next[event]
            token = event - n_servers
            if state.token_at[token] != NONE:
                _line_up(program, state, program.route_server[state.token_at[token]], token)
                continue
            task = state.token_task[token]
            _free(program, state, token)
            _deliver(program, state, task)
        if register[HEIGHT] > 0:
            continue
        for i in range(register[TOUCHED]):
            server = state.touched[i]
            token = state.queue[server]
            while token != NONE:
                after = state.event_next[n_servers + token]
                _commit(program, state, token, server)
                token = after
        register[TOUCHED] = 0
        if register[LEFT] == 0:
            return FINISHED
        if register[HEIGHT] > 0:
            continue
        if register[EVENTS] >= limit:
            return PAUSED
        status = _advance(state, until_ps)
        if status != FINISHED:
            return status


# --- general: servers choose when they are free, pools grant -------------------------------------------------------


@helper
def _rank(program, discipline, task, chunk):
    """What a discipline looks at before the arrival time."""
    if discipline == PRIORITY:
        return np.int64(program.task_priority[task])
    if discipline == SMALLEST_FIRST:
        return program.cut_work[program.task_cut[task]]
    if discipline == LOWEST_CHUNK_FIRST:
        return np.int64(chunk)
    return np.int64(0)


@helper
def _lone(program, state, token):
    """A pairing heap of one token."""
    state.token_child[token] = NONE
    state.event_next[program.server_rate.size + token] = NONE
    return token


@helper
def _meld(program, state, a, b):
    """One pairing heap from two; siblings are chained through `event_next`, which a waiting token does not use."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if _before(program, state, b, a):
        a, b = b, a
    n_servers = program.server_rate.size
    state.event_next[n_servers + b] = state.token_child[a]
    state.token_child[a] = b
    return a


@helper
def _without_root(program, state, root):
    """The heap that is left when its root is taken: meld the children in pairs, then the pairs from the right."""
    n_servers = program.server_rate.size
    event_next = state.event_next
    child = state.token_child[root]
    pairs = NONE
    while child != NONE:
        other = event_next[n_servers + child]
        event_next[n_servers + child] = NONE
        following = NONE
        if other != NONE:
            following = event_next[n_servers + other]
            event_next[n_servers + other] = NONE
        pair = _meld(program, state, child, other)
        event_next[n_servers + pair] = pairs
        pairs = pair
        child = following
    heap = NONE
    while pairs != NONE:
        following = event_next[n_servers + pairs]
        event_next[n_servers + pairs] = NONE
        heap = _meld(program, state, heap, pairs)
        pairs = following
    return heap


@helper
def _touch(state, server):
    if state.touched_ps[server] != state.register[NOW]:
        state.touched_ps[server] = state.register[NOW]
        state.touched[state.register[TOUCHED]] = server
        state.register[TOUCHED] += 1


@helper
def _happen(program, state, event):
    """An event of this picosecond: the end of a service, a delivery, or an arrival, which waits for its turn."""
    n_servers = program.server_rate.size
    if event < n_servers:
        _touch(state, event)
        task = state.first_of[event]
        if task != NONE:
            state.gate_ps[task] = state.register[NOW]
            _stack(state, task)
        return
    token = event - n_servers
    if state.token_at[token] != NONE:
        state.event_next[event] = state.register[ARRIVING]
        state.register[ARRIVING] = token
        return
    task = state.token_task[token]
    route = program.task_route[task]
    if program.route_ptr[route] == program.route_ptr[route + 1]:
        state.gate_ps[task] = state.register[NOW]
        _stack(state, task)
    _free(program, state, token)
    _deliver(program, state, task)


@helper
def _grant(program, state):
    """Let every pool grant what it can; what that delivers joins the batch."""
    n_servers = program.server_rate.size
    for pool in range(program.pool_capacity.size):
        token = state.pool_queue[pool]
        while token != NONE and program.task_units[state.token_task[token]] <= state.pool_free[pool]:
            task = state.token_task[token]
            state.pool_free[pool] -= program.task_units[task]
            state.pool_queue[pool] = _without_root(program, state, token)
            if state.token_at[token] == NONE:
                if state.token_chunk[token] == 0:
                    state.start_ps[task] = state.register[NOW]
                _push(state, n_servers + token, state.register[NOW])
            else:
                state.event_next[n_servers + token] = state.register[ARRIVING]
                state.register[ARRIVING] = token
            token = state.pool_queue[pool]


@helper
def _serve(program, state, server):
    """Start the service of the token that a free server chooses."""
    n_servers = program.server_rate.size
    token = state.queue[server]
    state.queue[server] = _without_root(program, state, token)
    task = state.token_task[token]
    first_hop = state.token_at[token] == program.route_ptr[program.task_route[task]]
    end, ready = _begin(program, state, token, server, state.register[NOW])
    state.first_of[server] = task if first_hop else NONE
    _push(state, server, end)
    _push(state, n_servers + token, ready)


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
    register = state.register
    n_servers = program.server_rate.size
    limit = register[EVENTS] + max_events
    while True:
        settled = False
        while not settled:
            if not _settle(program, state):
                return NEEDS_TOKENS
            while register[BATCH] != NONE:
                event = register[BATCH]
                register[BATCH] = state.event_next[event]
                _happen(program, state, event)
            if register[HEIGHT] == 0:
                _grant(program, state)
                settled = register[BATCH] == NONE
        while register[ARRIVING] != NONE:
            token = register[ARRIVING]
            register[ARRIVING] = state.event_next[n_servers + token]
            server = program.route_server[state.token_at[token]]
            discipline = program.server_discipline[server]
            # A chunk that comes out of a pool arrives now, whenever it asked.
            state.event_ps[n_servers + token] = register[NOW]
            state.token_rank[token] = _rank(program, discipline, state.token_task[token], state.token_chunk[token])
            state.queue[server] = _meld(program, state, state.queue[server], _lone(program, state, token))
            _touch(state, server)
        for i in range(register[TOUCHED]):
            server = state.touched[i]
            if state.queue[server] != NONE and state.free_ps[server] <= register[NOW]:
                _serve(program, state, server)
        register[TOUCHED] = 0
        if register[LEFT] == 0:
            return FINISHED
        if register[EVENTS] >= limit:
            return PAUSED
        status = _advance(state, until_ps)
        if status != FINISHED:
            return status


# --- bounds ---------------------------------------------------------------------------------------------------------


@entry
def longest_path(program, first_ps, whole_ps, last_ps, waits, order, release, finish):
    """Earliest release and finish of every task if no task ever waited for another's service.

    Parameters
    ----------
    program : Program
    first_ps, whole_ps, last_ps : (T,) int64
        Least time from release to delivery of the first chunk, of the whole task, and of one more chunk at the end.
    waits : (T,) int32
        Parents of each task, windows left out; used up.
    order : (T,) int32
        Scratch.
    release, finish : (T,) int64
        Filled; zeros on entry.

    Returns
    -------
    int
        The latest finish.
    """
    n_tasks = waits.size
    head, tail = 0, 0
    for task in range(n_tasks):
        if waits[task] == 0:
            order[tail] = task
            tail += 1
    latest = np.int64(0)
    while head < tail:
        task = order[head]
        head += 1
        finish[task] = max(finish[task], release[task] + whole_ps[task])
        latest = max(latest, finish[task])
        for edge in range(program.whole_ptr[task], program.whole_ptr[task + 1]):
            child = program.whole_child[edge]
            release[child] = max(release[child], finish[task])
            waits[child] -= 1
            if waits[child] == 0:
                order[tail] = child
                tail += 1
        for edge in range(program.stream_ptr[task], program.stream_ptr[task + 1]):
            if program.stream_lag[edge] == 0:
                child = program.stream_child[edge]
                release[child] = max(release[child], release[task] + first_ps[task])
                finish[child] = max(finish[child], finish[task] + last_ps[child])
                waits[child] -= 1
                if waits[child] == 0:
                    order[tail] = child
                    tail += 1
    return latest
