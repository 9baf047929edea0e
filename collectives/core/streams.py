"""The transfers of many sources, emitted and packed part by part: no table of all of them is there twice."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.transfers import Transfers
from topologies.core.paths import ranges

PART, MOST_PARTS = 2**18, 64
"""Transfers that are emitted at a time, and limit on the parts."""

_ROWS = (*Transfers._fields[:8], "pool", "rounds")
_LISTS = {"dep_ptr": ("dep_src", "dep_slot", "dep_lag"), "via_ptr": ("via_links",)}

Column = npt.NDArray[Any]


def emitted(emit: Callable[[npt.NDArray[np.integer]], Transfers], sources: npt.NDArray[np.integer]) -> Transfers:
    """The transfers of some sources, read-only.

    A column whose values are all alike takes no room, and what fits 31 bits takes no more, but for `blocks`.

    `sources`: ascending. The transfers of the last of them tell how many parts there are to be.
    """
    last = [emit(sources[-1:])]
    n_rows = sources.size * last[0].src.size
    n_parts = max(min(-(-n_rows // PART), MOST_PARTS, sources.size), 1)
    if n_rows <= PART:
        return last[0] if sources.size == 1 else emit(sources)
    if sources.size == 1:
        parts = [_packed(last.pop())]
    else:
        parts = [_packed(emit(some)) for some in np.array_split(sources, n_parts)]
    if any(part.keys() != parts[0].keys() for part in parts):  # some name links, others do not
        return emit(sources)
    n_slots = max(int(part["slot"].max(initial=-1)) for part in parts) + 1
    counts = np.array([np.bincount(part["slot"], minlength=n_slots) for part in parts])
    begins = (np.cumsum(counts.T) - counts.T.ravel()).reshape(n_slots, n_parts).T  # by slot, and in it by part
    places = [ranges(begin, count).astype(np.int32) for begin, count in zip(begins, counts, strict=True)]
    merged = {name: _joined(parts, name, places) for name in _ROWS}
    for ptr, items in _LISTS.items():
        lengths = [part[ptr] for part in parts if ptr in part]
        total = _joined(parts, ptr, places)
        if total is None:
            continue
        merged[ptr] = first = _pointers(total)
        for name in items:
            at = (ranges(first[place].astype(np.int64), length) for place, length in zip(places, lengths, strict=True))
            merged[name] = _joined(parts, name, at)
    for column in merged.values():
        if column is not None:
            column.flags.writeable = False
    return Transfers(**merged)  # type: ignore[arg-type]  # the columns by their names


def _packed(t: Transfers) -> dict[str, Column]:
    """The columns that a table has; of lists their lengths, instead of pointers."""
    columns = {name: column for name, column in t._asdict().items() if column is not None}
    return {name: _thin(np.diff(column) if name in _LISTS else column, name != "blocks")
            for name, column in columns.items()}


def _thin(column: Column, narrow: bool) -> Column:
    """The column in less room: one value for all rows, or half as many bytes."""
    if column.size and column.ndim == 1 and (column == column[0]).all():
        return np.broadcast_to(column[:1].copy(), column.shape)
    fits = narrow and column.dtype == np.int64 and column.max(initial=0) < 2**30 and column.min(initial=0) >= -(2**30)
    return column.astype(np.int32) if fits else column


def _joined(parts: Sequence[dict[str, Column]], name: str, places: Iterable[npt.NDArray[np.integer]]) -> Column | None:
    """A column of all parts, which lose it: the values of each part at its places."""
    values = [part.pop(name) for part in parts if name in part]
    if not values:
        return None
    n = sum(len(one) for one in values)
    some = [one for one in values if one.size]
    if some and all(one.strides == (0,) and one[0] == some[0][0] for one in some):
        return np.broadcast_to(some[0][:1], (n,)).view()
    found = np.empty((n, *values[0].shape[1:]), np.result_type(*values))
    for place, one in zip(places, values, strict=True):
        found[place] = one
    return found


def _pointers(lengths: Column) -> Column:
    """Offsets of lists of these lengths."""
    total = int(lengths.sum(dtype=np.int64))
    ptr: Column = np.zeros(lengths.size + 1, np.int32 if total < 2**31 else np.int64)
    np.cumsum(lengths, out=ptr[1:])
    return ptr
