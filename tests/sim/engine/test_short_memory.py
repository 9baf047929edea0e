"""Memory short at random: kernels that are called again for want of it go on as if nothing had happened.

Whatever a kernel changes before such a return, and does again behind it, shows: each return is taken many times in a
run, at any state, and with too little room given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import build
from sim.engine import parts
from sim.engine.run import Run
from sim.faults.apply import add_faults
from sim.faults.plan import FaultPlan
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.model import Model
from sim.program.outcome import Deadlock, Outcome
from tests.eager_runs import assert_same, eager, on_programs_of_any_size
from tests.fault_strategies import fault_plans, faulty_programs
from tests.repeating_programs import repeating_programs
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
}
SEEDS = st.integers(0, 2**32 - 1)
MOST_SERVICES = 6_000
Make = Callable[[Program], Run]


def chosen(program: Program) -> Run:
    return Run(program, log=True, skip=False)


def general(program: Program) -> Run:
    return Run(program, log=True, general=True)


def in_two(program: Program) -> Run:
    """In two parts, one after the other."""
    one = Run(program, log=True, skip=False)
    if not one.advance(1):
        cut = parts.cut(program, 2)
        if cut.ahead_ps > 0:
            one._parts = parts.Parts(program, one.state, 2, cut, in_turn=True)
    return one


def check(program: Program, seed: int, make: Make) -> int:
    """Hold a run that is short of memory against one that is not; returns how often it was."""
    try:
        plain = make(program)
        plain.advance()
    except Deadlock:
        with pytest.raises(Deadlock):
            run_stingily(program, seed, make)
        return 0
    outcome, shortages = run_stingily(program, seed, make)
    assert_same(outcome, plain.outcome())
    assert_same_journal(outcome, plain.outcome())
    return shortages


def assert_same_journal(one: Outcome, other: Outcome) -> None:
    assert (one.journal is None) == (other.journal is None)
    if one.journal is not None and other.journal is not None:
        for mine, theirs in zip(one.journal, other.journal, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.table
@pytest.mark.parametrize("make", [chosen, general])
@pytest.mark.parametrize("name", ANY)
def test_a_little_memory_at_a_time_changes_nothing(name: str, make: Make) -> None:
    assert shortages_of(ANY[name], make, 15) > 0


@pytest.mark.verify
@pytest.mark.parametrize("make", [chosen, general])
@pytest.mark.parametrize("name", ANY)
def test_a_little_memory_changes_nothing_a_thousand_times(name: str, make: Make) -> None:
    assert shortages_of(ANY[name], make, 1000) > 1000


def shortages_of(drawn: st.SearchStrategy[Program], make: Make, examples: int) -> int:
    """Check random programs; returns how often memory was short."""
    shortages = 0

    @settings(max_examples=examples, deadline=None)
    @given(drawn, SEEDS)
    def checked(program: Program, seed: int) -> None:
        nonlocal shortages
        shortages += check(program, seed, make)

    checked()
    return shortages


@settings(max_examples=30, deadline=None)
@given(fifo_programs(), SEEDS)
def test_parts_that_are_short_of_memory(program: Program, seed: int) -> None:
    check(program, seed, in_two)


@settings(max_examples=30, deadline=None)
@given(repeating_programs(3_000), SEEDS)
def test_runs_that_skip_and_are_short_of_memory(program: Program, seed: int) -> None:
    with on_programs_of_any_size():
        check(program, seed, lambda one: eager(one, log=True))


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
        check(lowered.program, seed, chosen)


@pytest.mark.verify
@settings(max_examples=2000, deadline=None)
@given(**USERS, model=models_with_ranks())
def test_thousands_of_schedules_that_are_short_of_memory(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model, seed: int
) -> None:
    if lowered := lowered_of(case, fabric, size, model):
        check(lowered.program, seed, chosen)
        check(lowered.program, seed, general)


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
    check(program, seed, chosen)
