"""The codec's compiled loops. Their callees are in this file too, so that what is kept of them is never stale."""

# mypy: ignore-errors

from functools import partial

import numba
import numpy as np

from topologies.compiled import cached

_jit = partial(cached, nogil=True, error_model="numpy")
_inline = numba.njit(nogil=True, error_model="numpy", inline="always")
"""For functions called in inner loops: a call that is not inlined prevents vectorization."""

HASHES = 3
"""Cells per item. Three need the least space: 1.2218 cells per item, against 2.0 with two and 1.2949 with four."""

ROTATION_SEED = 50
"""Seed of the first hash that rotates lanes, distinct from those that choose rows."""

NEAR = 4096
"""Elements scanned at a time, so that the items found, and their places, stay in a near cache."""

ONES = 0xFFFFFFFF
"""The count in the tally of a cell."""

BATCH = 64
"""Cells fetched together before the first of them is peeled."""

LINE = 16
"""Elements of 32 bits in a line of a cache: blocks that are spread start on one in every lane."""

_WORD = np.uint64(0xFFFFFFFF)


@_inline
def _times(a, b):
    """Product modulo 2^32."""
    return np.uint32((np.uint64(a) * np.uint64(b)) & _WORD)


@_inline
def _turned(a, by):
    """Rotation to the left."""
    return np.uint32(((np.uint64(a) << np.uint64(by)) | (np.uint64(a) >> np.uint64(32 - by))) & _WORD)


@_inline
def murmur3(key, seed):
    """MurmurHash3_x86_32 of one little-endian word."""
    k = _times(_turned(_times(np.uint32(key), 0xCC9E2D51), 15), 0x1B873593)
    h = _times(_turned(np.uint32(seed) ^ k, 13), 5)
    h = np.uint32((np.uint64(h) + np.uint64(0xE6546B64)) & _WORD) ^ np.uint32(4)
    h = _times(h ^ (h >> np.uint32(16)), 0x85EBCA6B)
    h = _times(h ^ (h >> np.uint32(13)), 0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


@_inline
def _below(word, limit):
    """Remainder of a word modulo a limit, without division: the estimated quotient is exact or one too small."""
    rest = np.int64(word) - np.int64(np.uint32(np.float64(word) * ((1 - 1e-15) / limit))) * limit
    return rest - limit * (rest >= limit)


@_jit
def find_places(items, count, layout, places):
    """Cells (HASHES, count) of some elements; a cell from which the element is subtracted is complemented, negative.

    Recomputed wherever needed, many at a time: 3 ns per element, less than a table lookup.
    """
    rows, lanes, rotated, split, seed, apart = layout
    step = apart if apart else lanes
    for j in range(HASHES):
        limit = rows // HASHES if split else rows
        first = j * limit if split else 0
        if lanes == 1:
            for k in range(count):
                word = murmur3(items[k], seed + j)
                places[j, k] = (first + _below(word, limit)) ^ -np.int64(word >> np.uint32(31))
            continue
        for k in range(count):
            rest = _below(np.uint32(items[k]), step)
            whole = np.int64((items[k] - rest) * (1 / step) + 0.5)
            lane, block = (whole, rest) if apart else (rest, whole)
            word = murmur3(block, seed + j)
            if rotated:
                lane += _below(murmur3(block, seed + ROTATION_SEED + j), lanes)
                lane -= lanes * (lane >= lanes)
            cell = (first + _below(word, limit)) * lanes + lane
            places[j, k] = cell ^ -np.int64(word >> np.uint32(31))


@_inline
def _at(place):
    """Number of a cell that may be complemented; unsigned, which an index need not be checked for its sign."""
    return np.uint64(np.int64(place ^ (place >> 31)))


@_jit
def largest_exponent(words, mask):
    """The largest exponent field: all ones mean an infinity or a NaN."""
    most = words.dtype.type(0)
    for word in words:
        most = max(most, word & mask)
    return most


@_jit
def fold(words, first):
    """Sum modulo 2^64 of words times odd numbers, which a change of any one of them changes.

    `first`: number of the first word, where words of several arrays are folded into one sum.
    """
    total = np.uint64(0)
    for at in range(words.size):
        total += np.uint64(words[at]) * (np.uint64(0x9E3779B97F4A7C15) * np.uint64(2 * (first + at) + 1))
    return total


@_jit
def _add(cells, x, negative):
    if negative:
        for t in range(x.size):
            cells[t] -= x[t]
    else:
        for t in range(x.size):
            cells[t] += x[t]


@_jit
def add_rows(cells, x, layout):
    """Add an array to a sketch, block by block: each block goes to three rows, including zeros."""
    lanes = layout[1]
    first, places = np.empty(1, np.int32), np.empty((HASHES, 1), np.int32)
    for start in range(0, x.size, lanes):
        values = x[start : start + lanes]
        first[0] = start
        find_places(first, 1, layout, places)
        for j in range(HASHES):
            begin = _at(places[j, 0])
            turned = np.int64(begin) % lanes
            row = np.int64(begin) - turned
            head = min(values.size, lanes - turned)
            _add(cells[row + turned : row + turned + head], values[:head], places[j, 0] < 0)
            _add(cells[row : row + values.size - head], values[head:], places[j, 0] < 0)


@_jit
def add_spread(cells, x, layout):
    """The same where the elements of a block are `apart` from each other: some blocks are gathered, and then added.

    A gathered block stands there twice, so that it can be read from any lane on without an end between; one addition
    a lane, inline and multiplied by its sign, takes half as long as a call or a branch.
    """
    lanes, apart = layout[1], layout[5]
    gathered = np.zeros((BATCH, 2 * lanes + LINE), x.dtype)  # a line more: rows fall into different sets of a cache
    items, places = np.empty(BATCH, np.int32), np.empty((HASHES, BATCH), np.int32)
    for start in range(0, apart, BATCH):
        count = min(BATCH, apart - start)
        for t in range(lanes):
            values = x[t * apart + start : t * apart + start + count]
            if values.size == BATCH:
                for k in range(BATCH):
                    gathered[k, t] = values[k]
            else:
                for k in range(count):
                    gathered[k, t] = values[k] if k < values.size else x.dtype.type(0)
        for k in range(count):
            items[k] = start + k
            for t in range(lanes):
                gathered[k, lanes + t] = gathered[k, t]
        find_places(items, count, layout, places)
        for k in range(count):
            for j in range(HASHES):
                begin = np.int64(_at(places[j, k]))
                turned = _below(np.uint32(begin), lanes)
                first, other = begin - turned, lanes - turned
                sign = x.dtype.type(1 | (places[j, k] >> 31))
                for t in range(lanes):
                    cells[np.uint64(first + t)] += gathered[k, np.uint64(other + t)] * sign


@_jit
def _not_zero(x, start, near):
    """Write the places of the nonzeros among the next `near.size` elements; returns how many.

    Without a branch: where nonzeros are neither rare nor frequent, a processor guesses one in three wrong.
    """
    count = 0
    for i in range(start, min(start + near.size, x.size)):
        near[count] = i
        count += x[i] != 0
    return count


@_jit
def _held(bits, start, n, near):
    """The same for the bits of an index; `start` is a multiple of 8."""
    count = 0
    for byte in range(start >> 3, (min(start + near.size, n) + 7) >> 3):
        word = np.int64(bits[byte])
        for k in range(8):
            near[count] = 8 * byte + k
            count += (word >> k) & 1
    while count and near[count - 1] >= n:
        count -= 1
    return count


@_jit
def add_items(cells, x, layout):
    """The same element by element, without the zeros: for layouts of few lanes.

    Nonzeros are gathered first, so that what follows has no branch and many cells are on their way at once.
    """
    near, places = np.empty(NEAR, np.int32), np.empty((HASHES, NEAR), np.int32)
    for start in range(0, x.size, NEAR):
        count = _not_zero(x, start, near)
        find_places(near, count, layout, places)
        for j in range(HASHES):
            for k in range(count):
                cells[_at(places[j, k])] += x[near[k]] * x.dtype.type(1 | (places[j, k] >> 31))


@_jit
def pack_bits(x, packed):
    """One bit per element, least significant first: set if the element is nonzero."""
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
    """Four bits per element, two per byte: 1 if the element is nonzero."""
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
def count_items(state, bits, n, layout):
    """Count the items of each cell, and add up their numbers; returns the number of items.

    Both are one word and one addition: the count below, and above it the sum modulo 2^32, which is the item itself
    where there is one. Counts are of 32 bits: the 8 of the public code overflow unseen above 255 items in one cell.
    """
    near, places = np.empty(NEAR, np.int32), np.empty((HASHES, NEAR), np.int32)
    items = 0
    for start in range(0, n, NEAR):
        count = _held(bits, start, n, near)
        items += count
        find_places(near, count, layout, places)
        for j in range(HASHES):
            for k in range(count):
                state[_at(places[j, k])]["tally"] += (np.int64(near[k]) << 32) + 1
    return items


@_jit
def _look_at(state, places, count):
    """Touch the cells of a batch: waiting for all of them at once is several times as fast as one after the other."""
    seen = np.int64(0)
    for j in range(HASHES):
        for k in range(count):
            seen ^= state[_at(places[j, k])]["tally"]
    return seen


@_jit
def peel(state, out, layout, queue):
    """Recover every item that can be recovered; returns how many, the rounds of a parallel peel, and a dummy.

    A cell of one item gives that item away; taking it out of its other cells may leave one item there. A cell
    comes to one item at most once, so that the queue never holds more than all cells; the place after them is written
    to without being used. The dummy is what looking at the cells beforehand found, so that it is not optimized away.
    """
    items, places = np.empty(BATCH, np.int32), np.empty((HASHES, BATCH), np.int32)
    end = 0
    for cell in range(state.size):
        queue[end] = cell
        end += state[cell]["tally"] & ONES == 1
    recovered = rounds = begin = 0
    seen = np.int64(0)
    while begin < end:
        last = end
        before = recovered
        while begin < last:
            count = min(BATCH, last - begin)
            for k in range(count):
                items[k] = state[queue[begin + k]]["tally"] >> 32
            find_places(items, count, layout, places)
            seen ^= _look_at(state, places, count)
            for k in range(count):
                cell = np.int64(queue[begin + k])
                if state[cell]["tally"] & ONES != 1:
                    continue
                i = np.int64(items[k])
                negative = (places[0, k] == ~cell) | (places[1, k] == ~cell) | (places[2, k] == ~cell)
                value = state[cell]["value"] * out.dtype.type(1 - 2 * negative)
                out[i] = value
                recovered += 1
                for j in range(HASHES):
                    other = _at(places[j, k])
                    state[other]["value"] -= value * out.dtype.type(1 | (places[j, k] >> 31))
                    state[other]["tally"] -= (i << 32) + 1
                    queue[end] = other
                    end += state[other]["tally"] & ONES == 1
            begin += count
        rounds += recovered > before
    return recovered, rounds, seen


@_jit
def median_of_three(state, bits, n, out, layout):
    """Guess the items that are left from the middle one of their three cells."""
    near, places = np.empty(NEAR, np.int32), np.empty((HASHES, NEAR), np.int32)
    guess = np.empty(HASHES, out.dtype)
    for start in range(0, n, NEAR):
        count = _held(bits, start, n, near)
        find_places(near, count, layout, places)
        for k in range(count):
            left = True
            for j in range(HASHES):
                cell = _at(places[j, k])
                guess[j] = state[cell]["value"] * out.dtype.type(1 | (places[j, k] >> 31))
                left = left and state[cell]["tally"] & ONES > 0
            if left:
                low, high = min(guess[0], guess[1]), max(guess[0], guess[1])
                out[near[k]] = max(low, min(high, guess[2]))
