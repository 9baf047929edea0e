"""Transfers in columns, and the table that a generator fills.

A transfer is identified by (source rank, slot), its position among the transfers of its source. A generator gives
transfers that look alike from every rank the same slot, so that those of a few representative ranks describe all of
them, and it can emit the transfers of any subset of ranks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.by_slots import STREAM, WHOLE, Added, Array, Wait, by_slots
from collectives.core.laid import lays
from topologies.checks import Choice, Count, WeftError, checked, told
from topologies.core.dealt import STREAM as THERE
from topologies.core.dealt import dealt
from topologies.core.extents import memory_limit, shown_limit
from topologies.text.brief import one_line
from topologies.units import counted, format_size

IntLike = int | npt.NDArray[np.integer]
Ref = tuple[IntLike, IntLike]
"""Transfers waited for, as (source rank, slot); a slot of -1 means none."""

BYTES_PER_ROW = 170
"""Peak while a table is filled and sorted: tracemalloc on a ring, 200 thousand and 800 thousand transfers of a rank."""


@checked
@one_line
class Transfers(NamedTuple):
    """One row per transfer, n rows, ordered by (slot, source).

    Attributes
    ----------
    src, dst : (n,) int32
        Ranks (or switches that reduce).
    slot : (n,) int32
    step, port : (n,) int32
        Position inside the algorithm, for messages and figures.
    blocks : (n,) int64
        Number of blocks carried.
    reduces : (n,) bool
        Whether the receiver adds what arrives to what it has, or stores it as is.
    tie_class : (n,) int64
        Order among ties at a server: the same for transfers that look alike, whatever their ranks.
    dep_ptr : (n+1,) int64
        Dependencies of row i are `dep_ptr[i]:dep_ptr[i+1]`.
    dep_src, dep_slot, dep_lag : int32
        Transfers waited for; see `WHOLE`.
    via_ptr, via_links : (n+1,) int64 and int32, or None
        Row i crosses the links `via_links[via_ptr[i]:via_ptr[i+1]]` in order; if empty, or if the table
        lacks this column, the topology chooses the route.
    pool : (n, 3) int32 or None
        Pool of the source from which a transfer takes a unit before it starts, pool of the source to which it returns
        one when delivered (-1: none), and its priority in the pool's queue, least first.
    rounds : (n, 2) int32 or None
        Chunks of a transfer whatever the model says (0: as the model cuts), and how often each counts the latency of
        its route (at least 1): for rounds that it stands for, and for acknowledgements. Only for algorithms of weft
        that prove their rounds.
    """

    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    slot: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    port: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.int64]
    reduces: npt.NDArray[np.bool_]
    tie_class: npt.NDArray[np.int64]
    dep_ptr: npt.NDArray[np.int64]
    dep_src: npt.NDArray[np.int32]
    dep_slot: npt.NDArray[np.int32]
    dep_lag: npt.NDArray[np.int32]
    via_ptr: npt.NDArray[np.int64] | None = None
    via_links: npt.NDArray[np.int32] | None = None
    pool: npt.NDArray[np.int32] | None = None
    rounds: npt.NDArray[np.int32] | None = None


@checked
class Pool(NamedTuple):
    """A per-rank pool: a number of units, granted in order of request or of `pool`."""

    capacity: Count
    discipline: Annotated[str, Choice(("fifo", "priority"))] = "fifo"
    name: str = ""  # in a job, pools of the same name are shared by all collectives of a rank


_KINDS = (np.int32, np.int32, np.int32, np.int32, np.int32, np.int64, np.bool_, np.int64)
"""Types of the first columns of `Transfers`."""


class TooManyTransfers(WeftError):
    """A table that would not fit in memory; whoever knows its algorithm names it."""


_MOST: ContextVar[int] = ContextVar("most transfers of a table", default=0)


@contextmanager
def rows_at_most(most: int) -> Iterator[None]:
    """Within it a table of more transfers raises `TooManyTransfers`, before it has them."""
    before = _MOST.set(most)
    try:
        yield
    finally:
        _MOST.reset(before)


_LAID_OUT: ContextVar[bool] = ContextVar("whether tables of any size are laid out slot by slot", default=False)


@contextmanager
def laid_out() -> Iterator[None]:
    """Within it tables of any size are laid out slot by slot where those of many would be: their offsets are int32."""
    before = _LAID_OUT.set(True)
    try:
        yield
    finally:
        _LAID_OUT.reset(before)


Mark = tuple[int, int, int]
"""How many rows, dependencies and slots of pools were added."""

MANY = 2**18
"""Transfers from which on a table is laid out slot by slot, where it can be."""


@checked
class TransferTable:
    """Collects transfers, many at a time.

    Every argument of `add` may be a number or an array that broadcasts to (slots, ranks).

    Parameters
    ----------
    ranks : (n_ranks,) int
        The sources whose transfers to emit.
    """

    def __init__(self, ranks: npt.NDArray[np.integer]) -> None:
        self.ranks = np.asarray(ranks, np.int64)
        self._n_rows = 0
        self._added: list[Added] = []
        self._waits: list[Wait] = []
        self._pooled: list[tuple[int, int, int, int]] = []

    def __repr__(self) -> str:
        return f"<table of {self._n_rows} transfers among {self.ranks.size} ranks>"

    def add(
        self, slot: IntLike, dst: IntLike, blocks: IntLike = 1, *, step: IntLike = 0, port: IntLike = 0,
        reduces: bool | npt.NDArray[np.bool_] = False, tie_class: IntLike | None = None, after: Sequence[Ref] = (),
        stream: Sequence[Ref] = (), window: Sequence[tuple[IntLike, IntLike, int]] = (),
    ) -> None:
        """Add the transfer `slot` of each rank.

        Parameters
        ----------
        slot : int or (slots, 1)
        dst : int or (slots, ranks)
            Receiver; -1 if a rank has no such transfer.
        blocks : int or array
            Blocks carried.
        step, port : int or array
        reduces : bool or array
            Whether the receiver adds.
        tie_class : int or array
            Default: the slot.
        after, stream : sequence of (rank, slot)
            Transfers waited for, entirely and chunk by chunk.
        window : sequence of (rank, slot, w)
            Chunk j waits for chunk j - w.
        """
        shape = np.broadcast(slot, dst, self.ranks[None]).shape
        there = _broad(np.asarray(dst) >= 0, shape)
        columns = (self.ranks, dst, slot, step, port, blocks, reduces, slot if tie_class is None else tie_class)
        n = int(np.count_nonzero(there))
        self._check_memory(self._n_rows + n)
        some = None if n == there.size else there
        kept = [_chosen(column, kind, some, n) for column, kind in zip(columns, _KINDS, strict=True)]
        self._added.append(Added(shape, n, some, kept))
        self._n_rows += n
        of_lags = [*((*ref, WHOLE) for ref in after), *((*ref, STREAM) for ref in stream), *window]
        for rank, other, lag in of_lags:
            self._wait(rank, other, lag)

    def join(
        self, slot: int, rank: IntLike, other: IntLike, *, step: int = 0, port: int = 0, takes: int = -1,
        gives: int = -1, order: int = 0,
    ) -> None:
        """Add an empty transfer from each rank to itself, which takes no time and waits for many at once.

        If m transfers wait for the same n, a join turns m x n dependencies into m + n.

        Parameters
        ----------
        slot : int
        rank, other : int or (n, ranks)
            Source and slot of each transfer waited for; a slot of -1 means none.
        step, port : int
        takes, gives : int
            Pool of the rank from which the join takes a unit, and the pool to which it returns one.
        order : int
            Priority in the queue of a pool that serves by priority; least first.
        """
        self.add(slot, self.ranks, 0, step=step, port=port)
        if takes >= 0 or gives >= 0:
            self._pooled.append((slot, takes, gives, order))
        self._wait(rank, other, WHOLE)

    def _check_memory(self, n_rows: int) -> None:
        need = n_rows * BYTES_PER_ROW
        if n_rows > (_MOST.get() or n_rows):
            raise TooManyTransfers("more than were asked for")
        if need > memory_limit():
            raise TooManyTransfers(
                f"at least {counted(n_rows, 'transfer')} of {counted(self.ranks.size, 'rank')} take about "
                f"{format_size(need)} of memory; {shown_limit()}. Use a smaller fabric, or an algorithm with fewer "
                "transfers"
            )

    def _wait(self, rank: IntLike, other: IntLike, lag: int) -> None:
        """Let what was added last wait for transfers, where they are there (slot not -1)."""
        source, slot = (_chosen(column, np.int32, None, 0) for column in (rank, other))
        self._waits.append(Wait(len(self._added) - 1, source, slot, lag))

    def build(self) -> Transfers:
        """The transfers, sorted by (slot, source)."""
        if lays(self.ranks, self._added, self._waits, not self._pooled):
            return UNBUILT
        many = self._n_rows > MANY * (not _LAID_OUT.get())
        if many and (found := by_slots(self.ranks, self._added, self._waits)) is not None:
            return Transfers(*found, None, None, self._pools(found[2]))  # type: ignore[call-arg]  # in their order
        src, slot = self._column(0), self._column(2)
        stride = int(src.max(initial=0)) + 1
        order = np.argsort(slot.astype(np.int64) * stride + src, kind="stable")  # sorted runs: 28 times as fast
        slot = slot[order]
        columns = [src[order], self._column(1)[order], slot, *(self._column(place)[order] for place in range(3, 8))]
        lists = self._dependencies(order)
        return Transfers(*columns, *lists, None, None, self._pools(slot))  # type: ignore[call-arg]  # in their order

    def _column(self, place: int) -> Array:
        found, at = np.empty(self._n_rows, _KINDS[place]), 0
        for one in self._added:
            mine = found[at : (at := at + one.n)]
            (mine if one.there is not None else mine.reshape(one.shape))[...] = one.columns[place]
        return found

    def _dependencies(self, order: npt.NDArray[np.int64]) -> list[Array]:
        """Offsets of the dependencies of each row, and their sources, slots and lags."""
        place = np.empty(order.size, np.int32)
        place[order] = np.arange(order.size)
        places = np.split(place, np.cumsum([one.n for one in self._added])[:-1])
        lags = {wait.lag for wait in self._waits}
        waits = [_waiting(wait, self._added[wait.added], places[wait.added]) for wait in self._waits]
        shapes, begin = [np.broadcast(*one).shape for one in waits], 0
        owner, source, slot, *lag = found = [
            np.empty(sum(map(prod, shapes)), np.int32) for _ in range(3 + (len(lags) > 1))
        ]
        for shape, columns in zip(shapes, waits, strict=True):
            end = begin + prod(shape)
            for column, values in zip(found, columns, strict=False):
                column[begin:end].reshape(shape)[...] = values
            begin = end
        ptr, *lists = dealt(owner, source, slot, THERE, order.size)  # slots below 0, as lags, are not meant
        one_lag = np.broadcast_to(np.int32(min(lags, default=0)), lists[0].size)
        return [ptr.astype(np.int64), *lists, dealt(owner, lag[0], slot, THERE, order.size)[1] if lag else one_lag]

    def _pools(self, slot: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
        if not self._pooled:
            return None
        by_slot = np.tile(np.array([-1, -1, 0], np.int32), (int(slot.max(initial=-1)) + 1, 1))
        for at, *columns in self._pooled:
            by_slot[at] = columns
        return by_slot.take(slot, axis=0)  # in a quarter of the time of an index


UNBUILT = TransferTable(np.zeros(0, np.int64)).build()
"""What stands for a table that is laid out alone; see `collectives.core.laid.unbuilt`."""


def mark(table: TransferTable) -> Mark:
    """What there is in a table by now, for `repeat`."""
    return len(table._added), len(table._waits), len(table._pooled)


def repeat(table: TransferTable, begin: Mark, end: Mark, later: npt.NDArray[np.int64]) -> None:
    """Add what was added between two marks, in slots behind each other, once for each of some numbers of slots later.

    What it waits for comes as much later, but for slot 0. Ties go by slots.
    """
    by, again = len(table._added) - begin[0], table._added[begin[0] : end[0]]
    n, more = sum(one.n for one in again), later.astype(np.int32)[:, None, None]
    table._check_memory(table._n_rows + n * later.size)
    for one in again:
        shape, columns = (later.size, *one.shape), list(one.columns)
        if one.there is not None:  # one after the other, as they are there
            columns = [np.broadcast_to(column, (later.size, 1, one.n)) for column in columns]
        columns[2], columns[7] = columns[2] + more, columns[7] + later[:, None, None]
        if one.there is not None:
            columns = [column.reshape(-1) for column in columns]
        there = None if one.there is None else np.broadcast_to(one.there, shape)
        table._added.append(Added(shape, one.n * later.size, there, columns))
    for wait in table._waits[begin[1] : end[1]]:
        slot = np.where(wait.slot > 0, wait.slot + more, wait.slot)
        table._waits.append(wait._replace(added=wait.added + by, slot=slot))
    for one in later.tolist():
        table._pooled += [(slot + one, *columns) for slot, *columns in table._pooled[begin[2] : end[2]]]
    table._n_rows += n * later.size


def _waiting(wait: Wait, one: Added, place: Array) -> tuple[Array, ...]:
    """The rows that wait, and of what they wait for the sources, slots (-1 where no row is there) and lag."""
    lag = np.array(wait.lag, np.int32)
    if one.there is None:
        return place.reshape(one.shape), wait.source, wait.slot, lag
    rows = np.zeros(one.shape, np.int32)
    rows[one.there] = place
    return rows, wait.source, np.where(one.there, wait.slot, np.int32(-1)), lag


def _chosen(column: Any, kind: type[np.generic], where: npt.NDArray[np.bool_] | None, n: int) -> Array:
    """A copy of a column, scalar or broadcast: as it is, or at the `n` selected places."""
    values = np.asarray(column)
    if values.dtype.kind not in "biu":
        raise WeftError(f"transfers have {told(column)}: give integers, one or an array of them")
    values = values.astype(kind)
    if where is None:
        return values
    return np.full(n, values, kind) if values.ndim == 0 else _broad(values, where.shape)[where]


def _broad(values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """`np.broadcast_to`, which takes 10 us, only where an axis in front is not all that is missing."""
    if shape == (1, *values.shape):
        return values[None]
    return values if values.shape == shape else np.broadcast_to(values, shape)


def take(t: Transfers, rows: npt.NDArray[np.integer]) -> Transfers:
    """A subset of the rows of a table, with their dependencies and routes."""
    ptr, at = _gather(t.dep_ptr, rows)
    columns = {name: getattr(t, name)[rows] for name in Transfers._fields[:8]}
    taken = t._replace(**columns, dep_ptr=ptr, dep_src=t.dep_src[at], dep_slot=t.dep_slot[at], dep_lag=t.dep_lag[at])
    if t.pool is not None:
        taken = taken._replace(pool=t.pool[rows])
    if t.rounds is not None:
        taken = taken._replace(rounds=t.rounds[rows])
    if t.via_ptr is None or t.via_links is None:
        return taken
    ptr, at = _gather(t.via_ptr, rows)
    return taken._replace(via_ptr=ptr, via_links=t.via_links[at])


Runs = tuple[npt.NDArray[Any], npt.NDArray[np.integer] | int]
"""Values, and how many rows each is of: all as many, or one number for each."""


class Again:
    """A table too large to be kept beside a run, emitted again if asked: but for columns of long runs, or of one value.

    `runs`: columns by their runs.
    `columns`: those that are kept, and those that it lacks.
    """

    def __init__(
        self, emit: Callable[[], Transfers], runs: Mapping[str, Runs],
        columns: Mapping[str, npt.NDArray[Any] | None] = Transfers._field_defaults,
    ) -> None:
        self._emit, self.runs = emit, runs
        vars(self).update(columns)

    @classmethod
    def of(cls, t: Transfers, emit: Callable[[], Transfers]) -> "Again":
        """Of a table that is there."""
        runs = {"step": runs_of(t, "step")}
        return cls(emit, runs, {name: one for name, one in t._asdict().items() if one is None or one.strides == (0,)})

    def __getattr__(self, column: str) -> Any:
        if column not in Transfers._fields:
            raise AttributeError(column)
        return np.repeat(*self.runs[column]) if column in self.runs else getattr(self._all, column)

    @cached_property
    def _all(self) -> Transfers:
        return self._emit()


def runs_of(t: "Transfers | Again", column: str) -> Runs:
    """The runs of equal values in a column."""
    if isinstance(t, Again) and column in t.runs:
        return t.runs[column]
    values = getattr(t, column)
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: values.size])
    return values[begins], np.diff(begins, append=values.size)


def without_waits(t: Transfers) -> Transfers:
    """The same transfers, without what they wait for and the order of ties."""
    none, ptr = np.zeros(0, np.int32), np.broadcast_to(np.int64(0), t.src.size + 1)
    return t._replace(tie_class=ptr[1:], dep_ptr=ptr, dep_src=none, dep_slot=none, dep_lag=none)


def sources_only(table: Transfers, ranks: npt.NDArray[np.integer]) -> Transfers:
    """The transfers of some sources."""
    return take(table, np.flatnonzero(np.isin(table.src, ranks)))


def _gather(
    ptr: npt.NDArray[np.int64], rows: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """New offsets of a subset of rows of a CSR table, and the positions of their items in the old one."""
    counts = np.diff(ptr)[rows]
    fresh: npt.NDArray[np.int64] = np.concatenate(([0], np.cumsum(counts)))
    return fresh, np.repeat(ptr[rows] - fresh[:-1], counts) + np.arange(fresh[-1])


Parents = frozenset[int]
"""Rows that a transfer waits for."""


def parents_of(t: Transfers) -> list[Parents]:
    """The rows that each row waits for, entirely or chunk by chunk; a join among them stands for what it waits for.

    Windows are left out: they hold back later chunks.
    """
    row_of = {pair: row for row, pair in enumerate(zip(t.src.tolist(), t.slot.tolist(), strict=True))}
    is_join = (t.src == t.dst).tolist()
    waits = list(zip(t.dep_src.tolist(), t.dep_slot.tolist(), t.dep_lag.tolist(), strict=True))
    direct = [
        [row_of[source, slot] for source, slot, lag in waits[int(t.dep_ptr[row]) : int(t.dep_ptr[row + 1])] if lag <= 0]
        for row in range(t.src.size)
    ]
    found: dict[int, Parents] = {}
    for row in range(t.src.size):
        open_ = [row]
        while open_:
            joins = [one for one in direct[open_[-1]] if is_join[one] and one not in found]
            if joins:
                open_ += joins
                continue
            one = open_.pop()
            found[one] = frozenset().union(*(found[parent] if is_join[parent] else {parent} for parent in direct[one]))
    return [found[row] for row in range(t.src.size)]
