"""The blocks of many transfers, as arrays or as tuples, each of which is made of the other when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

BlocksOf = Callable[[int, int], Sequence[int]]
"""Blocks carried by transfer (source, slot), in the order they travel."""


class Carried:
    """Blocks of each row of a table, in the order they travel.

    `rows`: blocks of each.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.rows = rows

    @classmethod
    def of_arrays(cls, counts: Ints, block: Ints) -> Carried:
        """Of the number of blocks of each row, and all blocks, row by row."""
        found = cls.__new__(cls)
        vars(found).update(counts=counts, block=block)
        return found

    @cached_property
    def rows(self) -> Sequence[Sequence[int]]:
        """Blocks of each row."""
        blocks = iter(self.block.tolist())
        return [tuple(next(blocks) for _ in range(count)) for count in self.counts.tolist()]

    @cached_property
    def counts(self) -> Ints:
        """Number of blocks of each row."""
        return np.fromiter(map(len, self.rows), np.int64, len(self.rows))

    @cached_property
    def block(self) -> Ints:
        """All blocks, row by row."""
        return np.fromiter(chain.from_iterable(self.rows), np.int64)


class OfMany:
    """`BlocksOf` that takes all sources of a slot at once, too, (n,): of these it returns blocks of (n,) each."""

    def __init__(self, blocks_of: Callable[[Any, int], Sequence[Any]]) -> None:
        self.blocks_of = blocks_of

    def __call__(self, source: int, slot: int) -> Sequence[int]:
        """Of one."""
        return [*map(int, self.blocks_of(source, slot))]

    def of_rows(self, src: npt.NDArray[np.integer], slot: npt.NDArray[np.integer]) -> Carried:
        """Of each of many transfers, ordered by slot."""
        first = np.flatnonzero(np.diff(slot, prepend=-1))
        ends, sources = np.append(first, slot.size), src.astype(np.int64)
        found = [np.array(self.blocks_of(sources[begin:end], at), np.int64).reshape(-1, end - begin).T
                 for at, (begin, end) in zip(slot[first].tolist(), pairwise(ends.tolist()), strict=True)]
        counts = np.repeat(np.array([one.shape[1] for one in found], np.int64), np.diff(ends))
        return Carried.of_arrays(counts, np.concatenate([np.zeros(0, np.int64), *(one.ravel() for one in found)]))
