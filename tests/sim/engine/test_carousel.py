"""Chunks that cross one server again and again, from queues: against the loop with a calendar and the reference."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from sim.engine import carousel
from sim.engine.carousel import Carousel
from sim.engine.reference.engine import run_reference
from sim.engine.run import Run
from sim.lower.job import lower
from sim.program import FORWARDING, Cutting, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.model_options import DELIVERY
from sim.program.outcome import Outcome
from tests.same_runs import assert_same
from topologies import from_spec


@st.composite
def round_trips(draw: st.DrawFn) -> Program:
    """Tasks that each cross one of a few servers up to nine times: of one class or several, in chunks of two sizes.

    Some wait for times.
    """
    builder = ProgramBuilder(draw(st.sampled_from(FORWARDING)), deliver=draw(st.sampled_from(DELIVERY)))
    rates = draw(st.lists(st.sampled_from((1, 2, 3, Fraction(1, 2), Fraction(17, 10))), min_size=1, max_size=3))
    servers = [(builder.server(Fraction(10**12) / ps), draw(st.sampled_from((1, 2, 9, 40)))) for ps in rates]
    times = [builder.task(1, [(builder.server(1e12), ps)]) for ps in draw(st.lists(st.integers(1, 90), max_size=3))]
    for _ in range(draw(st.integers(1, 9))):
        server, onward_ps = draw(st.sampled_from(servers))
        path = [(server, onward_ps)] * draw(st.integers(0, 8)) + [(server, draw(st.sampled_from((1, 5, 40))))]
        cutting = Cutting(chunks=draw(st.integers(1, 6)))
        after = [one for one in times if draw(st.booleans())]
        builder.task(draw(st.integers(1, 30)), path, cutting, tie_class=draw(st.integers(-1, 2)), after=after)
    return builder.build()


def went_round(program: Program, most: int) -> Outcome:
    one = Carousel(program)
    while not one.advance(most):
        assert one.now_ps >= 0
    return one.outcome()


@settings(max_examples=300, deadline=None)
@given(round_trips(), st.integers(1, 50))
def test_what_a_server_has_served_comes_back_in_that_order(program: Program, most: int) -> None:
    assert Carousel.accepts(program)
    found, calendar = went_round(program, most), Run(program)
    assert calendar.advance()
    assert_same(found, calendar.outcome())
    assert_same(found, run_reference(program))


@pytest.mark.parametrize("change", [
    "nothing", "two servers", "two latencies", "no server", "a wait", "another discipline", "too many chunks",
    "a long wire",
])
def test_what_goes_round(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ProgramBuilder()
    wire, other = builder.server(1e12, "priority" if change == "another discipline" else "fifo"), builder.server(1e12)
    last_ps = 2**59 if change == "a long wire" else 9
    first = builder.task(24, [(wire, 5), (wire, 5), (wire, last_ps)], Cutting(chunks=4))
    path = {"two servers": [(other, 5), (wire, 5)], "two latencies": [(wire, 5), (wire, 6), (wire, 9)], "no server": []}
    after = [first] if change == "a wait" else []
    builder.task(30, path.get(change, [(other, 7), (other, 2)]), Cutting(chunks=3), after=after)
    if change == "too many chunks":
        monkeypatch.setattr(carousel, "MOST_CHUNKS", 6)
    assert Carousel.accepts(builder.build()) is (change == "nothing")


@pytest.mark.compiled
@pytest.mark.parametrize(("n", "size", "chunks", "forwarding"), [
    (2, "1000B", 1, "cut-through"), (13, "1001KiB", 16, "cut-through"), (64, "64B", 5, "store-and-forward"),
    (97, "97KiB", 3, "cut-through"),
])
def test_an_all_to_all_on_a_ring_is_two_servers(
    n: int, size: str, chunks: int, forwarding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the symmetry, in commands: the same result whether it is a run with a calendar or not."""
    schedule = build("direct", "all-to-all", from_spec(f"ring:{n}"), size)
    program = lower(schedule, Model(chunks=chunks, forwarding=forwarding)).program
    assert program.n_servers == 2 - (n == 2)
    calendar = simulate(schedule, chunks=chunks, forwarding=forwarding)
    monkeypatch.setattr("sim.engine.run.FEWEST_SERVICES", 1)
    monkeypatch.setattr(Run, "advance", None)
    found = simulate(schedule, chunks=chunks, forwarding=forwarding)
    assert found.time_ps == calendar.time_ps
    assert found.ran is not None
    assert calendar.ran is not None
    assert_same(found.ran, calendar.ran)
