"""Memory short at random: kernels that are called again for want of it go on as if nothing had happened.

Whatever a kernel changes before such a return, and does again behind it, shows: each return is taken many times in a
run, at any state, and with too little room given.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import build
from sim.engine.run import run
from sim.faults.apply import add_faults
from sim.faults.plan import FaultPlan
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.model import Model
from sim.program.outcome import Deadlock, Outcome
from tests.fault_strategies import composed_programs, fault_plans, faulty_programs
from tests.same_runs import assert_same
from tests.stingy import run_stingily
from tests.strategies import (
    channel_programs,
    credit_programs,
    fifo_programs,
    joining_programs,
    merging_programs,
    nic_programs,
    pooled_fifo_programs,
    programs,
)
from tests.users import cases, fabrics, models, models_with_ranks, sizes
from topologies import Topology, WeftError

ANY = {
    "any": programs(), "fifo": fifo_programs(), "pools": pooled_fifo_programs(), "joins": joining_programs(16),
    "queues": merging_programs(), "fifo NICs": nic_programs(disciplines=("fifo",)), "NICs": nic_programs(pools=True),
    "buffers": credit_programs(), "channels": channel_programs(), "faults": faulty_programs(),
    "faults and all else": composed_programs(),
}
SEEDS = st.integers(0, 2**32 - 1)
MOST_SERVICES = 6_000


def check(program: Program, seed: int) -> int:
    """Hold a run that is short of memory against one that is not; returns how often it was."""
    try:
        plain = run(program, log=True)
    except Deadlock:
        with pytest.raises(Deadlock):
            run_stingily(program, seed)
        return 0
    outcome, shortages = run_stingily(program, seed)
    assert_same(outcome, plain)
    assert_same_journal(outcome, plain)
    return shortages


def assert_same_journal(one: Outcome, other: Outcome) -> None:
    assert (one.journal is None) == (other.journal is None)
    if one.journal is not None and other.journal is not None:
        for mine, theirs in zip(one.journal, other.journal, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.table
@pytest.mark.parametrize("name", ANY)
def test_a_little_memory_at_a_time_changes_nothing(name: str) -> None:
    assert shortages_of(ANY[name], 15) > 0


@pytest.mark.verify
@pytest.mark.parametrize("name", ANY)
def test_a_little_memory_changes_nothing_a_thousand_times(name: str) -> None:
    assert shortages_of(ANY[name], 1000) > 1000


def shortages_of(drawn: st.SearchStrategy[Program], examples: int) -> int:
    """Check random programs; returns how often memory was short."""
    shortages = 0

    @settings(max_examples=examples, deadline=None)
    @given(drawn, SEEDS)
    def checked(program: Program, seed: int) -> None:
        nonlocal shortages
        shortages += check(program, seed)

    checked()
    return shortages


def lowered_of(case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model) -> Lowered | None:
    """What a user would simulate, if it is accepted and not too large."""
    name, kind, form = case
    try:
        lowered = lower(build(name, kind, fabric, size, form), model, "off")
    except WeftError:
        event("refused")
        return None
    return lowered if lowered.program.chunk_hops() <= MOST_SERVICES else None


USERS = {"case": cases(), "fabric": fabrics(), "size": sizes(), "seed": SEEDS}


@settings(max_examples=40, deadline=None)
@given(**USERS, model=models_with_ranks())
def test_schedules_that_are_short_of_memory(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, seed: int
) -> None:
    if lowered := lowered_of(case, fabric, size, model):
        check(lowered.program, seed)


@pytest.mark.verify
@settings(max_examples=2000, deadline=None)
@given(**USERS, model=models_with_ranks())
def test_thousands_of_schedules_that_are_short_of_memory(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, seed: int
) -> None:
    if lowered := lowered_of(case, fabric, size, model):
        check(lowered.program, seed)


@settings(max_examples=20, deadline=None)
@given(**USERS, model=models(("fifo", "priority")), data=st.data())
def test_schedules_with_faults_that_are_short_of_memory(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, seed: int, data: st.DataObject
) -> None:
    lowered = lowered_of(case, fabric, size, model)
    plan: FaultPlan = data.draw(fault_plans(fabric))
    if lowered is None:
        return
    try:
        program = add_faults(lowered, plan).program
    except WeftError:
        return
    check(program, seed)
