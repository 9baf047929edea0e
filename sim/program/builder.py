"""Building a program task by task, or many at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sim.program.assemble import Columns, Nics, Pools, Posting, assemble
from sim.program.columns import i32, unique_rows
from sim.program.contract import CLOCK_END_PS, FIFO, I64, PER_CHUNK, PUSHED, ROUND_ROBIN_FLOW, UNBOUNDED, WHOLE, Program
from sim.program.cutting import MOST_WORK, Cutting
from sim.program.model_options import DISCIPLINES, ORDERS
from topologies.checks import WeftError, choice
from topologies.units import format_time

NO_SERVER = -1
"""Of tasks that take no time."""


class _Many(NamedTuple):
    """Tasks of one chunk, (N,) each; servers and latencies, (N, H)."""

    work: I64
    tie_class: I64
    priority: I64
    flow: I64  # NO_FLOW: its own
    server: I64
    latency_ps: I64


NO_FLOW = -1


@dataclass
class ProgramBuilder:
    """Builds a program: `task` by task for jobs, tests and anything small, `tasks` by the array for packets.

    Examples
    --------
    >>> builder = ProgramBuilder(forwarding="store-and-forward")
    >>> wire = builder.server(rate=50e9)
    >>> first = builder.task(1 << 20, [(wire, 500_000)], Cutting(chunks=4))
    >>> second = builder.task(1 << 20, [(wire, 500_000)], Cutting(chunks=4), stream=[first])
    >>> builder.build().n_tasks
    2
    """

    forwarding: str = "cut-through"
    deliver: str = "tail"
    posting: Posting = Posting()
    _servers: list[tuple[Fraction, int]] = field(default_factory=list)
    bubble: bool = False  # channel 1 is that of chunks that enter a ring; see `with_buffers`
    _tasks: list[tuple[int, Cutting, tuple[tuple[int, ...], ...], int, int]] = field(default_factory=list)
    _edges: list[tuple[int, int, int]] = field(default_factory=list)
    _many: list[_Many] = field(default_factory=list)
    _orders: list[tuple[I64, I64]] = field(default_factory=list)
    _pools: Pools = field(default_factory=lambda: Pools([], [], [], []))  # of these the capacities and disciplines
    _asks: list[tuple[int, int, int, int]] = field(default_factory=list)
    _gives: list[tuple[int, int, int, int]] = field(default_factory=list)
    _nics: dict[int, int] = field(default_factory=dict)
    _buffers: dict[int, tuple[int, int]] = field(default_factory=dict)
    _sends: dict[int, tuple[int, int]] = field(default_factory=dict)

    def server(
        self, rate: float | Fraction, discipline: str = "fifo", *, buffer: int = UNBOUNDED, credit_ps: int = 1
    ) -> int:
        """Add a server of `rate` work per second (bytes/s for a link, 10^12 for work in ps); returns its index."""
        choice(discipline, DISCIPLINES, "discipline")
        if not rate > 0:
            raise WeftError(f"server {len(self._servers)} has rate {rate}; it must be above zero")
        if buffer != UNBOUNDED:
            self._buffers[len(self._servers)] = buffer, credit_ps
        self._servers.append((Fraction(rate), DISCIPLINES.index(discipline)))
        return len(self._servers) - 1

    def nic(self, rate: float | Fraction, engines: int = 1, discipline: str = "fifo") -> int:
        """Add a server that is a NIC; `posting` of the builder holds for all of them. Returns its index."""
        if engines < 1:
            raise WeftError(f"server {len(self._servers)} is a NIC of {engines} engines; at least 1")
        server = self.server(rate, discipline)
        self._nics[server] = engines
        return server

    def servers(self, rates: Sequence[Fraction]) -> I64:
        """Add fifo servers of these rates; returns their indices."""
        self._servers += [(rate, FIFO) for rate in rates]
        return np.arange(len(self._servers) - len(rates), len(self._servers), dtype=np.int64)

    def tasks(
        self, work: I64, server: I64 | int = NO_SERVER, latency_ps: I64 | int = 0, *, after: Iterable[I64] = (),
        tie_class: I64 | int = 0, priority: I64 | int = 0, flow: I64 | int = NO_FLOW,
    ) -> I64:
        """Add tasks of one chunk each, all at once; returns their indices. Single tasks are added before.

        `work` (N,): bytes, or ps.
        `server` (N, H) or (N,): those of a route; NO_SERVER for tasks that only join others.
        `latency_ps` (N, H) or (N,): after each server.
        `after`: tasks that are waited for, entry by entry.
        `tie_class`, `priority`, `flow` (N,).
        """
        first = len(self._tasks) + sum(one.work.size for one in self._many)
        filled = [np.broadcast_to(np.asarray(one, np.int64), work.shape) for one in (tie_class, priority, flow)]
        hops = [np.asarray(one, np.int64) for one in (server, latency_ps)]
        hops = [one if one.ndim == 2 else np.broadcast_to(one, work.shape)[:, np.newaxis] for one in hops]
        self._many.append(_Many(work, *filled, *hops))
        added = np.arange(first, first + work.size, dtype=np.int64)
        for parent in after:
            self.order(parent, added)
        return added

    def order(self, parent: I64, child: I64) -> None:
        """Let each child wait for its parent as a whole, entry by entry."""
        self._orders.append((parent.copy(), child.copy()))  # the caller may write on in its arrays

    def pool(self, capacity: int, discipline: str = "fifo") -> int:
        """Add a pool of `capacity` units; returns its index."""
        choice(discipline, ORDERS, "discipline of a pool")
        if capacity < 1:
            raise WeftError(f"pool {len(self._pools.capacity)} has capacity {capacity}; it must be at least 1")
        self._pools.capacity.append(capacity)
        self._pools.discipline.append(DISCIPLINES.index(discipline))
        return len(self._pools.capacity) - 1

    def task(
        self, work: int, path: Iterable[tuple[int, ...]] = (), cutting: Cutting = Cutting(), *,
        after: Iterable[int] = (), stream: Iterable[int] = (), window: Iterable[tuple[int, int]] = (),
        pushed: Iterable[int] = (), tie_class: int = 0, priority: int = 0, port: int = 0, flow: int | None = None,
    ) -> int:
        """Add a task of `work` bytes or ps over a path of (server, latency_ps); returns its index.

        A hop may name its virtual channel as well: (server, latency_ps, channel).
        `after` are waited for whole, `stream` chunk by chunk, `window` are (task, w): chunk j waits for its
        chunk j - w. `pushed` are waited for until they are in the queue of their NIC.
        `port` is of a task that a NIC takes; `flow` too, and where flows take turns; without one it has its own.
        """
        task = len(self._tasks)
        if self._many:
            raise WeftError("tasks are added one by one first, and by the array then")
        if work < 0:
            raise WeftError(f"task {task} has negative work {work}")
        if work >= MOST_WORK:
            raise WeftError(f"task {task} has work of {work}; it must be below 2^62 (bytes or ps)")
        self._tasks.append((work, cutting, tuple((*hop, 0)[:3] for hop in path), tie_class, priority))
        self._sends[task] = port, -1 - task if flow is None else flow
        self._edges += [(parent, task, WHOLE) for parent in after]
        self._edges += [(parent, task, PUSHED) for parent in pushed]
        self._edges += [(parent, task, 0) for parent in stream]
        for parent, lag in window:
            self.window(task, parent, lag)
        return task

    def window(self, task: int, parent: int, lag: int) -> None:
        """Let chunk j of `task` wait for chunk j - lag of `parent`, which may come later or be the task itself."""
        if lag < 1:
            raise WeftError(f"task {task} has a window of {lag} on task {parent}; at least 1")
        self._edges.append((parent, task, lag))

    def ask(self, task: int, pool: int, units: int = 1, per: int = PER_CHUNK) -> None:
        """Let each chunk of a task (or its first, for the whole) take units of a pool."""
        self._asks.append((task, pool, units, per))

    def give(self, task: int, pool: int, units: int = 1, per: int = PER_CHUNK) -> None:
        """Let each delivered chunk of a task (or the delivered task) return units to a pool."""
        self._gives.append((task, pool, units, per))

    def build(self) -> Program:
        """The program, checked."""
        rates = sorted({rate for rate, _ in self._servers})
        rate_row = {rate: row for row, rate in enumerate(rates)}
        cuttings = list(dict.fromkeys(cutting for _, cutting, _, _, _ in self._tasks))
        routes = list(dict.fromkeys(path for _, _, path, _, _ in self._tasks))
        row_of_route = {route: row for row, route in enumerate(routes)}
        self._check_references()
        hops = [hop for route in routes for hop in route]
        edges = np.array(self._edges, dtype=np.int32).reshape(-1, 3)
        columns = Columns(
            rates=rates,
            server_rate=i32([rate_row[rate] for rate, _ in self._servers]),
            server_discipline=np.array([discipline for _, discipline in self._servers], np.int8),
            route_ptr=i32(np.concatenate(([0], np.cumsum([len(route) for route in routes]))) if routes else [0]),
            route_server=i32([hop[0] for hop in hops]),
            route_latency_ps=np.array([hop[1] for hop in hops], np.int64),
            route_channel=np.array([hop[2] for hop in hops], np.int8),
            task_work=np.array([task[0] for task in self._tasks], np.int64),
            task_cutting=i32([cuttings.index(task[1]) for task in self._tasks]),
            task_route=i32([row_of_route[task[2]] for task in self._tasks]),
            task_class=i32([task[3] for task in self._tasks]),
            task_priority=i32([task[4] for task in self._tasks]),
            edge_parent=edges[:, 0],
            edge_child=edges[:, 1],
            edge_lag=edges[:, 2],
        )
        if self._many:
            columns = self._with_many(columns, cuttings)
        port, flow = np.zeros((2, columns.task_work.size), np.int64)
        flow -= np.arange(1, flow.size + 1)
        if self._many:
            given = np.concatenate([one.flow for one in self._many])
            flow[-given.size:] = np.where(given == NO_FLOW, flow[-given.size:], given)
        for task, sent in self._sends.items():
            port[task], flow[task] = sent
        nics = Nics(list(self._nics), list(self._nics.values()), i32(port), flow, self.posting) if self._nics else None
        buffers = None
        if self._buffers:
            every = [self._buffers.get(server, (UNBOUNDED, 1)) for server in range(len(self._servers))]
            buffers = tuple(np.array(every, np.int64).T)
        return assemble(
            columns, cuttings, self.forwarding, self.deliver,
            self._pools._replace(ask=self._asks, give=self._gives), nics=nics, buffers=buffers,
            bubble=self.bubble, task_flow=flow if np.any(columns.server_discipline == ROUND_ROBIN_FLOW) else None,
        )

    def _with_many(self, columns: Columns, cuttings: list[Cutting]) -> Columns:
        """The columns with the tasks that were added by the array; equal hops become one route."""
        most = max(one.server.shape[1] for one in self._many)
        work, tie_class, priority = (np.concatenate(column) for column in list(zip(*self._many, strict=True))[:3])
        server, latency_ps = (
            np.concatenate([np.pad(one, ((0, 0), (0, most - one.shape[1])), constant_values=NO_SERVER) for one in side])
            for side in ([one.server for one in self._many], [one.latency_ps for one in self._many])
        )
        latency_ps = np.where(server == NO_SERVER, 0, latency_ps)
        if Cutting() not in cuttings:
            cuttings.append(Cutting())
        cutting = np.full(work.size, cuttings.index(Cutting()))
        if np.any(server >= len(self._servers)) or np.any(latency_ps < 0):
            raise WeftError(f"tasks cross server {server.max()} of {len(self._servers)}, or have a negative latency")
        latencies, latency = np.unique(latency_ps, return_inverse=True)
        kinds = (server + 1) * latencies.size + latency.reshape(server.shape)
        key = kinds[:, 0]
        for column in kinds.T[1:]:
            key = unique_rows(key)[1] * (int(column.max(initial=0)) + 1) + column
        _, first, route = np.unique(key, return_index=True, return_inverse=True)
        over, at = np.divmod(kinds[first], max(latencies.size, 1))
        hops = over > 0
        none = np.zeros(0, np.int64)
        parent, child = (np.concatenate(side) for side in zip((none, none), *self._orders, strict=True))
        return columns._replace(
            route_ptr=i32(np.append(columns.route_ptr, columns.route_ptr[-1] + np.cumsum(hops.sum(axis=1)))),
            route_server=i32(np.append(columns.route_server, over[hops] - 1)),
            route_latency_ps=np.append(columns.route_latency_ps, latencies[at[hops]]),
            route_channel=np.append(columns.route_channel, np.zeros(hops.sum(), np.int8)),
            task_work=np.append(columns.task_work, work),
            task_cutting=i32(np.append(i32([cuttings.index(task[1]) for task in self._tasks]), cutting)),
            task_route=i32(np.append(columns.task_route, columns.route_ptr.size - 1 + route)),
            task_class=i32(np.append(columns.task_class, tie_class)),
            task_priority=i32(np.append(columns.task_priority, priority)),
            edge_parent=i32(np.append(columns.edge_parent, parent)),
            edge_child=i32(np.append(columns.edge_child, child)),
            edge_lag=i32(np.append(columns.edge_lag, np.full(parent.size, WHOLE))),
        )

    def _check_references(self) -> None:
        for task, (_, _, path, _, _) in enumerate(self._tasks):
            for server, latency, _ in path:
                if not 0 <= server < len(self._servers):
                    raise WeftError(f"task {task} crosses server {server}; there are {len(self._servers)}")
                if latency < 0:
                    raise WeftError(f"task {task} has a negative latency after server {server}")
                if latency >= CLOCK_END_PS:
                    raise WeftError(
                        f"task {task} has a latency of {format_time(latency)} after server {server}; the clock ends at "
                        f"{format_time(CLOCK_END_PS)}"
                    )
        for parent, child, _ in self._edges:
            if not 0 <= parent < len(self._tasks):
                raise WeftError(f"task {child} waits for task {parent}; there are {len(self._tasks)}")
        for task, pool, _, _ in (*self._asks, *self._gives):
            if not (0 <= task < len(self._tasks) and 0 <= pool < len(self._pools.capacity)):
                raise WeftError(f"task {task} uses pool {pool}; there is no such pair")
