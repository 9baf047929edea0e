"""The codec's loops, compiled. What they call stands in this file too, so that numba's cache is never stale."""

# mypy: ignore-errors

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")

HASHES = 3
"""Cells of each item. Three need the least space: 1.2218 cells an item, against 2.0 with two and 1.2949 with four."""

ROTATION_SEED = 50
"""Seed of the first hash that turns lanes, apart from those that choose rows."""


@_jit
def murmur3(key, seed):
    """MurmurHash3_x86_32 of one little-endian word."""
    mask = np.uint64(0xFFFFFFFF)
    k = (np.uint64(key) * np.uint64(0xCC9E2D51)) & mask
    k = ((k << np.uint64(15)) | (k >> np.uint64(17))) & mask
    k = (k * np.uint64(0x1B873593)) & mask
    h = np.uint64(seed) ^ k
    h = ((h << np.uint64(13)) | (h >> np.uint64(19))) & mask
    h = (h * np.uint64(5) + np.uint64(0xE6546B64)) & mask
    h ^= np.uint64(4)
    h ^= h >> np.uint64(16)
    h = (h * np.uint64(0x85EBCA6B)) & mask
    h ^= h >> np.uint64(13)
    h = (h * np.uint64(0xC2B2AE35)) & mask
    return h ^ (h >> np.uint64(16))


@_jit
def place(n_blocks, rows, lanes, rotated, split, seed):
    """First cell of the row of each block under each hash, (n_blocks, HASHES), and the turn of its lanes.

    A row that is subtracted is stored as its complement, which is negative: of an element whose place is looked up
    at random, all three hashes lie in one cache line. Lanes that are not turned have no turns, (0, HASHES).
    """
    row = np.empty((n_blocks, HASHES), np.int32)
    turn = np.empty((n_blocks if rotated else 0, HASHES), np.int32)
    third = rows // HASHES
    for block in range(n_blocks):
        for j in range(HASHES):
            word = murmur3(block, seed + j)
            chosen = j * third + np.int64(word % np.uint64(third)) if split else np.int64(word % np.uint64(rows))
            row[block, j] = ~(chosen * lanes) if word >> np.uint64(31) else chosen * lanes
            if rotated:
                turn[block, j] = np.int32(murmur3(block, seed + ROTATION_SEED + j) % np.uint64(lanes))
    return row, turn


@_jit
def _cell(row, turn, lanes, block, lane, j):
    """Cell of a lane of a block under hash j, complemented where the element is subtracted."""
    signed = row[block, j]
    if turn.size:
        lane += turn[block, j]
        if lane >= lanes:
            lane -= lanes
    return signed - lane if signed < 0 else signed + lane


@_jit
def largest_exponent(words, mask):
    """The largest exponent field: all ones mean an infinity or a NaN."""
    most = words.dtype.type(0)
    for word in words:
        most = max(most, word & mask)
    return most


@_jit
def _add(cells, x, negative):
    if negative:
        for t in range(x.size):
            cells[t] -= x[t]
    else:
        for t in range(x.size):
            cells[t] += x[t]


@_jit
def add_rows(cells, x, row, turn, lanes):
    """Add an array to a sketch, block by block: each block goes to three rows, zeros and all."""
    for block in range(row.shape[0]):
        values = x[block * lanes : (block + 1) * lanes]
        for j in range(HASHES):
            negative = row[block, j] < 0
            first = ~row[block, j] if negative else row[block, j]
            turned = turn[block, j] if turn.size else 0
            head = min(values.size, lanes - turned)
            _add(cells[first + turned : first + turned + head], values[:head], negative)
            _add(cells[first : first + values.size - head], values[head:], negative)


@_jit
def add_items(cells, x, row, turn, lanes):
    """The same element by element, without the zeros: for layouts of few lanes."""
    for i in range(x.size):
        if x[i] != 0:
            block = i // lanes
            for j in range(HASHES):
                cell = _cell(row, turn, lanes, block, i - block * lanes, j)
                if cell < 0:
                    cells[~cell] -= x[i]
                else:
                    cells[cell] += x[i]


@_jit
def pack_bits(x, packed):
    """One bit an element, least significant first: set where the element is not zero."""
    whole = x.size // 8
    for byte in range(whole):
        eight = x[8 * byte : 8 * byte + 8]
        bits = np.uint8(0)
        for k in range(8):
            bits |= np.uint8(eight[k] != 0) << np.uint8(k)
        packed[byte] = bits
    for i in range(8 * whole, x.size):
        packed[whole] |= np.uint8(x[i] != 0) << np.uint8(i - 8 * whole)


@_jit
def pack_nibbles(x, packed):
    """Four bits an element, two to a byte: 1 where the element is not zero."""
    for i in range(x.size):
        packed[i >> 1] |= np.uint8(x[i] != 0) << np.uint8(4 * (i & 1))


@_jit
def unpack_nibbles(packed, bits, n):
    """Bits of the fields that are not zero."""
    for i in range(n):
        bits[i >> 3] |= np.uint8(((packed[i >> 1] >> np.uint8(4 * (i & 1))) & np.uint8(15)) != 0) << np.uint8(i & 7)


@_jit
def _bloom_bit(first, second, j, n_bits):
    return (first + np.uint64(j) * second) % n_bits


@_jit
def pack_bloom(x, packed, hashes, seed):
    """A Bloom filter of the positions that are not zero, double hashing."""
    n_bits = np.uint64(packed.size * 8)
    for i in range(x.size):
        if x[i] != 0:
            first, second = murmur3(i, seed), murmur3(i, seed + 1) | np.uint64(1)
            for j in range(hashes):
                bit = _bloom_bit(first, second, j, n_bits)
                packed[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))


@_jit
def unpack_bloom(packed, bits, n, hashes, seed):
    """Bits of every position that the filter may hold."""
    n_bits = np.uint64(packed.size * 8)
    for i in range(n):
        first, second = murmur3(i, seed), murmur3(i, seed + 1) | np.uint64(1)
        held = True
        for j in range(hashes):
            bit = _bloom_bit(first, second, j, n_bits)
            if (packed[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & np.uint8(1) == 0:
                held = False
                break
        if held:
            bits[i >> 3] |= np.uint8(1) << np.uint8(i & 7)


@_jit
def count_items(state, bits, n, row, turn, lanes):
    """Count the items of each cell, and combine them by exclusive or; returns the number of items.

    The numbers are of 32 bits: the 8 bits of the public code overflow unseen above 255 items in one cell.
    """
    items = 0
    for byte in range(bits.size):
        word = bits[byte]
        i = 8 * byte
        while word:
            if word & 1 and i < n:
                items += 1
                block = i // lanes
                for j in range(HASHES):
                    signed = _cell(row, turn, lanes, block, i - block * lanes, j)
                    cell = ~signed if signed < 0 else signed
                    state[cell].count += 1
                    state[cell].items ^= i
            word >>= 1
            i += 1
    return items


@_jit
def peel(state, out, row, turn, lanes, queue):
    """Recover every item that can be recovered; returns how many, and the rounds of a parallel peel.

    A cell of one item gives that item away; taking it out of its other cells may leave one item there. A cell
    comes to one item at most once, so that the queue never holds more than all cells.
    """
    end = 0
    for cell in range(state.size):
        if state[cell].count == 1:
            queue[end] = cell
            end += 1
    recovered = rounds = begin = 0
    while begin < end:
        last = end
        before = recovered
        while begin < last:
            cell = queue[begin]
            begin += 1
            if state[cell].count != 1:
                continue
            i = state[cell].items
            block = i // lanes
            value = state[cell].value
            for j in range(HASHES):
                if _cell(row, turn, lanes, block, i - block * lanes, j) == ~cell:
                    value = -state[cell].value
            out[i] = value
            recovered += 1
            for j in range(HASHES):
                signed = _cell(row, turn, lanes, block, i - block * lanes, j)
                other = ~signed if signed < 0 else signed
                if signed < 0:
                    state[other].value += value
                else:
                    state[other].value -= value
                state[other].count -= 1
                state[other].items ^= i
                if state[other].count == 1:
                    queue[end] = other
                    end += 1
        if recovered > before:
            rounds += 1
    return recovered, rounds


@_jit
def median_of_three(state, bits, n, out, row, turn, lanes):
    """Guess the items that are left from the middle one of their three cells."""
    guess = np.empty(HASHES, out.dtype)
    for i in range(n):
        if (bits[i >> 3] >> np.uint8(i & 7)) & np.uint8(1):
            block = i // lanes
            left = True
            for j in range(HASHES):
                signed = _cell(row, turn, lanes, block, i - block * lanes, j)
                cell = ~signed if signed < 0 else signed
                guess[j] = -state[cell].value if signed < 0 else state[cell].value
                left = left and state[cell].count > 0
            if left:
                low, high = min(guess[0], guess[1]), max(guess[0], guess[1])
                out[i] = max(low, min(high, guess[2]))
