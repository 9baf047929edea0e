"""Each number of a run, changed by one, breaks a certificate; and the rarer runs that are right pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from sim.certify.healthy import CertificateError, certify
from sim.certify.schedule import certify_circuits
from sim.engine.run import run
from sim.program import PER_CHUNK, PER_TASK, Cutting, Program, ProgramBuilder
from sim.program.contract import COMPLETES, DROPS, LOSES
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.outcome import Deadlock, Journal, Outcome
from tests.fault_strategies import faulty_programs
from topologies import from_links
from workloads.job import Reconfigure

FAST, SLOW = 10**12, 10**12 // 3


def streams(**given: str) -> Program:
    """Three chunks, the last shorter, over rates that fall and rise; a child by chunks, windows of one, a join."""
    builder = ProgramBuilder(**given)
    servers = [builder.server(rate) for rate in (FAST, SLOW, FAST, SLOW)]
    one = builder.task(10, [(server, 2) for server in servers[:3]], Cutting(chunks=3))
    two = builder.task(7, [(servers[3], 1), (servers[0], 5)], Cutting(chunks=2), stream=[one])
    builder.window(one, two, 2)
    join = builder.task(0, after=[one, two])
    three = builder.task(11, [(servers[2], 0)], Cutting(chunks=4), after=[join])
    builder.window(three, three, 1)
    return builder.build()


def pooled(per: int) -> Program:
    """Two tasks of two chunks that share a unit, and one without servers that asks as well."""
    builder = ProgramBuilder()
    pool, wire = builder.pool(1), builder.server(FAST)
    for route in ([(wire, 3)], [(builder.server(SLOW), 1)], []):
        task = builder.task(10, route, Cutting(chunks=2))
        builder.ask(task, pool, 1, per)
        builder.give(task, pool, 1, per)
    builder.task(4, [(wire, 1)])
    return builder.build()


def troubled(crossing: int = LOSES, **given: str) -> Program:
    """`streams`, with servers that fail, slow down, lose and jitter, a detour and a deadline."""
    faults = Disruptions(
        phases={0: [Phase(4, Fraction(0)), Phase(30), Phase(60, Fraction(1, 2), 3)], 2: [Phase(9, Fraction(1, 2), 1)]},
        crossing={0: crossing}, loss={1: 0.3}, resend_ps={0: 9, 1: 5},
        jitter={2: (np.array([0, 3, 6, 9]), False), 3: (np.array([0, 1, 2, 3]), True)},
        detours={0: [(12, ((3, 3), (2, 3)))]}, deadline_ps={3: 90}, seed=5,
    )  # fmt: skip
    return disrupt(streams(**given), faults)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "cut-through": streams,
    "store-and-forward": lambda: streams(forwarding="store-and-forward"),
    "head": lambda: streams(deliver="head"),
    "pool per chunk": lambda: pooled(PER_CHUNK),
    "pool per task": lambda: pooled(PER_TASK),
    "faults": troubled,
    "faults that drop": lambda: troubled(LOSES + DROPS),
    "faults that complete": lambda: troubled(COMPLETES),
    "faults, store-and-forward": lambda: troubled(forwarding="store-and-forward"),
}


def cells(outcome: Outcome) -> Iterator[tuple[str, int, Outcome]]:
    """The outcome with one number changed by one, or one flag turned."""
    for name in ("start_ps", "finish_ps", "busy_ps"):
        for row, change in _changed(getattr(outcome, name)):
            yield name, row, outcome._replace(**{name: change})
    if outcome.journal is not None:
        for name in outcome.journal._fields:
            for row, change in _changed(getattr(outcome.journal, name)):
                yield f"journal {name}", row, outcome._replace(journal=outcome.journal._replace(**{name: change}))
    elif outcome.log is not None:
        for row, change in _changed(outcome.log.start_ps):
            yield "log", row, outcome._replace(log=outcome.log._replace(start_ps=change))


def _changed(column: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for row in range(column.size):
        for by in (1, -1) if column.dtype != np.bool_ else (True,):
            change = column.copy()
            change[row] = ~change[row] if column.dtype == np.bool_ else change[row] + by
            yield row, change


def passes(program: Program, outcome: Outcome) -> bool:
    try:
        certify(program, outcome)
    except (CertificateError, IndexError):  # a task, a chunk or a hop that is none
        return False
    return True


UNNOTICED = {name: {("start_ps", 2), ("finish_ps", 2)} for name in ("pool per chunk", "pool per task")}
"""When a pool grants is not looked at: the third task there has no servers, and may begin and end with each grant."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_of_a_run_matters(name: str) -> None:
    program = PROGRAMS[name]()
    outcome = run(program, log=True)
    certify(program, outcome, outcome.makespan_ps)
    unnoticed = {(column, row) for column, row, wrong in cells(outcome) if passes(program, wrong)}
    assert unnoticed <= UNNOTICED.get(name, set())


@settings(max_examples=60)
@given(faulty_programs())
def test_every_run_with_faults_passes(program: Program) -> None:
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        return


def certified(program: Program) -> tuple[Program, Outcome, Journal]:
    """A program, its run, which every certificate passes, and the log of it."""
    outcome = run(program, log=True)
    certify(program, outcome)
    assert outcome.journal is not None
    return program, outcome, outcome.journal


@pytest.mark.parametrize(
    ("task", "start", "finish", "message"),
    [
        (2, 79, 80, "causality: task 2 started at 79 ps, before task 1 was delivered at 80 ps"),
        (2, 80, 79, "causality: task 2 finished before it started, or never started"),
        (0, -1, 64, "causality: task 0 finished before it started, or never started"),
        (0, -2, -1, "causality: task 0 finished before it started, or never started"),
    ],
)
def test_the_times_of_tasks_are_looked_at_without_a_log(task: int, start: int, finish: int, message: str) -> None:
    program = streams()
    outcome = run(program)
    certify(program, outcome)
    starts, finishes = outcome.start_ps.copy(), outcome.finish_ps.copy()
    starts[task], finishes[task] = start, finish
    with pytest.raises(CertificateError, match=message):
        certify(program, outcome._replace(start_ps=starts, finish_ps=finishes))


@pytest.mark.parametrize(("deliver", "least_ps"), [("tail", 10), ("head", 5)])
def test_no_server_works_for_longer_than_the_run(deliver: str, least_ps: int) -> None:
    """With head delivery its last service may end after the run: by the longest service, and by no more."""
    builder = ProgramBuilder("store-and-forward", deliver)
    builder.task(10, [(builder.server(FAST), 0)], Cutting(chunks=2))
    program = builder.build()
    outcome = run(program)
    certify(program, outcome._replace(makespan_ps=least_ps))
    with pytest.raises(CertificateError, match="capacity: server 0 was busy for 10 ps of"):
        certify(program, outcome._replace(makespan_ps=least_ps - 1))


def test_what_is_dropped_at_its_source_takes_the_route_in_force() -> None:
    """Both servers are down and drop; from 100 on the task has the second one as a detour, and not before."""
    builder = ProgramBuilder()
    down, other = builder.server(FAST), builder.server(FAST)
    task = builder.task(10, [(down, 1)])
    off = [Phase(0, Fraction(0)), Phase(20)]
    faults = Disruptions(
        phases={down: off, other: off}, crossing=dict.fromkeys((down, other), LOSES + DROPS),
        resend_ps={down: 30, other: 30}, detours={task: [(100, ((other, 1),))]},
    )  # fmt: skip
    program, outcome, journal = certified(disrupt(builder.build(), faults))
    assert journal.start_ps.tolist() == [0, 30]
    at = journal.at.copy()
    at[0] = program.route_ptr[program.detour_route[0]]
    with pytest.raises(CertificateError, match="causality: it takes a route that is not in force: chunk 0 of task 0"):
        certify(program, outcome._replace(journal=journal._replace(at=at)))


@pytest.mark.parametrize(
    ("start", "finish", "message"),
    [
        ([0, 50, 20], [20, 90, 50], ""),
        ([0, 50, 20], [21, 90, 50], "task 0 ends at 21 ps; circuit npu0->npu1 is down from 20 ps"),
        ([0, 49, 20], [20, 90, 50], "task 1 starts at 49 ps; circuit npu0->npu2 is up from 50 ps"),
    ],
)
def test_circuits_are_crossed_from_when_they_are_up_until_they_go_down(
    start: list[int], finish: list[int], message: str
) -> None:
    """To the picosecond; the first server of the second task is no link."""
    fabric = from_links([(0, 1, "1GB/s", "0s"), (0, 2, "1GB/s", "0s")], 3)
    builder = ProgramBuilder()
    servers = [builder.server(FAST) for _ in range(3)]
    builder.task(10, [(servers[0], 0)])
    builder.task(10, [(servers[2], 0), (servers[1], 0)])
    change = builder.task(0)
    program = builder.build()
    outcome = run(program)._replace(start_ps=np.array(start), finish_ps=np.array(finish))
    changes = [(change, Reconfigure(10, down=(0,), up=(1,), controller="switch"))]
    certify_circuits(program, outcome, fabric, np.array([0, 1, -1], np.int32), [])
    if not message:
        certify_circuits(program, outcome, fabric, np.array([0, 1, -1], np.int32), changes)
        return
    with pytest.raises(CertificateError) as refusal:
        certify_circuits(program, outcome, fabric, np.array([0, 1, -1], np.int32), changes)
    assert str(refusal.value) == message


def test_what_is_sent_again_takes_the_route_in_force() -> None:
    """The detour is a server just like the first, and the totals are made to agree: nothing else is wrong."""
    builder = ProgramBuilder("store-and-forward")
    wire, other = builder.server(FAST), builder.server(FAST)
    task = builder.task(10, [(wire, 3)])
    faults = Disruptions(
        phases={wire: [Phase(5, Fraction(0)), Phase(8)]}, crossing={wire: LOSES}, resend_ps={wire: 20, other: 20},
        detours={task: [(12, ((other, 3),))]},
    )  # fmt: skip
    program, outcome, journal = certified(disrupt(builder.build(), faults))
    assert journal.lost.tolist() == [True, False] and outcome.busy_ps.tolist() == [5, 10]
    stays = outcome._replace(
        journal=journal._replace(at=np.full_like(journal.at, journal.at[0])), busy_ps=np.array([15, 0])
    )
    with pytest.raises(CertificateError, match="causality: it takes a route that is not in force: chunk 0 of task 0"):
        certify(program, stays)


def test_what_is_sent_away_is_neither_lost_nor_drawn() -> None:
    """It waits for a server that is down and nearly always loses, and leaves for the other one when that is up."""
    builder = ProgramBuilder("store-and-forward")
    down, other = builder.server(FAST), builder.server(FAST)
    task = builder.task(10, [(down, 3)])
    faults = Disruptions(
        phases={down: [Phase(0, Fraction(0)), Phase(60)]}, crossing={down: LOSES}, loss={down: 0.999999},
        resend_ps={down: 5}, detours={task: [(12, ((other, 3),))]},
    )  # fmt: skip
    _, _, journal = certified(disrupt(builder.build(), faults))
    assert journal.moved.tolist() == [True, False]


def test_a_chunk_is_dropped_at_once() -> None:
    """It comes at 11 to a server that is down from 5 to 20 and drops; everything from then on is one later."""
    builder = ProgramBuilder("store-and-forward")
    down, up = builder.server(FAST), builder.server(FAST)
    builder.task(10, [(up, 1), (down, 1)])
    faults = Disruptions(
        phases={down: [Phase(5, Fraction(0)), Phase(20)]}, crossing={down: LOSES + DROPS}, resend_ps={down: 12, up: 12},
    )  # fmt: skip
    program = disrupt(builder.build(), faults)
    outcome = run(program, log=True)
    journal = outcome.journal
    assert journal is not None
    assert journal.start_ps.tolist() == [0, 11, 23, 34]
    late = {name: np.add(getattr(journal, name), [0, 1, 1, 1]) for name in ("start_ps", "end_ps", "ready_ps")}
    wrong = journal._replace(arrival_ps=np.add(journal.arrival_ps, [0, 0, 1, 1]), **late)
    with pytest.raises(CertificateError, match="capacity: it waits at a free server: chunk 0 of task 0, from 12 ps"):
        certify(program, outcome._replace(journal=wrong, finish_ps=outcome.finish_ps + 1))
