"""Whether contributions end where they are wanted, in compiled code: the arrays around `_follow`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from collectives.core._follow import Moves, Rows, Sets, arrange, follow
from collectives.core.carried import Carried
from collectives.core.collective import Ends
from collectives.core.transfers import Transfers
from topologies.compiled import is_at_hand

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_WORDS = 1 << 26
"""Limit on the words of all sets: 512 MiB."""

FEW_MOVES = 1_000
"""Limit on what is followed in Python in any case: 5 ms."""

COLD_MOVES = 200_000
"""What is followed in Python, in all, before anything is compiled for it: about as long as that takes."""

_in_python = 0


def pays(moves: int) -> bool:
    """Whether so many blocks and transfers should be followed in compiled code, which may have to be compiled first."""
    global _in_python
    if moves <= FEW_MOVES:
        return False
    _in_python += moves
    return is_at_hand(follow) or (_in_python > COLD_MOVES and hasattr(follow, "py_func"))


def holds(ends: Ends, p: int, t: Transfers, carried: Carried, waits: tuple[Ints, Ints, Bools]) -> int:
    """Whether a table is shown to implement its collective; 0 also where its sets would be too large to tell.

    `waits`: rows that wait, in order, what each waits for, and whether entirely.
    Returns `POOLS` where units of pools are shown to be taken before they are given back as well, else 1.
    """
    n, counts, block = t.src.size, carried.counts, carried.block
    n_blocks, bits = len(ends.of_block), _in_bits(ends, p)
    if bits is None or not _are_in_range(t, counts, block, n_blocks):
        return 0
    rows = _rows(n, *waits, _taken_by(t))
    moves = Moves(
        t.src.astype(np.int64), t.dst.astype(np.int64), t.reduces.copy(), _offsets(counts), block,
        np.repeat(np.arange(n), counts), *bits,
    )  # fmt: skip
    most, longest = arrange(rows), (int(rows.size.max(initial=0)) >> 6) + 1
    if most < 0 or 2 * most * longest + moves.block.size * moves.masks.shape[1] > MOST_WORDS:
        return 0
    return int(follow(rows, moves, _sets(moves, most, longest), not rows.whole.all(), p, n_blocks))


def _taken_by(t: Transfers) -> Ints:
    """Of each row the one whose unit it gives back, if those of a pool are given back as they are taken; see `Rows`."""
    found = np.full(t.src.size, -1)
    if t.pool is None:
        return found
    n_pools = int(t.pool[:, :2].max(initial=0)) + 1
    takes, gives = (np.flatnonzero(t.pool[:, at] >= 0) for at in (0, 1))
    of_take, of_give = (t.src[rows] * np.int64(n_pools) + t.pool[rows, at] for at, rows in ((0, takes), (1, gives)))
    takes, gives = (rows[np.argsort(of, kind="stable")] for rows, of in ((takes, of_take), (gives, of_give)))
    of_take, of_give = np.sort(of_take), np.sort(of_give)
    place = np.searchsorted(of_take, of_give) + np.arange(of_give.size) - np.searchsorted(of_give, of_give)
    there = place < np.searchsorted(of_take, of_give, side="right")
    found[gives] = t.src.size
    found[gives[there]] = takes[place[there]]
    return found


def _rows(n: int, child: Ints, parents: Ints, whole: Bools, taken_by: Ints) -> Rows:
    waiting, order, bit, part, size, first, left = (np.empty(n, np.int64) for _ in range(7))
    ptr, following = _offsets(np.bincount(child, minlength=n)), np.empty(child.size, np.int64)
    return Rows(ptr, child, parents, whole, taken_by, waiting, order, bit, part, size, first, left, following)


def _sets(moves: Moves, most: int, longest: int) -> Sets:
    n, n_moves, words = moves.src.size, moves.block.size, moves.masks.shape[1]
    n_cells = 1 << (2 * n_moves + 1).bit_length()
    return Sets(
        keys=np.full(n_cells, -1),
        heads=np.full(n_cells, -1),
        following=np.empty(n_moves, np.int64),
        contributions=np.empty((n_moves, words), np.int64),
        past=np.empty((most, longest), np.int64),
        begun=np.empty((most, longest), np.int64),
        free=np.empty(most, np.int64),
        slot=np.empty(n, np.int64),
        before=np.empty(longest, np.int64),
        started=np.empty(longest, np.int64),
        value=np.empty(words, np.int64),
    )


def _are_in_range(t: Transfers, counts: Ints, blocks: Ints, n_blocks: int) -> bool:
    """Whether rows have the blocks that they declare, of those that there are, and ranks that are keys."""
    ranks = min(t.src.min(initial=0), t.dst.min(initial=0)) >= 0
    there = blocks.min(initial=0) >= 0 and blocks.max(initial=-1) < n_blocks
    return bool(ranks and there and np.array_equal(counts, t.blocks))


def _in_bits(ends: Ends, p: int) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Sources as bits and which of them each block has; ranks that want a block, and the block. None: not all ranks."""
    numbers: dict[Sequence[int], int] = {}
    of_pair = np.array([numbers.setdefault(ranks, len(numbers)) for ranks, _ in ends.pairs], np.int64)
    masks = np.zeros((len(numbers), (p + 63) >> 6), np.int64)
    for one, number in numbers.items():
        ranks = np.array(one, np.int64)
        if ranks.min(initial=0) < 0 or ranks.max(initial=0) >= p:
            return None
        np.bitwise_or.at(masks[number], ranks >> 6, np.left_shift(np.int64(1), ranks & 63))
    wanted = [ends.pairs[pair][1] for pair in ends.of_block]
    rank = np.fromiter(chain.from_iterable(wanted), np.int64)
    if rank.min(initial=0) < 0:
        return None
    return masks, of_pair[ends.of_block], rank, np.repeat(np.arange(len(wanted)), [*map(len, wanted)])


def _offsets(counts: Ints) -> Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
