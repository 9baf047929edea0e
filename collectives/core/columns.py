"""What each column of a table of transfers may hold: whatever a generator emits is read here, or refused.

A value outside its contract would not be wrong alone: a lag that no engine knows is waited for by none, and a count of
latencies below one takes them away. What is read has the types of the contract, so that nothing overflows later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.proof import ScheduleError
from collectives.core.transfers import WHOLE, Transfers
from topologies import Topology
from topologies.checks import INT64, MOST_COUNT, told

MOST_TIE = 2**61 - 1
"""Limit on the class of a tie: a transfer that is split has two."""


class Accepted(NamedTuple):
    """What is accepted of a pattern's transfers, beyond what holds for all."""

    n_sources: int
    n_pools: int
    has_rounds: bool  # whether they may stand for rounds; the general proof takes them for one transfer


class _Column(NamedTuple):
    kind: type[np.generic]
    width: int  # columns of it; 0 for one without a second dimension
    least: int
    most: int
    of: str  # what its rows are of: "" transfers, or the offsets that belong to them


_ANY = _Column(np.int32, 0, 0, MOST_COUNT, "")
_OFFSETS = _Column(np.int64, 0, 0, INT64, "")
COLUMNS = {
    "src": _ANY, "dst": _ANY, "slot": _ANY, "step": _ANY, "port": _ANY,
    "blocks": _ANY._replace(kind=np.int64),
    "reduces": _ANY._replace(kind=np.bool_),
    "tie_class": _Column(np.int64, 0, -MOST_TIE, MOST_TIE, ""),
    "dep_ptr": _OFFSETS, "dep_src": _ANY._replace(of="dep_ptr"), "dep_slot": _ANY._replace(of="dep_ptr"),
    "dep_lag": _Column(np.int32, 0, WHOLE, MOST_COUNT, "dep_ptr"),
    "via_ptr": _OFFSETS, "via_links": _ANY._replace(least=-MOST_COUNT, of="via_ptr"),  # by `check_named_links`
    "pool": _Column(np.int32, 3, -MOST_COUNT, MOST_COUNT, ""),
    "rounds": _Column(np.int32, 2, 0, MOST_COUNT, ""),
}
"""Of every column its type, shape and range; `read_columns` narrows the ranges to the topology."""


def read_columns(t: Transfers, topology: Topology, accepted: Accepted, name: str) -> Transfers:
    """The table with columns of the types of the contract; all values are what they were.

    `name`: of the algorithm, for messages.
    ScheduleError: what is no table; columns of another type or of unequal length; a value out of range, with the
        transfer and the column; rows that are not in the order of slots and sources, or twice there.
    """
    if not isinstance(t, Transfers):
        raise ScheduleError(f"{name} emits {told(t)}: give Transfers")
    columns = {column: _read(column, values, name) for column, values in t._asdict().items()}
    t = Transfers.__new__.__wrapped__(Transfers, **columns)  # type: ignore[attr-defined]  # types are those just read
    _check_lengths(t, name)
    if t.rounds is not None and not accepted.has_rounds:
        raise ScheduleError(f"{name} emits the column rounds: only algorithms of weft that prove their rounds may")
    for column, values in columns.items():
        if values is not None and values.dtype != np.bool_:
            _check_range(t, column, topology, accepted, name)
    _check_order(t, name)
    return t


def _read(column: str, values: Any, name: str) -> npt.NDArray[Any] | None:
    rule = COLUMNS[column]
    if values is None and column in Transfers._field_defaults:
        return None
    letters, called = ("b", "truth values") if rule.kind is np.bool_ else ("iu", "integers")
    if not isinstance(values, np.ndarray) or values.dtype.kind not in letters:
        given = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else told(values)
        raise ScheduleError(f"{name} emits {given} as the column {column}: give an array of {called}")
    if values.shape[1:] != (() if not rule.width else (rule.width,)) or not values.ndim:
        wanted = f"(n, {rule.width})" if rule.width else "(n,)"
        raise ScheduleError(f"{name} emits the column {column} with the shape {values.shape}: give {wanted}")
    found: npt.NDArray[Any] = np.asarray(values)  # of a subclass, the array itself
    as_ruled = found.astype(rule.kind, copy=False)
    return as_ruled if np.array_equal(as_ruled, found) else found  # out of range, which is told with its transfer


def _check_lengths(t: Transfers, name: str) -> None:
    n = t.src.size
    wrong = [one for one, rule in COLUMNS.items() if not rule.of and rule is not _OFFSETS
             and (values := getattr(t, one)) is not None and len(values) != n]
    for ptr, items in (("dep_ptr", ("dep_src", "dep_slot", "dep_lag")), ("via_ptr", ("via_links",))):
        offsets, lists = getattr(t, ptr), [getattr(t, one) for one in items]
        if offsets is None and lists == [None]:
            continue
        if offsets is None or lists[0] is None or not _is_csr(offsets, n, len(lists[0])) or (
            len({len(one) for one in lists}) > 1
        ):
            wrong.append(ptr)
    if wrong:
        raise ScheduleError(f"{name} emits columns of unequal length: {wrong[0]}")


def _check_range(t: Transfers, column: str, topology: Topology, accepted: Accepted, name: str) -> None:
    rule, values = COLUMNS[column], getattr(t, column)
    least: npt.ArrayLike = rule.least
    most: npt.ArrayLike = {
        "src": accepted.n_sources - 1, "dep_src": accepted.n_sources - 1, "dst": topology.n_nodes - 1,
    }.get(column, rule.most)
    if column == "pool":
        least, most = np.array([-1, -1, rule.least]), np.array([accepted.n_pools - 1] * 2 + [rule.most])
    if column == "rounds":
        least = np.array([0, 1])
    if not values.size or (np.all(values.min(axis=0) >= least) and np.all(values.max(axis=0) <= most)):
        return
    place = np.unravel_index(int(np.argmax((values < least) | (values > most))), values.shape)
    low, high = (int(np.broadcast_to(one, values.shape)[place]) for one in (least, most))
    value, row = int(values[place]), int(place[0])
    if rule.of:
        row = int(np.searchsorted(getattr(t, rule.of), row, side="right")) - 1
    if column == "src":
        raise ScheduleError(f"{name} emits a transfer of rank {value}, which was not asked for")
    if column == "dep_lag":
        what = f"is none of {WHOLE} (WHOLE), 0 (chunk by chunk) and windows of 1 to {MOST_COUNT} chunks"
    elif low == 0 and value < 0 and high == MOST_COUNT:
        what = "is negative"
    else:
        what = f"is not one of {low} to {high}"
    shown = f"{column} {values[row].tolist() if rule.width else value}"
    detail = f", of which {value}" if rule.width else ", which"
    raise ScheduleError(f"{name}: slot {t.slot[row]} of rank {t.src[row]} has {shown}{detail} {what}")


def _check_order(t: Transfers, name: str) -> None:
    rises = (t.slot[1:] > t.slot[:-1]) | ((t.slot[1:] == t.slot[:-1]) & (t.src[1:] > t.src[:-1]))
    if rises.all():
        return
    row = int(np.argmin(rises))
    both = [f"slot {t.slot[one]} of rank {t.src[one]}" for one in (row, row + 1)]
    if both[0] == both[1]:
        raise ScheduleError(f"{name}: {both[0]} appears twice")
    raise ScheduleError(f"{name} emits {both[1]} after {both[0]}: order transfers by slot, then by source")


def _is_csr(ptr: npt.NDArray[np.int64], n: int, items: int) -> bool:
    return len(ptr) == n + 1 and ptr[0] == 0 and ptr[-1] == items and bool(np.all(ptr[1:] >= ptr[:-1]))
