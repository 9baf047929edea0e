"""Transfers in columns, and the table that a generator fills.

A transfer is identified by (source rank, slot), its position among the transfers of its source. A generator gives
transfers that look alike from every rank the same slot, so that those of a few representative ranks describe all of
them, and it can emit the transfers of any subset of ranks.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import Choice, Count, WeftError, checked, told
from topologies.core.extents import memory_limit, shown_limit
from topologies.text.brief import one_line
from topologies.units import counted, format_size

IntLike = int | npt.NDArray[np.integer]
Ref = tuple[IntLike, IntLike]
"""Transfers waited for, as (source rank, slot); a slot of -1 means none."""

BYTES_PER_ROW = 170
"""Peak while a table is filled and sorted: tracemalloc on a ring, 200 thousand and 800 thousand transfers of a rank."""

WHOLE, STREAM = -1, 0
"""Lag of a dependency on an entire transfer, and chunk by chunk; w >= 1 is a window of w chunks. No other is known."""


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


Dependencies = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32] | int]
"""Rows, the source and slot that each waits for, and the lag."""

Mark = tuple[int, int, int, int]
"""How many rows, dependencies and slots of pools were added, and how many transfers."""


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
        self._rows: list[list[npt.NDArray[Any]]] = []
        self._dependencies: list[Dependencies] = []
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
        shape = np.broadcast_shapes(np.shape(slot), np.shape(dst), (1, self.ranks.size))
        src, dst = _broad(self.ranks, shape), _broad(np.asarray(dst), shape)
        there = dst >= 0
        columns = (src, dst, slot, step, port, blocks, reduces, slot if tie_class is None else tie_class)
        n = int(np.count_nonzero(there))
        self._check_memory(self._n_rows + n)
        self._rows.append([_chosen(column, kind, there, n) for column, kind in zip(columns, _KINDS, strict=True)])
        rows = np.full(shape, -1, np.int64)
        rows[there] = np.arange(self._n_rows, self._n_rows + n)
        self._n_rows += n
        for lag, refs in ((WHOLE, after), (0, stream)):
            for rank, other in refs:
                self._add_dependency(rows, rank, other, lag)
        for rank, other, w in window:
            self._add_dependency(rows, rank, other, w)

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
        shape = np.broadcast_shapes(np.shape(rank), np.shape(other), (1, self.ranks.size))
        mine = np.arange(self._n_rows - self.ranks.size, self._n_rows)
        self._add_dependency(np.broadcast_to(mine, shape), rank, other, WHOLE)

    def _check_memory(self, n_rows: int) -> None:
        need = n_rows * BYTES_PER_ROW
        if need > memory_limit():
            raise TooManyTransfers(
                f"at least {counted(n_rows, 'transfer')} of {counted(self.ranks.size, 'rank')} take about "
                f"{format_size(need)} of memory; {shown_limit()}. Use a smaller fabric, or an algorithm with fewer "
                "transfers"
            )

    def _add_dependency(self, rows: npt.NDArray[np.int64], rank: IntLike, other: IntLike, lag: int) -> None:
        """Add dependencies for rows that exist (not -1) on transfers that exist (slot not -1)."""
        some = (rows >= 0) & (np.asarray(other) >= 0)
        n = int(np.count_nonzero(some))
        if n:
            source, slots = (_chosen(column, np.int32, some, n) for column in (rank, other))
            self._dependencies.append((rows[some], source, slots, lag))

    def build(self) -> Transfers:
        """The transfers, sorted by (slot, source)."""
        src, slot = self._column(0), self._column(2)
        stride = int(src.max(initial=0)) + 1
        key = slot.astype(np.int64) * stride + src
        sort = bool(np.any(key[1:] < key[:-1]))
        order = np.argsort(key, kind="stable") if sort else np.arange(key.size)  # sorted runs: 28 times as fast
        ptr, at = self._owners(order)
        dep_src, dep_slot, dep_lag = (self._dependency(part)[at] for part in (1, 2, 3))
        columns = [self._column(place) for place in range(8)]
        src, dst, slot, step, port, blocks, reduces, tie = [one[order] for one in columns] if sort else columns
        return Transfers(
            src, dst, slot, step, port, blocks, reduces, tie, ptr, dep_src, dep_slot, dep_lag, pool=self._pools(slot)
        )

    def _column(self, place: int) -> npt.NDArray[Any]:
        return np.concatenate([np.zeros(0, _KINDS[place]), *(rows[place] for rows in self._rows)])

    def _dependency(self, part: int) -> npt.NDArray[np.int32]:
        """One column of the dependencies, in the order they were added."""
        columns = [np.broadcast_to(np.asarray(d[part], np.int32), d[0].shape) for d in self._dependencies]
        return np.concatenate([np.zeros(0, np.int32), *columns])

    def _owners(self, order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Offsets of the dependencies of each row, and their positions in insertion order."""
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size)
        owner = place[np.concatenate([np.zeros(0, np.int64), *(rows for rows, *_ in self._dependencies)])]
        ptr = np.zeros(order.size + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=order.size), out=ptr[1:])
        return ptr, np.argsort(owner, kind="stable")

    def _pools(self, slot: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
        if not self._pooled:
            return None
        by_slot = np.tile(np.array([-1, -1, 0], np.int32), (int(slot.max(initial=-1)) + 1, 1))
        for at, *columns in self._pooled:
            by_slot[at] = columns
        return by_slot[slot]


def mark(table: TransferTable) -> Mark:
    """What there is in a table by now, for `repeat`."""
    return len(table._rows), len(table._dependencies), len(table._pooled), table._n_rows


def repeat(table: TransferTable, begin: Mark, end: Mark, later: npt.NDArray[np.int64]) -> None:
    """Add what was added between two marks, in slots behind each other, once for each of some numbers of slots later.

    What it waits for comes as much later, but for slot 0. Ties go by slots.
    """
    n, more = end[3] - begin[3], later[:, None]
    table._check_memory(table._n_rows + n * later.size)
    columns = [np.concatenate(parts) for parts in zip(*table._rows[begin[0] : end[0]], strict=True)]
    for place in (2, 7):
        columns[place] = (columns[place] + more).astype(columns[place].dtype)
    table._rows.append([np.broadcast_to(column, (later.size, n)).ravel() for column in columns])
    parts = table._dependencies[begin[1] : end[1]]
    rows, source, slots, lags = (
        np.concatenate([np.broadcast_to(part[place], part[0].shape) for part in parts]) for place in range(4)
    )
    by = table._n_rows - begin[3] + n * np.arange(later.size)[:, None]
    slots = np.where(slots > 0, slots + more, slots).astype(np.int32)
    sources, lags = (np.broadcast_to(column, slots.shape).ravel() for column in (source, lags))
    table._dependencies.append(((rows + by).ravel(), sources, slots.ravel(), lags))
    for one in later.tolist():
        table._pooled += [(slot + one, *columns) for slot, *columns in table._pooled[begin[2] : end[2]]]
    table._n_rows += n * later.size


def _chosen(column: Any, kind: type[np.generic], where: npt.NDArray[np.bool_], n: int) -> npt.NDArray[Any]:
    """A column, scalar or broadcast, at the `n` selected places."""
    values = np.asarray(column)
    if values.dtype.kind not in "biu":
        raise WeftError(f"transfers have {told(column)}: give integers, one or an array of them")
    values = values.astype(kind, copy=False)
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
