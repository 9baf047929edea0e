"""Blocks matched with lanes over time, in compiled code: which block each free lane takes, event by event.

Sets are rows of 64-bit words, one bit a block. What is in flight is in chains of lanes that arrive at one time, and the
chains in a heap by time. Free lanes that can send go by (cost, draw), so that lanes that deliver soonest choose first
and equal ones in random order: each falls into the bucket of its place among all lanes, and into a chain there. Random
numbers come in a buffer; when it is used up the search returns, and goes on where it was once Python has refilled it:
all of its state is in arrays.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._jit import ONE, entry, helper

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOW, READY, BUCKETS, BUCKET, ABLE, FLYING, MATCHES, DRAWN, REGISTERS = range(9)
"""Time in ps; lanes in `ready`; buckets, the one looked at and the lane there that is next, or NONE; chains in flight;
matches found; random numbers used."""

NONE = -1

PLACES = np.array([[len(places), *places, *[0] * (8 - len(places))] for places in (
    [bit for bit in range(8) if byte >> bit & 1] for byte in range(256)
)])
"""(256, 9): how many bits are set in a byte, and which."""


class Lanes(NamedTuple):
    """What blocks travel on."""

    # src, dst, cost_ps: (n_lanes,)
    src: Ints
    dst: Ints
    cost_ps: Ints
    # cheaper, alike: (n_lanes,): lanes that cost less, and as much
    cheaper: Ints
    alike: Ints
    # ptr, leaving: (n_npus + 1,), (n_lanes,): lanes that leave NPU i are `leaving[ptr[i]:ptr[i + 1]]`
    ptr: Ints
    leaving: Ints


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
    # first, draw, after: (n_lanes,): first lane that can send of each bucket; of each lane its draw and the next there
    first: Ints
    draw: Floats
    after: Ints
    # due_ps, head, beside: (n_lanes,): heap of chains in flight, with the first lane of each; the next in its chain
    due_ps: Ints
    head: Ints
    beside: Ints
    # latest, since_ps: (n_lanes,): by lanes that cost less, the first lane of the latest chain, and when it began
    latest: Ints
    since_ps: Ints
    arrived: Ints  # (bytes of lanes,): lanes that arrive now, one bit each
    draws: Floats  # (n,): random numbers in [0, 1), at least as many as lanes and as blocks
    # found_lane, found_block, found_ps: (n_matches,): matches in the order of their start, with its time
    found_lane: Ints
    found_block: Ints
    found_ps: Ints
    at: Ints  # (REGISTERS,)


@helper
def _push(s, due_ps, lane):  # type: ignore[no-untyped-def]  # jitted
    """Add a chain to the heap."""
    at = s.at[FLYING]
    s.at[FLYING] += 1
    while at > 0 and due_ps < s.due_ps[(at - 1) >> 1]:
        above = (at - 1) >> 1
        s.due_ps[at], s.head[at] = s.due_ps[above], s.head[above]
        at = above
    s.due_ps[at], s.head[at] = due_ps, lane


@helper
def _pop(s):  # type: ignore[no-untyped-def]  # jitted
    """Remove the chain that arrives first; returns its first lane."""
    s.at[FLYING] -= 1
    first, last = s.head[0], s.at[FLYING]
    due_ps, lane, at, below = s.due_ps[last], s.head[last], 0, 1
    while below < last:
        if below + 1 < last and s.due_ps[below + 1] < s.due_ps[below]:
            below += 1
        if s.due_ps[below] >= due_ps:
            break
        s.due_ps[at], s.head[at] = s.due_ps[below], s.head[below]
        at, below = below, 2 * below + 1
    s.due_ps[at], s.head[at] = due_ps, lane
    return first


@helper
def _can_send(s, src, dst):  # type: ignore[no-untyped-def]  # jitted
    for word in range(s.held.shape[1]):  # noqa: SIM110  # any() of a generator does not compile
        if s.held[src, word] & s.missing[dst, word]:
            return True
    return False


@helper
def _goes_before(lanes, s, one, other):  # type: ignore[no-untyped-def]  # jitted
    if lanes.cheaper[one] != lanes.cheaper[other]:
        return lanes.cheaper[one] < lanes.cheaper[other]
    return s.draw[one] < s.draw[other]  # no two are equal


@helper
def _choose(lanes, s):  # type: ignore[no-untyped-def]  # jitted
    """Draw for each lane that is ready, and keep those that can send."""
    many = s.at[READY]
    s.at[READY], s.at[BUCKETS], s.at[BUCKET], s.at[ABLE] = 0, many, 0, NONE
    s.first[:many] = NONE
    for place in range(many):
        lane = s.ready[place]
        s.draw[lane] = s.draws[s.at[DRAWN]]
        s.at[DRAWN] += 1
        s.is_ready[lane] = False
        if s.free[lane] and _can_send(s, lanes.src[lane], lanes.dst[lane]):
            share = (lanes.cheaper[lane] + s.draw[lane] * lanes.alike[lane]) / lanes.src.size
            bucket = min(int(share * many), many - 1)
            before, next_lane = NONE, s.first[bucket]
            while next_lane != NONE and _goes_before(lanes, s, next_lane, lane):
                before, next_lane = next_lane, s.after[next_lane]
            s.after[lane] = next_lane
            if before == NONE:
                s.first[bucket] = lane
            else:
                s.after[before] = lane


@helper
def _next_able(s):  # type: ignore[no-untyped-def]  # jitted
    """The next lane that can send, or NONE; it stays the next until it is passed."""
    while s.at[ABLE] == NONE and s.at[BUCKET] < s.at[BUCKETS]:
        s.at[ABLE] = s.first[s.at[BUCKET]]
        s.at[BUCKET] += 1
    return s.at[ABLE]


@helper
def _rarest(s, src, dst):  # type: ignore[no-untyped-def]  # jitted
    """A block that one NPU has and another is missing: held by fewest, at random among equals."""
    best, least = -1, 0.0
    for word in range(s.held.shape[1]):
        wanted = s.held[src, word] & s.missing[dst, word]
        if wanted == 0:
            continue
        for byte in range(8):
            bits = (wanted >> (8 * byte)) & 255
            for place in range(PLACES[bits, 0]):
                block = (word << 6) + 8 * byte + PLACES[bits, 1 + place]
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
    kind = lanes.cheaper[lane]
    first, s.beside[lane] = s.latest[kind], NONE
    if first != NONE and s.since_ps[kind] == s.at[NOW]:
        s.beside[lane], s.beside[first] = s.beside[first], lane
    else:
        s.latest[kind], s.since_ps[kind] = lane, s.at[NOW]
        _push(s, s.at[NOW] + lanes.cost_ps[lane], lane)


@helper
def _make_ready(s, lane):  # type: ignore[no-untyped-def]  # jitted
    if not s.is_ready[lane]:
        s.is_ready[lane] = True
        s.ready[s.at[READY]] = lane
        s.at[READY] += 1


@helper
def _arrive(lanes, s):  # type: ignore[no-untyped-def]  # jitted
    """Deliver what arrives next, all of one time: its lane is free, and its receiver may have more to send."""
    s.at[NOW] = s.due_ps[0]
    while s.at[FLYING] > 0 and s.due_ps[0] == s.at[NOW]:
        lane = _pop(s)
        while lane != NONE:
            s.arrived[lane >> 3] |= 1 << (lane & 7)
            lane = s.beside[lane]
    for byte in range(s.arrived.size):
        bits = s.arrived[byte]
        s.arrived[byte] = 0
        for place in range(PLACES[bits, 0]):
            _deliver(lanes, s, 8 * byte + PLACES[bits, 1 + place])


@helper
def _deliver(lanes, s, lane):  # type: ignore[no-untyped-def]  # jitted
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
        lane = _next_able(s)
        while lane != NONE:
            if s.at[DRAWN] + len(s.holders) > len(s.draws):
                return False
            s.at[ABLE] = s.after[lane]
            block = _rarest(s, lanes.src[lane], lanes.dst[lane])
            if block >= 0:
                _send(lanes, s, lane, block)
            lane = _next_able(s)
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
    cost = np.array(costs_ps, np.int64)
    ordered = np.sort(cost)
    cheaper, most = (np.searchsorted(ordered, cost, side) for side in ("left", "right"))
    ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(src, minlength=n))))
    return Lanes(src, dst, cost, cheaper, most - cheaper, ptr, np.argsort(src, kind="stable"))


def _nothing_sent(n: int, n_blocks: int, n_lanes: int) -> Search:
    """The state before the search."""
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lane, block, start = (np.empty(n_blocks * (n - 1), np.int64) for _ in range(3))
    at = np.zeros(REGISTERS, np.int64)
    at[READY], at[ABLE] = n_lanes, NONE
    first, after, due, head, beside, since = (np.empty(n_lanes, np.int64) for _ in range(6))
    return Search(
        held=_bits(holds),
        missing=_bits(~holds),
        holders=np.ones(n_blocks, np.int64),
        free=np.ones(n_lanes, np.bool_),
        is_ready=np.ones(n_lanes, np.bool_),
        block=np.empty(n_lanes, np.int64),
        ready=np.arange(n_lanes),
        first=first,
        draw=np.empty(n_lanes),
        after=after,
        due_ps=due,
        head=head,
        beside=beside,
        latest=np.full(n_lanes, NONE),
        since_ps=since,
        arrived=np.zeros((n_lanes + 7) // 8, np.int64),
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
