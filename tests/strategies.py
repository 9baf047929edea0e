"""Random programs for property tests.

Two flavours: small ones, whose services take a few picoseconds so that many things happen in the same one,
and realistic ones, with rates, latencies and chunk sizes of real networks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from sim.program import (
    DELIVERY,
    DISCIPLINES,
    FORWARDING,
    ORDERS,
    PER_CHUNK,
    PER_TASK,
    Cutting,
    Posting,
    Program,
    ProgramBuilder,
)
from sim.program.contract import UNBOUNDED
from sim.program.flows import Speeds
from sim.program.turns import largest_chunks, with_buffers

SMALL_RATES = tuple(Fraction(10**12) / ps for ps in (1, 2, 3, 5, Fraction(1, 2), Fraction(17, 10)))
REALISTIC_RATES = tuple(map(Fraction, (50 * 10**9, 25 * 10**9, 50 * 2**30, "100000000000/3", "33.3e9", "1.7e9")))
SPEEDS = (Fraction(10**12), Fraction(10**12, 3), Fraction(14 * 10**11))
"""Of what computes."""
SMALL_LATENCIES = (0, 1, 2, 3, 5)
REALISTIC_LATENCIES = (500_000, 0, 100_000, 25_000)

MAX_SERVERS, MAX_TASKS, MAX_HOPS, MAX_POOLS = 6, 12, 4, 2
MAX_CHUNKS = (5, 5, 5, 5, 5, 16, 64)
"""Of the tasks of a program, one of these."""
LONG = 200


def programs(
    *, pools: bool = True, disciplines: tuple[str, ...] = DISCIPLINES, channels: int = 1
) -> st.SearchStrategy[Program]:
    """Any program of up to 6 servers and 12 tasks; most of them finish, some deadlock."""
    return _programs(disciplines, MAX_POOLS if pools else 0, channels=channels)


def pooled_fifo_programs() -> st.SearchStrategy[Program]:
    """Programs of fifo servers and fifo pools."""
    return _programs(DISCIPLINES[:1], MAX_POOLS)


def fifo_programs() -> st.SearchStrategy[Program]:
    """Programs of fifo servers without pools; dependencies and windows as in `programs`."""
    return _programs(DISCIPLINES[:1], 0)


@st.composite
def merging_programs(draw: st.DrawFn) -> Program:
    """Programs of fifo servers, many of which get more chunks than they can serve: queues that grow, and shrink."""
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)), draw(st.sampled_from(DELIVERY)))
    drawn = _Drawn(draw, builder, small=draw(st.sampled_from((True, True, True, False))))
    rate = st.sampled_from(SMALL_RATES if drawn.small else REALISTIC_RATES)
    latency = st.sampled_from((*SMALL_LATENCIES, 40) if drawn.small else REALISTIC_LATENCIES)
    shared = [builder.server(draw(rate)) for _ in range(drawn.integer(1, 3))]
    alike = draw(st.booleans())
    source, size, n_chunks = draw(rate), drawn.integer(1, 3), drawn.integer(10, LONG)
    for task in range(drawn.integer(2, 6)):
        if not alike:
            source, size, n_chunks = draw(rate), drawn.integer(1, 3), drawn.integer(1, LONG)
        route = [(builder.server(source), draw(latency))] * (not drawn.rarely(8))
        route += [(shared[one], draw(latency)) for one in sorted({drawn.integer(0, len(shared) - 1) for _ in range(2)})]
        work = (size * n_chunks - drawn.rarely(3)) * (1 if drawn.small else 4096)
        builder.task(
            work, route, Cutting(n_chunks), after=drawn.some(range(task), 1) if drawn.rarely(4) else [],
            stream=[drawn.integer(0, task - 1)] if task and drawn.rarely(3) else [],
            tie_class=drawn.integer(0, 1) if drawn.rarely(4) else 0,
        )
    return builder.build()


@st.composite
def flow_programs(draw: st.DrawFn) -> tuple[Program, Speeds]:
    """A program that the fluid engine takes, with computations and pools; routes may cross a server several times."""
    drawn = _Drawn(draw, ProgramBuilder(), draw(st.booleans()), draw(st.sampled_from((1, *MAX_CHUNKS))))
    rates = draw(st.lists(st.sampled_from(SMALL_RATES if drawn.small else REALISTIC_RATES), min_size=1, max_size=6))
    drawn.servers += [drawn.builder.server(rate) for rate in rates]
    speeds = draw(st.lists(st.sampled_from(SPEEDS), max_size=2))
    alone = [drawn.builder.server(speed, draw(st.sampled_from(("fifo", "priority")))) for speed in speeds]
    for _ in range(drawn.integer(1, MAX_TASKS)):
        _add_task(drawn, st.sampled_from(alone) if alone and drawn.rarely(2) else None)
    for task in range(len(drawn.chunks)):
        if drawn.rarely(4):
            _add_window(drawn, task)
    for _ in range(drawn.integer(0, MAX_POOLS) if drawn.most_chunks == 1 else 0):
        _add_pool(drawn, DISCIPLINES)
    return drawn.builder.build(), Speeds([*rates, *speeds], alone=alone)


@st.composite
def joining_programs(draw: st.DrawFn, most_chunks: int = LONG) -> Program:
    """Programs of fifo servers in which joins take units of fifo pools, and whole tasks behind them give these back."""
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)), draw(st.sampled_from(DELIVERY)))
    drawn = _Drawn(draw, builder, small=draw(st.booleans()), most_chunks=most_chunks)
    rates = SMALL_RATES if drawn.small else REALISTIC_RATES
    drawn.servers += [builder.server(draw(st.sampled_from(rates))) for _ in range(drawn.integer(1, MAX_SERVERS))]
    capacity = draw(st.lists(st.integers(1, 3), min_size=1, max_size=MAX_POOLS))
    for one in capacity:
        builder.pool(one)
    for _ in range(drawn.integer(1, MAX_TASKS // 2)):
        _add_task(drawn)
        join = builder.task(0, after=drawn.some(range(len(drawn.chunks)), 2), tie_class=drawn.integer(0, 2))
        cutting, work = _cutting_and_work(drawn)
        behind = builder.task(work, _path(drawn), cutting, after=[join])
        drawn.chunks += [1, cutting.cut(work)[0]]
        drawn.ancestors += [set(), {join}]
        pool = drawn.integer(0, len(capacity) - 1)
        units = drawn.integer(1, capacity[pool])
        builder.ask(join, pool, units, PER_TASK)
        if not drawn.rarely(30):
            builder.give(draw(st.sampled_from((behind, behind, join))), pool, units, PER_TASK)
    return builder.build()


@dataclass
class _Drawn:
    """What has been drawn so far, with the chunks and the ancestors of each task."""

    draw: st.DrawFn
    builder: ProgramBuilder
    small: bool
    most_chunks: int = MAX_CHUNKS[0]
    channels: int = 1
    servers: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    ancestors: list[set[int]] = field(default_factory=list)

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def rarely(self, one_in: int) -> bool:
        return self.integer(1, one_in) == one_in

    def some(self, tasks: Iterable[int], most: int) -> list[int]:
        """A few distinct tasks, often none."""
        pool = list(tasks)
        if not pool:
            return []
        return sorted(self.draw(st.lists(st.sampled_from(pool), max_size=most, unique=True)))


@st.composite
def _programs(
    draw: st.DrawFn, disciplines: tuple[str, ...], max_pools: int, most_chunks: int | None = None, channels: int = 1
) -> Program:
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)), draw(st.sampled_from(DELIVERY)))
    small = draw(st.sampled_from((True, True, True, False)))
    drawn = _Drawn(draw, builder, small, most_chunks or draw(st.sampled_from(MAX_CHUNKS)), channels)
    rates = SMALL_RATES if drawn.small else REALISTIC_RATES
    for _ in range(drawn.integer(1, MAX_SERVERS)):
        drawn.servers.append(builder.server(draw(st.sampled_from(rates)), draw(st.sampled_from(disciplines))))
    for _ in range(drawn.integer(1, MAX_TASKS)):
        _add_task(drawn)
    for task in range(len(drawn.chunks)):
        if drawn.rarely(4):
            _add_window(drawn, task)
    for _ in range(drawn.integer(0, max_pools)):
        _add_pool(drawn, disciplines)
    return builder.build()


def _add_task(drawn: _Drawn, alone: st.SearchStrategy[int] | None = None) -> None:
    """`alone`: the servers, on one of which it has its whole route."""
    cutting, work = _cutting_and_work(drawn)
    if drawn.most_chunks == 1:
        cutting = Cutting(1)
    task = len(drawn.chunks)
    path: list[tuple[int, ...]] = [] if alone is None else [(drawn.draw(alone), drawn.integer(0, 3))]
    after = drawn.some(range(task), 2)
    stream = drawn.some(set(range(task)) - set(after), 2)
    drawn.builder.task(
        work,
        path or _path(drawn),
        cutting,
        after=after,
        stream=stream,
        tie_class=drawn.draw(st.sampled_from((0, 0, 0, 1, 2))),
        priority=drawn.integer(-1, 2),
        flow=drawn.integer(0, 3),
    )
    drawn.chunks.append(cutting.cut(work)[0])
    parents = {*after, *stream}
    drawn.ancestors.append(parents.union(*(drawn.ancestors[parent] for parent in parents)))


def _path(drawn: _Drawn) -> list[tuple[int, ...]]:
    latency = st.sampled_from(SMALL_LATENCIES if drawn.small else REALISTIC_LATENCIES)
    hops = drawn.draw(st.sampled_from((1, 2, 3, MAX_HOPS, 1, 2, 0)))
    path = drawn.draw(st.lists(st.tuples(st.sampled_from(drawn.servers), latency), min_size=hops, max_size=hops))
    if drawn.channels == 1:
        return path
    return [(*hop, drawn.integer(0, drawn.channels - 1)) for hop in path]


def _cutting_and_work(drawn: _Drawn) -> tuple[Cutting, int]:
    unit = 1 if drawn.small else drawn.draw(st.sampled_from((4096, 8192, 1 << 20)))
    header, packet_header = ((0, 0), (1, 0), (0, 2), (3, 1))[drawn.integer(0, 3)]
    if drawn.draw(st.booleans()):
        chunks = drawn.integer(1, drawn.most_chunks)
        return Cutting(chunks, None, header, packet_header), drawn.integer(0, max(12, 3 * chunks)) * unit
    chunk_bytes = drawn.integer(1, 4) * unit
    remainder = drawn.integer(0, chunk_bytes - 1)
    whole = drawn.integer(0, drawn.most_chunks - 1)
    return Cutting(None, chunk_bytes, header, packet_header), whole * chunk_bytes + remainder


def _add_window(drawn: _Drawn, task: int) -> None:
    """Let a task wait in a window for an earlier task, itself or a later one."""
    parent = drawn.integer(0, len(drawn.chunks) - 1)
    least = max(1, drawn.chunks[task] - drawn.chunks[parent])
    if task in drawn.ancestors[parent] and not drawn.rarely(4):
        # A descendant that waits for the whole task, or for more chunks than the window lets out, would never start.
        least = max(least, drawn.chunks[task] - 1)
    drawn.builder.window(task, parent, drawn.integer(least, least + 2))


def _add_pool(drawn: _Drawn, disciplines: tuple[str, ...], sent: Collection[int] = ()) -> None:
    """Let tasks that no NIC sends ask a pool, and give back what they took."""
    capacity = drawn.integer(1, 3)
    pool = drawn.builder.pool(capacity, drawn.draw(st.sampled_from(ORDERS if disciplines[1:] else disciplines)))
    taken = {row[0] for row in drawn.builder._asks}.union(sent)
    free = [task for task in range(len(drawn.chunks)) if task not in taken]
    for task in drawn.some(free, 6):
        units, per = drawn.integer(1, capacity), drawn.draw(st.sampled_from((PER_CHUNK, PER_TASK)))
        drawn.builder.ask(task, pool, units, per)
        _give_back(drawn, task, pool, units, per, capacity)


def _give_back(drawn: _Drawn, task: int, pool: int, units: int, per: int, capacity: int) -> None:
    """Return what a task took: when it is delivered itself, or a later task that waits for it, or (rarely) never."""
    if drawn.rarely(30):
        return
    children = [child for child, ancestors in enumerate(drawn.ancestors) if task in ancestors]
    giver = drawn.draw(st.sampled_from([task, task, *children]))
    total = units * drawn.chunks[task] if per == PER_CHUNK else units
    if total > capacity and not drawn.rarely(10):
        giver = task
    if per == PER_CHUNK and drawn.chunks[giver] == drawn.chunks[task]:
        drawn.builder.give(giver, pool, units, PER_CHUNK)
    else:
        drawn.builder.give(giver, pool, total, PER_TASK)


@st.composite
def credit_programs(draw: st.DrawFn) -> Program:
    """Any program, with and without NICs, in which some servers have buffers of a few chunks; some deadlock."""
    return with_some_buffers(draw, draw(st.one_of(programs(), nic_programs(pools=True))), bubble=False)


@st.composite
def channel_programs(draw: st.DrawFn) -> Program:
    """Programs with virtual channels, on servers of any discipline; many with buffers, by channel or shared."""
    disciplines, channels = draw(st.sampled_from((DISCIPLINES[:1], DISCIPLINES))), draw(st.sampled_from((2, 2, 3)))
    buffers = draw(st.sampled_from(("none", "by channel", "shared")))
    channels = 2 if buffers == "shared" else channels
    of = {"disciplines": disciplines, "channels": channels}
    program = draw(st.one_of(programs(**of), nic_programs(**of, pools=True)))
    return program if buffers == "none" else with_some_buffers(draw, program, bubble=buffers == "shared")


def with_some_buffers(draw: st.DrawFn, program: Program, *, bubble: bool) -> Program:
    """The program with buffers of a few chunks behind some servers."""
    largest, n = largest_chunks(program) * (1 + (bubble and program.has_channels)), program.n_servers
    more = draw(st.lists(st.sampled_from((0, 2, 8, 30, None, None)), min_size=n, max_size=n))
    room = [UNBOUNDED if one is None else int(chunk) + one for chunk, one in zip(largest, more, strict=True)]
    credit_ps = draw(st.lists(st.sampled_from((1, 1, 2, 5)), min_size=n, max_size=n))
    return with_buffers(program, np.array(room, np.int64), np.array(credit_ps, np.int64), bubble)


@st.composite
def nic_programs(
    draw: st.DrawFn, *, disciplines: tuple[str, ...] = DISCIPLINES, channels: int = 1, pools: bool = False
) -> Program:
    """Programs in which up to three NPUs post some of the tasks; all that wait, wait for earlier tasks."""
    small, discipline = draw(st.sampled_from((True, True, True, False))), st.sampled_from(disciplines)
    unit = 1 if small else 4096
    push_ps, queue = Fraction(draw(st.sampled_from((0, 1, 3, 6))), 3), draw(st.sampled_from((1, 3, 10, 10**6)))
    post_ps, in_turn = draw(st.sampled_from((0, 1, 2, 5))) * unit, draw(st.integers(0, 3))
    posting = Posting(post_ps, push_ps if small else 10 * push_ps, queue * unit, in_turn)
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)), draw(st.sampled_from(DELIVERY)), posting)
    drawn = _Drawn(draw, builder, small, draw(st.sampled_from(MAX_CHUNKS)), channels)
    rate = st.sampled_from(SMALL_RATES if small else REALISTIC_RATES)
    nics = [builder.nic(draw(rate), drawn.integer(1, 3), draw(discipline)) for _ in range(drawn.integer(1, 3))]
    drawn.servers += [builder.server(draw(rate), draw(discipline)) for _ in range(drawn.integer(1, MAX_SERVERS))]
    sent: list[int] = []
    for task in range(drawn.integer(1, MAX_TASKS)):
        cutting, work = _cutting_and_work(drawn)
        nic = draw(st.sampled_from((*nics, *nics, None)))
        path = [] if nic is None else [(nic, draw(st.sampled_from(SMALL_LATENCIES if small else REALISTIC_LATENCIES)))]
        pushed = drawn.some(sent, 2)
        after = drawn.some(set(range(task)) - set(pushed), 2)
        stream = drawn.some(set(range(task)) - {*pushed, *after}, 2)
        builder.task(
            work, path + _path(drawn), cutting, after=after, stream=stream, pushed=pushed, port=drawn.integer(0, 2),
            flow=drawn.integer(0, 3) + 4 * (nic or 0), tie_class=draw(st.sampled_from((0, 0, 1, 2))),
            priority=drawn.integer(-1, 2),
        )
        drawn.chunks.append(cutting.cut(work)[0])
        drawn.ancestors.append(set())
        sent += [task] * (nic is not None)
    for task in range(len(drawn.chunks)):
        if drawn.rarely(6):
            builder.window(task, task, drawn.integer(1, 3))
    if pools and drawn.rarely(3):
        _add_pool(drawn, disciplines, set(sent))
    return builder.build()
