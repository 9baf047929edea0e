"""Transfers of all ranks slot by slot, without a row for each: where every rank has every slot and waits alike.

Few numbers say all: one for a slot, one for a rank, or one for each rank in slots that were added together. A table of
their rows would be several times as large as all that is made of it, and mostly memory to be cleared and left again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.by_slots import WHOLE, Added, Wait, of_slots, places_of
from topologies.core.paths import distinct_of, ranges

OF_SLOT = ("slot", "step", "port", "blocks", "reduces", "tie_class")
"""Columns of transfers behind their sources and destinations."""

Array = npt.NDArray[Any]


class Laid(NamedTuple):
    """S slots in order, p ranks: transfer `place * p + rank` is that of the slot at a place. W waits of slots."""

    of_slot: dict[str, Array]  # each column of `OF_SLOT`, (S,)
    # place, dst: of slots that were added together, where they are; and (slots, p), or (1, p) where they have the same
    place: list[Array]
    dst: list[Array]
    # child, parent, source: (W,): places of slots, the second of which is waited for; row of `sources` for each
    child: Array
    parent: Array
    source: Array
    sources: Array  # (n, p): the rank whose transfer each rank waits for, no two for the same, int32

    @property
    def shape(self) -> tuple[int, int]:
        """Slots and ranks."""
        return self.of_slot["slot"].size, self.dst[0].shape[1]

    def spread(self, of_dst: Array) -> Array:
        """What holds for each destination, in their order, as a column of all transfers."""
        found, first = np.empty(self.shape, of_dst.dtype), 0
        for place, dst in zip(self.place, self.dst, strict=True):
            found[place] = of_dst[first : first + dst.size].reshape(dst.shape)
            first += dst.size
        return found.reshape(-1)

    def of(self, ranks: Array) -> dict[str, Array]:
        """The columns of the transfers of some ranks, ascending, up to `dep_slot`."""
        n_slots, n = self.of_slot["slot"].size, ranks.size
        dst = np.concatenate([one[:, ranks].reshape(-1) for one in self.dst])
        mine = self._replace(dst=[one[:, ranks] for one in self.dst])
        counts = np.repeat(np.bincount(self.child, minlength=n_slots), n)
        rank, wait = np.divmod(np.arange(n * self.child.size), max(self.child.size, 1))
        order = np.lexsort((wait, rank, self.child[wait]))
        wait, rank = wait[order], ranks[rank[order]]
        return {
            "src": np.tile(ranks, n_slots), "dst": mine.spread(dst),
            **{name: np.repeat(column, n) for name, column in self.of_slot.items()},
            "dep_ptr": np.concatenate(([0], np.cumsum(counts))), "dep_src": self.sources[self.source[wait], rank],
            "dep_slot": self.of_slot["slot"][self.parent[wait]],
        }

    def together(self, steps: tuple[int, ...]) -> "Laid | None":
        """The same, where each transfer of a rank in a step waits for what any of them waits for.

        None where that is more than slots tell: what waits for its own step, sends to its own rank, or for the same
        transfer by two names. Those that wait together come last.

        `steps`: in which they do; () for all.
        """
        step, every = self.of_slot["step"], np.arange(self.shape[1])
        chosen = np.isin(step, steps) if steps else np.ones(step.size, np.bool_)
        joint = chosen[self.child]
        of_step = step[self.child[joint]]
        if np.any(of_step == step[self.parent[joint]]) or any(np.any(dst == every) for dst in self.dst):
            return None
        n_slots, n_sources = step.size, len(self.sources)
        key = distinct_of((of_step.astype(np.int64) * n_slots + self.parent[joint]) * n_sources + self.source[joint])
        named = np.stack([key // n_sources // n_slots, key // n_sources % n_slots, key % n_sources])
        twice: dict[tuple[int, int], list[int]] = {}
        for of, parent, source in named.T.tolist():
            twice.setdefault((of, parent), []).append(source)
        pairs = {pair for some in twice.values() for pair in combinations(some, 2)}
        if any(np.any(self.sources[one] == self.sources[other]) for one, other in pairs):
            return None
        count = np.bincount(named[0], minlength=int(step.max(initial=0)) + 1)
        place = np.flatnonzero(chosen)
        many = count[step[place]]
        wait = ranges((np.cumsum(count) - count)[step[place]], many)
        child = np.append(self.child[~joint], np.repeat(place, many))
        if not np.all(np.append(self.parent[~joint], named[1][wait]) < child):
            return None
        return self._replace(
            child=child, parent=np.append(self.parent[~joint], named[1][wait]),
            source=np.append(self.source[~joint], named[2][wait]),
        )


_TABLES: ContextVar[list[Laid] | None] = ContextVar("tables that are not built", default=None)


class NotLaid(Exception):
    """A table whose rows few numbers do not tell, where only such are asked for."""


@contextmanager
def unbuilt() -> Iterator[list[Laid]]:
    """Within it tables are empty, and appended to what it gives as what would lay them out; or raise `NotLaid`."""
    tables: list[Laid] = []
    token = _TABLES.set(tables)
    try:
        yield tables
    finally:
        _TABLES.reset(token)


def lays(ranks: Array, added: Sequence[Added], waits: Sequence[Wait], is_plain: bool) -> bool:
    """Whether a table is asked for, and appended, without its rows; `is_plain`: it has no other columns."""
    tables = _TABLES.get()
    if tables is None:
        return False
    found = lay(ranks, added, waits) if is_plain else None
    if found is None:
        raise NotLaid
    tables.append(found)
    return True


def lay(ranks: Array, added: Sequence[Added], waits: Sequence[Wait]) -> Laid | None:
    """What lays out a table; None where ranks differ, or two wait for one, for no earlier slot, or not for the whole.

    Parameters as in `by_slots`.
    """
    places = places_of(ranks, added) if added and np.array_equal(ranks, np.arange(ranks.size)) else None
    if places is None:
        return None
    n_slots = sum(place.size for place in places)
    of_slot = {name: np.empty(n_slots, added[0].columns[at].dtype) for at, name in enumerate(OF_SLOT, 2)}
    for place, one in zip(places, added, strict=True):
        for at, name in enumerate(OF_SLOT, 2):
            value = of_slots(one.columns[at], one)
            if value is None:
                return None
            of_slot[name][place] = value
    dst = [np.broadcast_to(np.atleast_2d(one.columns[1]), (np.atleast_2d(one.columns[1]).shape[0], ranks.size))
           for one in added]
    numbers: dict[bytes, int] = {}
    rows: list[Array] = [np.zeros((0, 3), np.int64)]
    for wait in waits:
        found = _waits(wait, added[wait.added].shape, places[wait.added], numbers)
        if found is None:
            return None
        rows.append(found)
    child, wanted, source = np.concatenate(rows).T
    parent = np.minimum(np.searchsorted(of_slot["slot"], wanted), n_slots - 1)
    sources = np.frombuffer(b"".join(numbers), np.int32).reshape(-1, ranks.size)
    each_another = np.all(np.sort(sources, axis=1) == ranks)
    if not np.array_equal(of_slot["slot"][parent], wanted) or np.any(parent >= child) or not each_another:
        return None
    order = np.argsort(child, kind="stable")
    return Laid(of_slot, places, dst, child[order], parent[order], source[order], sources)


def _waits(wait: Wait, shape: tuple[int, ...], place: Array, numbers: dict[bytes, int]) -> Array | None:
    """(n, 3) place of a slot, the slot that it waits for, and the number of its sources, by their bytes."""
    source, slot = np.atleast_2d(wait.source), np.atleast_2d(wait.slot)
    n = max(shape[0], source.shape[0], slot.shape[0])
    if slot.shape[1] > 1 or wait.lag != WHOLE:
        return None
    found = np.stack([*(np.broadcast_to(one, n) for one in (place, slot[:, 0])), np.arange(n) % len(source)], axis=1)
    found = found[found[:, 1] >= 0]
    used = distinct_of(found[:, 2])
    each = [np.broadcast_to(source[one], shape[1]).tobytes() for one in used.tolist()]
    found[:, 2] = np.array([numbers.setdefault(one, len(numbers)) for one in each], np.int64)[
        np.searchsorted(used, found[:, 2])
    ]
    return found
