"""The compiled certificate of long logs against the one that sorts them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.certify import healthy
from sim.certify.healthy import CertificateError, certify
from sim.certify.in_turn import is_in_turn
from sim.engine.run import run
from sim.program import Program
from sim.program.outcome import Deadlock, Outcome
from tests.sim.certify.test_certificates import pushed, streamed
from tests.sim.certify.test_order import meeting, swapped
from tests.strategies import fifo_programs, merging_programs, programs


def proved(program: Program, outcome: Outcome) -> bool:
    """What the passes say."""
    assert outcome.log is not None
    return is_in_turn(program, outcome, outcome.log)


def accepted(program: Program, outcome: Outcome) -> bool:
    """What the other certificate says, which sorts."""
    try:
        certify(program, outcome)
    except CertificateError:
        return False
    return True


def leaves_no_trace(program: Program, outcome: Outcome) -> bool:
    """Whether a chunk in the middle of a task without servers may have been delivered at several times."""
    return bool(np.any((program.hops() == 0) & (program.chunks() > 2) & (outcome.start_ps != outcome.finish_ps)))


@settings(max_examples=100, deadline=None)
@given(st.one_of(fifo_programs(), merging_programs()))
def test_runs_are_proved(program: Program) -> None:
    """All but those in which something waits for what leaves no trace."""
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return
    assert proved(program, outcome) or leaves_no_trace(program, outcome)


@settings(max_examples=150, deadline=None)
@given(program=st.one_of(fifo_programs(), merging_programs()), rng=st.randoms(use_true_random=False))
def test_of_planted_runs_no_wrong_one_is_proved(program: Program, rng: Random) -> None:
    """A number of the run is another: where the sort accepts that, the passes do."""
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return
    for _ in range(8):
        other = planted(outcome, rng)
        if leaves_no_trace(program, other):
            assert accepted(program, other) or not proved(program, other)
        else:
            assert accepted(program, other) == proved(program, other)


def planted(outcome: Outcome, rng: Random) -> Outcome:
    """One time, or a service with all after it in its task, a little earlier or later."""
    assert outcome.log is not None
    field = rng.choice(("start_ps", "finish_ps", "busy_ps", "events", "log", "log"))
    if field == "events":
        return outcome._replace(events=outcome.events + rng.choice((-1, 1)))
    values = (outcome.log.start_ps if field == "log" else getattr(outcome, field)).copy()
    if values.size == 0:
        return outcome
    at, by = rng.randrange(values.size), rng.choice((-3, -1, 1, 2))
    values[at : at + rng.choice((1, 1, 4))] += by
    if field != "log":
        return outcome._replace(**{field: values})
    return outcome._replace(log=outcome.log._replace(start_ps=values))


@pytest.mark.parametrize("seed", range(20))
def test_the_line_of_a_server_is_not_believed(seed: int) -> None:
    """What the log says of which service was before which: any other number is refused."""
    rng, (program, outcome) = Random(seed), streamed()
    assert outcome.log is not None
    assert proved(program, outcome)
    before = outcome.log.before.copy()
    at = rng.randrange(before.size)
    before[at] = rng.choice([row for row in range(-1, before.size + 2) if row != before[at]])
    assert not proved(program, outcome._replace(log=outcome.log._replace(before=before)))


@pytest.mark.parametrize(("apart", "classes"), [(1, (1, 0)), (0, (0, 1)), (0, (0, 0))])
def test_who_overtakes_is_found(apart: int, classes: tuple[int, int]) -> None:
    """Also where the log says that it was first: 1 ps later, of a higher class, of a task with a higher number."""
    program = meeting("store-and-forward", "tail", 7, apart, 1, classes)
    outcome = run(program, log=True)
    assert proved(program, outcome)
    wrong = swapped(program, outcome, (2, 1, 1), (4, 1, 1))
    assert wrong.log is not None
    server = program.route_server[np.concatenate([
        np.tile(np.arange(first, end), chunks) for first, end, chunks in zip(
            program.route_ptr[program.task_route], program.route_ptr[program.task_route + 1], program.chunks(),
            strict=True)
    ])]
    before = np.full(server.size, -1)
    for one in range(program.n_servers):
        rows = np.flatnonzero(server == one)
        rows = rows[np.argsort(wrong.log.start_ps[rows])]
        before[rows[1:]] = rows[:-1]
    assert not proved(program, wrong._replace(log=wrong.log._replace(before=before)))


@settings(max_examples=100, deadline=None)
@given(programs())
def test_other_queues_and_pools_are_left_to_the_sort(program: Program) -> None:
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return
    if proved(program, outcome):
        assert not program.server_discipline.any()
        assert program.task_pool.size == 0
        assert accepted(program, outcome)


def test_nics_are_left_to_the_sort() -> None:
    assert not proved(*pushed())


@pytest.mark.parametrize("field", ["server_discipline", "task_pool", "nic_engines", "server_buffer", "channels"])
def test_one_field_that_the_passes_do_not_read_is_enough(field: str) -> None:
    """Of a run that they prove without it."""
    program, outcome = streamed()
    assert proved(program, outcome)
    value = 2 if field == "channels" else np.ones(max(getattr(program, field).size, 1), getattr(program, field).dtype)
    assert not proved(program._replace(**{field: value}), outcome)


def test_a_long_log_is_proved_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proved is not sorted; what is not is named as ever."""
    monkeypatch.setattr(healthy, "MANY", 1)
    program, outcome = streamed()
    monkeypatch.setattr(healthy, "_services", None)
    certify(program, outcome)
    monkeypatch.undo()
    monkeypatch.setattr(healthy, "MANY", 1)
    assert outcome.log is not None
    start_ps = outcome.log.start_ps.copy()
    start_ps[1] -= 1
    with pytest.raises(CertificateError, match="chunk 0 of task 0 is served by server 1 at 2 ps, before it is there"):
        certify(program, outcome._replace(log=outcome.log._replace(start_ps=start_ps)))
