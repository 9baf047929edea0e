"""NICs replayed: right runs hold, and runs by other rules of the same NICs, right in all else, are refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, reject, settings
from hypothesis import strategies as st

from collectives import build
from sim.certify.healthy import CertificateError, certify
from sim.engine.run import run
from sim.lower.job import lower
from sim.program import Cutting, Posting, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.outcome import Deadlock
from tests.strategies import credit_programs, nic_programs
from tests.users import cases, fabrics, models_with_ranks, sizes
from topologies import Topology, WeftError

OTHER_RULES: dict[str, Any] = {
    "post_ps": lambda program: program.post_ps + 1,
    "nic_queue": lambda program: 1 if program.nic_queue > 1 else 10**6,
    "ports_in_turn": lambda program: 0 if program.ports_in_turn else 2,
    "nic_engines": lambda program: program.nic_engines + 1,
    "push_ps": lambda program: program.push_ps + 1,
    "task_class": lambda program: program.task_class[::-1].copy(),
    "task_flow": lambda program: np.arange(program.n_tasks, dtype=np.int32),
}
MOST_SERVICES = 5_000


def by_other_rules(program: Program, rule: str) -> None:
    """A run by another rule is refused, unless that changes nothing."""
    assume(not np.any((program.hops() == 0) & (program.chunks() > 1)))  # of which the middle chunks leave no trace
    try:
        right = run(program, log=True)
        wrong = run(program._replace(**{rule: OTHER_RULES[rule](program)}), log=True)
    except Deadlock:
        reject()
    certify(program, right)
    assert right.log is not None and wrong.log is not None
    if np.array_equal(right.log.start_ps, wrong.log.start_ps):
        event("the rule changes nothing")
        return
    event("refused")
    with pytest.raises(CertificateError):
        certify(program, wrong)


@settings(max_examples=60, deadline=None)
@given(nic_programs(disciplines=("fifo",)), st.sampled_from(sorted(OTHER_RULES)))
def test_runs_by_other_rules_are_refused(program: Program, rule: str) -> None:
    by_other_rules(program, rule)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(nic_programs(disciplines=("fifo",)), st.sampled_from(sorted(OTHER_RULES)))
def test_thousands_of_runs_by_other_rules_are_refused(program: Program, rule: str) -> None:
    by_other_rules(program, rule)


def test_two_chunks_that_change_places_are_refused() -> None:
    """Two transfers of one chunk each, over a NIC alone: the run with both in each other's place, and one 1 ps late."""
    builder = ProgramBuilder("store-and-forward", posting=Posting(0, Fraction(1), 10**6, 0))
    nic = builder.nic(10**12, engines=2)
    for flow in range(2):
        builder.task(10, [(nic, 0)], Cutting(chunks=1), flow=flow)
    program = builder.build()
    right = run(program, log=True)
    certify(program, right)
    assert right.log is not None and right.start_ps.tolist() == [0, 10]
    for start in ([10, 0], [0, 11]):
        log = right.log._replace(start_ps=np.array(start))
        late = max(start[1] - 10, 0)
        wrong = right._replace(
            start_ps=log.start_ps, finish_ps=log.start_ps + 10, log=log, makespan_ps=right.makespan_ps + late
        )
        with pytest.raises(CertificateError, match=r"order: server 0|capacity: chunk 0 of task 1 waits at server 0"):
            certify(program, wrong)


def holds(case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model) -> None:
    name, kind, form = case
    try:
        program = lower(build(name, kind, fabric, size, form), model, "off").program
    except WeftError:
        event("refused")
        return
    if program.chunk_hops() > MOST_SERVICES:
        return
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        event("deadlock")


USERS = {"case": cases(), "fabric": fabrics(), "size": sizes(), "model": models_with_ranks()}


@settings(max_examples=60, deadline=None)
@given(**USERS)
def test_schedules_hold(case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model) -> None:
    holds(case, fabric, size, model)


@pytest.mark.verify
@settings(max_examples=5000, deadline=None)
@given(**USERS)
def test_thousands_of_schedules_hold(
    case: tuple[str, str, str | None], fabric: Topology, size: int, model: Model
) -> None:
    holds(case, fabric, size, model)


@settings(max_examples=60, deadline=None)
@given(st.one_of(nic_programs(), credit_programs()))
def test_any_program_holds(program: Program) -> None:
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        return
