"""The chunk engine against the reference engine, and against itself in slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import _kernel as kernel
from sim.engine import Run, Stopped, check_memory, run
from sim.outcome import Deadlock, Outcome
from sim.program import Cutting, Program, ProgramBuilder
from sim.reference import run_reference
from tests.strategies import fifo_programs, programs
from topologies import WeftError


def assert_same(one: Outcome, other: Outcome) -> None:
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)
    if one.log is not None and other.log is not None:
        for mine, theirs in zip(one.log, other.log, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def outcome_or_deadlock(program: Program, engine: str) -> Outcome | str:
    try:
        return run(program, log=True) if engine == "chunk" else run_reference(program, log=True)
    except Deadlock as stuck:
        return str(stuck)


@settings(max_examples=400, deadline=None)
@given(programs())
def test_engines_agree_on_random_programs(program: Program) -> None:
    """Every service of every chunk starts in the same picosecond in both engines, or both see the same deadlock."""
    chunk, reference = outcome_or_deadlock(program, "chunk"), outcome_or_deadlock(program, "reference")
    if isinstance(chunk, str) or isinstance(reference, str):
        assert chunk == reference
    else:
        assert_same(chunk, reference)


@settings(max_examples=200, deadline=None)
@given(fifo_programs())
def test_committing_on_arrival_is_choosing_at_start(program: Program) -> None:
    """The fifo kernel and the general kernel are one engine."""
    fifo, general = Run(program, log=True), Run(program, log=True)
    general._kernel = kernel.run_general
    assert fifo._kernel is kernel.run_fifo
    try:
        fifo.advance()
    except Deadlock:
        with pytest.raises(Deadlock):
            general.advance()
        return
    general.advance()
    assert_same(fifo.outcome(), general.outcome())


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(1, 7), st.integers(1, 50))
def test_slices_give_the_same_arrays(program: Program, max_events: int, step_ps: int) -> None:
    """A run in slices of any number of events, or of picoseconds, is the run in one go."""
    whole = outcome_or_deadlock(program, "chunk")
    if isinstance(whole, str):
        return
    by_events, by_time = Run(program, log=True), Run(program, log=True)
    while not by_events.advance(max_events=max_events):
        pass
    until, span = 0, max(step_ps, whole.makespan_ps // 40)
    while not by_time.advance(until_ps=until):
        assert by_time.now_ps <= until
        until += span
    assert_same(by_events.outcome(), whole)
    assert_same(by_time.outcome(), whole)


def two_hop_burst(n_tasks: int) -> Program:
    builder = ProgramBuilder(forwarding="store-and-forward")
    first, second = builder.server(1e12), builder.server(1e12)
    for _ in range(n_tasks):
        builder.task(10, [(first, 1000), (second, 1000)], Cutting(chunks=10))
    return builder.build()


def test_tokens_grow_when_chunks_in_flight_exceed_them() -> None:
    """A long wire holds more chunks than the engine set aside: it makes room and goes on."""
    program = two_hop_burst(40)
    one = Run(program)
    few = one.state.token_task.size
    one.advance()
    assert one.state.token_task.size > few
    assert_same(one.outcome(), run_reference(program))


def test_event_limit_says_how_far_it_came() -> None:
    """A run that reaches its limit reports simulated time and services done."""
    with pytest.raises(Stopped, match=r"limit of 5 services, at .* of 800 services"):
        run(two_hop_burst(40), max_events=5)


def test_too_large_for_memory_is_refused_before_it_starts() -> None:
    """The estimate, and what makes it smaller, are in the message."""
    with pytest.raises(WeftError, match=r"needs about .* the limit is 1 KiB: use fewer"):
        check_memory(two_hop_burst(40), log=True, limit_bytes=1024)


def test_one_specialisation() -> None:
    """Whatever the program, the kernel compiles once: casts happen at the door."""
    run(two_hop_burst(2))
    for entry in (kernel.run_fifo, kernel.run_general):
        assert len(getattr(entry, "signatures", [()])) <= 1


def test_nothing_to_do_takes_no_time() -> None:
    """A program without tasks ends at zero."""
    builder = ProgramBuilder()
    builder.server(1.0)
    outcome = run(builder.build())
    assert (outcome.makespan_ps, outcome.events) == (0, 0)
