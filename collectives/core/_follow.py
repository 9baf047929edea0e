"""The compiled proof: the same conditions as `proof`, decided without a word about what is wrong.

Sets are rows of 64-bit words: of what precedes a transfer, one bit a transfer of its part of the dependency graph, as
long as some row waits for it; of contributions, one bit a rank. The writes of one block at one rank are a list that
starts at `heads[cell]` and goes on at `following[write]`; a write is the position of its block among all that are
carried. A cell is where a table of open addressing keeps the key rank * n_blocks + block.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._jit import ONE, entry, helper

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """Transfers and what each waits for; from `waiting` on, what `arrange` fills or uses."""

    # ptr, child, parents: (n+1,), (n_dependencies,), (n_dependencies,): dependencies of each row, by row; whose each
    # is, and what it waits for
    ptr: Ints
    child: Ints
    parents: Ints
    whole: Bools  # (n_dependencies,): whether all of the other is waited for, or it is followed chunk by chunk
    # (n,): the row that takes the unit of a pool that this one gives back: itself, -1 where it gives none, n where
    # nobody takes it
    taken_by: Ints
    # waiting, order, bit, part: (n,): how many rows wait for each row; rows in order; number of each row within its
    # part; any row of that part, the same for all
    waiting: Ints
    order: Ints
    bit: Ints
    part: Ints
    size: Ints  # (n,): `size[part[row]]` is the number of rows in the part
    # first, left, following: (n,), (n,), (n_dependencies,): scratch space
    first: Ints
    left: Ints
    following: Ints


class Moves(NamedTuple):
    """Blocks carried, and where they have to end."""

    # src, dst, reduces: as of `Transfers`
    src: Ints
    dst: Ints
    reduces: Bools
    # ptr, block, row: (n+1,), (n_moves,), (n_moves,): blocks of each row, in order, and the row of each
    ptr: Ints
    block: Ints
    row: Ints
    # masks, mask_of: (n_masks, words), (n_blocks,): sources of each block, as bits of ranks
    masks: Ints
    mask_of: Ints
    # wanted_rank, wanted_block: (n_wanted,)
    wanted_rank: Ints
    wanted_block: Ints


class Sets(NamedTuple):
    """What `follow` keeps as it goes; nothing of it need be filled but the cells."""

    # keys, heads: (n_cells,): filled with -1
    keys: Ints
    heads: Ints
    # following, contributions: (n_moves,), (n_moves, words): of each write: the one before it in its cell, and what it
    # brings
    following: Ints
    contributions: Ints
    # past, begun: (most, longest): what is done when a row that is waited for ends, and begins
    past: Ints
    begun: Ints
    # free, slot: (most,), (n,): rows of `past` that are free; that of each transfer
    free: Ints
    slot: Ints
    # before, started, value: (longest,), (longest,), (words,): of the transfer, and the block, that is looked at
    before: Ints
    started: Ints
    value: Ints


@entry
def arrange(rows):  # type: ignore[no-untyped-def]  # jitted
    """Order rows by their dependencies, and number them in their parts; returns how many sets are needed at a time.

    -1 if a row waits for itself in a circle.
    """
    ptr, child, parents, waiting, order = rows.ptr, rows.child, rows.parents, rows.waiting, rows.order
    bit, part, size = rows.bit, rows.part, rows.size
    first, left, following = rows.first, rows.left, rows.following
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
    begin = 0  # one part after the other, so that few sets are needed at a time
    for row in range(n):
        if part[row] == row:
            first[row] = begin
            begin += size[row]
    for row in range(n):
        left[first[part[row]] + bit[row]] = row
    for row in range(n):
        order[row] = left[row]
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


@helper
def _find(keys, key):  # type: ignore[no-untyped-def]  # jitted
    """The cell of a key, or the free one that it would get; the number of cells is a power of two."""
    at = (((key ^ (key >> 29)) & 0xFFFFFFFF) * 0x4F1BBCDD >> 20) & (len(keys) - 1)  # a product within 63 bits
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    return at


@helper
def _has(set_, number):  # type: ignore[no-untyped-def]  # jitted
    return (set_[number >> 6] >> (number & 63)) & 1 == 1


@helper
def _precedes(rows, one, row, before):  # type: ignore[no-untyped-def]  # jitted
    return rows.part[one] == rows.part[row] and rows.bit[one] < rows.bit[row] and _has(before, rows.bit[one])


@helper
def _was_taken(rows, row, before):  # type: ignore[no-untyped-def]  # jitted
    """Whether a row gives back no unit, or one that it takes itself or a row before it."""
    one = rows.taken_by[row]
    return one in (-1, row) or (one < len(rows.order) and _precedes(rows, one, row, before))


@helper
def _arrives(rows, moves, one, row, place, started):  # type: ignore[no-untyped-def]  # jitted
    """Whether a row that is waited for has brought a block before the one at this place leaves."""
    if _has(started, rows.bit[one]):
        return True
    its, mine = moves.ptr[one], moves.ptr[row]
    alike = moves.ptr[one + 1] - its == moves.ptr[row + 1] - mine
    return alike and moves.block[its + place] == moves.block[mine + place]


@helper
def _own(moves, rank, p, block, value):  # type: ignore[no-untyped-def]  # jitted
    """The contribution of a rank to a block."""
    for word in range(len(value)):
        value[word] = 0
    if rank < p:
        value[rank >> 6] = moves.masks[moves.mask_of[block], rank >> 6] & (ONE << (rank & 63))


@helper
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


@helper
def _begin(rows, row, streams, sets, n_free):  # type: ignore[no-untyped-def]  # jitted
    """Gather what a row comes after, and give it back where nobody else waits for it; returns what is free then."""
    n_words = (rows.bit[row] >> 6) + 1
    for word in range(n_words):
        sets.before[word], sets.started[word] = 0, 0
    for at in range(rows.ptr[row], rows.ptr[row + 1]):
        one = rows.parents[at]
        place = sets.slot[one]
        for word in range((rows.bit[one] >> 6) + 1):
            sets.before[word] |= sets.past[place, word]
            if streams:
                sets.started[word] |= sets.past[place, word] if rows.whole[at] else sets.begun[place, word]
        rows.waiting[one] -= 1
        if rows.waiting[one] == 0:
            sets.free[n_free] = place
            n_free += 1
    if rows.waiting[row] > 0:
        n_free -= 1
        sets.slot[row] = place = sets.free[n_free]
        for word in range(n_words):
            sets.past[place, word] = sets.before[word]
            if streams:
                sets.begun[place, word] = sets.started[word]
        sets.past[place, rows.bit[row] >> 6] |= ONE << (rows.bit[row] & 63)
    return n_free


@helper
def _takes(rows, moves, sets, streams, p, n_blocks, row, place):  # type: ignore[no-untyped-def]  # jitted
    """Note what a row takes of the block at this place; False where it is nothing, counted twice, or not certain."""
    move = moves.ptr[row] + place
    _own(moves, moves.src[row], p, moves.block[move], sets.value)
    cell = _find(sets.keys, moves.src[row] * n_blocks + moves.block[move])
    copied, write = NONE, sets.heads[cell] if sets.keys[cell] >= 0 else -1
    while write >= 0:
        one = moves.row[write]
        if _precedes(rows, one, row, sets.before):
            if streams and not _arrives(rows, moves, one, row, place, sets.started):
                return False  # it follows chunk by chunk what arrives in another order
            copied = _written(write, moves.reduces[one], copied, sets.contributions, sets.value)
        write = sets.following[write]
    some = 0
    for word in range(len(sets.value)):
        sets.contributions[move, word] = sets.value[word]
        some |= sets.value[word]
    return copied > TWICE and some != 0


@helper
def _leaves(rows, moves, sets, streams, n_blocks, row, place):  # type: ignore[no-untyped-def]  # jitted
    """Note that a row writes the block at this place; False where an addition may come after a copy."""
    move = moves.ptr[row] + place
    key = moves.dst[row] * n_blocks + moves.block[move]
    cell = _find(sets.keys, key)
    sets.keys[cell] = key
    write = sets.heads[cell]
    while write >= 0:
        one = moves.row[write]
        if moves.reduces[row] != moves.reduces[one]:
            if moves.reduces[row] or not _precedes(rows, one, row, sets.before):
                return False
            if streams and not _arrives(rows, moves, one, row, place, sets.started):
                return False
        write = sets.following[write]
    sets.following[move], sets.heads[cell] = sets.heads[cell], move
    return True


@helper
def _ends(moves, sets, p, n_blocks, at):  # type: ignore[no-untyped-def]  # jitted
    """Whether a rank has in the end what it wants of a block, and nothing else."""
    rank, block = moves.wanted_rank[at], moves.wanted_block[at]
    _own(moves, rank, p, block, sets.value)
    cell = _find(sets.keys, rank * n_blocks + block)
    copied, write = NONE, sets.heads[cell] if sets.keys[cell] >= 0 else -1
    while write >= 0:
        copied = _written(write, moves.reduces[moves.row[write]], copied, sets.contributions, sets.value)
        write = sets.following[write]
    for word in range(len(sets.value)):
        if sets.value[word] != moves.masks[moves.mask_of[block], word]:
            return False
    return copied > TWICE


POOLS = 2
"""What `follow` returns where units are taken before they are given back, too."""


@entry
def follow(rows, moves, sets, streams, p, n_blocks):  # type: ignore[no-untyped-def]  # jitted
    """Whether contributions, followed through all transfers, end where they are wanted: 0, 1 or `POOLS`.

    `rows`, `moves`, `sets`: `rows` as `arrange` left them; what waits is used up.
    `streams`: whether anything is followed chunk by chunk.
    """
    n_free, found = len(sets.free), POOLS
    for at in range(n_free):
        sets.free[at] = at
    for at in range(len(rows.order)):
        row = rows.order[at]
        n_free = _begin(rows, row, streams, sets, n_free)
        if not _was_taken(rows, row, sets.before):
            found = 1
        for place in range(moves.ptr[row + 1] - moves.ptr[row]):
            if not _takes(rows, moves, sets, streams, p, n_blocks, row, place):
                return 0
            if not _leaves(rows, moves, sets, streams, n_blocks, row, place):
                return 0
    for at in range(len(moves.wanted_rank)):
        if not _ends(moves, sets, p, n_blocks, at):
            return 0
    return found
