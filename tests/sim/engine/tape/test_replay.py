"""The tape against the engine: equal to the picosecond, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sim.engine.run import run
from sim.engine.tape.tape import Replay, Tape
from sim.program import I64, Cutting, Program, ProgramBuilder
from sim.program.outcome import Deadlock
from tests.strategies import fifo_programs, joining_programs, pooled_fifo_programs
from topologies import WeftError


def recorded(program: Program) -> Tape | None:
    try:
        return Tape.record(program)
    except Deadlock:
        return None


def scaled(program: Program, factor: list[int]) -> I64:
    """The services of a program, times as much at each of its rates as is given for it in turn."""
    of_rate = np.resize(np.array(factor), program.n_rates)
    return (program.service_ps.reshape(-1, program.n_rates) * of_rate).reshape(-1)


def assert_replays(tape: Tape, program: Program) -> bool:
    """The replay is the engine's run, or says that the order changed; returns which."""
    replay = tape.replay(program)
    if replay.in_order:
        outcome = run(program)
        assert replay.makespan_ps == outcome.makespan_ps
        np.testing.assert_array_equal(tape.finish_ps(), outcome.finish_ps)
        np.testing.assert_array_equal(tape.start_ps(program), outcome.start_ps)
    return replay.in_order


@settings(max_examples=100, deadline=None)
@given(fifo_programs())
def test_a_tape_replays_its_own_run(program: Program) -> None:
    """With the recorded times the order is the recorded one, and every start and finish is the engine's."""
    tape = recorded(program)
    if tape is not None:
        assert assert_replays(tape, program)


@settings(max_examples=100, deadline=None)
@given(fifo_programs(), st.data())
def test_a_replay_is_the_run_or_is_refused(program: Program, data: st.DataObject) -> None:
    """With other rates and latencies: equal to the picosecond wherever the order of service is unchanged."""
    tape = recorded(program)
    if tape is None:
        return
    for _ in range(4):
        factor = data.draw(st.lists(st.integers(1, 5), min_size=program.n_rates, max_size=16))
        service = scaled(program, factor)
        latency = program.hop_latency_ps * data.draw(st.integers(1, 3))
        held = assert_replays(tape, program._replace(service_ps=service, hop_latency_ps=latency))
        event("order held" if held else "order changed")


@settings(max_examples=150, deadline=None)
@given(st.one_of(pooled_fifo_programs(), joining_programs(5)), st.data())
def test_pools_grant_in_the_recorded_order_or_not_at_all(program: Program, data: st.DataObject) -> None:
    """With pools: a replay is the run, or is rejected; its own run is rejected only where requests tie."""
    tape = recorded(program)
    if tape is None:
        return
    event(f"own run in order: {assert_replays(tape, program)}, pools: {program.pool_capacity.size}")
    for _ in range(3):
        factor = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=16))
        service = scaled(program, factor)
        held = assert_replays(tape, program._replace(service_ps=service))
        event("order held" if held else "order changed")


def test_a_pool_is_replayed() -> None:
    """Three tasks share one unit: each begins when the one before is delivered, at any rate."""
    builder = ProgramBuilder()
    pool = builder.pool(1)
    for index in range(3):
        task = builder.task(10, [(builder.server(1e12), 7)], tie_class=index)
        builder.ask(task, pool)
        builder.give(task, pool)
    program = builder.build()
    tape = Tape.record(program)
    assert tape.replay(program) == Replay(51)
    assert tape.replay(program._replace(service_ps=3 * program.service_ps)) == Replay(111)


def test_what_asks_behind_a_grant_comes_last() -> None:
    """Of two requests in one picosecond, the one that another pool's grant leads to is later, though its tie is first.

    It was first when the tape was recorded, with the slower of two sources twice as slow.
    """
    builder = ProgramBuilder()
    one, other = builder.pool(1), builder.pool(1)
    common = builder.server(1e12)
    joins = []
    for tie, rate in ((0, 1e12), (1, 5e11)):
        sent = builder.task(10, [(builder.server(rate), 0)])
        joins.append(builder.task(0, after=[sent], tie_class=tie))
    builder.ask(joins[0], other)
    joins[0] = builder.task(0, after=[joins[0]])
    for join, work in zip(joins, (50, 70), strict=True):
        builder.ask(join, one)
        builder.give(builder.task(work, [(common, 0)], after=[join]), one)
    program = builder.build()
    tape = Tape.record(program)
    assert assert_replays(tape, program)
    alike = program.service_ps.reshape(-1, program.n_rates).copy()
    alike[:, 1] = alike[:, 0]
    assert not assert_replays(tape, program._replace(service_ps=alike.reshape(-1)))


def two_sources() -> ProgramBuilder:
    """Two tasks reach a common server over servers of their own, the first of them earlier."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    fast, slow, common = builder.server(3), builder.server(2), builder.server(10)
    for own in (fast, slow):
        builder.task(6, [(own, 0), (common, 0)])
    return builder


def test_a_changed_order_is_noticed() -> None:
    """When the second task would overtake the first, the replay says that its times are those of no run."""
    program = two_sources().build()
    tape = Tape.record(program)
    slower = scaled(program, [1, 2, 1])  # rate 1 is that of the first task's own server
    replay = tape.replay(program._replace(service_ps=slower))
    assert not replay.in_order
    assert Tape.record(program._replace(service_ps=slower)).replay(program._replace(service_ps=slower)).in_order


@pytest.mark.parametrize(("first", "second", "holds"), [(0, 1, True), (1, 0, False)])
def test_a_tie_is_an_order_too(first: int, second: int, holds: bool) -> None:
    """Arrivals that come to coincide are served in the order of their ties: the recorded one, or another."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    fast, slow, common = builder.server(4), builder.server(3), builder.server(10)
    builder.task(12, [(fast, 0), (common, 0)], tie_class=first)
    builder.task(12, [(slow, 0), (common, 0)], tie_class=second)
    program = builder.build()
    tape = Tape.record(program)
    alike = program.service_ps.reshape(-1, 3).copy()
    alike[:, 1] = alike[:, 0]
    assert assert_replays(tape, program._replace(service_ps=alike.reshape(-1))) == holds


def test_joins_of_many_waits() -> None:
    """A task that waits for several others, some without servers, begins when the last of them is in."""
    builder = ProgramBuilder()
    wires = [builder.server(1e12 / (i + 1)) for i in range(4)]
    sent = [builder.task(10, [(wire, 3)], Cutting(chunks=2)) for wire in wires]
    join = builder.task(0, (), Cutting(chunks=3), after=sent[:3])
    second = builder.task(0, (), after=[join])
    builder.task(5, [(wires[0], 1)], Cutting(chunks=5), after=[second], stream=[sent[3]])
    program = builder.build()
    assert assert_replays(Tape.record(program), program)


def test_servers_recorded_alike_must_stay_alike() -> None:
    """Rates that one column held when the tape was recorded cannot differ in a replay."""
    builder = ProgramBuilder()
    one, other = builder.server(1e9), builder.server(1e9)
    builder.task(1000, [(one, 5), (other, 5)])
    program = builder.build()
    tape = Tape.record(program)
    apart = program._replace(
        server_rate=np.array([0, 1], np.int32), n_rates=2,
        service_ps=np.append(program.service_ps, 2 * program.service_ps),
    )
    with pytest.raises(WeftError, match="record the tape with a rate column for each"):
        tape.replay(apart)


def test_other_disciplines_are_refused() -> None:
    """Priorities choose anew when times change: the engine must run."""
    builder = ProgramBuilder()
    builder.task(10, [(builder.server(1e9, "priority"), 0)])
    with pytest.raises(WeftError, match="fifo servers and pools"):
        Tape.record(builder.build())


def test_nothing_is_recorded_of_nothing() -> None:
    """A program without tasks has a tape without ops."""
    builder = ProgramBuilder()
    builder.server(1.0)
    program = builder.build()
    assert Tape.record(program).replay(program) == Replay(0)
