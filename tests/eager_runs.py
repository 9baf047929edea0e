"""Runs that try to skip wherever they can, held against runs that simulate every service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from sim.certify.healthy import certify
from sim.engine.reference.engine import run_reference
from sim.engine.run import Run
from sim.engine.skip import setup as skipping
from sim.engine.skip.state import ALLOWED
from sim.program import Program
from sim.program.outcome import Deadlock, Outcome
from sim.why.path import explain
from tests.oracles.general_loop.run import run_general_loop

DEFAULTS = {name: getattr(skipping, name) for name in ("LEAST_CHUNKS", "LEAST_SERVICES", "FIRST_WAIT")}
MOST_WALKED, MOST_BY_REFERENCE = 6000, 1500
"""Services of a run whose critical path is walked, and that the reference engine does as well."""


@contextmanager
def on_programs_of_any_size(first_wait: int = 8) -> Iterator[None]:
    """Let runs try from their first services on, however few there are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(DEFAULTS, (2, 0, first_wait), strict=True):
            patch.setattr(skipping, name, value)
        yield


def eager(program: Program, log: bool = False, allowed: int = 10**12) -> Run:
    """A run that may try as often as it likes, and finds anything in what it has not written."""
    one = Run(program, log)
    if one._skipping is not None:
        one._skipping.register[ALLOWED] = allowed
        for name, array in one._skipping._asdict().items():
            if name not in ("register", "part_of"):
                array.fill(3)
    return one


def assert_same(one: Outcome, other: Outcome) -> None:
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)
    if one.log is not None and other.log is not None:
        for mine, theirs in zip(one.log, other.log, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def check(program: Program, allowed: int = 10**12) -> int:
    """Hold runs that skip, without a log and with one, against one that does not; returns the services skipped."""
    whole = Run(program, log=True, skip=False)
    one, logged = eager(program, allowed=allowed), eager(program, log=True, allowed=allowed)
    try:
        whole.advance()
    except Deadlock:
        for other in (one, logged):
            with pytest.raises(Deadlock):
                other.advance()
        return 0
    for other in (one, logged):
        other.advance()
        assert_same(other.outcome(), whole.outcome())
    assert one.skipped == logged.skipped
    if whole.events < MOST_WALKED:
        assert explain(program, logged.outcome()) == explain(program, whole.outcome())
    return one.skipped


def check_everything(program: Program, share: float = 0.5, allowed: int = 10**12) -> int:
    """The same, and a pause at some time, certificates, and small programs in the other engines."""
    skipped = check(program, allowed)
    whole = Run(program, log=True, skip=False)
    whole.advance()
    found = whole.outcome()
    certify(program, found)
    one, other = eager(program, allowed=allowed), Run(program, skip=False)
    until_ps = int(found.makespan_ps * share)
    assert one.advance(until_ps=until_ps) == other.advance(until_ps=until_ps)
    assert_same_so_far(one, other)
    one.advance()
    assert_same(one.outcome(), found)
    if whole.events < MOST_WALKED:
        assert_same(run_general_loop(program, log=True), found)
    if whole.events < MOST_BY_REFERENCE:
        assert_same(run_reference(program, log=True), found)
    return skipped


def assert_same_so_far(one: Run, other: Run) -> None:
    """Two runs that were paused at one time stand alike."""
    for name in ("delivered", "joined", "busy_ps", "finish_ps"):
        np.testing.assert_array_equal(getattr(one.state, name), getattr(other.state, name), err_msg=name)
    assert one.events == other.events
