"""Rows of integers: distinct ones, and lists of them in CSR form."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from sim.program.contract import I32, I64, Program
from sim.program.passes import look_up, mark, tally
from topologies.core.dealt import dealt
from topologies.core.paths import distinct_of, ranges

BLOCK = 2**20
"""Rows that are looked at together where more would take much memory."""


def i32(values: npt.ArrayLike) -> I32:
    """A column of the program from any numbers that fit."""
    return np.ascontiguousarray(values, np.int32)


def unique_rows(values: npt.NDArray[np.integer]) -> tuple[I64, I64]:
    """Distinct values, sorted, and which of them each value is; linear in time where their range is short."""
    exact: I64 = values.astype(np.int64)
    if exact.size == 0:
        return exact, np.zeros(0, np.int64)
    low = int(exact.min())
    span = int(exact.max()) - low + 1
    if span > max(4 * exact.size, min(32 * exact.size, 2**21)) + 1024:
        distinct = distinct_of(exact[:: exact.size // 1024 + 1])
        if distinct.size < 64:  # few: looked up in a third of the time of sorting
            row = np.minimum(np.searchsorted(distinct, exact), distinct.size - 1)
            missing = exact[distinct[row] != exact]
            if missing.size:
                distinct = distinct_of(np.append(distinct, missing))
                row = np.searchsorted(distinct, exact)
            return distinct, row
        distinct, row = np.unique(exact, return_inverse=True)
        return distinct, row.ravel()
    exact -= low
    there = np.zeros(span, np.bool_)
    there[exact] = True
    number = np.cumsum(there) - 1
    return np.flatnonzero(there).astype(np.int64) + low, number[exact]


def joined(*columns: npt.NDArray[np.integer]) -> I64:
    """A number of each row of some columns, from 0 on, equal where all of them are; rows sort as their numbers do."""
    key, span = np.zeros(columns[0].size, np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        if span * width >= 2**62:
            key, column, low = unique_rows(key)[1], unique_rows(column)[1], 0
            span, width = (int(some.max(initial=0)) + 1 for some in (key, column))
        key, span = key * width + (column.astype(np.int64) - low), span * width
    return key


def is_dense(values: npt.NDArray[np.integer]) -> bool:
    """Whether millions of values are all the numbers from 0 on, so that they number themselves."""
    if values.size <= BLOCK or values.min() < 0 or values.max() > values.size:
        return False
    mark(there := np.zeros(int(values.max()) + 1, np.bool_), np.ascontiguousarray(values), 0)
    return bool(there.all())


def blocks(n: int) -> Iterator[slice]:
    """Rows 0 to n - 1, as many at a time as stay in the cache between two steps of theirs."""
    few = -(-BLOCK // 16)
    return (slice(first, min(first + few, n)) for first in range(0, n, few))


def pieces(counts: npt.NDArray[np.integer]) -> Iterator[slice]:
    """Runs of rows whose counts come to at most a quarter of a million, in order; a row of more is alone."""
    ends, first = np.cumsum(counts, dtype=np.int64), 0
    while first < ends.size:
        before = int(ends[first - 1]) if first else 0
        end = max(int(np.searchsorted(ends, before + BLOCK // 4, "right")), first + 1)
        yield slice(first, end)
        first = end


def numbered(n: int, values_of: Callable[[slice], npt.NDArray[np.integer]]) -> tuple[I64, I32]:
    """As `unique_rows`, of n values that are computed block by block, twice, and never there at once."""
    if n <= BLOCK:
        distinct, row = unique_rows(values_of(slice(0, n)))
        return distinct, i32(row)
    ends = [(int(values.min()), int(values.max())) for values in map(values_of, blocks(n))]
    low, span = min(ends)[0], max(end for _, end in ends) - min(ends)[0] + 1
    found = np.empty(n, np.int32)
    if span > 4 * n:
        distinct = distinct_of(np.concatenate([distinct_of(values_of(some)) for some in blocks(n)]))
        for some in blocks(n):
            found[some] = np.searchsorted(distinct, values_of(some))
        return distinct, found
    there = np.zeros(span, np.bool_)
    for some in blocks(n):
        mark(there, np.ascontiguousarray(values_of(some)), low)
    number = np.cumsum(there, dtype=np.int32) - np.int32(1)
    for some in blocks(n):
        look_up(number, np.ascontiguousarray(values_of(some)), low, found[some])
    return np.flatnonzero(there).astype(np.int64) + low, found


def counted(n: int, span: int, values_of: Callable[[slice], I32 | I64]) -> tuple[I64, I64]:
    """Distinct ones of n values from 0 to `span` - 1, that are computed block by block, and how often each occurs."""
    if span > 4 * n + BLOCK:
        return np.unique(np.concatenate([*map(values_of, blocks(n)), []]).astype(np.int64), return_counts=True)
    count = np.zeros(span, np.int32)
    for some in blocks(n):
        tally(count, i32(values_of(some)))
    distinct = np.flatnonzero(count)
    return distinct, count[distinct].astype(np.int64)


def crossings(program: Program, tasks: I64 | None = None) -> tuple[I64, I64]:
    """Task and server of every hop of some tasks, or of all."""
    tasks = np.arange(program.n_tasks) if tasks is None else tasks
    route = program.task_route[tasks]
    first = program.route_ptr[route].astype(np.int64)
    hops = program.route_ptr[route + 1] - first
    return np.repeat(tasks, hops), program.hop_server[program.route_hop[ranges(first, hops)]].astype(np.int64)


def services_ps(program: Program, cut: I64 | I32, server: I64) -> I64:
    """Sum of the services of all chunks of tasks of some cuts, each at a server, when nothing goes wrong."""
    size, rate = program.cut_size[cut], program.server_rate[server]
    return _over_chunks(program, cut, program.service(size, rate[:, None]))


def work_ps(program: Program) -> I64:
    """Sum of the services that cross each server when nothing goes wrong, (S,)."""
    return _by_server(program, lambda cut, server: services_ps(program, cut, server))


def work_of_servers(program: Program) -> I64:
    """What the chunks of all tasks come to on each server, (S,): bytes of links, each chunk once."""
    return _by_server(
        program, lambda cut, _: _over_chunks(program, cut, program.chunk_work[program.cut_size[cut]])
    )


def _over_chunks(program: Program, cut: I64 | I32, of_chunk: I64) -> I64:
    """Sum over the chunks of tasks of some cuts, by what a leading chunk and another come to, (n, 2)."""
    lead, chunks = program.cut_first[cut].astype(np.int64), program.cut_chunks[cut].astype(np.int64)
    total: I64 = lead * of_chunk[:, 0] + (chunks - lead) * of_chunk[:, 1]
    return total


def _by_server(program: Program, of: Callable[[I64, I64], I64]) -> I64:
    """Sum over all crossings of each server, by the cut of the task and the server; tasks of one kind at once."""
    total, n_routes = np.zeros(program.n_servers, np.int64), max(program.route_ptr.size - 1, 1)
    kinds, tasks = counted(
        program.n_tasks, program.cut_chunks.size * n_routes,
        lambda some: program.task_cut[some].astype(np.int64) * n_routes + program.task_route[some],
    )
    for some in blocks(kinds.size):
        cut, route = np.divmod(kinds[some], n_routes)
        first = program.route_ptr[route].astype(np.int64)
        hops = program.route_ptr[route + 1] - first
        server = program.hop_server[program.route_hop[ranges(first, hops)]].astype(np.int64)
        np.add.at(total, server, of(np.repeat(cut, hops), server) * np.repeat(tasks[some], hops))
    return total


def by_key(key: I32, value: I32, lag: I32, kind: tuple[int, int], n_tasks: int) -> tuple[I32, I32, I32]:
    """As `dealt`, but no pointers where there is no edge, and no lags where all are 0."""
    ptr, values, lags = dealt(key, value, lag, kind, n_tasks)
    return (ptr, values, lags if np.any(lags) else i32([])) if values.size else (i32([]),) * 3
