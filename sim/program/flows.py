"""The program that the fluid engines run: transfers as flows that share links evenly, max-min.

This file is their contract; the fast engine and its oracle agree to the picosecond.

Flow
    A task with a route is a flow of all its bytes, which crosses all links of its route at once and at one rate. One
    that crosses a link several times (in a quotient, where a link represents others) takes its rate there as often.
    A task without a route takes no time.
Alone
    A server that is no link (a stream of computations, the controller of circuits, the late start of an NPU) has one
    task at a time, whose route is nothing else: a flow with all of its rate. When it is free and up, the least
    (rank, ps at which it asked, class, task) of those that wait begins, after all releases of that picosecond.
    With jitter of its services a task has as much more to carry as the server does in what is drawn for its chunk 0.
    Pools are as in the chunk engine, of whole tasks: one that is released asks, and is started when it is granted.
Rates
    The allocation is max-min fair: no link carries more than its rate, and every flow has a bottleneck, a link that is
    full and on which no flow is faster. There is exactly one. It is found by progressive filling whenever flows start
    or end, or links change: all rates rise together, and those on a link that is full stop. Nothing is left to an
    order, so that the quotient by a symmetry is exact.
Time
    Flows start and end at whole picoseconds, all those of one before rates change. A flow that has its rate r from then
    on and B bytes left ends B / r later, rounded up to whole ps, at least 1; what is left after 1/TOLERANCE of a ps
    does not count, so that times that are whole are so also when they are computed with rates that are rounded. The
    task is delivered the latencies of its route after that.
Release
    A task starts when every task that it waits for, whole or chunk by chunk, is delivered in full: as in the chunk
    engine with one chunk per transfer. Windows hold nothing back. At its deadline a task waits for no other any more.
Changes
    Timetables and detours change what holds from a picosecond on: after all ends in it, before all starts. A link has
    another rate, and all flows on it with it. One that is down stops a flow on it (`WAITS`): that has no rate and holds
    nothing of other links; with `COMPLETES` it goes on at the rate of before. A flow that is stopped, or would begin,
    takes the route that holds, with all that it has left, as soon as no link of it is down. Latency that a link adds
    is added for the flows that end while it does. What an alone server does is stopped while that is down.

Rates are integers, in units so small that the fastest link has some 2^62 of them; a share that is no integer is rounded
down. All numbers of links up to 16 divide what links of whole B/s have.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.columns import i32
from sim.program.contract import (
    CLOCK_END_PS,
    COMPLETES,
    DOWN,
    DROPS,
    FIFO,
    I32,
    I64,
    LOSES,
    NEVER_PS,
    PER_CHUNK,
    WEIGHTS,
    Program,
)
from topologies import WeftError
from topologies.core.paths import ranges
from topologies.core.routing import hash64
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, format_size

JITTER = 1
"""First key of what is drawn for jitter."""

TOLERANCE = 65537
"""A flow with bytes for less than this part of a ps has ended. A prime, so that no share of a link meets it."""

BITS = 62
DIVISORS = 720_720
"""Divided by all numbers up to 16."""

LEAST_RATE = 2**40
"""Units of the slowest link: its shares are rounded by that little."""


POOL, ALONE = range(2)
"""Lines of a task, by where it waits; the kernel has them too."""


class Speeds(NamedTuple):
    """What a program of integers does not say: exact rates, and which servers are no links."""

    rates: Sequence[Fraction]  # work a second of each server
    shares: Sequence[Fraction] = ()  # of its rate, of each row of the timetables; 0: down
    alone: Collection[int] = ()  # servers whose tasks have them alone


@one_line
class Flows(NamedTuple):
    """Arrays of one program; L servers, T tasks, W ways (the route of each task, then all detours), X crossings."""

    link_rate: I64  # (L,): in units, at the begin. Links have one unit, servers alone their own.
    work: I64  # (T, 2): units times ps that a task has to carry: high and low 62 bits
    # crossing_ptr, crossing_link: (W+1,), (X,): links that each way crosses
    crossing_ptr: I32
    crossing_link: I32
    latency_ps: I64  # (W,)
    # child_ptr, child: tasks that wait for each
    child_ptr: I32
    child: I32
    waits: I32  # (T,): how many each waits for
    # detour_ptr, detour_from_ps: row d of the detours is way T + d
    detour_ptr: I32
    detour_from_ps: I64
    drains: npt.NDArray[np.int8]  # (L,): whether what has begun goes on while a link is down
    # (C, 5): in the order of time: ps; link (-1 for none), its rate (0: down) and the latency that it adds; task that
    # has its deadline (-1 for none). Rows of neither are times at which routes change.
    change: I64
    line: I32  # (2, T): line of its pool, and of its server alone, in which each task waits; -1 for none
    # units, rank: what each takes of it, and who goes first there
    units: I32
    rank: I64
    tie: I32  # (T,): order of classes, then of tasks
    # line_free, line_link: (Q,): units of each line, pools first; the server of those of servers, else -1
    line_free: I32
    line_link: I32
    link_line: I32  # (L,): line of each server alone; -1 for links
    # give_ptr, give_line, give_units: what a task gives back to pools when it is delivered
    give_ptr: I32
    give_line: I32
    give_units: I32
    tolerance: int = TOLERANCE

    @property
    def n_tasks(self) -> int:
        """Tasks."""
        return int(self.tie.size)

    @property
    def routed(self) -> npt.NDArray[np.bool_]:
        """Whether each task is a flow, (T,)."""
        return np.diff(self.crossing_ptr[: self.n_tasks + 1]) > 0

    def way(self, task: int, time_ps: int) -> int:
        """The way that holds for a task at a time."""
        first, end = self.detour_ptr[task : task + 2].tolist()
        later = int(np.searchsorted(self.detour_from_ps[first:end], time_ps, "right"))
        return self.n_tasks + first + later - 1 if later else task

    def links(self, way: int) -> I32:
        """The links of a way, in order."""
        return self.crossing_link[self.crossing_ptr[way] : self.crossing_ptr[way + 1]]


def flows_of(program: Program, speeds: Speeds) -> Flows:
    """The flows of a program.

    WeftError: something that flows do not have, or rates that are too far apart.
    """
    check_flows(program, speeds.alone)
    n, units = program.n_tasks, _units(program, speeds)
    route = program.every_route()[1]
    first, hops = program.route_ptr[route].astype(np.int64), np.diff(program.route_ptr)[route]
    ptr, link = np.concatenate([[0], np.cumsum(hops)]), program.route_server[ranges(first, hops)]
    total = np.concatenate([[0], np.cumsum(program.route_latency_ps)])
    along = total[program.route_ptr[1:]] - total[program.route_ptr[:-1]]
    child_ptr, child = _children(program)
    begins = np.full(n, -1)
    begins[hops[:n] > 0] = link[ptr[:n][hops[:n] > 0]]
    crossing = program.server_crossing if program.server_crossing.size else np.zeros(program.n_servers, np.int8)
    rate = np.array([int(rate * unit) for rate, unit in zip(speeds.rates, units, strict=True)], np.int64)
    return Flows(
        link_rate=rate, work=_work(program, begins, units, rate),
        crossing_ptr=i32(ptr), crossing_link=i32(link), latency_ps=along[route],
        child_ptr=child_ptr, child=child, waits=np.bincount(child, minlength=n).astype(np.int32),
        detour_ptr=program.detour_ptr if program.detour_ptr.size else np.zeros(n + 1, np.int32),
        detour_from_ps=program.detour_from_ps, drains=(crossing % DROPS == COMPLETES).astype(np.int8),
        change=_changes(program, speeds, units), **_lines(program, begins, sorted(speeds.alone)),
    )


def check_flows(program: Program, alone: Collection[int] = ()) -> None:
    """Reject what flows do not have.

    WeftError: names it.
    """
    links = np.setdiff1d(np.arange(program.n_servers), list(alone))
    several = program.chunks() > 1
    down = np.diff(program.timetable_ptr)[links] > 0 if program.timetable_ptr.size else np.zeros(links.size, np.bool_)
    down[down] = [np.any(program.timetable_rate[slice(*program.timetable_ptr[link : link + 2])] == DOWN)
                  for link in links[down]]
    loses = program.server_crossing[links[down]] % DROPS == LOSES
    for wrong, what in (
        (program.has_nics, "has no NICs"), (program.has_credits, "has no buffers"),
        (program.has_channels, "has no virtual channels"),
        (program.server_discipline[links] != FIFO, "serves all flows at once and knows no order of service"),
        ((program.task_pool >= 0) & (program.task_per == PER_CHUNK) & several[: program.task_pool.size],
         "has no pools of chunks"),
        (program.delivers_heads or not program.cut_through, "is cut-through with tail delivery"),
        (program.server_loss > 0, "has no chunks to lose"),
        (loses, "has no chunks to lose: links that go down need in-flight wait or complete, not lost"),
        (program.server_jitter[links[: program.server_jitter.size]] >= 0, "has no chunks that jitter could delay"),
    ):
        if np.any(wrong):
            instead = "" if wrong is loses else ": simulate with the chunk or the reference engine"
            raise WeftError(f"the fluid engine {what}{instead}")


def task_bytes(program: Program) -> I64:
    """Bytes of each task, headers included, (T,)."""
    chunks, first = program.cut_chunks.astype(np.int64), program.cut_first.astype(np.int64)
    leading, rest = program.chunk_work[program.cut_size].T
    found: I64 = (leading * first + rest * (chunks - first))[program.task_cut]
    return found


def jitter_ps(program: Program) -> I64:
    """What is drawn for the computation of each task, (T,)."""
    drawn_ps = np.zeros(program.n_tasks, np.int64)
    if program.server_jitter.size:
        tasks = np.flatnonzero(program.hops())
        row = program.server_jitter[program.route_server[program.route_ptr[program.task_route[tasks]]]]
        tasks, row = tasks[row >= 0], row[row >= 0]
        drawn = hash64(program.seed, JITTER, tasks, 0, 0, 0) >> np.uint64(1)
        drawn_ps[tasks] = program.jitter_ps[row, drawn % np.uint64(program.jitter_ps.shape[1])]
    return drawn_ps


def _units(program: Program, speeds: Speeds) -> list[int]:
    """Units in a B/s of each server: one for all links, and one for each that is alone."""
    alone, server = set(speeds.alone), _rows(program.timetable_ptr)
    every = [*enumerate(speeds.rates)]
    every += [(row, speeds.rates[row] * share) for row, share in zip(server, speeds.shares, strict=True) if share]
    unit = _unit([rate for row, rate in every if row not in alone])
    return [_unit([rate]) if row in alone else unit for row, rate in enumerate(speeds.rates)]


def _rows(ptr: I32) -> list[int]:
    """The row of each entry of a list of lists."""
    return np.repeat(np.arange(max(ptr.size - 1, 0)), np.diff(ptr)).tolist()


def _work(program: Program, begins: I64, units: Sequence[int], rate: I64) -> I64:
    """Work of each task, in the units of the server where it begins; -1: nowhere."""
    n_bytes, work = task_bytes(program), np.zeros((program.n_tasks, 2), np.int64)
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    kind = np.array([*(numbers[unit] for unit in units), -1])[begins]
    for unit, number in numbers.items():
        work[kind == number] = _works(n_bytes[kind == number], unit)
    drawn_ps = jitter_ps(program)
    for task in np.flatnonzero(drawn_ps).tolist():
        high, low = work[task].tolist()
        work[task] = divmod((high << BITS) + low + int(drawn_ps[task]) * int(rate[begins[task]]), 2**BITS)
    return work


def _changes(program: Program, speeds: Speeds, units: Sequence[int]) -> I64:
    found = [(time, -1, 0, 0, -1) for time in np.unique(program.detour_from_ps).tolist()]
    for server, time, share, added_ps in zip(
        _rows(program.timetable_ptr), program.timetable_from_ps.tolist(), speeds.shares,
        program.timetable_latency_ps.tolist(), strict=True,
    ):
        found.append((time, server, int(speeds.rates[server] * share * units[server]), added_ps, -1))
    deadline = program.task_deadline_ps
    found += [(int(deadline[task]), -1, 0, 0, task) for task in np.flatnonzero(deadline < NEVER_PS).tolist()]
    return np.array(sorted(found), np.int64).reshape(-1, 5)


def _lines(program: Program, begins: I64, alone: Sequence[int]) -> dict[str, Any]:
    """Lines of pools and of servers alone, and what tasks do there; of `Flows`."""
    n, pools = program.n_tasks, program.pool_capacity.size
    link_line = np.full(program.n_servers + 1, -1)
    link_line[list(alone)] = pools + np.arange(len(alone))
    line = np.stack([program.task_pool if pools else np.full(n, -1), link_line[begins]])
    discipline = np.concatenate([program.pool_discipline, program.server_discipline[list(alone)], [FIFO]])[line]
    priority = program.task_priority if program.task_priority.size else np.zeros(n, np.int32)
    of_priority, of_work, _ = np.moveaxis(WEIGHTS[discipline], -1, 0)  # a flow has no chunks
    rank = of_priority * priority
    if np.any(of_work):
        rank = rank + of_work * program.cut_work[program.task_cut]
    tie = np.empty(n, np.int32)
    tie[np.argsort(program.task_class, kind="stable")] = np.arange(n)
    times = np.where(program.give_per == PER_CHUNK, program.chunks()[_rows(program.give_ptr)], 1)
    return {
        "line": i32(line), "units": i32([program.task_units if pools else np.ones(n), np.ones(n)]), "rank": rank,
        "tie": tie, "line_free": i32(np.append(program.pool_capacity, np.ones(len(alone)))),
        "line_link": i32(np.append(np.full(pools, -1), alone)), "link_line": i32(link_line[:-1]),
        "give_ptr": program.give_ptr if program.give_ptr.size else np.zeros(n + 1, np.int32),
        "give_line": program.give_pool, "give_units": i32(program.give_units * times),
    }


def _unit(rates: Sequence[Fraction]) -> int:
    """Units in a B/s, so that the fastest link has less than 2^62."""
    fastest, slowest = max(rates, default=Fraction(1)), min(rates, default=Fraction(1))
    most = int((Fraction(2**BITS) - 1) / fastest)
    unit = most // DIVISORS * DIVISORS or most
    if int(slowest * unit) < LEAST_RATE:
        raise WeftError(
            f"the fluid engine takes rates within a factor of four million: {float(slowest):.4g} B/s and "
            f"{float(fastest):.4g} B/s"
        )
    return unit


def _works(n_bytes: I64, unit: int) -> I64:
    distinct, row = np.unique(n_bytes, return_inverse=True)
    works = [int(one) * PS_PER_S * unit for one in distinct.tolist()]
    if works and works[-1] >= CLOCK_END_PS << BITS:
        raise WeftError(f"a transfer of {format_size(int(distinct[-1]))} would outlast the clock on the fastest link")
    pairs = np.array([divmod(work, 2**BITS) for work in works], np.int64).reshape(len(works), 2)
    return np.ascontiguousarray(pairs[row])


def _children(program: Program) -> tuple[I32, I32]:
    """Every wait but those of windows, in the order of the parents."""
    parent, child = program.whole_edges()
    by_chunk, streamed, lag = program.stream_edges()
    parent, child = np.append(parent, by_chunk[lag == 0]), np.append(child, streamed[lag == 0])
    order = np.argsort(parent, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(parent, minlength=program.n_tasks))])
    return i32(ptr), i32(child[order])
