"""Rows of integers: distinct ones, and lists of them in CSR form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program.contract import I32, I64, Program
from topologies import WeftError


def i32(values: npt.ArrayLike) -> I32:
    return np.ascontiguousarray(values, np.int32)


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


def crossings(program: Program, n_tasks: int | None = None) -> tuple[I64, I64]:
    """Task and server of every hop of the first tasks, or of all."""
    n_tasks = program.n_tasks if n_tasks is None else n_tasks
    hops, first = program.hops()[:n_tasks], program.route_ptr[program.task_route[:n_tasks]].astype(np.int64)
    task = np.repeat(np.arange(n_tasks), hops)
    at = np.arange(task.size) - np.repeat(np.cumsum(hops) - hops - first, hops)
    return task, program.route_server[at].astype(np.int64)


def services_ps(program: Program, task: I64, server: I64) -> I64:
    """Sum of the services of all chunks of each task at a server, when nothing goes wrong."""
    size, rate = program.cut_size[program.task_cut[task]], program.server_rate[server]
    return _over_chunks(program, task, program.service_ps[size, rate[:, None]])


def work_ps(program: Program) -> I64:
    """Sum of the services that cross each server when nothing goes wrong, (S,)."""
    task, server = crossings(program)
    return _by_server(program, server, services_ps(program, task, server))


def work_of_servers(program: Program) -> I64:
    """What the chunks of all tasks come to on each server, (S,): bytes of links, each chunk once."""
    task, server = crossings(program)
    work = program.chunk_work[program.cut_size[program.task_cut[task]]]
    return _by_server(program, server, _over_chunks(program, task, work))


def _over_chunks(program: Program, task: I64, of_chunk: I64) -> I64:
    """Sum over the chunks of each task, by what a leading chunk and another come to, (n, 2)."""
    cut = program.task_cut[task]
    lead, chunks = program.cut_first[cut].astype(np.int64), program.cut_chunks[cut].astype(np.int64)
    total: I64 = lead * of_chunk[:, 0] + (chunks - lead) * of_chunk[:, 1]
    return total


def _by_server(program: Program, server: I64, value: I64) -> I64:
    total = np.zeros(program.n_servers, np.int64)
    np.add.at(total, server, value)
    return total


def by_key(key: I32, value: I32, lag: I32 | None, n_tasks: int) -> tuple[I32, I32, I32]:
    """Edges in CSR order of `key`: pointers (none where there is no edge), values, lags (none where all are 0)."""
    if key.size == 0:
        return i32([]), i32([]), i32([])
    if key.size >= 2**31:
        raise WeftError(f"{key.size} dependencies are too many: at most 2147483647")
    ptr = np.zeros(n_tasks + 1, np.int32)
    np.cumsum(np.bincount(key, minlength=n_tasks), out=ptr[1:])
    if np.all(key[1:] >= key[:-1]):
        order: slice | I64 = slice(None)
    else:
        order = np.argsort(key, kind="stable")
    return ptr, i32(value[order]), i32(lag[order] if lag is not None and np.any(lag) else [])
