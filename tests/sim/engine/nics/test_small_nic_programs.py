"""Every small program of a few shapes, with each queue, push time, rate and number of engines, as in the reference."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from sim.certify.healthy import certify
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.program import Cutting, Posting, ProgramBuilder
from tests.same_runs import assert_same, few_calls

UNIT, SLOW = Fraction(10**12), Fraction(10**12, 3)
TWO, THREE = Cutting(chunks=2), Cutting(chunks=3)
HOW = [(0, SLOW, 2, 0), (1, UNIT, 2, 0), (1, SLOW, 3, 0), (1, SLOW, 1, 2), (3, UNIT, 2, 2)]
"""Time to push a unit, rate, engines, time between posts: pushes that take no time, as long as services, and longer."""

def streams(builder: ProgramBuilder, nic: int, other: int) -> None:
    """Three transfers of two flows, of which one comes late, and the last one waits for pushes."""
    gate = builder.task(2, [(builder.server(UNIT), 0)])
    first = builder.task(6, [(nic, 1)], THREE, flow=0)
    builder.task(4, [(nic, 0)], TWO, flow=1, after=[gate])
    builder.task(3, [(nic, 0)], flow=0, tie_class=1)
    builder.task(2, [(other, 0)], pushed=[first], flow=2)


def passes_on(builder: ProgramBuilder, nic: int, other: int) -> None:
    """Chunks that arrive one by one are sent on, beside a transfer that is there from the start."""
    arriving = builder.task(9, [(builder.server(UNIT), 1)], THREE)
    builder.task(6, [(nic, 0), (other, 1)], THREE, stream=[arriving], flow=0)
    builder.task(4, [(nic, 0)], TWO, flow=1)
    builder.task(5, [(nic, 2)], flow=2, port=1)


def in_turn(builder: ProgramBuilder, nic: int, other: int) -> None:
    """Two ports of a rank, the first with two transfers, and a chunk of its own size at the end of one."""
    gate = builder.task(3, [(builder.server(UNIT), 0)])
    builder.task(5, [(nic, 0)], TWO, flow=0, port=0)
    builder.task(7, [(nic, 0)], THREE, flow=1, port=0)
    builder.task(2, [(nic, 1)], flow=2, port=1, after=[gate])
    builder.task(2, [(nic, 0)], flow=3, port=1)


def late(builder: ProgramBuilder, nic: int, other: int) -> None:
    """A transfer that is far ahead when one of the same flow and one of another are ready."""
    gate = builder.task(4, [(builder.server(UNIT), 0)])
    ahead = builder.task(9, [(nic, 0)], THREE, flow=0)
    for flow in (1, 0, 2):
        builder.task(4, [(nic, 0)], TWO, flow=flow, after=[gate])
    builder.task(1, [(nic, 0)], flow=3, after=[ahead])


def units(builder: ProgramBuilder, nic: int, other: int) -> None:
    """Three transfers in chunks of the least work, each of its own flow, and one more that is late."""
    for flow in range(3):
        last = builder.task(3, [(nic, 0)], THREE, flow=flow)
    builder.task(2, [(nic, 0)], TWO, flow=3, after=[last])


@pytest.mark.parametrize("queue", [1, 3, 10**6])
@pytest.mark.parametrize("discipline", ["fifo", "lowest-chunk-first"])
@pytest.mark.parametrize("shape", [streams, passes_on, in_turn, late, units])
def test_small_programs(shape: Any, discipline: str, queue: int) -> None:
    """Services of both engines are in the same picoseconds, the certificate holds, and the kernel ends."""
    for push_ps, rate, engines, post_ps in HOW:
        posting = Posting(post_ps, Fraction(push_ps), queue, 2 * (shape is in_turn))
        builder = ProgramBuilder("store-and-forward", posting=posting)
        nic = builder.nic(rate, engines, discipline)
        shape(builder, nic, builder.server(Fraction(UNIT, 2)) if shape is passes_on else builder.nic(UNIT))
        program = builder.build()
        with few_calls():
            found = run(program, log=True)
        assert_same(found, run_reference(program, log=True))
        certify(program, found)
