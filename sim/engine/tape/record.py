"""The replay's kernel: records the order of service of a run as a tape, sweeps over it, walks back along it.

An op is one service, or a join of several waits. It begins when what it waits for is there (`out` of the op `pred`),
the chunk before it has left the first server (`end` of the op `gate`), and its own server is free. Op 0 is the
beginning of time. Sweeping the ops in the recorded order is a longest path: no heap, no search, one pass over memory.

    arrival = max(out[pred], end[gate])          end = max(arrival, free[server]) + service[kind]
                                                 out = end + onward[kind]

        out[pred] ----+                       +--> out  : what waits for the chunk at the next server
                      +--> [ op at server ] --+
        end[gate] ----+                       +--> end  : the next chunk at the first server; free[server]

Invariant: `pred` and `gate` are smaller than the op's own number, hence their times are known when the sweep reaches
it. The order of service is as recorded exactly if the arrivals at every server do not fall from one op to the next, and
rise where their tie is reversed (the odd bit of `kind`): the sweep keeps the least arrival that breaks this.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.compile.door import entry, helper, u64
from sim.engine.compile.pointers import by_pointer
from sim.engine.core.status import FAR
from sim.program import I8, I32, I64

JOIN = -1
"""Server of an op that only joins waits."""


@by_pointer
class Ops(NamedTuple):
    """Ops in the recorded order; n of them, op 0 included.

    Attributes
    ----------
    server, pred, gate : (n,) int32
        Server, from S on three for each pool, or JOIN; the op whose `out` is waited for; the op whose `end` is. 0 is
        nothing.
    kind : (n,) int32
        Row of the tables of times, doubled; odd where the op must arrive later than the one before it at its server,
        because their tie is reversed.
    """

    server: I32
    pred: I32
    gate: I32
    kind: I32


@by_pointer
class Waits(NamedTuple):
    """What the recorder needs beside the program.

    Attributes
    ----------
    order : (n_services,) int64
        Rows of the log in the order of their starts.
    row_task : (n_services,) int32
    row_kind : (n_services,) int32
    log_base : (T+1,) int64
    hops : (T,) int32
    whole_ptr, whole : (T+1,) int32, int32
        Whole parents of each task.
    empty_base : (T,) int32
        Place of the first chunk of a task without servers; -1 for others.
    chunk_base : (T+1,) or (0,) int64
        Place of each task in `grant_of`; empty where there are no pools.
    grant_of : int32
        Place in `grants` of the chunk's grant, -1 where it asks for none.
    grant_ptr, grants : (P+1,) int32, (n, 3) int32
        Grants of each pool in their order: task, chunk, and how many gives must come before.
    give_ptr, gives : (P+1,) int32, (n, 2) int32
        Deliveries that give units back, in their order: task and chunk.
    nothing : (1,) int64
        Kind of an op without a service.
    """

    order: I64
    row_task: I32
    row_kind: I32
    log_base: I64
    hops: I32
    whole_ptr: I32
    whole: I32
    empty_base: I32
    chunk_base: I64
    grant_of: I32
    grant_ptr: I32
    grants: I32
    give_ptr: I32
    gives: I32
    nothing: I64


@by_pointer
class Scratch(NamedTuple):
    """Where the recorder has got to.

    Attributes
    ----------
    count : (2,) int64
        Ops so far; height of the stack.
    op_of, empty_op : int32
        Op of each row of the log, and of each chunk of a task without servers; 0 where there is none yet.
    stack_task, stack_chunk : int32
        Chunks of tasks without servers that are waited for.
    last_row : (S,) int64
        Row of the last service of each server, -1 at first.
    granted, given : (P,) int64
        Grants and gives of each pool that are on the tape.
    grant_op, give_op : int32
        Their ops.
    at_once : (n,) or (0,) int8
        Whether an op may follow a grant in the same picosecond; empty as long as ops are counted.
    """

    count: I64
    op_of: I32
    empty_op: I32
    stack_task: I32
    stack_chunk: I32
    last_row: I64
    granted: I64
    given: I64
    grant_op: I32
    give_op: I32
    at_once: I8


@helper
def _needed(chunk, parent_chunks, chunks, lag):
    """Chunks of a stream parent that chunk `chunk` waits for."""
    if lag > 0:
        return max(chunk - lag + 1, 0)
    return -((-(chunk + 1) * parent_chunks) // chunks)


@helper
def _delivery(waits, scratch, task, chunk):
    """Op of a delivery; 0 where it is not on the tape yet."""
    hops = waits.hops[u64(task)]
    if hops > 0:
        return scratch.op_of[u64(waits.log_base[u64(task)] + (chunk + 1) * hops - 1)]
    return scratch.empty_op[u64(waits.empty_base[u64(task)] + chunk)]


@helper
def _put(ops, scratch, server, pred, gate, kind):
    """Add an op if the tape has capacity; returns its number in both cases."""
    op = scratch.count[0]
    scratch.count[0] = op + 1
    if op < ops.server.size:
        ops.server[u64(op)] = server
        ops.pred[u64(op)] = pred
        ops.gate[u64(op)] = gate
        ops.kind[u64(op)] = kind
        scratch.at_once[u64(op)] = server == JOIN and _any_at_once(scratch, pred, gate)
    return op


@helper
def _any_at_once(scratch, pred, gate):
    """Whether one of two ops may follow a grant in the same picosecond."""
    return scratch.at_once.size > 0 and (scratch.at_once[u64(pred)] != 0 or scratch.at_once[u64(gate)] != 0)


@helper
def _wait_for(ops, waits, scratch, parent, chunk, pred, gate):
    """One wait more: the ops to wait for, or -1 where the parent's delivery must be put first."""
    op = _delivery(waits, scratch, parent, chunk)
    if op == 0:
        scratch.stack_task[u64(scratch.count[1])] = parent
        scratch.stack_chunk[u64(scratch.count[1])] = chunk
        scratch.count[1] += 1
        return -1, gate
    if pred > 0:
        gate = _put(ops, scratch, JOIN, pred, gate, 0)
    return op, gate


@helper
def _all_waits(program, ops, waits, scratch, task, chunk, gate):
    """Pred and gate of a chunk at its release: only waits that the chunk before it did not have."""
    pred = 0
    if chunk == 0:
        for edge in range(waits.whole_ptr[u64(task)], waits.whole_ptr[u64(task + 1)]):
            parent = waits.whole[u64(edge)]
            last = program.cut_chunks[u64(program.task_cut[u64(parent)])] - 1
            pred, gate = _wait_for(ops, waits, scratch, parent, last, pred, gate)
            if pred < 0:
                return pred, gate
    if program.parent.size:
        chunks = program.cut_chunks[u64(program.task_cut[u64(task)])]
        for edge in range(program.parent_ptr[u64(task)], program.parent_ptr[u64(task + 1)]):
            parent = program.parent[u64(edge)]
            theirs = program.cut_chunks[u64(program.task_cut[u64(parent)])]
            lag = program.parent_lag[u64(edge)] if program.parent_lag.size else 0
            needed = _needed(chunk, theirs, chunks, lag)
            if needed > 0 and (chunk == 0 or needed > _needed(chunk - 1, theirs, chunks, lag)):
                pred, gate = _wait_for(ops, waits, scratch, parent, needed - 1, pred, gate)
                if pred < 0:
                    return pred, gate
    return pred, gate


@helper
def _before(program, task_a, chunk_a, hop_a, task_b, chunk_b, hop_b):
    """Whether a comes before b when both arrive at once: (class, chunk, hop, task)."""
    if program.task_class[u64(task_a)] != program.task_class[u64(task_b)]:
        return program.task_class[u64(task_a)] < program.task_class[u64(task_b)]
    if chunk_a != chunk_b:
        return chunk_a < chunk_b
    if hop_a != hop_b:
        return hop_a < hop_b
    return task_a < task_b


@helper
def _ties_before(program, waits, a, b):
    """Whether the service of row a comes before that of row b when both arrive at once."""
    task_a, task_b = waits.row_task[u64(a)], waits.row_task[u64(b)]
    chunk_a, hop_a = divmod(a - waits.log_base[u64(task_a)], waits.hops[u64(task_a)])
    chunk_b, hop_b = divmod(b - waits.log_base[u64(task_b)], waits.hops[u64(task_b)])
    return _before(program, task_a, chunk_a, hop_a, task_b, chunk_b, hop_b)


@helper
def _grant_of(waits, task, chunk):
    """Place of the grant that a chunk waits for, or -1."""
    return waits.grant_of[u64(waits.chunk_base[u64(task)] + chunk)] if waits.chunk_base.size else -1


@helper
def _put_gives(ops, waits, scratch, server, pool, count):
    """Put the first gives of a pool on the tape, one after the other; False where a delivery must be put first."""
    while scratch.given[u64(pool)] < count:
        at = waits.give_ptr[u64(pool)] + scratch.given[u64(pool)]
        task, chunk = waits.gives[u64(at), 0], waits.gives[u64(at), 1]
        op, _ = _wait_for(ops, waits, scratch, task, chunk, 0, 0)
        if op < 0:
            return False
        scratch.give_op[u64(at)] = _put(ops, scratch, server, op, 0, 2 * waits.nothing[0])
        scratch.given[u64(pool)] += 1
    return True


@helper
def _put_grants(program, ops, waits, scratch, pool, upto):
    """Put the grants of a pool up to a place on the tape, in their order; False where a delivery must be put first.

    A pool is three servers that take no time: requests must arrive in the recorded order, gives too, and a grant
    follows its request, the grant before it and the give that makes units enough. Ties order the requests of a
    picosecond up to its first grants. One that these may lead to at once comes later whatever its tie, so nothing may
    tie with it from behind.
    """
    requests = program.server_rate.size + 3 * pool
    kind = 2 * waits.nothing[0]
    while waits.grant_ptr[u64(pool)] + scratch.granted[u64(pool)] <= upto:
        at = waits.grant_ptr[u64(pool)] + scratch.granted[u64(pool)]
        task, chunk, gives = waits.grants[u64(at), 0], waits.grants[u64(at), 1], waits.grants[u64(at), 2]
        if not _put_gives(ops, waits, scratch, requests + 2, pool, gives):
            return False
        gate = 0
        if chunk > 0 and waits.hops[u64(task)] > 0:
            gate = scratch.op_of[u64(waits.log_base[u64(task)] + (chunk - 1) * waits.hops[u64(task)])]
        elif chunk > 0:
            gate, _ = _wait_for(ops, waits, scratch, task, chunk - 1, 0, 0)
            if gate < 0:
                return False
        start = scratch.count[0]
        pred, gate = _all_waits(program, ops, waits, scratch, task, chunk, gate)
        if pred < 0:
            scratch.count[0] = start
            return False
        strict = 0
        if scratch.granted[u64(pool)] > 0:
            other, its_chunk = waits.grants[u64(at - 1), 0], waits.grants[u64(at - 1), 1]
            strict = 0 if _before(program, other, its_chunk, 0, task, chunk, 0) else 1
            if _any_at_once(scratch, scratch.grant_op[u64(at - 1)] - 1, 0):
                strict = 1
        request = _put(ops, scratch, requests, pred, gate, kind + strict)
        enough = scratch.give_op[u64(waits.give_ptr[u64(pool)] + gives - 1)] if gives > 0 else 0
        scratch.grant_op[u64(at)] = _put(ops, scratch, requests + 1, request, enough, kind)
        if scratch.at_once.size > 0:
            scratch.at_once[u64(request)] = _any_at_once(scratch, pred, gate)
            scratch.at_once[u64(scratch.grant_op[u64(at)])] = 1
        if waits.hops[u64(task)] == 0:
            scratch.empty_op[u64(waits.empty_base[u64(task)] + chunk)] = scratch.grant_op[u64(at)]
        scratch.granted[u64(pool)] += 1
    return True


@helper
def _put_empty(program, ops, waits, scratch):
    """Put the deliveries on the stack, and those that they wait for, on the tape."""
    while scratch.count[1] > 0:
        task = scratch.stack_task[u64(scratch.count[1] - 1)]
        chunk = scratch.stack_chunk[u64(scratch.count[1] - 1)]
        if _delivery(waits, scratch, task, chunk) > 0:
            scratch.count[1] -= 1
            continue
        before = 0
        if chunk > 0:
            before = _delivery(waits, scratch, task, chunk - 1)
            if before == 0:
                scratch.stack_task[u64(scratch.count[1])] = task
                scratch.stack_chunk[u64(scratch.count[1])] = chunk - 1
                scratch.count[1] += 1
                continue
        asked = _grant_of(waits, task, chunk)
        if asked >= 0:
            if _put_grants(program, ops, waits, scratch, program.task_pool[u64(task)], asked):
                scratch.count[1] -= 1
            continue
        start = scratch.count[0]
        pred, gate = _all_waits(program, ops, waits, scratch, task, chunk, before)
        if pred < 0:
            scratch.count[0] = start
            continue
        scratch.empty_op[u64(waits.empty_base[u64(task)] + chunk)] = _put(ops, scratch, JOIN, pred, gate, 0)
        scratch.count[1] -= 1


@entry
def record(program, ops, waits, scratch):
    """Write the tape of a logged run; with `ops` too short, only count. Scratch is zero on entry, count[0] is 1."""
    for at in range(waits.order.size):
        row = waits.order[u64(at)]
        task = waits.row_task[u64(row)]
        hops = waits.hops[u64(task)]
        chunk, hop = divmod(row - waits.log_base[u64(task)], hops)
        pred, gate = 0, 0
        if hop > 0:
            pred = scratch.op_of[u64(row - 1)]
        elif _grant_of(waits, task, chunk) >= 0:
            asked = _grant_of(waits, task, chunk)
            while not _put_grants(program, ops, waits, scratch, program.task_pool[u64(task)], asked):
                _put_empty(program, ops, waits, scratch)
            pred = scratch.grant_op[u64(asked)]
        else:
            if chunk > 0:
                gate = scratch.op_of[u64(row - hops)]
            pred = -1
            before = gate
            while pred < 0:
                start = scratch.count[0]
                pred, gate = _all_waits(program, ops, waits, scratch, task, chunk, before)
                if pred < 0:  # a delivery without a server comes first: take back the joins, put it, and try again
                    scratch.count[0] = start
                    _put_empty(program, ops, waits, scratch)
        first = program.route_ptr[u64(program.task_route[u64(task)])]
        server = program.hop_server[u64(program.route_hop[u64(first + hop)])]
        last = scratch.last_row[u64(server)]
        strict = 1 if last >= 0 and not _ties_before(program, waits, last, row) else 0
        scratch.last_row[u64(server)] = row
        scratch.op_of[u64(row)] = _put(ops, scratch, server, pred, gate, 2 * waits.row_kind[u64(row)] + strict)
    for task in range(waits.hops.size):
        if waits.hops[u64(task)] == 0:
            scratch.stack_task[0] = task
            scratch.stack_chunk[0] = program.cut_chunks[u64(program.task_cut[u64(task)])] - 1
            scratch.count[1] = 1
            _put_empty(program, ops, waits, scratch)
    for pool in range(program.pool_capacity.size):
        last = waits.give_ptr[u64(pool + 1)] - waits.give_ptr[u64(pool)]
        _put_gives(ops, waits, scratch, program.server_rate.size + 3 * pool + 2, pool, last)


@entry
def sweep(ops, service_ps, onward_ps, free_ps, arrived_ps, out, end):
    """Longest path over the ops.

    Parameters
    ----------
    ops : Ops
    service_ps, onward_ps : (K,) int64
        Of each kind, the service, and the time from its end to what follows.
    free_ps, arrived_ps : (S+3P,) int64
        Zeros and minus ones on entry.
    out, end : (n,) int64
        Filled: when what follows may begin, and the end of the service.

    Returns
    -------
    (int, int)
        Last delivery; least arrival of an op that comes too soon behind the one before it at its server, FAR if none.
    """
    out[0] = 0
    end[0] = 0
    latest = 0
    change = FAR
    for op in range(1, ops.server.size):
        server = ops.server[u64(op)]
        arrival = max(out[u64(ops.pred[u64(op)])], end[u64(ops.gate[u64(op)])])
        if server == JOIN:
            out[u64(op)] = arrival
            end[u64(op)] = arrival
            latest = max(latest, arrival)
            continue
        kind = ops.kind[u64(op)]
        if arrival - arrived_ps[u64(server)] < (kind & 1):
            change = min(change, arrival)
        arrived_ps[u64(server)] = arrival
        done = max(arrival, free_ps[u64(server)]) + service_ps[u64(kind >> 1)]
        free_ps[u64(server)] = done
        end[u64(op)] = done
        done += onward_ps[u64(kind >> 1)]
        out[u64(op)] = done
        latest = max(latest, done)
    return latest, change


@entry
def walk(ops, out, end, service_ps, before, from_op, services, onwards):
    """Count the kinds on the critical path: services, and onward times that are on it as well.

    Parameters
    ----------
    ops, out, end, service_ps
        As swept.
    before : (n,) int32
        The op before at the same server, 0 if none.
    from_op : int
        An op whose `out` is the makespan.
    services, onwards : (K,) int64
        Added to.

    Returns
    -------
    int
        What is left of the time at the beginning: 0.
    """
    op = from_op
    onward = True
    while op > 0:
        if ops.server[u64(op)] == JOIN:
            onward = out[u64(ops.pred[u64(op)])] == out[u64(op)]
            op = ops.pred[u64(op)] if onward else ops.gate[u64(op)]
            continue
        kind = ops.kind[u64(op)] >> 1
        services[u64(kind)] += 1
        if onward:
            onwards[u64(kind)] += 1
        start = end[u64(op)] - service_ps[u64(kind)]
        if ops.pred[u64(op)] > 0 and out[u64(ops.pred[u64(op)])] == start:
            op, onward = ops.pred[u64(op)], True
        elif ops.gate[u64(op)] > 0 and end[u64(ops.gate[u64(op)])] == start:
            op, onward = ops.gate[u64(op)], False
        elif end[u64(before[u64(op)])] == start:
            op, onward = before[u64(op)], False
        else:
            return start
    return 0
