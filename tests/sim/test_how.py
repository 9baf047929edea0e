"""How runs are done: programs that are no job are checked, stopped and run in full as those of `simulate`."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import ring as rings
from sim.certify import healthy
from sim.how import How
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from sim.program.outcome import CertificateError, Stopped
from topologies import ring


def program(chunks: int = 1) -> Program:
    return lower(rings.all_reduce(ring(4), "8MiB"), Model(chunks=chunks), "off").program


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


def test_limits_and_stretches_are_those_of_the_engine() -> None:
    long = program(chunks=8192)
    skipped, full = How().run(long), How(skip=False).run(long)
    assert skipped.skipped > 0 == full.skipped
    assert np.array_equal(skipped.finish_ps, full.finish_ps)
    with pytest.raises(Stopped, match="limit of 9 services"):
        How(max_events=9).run(program())


def test_its_arguments_are_those_of_simulate() -> None:
    assert How(threads=2).arguments() == {"check": False, "max_events": None, "skip": True, "threads": 2}
