"""The transfers of many sources, emitted and packed part by part: no table of all of them is there twice."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.transfers import Transfers
from topologies.core.paths import ranges

PART, MOST_PARTS, MOST_CUTS = 2**18, 64, 64
"""Transfers that are emitted at a time; limits on the parts, and on the runs of slots of which all have as many."""

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
    slots = [part["slot"] for part in parts]
    n_slots = max(int(slot.max(initial=-1)) for slot in slots) + 1
    counts = np.array([np.bincount(slot, minlength=n_slots) for slot in slots])
    merged = {name: _joined(parts, name, counts) for name in _ROWS}
    for ptr, items in _LISTS.items():
        lengths = [part[ptr] for part in parts if ptr in part]
        total = _joined(parts, ptr, counts)
        if total is None:
            continue
        merged[ptr] = _pointers(total)
        of_slots = [np.bincount(slot, length, n_slots) for slot, length in zip(slots, lengths, strict=True)]
        for name in items:
            merged[name] = _joined(parts, name, np.array(of_slots, np.int64))
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


def _joined(parts: Sequence[dict[str, Column]], name: str, counts: npt.NDArray[np.int64]) -> Column | None:
    """A column of all parts, which lose it, by slots, and in a slot by parts.

    `counts`: (parts, slots), values that each part has of each slot. Slots that follow each other and have equal counts
    are copied together.
    """
    values = [part.pop(name) for part in parts if name in part]
    if not values:
        return None
    some = [one for one in values if one.size]
    if some and all(one.strides == (0,) and one[0] == some[0][0] for one in some):
        return np.broadcast_to(some[0][:1], (sum(len(one) for one in values),)).view()
    of_slot = counts.sum(axis=0)
    begin, end = np.cumsum(of_slot) - of_slot, np.cumsum(counts, axis=1)
    found = np.empty((int(of_slot.sum()), *values[0].shape[1:]), np.result_type(*values))
    cuts = np.flatnonzero(np.append(True, np.any(counts[:, 1:] != counts[:, :-1], axis=0)))
    before = np.zeros_like(of_slot)
    for count, ends, one in zip(counts, end, values, strict=True):
        if cuts.size > MOST_CUTS:
            found[ranges(begin + before, count)] = one
        for first, last in pairwise([*cuts.tolist(), of_slot.size] if cuts.size <= MOST_CUTS else []):
            width, at = count[first], before[first]
            block = found[begin[first] : begin[last - 1] + of_slot[last - 1]]
            mine = one[ends[first] - width : ends[last - 1]]
            columns = last - first, -1, *found.shape[1:]
            if width:
                block.reshape(columns)[:, at : at + width] = mine.reshape(columns)
        before += count
    return found


def _pointers(lengths: Column) -> Column:
    """Offsets of lists of these lengths."""
    total = int(lengths.sum(dtype=np.int64))
    ptr: Column = np.zeros(lengths.size + 1, np.int32 if total < 2**31 else np.int64)
    np.cumsum(lengths, out=ptr[1:])
    return ptr
