"""The program that every engine runs: servers, tasks, what waits for what. Integers only.

This file is the contract of the engines. Given one `Program`, each of them must produce the same start and
finish of every task to the picosecond, whatever it does inside.

Time and service
    Time is int64 picoseconds from 0. A chunk of size row z takes `service_ps[z, server_rate[s]]` (at least 1)
    on server s, which serves one chunk at a time and never stops a service once begun.
Path
    A task is cut into chunks (`cut_*`), which cross the servers of its route in order; chunks of a task never
    overtake each other. With service [start, end) and latency L at a hop:
    store-and-forward: ready for the next server at end + L;
    cut-through: ready at max(start + L, end + L - service there).
    Delivered at end + L of the last hop, or, when heads are delivered, at start + L.
    A task with an empty route delivers each chunk at the picosecond it is released (and granted).
Release
    Chunk j of task B is released when every whole parent is delivered in full, every stream parent A with
    lag 0 has delivered ceil((j+1) C_A / C_B) chunks, and every one with lag w >= 1 has delivered j-w+1.
Injection
    A released chunk joins its first server when the chunk before it has ended its service there (at its
    release, if that is later). A task has one chunk at most at its first server.
Pool
    A chunk that would join (or, on an empty route, be delivered) first asks its task's pool, if any, for
    units: each chunk (`PER_CHUNK`), or the first chunk for all (`PER_TASK`). Requests are served in the
    pool's order and the head of the line blocks. A delivered chunk or task gives units back (`give_*`).
Order inside one picosecond
    1. Ends of service, deliveries, units given back, releases and requests, to their fixpoint. Then every
       pool grants what it can, in its order; what a grant delivers is part of the next fixpoint. Repeat
       until nothing changes.
    2. All arrivals at servers, the injected ones included.
    3. Each free server that has waiting chunks chooses one and starts it.
Choice
    The least (rank, arrival ps, class, chunk, hop, task): rank is 0 for FIFO, the task's priority for PRIORITY
    (small first), the work of the whole task for SMALLEST_FIRST, the chunk index for LOWEST_CHUNK_FIRST.
    A pool chooses alike among its requests, with the picosecond of the request for the arrival and hop 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from topologies.units import PS_PER_S, format_time

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

FIFO, PRIORITY, SMALLEST_FIRST, LOWEST_CHUNK_FIRST = 0, 1, 2, 3
DISCIPLINES = ("fifo", "priority", "smallest-first", "lowest-chunk-first")
FORWARDING = ("cut-through", "store-and-forward")
DELIVERY = ("tail", "head")
PER_CHUNK, PER_TASK = 0, 1
WHOLE = -1
"""Lag of an edge to a child that waits for the whole task; 0 is chunk by chunk, w >= 1 a window."""

CLOCK_END_PS = 2**62


class Program(NamedTuple):
    """Arrays of one program; S servers, R rates, Z chunk sizes, K cuts, U routes, T tasks, P pools.

    Attributes
    ----------
    cut_through, deliver_head : int
        0 or 1.
    server_rate : (S,) int32
        Column of `service_ps`.
    server_discipline : (S,) int8
        FIFO, PRIORITY, SMALLEST_FIRST or LOWEST_CHUNK_FIRST.
    service_ps : (Z, R) int64
        Service time of each chunk size at each rate, at least 1.
    cut_chunks, cut_first : (K,) int32
        Number of chunks, and how many of them, the leading ones, have the first size.
    cut_size : (K, 2) int32
        Row of `service_ps` of the leading chunks and of the rest.
    cut_work : (K,) int64
        Work of the whole task, for SMALLEST_FIRST.
    hop_server, hop_latency_ps, hop_last : (H,) int32, int64, int8
        Kinds of hop: server, latency after it, and whether it ends a route.
    route_ptr : (U+1,) int32
        Hops of route u are `route_hop[route_ptr[u]:route_ptr[u+1]]`.
    route_hop : int32
        Kind of each hop.
    task_cut, task_route, task_class : (T,) int32
    task_priority : (T,) or (0,) int32
        Empty where no server and no pool looks at it.
    whole_ptr, whole_child : (T+1,) or (0,) int32, int32
        Children that wait for the whole task. The pointers of edges are empty where there are no such edges.
    stream_ptr, stream_child, stream_lag : (T+1,) or (0,) int32, int32, int32
        Children that wait chunk by chunk (lag 0) or in a window (lag >= 1); lags are empty where all are 0.
    parent_ptr, parent, parent_lag : (T+1,) or (0,) int32, int32, int32
        The same edges seen from the child.
    pool_capacity, pool_discipline : (P,) int32, (P,) int8
    task_pool, task_units, task_per : (T,) or (0,) int32, int32, int8
        Pool asked (-1 none), units, PER_CHUNK or PER_TASK. Empty when there are no pools.
    give_ptr, give_pool, give_units, give_per : (T+1,) or (0,) int32, int32, int32, int8
        What a delivered chunk (PER_CHUNK) or task (PER_TASK) returns.
    timetable_ptr, timetable_from_ps, timetable_rate : (S+1,) or (0,) int32, int64, int32
        Rate column in force from a time on, -1 down. Reserved: no engine accepts one yet.
    task_deadline_ps : (T,) or (0,) int64
        Deadline of a join. Reserved: no engine accepts one yet.
    """

    cut_through: int
    deliver_head: int
    server_rate: I32
    server_discipline: I8
    service_ps: I64
    cut_chunks: I32
    cut_first: I32
    cut_size: I32
    cut_work: I64
    hop_server: I32
    hop_latency_ps: I64
    hop_last: I8
    route_ptr: I32
    route_hop: I32
    task_cut: I32
    task_route: I32
    task_class: I32
    task_priority: I32
    whole_ptr: I32
    whole_child: I32
    stream_ptr: I32
    stream_child: I32
    stream_lag: I32
    parent_ptr: I32
    parent: I32
    parent_lag: I32
    pool_capacity: I32
    pool_discipline: I8
    task_pool: I32
    task_units: I32
    task_per: I8
    give_ptr: I32
    give_pool: I32
    give_units: I32
    give_per: I8
    timetable_ptr: I32
    timetable_from_ps: I64
    timetable_rate: I32
    task_deadline_ps: I64

    @property
    def n_servers(self) -> int:
        return int(self.server_rate.size)

    @property
    def n_tasks(self) -> int:
        return int(self.task_cut.size)

    @property
    def route_server(self) -> I32:
        """Server of each hop of the routes; computed."""
        return self.hop_server[self.route_hop]

    @property
    def route_latency_ps(self) -> I64:
        """Latency after each hop of the routes; computed."""
        return self.hop_latency_ps[self.route_hop]

    @property
    def task_waits(self) -> I32:
        """Number of whole parents of each task, (T,); computed."""
        return np.bincount(self.whole_child, minlength=self.n_tasks).astype(np.int32)

    def priorities(self) -> I32:
        """Priority of each task, (T,)."""
        return self.task_priority if self.task_priority.size else np.zeros(self.n_tasks, np.int32)

    def whole_edges(self) -> tuple[I32, I32]:
        """Parent and child of each wait for a whole task, in the order of the parents."""
        return _owners(self.whole_ptr), self.whole_child

    def stream_edges(self) -> tuple[I32, I32, I32]:
        """Parent, child and lag of each wait chunk by chunk or in a window, in the order of the children."""
        lag = self.parent_lag if self.parent_lag.size else np.zeros(self.parent.size, np.int32)
        return self.parent, _owners(self.parent_ptr), lag

    def chunks(self) -> I64:
        """Chunks of each task, (T,)."""
        return self.cut_chunks[self.task_cut].astype(np.int64)

    def hops(self) -> I64:
        """Hops of each task, (T,)."""
        return np.diff(self.route_ptr)[self.task_route].astype(np.int64)

    def chunk_hops(self) -> int:
        """Services in the whole run: each is one chunk on one server."""
        return int((self.chunks() * self.hops()).sum())

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(field.nbytes for field in self if isinstance(field, np.ndarray))


def _owners(ptr: I32) -> I32:
    """The row that each entry of a CSR list belongs to."""
    return np.repeat(np.arange(max(ptr.size - 1, 0), dtype=np.int32), np.diff(ptr))


def check_supported(program: Program) -> None:
    """Refuse what the layout reserves and no engine simulates yet."""
    for name, array in (("a timetable", program.timetable_ptr), ("a deadline", program.task_deadline_ps)):
        if array.size:
            raise WeftError(f"the program has {name}, which the engines do not simulate yet")


@dataclass(frozen=True)
class Cutting:
    """How a transfer is cut into chunks; give `chunks` or `chunk_bytes`, not both.

    `chunks` cuts evenly: sizes differ by at most one byte, and a transfer of fewer bytes than chunks has one
    chunk a byte. `chunk_bytes` cuts full chunks and a remainder, after `header_bytes` are added to the transfer.
    `packet_header_bytes` are added to every chunk. A transfer of zero bytes is one chunk.
    """

    chunks: int | None = 1
    chunk_bytes: int | None = None
    header_bytes: int = 0
    packet_header_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.chunks is None) == (self.chunk_bytes is None):
            raise WeftError("cutting needs either a number of chunks or a chunk size, and not both")
        if self.chunks is not None and not 1 <= self.chunks < 2**31:
            raise WeftError(f"chunks={self.chunks} is out of range: at least 1 chunk a transfer")
        if self.chunk_bytes is not None and self.chunk_bytes < 1:
            raise WeftError(f"chunk size {self.chunk_bytes} B is out of range: at least 1 byte")
        if self.header_bytes < 0 or self.packet_header_bytes < 0:
            raise WeftError("header sizes must not be negative")

    def cut(self, work: int) -> tuple[int, int, int, int]:
        """Cut `work` bytes: (chunks, how many lead, size of those, size of the rest)."""
        work += self.header_bytes
        if self.chunk_bytes is None:
            assert self.chunks is not None
            count = min(self.chunks, max(work, 1))
            small, larger = divmod(work, count)
            leading, first, rest = (larger, small + 1, small) if larger else (count, small, small)
        else:
            count = max(1, -(-work // self.chunk_bytes))
            first, rest = self.chunk_bytes, work - (count - 1) * self.chunk_bytes
            leading = count - 1
            if rest == first or leading == 0:
                leading, first = count, rest
        if count >= 2**31:
            raise WeftError(f"a transfer of {work} bytes would be cut into {count} chunks; at most 2147483647")
        return count, leading, first + self.packet_header_bytes, rest + self.packet_header_bytes


def service_time_ps(work: int, rate_per_s: Fraction) -> int:
    """Exact service time rounded up to a whole picosecond, at least one."""
    return max(1, -(-work * PS_PER_S * rate_per_s.denominator // rate_per_s.numerator))


class Columns(NamedTuple):
    """What `assemble` needs, one row a server, task or edge.

    Attributes
    ----------
    rates : list of Fraction
        Distinct rates, work a second.
    server_rate : (S,) int32
    server_discipline : (S,) int8
    route_ptr, route_server, route_latency_ps
        As in `Program`.
    task_work : (T,) int64
    task_cutting : (T,) int32 or None
        Index into `cuttings`; None where there is one.
    task_route, task_class, task_priority : (T,) int32
    edge_parent, edge_child, edge_lag : (E,) int32
        The child waits for the parent; lag WHOLE, 0 or a window.
    """

    rates: list[Fraction]
    server_rate: I32
    server_discipline: I8
    route_ptr: I32
    route_server: I32
    route_latency_ps: I64
    task_work: I64
    task_cutting: I32 | None
    task_route: I32
    task_class: I32
    task_priority: I32
    edge_parent: I32
    edge_child: I32
    edge_lag: I32


class Pools(NamedTuple):
    """Pools and who uses them; `ask` rows are (task, pool, units, per), `give` rows likewise."""

    capacity: list[int]
    discipline: list[int]
    ask: list[tuple[int, int, int, int]]
    give: list[tuple[int, int, int, int]]


NO_POOLS = Pools([], [], [], [])


def assemble(
    columns: Columns,
    cuttings: Sequence[Cutting],
    forwarding: str = "cut-through",
    deliver: str = "tail",
    pools: Pools = NO_POOLS,
) -> Program:
    """Build a program from columns: tabulate service times, sort the edges, check what would deadlock or overflow.

    Raises
    ------
    WeftError
        Tasks that wait for each other in a circle, a window that can never open, more pool units asked than
        there are, or a run that could outlast the clock.
    """
    check_choice(forwarding, FORWARDING, "forwarding")
    check_choice(deliver, DELIVERY, "deliver")
    n_tasks = columns.task_work.size
    cut_table, task_cut = _cut_tasks(columns, cuttings)
    sizes, size_row = np.unique(cut_table[:, 2:4], return_inverse=True)
    service = _tabulate(sizes, columns.rates)
    latency = columns.route_latency_ps.astype(np.int64)
    if forwarding == "cut-through" or deliver == "head":
        latency = np.maximum(latency, 1)
    whole = columns.edge_lag == WHOLE
    n_whole = int(np.count_nonzero(whole))
    some = slice(None) if n_whole == whole.size else whole
    whole_ptr, whole_child, _ = _by_key(columns.edge_parent[some], columns.edge_child[some], None, n_tasks)
    rest = slice(None) if n_whole == 0 else ~whole
    parents, children, lags = columns.edge_parent[rest], columns.edge_child[rest], columns.edge_lag[rest]
    stream_ptr, stream_child, stream_lag = _by_key(parents, children, lags, n_tasks)
    parent_ptr, parent, parent_lag = _by_key(children, parents, lags, n_tasks)
    hops = _hop_kinds(columns, latency)
    looked_at = np.any(columns.server_discipline == PRIORITY) or PRIORITY in pools.discipline
    program = Program(
        cut_through=int(forwarding == "cut-through"),
        deliver_head=int(deliver == "head"),
        server_rate=_i32(columns.server_rate),
        server_discipline=np.ascontiguousarray(columns.server_discipline, np.int8),
        service_ps=np.ascontiguousarray(service),
        cut_chunks=_i32(cut_table[:, 0]),
        cut_first=_i32(cut_table[:, 1]),
        cut_size=_i32(size_row.reshape(-1, 2)),
        cut_work=np.ascontiguousarray(cut_table[:, 4]),
        **hops,
        route_ptr=_i32(columns.route_ptr),
        task_cut=task_cut,
        task_route=_i32(columns.task_route),
        task_class=_i32(columns.task_class),
        task_priority=_i32(columns.task_priority if looked_at else []),
        whole_ptr=whole_ptr,
        whole_child=whole_child,
        stream_ptr=stream_ptr,
        stream_child=stream_child,
        stream_lag=stream_lag,
        parent_ptr=parent_ptr,
        parent=parent,
        parent_lag=parent_lag,
        **_pool_arrays(pools, n_tasks),
        timetable_ptr=_i32([]),
        timetable_from_ps=np.zeros(0, np.int64),
        timetable_rate=_i32([]),
        task_deadline_ps=np.zeros(0, np.int64),
    )
    _check_edges(program, columns)
    _check_clock(program)
    return program


def _tabulate(sizes: I64, rates: list[Fraction]) -> I64:
    """Service times, (Z, R)."""
    table = [[service_time_ps(int(size), rate) for rate in rates] for size in sizes]
    longest = max((time for row in table for time in row), default=0)
    if longest >= CLOCK_END_PS:
        raise WeftError(
            f"a chunk of {sizes.max()} units would be served for {format_time(float(longest))}; "
            f"the clock ends at {format_time(CLOCK_END_PS)}"
        )
    return np.array(table, np.int64).reshape(sizes.size, len(rates))


def check_choice(value: str, accepted: Sequence[str], what: str) -> None:
    """Refuse a word that is not among the accepted ones."""
    if value not in accepted:
        raise WeftError(f"{what} {value!r} is unknown: choose one of {', '.join(accepted)}")


def _i32(values: npt.ArrayLike) -> I32:
    return np.ascontiguousarray(values, np.int32)


def _cut_tasks(columns: Columns, cuttings: Sequence[Cutting]) -> tuple[I64, I32]:
    """Table of (chunks, leading, first size, rest size, work), one row a distinct cut, and the row of each task."""
    works, row = unique_rows(columns.task_work)
    which = columns.task_cutting
    if which is not None:
        pairs, row = unique_rows(which.astype(np.int64) * works.size + row)
        distinct = [(int(pair // works.size), int(works[pair % works.size])) for pair in pairs]
    else:
        distinct = [(0, int(work)) for work in works]
    table = np.array([(*cuttings[c].cut(work), work) for c, work in distinct], dtype=np.int64).reshape(len(distinct), 5)
    return table, _i32(row)


def unique_rows(values: npt.NDArray[np.integer]) -> tuple[I64, I64]:
    """Distinct values, sorted, and which of them each value is; linear in time where their range is short."""
    exact: I64 = values.astype(np.int64)
    if exact.size == 0:
        return exact, np.zeros(0, np.int64)
    low = int(exact.min())
    span = int(exact.max()) - low + 1
    if span > 4 * exact.size + 1024:
        distinct, row = np.unique(exact, return_inverse=True)
        return distinct, row.ravel()
    there = np.zeros(span, np.bool_)
    there[exact - low] = True
    number = np.cumsum(there) - 1
    return np.flatnonzero(there).astype(np.int64) + low, number[exact - low]


def _hop_kinds(columns: Columns, latency: I64) -> dict[str, npt.NDArray[np.signedinteger]]:
    """Distinct hops, and which of them each hop of a route is: 4 bytes a hop instead of 12."""
    latencies, row = unique_rows(latency)
    last = np.zeros(latency.size, np.int64)
    ends = np.asarray(columns.route_ptr[1:])[np.diff(columns.route_ptr) > 0] - 1
    last[ends] = 1
    kinds, hop = unique_rows((columns.route_server.astype(np.int64) * max(latencies.size, 1) + row) * 2 + last)
    server, at = np.divmod(kinds // 2, max(latencies.size, 1))
    return {
        "hop_server": _i32(server),
        "hop_latency_ps": np.ascontiguousarray(latencies[at]),
        "hop_last": np.ascontiguousarray(kinds % 2, np.int8),
        "route_hop": _i32(hop),
    }


def _by_key(key: I32, value: I32, lag: I32 | None, n_tasks: int) -> tuple[I32, I32, I32]:
    """Edges in CSR order of `key`: pointers (none where there is no edge), values, lags (none where all are 0)."""
    if key.size == 0:
        return _i32([]), _i32([]), _i32([])
    if key.size >= 2**31:
        raise WeftError(f"{key.size} dependencies are too many: at most 2147483647")
    ptr = np.zeros(n_tasks + 1, np.int32)
    np.cumsum(np.bincount(key, minlength=n_tasks), out=ptr[1:])
    if np.all(key[1:] >= key[:-1]):
        order: slice | I64 = slice(None)
    else:
        order = np.argsort(key, kind="stable")
    return ptr, _i32(value[order]), _i32(lag[order] if lag is not None and np.any(lag) else [])


def _pool_arrays(pools: Pools, n_tasks: int) -> dict[str, npt.NDArray[np.signedinteger]]:
    n_pools = len(pools.capacity)
    rows = n_tasks if n_pools else 0
    pool, units, per = np.full(rows, -1, np.int32), np.zeros(rows, np.int32), np.zeros(rows, np.int8)
    for task, asked, count, mode in pools.ask:
        if pool[task] != -1:
            raise WeftError(f"task {task} asks two pools; a task may ask one")
        if not 1 <= count <= pools.capacity[asked]:
            raise WeftError(f"task {task} asks {count} units of pool {asked}, which has {pools.capacity[asked]}")
        pool[task], units[task], per[task] = asked, count, mode
    give = np.array(sorted(pools.give), dtype=np.int64).reshape(-1, 4)
    give_ptr = np.zeros(n_tasks + 1 if n_pools else 0, np.int32)
    if n_pools:
        np.cumsum(np.bincount(give[:, 0], minlength=n_tasks), out=give_ptr[1:])
    return {
        "pool_capacity": _i32(pools.capacity),
        "pool_discipline": np.array(pools.discipline, np.int8),
        "task_pool": pool,
        "task_units": units,
        "task_per": per,
        "give_ptr": give_ptr,
        "give_pool": _i32(give[:, 1]),
        "give_units": _i32(give[:, 2]),
        "give_per": np.ascontiguousarray(give[:, 3], np.int8),
    }


def _check_edges(program: Program, columns: Columns) -> None:
    """No circle of whole or chunk-by-chunk waits, and no window that never opens."""
    chunks = program.chunks()
    window = columns.edge_lag >= 1
    # The last chunk of the child needs chunk C_B - 1 - w of the parent to exist.
    never = window & (chunks[columns.edge_child] - columns.edge_lag > chunks[columns.edge_parent])
    if np.any(never):
        edge = int(np.flatnonzero(never)[0])
        parent, child, lag = (int(x[edge]) for x in (columns.edge_parent, columns.edge_child, columns.edge_lag))
        raise WeftError(
            f"task {child} of {chunks[child]} chunks has a window of {lag} on task {parent}, "
            f"whose {chunks[parent]} chunks are too few"
        )
    circle = _circle(program.n_tasks, columns.edge_parent[~window], columns.edge_child[~window])
    if circle:
        raise WeftError(f"tasks wait for each other in a circle: {' -> '.join(map(str, circle))}")


def _circle(n_tasks: int, parent: I32, child: I32) -> list[int]:
    """A circle of tasks, or nothing. Peels tasks without parents, level by level."""
    if np.all(parent < child):
        return []
    waits = np.bincount(child, minlength=n_tasks)
    ptr, kids, _ = _by_key(parent, child, None, n_tasks)
    ready = np.flatnonzero(waits == 0)
    while ready.size:
        counts = ptr[ready + 1] - ptr[ready]
        at = np.repeat(ptr[ready] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(counts.sum())
        hit, times = np.unique(kids[at], return_counts=True)
        waits[hit] -= times
        ready = hit[waits[hit] == 0]
    left = waits > 0
    if not np.any(left):
        return []
    back = {int(c): int(p) for p, c in zip(parent, child, strict=True) if left[p] and left[c]}
    seen: list[int] = []
    task = next(iter(back))
    while task not in seen:
        seen.append(task)
        task = back[task]
    return [*seen[seen.index(task):], task][::-1]


def _check_clock(program: Program) -> None:
    """Every run ends by the sum of all services and latencies; that must fit the clock."""
    if program.n_tasks == 0:
        return
    slowest = program.service_ps.max(initial=1)
    longest = program.hop_latency_ps.max(initial=0)
    bound = program.chunk_hops() * (int(slowest) + int(longest))
    if bound >= CLOCK_END_PS:
        bound = _exact_bound(program)
    if bound >= CLOCK_END_PS:
        last, end = format_time(float(bound)), format_time(CLOCK_END_PS)
        raise WeftError(f"the run could last {last}; the clock ends at {end}")


def _exact_bound(program: Program) -> int:
    total, servers, latencies = 0, program.route_server, program.route_latency_ps
    pairs, count = np.unique(np.stack([program.task_cut, program.task_route], axis=1), axis=0, return_counts=True)
    for (cut, route), times in zip(pairs, count, strict=True):
        lead, all_ = int(program.cut_first[cut]), int(program.cut_chunks[cut])
        first, rest = program.cut_size[cut]
        for hop in range(program.route_ptr[route], program.route_ptr[route + 1]):
            rate = program.server_rate[servers[hop]]
            services = lead * int(program.service_ps[first, rate]) + (all_ - lead) * int(program.service_ps[rest, rate])
            total += int(times) * (services + all_ * int(latencies[hop]))
    return total


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
            server_rate=_i32([rates.index(rate) for rate, _ in self._servers]),
            server_discipline=np.array([discipline for _, discipline in self._servers], np.int8),
            route_ptr=_i32(np.concatenate(([0], np.cumsum([len(route) for route in routes]))) if routes else [0]),
            route_server=_i32([server for server, _ in hops]),
            route_latency_ps=np.array([latency for _, latency in hops], np.int64),
            task_work=np.array([task[0] for task in self._tasks], np.int64),
            task_cutting=_i32([cuttings.index(task[1]) for task in self._tasks]),
            task_route=_i32([row_of_route[task[2]] for task in self._tasks]),
            task_class=_i32([task[3] for task in self._tasks]),
            task_priority=_i32([task[4] for task in self._tasks]),
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
        for parent, child, _ in self._edges:
            if not 0 <= parent < len(self._tasks):
                raise WeftError(f"task {child} waits for task {parent}; there are {len(self._tasks)}")
        for task, pool, _, _ in (*self._pools.ask, *self._pools.give):
            if not (0 <= task < len(self._tasks) and 0 <= pool < len(self._pools.capacity)):
                raise WeftError(f"task {task} uses pool {pool}; there is no such pair")
