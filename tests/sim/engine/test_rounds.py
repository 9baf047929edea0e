"""Chunks that are delivered ahead, as those are that wait for the one before them: against both other engines."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.loop import run_rounds
from sim.engine.run import Run
from sim.program import FORWARDING, Cutting, Program, ProgramBuilder
from tests.same_runs import assert_same
from tests.sim.engine.test_engine import assert_loops_agree


@st.composite
def rounds_programs(draw: st.DrawFn) -> Program:
    """Rings whose chunks wait for their own and for those behind them, and tasks of one chunk between them, on servers
    that they share: several arrive in one picosecond, some rings are further than others, and some never begin."""
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)))
    rates = draw(st.lists(st.sampled_from((1, 2, 3, Fraction(1, 2), Fraction(17, 10))), min_size=1, max_size=5))
    servers = [builder.server(Fraction(10**12) / ps) for ps in rates]
    hop, tasks = st.tuples(st.sampled_from(servers), st.sampled_from((0, 1, 2, 9, 40))), list[int]()

    def task(cutting: Cutting, least: int) -> int:
        after = draw(st.lists(st.sampled_from(tasks), max_size=2)) if tasks else []
        path = draw(st.lists(hop, min_size=least, max_size=3))
        found = builder.task(draw(st.integers(8, 30)), path, cutting, after=after, tie_class=draw(st.integers(0, 1)))
        assert isinstance(found, int)
        return found

    for _ in range(draw(st.integers(1, 4))):
        cutting = Cutting(chunks=draw(st.integers(2, 8)))
        ring = [task(cutting, 1) for _ in range(draw(st.integers(1, 5)))]
        for place, one in enumerate(ring):
            builder.window(one, one, 1)
            if draw(st.integers(0, 7)) and len(ring) > 1:
                builder.window(one, ring[place - 1], 1)
        tasks += ring
        for _ in range(draw(st.integers(0, 2))):
            tasks.append(task(Cutting(chunks=1), 0))
    return builder.build()


@settings(max_examples=200, deadline=None)
@given(rounds_programs(), st.integers(1, 7))
def test_chunks_are_delivered_ahead(program: Program, max_events: int) -> None:
    """Every service begins in the same picosecond as where each delivery is an event; also in slices."""
    assert Run(program)._kernel is run_rounds
    whole, sliced = assert_loops_agree(program), Run(program, log=True)
    while not isinstance(whole, str) and not sliced.advance(max_events=max_events):
        pass
    if not isinstance(whole, str):
        assert_same(sliced.outcome(), whole)


@pytest.mark.parametrize("change", [
    "nothing", "an own window of two", "no own window", "another number of chunks", "heads", "no server", "three wait",
    "two others", "a pool", "chunk by chunk",
])
def test_what_else_a_chunk_may_wait_for_makes_each_delivery_an_event(change: str) -> None:
    builder = ProgramBuilder(deliver="head" if change == "heads" else "tail")
    wire = builder.server(1e12)
    ring = [builder.task(24, [(wire, 5)] * (change != "no server" or not at),
                         Cutting(chunks=5 if change == "another number of chunks" and at == 2 else 4))
            for at in range(4)]
    for place, one in enumerate(ring):
        if change != "no own window" or place:
            builder.window(one, one, 1 + (change == "an own window of two"))
        builder.window(one, ring[0 if change == "three wait" else place - 1], 1)
    if change == "two others":
        builder.window(ring[3], ring[1], 1)
    if change == "a pool":
        builder.ask(ring[0], builder.pool(1), 1)
    if change == "chunk by chunk":
        builder.task(24, [(wire, 5)], Cutting(chunks=4), stream=[ring[0]])
    program = builder.build()
    assert (Run(program)._kernel is run_rounds) is (change == "nothing")
    assert_loops_agree(program)
