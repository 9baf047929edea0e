"""Any algorithm on any topology, at any size, under any model: the chunk engine is the reference, above every bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import Schedule, build
from sim import simulate
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program.model import Model
from sim.program.outcome import Deadlock
from tests.users import SPECS, cases, fabrics, models, models_with_ranks, sizes
from topologies import Topology, WeftError
from topologies.registry import TOPOLOGIES

MOST_SERVICES = 20_000
"""Larger runs are left out: the reference takes them in seconds."""


def check(case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, symmetry: str) -> None:
    name, kind, form = case
    try:
        schedule: Schedule = build(name, kind, fabric, size, form)
        lowered: Lowered = lower(schedule, model, symmetry)
        lower(schedule, model, "off")  # the reference runs it whole, which the clock may not hold where one orbit fits
    except WeftError:
        event("refused")
        return
    if lowered.program.chunk_hops() > MOST_SERVICES:
        event("left out: too large for the reference")
        return
    try:
        found = simulate(schedule, model=model, check=True, symmetry=symmetry)
    except Deadlock:
        event("ports or full buffers wait for each other")
        assert model.rank_progress in ("any", "authors") or model.buffer_bytes is not None
        with pytest.raises(Deadlock):
            simulate(schedule, model=model, engine="reference", symmetry="off")
        return
    event("compared")
    oracle = simulate(schedule, model=model, engine="reference", symmetry="off")
    assert found.outcome is not None
    assert oracle.outcome is not None
    assert found.time_ps == oracle.time_ps
    if symmetry == "off":
        for array in ("start_ps", "finish_ps", "busy_ps"):
            np.testing.assert_array_equal(getattr(found.outcome, array), getattr(oracle.outcome, array))
    assert 0 <= found.lower_bound_ps <= found.time_ps
    assert (found.time_ps == 0) == (lowered.program.chunk_hops() == 0)


ANY = {
    "case": cases(), "fabric": fabrics(), "size": sizes(), "model": models(),
    "symmetry": st.sampled_from(("auto", "off")),
}


@settings(max_examples=25, deadline=None)
@given(**ANY)
def test_random_schedules(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, symmetry: str
) -> None:
    check(case, fabric, size, model, symmetry)


@settings(max_examples=25, deadline=None)
@given(**ANY | {"model": models_with_ranks()})
def test_random_schedules_with_nics(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, symmetry: str
) -> None:
    check(case, fabric, size, model, symmetry)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(**ANY | {"model": models_with_ranks()})
def test_thousands_of_random_schedules_with_nics(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, symmetry: str
) -> None:
    check(case, fabric, size, model, symmetry)


@pytest.mark.verify
@settings(max_examples=2500, deadline=None)
@given(**ANY)
def test_thousands_of_random_schedules(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, symmetry: str
) -> None:
    check(case, fabric, size, model, symmetry)


def test_the_specs_are_of_the_registry() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} - {"random"} <= TOPOLOGIES.keys()
