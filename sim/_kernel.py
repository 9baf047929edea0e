"""The chunk engine's kernel: all jitted code of the engine, in this one file.

Numba keys its cache on a function's own file, so a callee in another file could go stale unnoticed.
The contract is that of sim/program.py; the arrays come from sim/engine.py, which has cast them.

Events wait in a wheel of levels of 2^DIGIT slots: an event lies on the level of the highest digit in which its time
differs from the present, in the slot of that digit, and moves down a level when the present reaches its slot. All
times of a run being integers, a push is a shift and a compare, and equal times come out as one batch, which is how
the contract orders a picosecond. What each choice bought is in docs/performance.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim._jit import count_leading_zeros, count_trailing_zeros, entry, helper
from sim.program import I32, I64, LOWEST_CHUNK_FIRST, PER_CHUNK, PRIORITY, SMALLEST_FIRST

FINISHED, PAUSED, NEEDS_TOKENS, STUCK = 0, 1, 2, 3
"""Status of a run: no task is left; a limit was reached; more tokens are needed; tasks are left and no event is."""

DIGIT = 10
SLOTS = 1 << DIGIT
LEVELS = -(-63 // DIGIT)
WORDS = SLOTS // 64
FAR = np.int64(2**63 - 1)
NONE = -1
UNSTACKED = -2
_BIT = np.array([1 << i for i in range(63)] + [-(1 << 63)], np.int64)

# Registers of a run, kept between calls: present, services done, tasks left, last delivery, first event of the
# present, first token arriving at the present, first free token, top of the stack, number of touched servers.
NOW, EVENTS, LEFT, MAKESPAN, BATCH, ARRIVING, FREE, TOP, TOUCHED, REGISTERS = range(10)

# Half-words of an event, after its time in the first whole word.
NEXT, TASK, CHUNK, AT, SIZE, CHILD = 2, 3, 4, 5, 6, 7
FIRST_HOP = 1 << 30
"""Added to the size of a token that is still at its first server."""


class State(NamedTuple):
    """State of a run; S servers, T tasks, P pools, N tokens, K columns of an account.

    A token is a chunk on its way. Event e < S is the end of service of server e (general discipline only); event
    S + n is what token n does next. An event is one half of a cache line: tokens in flight are too many for the
    cache, and each is met about twice a hop.

    Attributes
    ----------
    register : (REGISTERS,) int64
    released, joined, delivered : (T,) int32
        Chunks released; of these, that went to the first server (or the pool); delivered.
    missing : (T,) int32
        Parents that hold back the next chunk.
    link : (T,) int32
        Stack of the tasks to look at in this picosecond: the task below, NONE at the bottom, or UNSTACKED.
    gate_ps : (T,) int64
        When the first server is done with the chunk before; FAR while that chunk has not been served.
    start_ps, finish_ps : (T,) int64
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
    event_ps : ((S+N) * 4,) int64
        Time of event e at 4 e; an arrival time while the token waits.
    event : ((S+N) * 8,) int32
        The same memory in half-words: at 8 e + NEXT the next event in a list; TASK and CHUNK of the token; AT, the
        index of its hop in the routes (NONE: delivery); SIZE, its row of the service table; CHILD, in a pairing heap.
    slot, occupied : (LEVELS * SLOTS,) int32, (LEVELS * WORDS,) int64
        Heads of the wheel's lists, and which are not empty.
    pool_free, pool_queue : (P,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.outcome.Log.
    account : (rows * K,) or (0,) int64
        The account of the critical path, where asked for: one row each for the end of the run, every server, task,
        pool and token, in this order; see `_carry`.
    account_class : (S,) or (0,) int32
    account_latency_ps : (H * labels,) or (0,) int64
        Class of each server; latency of each kind of hop under each label.
    """

    register: I64
    released: I32
    joined: I32
    delivered: I32
    missing: I32
    link: I32
    gate_ps: I64
    start_ps: I64
    finish_ps: I64
    free_ps: I64
    busy_ps: I64
    first_of: I32
    queue: I32
    tail: I32
    touched: I32
    touched_ps: I64
    event_ps: I64
    event: I32
    slot: I32
    occupied: I64
    pool_free: I32
    pool_queue: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64
    account: I64
    account_class: I32
    account_latency_ps: I64
    account_columns: I64


# --- the wheel ---------------------------------------------------------------------------------------------------


@helper
def _push(state, event, time):
    """Let an event happen at a time that is not past."""
    register = state.register
    state.event_ps[4 * event] = time
    differs = time ^ register[NOW]
    if differs == 0:
        state.event[8 * event + NEXT] = register[BATCH]
        register[BATCH] = event
        return
    level = (63 - count_leading_zeros(differs)) // DIGIT
    digit = (time >> (DIGIT * level)) & (SLOTS - 1)
    at = level * SLOTS + digit
    state.event[8 * event + NEXT] = state.slot[at]
    state.slot[at] = event
    state.occupied[level * WORDS + (digit >> 6)] |= _BIT[digit & 63]


@helper
def _advance(state, until_ps):
    """Move the present to the next event and make the events of that picosecond the batch.

    Returns FINISHED, PAUSED when the next event lies after `until_ps`, or STUCK when there is none.
    """
    register, slot, occupied = state.register, state.slot, state.occupied
    while register[BATCH] == NONE:
        word = 0
        while word < LEVELS * WORDS and occupied[word] == 0:
            word += 1
        if word == LEVELS * WORDS:
            return STUCK
        level = word // WORDS
        digit = (word % WORDS) * 64 + count_trailing_zeros(occupied[word])
        shift = DIGIT * level
        present = ((register[NOW] >> (shift + DIGIT)) << (shift + DIGIT)) | (np.int64(digit) << shift)
        if present > until_ps:
            return PAUSED
        register[NOW] = present
        at = level * SLOTS + digit
        event = slot[at]
        slot[at] = NONE
        occupied[word] &= ~_BIT[digit & 63]
        if level == 0:
            register[BATCH] = event
            return FINISHED
        while event != NONE:
            after = state.event[8 * event + NEXT]
            _push(state, event, state.event_ps[4 * event])
            event = after
    return FINISHED


# --- accounts: the critical path of everything that is pending, carried forward ------------------------------------


@helper
def _copy_account(state, source, target):
    columns = state.account_columns[0]
    for column in range(columns):
        state.account[target * columns + column] = state.account[source * columns + column]


@helper
def _carry(program, state, token, server, start, service, ready, first_hop):
    """Account a service: the token comes from its own arrival or, where it waited, from the service before it.

    A row holds the picoseconds of the critical path up to some moment: C columns of serialisation by class of server,
    C of queueing, and one of each latency label. Two more are used by servers, whose row is that of the last start:
    the service that began then and its task.
    """
    n_servers, n_tasks, columns = program.server_rate.size, program.task_cut.size, state.account_columns[0]
    account, n_classes = state.account, state.account_columns[1]
    task = state.event[8 * (n_servers + token) + TASK]
    mine = (1 + n_servers + n_tasks + program.pool_capacity.size + token) * columns
    its = (1 + server) * columns
    own_class = state.account_class[server]
    if start > state.event_ps[4 * (n_servers + token)]:
        for column in range(columns - 2):
            account[mine + column] = account[its + column]
        queued = own_class if account[its + columns - 1] == task else n_classes + own_class
        account[mine + queued] += account[its + columns - 2]
    for column in range(columns - 2):
        account[its + column] = account[mine + column]
    account[its + columns - 2] = service
    account[its + columns - 1] = task
    if first_hop:
        gate = (1 + n_servers + task) * columns
        for column in range(columns - 2):
            account[gate + column] = account[mine + column]
        account[gate + own_class] += service
    hop = program.route_hop[state.event[8 * (n_servers + token) + AT]]
    account[mine + own_class] += ready - start - program.hop_latency_ps[hop]
    labels = columns - 2 - 2 * n_classes
    for label in range(labels):
        account[mine + 2 * n_classes + label] += state.account_latency_ps[hop * labels + label]


# --- releases and deliveries -------------------------------------------------------------------------------------


@helper
def _stack(state, task):
    """Remember to look at a task before this picosecond ends."""
    if state.link[task] == UNSTACKED:
        state.link[task] = state.register[TOP]
        state.register[TOP] = task


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
    if program.parent.size == 0 or program.parent_ptr[task] == program.parent_ptr[task + 1]:
        if state.missing[task] == 0:
            state.released[task] = chunks
        return
    first = program.parent_ptr[task]
    last = program.parent_ptr[task + 1]
    released = state.released[task]
    while released < chunks and state.missing[task] == 0:
        released += 1
        if released < chunks:
            missing = 0
            for edge in range(first, last):
                parent = program.parent[edge]
                parent_chunks = program.cut_chunks[program.task_cut[parent]]
                lag = program.parent_lag[edge] if program.parent_lag.size else 0
                if _needed(released, parent_chunks, chunks, lag) > state.delivered[parent]:
                    missing += 1
            state.missing[task] = missing
    state.released[task] = released


@helper
def _free_child(program, state, child, row):
    """One parent less holds a child back; `row` is the account of the delivery."""
    state.missing[child] -= 1
    if state.missing[child] == 0:
        _stack(state, child)
        if state.account.size and state.gate_ps[child] <= state.register[NOW]:
            _copy_account(state, row, 1 + program.server_rate.size + child)


@helper
def _deliver(program, state, task, row):
    """Deliver the next chunk of a task: free what waits for it, give units back. `row` is the chunk's account."""
    delivered = state.delivered[task] + 1
    state.delivered[task] = delivered
    chunks = program.cut_chunks[program.task_cut[task]]
    if program.stream_child.size:
        for edge in range(program.stream_ptr[task], program.stream_ptr[task + 1]):
            child = program.stream_child[edge]
            child_chunks = program.cut_chunks[program.task_cut[child]]
            following = state.released[child]
            lag = program.stream_lag[edge] if program.stream_lag.size else 0
            if following < child_chunks and _needed(following, chunks, child_chunks, lag) == delivered:
                _free_child(program, state, child, row)
    if program.give_pool.size:
        for give in range(program.give_ptr[task], program.give_ptr[task + 1]):
            if program.give_per[give] == PER_CHUNK or delivered == chunks:
                pool = program.give_pool[give]
                state.pool_free[pool] += program.give_units[give]
                if state.account.size:
                    _copy_account(state, row, 1 + program.server_rate.size + program.task_cut.size + pool)
    if delivered == chunks:
        present = state.register[NOW]
        state.finish_ps[task] = present
        state.register[MAKESPAN] = present
        state.register[LEFT] -= 1
        if state.account.size:
            _copy_account(state, row, 0)
        if program.whole_child.size:
            for edge in range(program.whole_ptr[task], program.whole_ptr[task + 1]):
                _free_child(program, state, program.whole_child[edge], row)


@helper
def _token_row(program, token):
    """Account of a token."""
    return 1 + program.server_rate.size + program.task_cut.size + program.pool_capacity.size + token


@helper
def _token(program, state, task, chunk, at):
    """Make the next chunk of a task a token, or return NONE where there is no token left."""
    token = state.register[FREE]
    if token != NONE:
        field = 8 * (program.server_rate.size + token)
        state.register[FREE] = state.event[field + NEXT]
        cut = program.task_cut[task]
        size = program.cut_size[cut, 0] if chunk < program.cut_first[cut] else program.cut_size[cut, 1]
        state.event[field + TASK] = task
        state.event[field + CHUNK] = chunk
        state.event[field + AT] = at
        state.event[field + SIZE] = size | FIRST_HOP
        if state.account.size:
            _copy_account(state, 1 + program.server_rate.size + task, _token_row(program, token))
    return token


@helper
def _free(program, state, token):
    state.event[8 * (program.server_rate.size + token) + NEXT] = state.register[FREE]
    state.register[FREE] = token


@helper
def _join(program, state, task):
    """Send the released chunks of a task to its pool, its first server, or straight to delivery.

    Returns False where tokens ran out; the task then stays on the stack.
    """
    if state.joined[task] == state.released[task] or state.gate_ps[task] == FAR:
        return True
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
            _deliver(program, state, task, 1 + program.server_rate.size + task)
            continue
        token = _token(program, state, task, chunk, NONE if empty else at)
        if token == NONE:
            return False
        state.joined[task] += 1
        event = program.server_rate.size + token
        if asks:
            state.event_ps[4 * event] = present
            discipline = program.pool_discipline[pool]
            lone = _lone(program, state, token)
            state.pool_queue[pool] = _meld(program, state, discipline, state.pool_queue[pool], lone)
        else:
            _push(state, event, max(present, state.gate_ps[task]))
        state.gate_ps[task] = FAR
    return True


@helper
def _settle(program, state):
    """Look at every task on the stack, until none is left. Returns False where tokens ran out."""
    register = state.register
    while register[TOP] != NONE:
        task = register[TOP]
        register[TOP] = state.link[task]
        state.link[task] = UNSTACKED
        _release(program, state, task)
        if not _join(program, state, task):
            _stack(state, task)
            return False
    return True


@helper
def _begin(program, state, token, server, start):
    """Log and account a service; returns its end and when the token is ready for what follows."""
    field = 8 * (program.server_rate.size + token)
    at = state.event[field + AT]
    size = state.event[field + SIZE]
    first_hop = size >= FIRST_HOP
    size &= FIRST_HOP - 1
    service = program.service_ps[size, program.server_rate[server]]
    end = start + service
    state.busy_ps[server] += service
    state.free_ps[server] = end
    state.register[EVENTS] += 1
    hop = program.route_hop[at]
    latency = program.hop_latency_ps[hop]
    if first_hop and state.event[field + CHUNK] == 0:
        state.start_ps[state.event[field + TASK]] = start
    if state.log_base.size:
        task = state.event[field + TASK]
        route = program.task_route[task]
        first = program.route_ptr[route]
        chunk = state.event[field + CHUNK]
        row = state.log_base[task] + chunk * (program.route_ptr[route + 1] - first) + (at - first)
        state.log_start_ps[row] = start
        state.log_before[row] = state.last_row[server]
        state.last_row[server] = row
    last = program.hop_last[hop] != 0
    if last:
        ready = (start if program.deliver_head else end) + latency
    else:
        ready = end + latency
        if program.cut_through:
            after = program.server_rate[program.hop_server[program.route_hop[at + 1]]]
            ready = max(start + latency, ready - program.service_ps[size, after])
    if state.account.size:
        _carry(program, state, token, server, start, service, ready, first_hop)
    state.event[field + SIZE] = size
    state.event[field + AT] = NONE if last else at + 1
    return end, ready


# --- fifo: a server may be committed when a chunk arrives ---------------------------------------------------------


@helper
def _ties_before(program, state, a, b):
    """Whether token a comes before token b among those of one arrival time: (class, chunk, hop, task)."""
    a, b = 8 * (program.server_rate.size + a), 8 * (program.server_rate.size + b)
    event = state.event
    task_a, task_b = event[a + TASK], event[b + TASK]
    if program.task_class[task_a] != program.task_class[task_b]:
        return program.task_class[task_a] < program.task_class[task_b]
    if event[a + CHUNK] != event[b + CHUNK]:
        return event[a + CHUNK] < event[b + CHUNK]
    if event[a + AT] != NONE and event[b + AT] != NONE:
        hop_a = event[a + AT] - program.route_ptr[program.task_route[task_a]]
        hop_b = event[b + AT] - program.route_ptr[program.task_route[task_b]]
        if hop_a != hop_b:
            return hop_a < hop_b
    return task_a < task_b


@helper
def _line_up(program, state, server, token):
    """Put a token into the server's list of this picosecond's arrivals, in order of tie.

    Arrivals mostly come in order or in reverse, so both ends are tried first.
    """
    n_servers = program.server_rate.size
    event = state.event
    if state.touched_ps[server] != state.register[NOW]:
        state.touched_ps[server] = state.register[NOW]
        state.touched[state.register[TOUCHED]] = server
        state.register[TOUCHED] += 1
        state.queue[server] = token
        state.tail[server] = token
        event[8 * (n_servers + token) + NEXT] = NONE
    elif _ties_before(program, state, state.tail[server], token):
        event[8 * (n_servers + state.tail[server]) + NEXT] = token
        event[8 * (n_servers + token) + NEXT] = NONE
        state.tail[server] = token
    elif _ties_before(program, state, token, state.queue[server]):
        event[8 * (n_servers + token) + NEXT] = state.queue[server]
        state.queue[server] = token
    else:
        at = state.queue[server]
        while _ties_before(program, state, event[8 * (n_servers + at) + NEXT], token):
            at = event[8 * (n_servers + at) + NEXT]
        event[8 * (n_servers + token) + NEXT] = event[8 * (n_servers + at) + NEXT]
        event[8 * (n_servers + at) + NEXT] = token


@helper
def _commit(program, state, token, server):
    """Serve a token that has just arrived at a fifo server, after all that came before it."""
    n_servers = program.server_rate.size
    field = 8 * (n_servers + token)
    at = state.event[field + AT]
    first_hop = state.event[field + SIZE] >= FIRST_HOP
    end, ready = _begin(program, state, token, server, max(state.register[NOW], state.free_ps[server]))
    _push(state, n_servers + token, ready)
    if first_hop:
        task = state.event[field + TASK]
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
            register[BATCH] = state.event[8 * event + NEXT]
            token = event - n_servers
            at = state.event[8 * event + AT]
            if at != NONE:
                _line_up(program, state, program.hop_server[program.route_hop[at]], token)
                continue
            task = state.event[8 * event + TASK]
            _free(program, state, token)
            _deliver(program, state, task, _token_row(program, token))
        if register[TOP] != NONE:
            continue
        for i in range(register[TOUCHED]):
            server = state.touched[i]
            token = state.queue[server]
            while token != NONE:
                after = state.event[8 * (n_servers + token) + NEXT]
                _commit(program, state, token, server)
                token = after
        register[TOUCHED] = 0
        if register[LEFT] == 0:
            return FINISHED
        if register[TOP] != NONE:
            continue
        if register[EVENTS] >= limit:
            return PAUSED
        status = _advance(state, until_ps)
        if status != FINISHED:
            return status


# --- general: servers choose when they are free, pools grant -------------------------------------------------------


@helper
def _before(program, state, discipline, a, b):
    """Whether a discipline serves token a before token b: (rank, arrival, class, chunk, hop, task)."""
    n_servers = program.server_rate.size
    task_a, task_b = state.event[8 * (n_servers + a) + TASK], state.event[8 * (n_servers + b) + TASK]
    if discipline == PRIORITY:
        if program.task_priority[task_a] != program.task_priority[task_b]:
            return program.task_priority[task_a] < program.task_priority[task_b]
    elif discipline == SMALLEST_FIRST:
        work_a, work_b = program.cut_work[program.task_cut[task_a]], program.cut_work[program.task_cut[task_b]]
        if work_a != work_b:
            return work_a < work_b
    elif discipline == LOWEST_CHUNK_FIRST:
        chunk_a, chunk_b = state.event[8 * (n_servers + a) + CHUNK], state.event[8 * (n_servers + b) + CHUNK]
        if chunk_a != chunk_b:
            return chunk_a < chunk_b
    arrival_a, arrival_b = state.event_ps[4 * (n_servers + a)], state.event_ps[4 * (n_servers + b)]
    if arrival_a != arrival_b:
        return arrival_a < arrival_b
    return _ties_before(program, state, a, b)


@helper
def _lone(program, state, token):
    """A pairing heap of one token."""
    state.event[8 * (program.server_rate.size + token) + CHILD] = NONE
    state.event[8 * (program.server_rate.size + token) + NEXT] = NONE
    return token


@helper
def _meld(program, state, discipline, a, b):
    """One pairing heap from two; siblings are chained through NEXT, which a waiting token does not use."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if _before(program, state, discipline, b, a):
        a, b = b, a
    n_servers = program.server_rate.size
    state.event[8 * (n_servers + b) + NEXT] = state.event[8 * (n_servers + a) + CHILD]
    state.event[8 * (n_servers + a) + CHILD] = b
    return a


@helper
def _without_root(program, state, discipline, root):
    """The heap that is left when its root is taken: meld the children in pairs, then the pairs from the right."""
    n_servers = program.server_rate.size
    event = state.event
    child = event[8 * (n_servers + root) + CHILD]
    pairs = NONE
    while child != NONE:
        other = event[8 * (n_servers + child) + NEXT]
        event[8 * (n_servers + child) + NEXT] = NONE
        following = NONE
        if other != NONE:
            following = event[8 * (n_servers + other) + NEXT]
            event[8 * (n_servers + other) + NEXT] = NONE
        pair = _meld(program, state, discipline, child, other)
        event[8 * (n_servers + pair) + NEXT] = pairs
        pairs = pair
        child = following
    heap = NONE
    while pairs != NONE:
        following = event[8 * (n_servers + pairs) + NEXT]
        event[8 * (n_servers + pairs) + NEXT] = NONE
        heap = _meld(program, state, discipline, heap, pairs)
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
    if state.event[8 * event + AT] != NONE:
        state.event[8 * event + NEXT] = state.register[ARRIVING]
        state.register[ARRIVING] = token
        return
    task = state.event[8 * event + TASK]
    row = _token_row(program, token)
    if state.event[8 * event + SIZE] >= FIRST_HOP:  # of a task without servers
        state.gate_ps[task] = state.register[NOW]
        if state.account.size:
            _copy_account(state, row, 1 + n_servers + task)
        _stack(state, task)
    _free(program, state, token)
    _deliver(program, state, task, row)


@helper
def _grant(program, state):
    """Let every pool grant what it can; what that delivers joins the batch."""
    n_servers = program.server_rate.size
    for pool in range(program.pool_capacity.size):
        token = state.pool_queue[pool]
        discipline = program.pool_discipline[pool]
        while token != NONE:
            event = n_servers + token
            task = state.event[8 * event + TASK]
            if program.task_units[task] > state.pool_free[pool]:
                break
            state.pool_free[pool] -= program.task_units[task]
            state.pool_queue[pool] = _without_root(program, state, discipline, token)
            if state.account.size and state.event_ps[4 * event] < state.register[NOW]:
                _copy_account(state, 1 + n_servers + program.task_cut.size + pool, _token_row(program, token))
            if state.event[8 * event + AT] == NONE:
                if state.event[8 * event + CHUNK] == 0:
                    state.start_ps[task] = state.register[NOW]
                _push(state, event, state.register[NOW])
            else:
                state.event[8 * event + NEXT] = state.register[ARRIVING]
                state.register[ARRIVING] = token
            token = state.pool_queue[pool]


@helper
def _serve(program, state, server):
    """Start the service of the token that a free server chooses."""
    n_servers = program.server_rate.size
    token = state.queue[server]
    field = 8 * (n_servers + token)
    state.queue[server] = _without_root(program, state, program.server_discipline[server], token)
    first_hop = state.event[field + SIZE] >= FIRST_HOP
    state.first_of[server] = state.event[field + TASK] if first_hop else NONE
    end, ready = _begin(program, state, token, server, state.register[NOW])
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
                register[BATCH] = state.event[8 * event + NEXT]
                _happen(program, state, event)
            if register[TOP] == NONE:
                _grant(program, state)
                settled = register[BATCH] == NONE
        while register[ARRIVING] != NONE:
            token = register[ARRIVING]
            event = n_servers + token
            register[ARRIVING] = state.event[8 * event + NEXT]
            server = program.hop_server[program.route_hop[state.event[8 * event + AT]]]
            # A chunk that comes out of a pool arrives now, whenever it asked.
            state.event_ps[4 * event] = register[NOW]
            discipline = program.server_discipline[server]
            lone = _lone(program, state, token)
            state.queue[server] = _meld(program, state, discipline, state.queue[server], lone)
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
        first, last = 0, 0
        if program.whole_child.size:
            first, last = program.whole_ptr[task], program.whole_ptr[task + 1]
        for edge in range(first, last):
            child = program.whole_child[edge]
            release[child] = max(release[child], finish[task])
            waits[child] -= 1
            if waits[child] == 0:
                order[tail] = child
                tail += 1
        first, last = 0, 0
        if program.stream_child.size:
            first, last = program.stream_ptr[task], program.stream_ptr[task + 1]
        for edge in range(first, last):
            if program.stream_lag.size == 0 or program.stream_lag[edge] == 0:
                child = program.stream_child[edge]
                release[child] = max(release[child], release[task] + first_ps[task])
                finish[child] = max(finish[child], finish[task] + last_ps[child])
                waits[child] -= 1
                if waits[child] == 0:
                    order[tail] = child
                    tail += 1
    return latest
