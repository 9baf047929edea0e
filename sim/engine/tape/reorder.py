"""The kernels that put the ops of a tape in the order of another run: what an op waits for does not change with it.

A stable sort by time keeps every op behind those that it waits for. Between a service and another that waits for it
time passes, a picosecond at least; joins take none, so they come before what begins in their picosecond, in the order
that they had.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, u64
from sim.engine.core.status import NONE
from sim.engine.tape.record import JOIN


@entry
def rank_ops(program, places, start_ps, bits, rank, tie):
    """Time and tie of every service.

    Parameters
    ----------
    start_ps : (n_services,) int64
        Starts of the run, as in its log.
    bits : (3,) int64
        Of a task, a hop and a chunk in a tie.
    rank, tie : (n,) int64
        Filled where an op is a service: twice its start and one; class, chunk, hop and task in one number.
    """
    for task in range(program.task_route.size):
        route = program.task_route[u64(task)]
        hops = np.int64(program.route_ptr[u64(route + 1)]) - np.int64(program.route_ptr[u64(route)])
        row = places.log_base[u64(task)]
        for chunk in range(np.int64(program.cut_chunks[u64(program.task_cut[u64(task)])])):
            first = (np.int64(program.task_class[u64(task)]) << bits[2] | chunk) << bits[1]
            for hop in range(hops):
                op = u64(places.op_of[u64(row)])
                rank[op] = 2 * start_ps[u64(row)] + 1
                tie[op] = (first | hop) << bits[0] | task
                row += 1


@entry
def rank_joins(ops, service_ps, onward_ps, rank, out, end):
    """Times of all ops, from the ranks of services; fills in those of joins, twice their time."""
    for op in range(1, ops.server.size):
        if ops.server[u64(op)] == JOIN:
            time = max(out[u64(ops.pred[u64(op)])], end[u64(ops.gate[u64(op)])])
            rank[u64(op)] = 2 * time
            out[u64(op)] = end[u64(op)] = time
        else:
            kind = u64(ops.kind[u64(op)] >> 1)
            end[u64(op)] = (rank[u64(op)] >> 1) + service_ps[kind]
            out[u64(op)] = end[u64(op)] + onward_ps[kind]


@entry
def reorder(ops, order, tie, last_op, place, ordered):
    """Put ops in another order.

    Parameters
    ----------
    order : (n,) int64
        The ops; the first is 0.
    last_op : (S,) int32
        NONE on entry.
    place : (n,) int32
        Filled: where each op is in the new order.
    ordered : Ops
        Filled.
    """
    for at in range(order.size):
        op = u64(order[u64(at)])
        place[op] = at
        server, kind = ops.server[op], ops.kind[op]
        if server != JOIN:
            last = last_op[u64(server)]
            last_op[u64(server)] = op
            kind = (kind & ~1) | (last != NONE and tie[u64(last)] > tie[op])
        ordered.server[u64(at)] = server
        ordered.pred[u64(at)] = place[u64(ops.pred[op])]
        ordered.gate[u64(at)] = place[u64(ops.gate[op])]
        ordered.kind[u64(at)] = kind
