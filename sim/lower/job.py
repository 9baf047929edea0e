"""Lowering a job: every operation becomes tasks of one program, of the NPUs that stand for the others.

A computation is one task on the server of its stream, with picoseconds for bytes. A collective or a message begins
on an NPU with a join of what the NPU waits for, and ends with a join of all that the NPU sends and receives.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from collectives.core.routes import paths_of
from collectives.core.transfers import Pool
from sim.lower.epochs import circuit_edges
from sim.lower.job_symmetry import Messages, emitter_of, job_orbits
from sim.lower.quotient import Emitter, Orbits, Quotient
from sim.lower.schedule import Shape, make_shape, rows_waited_for
from sim.program import DISCIPLINES, I8, I32, I64, PER_TASK, WHOLE, Columns, Cutting, Pools, Program, assemble
from sim.program.model import Model
from topologies import WeftError
from topologies.units import PS_PER_S
from workloads.job import CLOCK, Collective, Compute, Job, Operation, Reconfigure, Send

NO_RANK = -1
"""Rank of the tasks and servers of optical controllers."""

TURN_BITS = 40
"""Classes of ties that operations of one turn may have, as a power of two."""


class LoweredJob(NamedTuple):
    """A program and what its servers and tasks stand for.

    Attributes
    ----------
    program : Program
    job : Job
    model : Model
    orbits : Orbits
    symmetry : str
    server_link : (S,) int32
        Link of each server; -1 for a compute stream.
    server_rank, server_stream : (S,) int32
        NPU and number in `streams` of a compute stream; -1 for a link.
    streams : tuple of str
    task_operation, task_rank : (T,) int32
        Operation of each task, and the NPU on which it begins.
    begin_task, end_task : dict of (operation, rank) to int
        The task whose delivery begins an operation on an NPU (the task itself for a computation), and the one whose
        delivery ends it; of representatives.
    """

    program: Program
    job: Job
    model: Model
    orbits: Orbits
    symmetry: str
    server_link: I32
    server_rank: I32
    server_stream: I32
    streams: tuple[str, ...]
    task_operation: I32
    task_rank: I32
    begin_task: dict[tuple[int, int], int]
    end_task: dict[tuple[int, int], int]

    @property
    def changes(self) -> list[tuple[int, Reconfigure]]:
        """Changes of circuits, each with its task."""
        return [(self.end_task[number, 0], operation.work) for number, operation in enumerate(self.job.operations)
                if isinstance(operation.work, Reconfigure)]

    def ranks(self, operation: Operation) -> I64:
        """Representatives that an operation covers."""
        return representatives(self.job, self.orbits, operation)


def representatives(job: Job, orbits: Orbits, operation: Operation) -> I64:
    """NPUs that an operation covers and that stand for their orbit."""
    covered = job.ranks(operation)
    kept: I64 = covered[orbits.rank[0][covered] == covered]
    return kept


class _Template(NamedTuple):
    """The tasks of an operation without its size: equal for all operations that share a pattern and its NPUs.

    Attributes
    ----------
    shape : Shape
        With links for servers: `shape.server_link[server]`.
    ranks : (n,) int64
        Representatives, in rank order.
    begins : (2, n_roots) int64
        Task, and number of the rank at which it begins (into `ranks`).
    ends : (2, n_sinks) int64
        Task, and number of the rank at which it ends.
    """

    shape: Shape
    ranks: I64
    begins: I64
    ends: I64


def lower_job(job: Job, model: Model = Model(), symmetry: str = "auto") -> LoweredJob:
    """The program of a job.

    Parameters
    ----------
    job : Job
    model : Model
        Of the links; `chunks` cuts each transfer, and computations are never cut. Streams and pools serve by the
        priorities of the operations, and equal ones in the order of arrival.
    symmetry : {"auto", "off"}

    Raises
    ------
    WeftError
        Head delivery, under which a computation would end as it begins; a collective that covers part of a process
        group; pools of unequal capacity.
    """
    if model.deliver == "head":
        raise WeftError("a job has computations, which deliver their end: head delivery is not for jobs")
    orbits, words = job_orbits(job, model.tie, model.seed if model.tie == "ecmp" else 0, symmetry)
    return _Lowering(job, model, orbits).run(words)


class _Lowering:
    """Collects the columns of a program, operation by operation."""

    def __init__(self, job: Job, model: Model, orbits: Orbits) -> None:
        self.job, self.model, self.orbits = job, model, orbits
        self.templates: dict[object, _Template] = {}
        self.columns: list[I64] = []  # (7, tasks): work, cutting, route, class, priority, operation, rank
        self.edges: list[I64] = []  # (3, edges): parent, child, lag
        self.routes: list[tuple[I64, I64, I64]] = []  # ptr without its 0, server key, latency
        self.template_route: dict[int, int] = {}
        self.stream_route: dict[tuple[int, str], int] = {}
        self.n_tasks = self.n_routes = self.next_class = 0
        self.begin: dict[tuple[int, int], int] = {}
        self.end: dict[tuple[int, int], int] = {}
        self.asks: list[I64] = []  # (3, n): task, rank and pool in one number, place in line
        self.gives: list[I64] = []
        self.limits: dict[str, Pool] = {}
        self.changes: list[tuple[int, Reconfigure]] = []
        self.cuttings = [self.model.cutting, Cutting(chunks=1)]
        self.empty_route = self._add_routes(np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    def run(self, words: str) -> LoweredJob:
        for number, operation in enumerate(self.job.operations):
            if isinstance(operation.work, Compute):
                self._add_compute(number, operation, operation.work)
            elif isinstance(operation.work, Reconfigure):
                self._add_reconfigure(number, operation, operation.work)
            else:
                self._add_transfers(number, operation)
        return self._assemble(words)

    # --- operations -------------------------------------------------------------------------------------------

    def _add_compute(self, number: int, operation: Operation, work: Compute) -> None:
        ranks = self._representatives(operation)
        routes = [self._stream(rank, work.stream) for rank in ranks.tolist()]
        first = self._add_tasks(
            ranks.size, number, work=work.duration_ps, cutting=1, route=np.array(routes, np.int64),
            tie=self.next_class, priority=operation.priority, rank=ranks,
        )
        self.next_class += 1
        for at, rank in enumerate(ranks.tolist()):
            self.begin[number, rank] = self.end[number, rank] = first + at
        self._wait(operation, ranks, first)

    def _add_reconfigure(self, number: int, operation: Operation, work: Reconfigure) -> None:
        """A task on the optical controller; one that takes no time only waits. `epochs` adds what waits for it."""
        # A latency of 1 ps: cut-through would raise none to that, and the delay is to be exact.
        route = self._stream(NO_RANK, work.controller, 1) if work.delay_ps else self.empty_route
        task = self._add_tasks(
            1, number, work=max(work.delay_ps - 1, 0), cutting=1, route=np.array([route]), tie=self.next_class,
            rank=np.array([NO_RANK]),
        )
        self.next_class += 1
        ends = {self.end[other, rank] for other in operation.after for rank in self.job.ranks(operation).tolist()
                if (other, rank) in self.end}
        self._edges(np.array(sorted(ends), np.int64), np.full(len(ends), task))
        self.changes.append((task, work))
        for rank in self._representatives(operation).tolist():
            self.begin[number, rank] = self.end[number, rank] = task

    def _add_transfers(self, number: int, operation: Operation) -> None:
        template = self._template(operation)
        shape, transfers = template.shape, template.shape.quotient.transfers
        begin = self._add_tasks(template.ranks.size, number, rank=template.ranks)
        self._wait(operation, template.ranks, begin)
        routes = self._routes_of(operation, template)
        priority = np.full(shape.task_row.size, operation.priority)
        tie = transfers.tie_class[shape.task_row] * 2 + np.maximum(shape.task_half, 0)
        turn = operation.turn << TURN_BITS
        first = self._add_tasks(
            shape.task_row.size, number, work=_bytes(operation, shape), cutting=self._cutting(shape),
            route=routes[shape.task_route],
            tie=turn + self.next_class + tie, priority=priority, rank=transfers.src[shape.task_row],
        )
        self.next_class += int(tie.max(initial=-1)) + 1
        self._edges(first + shape.edge_parent, first + shape.edge_child, shape.edge_lag)
        self._edges(begin + template.begins[1], first + template.begins[0])
        end = self._add_tasks(template.ranks.size, number, rank=template.ranks)
        self._edges(begin + np.arange(template.ranks.size), end + np.arange(template.ranks.size))
        self._edges(first + template.ends[0], end + template.ends[1])
        self._use_pools(operation, template, first)
        for at, rank in enumerate(template.ranks.tolist()):
            self.begin[number, rank], self.end[number, rank] = begin + at, end + at

    def _wait(self, operation: Operation, ranks: I64, first: int) -> None:
        pairs = [
            (self.end[other, rank], first + at)
            for at, rank in enumerate(ranks.tolist()) for other in operation.after if (other, rank) in self.end
        ]
        if pairs:
            parent, child = np.array(pairs, np.int64).T
            self._edges(parent, child)

    def _representatives(self, operation: Operation) -> I64:
        return representatives(self.job, self.orbits, operation)

    # --- templates --------------------------------------------------------------------------------------------

    def _template(self, operation: Operation) -> _Template:
        work = operation.work
        key = work.routed if isinstance(work, Send) else (
            id(work.schedule.pattern) if isinstance(work, Collective) else 0, operation.npus
        )
        if key not in self.templates:
            self.templates[key] = self._make_template(operation)
        return self.templates[key]

    def _make_template(self, operation: Operation) -> _Template:
        emitter = emitter_of(self.job, operation)
        assert emitter is not None
        ranks = self._representatives(operation)
        n_npus = self.job.topology.n_npus
        transfers = emitter.emit(np.append(ranks, np.arange(n_npus, emitter.n_sources or n_npus)))
        if operation.npus is not None:
            inside = np.ones(self.job.topology.n_nodes, np.bool_)
            inside[:n_npus] = False
            inside[list(operation.npus)] = True
            if not (np.all(inside[transfers.dst]) and np.all(inside[transfers.dep_src])):
                raise WeftError(f"operation {operation.name!r} covers a part of a process group: give whole groups")
        paths = paths_of(transfers, self.job.topology, self.model.tie, self.model.seed)
        paths = paths._replace(links=self.orbits.link[paths.links])
        quotient = Quotient(self.orbits, transfers, paths, "")
        shape = make_shape(quotient)
        return _Template(shape, ranks, *_ends(emitter, quotient, shape, ranks))

    def _routes_of(self, operation: Operation, template: _Template) -> I64:
        """Numbers of the template's routes in the program."""
        shape = template.shape
        if id(shape) not in self.template_route:
            link = shape.server_link[shape.route_server].astype(np.int64)
            topology = self.job.topology
            latency = topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]
            latency += _laps(shape, latency)
            ends = shape.route_ptr[1:][np.diff(shape.route_ptr) > 0] - 1
            latency[ends] += self.model.endpoint_latency_ps
            self.template_route[id(shape)] = self._add_routes(shape.route_ptr.astype(np.int64), link, latency)
        return self.template_route[id(shape)] + np.arange(shape.route_ptr.size - 1)

    def _cutting(self, shape: Shape) -> I64 | int:
        """Cutting of each task: that of the model, or chunks of its own."""
        rounds = shape.quotient.transfers.rounds
        if rounds is None or not rounds[:, 0].any():
            return 0
        counts, row = np.unique(rounds[shape.task_row, 0], return_inverse=True)
        own = [self.cuttings[0]] + [replace(self.cuttings[0], chunks=count, chunk_bytes=None)
                                    for count in counts[counts > 0].tolist()]
        self.cuttings += [one for one in own if one not in self.cuttings]
        number = np.array([self.cuttings.index(one) for one in own], np.int64)
        found: I64 = number[row + (counts[0] > 0)]
        return found

    def _stream(self, rank: int, stream: str, latency_ps: int = 0) -> int:
        """Route over the compute server of a stream."""
        if (rank, stream) not in self.stream_route:
            key = self.job.topology.n_links + len(self.stream_route)
            self.stream_route[rank, stream] = self._add_routes(
                np.array([0, 1], np.int64), np.array([key], np.int64), np.array([latency_ps], np.int64)
            )
        return self.stream_route[rank, stream]

    # --- columns ----------------------------------------------------------------------------------------------

    def _add_tasks(
        self, count: int, number: int, *, work: I64 | int = 0, cutting: I64 | int = 0, route: I64 | None = None,
        tie: I64 | int = 0, priority: I64 | int = 0, rank: I64 | I32,
    ) -> int:
        rows = np.empty((7, count), np.int64)
        for at, one in enumerate((work, cutting, self.empty_route if route is None else route, tie, priority, number)):
            rows[at] = one
        rows[6] = rank
        self.columns.append(rows)
        self.n_tasks += count
        return self.n_tasks - count

    def _edges(self, parent: I64 | I32, child: I64 | I32, lag: I32 | int = WHOLE) -> None:
        rows = np.empty((3, max(parent.size, child.size)), np.int64)
        rows[0], rows[1], rows[2] = parent, child, lag
        self.edges.append(rows)

    def _add_routes(self, ptr: I64, server: I64, latency: I64) -> int:
        self.routes.append((np.diff(ptr), server, latency))
        self.n_routes += ptr.size - 1
        return self.n_routes - (ptr.size - 1)

    def _use_pools(self, operation: Operation, template: _Template, first: int) -> None:
        transfers = template.shape.quotient.transfers
        if transfers.pool is None:
            return
        assert isinstance(operation.work, Collective)
        pools = operation.work.schedule.pattern.pools
        for pool in pools:
            before = self.limits.setdefault(pool.name, pool)
            if before[:2] != pool[:2]:
                raise WeftError(
                    f"operation {operation.name!r} has a pool of {pool.capacity} ({pool.discipline}) for {pool.name}, "
                    f"an earlier one {before.capacity} ({before.discipline}): operations of a job share it"
                )
        names = list(self.limits)
        number = np.array([names.index(pool.name) for pool in pools], np.int64)
        row = template.shape.task_row
        for column, collected in enumerate((self.asks, self.gives)):
            key = transfers.pool[row, column]
            tasks = np.flatnonzero(key >= 0)
            pool_id = transfers.src[row[tasks]].astype(np.int64) << 32 | number[key[tasks]]
            collected.append(np.stack([first + tasks, pool_id, transfers.pool[row[tasks], 2]]))

    # --- the whole --------------------------------------------------------------------------------------------

    def _assemble(self, words: str) -> LoweredJob:
        columns = np.concatenate(self.columns, axis=1) if self.columns else np.zeros((7, 0), np.int64)
        work, cutting, route, tie, priority, operation, rank = columns
        edges = np.concatenate(self.edges, axis=1) if self.edges else np.zeros((3, 0), np.int64)
        hops, keys, latency = (np.concatenate([part[at] for part in self.routes]) for at in range(3))
        edges = np.concatenate([edges, circuit_edges(self.changes, route, hops, keys)], axis=1)
        used, server = np.unique(keys, return_inverse=True)
        is_link = used < self.job.topology.n_links
        streams = list(self.stream_route)
        names = tuple(dict.fromkeys(name for _, name in streams))
        mine = [streams[int(key) - self.job.topology.n_links] for key in used[~is_link]]
        server_rank, server_stream = np.full(used.size, -1, np.int32), np.full(used.size, -1, np.int32)
        server_rank[~is_link] = [one for one, _ in mine]
        server_stream[~is_link] = [names.index(name) for _, name in mine]
        server_link = np.where(is_link, used, -1).astype(np.int32)
        clock = np.array([rank >= 0 and names[stream].startswith(CLOCK)
                          for rank, stream in zip(server_rank.tolist(), server_stream.tolist(), strict=True)], np.bool_)
        rates, server_rate = self._rates(server_link, np.where(clock, -1, server_rank))
        pools, pool_priority = self._pools(priority)
        program = assemble(
            Columns(
                rates=rates, server_rate=server_rate, server_discipline=self._disciplines(is_link, priority),
                route_ptr=np.concatenate(([0], np.cumsum(hops))).astype(np.int32),
                route_server=server.astype(np.int32), route_latency_ps=latency,
                task_work=work, task_cutting=cutting.astype(np.int32), task_route=route.astype(np.int32),
                task_class=np.unique(tie, return_inverse=True)[1].astype(np.int32),
                task_priority=pool_priority.astype(np.int32), edge_parent=edges[0].astype(np.int32),
                edge_child=edges[1].astype(np.int32), edge_lag=edges[2].astype(np.int32),
            ),
            self.cuttings, self.model.forwarding, self.model.deliver, pools,
        )
        return LoweredJob(
            program, self.job, self.model, self.orbits, words, server_link, server_rank, server_stream, names,
            operation.astype(np.int32), rank.astype(np.int32), self.begin, self.end,
        )

    def _rates(self, server_link: I32, server_rank: I64 | I32) -> tuple[list[Fraction], I32]:
        """Rates of the servers, and the number of that of each; a clock has neither link nor rank."""
        speed = self.job.speed if self.job.speed is not None else np.ones(self.job.topology.n_npus)
        bandwidth = self.job.topology.bandwidth_Bps
        exact = [
            Fraction(float(bandwidth[link])) if link >= 0
            else Fraction(float(speed[rank])) * PS_PER_S if rank >= 0 else Fraction(PS_PER_S)
            for link, rank in zip(server_link.tolist(), server_rank.tolist(), strict=True)
        ]
        rates = sorted(set(exact))
        number = {rate: at for at, rate in enumerate(rates)}
        return rates, np.array([number[rate] for rate in exact], np.int32)

    def _disciplines(self, is_link: np.ndarray[tuple[int], np.dtype[np.bool_]], priority: I64) -> I8:
        streams = "priority" if np.unique(priority).size > 1 else "fifo"
        disciplines = DISCIPLINES.index(self.model.discipline), DISCIPLINES.index(streams)
        return np.where(is_link, *disciplines).astype(np.int8)

    def _pools(self, priority: I64) -> tuple[Pools, I64]:
        """Pools, and priorities in which the place in a pool's line comes after the priority of the operation."""
        if not self.limits:
            return Pools([], [], [], []), priority
        asks, gives = (np.concatenate(one, axis=1) for one in (self.asks, self.gives))
        ids, pool = np.unique(np.concatenate([asks[1], gives[1]]), return_inverse=True)
        limits = list(self.limits.values())
        mine = [limits[number] for number in (ids & 0xFFFFFFFF).tolist()]
        by_size = np.array([limit.discipline == "priority" for limit in mine])[pool[: asks.shape[1]]]
        place = np.where(by_size, asks[2], 0)
        span = int(place.max(initial=0)) + 1
        ordered = span > 1 or np.unique(priority).size > 1
        if (int(np.abs(priority).max(initial=0)) + 1) * span >= 2**31:
            raise WeftError(f"priorities up to {np.abs(priority).max()} are too far apart for pools of {span} sizes")
        merged = priority.copy()
        merged[asks[0]] = priority[asks[0]] * span + place
        uses = np.split(pool, [asks.shape[1]])
        ask, give = (
            [(int(task), int(one), 1, PER_TASK) for task, one in zip(rows[0], use, strict=True)]
            for rows, use in zip((asks, gives), uses, strict=True)
        )
        discipline = DISCIPLINES.index("priority" if ordered else "fifo")
        return Pools([limit.capacity for limit in mine], [discipline] * len(mine), ask, give), merged


def _bytes(operation: Operation, shape: Shape) -> I64:
    """Bytes of each task of an operation."""
    work, transfers = operation.work, shape.quotient.transfers
    assert isinstance(work, (Collective, Send))
    block = work.schedule.block_bytes if isinstance(work, Collective) else np.array(work.size_bytes, np.int64)
    if isinstance(block, np.ndarray) and block.ndim:  # one size per message, which its slot numbers
        block = block[transfers.slot[shape.task_row]]
    whole = transfers.blocks[shape.task_row] * block
    half = shape.task_half
    return np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))


def _laps(shape: Shape, latency: I64) -> I64 | int:
    """Latency that routes have on top, at their last hops: those of further rounds and of acknowledgements."""
    rounds = shape.quotient.transfers.rounds
    if rounds is None:
        return 0
    laps = np.ones(shape.route_ptr.size - 1, np.int64)
    laps[shape.task_route] = rounds[shape.task_row, 1]
    hops = np.diff(shape.route_ptr)
    total = np.concatenate(([0], np.cumsum(latency)))
    along = total[shape.route_ptr[1:]] - total[shape.route_ptr[:-1]]
    found = np.zeros(latency.size, np.int64)
    found[shape.route_ptr[1:][hops > 0] - 1] = (along * (laps - 1))[hops > 0]
    return found


def _ends(emitter: Emitter, q: Quotient, shape: Shape, ranks: I64) -> tuple[I64, I64]:
    """Tasks that nothing of their own rank comes before, and those that nothing of it comes after, with the ranks.

    A transfer ends at its receiver as well: at the representative of that, where an image of the transfer arrives.
    """
    t = q.transfers
    child = np.repeat(np.arange(t.src.size), np.diff(t.dep_ptr))
    parent = rows_waited_for(q)
    own = (t.dep_src == t.src[child]) & (t.dep_slot != t.slot[child])  # rounds of one transfer follow each other
    waits, followed, passed_on = (np.zeros(t.src.size, np.bool_) for _ in range(3))
    waits[child[own]] = True
    followed[parent[own]] = True
    passed_on[parent[_receivers(emitter, q) == t.src[child]]] = True
    detached = isinstance(emitter, Messages) and emitter.send.detached
    roots, sent = np.flatnonzero(~waits), np.flatnonzero(~followed & (t.src == t.dst) if detached else ~followed)
    received = np.flatnonzero(~passed_on & (t.src != t.dst))
    begun, ended = (roots, t.src[roots]), (np.append(sent, received), np.append(t.src[sent], t.dst[received]))
    n_npus = emitter.topology.n_npus  # a switch neither waits for what is before the operation nor is waited for
    first, last = (_with_tasks(shape, rows[at < n_npus], at[at < n_npus]) for rows, at in (begun, ended))
    return tuple(  # type: ignore[return-value]  # two of them
        np.stack([task, np.searchsorted(ranks, q.orbits.rank[0][rank])]) for task, rank in (first, last)
    )


def _receivers(emitter: Emitter, q: Quotient) -> I64:
    """To whom the transfer goes that each dependency names."""
    t = q.transfers
    if not t.dep_src.size:
        return np.zeros(0, np.int64)
    others = emitter.emit(np.unique(t.dep_src).astype(np.int64))
    stride = int(max(others.src.max(initial=0), t.dep_src.max(initial=0))) + 1
    key = others.slot.astype(np.int64) * stride + others.src
    want = t.dep_slot.astype(np.int64) * stride + t.dep_src
    return others.dst[np.searchsorted(key, want)].astype(np.int64)


def _with_tasks(shape: Shape, rows: I64, ranks: I32) -> tuple[I64, I32]:
    """The tasks of some rows, two where a transfer is split, and the rank of each."""
    first = np.searchsorted(shape.task_row, rows)
    count = np.searchsorted(shape.task_row, rows, side="right") - first
    twice = np.flatnonzero(count == 2)
    return np.concatenate([first, first[twice] + 1]), np.concatenate([ranks, ranks[twice]])
