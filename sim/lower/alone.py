"""Lowering of a schedule alone: its shape is the whole program, and lacks sizes, rates and latencies only."""

import numpy as np

from collectives.core.schedule import Schedule
from sim.lower.credits import buffers_of, check_buffers
from sim.lower.lowered import NO_TASKS, Lowered
from sim.lower.nics import Ports, flows, has_flows, links_at_once, nics_of
from sim.lower.pools import pools_alone
from sim.lower.servers import bandwidths, disciplines_of, distinct_rates, legend, own_cuttings, route_latencies
from sim.lower.shape import Shape, Speeds, Timed
from sim.program import I32, I64, NO_POOLS, Columns, Works, i32
from sim.program.assemble import assemble, hops_by_kind, recut, with_rates
from sim.program.model import Model
from topologies import Topology
from workloads.job import Job

MOST_TIMED = 8
"""Limit on the programs of one shape that are kept, for as many sizes and models."""

MOST_TASKS = 2**17
"""Limit on the tasks of a program that is kept beside others: 12 bytes each, beside what the shape has."""


def lower_alone(job: Job, schedule: Schedule, model: Model, shape: Shape) -> Lowered:
    """The program of a job that is one schedule, without joins."""
    timed = _timed(schedule, model, shape)
    return Lowered(
        timed.program, job, model, shape.quotient.orbits, shape.quotient.symmetry, *timed.legend,
        None if shape.rows is None else shape.task_src, shape.rows, timed.task_bytes, (shape.quotient.transfers,),
        NO_TASKS, NO_TASKS,
    )


def _timed(schedule: Schedule, model: Model, shape: Shape) -> Timed:
    """The program, from one of other rates, size or chunks, if links are alike and latencies equal."""
    topology, key = schedule.topology, (schedule.block_bytes, model, schedule.pattern.pools)
    known = shape.timed.get(key)
    if known is not None and known.topology is topology:
        return known
    uncut = vars(model) | {"chunks": None, "chunk_bytes": None, "cutting": None}
    others = (one for (_, _, pools), one in reversed(shape.timed.items()) if pools == key[2] and one.uncut == uncut)
    like, found = known or next(others, None), None
    speeds = like.speeds if like is not None and like.topology is topology else _speeds(topology, model, shape)
    if like is not None and like.speeds.fits(speeds):
        like = like._replace(topology=topology, speeds=speeds)
        if known is not None:
            found = like._replace(program=with_rates(known.program, speeds.rates, same_pairs=True))
        elif shape.quotient.transfers.rounds is None:  # which have cuts of their own
            works = shape.works(schedule.block_bytes)
            program = recut(like.program, works, model.cutting, speeds.rates)
            found = program and like._replace(program=program, task_bytes=_task_bytes(works))
    if found is None:
        found = _assembled(schedule, model, shape, speeds, uncut)
    most = MOST_TIMED if found.task_bytes.size <= MOST_TASKS else 1
    if len(shape.timed) >= most and key not in shape.timed:
        del shape.timed[next(iter(shape.timed))]  # the oldest
    shape.timed[key] = found
    return found


def _speeds(topology: Topology, model: Model, shape: Shape) -> Speeds:
    at_once = links_at_once(topology, [shape.quotient.transfers], model)
    rates, server_rate = distinct_rates(bandwidths(topology, model, at_once), shape.server_link)
    latency_ps = route_latencies(topology, shape, model.endpoint_latency_ps, by_kind=True)
    return Speeds(at_once, rates, i32(server_rate), latency_ps)


def _task_bytes(works: Works) -> I64:
    return works[0][works[1]] if works[0].size > 1 else np.broadcast_to(works[0], works[1].size)


def _assembled(schedule: Schedule, model: Model, shape: Shape, speeds: Speeds, uncut: dict[str, object]) -> Timed:
    works, none = shape.works(schedule.block_bytes), np.zeros(0, np.int32)
    task_bytes = _task_bytes(works)
    cuttings, cutting = own_cuttings(shape, [model.cutting])
    topology, t, keys = schedule.topology, shape.quotient.transfers, shape.server_link
    flow = flows(topology, t)[shape.task_row] if has_flows(model) else None
    ports = Ports(model, [(schedule.pattern, t)])
    port = np.broadcast_to(ports.of(schedule.pattern, t), t.src.size)[shape.task_row] if model.nic else none
    check_buffers(model, task_bytes, cutting, cuttings)
    hops, latency_ps = None, speeds.latency_ps
    if latency_ps.ndim == 2:
        hops = hops_by_kind(shape.route_hop, latency_ps.reshape(-1), model.forwarding, model.deliver)
    columns = Columns(
        rates=speeds.rates, server_rate=speeds.server_rate,
        server_discipline=disciplines_of(topology, model, keys),
        route_ptr=shape.route_ptr, route_server=none if hops else shape.route_server, route_latency_ps=latency_ps,
        task_work=task_bytes, task_cutting=None if isinstance(cutting, int) else i32(cutting),
        task_route=shape.task_route, task_class=shape.task_class, task_priority=_priority(shape, model.discipline),
        edge_parent=none, edge_child=none, edge_lag=none,  # its waits are made
        route_channel=shape.route_channel,
    )
    program = assemble(
        columns, cuttings, model.forwarding, model.deliver,
        NO_POOLS if t.pool is None else pools_alone(schedule.pattern, shape),
        nics=nics_of(topology, keys, model, port, flow, ports.in_turn, speeds.at_once), task_flow=flow,
        buffers=buffers_of(topology, keys, model), bubble=model.bubble,
        waits=shape.waits, works=works, hops=hops,
    )
    operation = np.broadcast_to(np.int32(0), task_bytes.size)
    return Timed(program, task_bytes, speeds, topology, (*legend(topology, model, keys), operation), uncut)


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
