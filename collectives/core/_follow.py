"""The compiled proof: the same conditions as `proof`, decided without a word about what is wrong.

Sets are rows of 64-bit words: of what precedes a transfer, one bit a transfer of its part of the dependency graph, as
long as some row waits for it; of contributions, one bit a rank. The writes of one block at one rank are a list that
starts at `heads[cell]` and goes on at `following[write]`; a write is the position of its block among all that are
carried. A cell is where a table of open addressing keeps the key rank * n_blocks + block.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from topologies.compiled import cached

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


def _jit(function: Callable[..., Any]) -> Any:
    return cached(function, [Path(__file__)], **_FLAGS)


def _part(function: Callable[..., Any]) -> Any:
    """A part of a kernel, inlined into its callers."""
    njit: Any = numba.njit  # its stubs lack flags
    return njit(**_FLAGS, forceinline=True, no_cpython_wrapper=True)(function)


@_jit
def arrange(  # type: ignore[no-untyped-def]  # jitted
    ptr, child, parents, waiting, order, bit, part, first, following, left, size
):
    """Order rows by their dependencies, and number them in their parts; returns how many sets are needed at a time.

    -1 if a row waits for itself in a circle.

    Parameters
    ----------
    ptr, child, parents : (n+1,), (n_dependencies,), (n_dependencies,) int64
        Rows that each row waits for, and whose each dependency is.
    waiting, order, bit, part : (n,) int64
        Written: how many wait for each row; rows in order; number of each row within its part; any row of that part,
        the same for all.
    first, left, size : (n,) int64
        Scratch space; `size[part[row]]` is left as the number of rows in the part.
    following : (n_dependencies,) int64
        Scratch space.
    """
    n = len(order)
    for row in range(n):
        waiting[row], size[row] = 0, 0
        part[row], first[row] = row, -1
    for row in range(n):
        left[row] = ptr[row + 1] - ptr[row]
        for at in range(ptr[row], ptr[row + 1]):
            waiting[parents[at]] += 1
            following[at], first[parents[at]] = first[parents[at]], at
            one, other = row, parents[at]
            while part[one] != one:
                part[one] = part[part[one]]
                one = part[one]
            while part[other] != other:
                part[other] = part[part[other]]
                other = part[other]
            part[one] = other
    begin, end = 0, 0
    for row in range(n):
        if left[row] == 0:
            order[end] = row
            end += 1
    live, most = 0, 0
    while begin < end:
        row = order[begin]
        begin += 1
        root = row
        while part[root] != root:
            root = part[root]
        part[row] = root
        bit[row] = size[root]
        size[root] += 1
        at = first[row]
        while at >= 0:
            left[child[at]] -= 1
            if left[child[at]] == 0:
                order[end] = child[at]
                end += 1
            at = following[at]
    if end < n:
        return -1
    for row in range(n):
        left[row] = waiting[row]
    for at_row in range(n):
        row = order[at_row]
        for at in range(ptr[row], ptr[row + 1]):
            left[parents[at]] -= 1
            if left[parents[at]] == 0:
                live -= 1
        if waiting[row] > 0:
            live += 1
            most = max(most, live)
    return most


NONE, TWICE, UNLIKE = -1, -2, -3
"""Instead of the first copy: none yet, a contribution that is counted twice, two copies that differ."""


@_part
def _find(keys, key):  # type: ignore[no-untyped-def]  # jitted
    """The cell of a key, or the free one that it would get; the number of cells is a power of two."""
    at = (((key ^ (key >> 29)) & 0xFFFFFFFF) * 0x4F1BBCDD >> 20) & (len(keys) - 1)  # a product within 63 bits
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    return at


@_part
def _has(set_, number):  # type: ignore[no-untyped-def]  # jitted
    return (set_[number >> 6] >> (number & 63)) & 1 == 1


@_part
def _precedes(one, row, bit, part, before):  # type: ignore[no-untyped-def]  # jitted
    return part[one] == part[row] and bit[one] < bit[row] and _has(before, bit[one])


@_part
def _arrives(one, row, place, bit, started, block_ptr, blocks):  # type: ignore[no-untyped-def]  # jitted
    """Whether a row that is waited for has brought a block before the one at this place leaves."""
    if _has(started, bit[one]):
        return True
    its, mine = block_ptr[one], block_ptr[row]
    alike = block_ptr[one + 1] - its == block_ptr[row + 1] - mine
    return alike and blocks[its + place] == blocks[mine + place]


@_part
def _own(rank, p, masks, mask, value):  # type: ignore[no-untyped-def]  # jitted
    """The contribution of a rank to a block with these sources."""
    for word in range(len(value)):
        value[word] = 0
    if rank < p:
        value[rank >> 6] = masks[mask, rank >> 6] & (1 << (rank & 63))


@_part
def _written(write, adds, copied, contributions, value):  # type: ignore[no-untyped-def]  # jitted
    """Count a write; returns the first copy, or what there is instead of it.

    A copy replaces what was there; all additions come before it, so only copies have to agree.
    """
    if copied == UNLIKE or (adds and copied != NONE):
        return copied
    if adds:
        for word in range(len(value)):
            if value[word] & contributions[write, word]:
                return TWICE
            value[word] |= contributions[write, word]
        return NONE
    for word in range(len(value)):
        if copied >= 0 and value[word] != contributions[write, word]:
            return UNLIKE
        value[word] = contributions[write, word]
    return write


@_jit
def follow(  # type: ignore[no-untyped-def]  # jitted
    ptr, parents, whole, streams, order, bit, part, waiting, src, dst, reduces, block_ptr, blocks, row_of, p, n_blocks,
    masks, mask_of, wanted_rank, wanted_block, keys, heads, following, contributions, past, begun, free, slot, before,
    started, value,
):
    """Whether contributions, followed through all transfers, end where they are wanted.

    Parameters
    ----------
    ptr, parents, order, bit, part, waiting : as of `arrange`
        `waiting` is used up.
    whole : (n_dependencies,) bool
        Whether a row waits for all of another, or follows it chunk by chunk; `streams`: whether any does that.
    src, dst, reduces : (n,)
        As of `Transfers`, int64 and bool.
    block_ptr, blocks : (n+1,), (n_blocks_carried,) int64
        Blocks of each row, in order; `row_of`: the row of each.
    p, n_blocks : int
    masks, mask_of : (n_masks, words), (n_blocks,) int64
        Sources of each block, as bits of ranks.
    wanted_rank, wanted_block : (n_wanted,) int64
    keys, heads : (n_cells,) int64
        Filled with -1.
    following, contributions : (n_blocks_carried,), (n_blocks_carried, words) int64
        Scratch space, as are the following.
    past, begun : (most, longest) int64
        What is done when a row that is waited for ends, and begins.
    free, slot : (most,), (n,) int64
    before, started, value : (longest,), (longest,), (words,) int64
    """
    words = len(value)
    n_free = len(free)
    for at in range(n_free):
        free[at] = at
    for at_row in range(len(order)):
        row = order[at_row]
        n_words = (bit[row] >> 6) + 1
        for word in range(n_words):
            before[word], started[word] = 0, 0
        for at in range(ptr[row], ptr[row + 1]):
            one = parents[at]
            place = slot[one]
            for word in range((bit[one] >> 6) + 1):
                before[word] |= past[place, word]
                if streams:
                    started[word] |= past[place, word] if whole[at] else begun[place, word]
            waiting[one] -= 1
            if waiting[one] == 0:
                free[n_free] = place
                n_free += 1
        if waiting[row] > 0:
            n_free -= 1
            slot[row] = place = free[n_free]
            for word in range(n_words):
                past[place, word] = before[word]
                if streams:
                    begun[place, word] = started[word]
            past[place, bit[row] >> 6] |= 1 << (bit[row] & 63)

        for place in range(block_ptr[row + 1] - block_ptr[row]):
            move = block_ptr[row] + place
            _own(src[row], p, masks, mask_of[blocks[move]], value)
            key = src[row] * n_blocks + blocks[move]
            cell = _find(keys, key)
            copied, write = NONE, heads[cell] if keys[cell] >= 0 else -1
            while write >= 0:
                one = row_of[write]
                if _precedes(one, row, bit, part, before):
                    if streams and not _arrives(one, row, place, bit, started, block_ptr, blocks):
                        return False  # it follows chunk by chunk what arrives in another order
                    copied = _written(write, reduces[one], copied, contributions, value)
                write = following[write]
            some = 0
            for word in range(words):
                contributions[move, word] = value[word]
                some |= value[word]
            if copied <= TWICE or some == 0:
                return False

            key = dst[row] * n_blocks + blocks[move]
            cell = _find(keys, key)
            keys[cell] = key
            write = heads[cell]
            while write >= 0:
                one = row_of[write]
                if reduces[row] != reduces[one]:
                    if reduces[row] or not _precedes(one, row, bit, part, before):
                        return False  # an addition may come after a copy
                    if streams and not _arrives(one, row, place, bit, started, block_ptr, blocks):
                        return False
                write = following[write]
            following[move], heads[cell] = heads[cell], move

    for at in range(len(wanted_rank)):
        mask = mask_of[wanted_block[at]]
        _own(wanted_rank[at], p, masks, mask, value)
        cell = _find(keys, wanted_rank[at] * n_blocks + wanted_block[at])
        copied, write = NONE, heads[cell] if keys[cell] >= 0 else -1
        while write >= 0:
            copied = _written(write, reduces[row_of[write]], copied, contributions, value)
            write = following[write]
        if copied <= TWICE:
            return False
        for word in range(words):
            if value[word] != masks[mask, word]:
                return False
    return True
