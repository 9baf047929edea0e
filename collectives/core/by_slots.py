"""A table of transfers laid out slot by slot, without sorting: where every rank has every slot, as in a ring.

Each column is written once, at the places that slots and ranks have in it. What is added together may say much in few
numbers: one destination for each rank, one step for each slot.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.core.paths import distinct_of

MOST_RUNS = 64
"""Limit on the runs of slots in which all transfers wait for as many others."""

FEW_ROWS = 2**16
"""Rows whose offsets stay in the cache between two steps of theirs."""

WHOLE, STREAM = -1, 0
"""Lag of a dependency on an entire transfer, and chunk by chunk; w >= 1 is a window of w chunks. No other is known."""

Array = npt.NDArray[Any]


class Added(NamedTuple):
    """Transfers that were added together, and their columns as `Transfers` has them."""

    shape: tuple[int, ...]  # slots, ranks; of what is repeated, before them how many times
    n: int
    there: npt.NDArray[np.bool_] | None  # (slots, ranks): which of them there are; None for all
    columns: list[Array]  # (n,), or where all are there, whatever broadcasts to the shape


class Wait(NamedTuple):
    """What transfers that were added together wait for; a slot of -1 means nothing."""

    added: int  # place of these in the table
    source: Array  # broadcasts to their shape, or of a join to (transfers waited for, ranks)
    slot: Array
    lag: int


class _Part(NamedTuple):
    """What some slots wait for."""

    place: Array  # (slots,): of the slots, in their order
    at: Array  # (slots,): how many others they wait for before
    columns: list[Array]  # source, slot and lag, each broadcasts to (slots, ranks, transfers waited for)


def by_slots(ranks: Array, added: Sequence[Added], waits: Sequence[Wait]) -> list[Array] | None:
    """The columns up to `dep_lag`, ordered by slot and source; None where ranks differ in what they send or wait for.

    A column whose values are all alike takes no room.

    `ranks`: the sources.
    """
    places = places_of(ranks, added)
    n_slots = sum(place.size for place in places or ())
    lists = None if places is None else _waited_for(places, added, waits, n_slots)
    if places is None or lists is None:
        return None
    columns: list[Array] = []
    for at in range(8):  # steps and ties may be in the order of slots
        as_slots = at in (3, 7) and all(np.array_equal(one.columns[at], one.columns[2]) for one in added)
        columns.append(columns[2] if as_slots else _column(at, places, added, n_slots))
    return columns + lists


def places_of(ranks: Array, added: Sequence[Added]) -> list[Array] | None:
    """The places of the slots added together in the order of all; None where ranks differ in what they send."""
    if any(len(one.shape) > 2 for one in added):
        return None
    slots = [of for one in added if (of := of_slots(one.columns[2], one)) is not None]
    if len(slots) < len(added) or np.any(ranks[1:] <= ranks[:-1]):
        return None
    slot: Array = np.concatenate(slots)
    order = np.argsort(slot, kind="stable")
    if np.any(slot[order[1:]] == slot[order[:-1]]):
        return None
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return np.split(place, np.cumsum([one.shape[0] for one in added])[:-1])


def of_slots(column: Array, one: Added) -> Array | None:
    """The value of each slot; None where it depends on the rank, or some ranks have no such slot."""
    if one.there is not None or (column.ndim and column.shape[-1] > 1):
        return None
    return np.broadcast_to(column.reshape(-1), one.shape[0])


def _column(at: int, places: Sequence[Array], added: Sequence[Added], n_slots: int) -> Array:
    columns, p = [one.columns[at] for one in added], added[0].shape[1]
    each = [of_slots(column, one) for column, one in zip(columns, added, strict=True)]
    by_rank = any(of_slot is None for of_slot in each)
    found: Array = np.empty(n_slots * p if by_rank else n_slots, columns[0].dtype)
    for place, column in zip(places, columns if by_rank else each, strict=True):
        (found.reshape(n_slots, p) if by_rank else found)[_as_slice(place)] = column
    if by_rank:
        return found
    if np.all(found == found[0]):
        return np.broadcast_to(found[:1], n_slots * p)
    every: Array = np.empty(n_slots * p, found.dtype)
    every.reshape(n_slots, p)[:] = found[:, None]
    return every


def _waited_for(
    places: Sequence[Array], added: Sequence[Added], waits: Sequence[Wait], n_slots: int
) -> list[Array] | None:
    """Offsets, sources, slots and lags of what is waited for; None where ranks wait for different numbers."""
    width, parts = np.zeros(n_slots, np.int64), list[_Part]()
    for wait in waits:
        part = _part(wait, added[wait.added], places[wait.added], width)
        if part is None:
            return None
        width[part.place] += part.columns[0].shape[2]
        parts.append(part)
    runs = [0, *(np.flatnonzero(np.diff(width)) + 1).tolist(), n_slots]
    if len(runs) > MOST_RUNS:
        return None
    p, lags = added[0].shape[1], {wait.lag for wait in waits}
    begin = np.concatenate(([0], np.cumsum(width))) * p
    ptr = np.zeros(n_slots * p + 1, np.int32 if begin[-1] < 2**31 else np.int64)
    found: list[Array] = [np.empty(begin[-1], np.int32) for _ in range(2 + (len(lags) > 1))]
    many = np.arange(min(FEW_ROWS, n_slots * p), dtype=ptr.dtype)
    for first, last in pairwise(runs):
        each, of_run = int(width[first]), ptr[first * p + 1 : last * p + 1]
        for row in range(0, of_run.size, FEW_ROWS):
            some = of_run[row : row + FEW_ROWS]
            np.multiply(many[: some.size], each, out=some)
            np.add(some, int(begin[first]) + (row + 1) * each, out=some)
        blocks = [one[begin[first] : begin[last]].reshape(last - first, p, width[first]) for one in found]
        for part in parts:
            _fill(blocks, part, first, last)
    return [ptr, *found] if len(lags) > 1 else [ptr, *found, np.broadcast_to(np.int32(min(lags, default=0)), begin[-1])]


def _part(wait: Wait, one: Added, place: Array, width: Array) -> _Part | None:
    n_slots, p = one.shape
    shape = np.broadcast_shapes(wait.source.shape, wait.slot.shape, (1, p))
    there = wait.slot >= 0
    of_join = n_slots == 1 and shape[0] > 1
    if not there.all() and (of_join or (there.any() and there.ndim and there.shape[-1] > 1)):
        return None
    rows = np.flatnonzero(np.broadcast_to(there.reshape(-1)[:: 1 if there.size == n_slots else there.size], n_slots))
    columns = [np.atleast_2d(column) for column in (wait.source, wait.slot, np.int32(wait.lag))]
    if of_join:
        return _Part(place, width[place], [np.broadcast_to(column, shape).T[None] for column in columns])
    some = [column[rows] if rows.size < len(column) == n_slots else column for column in columns]
    return _Part(place[rows], width[place[rows]], [column[:, :, None] for column in some])


def _fill(blocks: Sequence[Array], part: _Part, first: int, last: int) -> None:
    """Write what slots of a run wait for: blocks of (slots, ranks, transfers waited for)."""
    here = (part.place >= first) & (part.place < last)
    for at in distinct_of(part.at[here]).tolist() if here.any() else ():
        mine = np.flatnonzero(here & (part.at == at))
        for block, column in zip(blocks, part.columns, strict=False):
            some = column if mine.size == part.place.size or len(column) == 1 else column[mine]
            block[:, :, at : at + some.shape[2]][_as_slice(part.place[mine] - first)] = some


def _as_slice(places: Array) -> slice | Array:
    """The same places, without copies where they are as far from each other."""
    step = int(places[1] - places[0]) if places.size > 1 else 1
    even = places.size > 0 and step > 0 and np.all(np.diff(places) == step)
    return slice(int(places[0]), int(places[-1]) + 1, step) if even else places
