"""Lowering: from a schedule and a model to the program that the engines run."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.schedule import Schedule
from sim.lower.quotient import Quotient, find_rows, quotient
from sim.program import (
    DISCIPLINES,
    I32,
    I64,
    NO_POOLS,
    PER_TASK,
    WHOLE,
    Columns,
    Pools,
    Program,
    assemble,
    unique_rows,
)
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.units import MOST_PS, format_time

_shapes: WeakKeyDictionary[Pattern, dict[tuple[object, ...], Shape]] = WeakKeyDictionary()


class Shape(NamedTuple):
    """What of a program does not depend on the size of the array.

    Attributes
    ----------
    quotient : Quotient
    server_link : (S,) int32
        Link of each server.
    task_row, task_half : (T,) int64
        Transfer of each task (a row of the quotient's), and which half of its bytes, -1 for all.
    route_ptr, route_server, route_link : int32
        Distinct routes, over servers.
    task_route : (T,) int32
    edge_parent, edge_child, edge_lag : (E,) int32
    """

    quotient: Quotient
    server_link: I32
    task_row: I64
    task_half: I64
    route_ptr: I32
    route_server: I32
    task_route: I32
    edge_parent: I32
    edge_child: I32
    edge_lag: I32


class Lowered(NamedTuple):
    """A program and what its servers and tasks stand for.

    Attributes
    ----------
    program : Program
    schedule : Schedule
    model : Model
    shape : Shape
    task_bytes : (T,) int64
        Bytes of each task, headers left out.
    """

    program: Program
    schedule: Schedule
    model: Model
    shape: Shape
    task_bytes: I64

    @property
    def symmetry(self) -> str:
        """Which ranks were simulated, and why they stand for all."""
        return self.shape.quotient.symmetry

    def link_busy_ps(self, busy_ps: I64) -> I64:
        """Busy time of every link of the topology, (n_links,), from that of the servers."""
        per_link = np.zeros(self.schedule.topology.n_links, np.int64)
        per_link[self.shape.server_link] = busy_ps
        return per_link[self.shape.quotient.orbits.link]

    def images(self) -> I64:
        """How many tasks of the full program each task stands for, (T,)."""
        transfers, orbits = self.shape.quotient.transfers, self.shape.quotient.orbits
        sizes = np.stack([np.bincount(part, minlength=part.size) for part in orbits.rank])
        rows = sizes[np.minimum(transfers.port, len(sizes) - 1), transfers.src]
        return rows[self.shape.task_row].astype(np.int64)

    def wire_bytes(self) -> int:
        """Bytes that leave all ranks, padding included, headers not."""
        images = self.images()
        if float(np.dot(self.task_bytes.astype(np.float64), images)) < 2.0**62:
            return int((self.task_bytes * images).sum())
        return int(np.dot(self.task_bytes.astype(object), images.astype(object)))


def lower(schedule: Schedule, model: Model = Model(), symmetry: str = "auto") -> Lowered:
    """The program of a schedule.

    Parameters
    ----------
    schedule : Schedule
    model : Model
    symmetry : {"auto", "off"}
        Whether to simulate representatives only.
    """
    shape = _shape(schedule.pattern, model.tie, model.seed if model.tie == "ecmp" else 0, symmetry)
    topology = schedule.topology
    transfers = shape.quotient.transfers
    if transfers.rounds is not None:
        raise WeftError(f"{schedule.name}: its transfers stand for several rounds: give it to a job as a collective")
    whole = transfers.blocks[shape.task_row] * schedule.block_bytes
    half = shape.task_half
    task_bytes = np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))
    bandwidth, server_rate = np.unique(topology.bandwidth_Bps[shape.server_link], return_inverse=True)
    discipline = DISCIPLINES.index(model.discipline)
    tie_class = transfers.tie_class[shape.task_row] * 2 + np.maximum(half, 0)
    columns = Columns(
        rates=[Fraction(float(rate)) for rate in bandwidth],
        server_rate=server_rate.astype(np.int32),
        server_discipline=np.full(shape.server_link.size, discipline, np.int8),
        route_ptr=shape.route_ptr,
        route_server=shape.route_server,
        route_latency_ps=_latencies(topology, shape, model.endpoint_latency_ps),
        task_work=task_bytes,
        task_cutting=None,
        task_route=shape.task_route,
        task_class=unique_rows(tie_class)[1].astype(np.int32),
        task_priority=transfers.step[shape.task_row],
        edge_parent=shape.edge_parent,
        edge_child=shape.edge_child,
        edge_lag=shape.edge_lag,
    )
    pools = _pools(schedule.pattern, shape)
    if shape.quotient.transfers.pool is not None:
        pooled = shape.quotient.transfers.pool[shape.task_row]
        columns = columns._replace(
            task_priority=np.where(pooled[:, 0] >= 0, pooled[:, 2], columns.task_priority).astype(np.int32)
        )
    program = assemble(columns, [model.cutting], model.forwarding, model.deliver, pools)
    return Lowered(program, schedule, model, shape, task_bytes)


def _pools(pattern: Pattern, shape: Shape) -> Pools:
    """The pools of every source, and who uses them; joins take and give, so that no task is a half."""
    transfers = shape.quotient.transfers
    if transfers.pool is None:
        return NO_POOLS
    n_pools = len(pattern.pools)
    owners, owner = np.unique(transfers.src[shape.task_row], return_inverse=True)
    uses = []
    for column in (0, 1):
        key = transfers.pool[shape.task_row, column]
        tasks = np.flatnonzero(key >= 0)
        pool = owner[tasks] * n_pools + key[tasks]
        uses.append([(int(task), int(one), 1, PER_TASK) for task, one in zip(tasks, pool, strict=True)])
    return Pools(
        [pool.capacity for pool in pattern.pools] * owners.size,
        [DISCIPLINES.index(pool.discipline) for pool in pattern.pools] * owners.size,
        *uses,
    )


def _latencies(topology: Topology, shape: Shape, endpoint_ps: int) -> I64:
    link = shape.server_link[shape.route_server]
    used = [int(of.max(initial=0)) for of in (topology.latency_ps[link], topology.hop_latency_ps[topology.dst[link]])]
    if sum(used) + endpoint_ps > MOST_PS:
        raise WeftError(
            f"the latency of a link, {format_time(sum(used) + endpoint_ps)} with the node behind it, is beyond the "
            f"clock, which ends at {format_time(MOST_PS)}"
        )
    latency = topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]
    ends = shape.route_ptr[1:][np.diff(shape.route_ptr) > 0] - 1
    latency[ends] += endpoint_ps
    return latency


def _shape(pattern: Pattern, tie: str, seed: int, symmetry: str) -> Shape:
    known = _shapes.setdefault(pattern, {})
    key = (tie, seed, symmetry)
    if key not in known:
        known[key] = make_shape(quotient(pattern, tie, seed, symmetry))
    return known[key]


def make_shape(q: Quotient) -> Shape:
    """Tasks, routes and edges of the representative transfers."""
    paths = q.paths
    server_link, server = unique_rows(paths.links)
    half = np.full(paths.pair.size, -1, np.int64)
    twin = np.flatnonzero(paths.pair[1:] == paths.pair[:-1])
    half[twin], half[twin + 1] = 0, 1
    task_route, route_ptr, route_server = _distinct_routes(q, half, server.astype(np.int32))
    parent, child, lag = _edges(q, half)
    return Shape(
        quotient=q,
        server_link=server_link.astype(np.int32),
        task_row=paths.pair,
        task_half=half,
        route_ptr=route_ptr,
        route_server=route_server,
        task_route=task_route,
        edge_parent=parent,
        edge_child=child,
        edge_lag=lag,
    )


def _distinct_routes(q: Quotient, half: I64, server: I32) -> tuple[I32, I32, I32]:
    """Routes are told apart by their ends (and half), so that a ring's steps share one."""
    src, dst = q.transfers.src[q.paths.pair].astype(np.int64), q.transfers.dst[q.paths.pair]
    span = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    source = unique_rows(src)[1]  # few sources make a short range
    key = (source * span + dst) * 3 + half + 1
    if q.transfers.rounds is not None:
        laps = q.transfers.rounds[q.paths.pair, 1].astype(np.int64)
        key = key * (int(laps.max(initial=0)) + 1) + laps
    if q.transfers.via_ptr is not None:
        key = _named_routes(q, key)
    distinct, route = unique_rows(key)
    first = np.zeros(distinct.size, np.int64)
    first[route[::-1]] = np.arange(route.size)[::-1]
    hops = np.diff(q.paths.ptr)[first]
    ptr = np.concatenate(([0], np.cumsum(hops)))
    at = np.repeat(q.paths.ptr[first] - ptr[:-1], hops) + np.arange(ptr[-1])
    return route.astype(np.int32), ptr.astype(np.int32), server[at]


def _named_routes(q: Quotient, key: I64) -> I64:
    """Numbers for routes that transfers may name themselves: equal where ends, half and all links are equal."""
    hops = np.diff(q.paths.ptr)
    n_links = int(q.paths.links.max(initial=0)) + 1
    for hop in range(int(hops.max(initial=0))):
        longer = hops > hop
        link = np.full(key.size, n_links, np.int64)
        link[longer] = q.paths.links[q.paths.ptr[:-1][longer] + hop]
        key = np.unique(key * (n_links + 1) + link, return_inverse=True)[1].astype(np.int64)
    return key


def _edges(q: Quotient, half: I64) -> tuple[I32, I32, I32]:
    """Dependencies between tasks; both halves of a split transfer are waited for."""
    t = q.transfers
    counts = np.diff(t.dep_ptr)
    child_row = np.repeat(np.arange(t.src.size), counts)
    parent_row = rows_waited_for(q)
    lag = t.dep_lag
    if np.any(half >= 0):
        if np.any(lag != WHOLE):
            raise WeftError(
                "tie rule 'split' cannot serve transfers that follow each other chunk by chunk: "
                "choose first, alternating or ecmp"
            )
        return _split_edges(q, parent_row, child_row)
    return parent_row.astype(np.int32), child_row.astype(np.int32), lag.astype(np.int32)


def rows_waited_for(q: Quotient) -> I64:
    """Row of the transfer (or of its representative) that each dependency names."""
    t = q.transfers
    ports = np.zeros(int(t.slot.max(initial=-1)) + 1, np.int32)
    ports[t.slot] = t.port
    rank = q.orbits.rank_of(ports[t.dep_slot], t.dep_src)
    stride = int(max(t.src.max(initial=0), rank.max(initial=0))) + 1
    key = t.slot.astype(np.int64) * stride + t.src
    want = t.dep_slot.astype(np.int64) * stride + rank
    found = find_rows(key, want)
    if want.size and not np.array_equal(key[found], want):
        raise WeftError("a transfer waits for one that no rank sends")
    return found


def _split_edges(q: Quotient, parent_row: I64, child_row: I64) -> tuple[I32, I32, I32]:
    first = np.searchsorted(q.paths.pair, np.arange(q.transfers.src.size))
    count = np.bincount(q.paths.pair, minlength=q.transfers.src.size)
    pairs = [
        (first[parent_row] + i, first[child_row] + j, (count[parent_row] > i) & (count[child_row] > j))
        for i in (0, 1)
        for j in (0, 1)
    ]
    parent = np.concatenate([p[keep] for p, _, keep in pairs]).astype(np.int32)
    child = np.concatenate([c[keep] for _, c, keep in pairs]).astype(np.int32)
    return parent, child, np.full(parent.size, WHOLE, np.int32)
