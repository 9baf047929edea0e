"""A schedule among ranks as thread blocks of GPUs, for the writers of programs: what each does, and in which order.

A transfer becomes a send at its source and a receive at its destination for each run of chunks side by side. One
execution is played through, with FIFOs that hold two messages; the order in which sends and receives happen there is
their order in the thread blocks, so that what was possible there can never hang. It is that of the first slice of a
pipeline, which finds all links free: so a thread block serves first what comes first, and in no slice waits for long.

                 one execution                            thread blocks of rank 1
    0->1 chunk 0 |====|                                   from 0: receive 0, receive 1
    1->2 chunk 0      |====|                              to 2:   send 0 (after receive 0), send 1 (after receive 1)
    0->1 chunk 1      |====|

Ranks add in place: where a transfer must not carry what has come meanwhile, its arrival waits for the send. Operation
2 i is the send of piece i, and 2 i + 1 its receive.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule
from collectives.core.transfers import Parents, parents_of
from collectives.formats.msccl_program import (
    KINDS,
    MOST_BLOCKS_OF_CHANNEL,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_PLACES,
    PROTOCOLS,
)
from topologies import WeftError

COLL = {kind: coll for coll, kind in reversed(KINDS.items())}

SLICES = 64
"""Of a block, the first of which is played through; as many chunks suit large arrays, give or take a factor of 4."""

MOST_PIECES = 200_000
"""Limit on runs of chunks that are sent: half a minute."""

Place = tuple[str, int]
"""Buffer, and chunk of it."""


class Piece(NamedTuple):
    """A run of chunks that a transfer carries."""

    row: int
    src: int
    dst: int
    blocks: frozenset[int]
    read: Place  # buffer and first chunk, at the source
    write: Place  # at the destination
    reduces: bool

    def touches(self, sends: bool) -> list[tuple[int, str, int]]:
        """Places that its send reads, or its receive writes."""
        rank, (buffer, first) = (self.src, self.read) if sends else (self.dst, self.write)
        return [(rank, buffer, first + at) for at in range(len(self.blocks))]


class Played(NamedTuple):
    """One execution."""

    pieces: list[Piece]
    order: list[int]  # operations
    p: int


def play(schedule: Schedule, what: str, most_blocks: int, most_run: int = MOST_COUNT) -> Played:
    """One execution of a schedule.

    `what`: for messages.
    `most_blocks`: thread blocks of a rank.
    `most_run`: chunks of a piece.
    WeftError: switches that send; a root other than 0; a collective without a name there; ranks that would have to keep
        apart what they add; more chunks or peers than any runtime takes.
    """
    pattern = schedule.pattern
    if (pattern.n_sources or pattern.p) > pattern.p or pattern.is_unnamed:
        raise WeftError(f"{what}: {'its blocks have no names' if pattern.is_unnamed else 'its switches reduce'}")
    if pattern.kind.weights is not None:
        raise WeftError(f"{what}: its blocks are unequal, and programs have equal chunks")
    if pattern.kind.name not in COLL or pattern.root:
        lacks = f"root {pattern.root}: programs have root 0" if pattern.root else f"no program is a {pattern.kind.name}"
        raise WeftError(f"{what}: {lacks}")
    if pattern.n_blocks * pattern.p > MOST_PLACES:
        raise WeftError(f"{what}: {pattern.n_blocks:,} chunks on {pattern.p} ranks, more than {MOST_PLACES:,} together")
    t = pattern.transfers()
    ends = np.unique(np.stack([t.src, t.dst])[:, t.src != t.dst], axis=1)
    peers = max(int(np.bincount(end).max(initial=0)) for end in ends)
    if peers > most_blocks:
        raise WeftError(f"{what}: {peers} peers of a rank, and {most_blocks} thread blocks are the most of any runtime")
    pieces = list(_pieces(pattern, what, most_run))
    return Played(pieces, _executed(pieces, *_rules(pattern, pieces), schedule, what), pattern.p)


def busiest_s(schedule: Schedule, *, named: bool) -> float:
    """Seconds that the busiest link is busy: on the links that transfers name, or on routes of the fabric."""
    t, topology = schedule.pattern.transfers(), schedule.topology
    paths = paths_of(t, topology) if named else topology.paths(t.src, t.dst)
    carried = np.repeat(t.blocks[paths.pair], np.diff(paths.ptr))
    busy = np.bincount(paths.links, carried, topology.n_links) / topology.bandwidth_Bps
    return float(busy.max(initial=0) * schedule.block_bytes)


class Connection(NamedTuple):
    """Some of what a rank sends to another: `part` counts those between the same ranks."""

    src: int
    dst: int
    part: int


@dataclass
class Thread:
    """A thread block: its connections, and the numbers of the operations that it executes."""

    channel: int
    sends: Connection | None = None
    receives: Connection | None = None
    ops: list[int] = field(default_factory=list)


class Threads(NamedTuple):
    """The thread blocks of every rank."""

    ranks: list[list[Thread]]
    at: dict[int, tuple[int, int]]  # rank and thread block of each operation
    waits: dict[int, list[int]]  # operations of other thread blocks of its rank that each waits for


def threads_of(played: Played, most_blocks: int, cut: int) -> Threads:
    """The thread blocks of every rank.

    `cut`: sends of a connection, after which another follows.
    WeftError: more thread blocks or channels than there may be.
    """
    ranks, at = _connected(played, most_blocks, cut)
    written: dict[tuple[int, str, int], int] = {}
    read: dict[tuple[int, str, int], list[int]] = defaultdict(list)  # since it was written
    number: dict[int, int] = {}  # of each operation in the order, so far
    known: dict[int, dict[int, int]] = {}  # the last operation of each thread block that is sure to be done
    at_end: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    waits: dict[int, list[int]] = {}
    for op in played.order:
        piece, sends, (rank, block) = played.pieces[op // 2], op % 2 == 0, at[op]
        before = {written[place] for place in piece.touches(sends) if place in written}
        for place in piece.touches(sends):
            if sends:
                read[place].append(op)
            else:
                before.update(read.pop(place, ()))
                written[place] = op
        clock, waits[op] = at_end[rank, block], []
        for other in sorted(before, key=number.__getitem__, reverse=True):
            its = at[other][1]
            if its == block or clock.get(its, -1) >= number[other]:
                continue
            waits[op].append(other)
            for one, done in known[other].items():
                clock[one] = max(clock.get(one, -1), done)
        ranks[rank][block].ops.append(op)
        clock[block] = number[op] = len(number)
        known[op] = dict(clock)
    return Threads(ranks, at, waits)


def _pieces(pattern: Pattern, what: str, most_run: int) -> Iterator[Piece]:
    """Runs of chunks of every transfer."""
    t, p, kind = pattern.transfers(), pattern.p, pattern.kind.name
    per = pattern.n_blocks // p
    scratch: dict[tuple[int, int], int] = {}
    used = Counter[int]()

    def place(rank: int, block: int, arrives: bool) -> Place:
        if kind != "all-to-all":
            scattered = pattern.n_blocks % p == 0
            return ("o" if kind == "all-gather" else "i"), block % p * per + block // p if scattered else block
        part, sender, owner = block // (p * p), block // p % p, block % p
        if rank == (owner if arrives else sender):
            return ("o", sender * (per // p) + part) if arrives else ("i", owner * (per // p) + part)
        if (rank, block) not in scratch:
            scratch[rank, block] = used[rank]
            used[rank] += 1
        return "s", scratch[rank, block]

    count = 0
    for row, (src, dst, slot, reduces) in enumerate(
        zip(t.src.tolist(), t.dst.tolist(), t.slot.tolist(), t.reduces.tolist(), strict=True)
    ):
        if src == dst:
            continue
        found = sorted((place(src, b, False), place(dst, b, True), b) for b in pattern.blocks_of(src, slot))
        # of a run, buffers stay and chunks are as far from their number
        runs = groupby(enumerate(found), key=lambda one: [(at[0], at[1] - one[0]) for at in one[1][:2]])
        for _, run in runs:
            there = [one for _, one in run]
            for first in range(0, len(there), most_run):
                part = there[first : first + most_run]
                yield Piece(row, src, dst, frozenset(one[2] for one in part), part[0][0], part[0][1], reduces)
                count += 1
        if count > MOST_PIECES:
            raise WeftError(f"{what}: more than {MOST_PIECES:,} runs of chunks are sent")


def _rules(pattern: Pattern, pieces: Sequence[Piece]) -> tuple[list[set[int]], list[set[int]]]:
    """For each piece, what its send waits for, and its receive."""
    parents = parents_of(pattern.transfers())
    last: dict[int, int] = {}
    readers: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    writers: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for at, piece in enumerate(pieces):
        last[piece.row] = at
        for place in piece.touches(True):
            readers[place].append(at)
        for place in piece.touches(False):
            writers[place].append(at)
    past = _ancestors(parents)
    sends: list[set[int]] = []
    receives: list[set[int]] = []
    for piece in pieces:
        known = past[piece.row]
        waits = {2 * one + 1 for place in piece.touches(True) for one in writers[place] if known >> pieces[one].row & 1}
        for one in (last[row] for row in parents[piece.row]):
            its = pieces[one]
            if its.dst == piece.src and its.blocks.isdisjoint(piece.blocks):
                waits.add(2 * one + 1)
            elif its.src == piece.src:
                waits.add(2 * one)
        sends.append(waits)
        receives.append({
            2 * reader for place in piece.touches(False) for reader in readers[place]
            if not past[pieces[reader].row] >> piece.row & 1 and not known >> pieces[reader].row & 1
        })
    return sends, receives


def _ancestors(parents: Sequence[Parents]) -> list[int]:
    """Rows before each row, as bits."""
    past = [0] * len(parents)
    seen = [False] * len(parents)
    for start in range(len(parents)):
        ahead = [start]
        while ahead:
            row = ahead[-1]
            more = [one for one in parents[row] if not seen[one]]
            if more and not seen[row]:
                ahead += more
                continue
            ahead.pop()
            if not seen[row]:
                seen[row] = True
                for one in parents[row]:
                    past[row] |= past[one] | 1 << one
    return past


def _executed(
    pieces: Sequence[Piece], sends: list[set[int]], receives: list[set[int]], schedule: Schedule, what: str
) -> list[int]:
    """Sends and receives in the order in which they happen in one execution."""
    takes = _takes_ps(schedule)
    left = [len(one) for pair in zip(sends, receives, strict=True) for one in pair]
    after: dict[int, list[int]] = defaultdict(list)
    for at, pair in enumerate(zip(sends, receives, strict=True)):
        for end, waits in enumerate(pair):
            for one in sorted(waits):
                after[one].append(2 * at + end)
    order: list[int] = []
    slots = PROTOCOLS["Simple"].in_flight
    queued: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    flying: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    arrived = [False] * len(pieces)
    events = [(0, at, False) for at in range(len(pieces)) if not left[2 * at]]
    while events:
        now, at, lands = heapq.heappop(events)
        flow = pieces[at].src, pieces[at].dst
        if lands:
            arrived[at] = True
        else:
            queued[flow].append(at)
        changed = [flow]
        while changed:
            flow = changed.pop()
            done = []
            while flying[flow] and arrived[flying[flow][0]] and not left[2 * flying[flow][0] + 1]:
                done.append(2 * flying[flow].popleft() + 1)
            while queued[flow] and len(flying[flow]) < slots:
                one = queued[flow].popleft()
                flying[flow].append(one)
                done.append(2 * one)
                heapq.heappush(events, (now + takes[pieces[one].row], one, True))
            order += done
            for op in done:
                for other in after[op]:
                    left[other] -= 1
                    if left[other]:
                        continue
                    if other % 2:
                        changed.append((pieces[other // 2].src, pieces[other // 2].dst))
                    else:
                        heapq.heappush(events, (now, other // 2, False))
    if len(order) < 2 * len(pieces):
        raise WeftError(f"{what}: ranks add in place, and would have to keep apart what they add here")
    return order


def _takes_ps(schedule: Schedule) -> dict[int, int]:
    """Of each row, how long the first slice of a block takes along its route."""
    t, topology = schedule.pattern.transfers(), schedule.topology
    routes = topology.paths(t.src, t.dst)
    slice_ps = schedule.block_bytes / SLICES / topology.bandwidth_Bps * 1e12
    each = topology.latency_ps + topology.hop_latency_ps[topology.src] + slice_ps.astype(np.int64)
    until = np.concatenate(([0], np.cumsum(each[routes.links])))
    takes = np.diff(until[routes.ptr]) - topology.hop_latency_ps[t.src[routes.pair]]  # it passes what is between
    return dict(zip(routes.pair.tolist(), takes.tolist(), strict=True))


def _connected(
    played: Played, most_blocks: int, cut: int
) -> tuple[list[list[Thread]], dict[int, tuple[int, int]]]:
    """Empty thread blocks of every rank, and in which of them each operation is.

    Every connection has a thread block at either end. Where those are too many for a rank, one that sends and one that
    receives become one, on the same channel.
    """
    of: dict[int, Connection] = {}
    seen = Counter[tuple[int, int]]()
    for op in played.order:
        if op % 2 == 0:
            src, dst = played.pieces[op // 2].src, played.pieces[op // 2].dst
            of[op // 2] = Connection(src, dst, seen[src, dst] // cut)
            seen[src, dst] += 1
    channel: dict[Connection, int] = {}
    load = Counter[tuple[int, int, bool]]()
    for one in dict.fromkeys(of.values()):
        least = channel[one._replace(part=one.part - 1)] + 1 if one.part else 0
        free = (at for at in range(least, MOST_CHANNELS)
                if max(load[one.src, at, True], load[one.dst, at, False]) < MOST_BLOCKS_OF_CHANNEL)
        channel[one] = next(free, MOST_CHANNELS)
        if channel[one] == MOST_CHANNELS:
            raise WeftError(f"more than {MOST_CHANNELS} channels from GPU {one.src} to GPU {one.dst}")
        load[one.src, channel[one], True] += 1
        load[one.dst, channel[one], False] += 1
    length = Counter(of.values())
    ranks = [_threads(rank, channel, length, most_blocks, cut) for rank in range(played.p)]
    at = {(one, sends): (rank, number) for rank, threads in enumerate(ranks) for number, thread in enumerate(threads)
          for one, sends in ((thread.sends, True), (thread.receives, False)) if one is not None}
    return ranks, {op: at[of[op // 2], op % 2 == 0] for op in played.order}


def _threads(
    rank: int, channel: dict[Connection, int], length: Counter[Connection], most_blocks: int, cut: int
) -> list[Thread]:
    out = sorted((one for one in channel if one.src == rank), key=length.__getitem__)
    into = sorted((one for one in channel if one.dst == rank), key=length.__getitem__)
    excess = len(out) + len(into) - most_blocks
    threads = [Thread(channel[one], one) for one in out]
    for one in into:
        partner = next((
            thread for thread in threads if excess > 0 and thread.receives is None and thread.channel == channel[one]
            and thread.sends is not None and length[thread.sends] + length[one] <= cut), None)
        if partner is not None:
            partner.receives = one
            excess -= 1
        else:
            threads.append(Thread(channel[one], None, one))
    if len(threads) > most_blocks:
        raise WeftError(f"{len(threads)} thread blocks on GPU {rank}, more than {most_blocks}")
    return threads
