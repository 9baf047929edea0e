"""The transfers of a pattern, read and frozen: what was proved is what is lowered.

Whatever a generator emits is read column by column, or refused. A value outside its contract would not be wrong alone:
a lag that no engine knows is waited for by none, and a count of latencies below one takes them away. What is read has
the types of the contract, so that nothing overflows later.

A pattern that is proved itself emits once; all later parts are rows of that read-only table. One that is too large for
that is emitted in parts. The first part is kept, read-only, and serves whoever asks for its sources again; in any other
part, the rows of kept sources must be what they were.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.by_slots import WHOLE
from collectives.core.carried import Carried
from collectives.core.collective import Ends
from collectives.core.laid import Laid, unbuilt
from collectives.core.proof import ScheduleError
from collectives.core.routes import check_named_links
from collectives.core.transfers import UNBUILT, TooManyTransfers, Transfers, laid_out, rows_at_most, take
from topologies import Topology, WeftError
from topologies.checks import INT64, MOST_COUNT, told
from topologies.core.paths import evenly
from topologies.core.rateless import digest

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
    if found.dtype == rule.kind or (found.dtype == np.int32 and rule.kind is np.int64 and column != "blocks"):
        return found  # in half the room
    as_ruled = found.astype(rule.kind)
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
    least, most = _range(column, topology, accepted)
    some = values[:1] if values.strides == (0,) else values  # one value for all
    parts = np.atleast_2d(some.T)  # one by one: along the shorter axis numpy takes 25 times as long
    if not values.size or (np.all([part.min() for part in parts] >= np.asarray(least))
                           and np.all([part.max() for part in parts] <= np.asarray(most))):
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


def _range(column: str, topology: Topology, accepted: Accepted) -> tuple[npt.ArrayLike, npt.ArrayLike]:
    """The least and the most of a column."""
    rule, n_sources = COLUMNS[column], accepted.n_sources
    if column == "pool":
        return np.array([-1, -1, rule.least]), np.array([accepted.n_pools - 1] * 2 + [rule.most])
    most = {"src": n_sources - 1, "dep_src": n_sources - 1, "dst": topology.n_nodes - 1}.get(column, rule.most)
    return np.array([0, 1]) if column == "rounds" else rule.least, most


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


Emit = Callable[[npt.NDArray[np.integer]], Transfers]

MOST_KEPT = 65_536
"""Limit on the transfers that are kept of a pattern that is emitted in parts."""

FEW_SOURCES, FEW_TRANSFERS = 256, 100_000
"""Limits on what is emitted once for all, by a pattern that is asked for some of its sources first."""

SAMPLED_TRANSFERS = 1_000
"""Limit on the transfers of one rank that stand for all of them."""


class Sample(NamedTuple):
    """What one rank sends: the number of its transfers, of their routes, and some of them, evenly spread."""

    n: int
    n_routes: int
    some: Transfers
    is_even: bool  # whether tables are laid out slot by slot, without sorting


class Emission:
    """What a generator emits, checked and read-only.

    `topology`: has the nodes, and the links that transfers may name.
    `name`: for messages.
    """

    def __init__(self, emit: Emit, topology: Topology, accepted: Accepted, name: str) -> None:
        self._emit, self._topology, self._accepted, self._name = emit, topology, accepted, name
        self._n_sources = accepted.n_sources
        self._known = np.zeros(self._n_sources, np.bool_)
        self._kept: Transfers | None = None
        self._sample: Sample | None = None
        self._laid: Laid | None = None
        self._comes_to_hand = False

    def __call__(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        """The transfers of some sources."""
        ranks = np.asarray(ranks)
        asked = self._asked(ranks)
        if self._kept is None:
            return self._keep(self._checked(ranks, asked), ranks)
        if self._comes_to_hand and np.count_nonzero(asked) > FEW_SOURCES:
            self.freeze()
        if np.array_equal(asked, self._known):
            return self._kept
        if np.all(self._known[ranks]):
            return _frozen(_of_sources(self._kept, asked))
        t = self._checked(ranks, asked)
        self._compare(_of_sources(t, self._known), _of_sources(self._kept, asked))
        return _frozen(t)

    @property
    def listed(self) -> Transfers | None:
        """The transfers of every source, where they have been emitted."""
        return self._kept if np.all(self._known) else None

    def freeze(self) -> Transfers:
        """The transfers of every source, emitted now; from here on, they are what is emitted."""
        every = np.ones(self._n_sources, np.bool_)
        if self._kept is None or not np.all(self._known):
            t = self._checked(np.arange(self._n_sources), every)
            if self._kept is not None:
                self._compare(_of_sources(t, self._known), self._kept)
            self._kept, self._known = _frozen(t, copy=True), every  # its generator may have kept the arrays
        return self._kept

    def first(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        """The transfers of some sources; of few sources all are emitted at once, unless they are many."""
        self._freeze_few()
        return self(ranks)

    def _freeze_few(self) -> None:
        """Emit the transfers of every source, of few sources, unless they are many or something is wrong with them."""
        if self._kept is None and self._n_sources <= FEW_SOURCES:
            with suppress(WeftError), rows_at_most(FEW_TRANSFERS):
                self.freeze()

    @contextmanager
    def at_hand(self, most: int) -> Iterator[None]:
        """Within it the transfers of every source are emitted once, where many are asked for, of at most so many."""
        few, n = self.kept()
        before = self._kept, self._known
        self._comes_to_hand = n > 0 and few.src.size * self._n_sources <= most * n
        try:
            yield
        finally:
            self._kept, self._known, self._comes_to_hand = *before, False

    def sample(self) -> Sample:
        """The transfers of the rank in the middle, emitted once: one of ring:1000000 has 4 million."""
        if self._sample is None:
            rank = np.array([self._topology.n_npus // 2])
            with laid_out():
                t = self(rank) if self._kept is not None else self._checked(rank, self._asked(rank))
                ranks = evenly(self._topology.n_npus, 4)
                few = t if t.src.size > MOST_KEPT or np.all(self._known) else self._checked(ranks, self._asked(ranks))
            n_routes = int(np.count_nonzero(np.bincount(t.dst))) if t.via_ptr is None else t.src.size
            some = _frozen(take(t, evenly(t.src.size, min(t.src.size, SAMPLED_TRANSFERS))), copy=True)
            self._sample = Sample(t.src.size, n_routes, some, few.dep_ptr.dtype == np.int32)
        return self._sample

    def laid(self, most: int) -> Laid | None:
        """The transfers of every source without rows, checked as a table is; None of few, or of what has to have them.

        `most`: transfers that are few.
        """
        if np.all(self._known) or not (one := self.sample()).is_even or one.n * self._n_sources <= most:
            return None
        found = self._laid or self._lay()
        if found is None:
            return None
        if sum(dst.nbytes for dst in found.dst) <= one.n * self._n_sources:  # a byte of each
            self._laid = found
        if self._kept is None:
            return found
        kept, columns = self._kept, found.of(np.flatnonzero(self._known))
        return found if all(np.array_equal(column, getattr(kept, name)) for name, column in columns.items()) else None

    def _lay(self) -> Laid | None:
        with suppress(Exception), unbuilt() as tables:  # whatever it is: the table itself is emitted then, and tells
            emitted = self._emit(np.arange(self._n_sources))
            if emitted is UNBUILT and len(tables) == 1 and self._accepts(tables[0]):
                return tables[0]
        return None

    def _accepts(self, found: Laid) -> bool:
        """Whether what there are values of is in the range of its column."""
        columns = found.of_slot | {"src": np.arange(found.shape[1])}
        return found.shape[1] == self._n_sources and all(
            column.size == 0 or (np.all(column >= least) and np.all(column <= most))
            for name, column in [*columns.items(), *(("dst", one) for one in found.dst)] if name != "reduces"
            for least, most in [_range(name, self._topology, self._accepted)]
        )

    def kept(self) -> tuple[Transfers, int]:
        """The transfers that serve whoever asks again, and of how many sources they are (0: one has too many)."""
        self._freeze_few()
        if self._kept is None and self.sample().n > MOST_KEPT:
            return take(self.sample().some, np.zeros(0, np.int64)), 0
        if self._kept is None:
            self(evenly(self._topology.n_npus, 4))
        assert self._kept is not None
        return self._kept, int(np.count_nonzero(self._known))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._kept is not None:
            _frozen(self._kept)  # arrays from a pickle can be written

    def _asked(self, ranks: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        outside = np.flatnonzero((ranks < 0) | (ranks >= self._n_sources))
        if outside.size:
            raise ScheduleError(f"{self._name}: rank {ranks[outside[0]]} is not one of the {self._n_sources} sources")
        asked = np.zeros(self._n_sources, np.bool_)
        asked[ranks] = True
        return asked

    def _keep(self, t: Transfers, ranks: npt.NDArray[np.integer]) -> Transfers:
        """Keep the first sources of the first part, as many as fit; returns the part."""
        rows = np.cumsum(np.bincount(t.src, minlength=self._n_sources)[np.sort(ranks)])
        few = np.sort(ranks)[rows <= MOST_KEPT]
        self._known[few] = True
        self._kept = _frozen(_of_sources(t, self._known))
        return self._kept if few.size == ranks.size else _frozen(t)

    def _checked(self, ranks: npt.NDArray[np.integer], asked: npt.NDArray[np.bool_]) -> Transfers:
        try:
            emitted = self._emit(ranks)
        except TooManyTransfers as refused:
            raise WeftError(f"{self._name} on {self._topology.name} is too large: {refused}") from None
        t = read_columns(emitted, self._topology, self._accepted, self._name)
        if not np.all(asked) and not np.all(asked[t.src]):
            wrong = t.src[np.argmin(asked[t.src])]
            raise ScheduleError(f"{self._name} emits a transfer of rank {wrong}, which was not asked for")
        check_named_links(t, self._topology, self._name)
        return t

    def _compare(self, new: Transfers, old: Transfers) -> None:
        """Reject transfers that were others when their source was asked for before."""
        where = _first_difference(new, old)
        if where is not None:
            raise ScheduleError(
                f"{self._name} on {self._topology.name}: slot {where[1]} of rank {where[0]} is not what it was when it "
                "was emitted before: an algorithm must emit the same transfers each time"
            )


def digest_of(kind: str, ends: Ends, p: int, root: int, t: Transfers, carried: Carried) -> bytes:
    """All that a proof depends on: the transfers, the blocks of each, and what the collective asks of every block."""
    found = np.array(ends.of_block, np.int64)
    there = [name for name, column in zip(t._fields, t, strict=True) if column is not None]
    text = repr((kind, p, found.size, root, list(ends.pairs), there))
    return digest(text, *(column for column in t if column is not None), found, carried.counts, carried.block)


def _of_sources(t: Transfers, wanted: npt.NDArray[np.bool_]) -> Transfers:
    return take(t, np.flatnonzero(wanted[t.src]))


def _frozen(t: Transfers, copy: bool = False) -> Transfers:
    """The table with arrays that cannot be written; copies, where another array or the generator shares them."""
    frozen = (None if column is None else _read_only(column, copy) for column in t)
    return Transfers(*frozen)  # type: ignore[arg-type]  # the columns in their order


def _read_only(column: npt.NDArray[Any], copy: bool) -> npt.NDArray[Any]:
    if column.strides == (0,) and column.size and not copy:  # one value for all
        return np.broadcast_to(_read_only(column[:1], copy=True), column.shape)
    if copy or column.base is not None:
        column = column.copy()
    return np.asarray(column.data.toreadonly())  # its flag cannot be set again, as that of an owner can


def _first_difference(a: Transfers, b: Transfers) -> tuple[int, int] | None:
    """Source and slot of a transfer that two tables do not have alike."""
    if all(one is other or np.array_equal(np.asarray(one), np.asarray(other)) for one, other in zip(a, b, strict=True)):
        return None
    for one, other in zip_longest(_rows(a), _rows(b)):
        if one != other:
            row = other or one
            return row["src"], row["slot"]
    return None


def _rows(t: Transfers) -> Iterator[dict[str, Any]]:
    """Every transfer of a table, by column; what it waits for and its links as lists."""
    lists = {"dep_ptr": ("dep_src", "dep_slot", "dep_lag"), "via_ptr": ("via_links",)}
    for row in range(t.src.size):
        found = {name: column[row].tolist() for name in (*Transfers._fields[:8], "pool", "rounds")
                 if (column := getattr(t, name)) is not None}
        for name, columns in lists.items():
            if (ptr := getattr(t, name)) is not None:
                found |= {one: getattr(t, one)[ptr[row] : ptr[row + 1]].tolist() for one in columns}
        yield found
