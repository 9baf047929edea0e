"""Lowering of a schedule alone: its shape is the whole program, and lacks sizes, rates and latencies only."""

from __future__ import annotations

import numpy as np

from collectives.core.schedule import Schedule
from sim.lower.links import link_rates, own_cuttings, route_latencies
from sim.lower.lowered import NO_TASKS, Lowered
from sim.lower.pools import pools_alone
from sim.lower.shape import Shape
from sim.program import DISCIPLINES, I32, NO_POOLS, Columns, assemble, i32
from sim.program.model import Model
from workloads.job import Job


def lower_alone(job: Job, schedule: Schedule, model: Model, shape: Shape) -> Lowered:
    """The program of a job that is one schedule, without joins."""
    transfers, n_servers = shape.quotient.transfers, shape.server_link.size
    works = shape.works(schedule.block_bytes)
    task_bytes = works[0][works[1]]
    cuttings, cutting = own_cuttings(shape, [model.cutting])
    rates, server_rate = link_rates(schedule.topology, shape.server_link)
    program = assemble(
        Columns(
            rates=rates, server_rate=i32(server_rate),
            server_discipline=np.full(n_servers, DISCIPLINES.index(model.discipline), np.int8),
            route_ptr=shape.route_ptr, route_server=shape.route_server,
            route_latency_ps=route_latencies(schedule.topology, shape, model.endpoint_latency_ps),
            task_work=task_bytes, task_cutting=None if isinstance(cutting, int) else i32(cutting),
            task_route=shape.task_route, task_class=shape.task_class, task_priority=_priority(shape, model.discipline),
            edge_parent=shape.edge_parent, edge_child=shape.edge_child, edge_lag=shape.edge_lag,
        ),
        cuttings, model.forwarding, model.deliver,
        NO_POOLS if transfers.pool is None else pools_alone(schedule.pattern, shape),
        waits=shape.waits, works=works,
    )
    nothing = np.full(n_servers, -1, np.int32)
    return Lowered(
        program, job, model, shape.quotient.orbits, shape.quotient.symmetry, shape.server_link, nothing, nothing, (),
        np.zeros(task_bytes.size, np.int32), shape.task_src, shape.task_row, task_bytes, (transfers,),
        NO_TASKS, NO_TASKS,
    )


def _priority(shape: Shape, discipline: str) -> I32:
    """Steps, and places in the line of a pool; empty where nothing is served by priority."""
    transfers = shape.quotient.transfers
    if transfers.pool is None and discipline != "priority":
        return np.zeros(0, np.int32)
    step = transfers.step[shape.task_row]
    if transfers.pool is None:
        return step
    mine = transfers.pool[shape.task_row]
    return i32(np.where(mine[:, 0] >= 0, mine[:, 2], step))
