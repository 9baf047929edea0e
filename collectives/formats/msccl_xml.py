"""MSCCL XML writer: any schedule among ranks as thread blocks that the MSCCL runtime executes.

A transfer becomes a send at its source and a receive at its destination for each run of chunks side by side. One
execution is played through, with links that are busy and FIFOs that hold two messages; the order in which sends and
receives happen there is their order in the thread blocks, so that what was possible there can never hang.

                 one execution                            thread blocks of rank 1
    0->1 chunk 0 |====|                                   from 0: r 0, r 1
    1->2 chunk 0      |====|                              to 2:   s 0 (after r 0), s 1 (after r 1)
    0->1 chunk 1      |====|

Ranks add in place: where a transfer must not carry what has come meanwhile, its arrival waits for the send.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.proof import ScheduleError
from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule
from collectives.core.transfers import Parents, parents_of
from collectives.formats.msccl import prove_msccl
from collectives.formats.msccl_program import (
    KINDS,
    MOST_BLOCKS_OF_CHANNEL,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_PLACES,
    PROTOCOLS,
    RUNTIMES,
    parse_msccl,
)
from topologies import WeftError

_COLL = {kind: coll for coll, kind in reversed(KINDS.items())}

_BYTES = 2**48
"""Above any array: 0 stands for no limit in some runtimes, and for no array at all in microsoft/msccl."""

MOST_PIECES = 200_000
"""Limit on runs of chunks that are sent: half a minute."""

FITS = (RUNTIMES["rccl"], RUNTIMES["msccl-executor-nccl"], RUNTIMES["msccl"])
"""Limits that are tried, narrowest first."""

FREE = 32
"""Thread blocks of a rank that are taken freely; a GPU has some hundred processors for them."""

Place = tuple[str, int]


class _Piece(NamedTuple):
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


class _Step(NamedTuple):
    kind: str
    place: Place
    chunks: int
    waits: tuple[int, int] | None  # thread block and step


class _Thread:
    """A thread block of one rank: what it sends and receives, and its steps so far."""

    def __init__(self, channel: int) -> None:
        self.send = self.receive = -1
        self.channel = channel
        self.steps: list[_Step] = []
        self.waited_for: set[int] = set()


def to_msccl(schedule: Schedule) -> str:
    """A schedule as MSCCL XML, in place but for an all-to-all, within the narrowest limits that hold it; proved.

    WeftError: switches that send, or pools; a root other than 0; a collective that the format lacks; ranks that would
        have to keep apart what they add; or more channels, thread blocks or steps than any runtime has.
    """
    pattern = schedule.pattern
    what = f"MSCCL XML of {pattern.name} on {pattern.topology.name}"
    if (pattern.n_sources or pattern.p) > pattern.p or pattern.is_unnamed:
        raise WeftError(f"{what}: {'its blocks have no names' if pattern.is_unnamed else 'its switches reduce'}")
    if pattern.kind.name not in _COLL or pattern.root:
        lacks = f"root {pattern.root}: programs have root 0" if pattern.root else f"no such collective: {pattern.kind}"
        raise WeftError(f"{what}: {lacks}")
    if pattern.n_blocks * pattern.p > MOST_PLACES:
        raise WeftError(f"{what}: {pattern.n_blocks:,} chunks on {pattern.p} ranks, more than {MOST_PLACES:,} together")
    t = pattern.transfers()
    ends = np.unique(np.stack([t.src, t.dst])[:, t.src != t.dst], axis=1)
    peers = max(int(np.bincount(end).max(initial=0)) for end in ends)
    if peers > (most := max(one.blocks for one in FITS)):
        raise WeftError(f"{what}: {peers} peers of a rank, and {most} thread blocks are the most of any runtime")
    pieces = list(_pieces(pattern, what))
    order = _executed(pieces, *_rules(pattern, pieces), pattern, what)
    why, found, copies = "", None, pattern.kind.name == "all-to-all"
    few = min(one.elements for one in FITS if one.elements)
    for steps, blocks, cut in _tries():
        try:
            ranks = _threads(pieces, order, pattern.p, steps, blocks - copies, cut)
        except WeftError as wrong:
            why = str(wrong)
            continue
        found = found or ranks
        elements = 1 + sum(1 + sum(1 + len(one.steps) for one in its) for its in ranks)
        if elements <= few or 2 * len(pieces) > few:
            found = ranks
            break
    if found is None:
        raise WeftError(f"{what}: {why}, the most of any runtime; use fewer trees, blocks or ranks")
    for rank, threads in enumerate(found if copies else ()):
        threads.append(_own_parts(rank, pattern))
    text = _xml(found, pattern)
    try:
        prove_msccl(parse_msccl(text, what))
    except ScheduleError as wrong:
        raise WeftError(f"{what}: ranks add in place, and here that is not the same: {wrong}") from None
    return text


def busiest_s(schedule: Schedule, *, named: bool) -> float:
    """Seconds that the busiest link is busy: on the links that transfers name, or on routes of the fabric."""
    t, topology = schedule.pattern.transfers(), schedule.topology
    paths = paths_of(t, topology) if named else topology.paths(t.src, t.dst)
    carried = np.repeat(t.blocks[paths.pair], np.diff(paths.ptr))
    busy = np.bincount(paths.links, carried, topology.n_links) / topology.bandwidth_Bps
    return float(busy.max(initial=0) * schedule.block_bytes)


def _tries() -> Iterator[tuple[int, int, int]]:
    """Most steps of a thread block, thread blocks of a rank, and sends of a flow on one channel.

    Sends that are on channels of their own do not wait for each other, as far as `FREE` thread blocks go.
    """
    narrow = min(one.steps for one in FITS)
    yield from ((narrow, FREE, 2**power) for power in range(narrow.bit_length() - 1))
    for limits in FITS:
        yield from ((limits.steps, limits.blocks, limits.steps * part // 4) for part in (4, 3, 2))


def _pieces(pattern: Pattern, what: str) -> Iterator[_Piece]:
    """Runs of chunks of every transfer, at most as long as a step."""
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
            for first in range(0, len(there), MOST_COUNT):
                part = there[first : first + MOST_COUNT]
                yield _Piece(row, src, dst, frozenset(one[2] for one in part), part[0][0], part[0][1], reduces)
                count += 1
        if count > MOST_PIECES:
            raise WeftError(f"{what}: more than {MOST_PIECES:,} runs of chunks are sent")


def _rules(pattern: Pattern, pieces: Sequence[_Piece]) -> tuple[list[set[int]], list[set[int]]]:
    """For each piece, what its send waits for, and its receive; 2 i is the send of piece i, 2 i + 1 its receive."""
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
    pieces: Sequence[_Piece], sends: list[set[int]], receives: list[set[int]], pattern: Pattern, what: str
) -> list[int]:
    """Sends and receives in the order in which they happen in one execution."""
    t, topology = pattern.transfers(), pattern.topology
    routes = topology.paths(t.src, t.dst)
    path_of = dict(zip(routes.pair.tolist(), zip(routes.ptr[:-1].tolist(), routes.ptr[1:].tolist(), strict=True),
                       strict=True))
    links, rate = routes.links.tolist(), topology.bandwidth_Bps.tolist()
    busy = [0.0] * len(rate)
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
    events = [(0.0, at, False) for at in range(len(pieces)) if not left[2 * at]]
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
                heapq.heappush(events, (_lands(pieces[one], path_of, links, rate, busy, now), one, True))
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


def _lands(
    piece: _Piece, path_of: dict[int, tuple[int, int]], links: list[int], rate: list[float], busy: list[float],
    now: float,
) -> float:
    """When a piece has arrived, on links that are busy with earlier ones."""
    end = now
    for link in links[slice(*path_of[piece.row])]:
        now = max(now, busy[link])
        busy[link] = now + len(piece.blocks) / rate[link]
        end = max(end, busy[link])
    return end


def _threads(
    pieces: Sequence[_Piece], order: Sequence[int], p: int, most_steps: int, most_blocks: int, cut: int
) -> list[list[_Thread]]:
    """The thread blocks of every rank; WeftError where they are too many, or too long.

    `cut`: sends of a flow after which the next channel follows.
    """
    ranks, thread_of = _flows(pieces, order, p, most_blocks, cut)
    written: dict[tuple[int, str, int], int] = {}
    read: dict[tuple[int, str, int], list[int]] = defaultdict(list)  # since it was written
    number: dict[int, int] = {}  # of each operation in the order, so far
    step_of: dict[int, tuple[int, int]] = {}  # thread block and step
    known: dict[int, dict[int, int]] = {}  # the last step of each thread block that is sure to be done
    at_end: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for op in order:
        piece, sends = pieces[op // 2], op % 2 == 0
        rank, block = (piece.src if sends else piece.dst), thread_of[op]
        before = {written[place] for place in piece.touches(sends) if place in written}
        for place in piece.touches(sends):
            if sends:
                read[place].append(op)
            else:
                before.update(read.pop(place, ()))
                written[place] = op
        clock = at_end[rank, block]
        waits = []
        for other in sorted(before, key=number.__getitem__, reverse=True):
            its, step = step_of[other]
            if its == block or clock.get(its, -1) >= step:
                continue
            waits.append((its, step))
            ranks[rank][its].waited_for.add(step)
            for one, done in known[other].items():
                clock[one] = max(clock.get(one, -1), done)
        thread = ranks[rank][block]
        thread.steps += [_Step("nop", piece.read, 0, one) for one in waits[:-1]]
        kind = "s" if sends else "rrc" if piece.reduces else "r"
        where = piece.read if sends else piece.write
        thread.steps.append(_Step(kind, where, len(piece.blocks), waits[-1] if waits else None))
        number[op], step_of[op] = len(number), (block, len(thread.steps) - 1)
        clock[block] = len(thread.steps) - 1
        known[op] = dict(clock)
    longest, rank = max((len(thread.steps), -rank) for rank, its in enumerate(ranks) for thread in its)
    if longest > most_steps:
        raise WeftError(f"{longest} steps in a thread block of GPU {-rank}, more than {most_steps}")
    return ranks


def _flows(
    pieces: Sequence[_Piece], order: Sequence[int], p: int, most_blocks: int, cut: int
) -> tuple[list[list[_Thread]], dict[int, int]]:
    """Empty thread blocks of every rank, and in which of them each send and receive is.

    Every connection has a thread block at either end. Where those are too many for a rank, one that sends and one that
    receives become one, on the same channel.
    """
    flow_of: dict[int, tuple[int, int, int]] = {}
    seen = Counter[tuple[int, int]]()
    for op in order:
        if op % 2 == 0:
            ends = pieces[op // 2].src, pieces[op // 2].dst
            flow_of[op // 2] = (*ends, seen[ends] // cut)
            seen[ends] += 1
    channel: dict[tuple[int, int, int], int] = {}
    load = Counter[tuple[int, int, bool]]()
    for flow in dict.fromkeys(flow_of.values()):
        src, dst, part = flow
        least = channel[src, dst, part - 1] + 1 if part else 0
        free = (one for one in range(least, MOST_CHANNELS)
                if max(load[src, one, True], load[dst, one, False]) < MOST_BLOCKS_OF_CHANNEL)
        channel[flow] = next(free, MOST_CHANNELS)
        if channel[flow] == MOST_CHANNELS:
            raise WeftError(f"more than {MOST_CHANNELS} channels from GPU {src} to GPU {dst}")
        load[src, channel[flow], True] += 1
        load[dst, channel[flow], False] += 1
    length = Counter(flow_of.values())
    ranks: list[list[_Thread]] = [[] for _ in range(p)]
    number: dict[tuple[tuple[int, int, int], bool], int] = {}
    for rank in range(p):
        number |= _numbered(rank, ranks[rank], channel, length, most_blocks, cut)
    thread_of = {op: number[flow_of[op // 2], op % 2 == 0] for op in order}
    return ranks, thread_of


def _numbered(
    rank: int, threads: list[_Thread], channel: dict[tuple[int, int, int], int], length: Counter[tuple[int, int, int]],
    most_blocks: int, cut: int,
) -> dict[tuple[tuple[int, int, int], bool], int]:
    """Thread blocks of a rank, by flow and whether it sends."""
    out = [flow for flow in channel if flow[0] == rank]
    into = [flow for flow in channel if flow[1] == rank]
    excess = len(out) + len(into) - most_blocks
    number: dict[tuple[tuple[int, int, int], bool], int] = {}
    for flow in out:
        thread = _Thread(channel[flow])
        thread.send = flow[1]
        number[flow, True] = len(threads)
        threads.append(thread)
    free = sorted(out, key=length.__getitem__)
    for flow in sorted(into, key=length.__getitem__):
        partner = next((one for one in free if excess > 0 and channel[one] == channel[flow]
                        and length[one] + length[flow] <= cut), None)
        if partner is not None:
            excess -= 1
            free.remove(partner)
            at = number[partner, True]
        else:
            at = len(threads)
            threads.append(_Thread(channel[flow]))
        number[flow, False] = at
        threads[at].receive = flow[0]
    if len(threads) > most_blocks:
        raise WeftError(f"{len(threads)} thread blocks on GPU {rank}, more than {most_blocks}")
    return number


def _own_parts(rank: int, pattern: Pattern) -> _Thread:
    """Copies what a rank sends to itself in an all-to-all."""
    thread, parts = _Thread(-1), pattern.n_blocks // pattern.p**2
    for first in range(0, parts, MOST_COUNT):
        count = min(MOST_COUNT, parts - first)
        thread.steps.append(_Step("cpy", ("i", rank * parts + first), count, None))
    return thread


def _xml(ranks: list[list[_Thread]], pattern: Pattern) -> str:
    kind, chunks = pattern.kind.name, pattern.n_blocks
    in_place, channels = kind != "all-to-all", 1 + max((one.channel for its in ranks for one in its), default=0)
    if not in_place:
        chunks //= pattern.p
    name = f"weft {pattern.name} {pattern.topology.name}"[:254]
    lines = [
        f'<algo name={quoteattr(name)} proto="Simple" nchannels="{channels}" nchunksperloop="{chunks}" '
        f'ngpus="{pattern.p}" coll="{_COLL[kind]}" inplace="{int(in_place)}" outofplace="{1 - in_place}" minBytes="0" '
        f'maxBytes="{_BYTES}">'
    ]
    i_chunks, o_chunks = {"all-gather": (0, chunks), "all-to-all": (chunks, chunks)}.get(kind, (chunks, 0))
    for rank, threads in enumerate(ranks):
        places = [step.place[1] + step.chunks for one in threads for step in one.steps if step.place[0] == "s"]
        s_chunks = max(places, default=0)
        lines.append(f'  <gpu id="{rank}" i_chunks="{i_chunks}" o_chunks="{o_chunks}" s_chunks="{s_chunks}">')
        for number, thread in enumerate(threads):
            lines.append(f'    <tb id="{number}" send="{thread.send}" recv="{thread.receive}" chan="{thread.channel}">')
            for at, step in enumerate(thread.steps):
                block, which = step.waits or (-1, -1)
                buffer, chunk = step.place
                to = "o" if step.kind == "cpy" else buffer
                lines.append(
                    f'      <step s="{at}" type="{step.kind}" srcbuf="{buffer}" srcoff="{chunk}" dstbuf="{to}" '
                    f'dstoff="{chunk}" cnt="{step.chunks}" depid="{block}" deps="{which}" '
                    f'hasdep="{int(at in thread.waited_for)}"/>'
                )
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>"]) + "\n"
