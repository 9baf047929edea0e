"""Certificates pass on every run and catch what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from sim.certificates import CertificateError, certify
from sim.engine import run
from sim.outcome import Deadlock, Outcome
from sim.program import Cutting, Program, ProgramBuilder
from tests.strategies import programs


@settings(max_examples=100, deadline=None)
@given(programs())
def test_every_run_passes(program: Program) -> None:
    """On any program that ends, all certificates hold."""
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        return


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


def test_a_run_below_its_bound_breaks_bounds() -> None:
    """No run is faster than a lower bound."""
    program, outcome = healthy()
    with pytest.raises(CertificateError, match="bounds: the run took"):
        certify(program, outcome, lower_bound_ps=outcome.makespan_ps + 1)
