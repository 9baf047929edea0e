"""Every piece of a critical path against an oracle that knows what may lie before what."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.run import run
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.contract import PER_TASK
from sim.program.disrupt import Disruptions, disrupt
from sim.program.outcome import Deadlock, Outcome
from sim.why.faulty_path import walk_of
from sim.why.path import PLAIN, Labels, LoggedWalk, Wait, Why
from tests.fault_strategies import faulty_programs
from tests.oracles.critical_path import Paths
from tests.oracles.logged_walk import LoggedSteps
from tests.strategies import credit_programs, fifo_programs, nic_programs, programs


def classes(program: Program) -> Labels:
    """Servers in two classes; a third of each latency is called a wire, and one picosecond an endpoint."""
    def latency(hop: int) -> list[tuple[str, int]]:
        total = int(program.hop_latency_ps[hop])
        return [("wire", total // 3), ("endpoint", min(total, 1))]

    return Labels(lambda server: "even" if server % 2 == 0 else "odd", latency)


def explained(program: Program) -> tuple[Outcome, Why] | None:
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return None
    return outcome, walk_of(program, outcome, classes(program)).walk()


def check(program: Program) -> None:
    found = explained(program)
    if found is None:
        return
    outcome, why = found
    assert why.makespan_ps == outcome.makespan_ps
    assert Paths(program, outcome, classes(program)).explain(why.pieces)
    served = {label: sum(piece.end_ps - piece.start_ps for piece in why.pieces if piece.name.endswith(f", {label}")
                         and not piece.name.startswith("waiting"))
              for label in ("even", "odd")}
    assert sum(served.values()) == sum(why.service_ps.values())
    if not (program.cut_through and program.is_healthy):  # those are differences: test_why.py
        assert {label: ps for label, ps in served.items() if ps} == why.service_ps


@settings(max_examples=240)
@given(programs(pools=False))
def test_pieces_are_what_the_log_says(program: Program) -> None:
    check(program)


@pytest.mark.compiled
@settings(max_examples=160)
@given(faulty_programs(base=fifo_programs()))
def test_pieces_are_what_the_journal_says(program: Program) -> None:
    check(program)


@settings(max_examples=160)
@given(st.one_of(programs(), credit_programs(), nic_programs()))
def test_the_kernel_walks_as_the_steps_do(program: Program) -> None:
    """All paths together are those of the oracle one by one, whatever was walked before them."""
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return
    kernel, steps = (walks(program, outcome, classes(program)) for walks in (LoggedWalk, LoggedSteps))
    assert kernel.walk().pieces == steps.walk().pieces
    waits = [Wait(task, outcome.makespan_ps * (task % 3) // 4, delivered=True) for task in range(program.n_tasks)]
    one_by_one = [piece for wait in waits for piece in steps.trail([wait]).listed(steps.names)]
    assert list(kernel.trail(waits).listed(kernel.names)) == one_by_one


def walk(builder: ProgramBuilder) -> LoggedWalk:
    program = builder.build()
    return LoggedWalk(program, run(program, log=True))


def delivered(found: LoggedWalk, task: int) -> list[int]:
    first, chunks = found.back.first[task], found.program.chunks()[task]
    return found.back.join_ps[first : first + chunks].tolist()


def test_joins_pass_chunks_on_when_they_come() -> None:
    """Three chunks are in at 5, 8 and 11: one by one, half by half, in windows of one and two, and as a whole."""
    builder = ProgramBuilder("store-and-forward")
    sent = builder.task(9, [(builder.server(1e12), 2)], Cutting(chunks=3))
    three, six = Cutting(chunks=3), Cutting(chunks=6)
    joins = [builder.task(3, (), three, stream=[sent]), builder.task(6, (), six, stream=[sent]),
             builder.task(3, (), three, window=[(sent, 1)]), builder.task(3, (), three, window=[(sent, 2)]),
             builder.task(3, (), three, after=[sent])]
    found = walk(builder)
    assert [delivered(found, task) for task in joins] == [
        [5, 8, 11], [5, 5, 8, 8, 11, 11], [0, 5, 8], [0, 0, 5], [11, 11, 11],
    ]


def test_a_task_may_wait_for_one_of_a_higher_number() -> None:
    builder = ProgramBuilder("store-and-forward")
    first = builder.task(3, [(builder.server(1e12), 1)], after=[1])
    builder.task(5, [(builder.server(1e12), 1)])
    check(builder.build())
    assert [piece.task for piece in walk(builder).walk().pieces] == [1, 1, first, first]


def test_what_is_sent_another_way_waited_for_the_service_before_not_after() -> None:
    """At 3 a task that is chosen leaves for another server, and the one behind begins in that picosecond."""
    builder = ProgramBuilder("store-and-forward")
    shared, other = builder.server(1e12), builder.server(1e12)
    builder.task(3, [(shared, 1)])
    moved = builder.task(9, [(shared, 1)])
    served = builder.task(2, [(shared, 1)])
    faults = Disruptions()
    faults.detours[moved] = [(1, ((other, 1),))]
    program = disrupt(builder.build(), faults)
    outcome = run(program, log=True)
    assert outcome.start_ps.tolist() == [0, 4, 3]
    check(program)
    why = walk_of(program, outcome, PLAIN).walk()
    assert served not in {piece.task for piece in why.pieces}


def test_a_join_that_waits_for_a_unit_is_delivered_when_it_has_it() -> None:
    """It is granted at 11, when the holder is in, and what streams behind it begins then."""
    builder = ProgramBuilder("store-and-forward")
    pool = builder.pool(1)
    holder = builder.task(10, [(builder.server(1e12), 1)])
    join = builder.task(0, (), after=[builder.task(2, [(builder.server(1e12), 1)])])
    last = builder.task(4, [(builder.server(1e12), 1)], stream=[join])
    for task in (holder, join):
        builder.ask(task, pool)
        builder.give(task, pool)
    found = walk(builder)
    assert [(piece.task, piece.end_ps) for piece in found.walk().pieces] == [
        (holder, 10), (holder, 11), (last, 15), (last, 16),
    ]


@pytest.mark.parametrize("chunks", [2, 3])
def test_a_join_that_waits_for_its_units_passes_no_chunk_on_before(chunks: int) -> None:
    """One task has the only unit until 2; a join asks for it with its first chunk, and another follows the join."""
    builder = ProgramBuilder("cut-through")
    pool = builder.pool(1)
    holder = builder.task(1, [(builder.server(1e12), 1)])
    builder.ask(holder, pool, 1, PER_TASK)
    builder.give(holder, pool, 1, PER_TASK)
    join = builder.task(chunks, (), Cutting(chunks=chunks))
    builder.ask(join, pool, 1, PER_TASK)
    follows = builder.task(chunks, (), Cutting(chunks=chunks), stream=[join])
    program = builder.build()
    check(program)
    found = walk(builder)
    assert delivered(found, join) == delivered(found, follows) == [found.outcome.finish_ps[holder]] * chunks
    steps = LoggedSteps(program, found.outcome, PLAIN)
    waits = [Wait(task, int(found.outcome.finish_ps[task]), delivered=True) for task in range(program.n_tasks)]
    assert list(found.trail(waits).listed(found.names)) == [
        piece for wait in waits for piece in steps.trail([wait]).listed(steps.names)]
