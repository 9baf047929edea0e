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

import numpy as np

from sim.engine.compile.door import count_leading_zeros, count_trailing_zeros, helper, section
from sim.engine.core.state import BLOCK, DIGIT, LEVELS, OPEN, RADIX, SIZES, SLOTS, WORDS
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
    run = state.run
    width = run.width
    if time < run.now_ps:
        run.past = 1
    differs = (time ^ run.now_ps) >> width
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
    return np.int64(program.route_hop[max(place >> 32, 0)])


@helper
def size_of(place):
    """Chunk size of a place."""
    return place & (SIZES - 1)


@helper
def append(state, slot):
    """Make room for one more event in a slot; returns its index."""
    run = state.run
    its = state.slots[slot]
    count = its.count
    its.count = count + 1
    within = count & (BLOCK - 1)
    if within == 0:
        block = run.free_block
        run.free_block = np.int64(state.next_block[block])
        run.blocks -= 1
        state.next_block[block] = its.block
        its.block = block
        return block * BLOCK
    return its.block * BLOCK + within


@helper
def _store(state, time, key, place, differs):
    """Put an event into the slot of the highest digit in which its bucket differs from the open one."""
    level = (63 - count_leading_zeros(differs | 1)) // DIGIT
    digit = (time >> (state.run.width + DIGIT * level)) & (SLOTS - 1)
    state.occupied[level * WORDS + (digit >> 6)] |= BIT[digit & 63]
    _set(state, append(state, level * SLOTS + digit), time, key, place)


@helper
def _set(state, event, time, key, place):
    its = state.events[event]
    its.time_ps, its.key, its.place = time, key, place


@helper
def _put_late(state, word):
    """Put a word into the heap of late events."""
    late = state.late
    at = state.run.late
    state.run.late = at + 1
    while at > 0 and late[(at - 1) >> 1] > word:
        late[at] = late[(at - 1) >> 1]
        at = (at - 1) >> 1
    late[at] = word


@helper
def _take_late(state):
    """Take the least word out of the heap of late events."""
    late = state.late
    least = late[0]
    count = state.run.late - 1
    state.run.late = count
    word = late[count]
    at = np.int64(0)
    below = np.int64(1)
    while below < count:
        if below + 1 < count and late[below + 1] < late[below]:
            below += 1
        if late[below] >= word:
            break
        late[at] = late[below]
        at = below
        below = 2 * at + 1
    late[at] = word
    return least


@helper
def take(state):
    """Take an entry that is due now out of the open bucket; NONE where there is none left."""
    run = state.run
    offset = run.now_ps & ((np.int64(1) << run.width) - 1)
    happened = run.happened
    if happened < run.opened and state.order[happened] >> 32 == offset:
        run.happened = happened + 1
        return state.order[happened] & _ENTRY
    if run.late > 0 and state.late[0] >> 32 == offset:
        return _take_late(state) & _ENTRY
    return np.int64(-1)


@helper
def _first_word(state):
    """The word, of 64 slots, with the first filled slot: nothing waits below the present's own."""
    word = ((state.run.now_ps >> state.run.width) & (SLOTS - 1)) >> 6
    while word < LEVELS * WORDS and state.occupied[word] == 0:
        word += 1
    return word


@helper
def _first_time(state, level, digit):
    """When a slot begins: the digits above its own are those of the present, what is below it is zero."""
    shift = state.run.width + DIGIT * level
    return (((state.run.now_ps >> shift) & ~np.int64(SLOTS - 1)) | np.int64(digit)) << shift


@helper
def _next_open(state):
    """The next event of the open bucket."""
    run, offset = state.run, np.int64(_ENTRY)
    if run.happened < run.opened:
        offset = state.order[run.happened] >> 32
    if run.late > 0:
        offset = min(offset, state.late[0] >> 32)
    return ((run.now_ps >> run.width) << run.width) | offset


@section
def advance(program, state, until_ps):
    """Move the present to the next event.

    Returns FINISHED, PAUSED when the next event lies after `until_ps`, STUCK when there is none, NEEDS_TOKENS, or
    OUT_OF_ORDER when an event was put into the past.
    """
    run = state.run
    if run.past != 0:
        return OUT_OF_ORDER
    while run.happened == run.opened and run.late == 0:
        if run.moving != NONE:
            if not _move_down(state, run.moving):
                return NEEDS_TOKENS
            run.moving = NONE
        word = _first_word(state)
        if word == LEVELS * WORDS:
            return STUCK
        level, digit = word // WORDS, (word % WORDS) * 64 + count_trailing_zeros(state.occupied[word])
        present = _first_time(state, level, digit)
        if present > until_ps:
            return PAUSED
        slot = level * SLOTS + digit
        if level == 0 and state.slots[slot].count > state.order.size:
            return NEEDS_TOKENS
        run.now_ps = present
        state.occupied[word] &= ~BIT[digit & 63]
        if level == 0:
            _open(program, state, slot)
        else:
            run.moving = slot
    present = _next_open(state)
    if present > until_ps:
        return PAUSED
    run.now_ps = present
    return FINISHED


@helper
def _give_back(state, block):
    """Give a block back; returns the one behind it in its slot."""
    run = state.run
    after = np.int64(state.next_block[block])
    state.next_block[block] = run.free_block
    run.free_block = block
    run.blocks += 1
    return after


@helper
def _move_down(state, slot):
    """Store the events of a slot again, now that the present is at its start. Returns False where there is no room."""
    count, block = state.slots[slot].count, state.slots[slot].block
    # The last event of a block is read before the block is given back and may be written to.
    while count > 0 and state.run.blocks > 0:
        count -= 1
        its = state.events[block * BLOCK + (count & (BLOCK - 1))]
        time, key, place = its.time_ps, its.key, its.place
        if count & (BLOCK - 1) == 0:
            block = _give_back(state, block)
        _store(state, time, key, place, (time ^ state.run.now_ps) >> state.run.width)
    state.slots[slot].count, state.slots[slot].block = count, block
    return count == 0


@helper
def _open(program, state, slot):
    """Open a bucket: sort its events, and replace the time of each, which `order` now has, by the kind of its hop."""
    run = state.run
    count, block = state.slots[slot].count, state.slots[slot].block
    state.slots[slot].count = 0
    left, old = state.slots[OPEN].count, state.slots[OPEN].block
    while left > 0:
        old = _give_back(state, old)
        left -= BLOCK
    state.slots[OPEN].block = block
    state.slots[OPEN].count = count
    mask = (np.int64(1) << run.width) - 1
    least, most, in_order, following = mask, np.int64(0), True, mask
    for left in range(count, 0, -1):
        # Blocks are listed from the last, so this leaves the events in the order in which they came.
        within = (left - 1) & (BLOCK - 1)
        event = block * BLOCK + within
        offset = state.events[event].time_ps & mask
        state.events[event].time_ps = hop_of(program, state.events[event].place)
        state.order[left - 1] = (offset << 32) | event
        least, most = min(least, offset), max(most, offset)
        in_order = in_order and offset <= following
        following = offset
        if within == 0:
            block = np.int64(state.next_block[block])
    run.opened = count
    run.spare = NONE
    run.happened = 0
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
        word = words[i]
        at = i
        while at > 0 and order[at - 1] > word | _ENTRY:
            order[at] = order[at - 1]
            at -= 1
        order[at] = word


@helper
def _spread(state, count, least, most):
    """Lay out words in `other` by the eight highest bits in which their offsets, from `least` to `most`, can differ."""
    shift = 32 + max(56 - count_leading_zeros((most - least) | 1), np.int64(0))
    _deal(state.digit, state.order, state.other, count, least << 32, shift)


@helper
def _deal(digit, order, other, count, first, shift):
    """Lay out words by a digit; what has the same stays in order."""
    for i in range(RADIX):
        digit[i] = 0
    for i in range(count):
        digit[((order[i] - first) >> shift) & (RADIX - 1)] += 1
    total = 0
    for i in range(RADIX):
        total, digit[i] = total + digit[i], total
    for i in range(count):
        word = order[i]
        at = ((word - first) >> shift) & (RADIX - 1)
        other[digit[at]] = word
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
            state.order[i] = state.other[i]
