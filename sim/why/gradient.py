"""The derivative of the makespan by bandwidths and latencies, from the critical path of a tape.

A path of services and latencies is linear in both while it stays the critical one. Where several paths tie, the
derivative is that of one of them, which is one-sided. Rounding of services to whole picoseconds is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.engine import _tape as kernel
from sim.engine.tape import Tape
from sim.program import I32, I64, Program
from topologies import WeftError
from topologies.stages import staged


class Gradient(NamedTuple):
    """Derivative of the makespan, R rate columns and H kinds of hop."""

    makespan_ps: int
    # (R,): services on the critical path at each rate, other tasks' included: minus the derivative by the logarithm of
    # that rate
    service_ps: I64
    # (H,): how often the latency of each kind of hop is on the path: the derivative by that latency. Hops of one class
    # are counted together, under the first of them.
    latencies: I64


@staged("critical path")
def gradient(tape: Tape, program: Program) -> Gradient:
    """Derivative of the makespan of a program by its rates and latencies.

    `program`: as in `Tape.replay`.
    WeftError: the order of service is no longer the recorded one.
    """
    replay = tape.replay(program)
    if not replay.in_order:
        raise WeftError("the order of service is not the recorded one: record the tape anew")
    service, _ = tape.times(program)
    services, onwards = (count[:-1] for count in _counts(tape, replay.makespan_ps, service))
    service = service[:-1]
    kinds = tape.kinds
    rate = program.server_rate[program.hop_server]
    first = np.full(int(tape.hop_class.max(initial=-1)) + 1, rate.size, np.int64)
    np.minimum.at(first, tape.hop_class, np.arange(rate.size))
    by_column = np.zeros(program.n_rates, np.int64)
    by_hop = np.zeros(rate.size, np.int64)
    if kinds.size.size:
        own = rate[first[kinds.hop]]
        np.add.at(by_column, own, services * service)
        np.add.at(by_hop, first[kinds.hop], onwards)
        saved, column = _saved(tape, program, service, own, rate[first[kinds.following]])
        np.subtract.at(by_column, column, onwards * saved)
    return Gradient(replay.makespan_ps, by_column, by_hop)


def _counts(tape: Tape, makespan_ps: int, service: I64) -> tuple[I64, I64]:
    """How often each kind is on the critical path: its service, and the time onward."""
    services, onwards = np.zeros(service.size, np.int64), np.zeros(service.size, np.int64)
    if makespan_ps:
        last = int(np.flatnonzero(tape._out == makespan_ps)[0])
        left = kernel.walk(tape.ops, tape._out, tape._end, service, _before(tape), last, services, onwards)
        assert left == 0, f"the critical path ends at {left} ps"
    return services, onwards


def _before(tape: Tape) -> I32:
    """The op before each at the same server, 0 if none."""
    server = tape.ops.server
    order = np.argsort(server, kind="stable")
    before = np.zeros(server.size, np.int32)
    same = server[order][1:] == server[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _saved(tape: Tape, program: Program, service: I64, own: I32, after: I32) -> tuple[I64, I32]:
    """The service that cutting through, or delivering heads, takes off a path, and at whose rate."""
    kinds = tape.kinds
    last = kinds.following < 0
    saved: I64 = np.where(tape.heads, service, 0)
    column = own.copy()
    if program.cut_through:
        there = program.service(kinds.size, after)
        saved = np.where(last, saved, np.minimum(service, there))
        column = np.where(~last & (there < service), after, own)
    return saved, column
