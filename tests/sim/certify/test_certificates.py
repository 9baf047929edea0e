"""Certificates pass on every run and catch what they are for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.certify.healthy import CertificateError, certify
from sim.certify.times import free_ps
from sim.engine.run import run
from sim.program import Cutting, Posting, Program, ProgramBuilder
from sim.program.outcome import Deadlock, Outcome
from tests.strategies import nic_programs, programs


@settings(max_examples=100, deadline=None)
@given(st.one_of(programs(), nic_programs(pools=True)))
def test_every_run_passes(program: Program) -> None:
    """On any program that ends, all certificates hold."""
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        return


def test_nothing_to_do_is_done_at_once() -> None:
    program = ProgramBuilder().build()
    certify(program, run(program, log=True))
    with pytest.raises(CertificateError, match="bound"):
        certify(program, run(program, log=True), 1)


def healthy() -> tuple[Program, Outcome]:
    builder = ProgramBuilder()
    wire = builder.server(1e9)
    first = builder.task(10, [(wire, 1000)], Cutting(chunks=2))
    builder.task(10, [(wire, 1000)], Cutting(chunks=2), after=[first])
    program = builder.build()
    return program, run(program, log=True)


def test_a_lost_service_breaks_conservation() -> None:
    """A chunk that never crossed its server is missed."""
    program, outcome = healthy()
    with pytest.raises(CertificateError, match="conservation: 3 services"):
        certify(program, outcome._replace(events=3))


def test_wrong_busy_time_breaks_conservation() -> None:
    """A server that was busy for more or less than its work is named."""
    program, outcome = healthy()
    with pytest.raises(CertificateError, match="conservation: server 0"):
        certify(program, outcome._replace(busy_ps=outcome.busy_ps + 1))


def test_more_work_than_time_breaks_capacity() -> None:
    """A makespan shorter than a server's work cannot be."""
    program, outcome = healthy()
    with pytest.raises(CertificateError, match="capacity: server 0"):
        certify(program, outcome._replace(makespan_ps=19_000))


def test_two_services_at_once_break_capacity() -> None:
    """A log in which services overlap is caught, whatever the totals say."""
    program, outcome = healthy()
    assert outcome.log is not None
    starts = outcome.log.start_ps.copy()
    starts[1] -= 1
    with pytest.raises(CertificateError, match="serves two chunks at"):
        certify(program, outcome._replace(log=outcome.log._replace(start_ps=starts)))


def test_a_start_before_its_dependency_breaks_causality() -> None:
    """A task may not start before what it waits for is delivered."""
    program, outcome = healthy()
    early = outcome.start_ps.copy()
    early[1] = outcome.finish_ps[0] - 1
    with pytest.raises(CertificateError, match="causality: task 1 started"):
        certify(program, outcome._replace(start_ps=early))


def test_a_finish_before_the_start_breaks_causality() -> None:
    """Nor finish before it starts."""
    program, outcome = healthy()
    finish = outcome.finish_ps.copy()
    finish[1] = outcome.start_ps[1] - 1
    with pytest.raises(CertificateError, match="causality: task 1 finished"):
        certify(program, outcome._replace(finish_ps=np.asarray(finish)))


def streamed() -> tuple[Program, Outcome]:
    """Chunk by chunk over a task without servers to a third, which holds the first back in a window."""
    builder = ProgramBuilder()
    wires = [builder.server(10**12) for _ in range(2)]
    first = builder.task(40, [(wires[0], 3), (wires[1], 2)], Cutting(chunks=4))
    second = builder.task(40, [(wires[1], 2)], Cutting(chunks=4), stream=[first])
    builder.window(first, second, 3)
    pause = builder.task(3, cutting=Cutting(chunks=3), stream=[first])
    builder.task(10, [(wires[0], 1)], after=[pause])
    program = builder.build()
    return program, run(program, log=True)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("hop_latency_ps", lambda old: old + 1, "causality: task 0 finished"),
        ("hop_latency_ps", lambda old: old - 1, "causality: task 0 finished"),
        ("hop_latency_ps", lambda old: old + (old == 3), "causality: chunk 0 of task 0 is served by server 1 at 3 ps"),
        ("hop_latency_ps", lambda old: old - (old == 3), "capacity: chunk 0 of task 0 waits at server 1"),
        ("cut_through", lambda old: 0, "causality: chunk 0 of task 0 is served by server 1 at 3 ps"),
        ("parent_lag", lambda old: np.where(old, 2, old), "causality: chunk 2 of task 0 is served"),
        ("parent_lag", lambda old: np.where(old, 4, old), "capacity: chunk 3 of task 0 waits"),
    ],
)
def test_the_run_of_another_program_is_caught(field: str, change: Callable[[Any], Any], message: str) -> None:
    """What each service waits for is worked out from the program."""
    program, outcome = streamed()
    certify(program, outcome)
    with pytest.raises(CertificateError, match=message):
        certify(program._replace(**{field: change(getattr(program, field))}), outcome)


@pytest.mark.parametrize(
    ("field", "shift", "message"),
    [
        ("start_ps", [1, 0, 0, 0], "causality: task 0 started at another time than its first service, at 0 ps"),
        ("start_ps", [0, 0, -1, 0], "task 2, without servers, started at .* before it was released"),
        ("start_ps", [0, 0, 1, 0], "task 2, without servers, started at .* later than its release"),
        ("finish_ps", [0, 0, -1, 0], "task 2, without servers, ended at .* before it was released"),
    ],
)
def test_a_task_that_was_there_at_another_time_is_caught(field: str, shift: list[int], message: str) -> None:
    """Too early or too late, with servers or without."""
    program, outcome = streamed()
    with pytest.raises(CertificateError, match=message):
        certify(program, outcome._replace(**{field: np.add(getattr(outcome, field), shift)}))


def pushed() -> tuple[Program, Outcome]:
    """Of what waits for a push of 6 ps that begins at 20: a task with a link, and one without servers."""
    builder = ProgramBuilder("store-and-forward", posting=Posting(0, Fraction(1), 10**6, 0))
    nic = builder.nic(10**12)
    gate = builder.task(20, [(builder.server(10**12), 0)])
    sent = builder.task(6, [(nic, 100)], after=[gate])
    builder.task(2, [(builder.server(10**12), 0)], pushed=[sent])
    builder.task(0, pushed=[sent])
    program = builder.build()
    return program, run(program, log=True)


@pytest.mark.parametrize(("task", "at_ps", "message"), [
    (2, 25, "causality: chunk 0 of task 2 is served by server 2 at 25 ps, before it is there"),
    (2, 27, "capacity: chunk 0 of task 2 waits at server 2, which is free, until 27 ps"),
    (3, 25, "causality: task 3, without servers, started at 25 ps, before it was released"),
    (3, 27, "causality: task 3, without servers, started at 27 ps, later than its release"),
])
def test_what_waits_for_a_push_begins_when_it_ends(task: int, at_ps: int, message: str) -> None:
    program, outcome = pushed()
    certify(program, outcome)
    assert outcome.log is not None
    assert outcome.start_ps.tolist() == [0, 20, 26, 26]
    start, finish, log = outcome.start_ps.copy(), outcome.finish_ps.copy(), outcome.log.start_ps.copy()
    finish[task] += at_ps - start[task]
    start[task] = at_ps
    log[outcome.log.base[2]] = start[2]
    with pytest.raises(CertificateError, match=message):
        certify(program, outcome._replace(start_ps=start, finish_ps=finish, log=outcome.log._replace(start_ps=log)))


def test_when_a_server_was_free_is_counted_out() -> None:
    """The end of the service before, or 0."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        server, now = rng.integers(0, 3, 12).astype(np.int32), [0, 0, 0]
        start, free = np.zeros((2, 12), np.int64)
        for row, one in enumerate(server.tolist()):
            free[row], start[row] = now[one], now[one] + int(rng.choice((0, 0, 0, 4)))
            now[one] = int(start[row]) + 3
        end = start + 3
        served = np.lexsort((start, server))
        np.testing.assert_array_equal(free_ps(served, server, end), free)


def test_a_run_below_its_bound_breaks_bounds() -> None:
    """No run is faster than a lower bound."""
    program, outcome = healthy()
    with pytest.raises(CertificateError, match="bounds: the run took"):
        certify(program, outcome, lower_bound_ps=outcome.makespan_ps + 1)
