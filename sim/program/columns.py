"""Rows of integers: distinct ones, and lists of them in CSR form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program.contract import I32, I64
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
