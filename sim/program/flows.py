"""The program that the fluid engines run: transfers as flows that share links evenly, max-min.

This file is their contract; the fast engine and its oracle agree to the picosecond.

Flow
    A task with a route is a flow of all its bytes, which crosses all links of its route at once and at one rate. One
    that crosses a link several times (in a quotient, where a link represents others) takes its rate there as often.
    A task without a route takes no time.
Rates
    The allocation is max-min fair: no link carries more than its rate, and every flow has a bottleneck, a link that is
    full and on which no flow is faster. There is exactly one. It is found by progressive filling whenever flows start
    or end: all rates rise together, and those on a link that is full stop. Nothing is left to an order, so that the
    quotient by a symmetry is exact.
Time
    Flows start and end at whole picoseconds, all those of one before rates change. A flow that has its rate r from then
    on and B bytes left ends B / r later, rounded up to whole ps, at least 1; what is left after 1/TOLERANCE of a ps
    does not count, so that times that are whole are so also when they are computed with rates that are rounded. The
    task is delivered the latencies of its route after that.
Release
    A task starts when every task that it waits for, whole or chunk by chunk, is delivered in full: as in the chunk
    engine with one chunk per transfer. Windows hold nothing back.

Rates are integers, in units so small that the fastest link has some 2^62 of them; a share that is no integer is rounded
down. All numbers of links up to 16 divide what links of whole B/s have.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.columns import crossings, i32
from sim.program.contract import CLOCK_END_PS, FIFO, I32, I64, Program, check_healthy
from topologies import WeftError
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, format_size

TOLERANCE = 65537
"""A flow with bytes for less than this part of a ps has ended. A prime, so that no share of a link meets it."""

BITS = 62
DIVISORS = 720_720
"""Divided by all numbers up to 16."""

LEAST_RATE = 2**40
"""Units of the slowest link: its shares are rounded by that little."""


@one_line
class Flows(NamedTuple):
    """Arrays of one program; L links, T tasks, X crossings of links.

    Attributes
    ----------
    link_rate : (L,) int64
        In units.
    work : (T, 2) int64
        Units times ps that a task has to carry: high and low 62 bits.
    crossing_ptr, crossing_link : (T+1,), (X,) int32
        Links that each task crosses.
    crossing_task : (X,) int32
    latency_ps : (T,) int64
    child_ptr, child : (T+1,), ... int32
        Tasks that wait for each.
    waits : (T,) int32
        How many each waits for.
    tolerance : int
    """

    link_rate: I64
    work: I64
    crossing_ptr: I32
    crossing_link: I32
    crossing_task: I32
    latency_ps: I64
    child_ptr: I32
    child: I32
    waits: I32
    tolerance: int = TOLERANCE

    @property
    def n_tasks(self) -> int:
        return int(self.latency_ps.size)

    @property
    def routed(self) -> npt.NDArray[np.bool_]:
        """Whether each task is a flow, (T,)."""
        return np.diff(self.crossing_ptr) > 0


def flows_of(program: Program, rates: Sequence[Fraction]) -> Flows:
    """The flows of a program.

    `rates`: bytes a second of each server.

    Raises
    ------
    WeftError
        Something that flows do not have, or rates that are too far apart.
    """
    check_flows(program)
    unit = _unit(rates)
    task, link = crossings(program)
    ptr = np.concatenate([[0], np.cumsum(program.hops())])
    total = np.concatenate([[0], np.cumsum(program.route_latency_ps)])
    along = total[program.route_ptr[1:]] - total[program.route_ptr[:-1]]
    child_ptr, child = _children(program)
    return Flows(
        link_rate=np.array([int(rate * unit) for rate in rates], np.int64),
        work=_works(task_bytes(program), unit),
        crossing_ptr=i32(ptr), crossing_link=i32(link), crossing_task=i32(task), latency_ps=along[program.task_route],
        child_ptr=child_ptr, child=child, waits=np.bincount(child, minlength=program.n_tasks).astype(np.int32),
    )


def check_flows(program: Program) -> None:
    """Reject what flows do not have.

    WeftError: names it.
    """
    check_healthy(program, "the fluid engine")
    what = "simulate with the chunk or the reference engine"
    if np.any(program.server_discipline != FIFO):
        raise WeftError(f"the fluid engine serves all flows at once and knows no order of service: {what}")
    if program.pool_capacity.size:
        raise WeftError(f"the fluid engine has no pools: {what}")
    if program.delivers_heads or not program.cut_through:
        raise WeftError(f"the fluid engine is cut-through with tail delivery: {what}")


def task_bytes(program: Program) -> I64:
    """Bytes of each task, headers included, (T,)."""
    chunks, first = program.cut_chunks.astype(np.int64), program.cut_first.astype(np.int64)
    leading, rest = program.chunk_work[program.cut_size].T
    found: I64 = (leading * first + rest * (chunks - first))[program.task_cut]
    return found


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
