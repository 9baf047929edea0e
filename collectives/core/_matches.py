"""Blocks matched with lanes over time, in compiled code: which block each free lane takes, event by event.

Sets are rows of 64-bit words, one bit a block. Two heaps share one layout, parallel arrays with the least key at 0:
what is in flight by (time, lane), and the free lanes that can send by (cost, draw, lane), so that lanes that deliver
soonest choose first and equal ones in random order. Random numbers come in a buffer; when it is used up the search
returns, and goes on where it was once Python has refilled it: all of its state is in arrays.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._jit import ONE, entry, helper

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOW, READY, ABLE, FLYING, MATCHES, DRAWN, REGISTERS = range(7)
"""Time in ps; lanes in `ready`, in the heap `able` and in the heap `flying`; matches found; random numbers used."""


class Lanes(NamedTuple):
    """What blocks travel on."""

    # src, dst, cost_ps: (n_lanes,)
    src: Ints
    dst: Ints
    cost_ps: Ints
    # ptr, leaving: (n_npus + 1,), (n_lanes,): lanes that leave NPU i are `leaving[ptr[i]:ptr[i + 1]]`
    ptr: Ints
    leaving: Ints


class Heap(NamedTuple):
    """Lanes by key, draw and number; all arrays are (n_lanes,)."""

    key: Ints
    draw: Floats
    lane: Ints


class Search(NamedTuple):
    """What a search knows, and what it has found."""

    # held, missing: (n_npus, words): blocks that each NPU has; blocks that it neither has nor is being sent
    held: Ints
    missing: Ints
    holders: Ints  # (n_blocks,): NPUs that have each block, or are being sent it
    # free, is_ready: (n_lanes,): lanes with nothing in flight; lanes in `ready`
    free: Bools
    is_ready: Bools
    # block, ready: (n_lanes,): block in flight on each lane; lanes that may have become able to send
    block: Ints
    ready: Ints
    able: Heap
    flying: Heap
    draws: Floats  # (n,): random numbers in [0, 1), at least as many as lanes and as blocks
    # found_lane, found_block, found_ps: (n_matches,): matches in the order of their start, with its time
    found_lane: Ints
    found_block: Ints
    found_ps: Ints
    at: Ints  # (REGISTERS,)


@helper
def _before(key, draw, lane, heap, at):  # type: ignore[no-untyped-def]  # jitted
    if key != heap.key[at]:
        return key < heap.key[at]
    return draw < heap.draw[at] or (draw == heap.draw[at] and lane < heap.lane[at])


@helper
def _place(heap, at, key, draw, lane):  # type: ignore[no-untyped-def]  # jitted
    heap.key[at], heap.draw[at], heap.lane[at] = key, draw, lane


@helper
def _push(heap, size, key, draw, lane):  # type: ignore[no-untyped-def]  # jitted
    """Add an entry to a heap of this size."""
    at = size
    while at > 0 and _before(key, draw, lane, heap, (at - 1) >> 1):
        above = (at - 1) >> 1
        _place(heap, at, heap.key[above], heap.draw[above], heap.lane[above])
        at = above
    _place(heap, at, key, draw, lane)


@helper
def _pop(heap, size):  # type: ignore[no-untyped-def]  # jitted
    """Remove the least entry of a heap of this size; returns its lane."""
    least, last = heap.lane[0], size - 1
    key, draw, lane = heap.key[last], heap.draw[last], heap.lane[last]
    at, below = 0, 1
    while below < last:
        if below + 1 < last and _before(heap.key[below + 1], heap.draw[below + 1], heap.lane[below + 1], heap, below):
            below += 1
        if not _before(heap.key[below], heap.draw[below], heap.lane[below], heap, last):
            break
        _place(heap, at, heap.key[below], heap.draw[below], heap.lane[below])
        at, below = below, 2 * below + 1
    _place(heap, at, key, draw, lane)
    return least


@helper
def _can_send(s, src, dst):  # type: ignore[no-untyped-def]  # jitted
    for word in range(s.held.shape[1]):  # noqa: SIM110  # any() of a generator does not compile
        if s.held[src, word] & s.missing[dst, word]:
            return True
    return False


@helper
def _choose(lanes, s):  # type: ignore[no-untyped-def]  # jitted
    """Draw for each lane that is ready, and keep those that can send."""
    for place in range(s.at[READY]):
        lane = s.ready[place]
        draw = s.draws[s.at[DRAWN]]
        s.at[DRAWN] += 1
        s.is_ready[lane] = False
        if s.free[lane] and _can_send(s, lanes.src[lane], lanes.dst[lane]):
            _push(s.able, s.at[ABLE], lanes.cost_ps[lane], draw, lane)
            s.at[ABLE] += 1
    s.at[READY] = 0


@helper
def _rarest(s, src, dst):  # type: ignore[no-untyped-def]  # jitted
    """A block that one NPU has and another is missing: held by fewest, at random among equals."""
    best, least = -1, 0.0
    for word in range(s.held.shape[1]):
        wanted = s.held[src, word] & s.missing[dst, word]
        if wanted == 0:
            continue
        for bit in range(64):
            if (wanted >> bit) & 1 == 1:
                block = (word << 6) + bit
                rank = s.holders[block] + s.draws[s.at[DRAWN]]
                s.at[DRAWN] += 1
                if best < 0 or rank < least:
                    best, least = block, rank
    return best


@helper
def _send(lanes, s, lane, block):  # type: ignore[no-untyped-def]  # jitted
    s.missing[lanes.dst[lane], block >> 6] &= ~(ONE << (block & 63))
    s.free[lane] = False
    s.holders[block] += 1
    s.block[lane] = block
    found = s.at[MATCHES]
    s.found_lane[found], s.found_block[found], s.found_ps[found] = lane, block, s.at[NOW]
    s.at[MATCHES] += 1
    _push(s.flying, s.at[FLYING], s.at[NOW] + lanes.cost_ps[lane], 0.0, lane)
    s.at[FLYING] += 1


@helper
def _make_ready(s, lane):  # type: ignore[no-untyped-def]  # jitted
    if not s.is_ready[lane]:
        s.is_ready[lane] = True
        s.ready[s.at[READY]] = lane
        s.at[READY] += 1


@helper
def _arrive(lanes, s):  # type: ignore[no-untyped-def]  # jitted
    """Deliver what arrives next, all of one time: its lane is free, and its receiver may have more to send."""
    s.at[NOW] = s.flying.key[0]
    while s.at[FLYING] > 0 and s.flying.key[0] == s.at[NOW]:
        lane = _pop(s.flying, s.at[FLYING])
        s.at[FLYING] -= 1
        block, dst = s.block[lane], lanes.dst[lane]
        s.held[dst, block >> 6] |= ONE << (block & 63)
        s.free[lane] = True
        _make_ready(s, lane)
        for place in range(lanes.ptr[dst], lanes.ptr[dst + 1]):
            _make_ready(s, lanes.leaving[place])


@entry
def search(lanes, s):  # type: ignore[no-untyped-def]  # jitted
    """Go on until nothing is in flight (True), or until random numbers may run out (False).

    `s`: at first every lane is ready.
    """
    while True:
        if s.at[READY] > 0:
            if s.at[DRAWN] + s.at[READY] > len(s.draws):
                return False
            _choose(lanes, s)
        while s.at[ABLE] > 0:
            if s.at[DRAWN] + len(s.holders) > len(s.draws):
                return False
            lane = _pop(s.able, s.at[ABLE])
            s.at[ABLE] -= 1
            block = _rarest(s, lanes.src[lane], lanes.dst[lane])
            if block >= 0:
                _send(lanes, s, lane, block)
        if s.at[FLYING] == 0:
            return True
        _arrive(lanes, s)


DRAWS = 1 << 15
"""Random numbers drawn at a time, or twice as many as one choice takes; progress is reported between two draws."""


class Matches(NamedTuple):
    """Blocks on lanes, in the order of their start; all arrays are (n_matches,) int64."""

    lane: Ints
    block: Ints
    start_ps: Ints
    end_ps: Ints


def match(
    n: int, n_blocks: int, lanes: Lanes, rng: "np.random.Generator", tell: Callable[[int], None]
) -> Matches:
    """Send every block to all NPUs: whenever a lane is free, the rarest block that its end lacks.

    Block b starts at NPU b modulo n. Where an NPU cannot be reached, there are fewer than n_blocks * (n - 1) matches.

    `tell`: called with the number of matches, from time to time.
    """
    s = _nothing_sent(n, n_blocks, lanes.src.size)
    left, done = s.draws[:0], False
    while not done:
        s.draws[: left.size] = left
        rng.random(out=s.draws[left.size :])
        s.at[DRAWN] = 0
        done = search(lanes, s)
        left = s.draws[s.at[DRAWN] :].copy()
        tell(int(s.at[MATCHES]))
    lane, block, start = (found[: s.at[MATCHES]] for found in (s.found_lane, s.found_block, s.found_ps))
    return Matches(lane, block, start, start + lanes.cost_ps[lane])


def lanes_in_order(n: int, ends: Sequence[tuple[int, int]] | Ints, costs_ps: Sequence[int] | Ints) -> Lanes:
    """Lanes by their sources and destinations, and the time that a block takes on each, at least 1."""
    src, dst = np.array(ends, np.int64).reshape(-1, 2).T.copy()
    ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(src, minlength=n))))
    return Lanes(src, dst, np.array(costs_ps, np.int64), ptr, np.argsort(src, kind="stable"))


def _nothing_sent(n: int, n_blocks: int, n_lanes: int) -> Search:
    """The state before the search."""
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lane, block, start = (np.empty(n_blocks * (n - 1), np.int64) for _ in range(3))
    able, flying = (Heap(np.empty(n_lanes, np.int64), np.empty(n_lanes), np.empty(n_lanes, np.int64)) for _ in range(2))
    at = np.zeros(REGISTERS, np.int64)
    at[READY] = n_lanes
    return Search(
        held=_bits(holds),
        missing=_bits(~holds),
        holders=np.ones(n_blocks, np.int64),
        free=np.ones(n_lanes, np.bool_),
        is_ready=np.ones(n_lanes, np.bool_),
        block=np.empty(n_lanes, np.int64),
        ready=np.arange(n_lanes),
        able=able,
        flying=flying,
        draws=np.empty(max(DRAWS, 2 * n_lanes, 2 * n_blocks)),
        found_lane=lane,
        found_block=block,
        found_ps=start,
        at=at,
    )


def _bits(rows: npt.NDArray[np.bool_]) -> Ints:
    """Rows of words: block b is bit b % 64 of word b // 64."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 64) * 64), np.bool_)
    padded[:, : rows.shape[1]] = rows
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64)
