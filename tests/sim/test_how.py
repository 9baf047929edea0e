"""How runs are done: programs that are no job are checked and stopped as those of `simulate`."""

from __future__ import annotations

import pytest

from collectives import ring as rings
from sim.certify import healthy
from sim.how import How
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from sim.program.outcome import CertificateError, Stopped
from topologies import ring


def program() -> Program:
    return lower(rings.all_reduce(ring(4), "8MiB"), Model(), "off").program


def test_a_run_that_is_checked_keeps_a_log_and_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = []
    monkeypatch.setattr(healthy, "_services", lambda program, outcome, log: logs.append(log))
    assert How().run(program()).log is None
    assert not logs
    assert How(check=True).run(program()).log is not None
    assert len(logs) == 1


def test_the_lower_bound_of_a_run_is_checked() -> None:
    time_ps = How(check=True).run(program(), lower_bound_ps=lambda one: 1).makespan_ps
    with pytest.raises(CertificateError, match="below the lower bound"):
        How(check=True).run(program(), lower_bound_ps=lambda one: time_ps + 1)


def test_its_limit_is_that_of_the_engine() -> None:
    with pytest.raises(Stopped, match="limit of 9 services"):
        How(max_events=9).run(program())


def test_its_arguments_are_those_of_simulate() -> None:
    assert How(max_events=2).arguments() == {"check": False, "max_events": 2}
