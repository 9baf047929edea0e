"""Building a program task by task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from sim.program.assemble import Columns, Pools, assemble
from sim.program.columns import i32
from sim.program.contract import CLOCK_END_PS, DISCIPLINES, PER_CHUNK, WHOLE, Program, check_choice
from sim.program.cutting import MOST_WORK, Cutting
from topologies import WeftError
from topologies.units import format_time


@dataclass
class ProgramBuilder:
    """Builds a program task by task: for jobs, tests and anything small.

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
    _servers: list[tuple[Fraction, int]] = field(default_factory=list)
    _tasks: list[tuple[int, Cutting, tuple[tuple[int, int], ...], int, int]] = field(default_factory=list)
    _edges: list[tuple[int, int, int]] = field(default_factory=list)
    _pools: Pools = field(default_factory=lambda: Pools([], [], [], []))

    def server(self, rate: float | Fraction, discipline: str = "fifo") -> int:
        """Add a server of `rate` work a second (bytes/s for a link, 10^12 for work in ps); returns its index."""
        check_choice(discipline, DISCIPLINES, "discipline")
        if not rate > 0:
            raise WeftError(f"server {len(self._servers)} has rate {rate}; it must be above zero")
        self._servers.append((Fraction(rate), DISCIPLINES.index(discipline)))
        return len(self._servers) - 1

    def pool(self, capacity: int, discipline: str = "fifo") -> int:
        """Add a pool of `capacity` units; returns its index."""
        check_choice(discipline, DISCIPLINES, "discipline")
        if capacity < 1:
            raise WeftError(f"pool {len(self._pools.capacity)} has capacity {capacity}; it must be at least 1")
        self._pools.capacity.append(capacity)
        self._pools.discipline.append(DISCIPLINES.index(discipline))
        return len(self._pools.capacity) - 1

    def task(
        self,
        work: int,
        path: Iterable[tuple[int, int]] = (),
        cutting: Cutting = Cutting(),
        *,
        after: Iterable[int] = (),
        stream: Iterable[int] = (),
        window: Iterable[tuple[int, int]] = (),
        tie_class: int = 0,
        priority: int = 0,
    ) -> int:
        """Add a task of `work` bytes or ps over a path of (server, latency_ps); returns its index.

        `after` are waited for whole, `stream` chunk by chunk, `window` are (task, w): chunk j waits for its
        chunk j - w.
        """
        task = len(self._tasks)
        if work < 0:
            raise WeftError(f"task {task} has negative work {work}")
        if work >= MOST_WORK:
            raise WeftError(f"task {task} has work of {work}; it must be below 2^62 (bytes or ps)")
        self._tasks.append((work, cutting, tuple(path), tie_class, priority))
        self._edges += [(parent, task, WHOLE) for parent in after]
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
        self._pools.ask.append((task, pool, units, per))

    def give(self, task: int, pool: int, units: int = 1, per: int = PER_CHUNK) -> None:
        """Let each delivered chunk of a task (or the delivered task) return units to a pool."""
        self._pools.give.append((task, pool, units, per))

    def build(self) -> Program:
        """The program, checked."""
        rates = sorted({rate for rate, _ in self._servers})
        cuttings = list(dict.fromkeys(cutting for _, cutting, _, _, _ in self._tasks))
        routes = list(dict.fromkeys(path for _, _, path, _, _ in self._tasks))
        row_of_route = {route: row for row, route in enumerate(routes)}
        self._check_references()
        hops = [hop for route in routes for hop in route]
        edges = np.array(self._edges, dtype=np.int32).reshape(-1, 3)
        columns = Columns(
            rates=rates,
            server_rate=i32([rates.index(rate) for rate, _ in self._servers]),
            server_discipline=np.array([discipline for _, discipline in self._servers], np.int8),
            route_ptr=i32(np.concatenate(([0], np.cumsum([len(route) for route in routes]))) if routes else [0]),
            route_server=i32([server for server, _ in hops]),
            route_latency_ps=np.array([latency for _, latency in hops], np.int64),
            task_work=np.array([task[0] for task in self._tasks], np.int64),
            task_cutting=i32([cuttings.index(task[1]) for task in self._tasks]),
            task_route=i32([row_of_route[task[2]] for task in self._tasks]),
            task_class=i32([task[3] for task in self._tasks]),
            task_priority=i32([task[4] for task in self._tasks]),
            edge_parent=edges[:, 0],
            edge_child=edges[:, 1],
            edge_lag=edges[:, 2],
        )
        return assemble(columns, cuttings, self.forwarding, self.deliver, self._pools)

    def _check_references(self) -> None:
        for task, (_, _, path, _, _) in enumerate(self._tasks):
            for server, latency in path:
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
        for task, pool, _, _ in (*self._pools.ask, *self._pools.give):
            if not (0 <= task < len(self._tasks) and 0 <= pool < len(self._pools.capacity)):
                raise WeftError(f"task {task} uses pool {pool}; there is no such pair")
