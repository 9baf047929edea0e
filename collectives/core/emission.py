"""The transfers of a pattern, frozen: what was proved is what is lowered.

A pattern that is proved itself emits once; all later parts are rows of that read-only table. One that is too large for
that is emitted in parts. The first part is kept, read-only, and serves whoever asks for its sources again; in any other
part, the rows of kept sources must be what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.collective import Collective
from collectives.core.columns import Accepted, read_columns
from collectives.core.proof import ScheduleError
from collectives.core.routes import check_named_links
from collectives.core.transfers import TooManyTransfers, Transfers, take
from topologies import Topology, WeftError
from topologies.core.rateless import digest

Emit = Callable[[npt.NDArray[np.integer]], Transfers]

MOST_KEPT = 65_536
"""Limit on the transfers that are kept of a pattern that is emitted in parts."""


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

    def __call__(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        """The transfers of some sources."""
        ranks = np.asarray(ranks)
        asked = self._asked(ranks)
        if self._kept is None:
            return self._keep(self._checked(ranks, asked), ranks)
        if np.array_equal(asked, self._known):
            return self._kept
        if np.all(self._known[ranks]):
            return _frozen(_of_sources(self._kept, asked))
        t = self._checked(ranks, asked)
        self._compare(_of_sources(t, self._known), _of_sources(self._kept, asked))
        return _frozen(t)

    def freeze(self) -> Transfers:
        """The transfers of every source, emitted now; from here on, they are what is emitted."""
        every = np.ones(self._n_sources, np.bool_)
        if self._kept is None or not np.all(self._known):
            t = self._checked(np.arange(self._n_sources), every)
            if self._kept is not None:
                self._compare(_of_sources(t, self._known), self._kept)
            self._kept, self._known = _frozen(t, copy=True), every  # its generator may have kept the arrays
        return self._kept

    def kept(self) -> tuple[Transfers, int]:
        """The transfers that serve whoever asks again, and of how many sources they are (0: one has too many)."""
        if self._kept is None:
            few = np.unique(np.linspace(0, self._topology.n_npus - 1, 4).astype(np.int64))
            if self(few[:1]).src.size <= MOST_KEPT and few.size > 1:  # else nothing of four would be kept either
                self._kept, self._known[:] = None, False
                self(few)
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
        if not np.all(asked[t.src]):
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


def digest_of(
    kind: Collective, p: int, n_blocks: int, root: int, t: Transfers, carried: Sequence[Sequence[int]]
) -> bytes:
    """All that a proof depends on: the transfers, the blocks of each, and what the collective asks of every block."""
    numbers: dict[tuple[Sequence[int], Sequence[int]], int] = {}
    ends = ((kind.sources(block, p, root), kind.wanted_by(block, p, root)) for block in range(n_blocks))
    found = np.array([numbers.setdefault(one, len(numbers)) for one in ends], np.int64)
    blocks = np.fromiter(chain.from_iterable(carried), np.int64)
    counts = np.fromiter(map(len, carried), np.int64)
    there = [name for name, column in zip(t._fields, t, strict=True) if column is not None]
    text = repr((kind.name, p, n_blocks, root, list(numbers), there))
    return digest(text, *(column for column in t if column is not None), found, counts, blocks)


def _of_sources(t: Transfers, wanted: npt.NDArray[np.bool_]) -> Transfers:
    return take(t, np.flatnonzero(wanted[t.src]))


def _frozen(t: Transfers, copy: bool = False) -> Transfers:
    """The table with arrays that cannot be written; copies, where another array or the generator shares them."""
    frozen = (None if column is None else _read_only(column, copy) for column in t)
    return Transfers(*frozen)  # type: ignore[arg-type]  # the columns in their order


def _read_only(column: npt.NDArray[Any], copy: bool) -> npt.NDArray[Any]:
    if copy or column.base is not None:
        column = column.copy()
    return np.asarray(column.data.toreadonly())  # its flag cannot be set again, as that of an owner can


def _first_difference(a: Transfers, b: Transfers) -> tuple[int, int] | None:
    """Source and slot of a transfer that two tables do not have alike."""
    n = min(a.src.size, b.src.size)
    if n == 0:
        longer = a if a.src.size else b
        return (int(longer.src[0]), int(longer.slot[0])) if longer.src.size else None
    unequal = np.zeros(n, np.bool_)
    for name in (*Transfers._fields[:8], "pool", "rounds"):
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None:
            unequal |= (one[:n] != other[:n]).reshape(n, -1).any(axis=1)
        elif one is not other:
            unequal[:] = True
    for ptr, *items in (("dep_ptr", "dep_src", "dep_slot", "dep_lag"), ("via_ptr", "via_links")):
        unequal |= _rows_differ(n, *((getattr(t, ptr), [getattr(t, item) for item in items]) for t in (a, b)))
    if unequal.any():
        row = int(np.argmax(unequal))
        return int(b.src[row]), int(b.slot[row])
    longer = a if a.src.size > n else b
    return (int(longer.src[n]), int(longer.slot[n])) if longer.src.size > n else None


def _rows_differ(n: int, one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> npt.NDArray[np.bool_]:
    """Which of the first n rows have other items in two CSR tables; all of them, if only one table has any."""
    if one[0] is None or other[0] is None:
        return np.full(n, one[0] is not other[0])
    unequal: npt.NDArray[np.bool_] = np.diff(one[0][: n + 1]) != np.diff(other[0][: n + 1])
    most = int(np.argmax(unequal)) if unequal.any() else n  # from the first row of another length, places are shifted
    end = int(one[0][most])
    owner = np.repeat(np.arange(most), np.diff(one[0][: most + 1]))
    for here, there in zip(one[1], other[1], strict=True):
        unequal[owner[here[:end] != there[:end]]] = True
    return unequal
