"""The calendar: where the events of the fifo loop wait for their time.

An event is three words that refer to nothing else:

    TIME    when it happens
    KEY     (class, chunk, hop, task), the order of the contract among events of one time, in one number
    PLACE   index of its hop in the routes (NONE: delivery), and its row of the service table

Time is cut into buckets of 2^WIDTH ps. Buckets are the slots of the lowest level of a wheel; a slot of a higher level
spans as much as all slots of the level below it. A slot is a list of blocks of BLOCK events, the first of them partly
filled, so that events are written and read in rows:

    slot -> | e e e . | -> | e e e e | -> | e e e e |

A time as digits, and where an event waits that is due at it (`now` and `due` first differ in digit 1):

    digit     ... 2          1               0         offset in the bucket
    now     | ... 0 | 0000000000101 | 0001100000000 |  010 ... 1
    due     | ... 0 | 0000000001001 | 0000000000111 |  111 ... 0               level 1, slot 9

Invariant: on a level only slots above the present's digit are filled, and all of level L is earlier than all of level
L + 1. The first filled slot has the next events. On level 0 it is opened: `order` then has a word for each of its
events, offset and index, sorted. From a higher level its events move to the levels below. An event that becomes due in
the open bucket is late: its word goes into a heap.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import count_leading_zeros, count_trailing_zeros, helper, section, u64
from sim.engine.core.state import (
    BLOCK,
    BLOCKS,
    DIGIT,
    EVENT_WORDS,
    FREE,
    HAPPENED,
    KEY,
    LATE,
    LEVELS,
    MOVING,
    NOW,
    OPEN,
    OPENED,
    PAST,
    PLACE,
    RADIX,
    SIZES,
    SLOTS,
    SPARE,
    TIME,
    WIDTH,
    WORDS,
)
from sim.engine.core.status import FINISHED, NEEDS_TOKENS, NONE, OUT_OF_ORDER, PAUSED, STUCK

BIT = np.array([1 << i for i in range(63)] + [-(1 << 63)], np.int64)
_ENTRY = (1 << 32) - 1
_FEW, _MANY = 32, 512
"""Events of a bucket that are sorted by insertion, and by insertion once they lie nearly as they should."""


@helper
def put(program, state, time, key, place, event):
    """Let an event happen at a later time; in the open bucket it reuses the place of `event`, unless that is NONE.

    A time before the present would never come: `advance` then ends the run with OUT_OF_ORDER.
    """
    register = state.register
    width = register[WIDTH]
    if time < register[NOW]:
        register[PAST] = 1
    differs = (time ^ register[NOW]) >> width
    if differs == 0:
        if event == NONE:
            event = append(state, OPEN)
        _set(state, event, hop_of(program, place), key, place)
        _put_late(state, ((time & ((np.int64(1) << width) - 1)) << 32) | event)
    else:
        _store(state, time, key, place, differs)


@helper
def hop_of(program, place):
    """Kind of the hop of a place; for a delivery any, which is not used."""
    return np.int64(program.route_hop[u64(max(place >> 32, 0))])


@helper
def size_of(place):
    """Chunk size of a place."""
    return place & (SIZES - 1)


@helper
def append(state, slot):
    """Make room for one more event in a slot; returns its index."""
    register, slots = state.register, state.slot
    count = np.int64(slots[u64(2 * slot + 1)])
    slots[u64(2 * slot + 1)] = count + 1
    within = count & (BLOCK - 1)
    if within == 0:
        block = register[FREE]
        register[FREE] = state.next_block[u64(block)]
        register[BLOCKS] -= 1
        state.next_block[u64(block)] = slots[u64(2 * slot)]
        slots[u64(2 * slot)] = block
        return block * BLOCK
    return slots[u64(2 * slot)] * np.int64(BLOCK) + within


@helper
def _store(state, time, key, place, differs):
    """Put an event into the slot of the highest digit in which its bucket differs from the open one."""
    level = (63 - count_leading_zeros(differs | 1)) // DIGIT
    digit = (time >> (state.register[WIDTH] + DIGIT * level)) & (SLOTS - 1)
    state.occupied[u64(level * WORDS + (digit >> 6))] |= BIT[u64(digit & 63)]
    _set(state, append(state, level * SLOTS + digit), time, key, place)


@helper
def _set(state, event, time, key, place):
    state.event[u64(EVENT_WORDS * event + TIME)] = time
    state.event[u64(EVENT_WORDS * event + KEY)] = key
    state.event[u64(EVENT_WORDS * event + PLACE)] = place


@helper
def _put_late(state, word):
    """Put a word into the heap of late events."""
    late = state.late
    at = state.register[LATE]
    state.register[LATE] = at + 1
    while at > 0 and late[u64((at - 1) >> 1)] > word:
        late[u64(at)] = late[u64((at - 1) >> 1)]
        at = (at - 1) >> 1
    late[u64(at)] = word


@helper
def _take_late(state):
    """Take the least word out of the heap of late events."""
    late = state.late
    least = late[0]
    count = state.register[LATE] - 1
    state.register[LATE] = count
    word = late[u64(count)]
    at = np.int64(0)
    below = np.int64(1)
    while below < count:
        if below + 1 < count and late[u64(below + 1)] < late[u64(below)]:
            below += 1
        if late[u64(below)] >= word:
            break
        late[u64(at)] = late[u64(below)]
        at = below
        below = 2 * at + 1
    late[u64(at)] = word
    return least


@helper
def take(state):
    """Take an entry that is due now out of the open bucket; NONE where there is none left."""
    register = state.register
    offset = register[NOW] & ((np.int64(1) << register[WIDTH]) - 1)
    happened = register[HAPPENED]
    if happened < register[OPENED] and state.order[u64(happened)] >> 32 == offset:
        register[HAPPENED] = happened + 1
        return state.order[u64(happened)] & _ENTRY
    if register[LATE] > 0 and state.late[0] >> 32 == offset:
        return _take_late(state) & _ENTRY
    return np.int64(-1)


@helper
def _first_word(state):
    """The word, of 64 slots, with the first filled slot: nothing waits below the present's own."""
    word = ((state.register[NOW] >> state.register[WIDTH]) & (SLOTS - 1)) >> 6
    while word < LEVELS * WORDS and state.occupied[u64(word)] == 0:
        word += 1
    return word


@helper
def _digit(state, word):
    """The first filled slot of a word, within its level."""
    return (word % WORDS) * 64 + count_trailing_zeros(state.occupied[u64(word)])


@helper
def _first_time(state, level, digit):
    """When a slot begins: the digits above its own are those of the present, what is below it is zero."""
    shift = state.register[WIDTH] + DIGIT * level
    return (((state.register[NOW] >> shift) & ~np.int64(SLOTS - 1)) | np.int64(digit)) << shift


@helper
def _next_open(state):
    """The next event of the open bucket."""
    register, offset = state.register, np.int64(_ENTRY)
    if register[HAPPENED] < register[OPENED]:
        offset = state.order[u64(register[HAPPENED])] >> 32
    if register[LATE] > 0:
        offset = min(offset, state.late[0] >> 32)
    return ((register[NOW] >> register[WIDTH]) << register[WIDTH]) | offset


@section
def advance(program, state, until_ps):
    """Move the present to the next event.

    Returns FINISHED, PAUSED when the next event lies after `until_ps`, STUCK when there is none, NEEDS_TOKENS, or
    OUT_OF_ORDER when an event was put into the past.
    """
    register = state.register
    if register[PAST] != 0:
        return OUT_OF_ORDER
    while register[HAPPENED] == register[OPENED] and register[LATE] == 0:
        if register[MOVING] != NONE:
            if not _move_down(state, register[MOVING]):
                return NEEDS_TOKENS
            register[MOVING] = NONE
        word = _first_word(state)
        if word == LEVELS * WORDS:
            return STUCK
        level, digit = word // WORDS, _digit(state, word)
        present = _first_time(state, level, digit)
        if present > until_ps:
            return PAUSED
        slot = level * SLOTS + digit
        if level == 0 and state.slot[u64(2 * slot + 1)] > state.order.size:
            return NEEDS_TOKENS
        register[NOW] = present
        state.occupied[u64(word)] &= ~BIT[u64(digit & 63)]
        if level == 0:
            _open(program, state, slot)
        else:
            register[MOVING] = slot
    present = _next_open(state)
    if present > until_ps:
        return PAUSED
    register[NOW] = present
    return FINISHED


@helper
def _give_back(state, block):
    """Give a block back; returns the one behind it in its slot."""
    register = state.register
    after = np.int64(state.next_block[u64(block)])
    state.next_block[u64(block)] = register[FREE]
    register[FREE] = block
    register[BLOCKS] += 1
    return after


@helper
def _move_down(state, slot):
    """Store the events of a slot again, now that the present is at its start. Returns False where there is no room."""
    count, block = np.int64(state.slot[u64(2 * slot + 1)]), np.int64(state.slot[u64(2 * slot)])
    # The last event of a block is read before the block is given back and may be written to.
    while count > 0 and state.register[BLOCKS] > 0:
        count -= 1
        at = EVENT_WORDS * (block * BLOCK + (count & (BLOCK - 1)))
        time, key, place = state.event[u64(at)], state.event[u64(at + 1)], state.event[u64(at + 2)]
        if count & (BLOCK - 1) == 0:
            block = _give_back(state, block)
        _store(state, time, key, place, (time ^ state.register[NOW]) >> state.register[WIDTH])
    state.slot[u64(2 * slot + 1)], state.slot[u64(2 * slot)] = count, block
    return count == 0


@helper
def _open(program, state, slot):
    """Open a bucket: sort its events, and replace the time of each, which `order` now has, by the kind of its hop."""
    register = state.register
    count, block = np.int64(state.slot[u64(2 * slot + 1)]), np.int64(state.slot[u64(2 * slot)])
    state.slot[u64(2 * slot + 1)] = 0
    left, old = state.slot[u64(2 * OPEN + 1)], np.int64(state.slot[u64(2 * OPEN)])
    while left > 0:
        old = _give_back(state, old)
        left -= BLOCK
    state.slot[u64(2 * OPEN)] = block
    state.slot[u64(2 * OPEN + 1)] = count
    mask = (np.int64(1) << register[WIDTH]) - 1
    least, most, in_order, following = mask, np.int64(0), True, mask
    for left in range(count, 0, -1):
        # Blocks are listed from the last, so this leaves the events in the order in which they came.
        within = (left - 1) & (BLOCK - 1)
        event = block * BLOCK + within
        offset = state.event[u64(EVENT_WORDS * event + TIME)] & mask
        state.event[u64(EVENT_WORDS * event + TIME)] = hop_of(program, state.event[u64(EVENT_WORDS * event + PLACE)])
        state.order[u64(left - 1)] = (offset << 32) | event
        least, most = min(least, offset), max(most, offset)
        in_order = in_order and offset <= following
        following = offset
        if within == 0:
            block = np.int64(state.next_block[u64(block)])
    register[OPENED] = count
    register[SPARE] = NONE
    register[HAPPENED] = 0
    if not in_order:
        if count <= _FEW:
            _insert(state.order, state.order, count)
        elif count <= _MANY:
            _spread(state, count, least, most)
            _insert(state.other, state.order, count)
        else:
            _radix(state, count, least, most)


@helper
def _insert(words, order, count):
    """Sort words by insertion, by their offsets alone: `order` may be the same array."""
    for i in range(count):
        word = words[u64(i)]
        at = i
        while at > 0 and order[u64(at - 1)] > word | _ENTRY:
            order[u64(at)] = order[u64(at - 1)]
            at -= 1
        order[u64(at)] = word


@helper
def _spread(state, count, least, most):
    """Lay out words in `other` by the eight highest bits in which their offsets, from `least` to `most`, can differ."""
    shift = 32 + max(56 - count_leading_zeros((most - least) | 1), np.int64(0))
    _deal(state.digit, state.order, state.other, count, least << 32, shift)


@helper
def _deal(digit, order, other, count, first, shift):
    """Lay out words by a digit; what has the same stays in order."""
    for i in range(RADIX):
        digit[u64(i)] = 0
    for i in range(count):
        digit[u64(((order[u64(i)] - first) >> shift) & (RADIX - 1))] += 1
    total = 0
    for i in range(RADIX):
        total, digit[u64(i)] = total + digit[u64(i)], total
    for i in range(count):
        word = order[u64(i)]
        at = u64(((word - first) >> shift) & (RADIX - 1))
        other[u64(digit[at])] = word
        digit[at] += 1


@helper
def _radix(state, count, least, most):
    """Sort many words by their offsets, from `least` to `most`, digit by digit."""
    digit, order, other = state.digit, state.order, state.other
    first = least << 32
    shift = np.int64(32)
    while (most - least) >> (shift - 32) > 0:
        _deal(digit, order, other, count, first, shift)
        order, other = other, order
        shift += 8
    if ((shift - 32) >> 3) & 1:
        for i in range(count):
            state.order[u64(i)] = state.other[u64(i)]
