"""Lowering: from a schedule or a job, and a model, to the program that the engines run.

A computation is one task on the server of its stream, with picoseconds for bytes. A collective or a message begins
on an NPU with a join of what the NPU waits for, and ends with a join of all that the NPU sends and receives. A schedule
alone is a job of one collective; nothing waits for it, so that it has no joins.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collectives.core.schedule import Schedule
from collectives.core.transfers import Transfers
from sim.lower.alone import lower_alone
from sim.lower.capacity import check_tasks
from sim.lower.credits import buffers_of, channels_of, check_buffers, check_rings
from sim.lower.epochs import circuit_edges
from sim.lower.job_symmetry import job_orbits
from sim.lower.lowered import NO_TRANSFER, Lowered, Span, TaskTable
from sim.lower.marks import Marks
from sim.lower.messages import Messages
from sim.lower.nics import Ports, ends_of, flows, has_flows, links_at_once, nics_of
from sim.lower.pools import PoolUses, pools_alone
from sim.lower.progress import waiting_of
from sim.lower.quotient import Orbits, Ranks, finder
from sim.lower.rotor import turns_of
from sim.lower.servers import (
    bandwidths,
    disciplines_of,
    distinct_rates,
    first_stream,
    legend,
    own_cuttings,
    route_latencies,
)
from sim.lower.shape import Shape, shape_of
from sim.lower.templates import Template, sends_of, templates_of
from sim.program import I8, I32, I64, NO_POOLS, ORDERS, WHOLE, Columns, Cutting, Pools, i32, unique_rows
from sim.program.assemble import assemble
from sim.program.model import Model
from sim.program.passes import without_joins
from sim.program.waits import Cycle
from topologies import WeftError
from topologies.core.paths import distinct_of, ranges
from topologies.stages import count, staged
from topologies.units import PS_PER_S
from workloads.job import CLOCK, Communicate, Compute, Job, Operation, Reconfigure, Send

N = TypeVar("N", bound=np.integer)

COMPUTED = 1
"""Which cutting computations have: they are never cut. Transfers have that of the model, 0, or their own."""

JOINS = 2**30
"""Number of the first join, where it shows in the end which of them are left."""

NO_RANK = -1
"""Rank of the tasks and servers of optical controllers."""


@staged("lowering")
def lower(
    work: Schedule | Job, model: Model = Model(), symmetry: str = "auto", *, joins: bool = False,
    marks: Marks | None = None, bare: bool = False,
) -> Lowered:
    """The program of a schedule or a job.

    Under the discipline "priority", links serve a schedule alone by its steps, and the transfers of a job by the
    priorities of its operations. Streams serve by the priorities of the operations, and equal ones in the order of
    arrival.

    `model`: of the links; `chunks` cuts each transfer, and computations are never cut.
    `symmetry`: {"auto", "off"}; whether to simulate representatives only.
    `marks`: what faults will make unlike, so that only the symmetry that keeps it is used.
    `joins`: whether a schedule alone also gets the joins of an operation, which show when each NPU has finished.
    `bare`: whether nothing but the time of a job is asked: joins are left where several tasks are waited for, behind
        all others, and begins and ends of operations are not known.
    WeftError: a collective that covers part of a process group; pools of unequal capacity; latencies beyond the clock.
    """
    job = Job.of(work) if isinstance(work, Schedule) else work
    marks = marks or turns_of(job.topology)
    seed = model.seed if model.tie == "ecmp" else 0
    alone, ranks = job.alone, _ranks(job, model)
    check_rings(job.topology, ranks.channels)
    if alone is not None and not joins:
        waiting, chunks = waiting_of(alone.pattern, model), model.chunks or 1
        shape = shape_of(alone.pattern, model.tie, seed, symmetry, marks, waiting, ranks, chunks)
        return lower_alone(job, alone, model, shape)._replace(marks=marks)
    orbits, words = job_orbits(job, model.tie, seed, symmetry, marks, ranks)
    return _Lowering(job, model, orbits, ranks, bare).run(words)._replace(marks=marks)


def _ranks(job: Job, model: Model) -> Ranks:
    """What a group of a job has to keep besides links and transfers."""
    patterns = [one.work.schedule.pattern for one in job.operations if isinstance(one.work, Communicate)]
    return Ranks(
        ends_of(model), any(waiting_of(pattern, model).steps is not None for pattern in patterns),
        "" if model.discipline in ORDERS else model.discipline, channels_of(model),
    )


def count_tasks(job: Job, model: Model, symmetry: str = "auto") -> int:
    """Tasks of a job of several operations, without lowering it."""
    ranks = _ranks(job, model)
    orbits = job_orbits(job, model.tie, model.seed if model.tie == "ecmp" else 0, symmetry, None, ranks)[0]
    return _expected_tasks(job, orbits, templates_of(job, orbits, model, ranks))


def _expected_tasks(job: Job, orbits: Orbits, templates: Sequence[Template | None]) -> int:
    of: dict[tuple[int, ...] | None, int] = {}
    total = 0
    for operation, template in zip(job.operations, templates, strict=True):
        if template is not None:
            total += template.tie.size + 2 * template.ranks.size + operation.together * (template.ranks.size + 1)
            continue
        if operation.npus not in of:
            of[operation.npus] = _representatives(job, orbits, operation).size
        total += of[operation.npus]
    return total


def _representatives(job: Job, orbits: Orbits, operation: Operation) -> I64:
    covered = job.ranks(operation)
    kept: I64 = covered[orbits.rank[0][covered] == covered]
    return kept


class _Block(NamedTuple):
    """The columns of some tasks, each (n,) or one value for all of them."""

    work: I64 | int
    cutting: I64 | int
    route: I64 | I32 | int
    tie: I64 | I32 | int
    priority: I64 | I32 | int
    operation: I64 | int
    rank: I64 | I32
    row: I32 | int
    port: I64 | int = 0
    flow: I64 | int = 0


class _Routes(NamedTuple):
    """Some routes: their hops, servers (links, and behind them the numbers of streams) and latencies."""

    hops: I64 | I32
    server: I32
    latency_ps: I64
    channel: I8 = np.zeros(0, np.int8)  # of each hop; empty where links have one


class _Lowering:
    """Collects the columns of a program, operation by operation."""

    def __init__(self, job: Job, model: Model, orbits: Orbits, ranks: Ranks, bare: bool) -> None:
        self.job, self.model, self.orbits, self.alone = job, model, orbits, job.alone
        self.templates = templates_of(job, orbits, model, ranks)  # by operation
        check_tasks(_expected_tasks(job, orbits, self.templates), f"the job of {len(job.operations):,} operations")
        self.patterns = [one.work.schedule.pattern if isinstance(one.work, Communicate) else None
                         for one in job.operations]
        self.at_once = links_at_once(job.topology, self._sent_at_once(), model)
        self.ports = Ports(model, [
            (pattern, template.transfers) for pattern, template in zip(self.patterns, self.templates, strict=True)
            if pattern is not None and template is not None
        ])
        # joins: of joins that may be left out, operation, ranks, and the first task behind them
        self.bare, self.joins, self.n_joins = bare, list[tuple[int, I64, int]](), 0
        self.needed = {other for one in job.operations for other in one.after}
        self.blocks: list[_Block] = []  # columns of tasks
        self.counts: list[int] = []  # tasks of each block
        self.alike: dict[tuple[int, int], _Block] = {}  # columns of transfers, by template and size
        self.edges: list[tuple[I64 | I32, I64 | I32, I32 | int]] = []  # parent, child, lag
        self.waits: list[tuple[int, I64, int]] = []  # operation waited for, the NPUs that wait, the task of the first
        self.routes: list[_Routes] = []
        self.shapes: dict[int, tuple[int, I64 | int]] = {}  # first route, and cutting of each task
        self.stream_route: dict[tuple[int, str], int] = {}
        self.streams_route: dict[tuple[tuple[int, ...] | None, str], I64] = {}
        self.n_tasks = self.n_routes = 0
        self.next_class: dict[int, int] = {}  # of ties, by turn
        ties = Counter[int]()
        for one, template in zip(job.operations, self.templates, strict=True):
            ties[0 if template is None else one.turn] += 1 if template is None else template.ties
        for turn in sorted(ties):
            self.next_class[turn] = sum(ties[before] for before in ties if before < turn)
        self.begin: dict[int, Span] = {}  # by operation
        self.end: dict[int, Span] = {}
        self.covered: dict[tuple[int, ...] | None, I64] = {}  # representatives by the NPUs of an operation
        self.pools = PoolUses()
        self.changes: list[tuple[int, Reconfigure]] = []
        self.cuttings = [model.cutting, Cutting(chunks=1)]
        self.channels = ranks.channels
        self._add_routes(_Routes(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)))

    def _sent_at_once(self) -> Iterator[Transfers]:
        """The transfers of each collective, and all messages, of ranks that are simulated."""
        yield from (one.transfers for one, of in zip(self.templates, self.patterns, strict=True) if one and of)
        if sends := tuple(sends_of(self.job)):
            yield Messages(self.job.topology, sends).emit(self.orbits.sources)

    def run(self, words: str) -> Lowered:
        """The program of all operations; `words` describe which NPUs are simulated."""
        for number, operation in enumerate(self.job.operations):
            if number % 64 == 0:
                count("operations", number, len(self.job.operations))
            if isinstance(operation.work, Compute):
                self._add_compute(number, operation, operation.work)
            elif isinstance(operation.work, Reconfigure):
                self._add_reconfigure(number, operation, operation.work)
            elif (template := self.templates[number]) is not None:
                self._add_transfers(number, operation, template)
        return self._assemble(words)

    # --- operations -------------------------------------------------------------------------------------------

    def _add_compute(self, number: int, operation: Operation, work: Compute) -> None:
        ranks = self._representatives(operation)
        key = operation.npus, work.stream
        if key not in self.streams_route:
            self.streams_route[key] = self._streams(ranks, work.stream)
        first = self._add_tasks(ranks.size, _Block(
            work.duration_ps, COMPUTED, self.streams_route[key], self._ties(0, 1), operation.priority, number, ranks,
            NO_TRANSFER,
        ))
        self.begin[number] = self.end[number] = Span(ranks, first)
        self._wait(operation, ranks, first)

    def _add_reconfigure(self, number: int, operation: Operation, work: Reconfigure) -> None:
        """A task on the optical controller; one that takes no time only waits. `epochs` adds what waits for it."""
        # A latency of 1 ps: cut-through would raise none to that, and the delay is to be exact.
        route = self._streams(np.array([NO_RANK]), work.controller, 1) if work.delay_ps else 0
        task = self._add_tasks(1, _Block(
            max(work.delay_ps - 1, 0), COMPUTED, route, self._ties(0, 1), 0, number, np.array([NO_RANK]),
            NO_TRANSFER,
        ))
        covered = self.job.ranks(operation)
        before = (self.end[other].of(covered) for other in operation.after)
        ends = distinct_of(np.concatenate([np.array([-1]), *before]))
        self._edges(ends[1:], np.full(ends.size - 1, task))
        self.changes.append((task, work))
        self.begin[number] = self.end[number] = Span(self._representatives(operation), task, 0)

    def _add_transfers(self, number: int, operation: Operation, template: Template) -> None:
        shape, n_ranks, n_tasks = template.shape, template.ranks.size, template.tie.size
        there = begin = self._add_joins(number, template.ranks) if self.alone is None else self.n_tasks
        if operation.together and self.alone is None:  # alone, all begin at once
            there = self._meeting(number, template.ranks, begin)
        self._wait(operation, template.ranks, there)
        first = self._add_tasks(n_tasks, self._block(operation, template)._replace(
            tie=self._ties(operation.turn, template.ties) + template.tie, priority=self._priority(operation, shape),
            operation=number, port=self._port(number, template),
        ))
        if self.alone is not None:  # tasks are drawn for by their numbers, which are those of a run without joins
            begin = self._add_joins(number, template.ranks)
        parent, child, lag, end = *template.edges, begin
        if not self.bare or number in self.needed:
            end = self._add_joins(number, template.ranks)
        else:
            parent, child, lag = (column[: template.begun] for column in template.edges)
        if first != begin + n_ranks:
            parts = np.repeat([begin, first - n_ranks, end - n_ranks - n_tasks], [n_ranks, n_tasks, n_ranks])
            parent, child = (parts[at] + at - begin for at in (parent, child))
        self._edges(begin + parent, begin + child, lag)
        if (pattern := self.patterns[number]) is not None and self.alone is None:
            self.pools.add(operation.name, pattern.pools, shape, first)
        self.begin[number], self.end[number] = Span(template.ranks, begin), Span(template.ranks, end)

    def _block(self, operation: Operation, template: Template) -> _Block:
        """The columns that all operations of a template and a size share; 0 for the others."""
        size, tasks, shape = _block_bytes(operation), template.tasks, template.shape
        key = id(template), size if isinstance(size, int) else -id(operation)  # sizes of its own
        if key not in self.alike:
            row, (route, cutting) = shape.rows_of(tasks), self._of_shape(shape)
            self.alike[key] = _Block(
                shape.task_bytes(size, tasks), cutting if isinstance(cutting, int) else cutting[tasks],
                route + shape.task_route[tasks], 0, 0, 0, shape.quotient.transfers.src[row], row,
                flow=flows(self.job.topology, template.transfers)[row] if has_flows(self.model) else 0,
            )
        return self.alike[key]

    def _port(self, number: int, template: Template) -> I64 | int:
        port = self.ports.of(self.patterns[number], template.transfers)
        return port if isinstance(port, int) else port[template.shape.task_row[template.tasks]]

    def _ties(self, turn: int, count: int) -> int:
        """The first of the next classes of ties of a turn, which come behind those of turns before it."""
        self.next_class[turn] += count
        return self.next_class[turn] - count

    def _meeting(self, number: int, ranks: I64, begin: int) -> int:
        """Joins of what each rank waits for, and of all of them, which all wait for; returns the first."""
        there, met = self._add_joins(number, ranks), self._add_joins(number, ranks[:1])
        self._edges(there + np.arange(ranks.size), np.full(ranks.size, met))
        self._edges(np.full(ranks.size, met), begin + np.arange(ranks.size))
        return there

    def _priority(self, operation: Operation, shape: Shape) -> I32 | int:
        return operation.priority if self.alone is None else shape.quotient.transfers.step[shape.task_row]

    def _wait(self, operation: Operation, ranks: I64, first: int) -> None:
        self.waits += [(other, ranks, first) for other in operation.after]

    def _waiting(self) -> tuple[I64, I64]:
        """For each task that begins an operation on an NPU, what ends on that NPU before: parents and children."""
        numbers, waits, firsts = zip(*self.waits, strict=True) if self.waits else ((), (), ())
        other, first, count = (np.array(one, np.int64) for one in (numbers, firsts, [*map(len, waits)]))
        p, ends = self.job.topology.n_npus, TaskTable({at: self.end[at] for at in distinct_of(other).tolist()})
        n, operation, rank = ends.rows()
        task = ends.tasks(n)
        end = operation * p + rank  # ascending
        wanted = np.repeat(other * p, count) + _joined(waits, np.int64)
        at = finder(end)(wanted)
        found = np.flatnonzero(np.append(end, -1)[at] == wanted)
        return task[at[found]], ranges(first, count)[found]

    def _representatives(self, operation: Operation) -> I64:
        if operation.npus not in self.covered:
            self.covered[operation.npus] = _representatives(self.job, self.orbits, operation)
        return self.covered[operation.npus]

    def _of_shape(self, shape: Shape) -> tuple[int, I64 | int]:
        """Number of the first of a shape's routes in the program; and the cutting of each task, or of all."""
        if id(shape) not in self.shapes:
            latency = route_latencies(self.job.topology, shape, self.model.endpoint_latency_ps)
            link = shape.server_link[shape.route_server]
            self.cuttings, cutting = own_cuttings(shape, self.cuttings)
            if not isinstance(cutting, int) and cutting.size and np.ptp(cutting) == 0:
                cutting = int(cutting[0])
            routes = _Routes(np.diff(shape.route_ptr), link, latency, shape.route_channel)
            self.shapes[id(shape)] = self._add_routes(routes), cutting
        return self.shapes[id(shape)]

    def _streams(self, ranks: I64, stream: str, latency_ps: int = 0) -> I64:
        """Routes over the compute servers of a stream."""
        keys = [(rank, stream) for rank in ranks.tolist()]
        if new := [key for key in keys if key not in self.stream_route]:
            n, first = len(new), first_stream(self.job.topology, self.model) + len(self.stream_route)
            route = self._add_routes(_Routes(
                np.ones(n, np.int64), np.arange(first, first + n, dtype=np.int32), np.full(n, latency_ps),
                np.zeros(n * int(bool(self.channels)), np.int8),
            ))
            self.stream_route.update(zip(new, range(route, route + n), strict=True))
        return np.array([self.stream_route[key] for key in keys], np.int64)

    # --- columns ----------------------------------------------------------------------------------------------

    def _add_tasks(self, count: int, block: _Block) -> int:
        self.blocks.append(block)
        self.counts.append(count)
        self.n_tasks += count
        return self.n_tasks - count

    def _add_joins(self, number: int, ranks: I64) -> int:
        if self.bare:
            self.joins.append((number, ranks, self.n_tasks))
            self.n_joins += ranks.size
            return JOINS + self.n_joins - ranks.size
        return self._add_tasks(ranks.size, _Block(0, 0, 0, 0, 0, number, ranks, NO_TRANSFER))

    def _edges(self, parent: I64 | I32, child: I64 | I32, lag: I32 | int = WHOLE) -> None:
        self.edges.append((parent, child, lag))

    def _add_routes(self, routes: _Routes) -> int:
        self.routes.append(routes)
        self.n_routes += routes.hops.size
        return self.n_routes - routes.hops.size

    def _column(self, name: str, dtype: type[N]) -> npt.NDArray[N]:
        return _filled(np.array(self.counts, np.int64), [getattr(block, name) for block in self.blocks], dtype)

    def _runs(self) -> tuple[I64, I64, I64]:
        """Work and cutting of tasks, and how many tasks that is of, block by block where those of a block are alike."""
        alike = [isinstance(block.work, int) and isinstance(block.cutting, int) for block in self.blocks]
        counts = np.array(self.counts, np.int64)
        n, run = np.where(alike, (np.minimum(counts, 1), counts), (counts, np.ones_like(counts)))
        work, cutting = (_filled(n, [getattr(block, name) for block in self.blocks], np.int64)
                         for name in ("work", "cutting"))
        return work, cutting, np.repeat(run, n)

    def _taken(self) -> tuple[I64, I32, I64, I8, I32]:
        """Hops of each route, server, latency and channel of each hop, and route of each task.

        Without the routes that only messages of other jobs take.
        """
        hops, latency = (_joined([part[at] for part in self.routes], np.int64) for at in (0, 2))
        keys = _joined([part.server for part in self.routes], np.int32)
        channel = _joined([part.channel for part in self.routes], np.int8)
        route = self._column("route", np.int32)
        taken, number = unique_rows(route)
        if taken.size < hops.size:
            at = ranges((np.cumsum(hops) - hops)[taken], hops[taken])
            hops, keys, latency, route = hops[taken], keys[at], latency[at], i32(number)
            channel = channel[at] if channel.size else channel
        return hops, keys, latency, channel, route

    # --- the whole --------------------------------------------------------------------------------------------

    def _add_edges(self) -> tuple[I32, I32, I32, bool]:
        """Parent, child and lag of all edges, and whether none is known to lead back; adds the joins that are left."""
        parent = _joined([part for part, _, _ in self.edges], np.int32)
        child = _joined([part for _, part, _ in self.edges], np.int32)
        lag = _filled(np.array([part.size for part, _, _ in self.edges]), [lag for _, _, lag in self.edges], np.int32)
        if not self.n_joins:
            return parent, child, lag, False
        ptr, into, kept = (np.zeros(shape, np.int32) for shape in (self.n_joins + 2, child.size, (3, child.size)))
        counts = np.array([ranks.size for _, ranks, _ in self.joins])
        stands = np.repeat(np.array([first for _, _, first in self.joins], np.int32), counts)
        edges, forward = without_joins(parent, child, lag, JOINS, self.n_tasks, ptr, into, stands, kept)
        left = stands >= self.n_tasks
        number = np.repeat([number for number, _, _ in self.joins], counts)[left]
        self._add_tasks(number.size, _Block(
            0, 0, 0, 0, 0, number, _joined([ranks for _, ranks, _ in self.joins], np.int64)[left], NO_TRANSFER
        ))
        return kept[0, :edges], kept[1, :edges], kept[2, :edges], forward

    def _assemble(self, words: str) -> Lowered:
        if self.changes:
            hops, keys, _, _, route = self._taken()
            crossed = route.astype(np.int64), hops, keys.astype(np.int64), self._column("operation", np.int32)
            self._edges(*circuit_edges(self.changes, *crossed)[:2])
        self._edges(*self._waiting())
        parent, child, lag, forward = self._add_edges()
        hops, keys, latency, channel, route = self._taken()
        used, server = unique_rows(keys)
        topology, model, streams = self.job.topology, self.model, list(self.stream_route)
        own = used >= first_stream(topology, model)
        rates, server_rate = self._rates(used[~own], [streams[at] for at in used[own] - first_stream(topology, model)])
        priority, row = self._column("priority", np.int64), self._column("row", np.int32)
        in_order = "priority" if np.any(own) and np.ptp(priority) > 0 else "fifo"
        pools, ordered = self._pools(priority)
        flow = self._column("flow", np.int64) if has_flows(model) else None
        work, cutting, run = self._runs()
        columns = Columns(
            rates=rates, server_rate=server_rate,
            server_discipline=disciplines_of(topology, model, used, in_order),
            route_ptr=np.concatenate(([0], np.cumsum(hops))).astype(np.int32),
            route_server=server.astype(np.int32), route_latency_ps=latency,
            task_work=work, task_cutting=cutting, task_run=run,
            task_route=route,
            task_class=self._column("tie", np.int32),
            task_priority=ordered.astype(np.int32), edge_parent=parent, edge_child=child, edge_lag=lag,
            edges_forward=forward,
            route_channel=channel,
            server_computes=own if model.deliver == "head" and np.any(own) else None,
        )
        if model.buffer_bytes is not None:
            check_buffers(model, np.repeat(work, run)[row >= 0], np.repeat(cutting, run)[row >= 0], self.cuttings)
        try:
            program = assemble(
                columns, self.cuttings, model.forwarding, model.deliver, pools,
                nics=None if flow is None else nics_of(
                    topology, used, model, self._column("port", np.int64), flow, self.ports.in_turn, self.at_once
                ),
                task_flow=flow, buffers=buffers_of(topology, used, model), bubble=model.bubble,
            )
        except Cycle as cycle:
            raise WeftError(self._told(cycle)) from None
        return Lowered(
            program, self.job, model, self.orbits, words, *legend(topology, model, used, streams),
            self._column("operation", np.int32), self._column("rank", np.int32), row,
            np.where(row >= 0, program.cut_work[program.task_cut], 0),
            tuple(None if one is None else one.transfers for one in self.templates),
            TaskTable({} if self.bare else self.begin), TaskTable({} if self.bare else self.end), at_once=self.at_once,
        )

    def _told(self, cycle: Cycle) -> str:
        """A cycle by its operations, and the links of those that change circuits."""
        link_name = self.job.topology.link_name
        named: list[str] = []
        for number in self._column("operation", np.int64)[cycle.tasks].tolist():
            operation = self.job.operations[number]
            said = repr(operation.name)
            if isinstance(work := operation.work, Reconfigure):
                sides = {"takes down": work.down, "brings up": work.up}
                links = (f"{what} {', '.join(map(link_name, some[:3]))}{', ...' * (len(some) > 3)}"
                         for what, some in sides.items() if some)
                said += f" ({'; '.join(links)})"
            if named[-1:] != [said]:
                named.append(said)
        if not self.changes:  # waits inside one operation, which a model has added
            return f"transfers of {named[0]} wait for each other in a circle: choose another rank progress"
        return (
            f"operations wait for each other in a circle: {' -> '.join(named)}; a change waits for all that crosses "
            "links that it takes down, and all that crosses links that it brings up waits for it"
        )

    def _rates(self, links: I64, streams: list[tuple[int, str]]) -> tuple[list[Fraction], I32]:
        """Distinct rates, and which of them servers have, streams last; clocks go at one speed everywhere."""
        speed = self.job.speed
        of_links, column = distinct_rates(bandwidths(self.job.topology, self.model, self.at_once), links)
        own = [1.0 if speed is None or rank == NO_RANK or name.startswith(CLOCK) else float(speed[rank])
               for rank, name in streams]
        of_streams = {one: Fraction(one) * PS_PER_S for one in set(own)}
        rates = sorted({*of_links, *of_streams.values()})
        number = {rate: at for at, rate in enumerate(rates)}
        of_stream = {one: number[rate] for one, rate in of_streams.items()}
        row = np.array([number[rate] for rate in of_links], np.int32)[column]
        return rates, np.append(row, np.array([of_stream[one] for one in own], np.int32))

    def _pools(self, priority: npt.NDArray[np.integer]) -> tuple[Pools, npt.NDArray[np.integer]]:
        """Pools, and the priorities of the tasks, which name their places in a pool's line as well."""
        alone, template = self.alone, self.templates[0] if self.templates else None
        if alone is None or template is None:
            return self.pools.build(priority)
        pooled, shape = template.transfers.pool, template.shape
        if pooled is None:
            return NO_POOLS, priority
        mine, ordered = pooled[shape.task_row], priority.copy()
        sends = slice(shape.task_row.size)  # joins are behind them
        ordered[sends] = np.where(mine[:, 0] >= 0, mine[:, 2], ordered[sends])
        return pools_alone(alone.pattern, shape), ordered


def _block_bytes(operation: Operation) -> int | I64:
    """Bytes of a block, or of each message, which its slot numbers."""
    work = operation.work
    assert isinstance(work, (Communicate, Send))
    if isinstance(work, Communicate):
        return work.schedule.block_bytes
    return np.array(work.size_bytes, np.int64) if isinstance(work.size_bytes, tuple) else work.size_bytes


def _filled(counts: I64, parts: list[npt.NDArray[np.integer] | int], dtype: type[N]) -> npt.NDArray[N]:
    """Arrays one after the other, or as often as said a value."""
    plain = [isinstance(part, int) for part in parts]
    values = np.array(parts if all(plain) else [part if isinstance(part, int) else 0 for part in parts], dtype)
    found = np.full(counts.sum(), values[0]) if values.size and np.ptp(values) == 0 else np.repeat(values, counts)
    if not all(plain):
        arrays = [part for part in parts if not isinstance(part, int)]
        found[np.repeat(np.logical_not(plain), counts)] = _joined(arrays, dtype)
    return found


def _joined(parts: Sequence[npt.NDArray[np.integer]], dtype: type[N]) -> npt.NDArray[N]:
    """Arrays one after the other; a single one is not copied, for it may be of millions of tasks."""
    filled = [part for part in parts if part.size]
    if len(filled) == 1:
        return filled[0].astype(dtype, copy=False)
    return np.concatenate(filled, dtype=dtype, casting="unsafe") if filled else np.zeros(0, dtype)
