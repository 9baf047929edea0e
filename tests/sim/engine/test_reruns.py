"""Runs in the memory of the last one: the outcome of a run of its own, at any service times, in any order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collectives import build
from sim.engine import setup
from sim.engine.reruns import Reruns
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.assemble import with_rates
from sim.program.model import Model
from topologies import from_spec

CASES = (("ring:8", "ring", "all-reduce", 5, "auto"), ("torus:4x3", "bucket", "all-reduce", 2, "off"),
         ("ring:40", "direct", "all-to-all", 64, "off"), ("torus:4x4", "swing", "all-reduce", 1, "auto"))


@pytest.mark.compiled
@pytest.mark.parametrize(("fabric", "algorithm", "kind", "chunks", "symmetry"), CASES)
@pytest.mark.parametrize("roomy", [True, False])
def test_a_rerun_is_a_run(
    fabric: str, algorithm: str, kind: str, chunks: int, symmetry: str, *, roomy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = build(algorithm, kind, from_spec(fabric), "1001KiB")
    program = lower(schedule, Model(chunks=chunks), symmetry).program
    own = program._replace(service_ps=program.service_ps.copy())
    grown: list[int] = []
    if not roomy:
        more = setup.with_more_room
        monkeypatch.setattr(setup, "with_more_room", lambda state: grown.append(state.tokens) or more(state))
        empty = setup.empty_calendar
        monkeypatch.setattr(setup, "empty_calendar", lambda run, n_events, n_sorted: empty(run, 0, 0))
    reruns = Reruns(own)
    for rate in (10**9, 3001, 77 * 10**9, 10**15, Fraction(10**7, 3), 10**9):
        expected = run(with_rates(program, [Fraction(rate)] * program.n_rates))
        own.service_ps[:] = with_rates(program, [Fraction(rate)] * program.n_rates).service_ps
        found = reruns.run()
        assert found[3:5] == expected[3:5]
        assert all(np.array_equal(mine, its) for mine, its in zip(found[:3], expected[:3], strict=True))
    assert roomy or grown or chunks < 64


def test_what_is_run_again() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:8"), "1MiB")
    assert Reruns.accept(lower(schedule, Model()).program)
    assert not Reruns.accept(lower(schedule, Model(discipline="round-robin-flow")).program)
    assert not Reruns.accept(lower(schedule, Model(buffer_bytes=2**20)).program)
