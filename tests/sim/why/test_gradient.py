"""The gradient against finite differences of the engine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from sim.engine.run import run
from sim.engine.tape.tape import Tape
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.outcome import Deadlock
from sim.why.gradient import gradient
from tests.strategies import fifo_programs
from topologies import WeftError

STEP = 1e-3


def two_dimensions(forwarding: str, deliver: str, size_bytes: int, slow: float) -> Program:
    """Transfers along a fast and a slow server, each with latency, some waiting for others."""
    builder = ProgramBuilder(forwarding, deliver)
    fast_wire, slow_wire, back = builder.server(50e9), builder.server(slow), builder.server(50e9)
    cut = Cutting(chunks=8)
    first = builder.task(size_bytes, [(fast_wire, 500_000), (slow_wire, 200_000)], cut)
    second = builder.task(size_bytes, [(slow_wire, 200_000), (back, 500_000)], cut, stream=[first])
    builder.task(3 * size_bytes, [(back, 500_000), (slow_wire, 200_000)], cut, after=[second])
    return builder.build()


PROGRAMS = [
    two_dimensions(forwarding, deliver, 1 << 20, slow)
    for forwarding in ("store-and-forward", "cut-through")
    for deliver in ("tail", "head")
    for slow in (20e9, 130e9)
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_by_rate_is_a_finite_difference(program: Program) -> None:
    """A thousandth more of each rate changes the engine's makespan by what the gradient says, within a thousandth."""
    found = gradient(Tape.record(program), program)
    for rate in range(program.n_rates):
        service = program.service_ps.astype(np.float64)
        service[rate :: program.n_rates] /= 1 + STEP
        faster = run(program._replace(service_ps=np.rint(service).astype(np.int64))).makespan_ps
        expected = -int(found.service_ps[rate]) * STEP
        assert faster - found.makespan_ps == pytest.approx(expected, rel=2e-3, abs=100)  # rounding: 1 ps a service


@pytest.mark.parametrize("program", PROGRAMS)
def test_by_latency_is_a_finite_difference(program: Program) -> None:
    """A little more of a latency changes the makespan by its count on the path."""
    found = gradient(Tape.record(program), program)
    for latency in np.unique(program.hop_latency_ps):
        more = program.hop_latency_ps + 100 * (program.hop_latency_ps == latency)
        later = run(program._replace(hop_latency_ps=more)).makespan_ps
        count = int(found.latencies[program.hop_latency_ps == latency].sum())
        assert later - found.makespan_ps == 100 * count


@settings(max_examples=80, deadline=None)
@given(fifo_programs())
def test_services_and_latencies_are_the_makespan(program: Program) -> None:
    """The makespan is linear in the services and latencies of its path, with nothing left over."""
    try:
        found = gradient(Tape.record(program), program)
    except Deadlock:
        return
    assert int(found.service_ps.sum() + found.latencies @ program.hop_latency_ps) == found.makespan_ps


def test_one_transfer_by_hand() -> None:
    """Of 1000 bytes at 1 GB/s over 500 ps: a microsecond of service, one latency."""
    builder = ProgramBuilder()
    builder.task(1000, [(builder.server(Fraction(10**9)), 500)])
    program = builder.build()
    found = gradient(Tape.record(program), program)
    assert (found.makespan_ps, found.service_ps.tolist(), found.latencies.tolist()) == (1_000_500, [1_000_000], [1])


def test_a_changed_order_has_no_gradient() -> None:
    """Where the order of service changed, the tape must be recorded anew."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    fast, slow, common = builder.server(3), builder.server(2), builder.server(10)
    for own in (fast, slow):
        builder.task(6, [(own, 0), (common, 0)])
    program = builder.build()
    slower = program.service_ps.copy()
    slower[1 :: program.n_rates] *= 2
    with pytest.raises(WeftError, match="record the tape anew"):
        gradient(Tape.record(program), program._replace(service_ps=slower))
