"""Runs that go on from a tape, and tapes put in another order: the run from the start and its tape, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, build
from sim.engine import setup as fifo
from sim.engine.run import Run
from sim.engine.skip import setup as skipping
from sim.engine.tape.tape import Tape, can_record, resume
from sim.lower.job import lower
from sim.program import I64, Cutting, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.program.service_table import with_services
from tests.eager_runs import assert_same
from tests.strategies import fifo_programs, joining_programs, long_programs, merging_programs
from topologies import WeftError, from_spec


@pytest.fixture(scope="module", autouse=True)
def _wherever_it_can_be() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "LEAST_SAVED", 0)
        yield


def recorded(program: Program) -> Tape | None:
    try:
        return Tape.record(program)
    except Deadlock:
        return None


@st.composite
def retimings(draw: st.DrawFn, program: Program, least: int = 0) -> Program:
    """The program at other rates and latencies: each rate on its own, all alike, or services of one length.

    `least`: factor of latencies; at 0 they may become alike.
    """
    columns, kind = program.n_rates, draw(st.sampled_from(("own", "own", "alike", "thirds", "one length")))
    service: I64 = program.service_ps.reshape(-1, columns)
    if kind == "own":
        service = service * np.array(draw(st.lists(st.integers(1, 5), min_size=columns, max_size=columns)))
    elif kind == "alike":
        service = np.repeat(service[:, :1], columns, axis=1)
    elif kind == "thirds":
        thirds = np.array(draw(st.lists(st.sampled_from((1, 2, 4, 10)), min_size=columns, max_size=columns)))
        service = -(-service * thirds // 3)
    else:
        service = np.full_like(service, draw(st.integers(1, 3)))
    factor = draw(st.integers(least, 3))
    # A latency of zero stays as small as the model allows.
    latency = np.where(factor > 0, program.hop_latency_ps * factor, np.minimum(program.hop_latency_ps, 1))
    return program._replace(service_ps=service.reshape(-1), hop_latency_ps=latency)


def check(tape: Tape, program: Program) -> Run | None:
    """Hold a resumed run, with and without a log, against one from the start; None if the order is the recorded one."""
    replay = tape.replay(program)
    if replay.in_order:
        return None
    whole = Run(program, log=True, skip=False)
    whole.advance()
    for log in (False, True):
        one = resume.resume(tape, program, replay, log)
        assert one.advance()
        assert_same(one.outcome(), whole.outcome())
        for name in ("delivered", "joined"):
            np.testing.assert_array_equal(getattr(one.state, name), getattr(whole.state, name), err_msg=name)
    return resume.resume(tape, program, replay)


@settings(max_examples=400, deadline=None)
@given(st.one_of(fifo_programs(), fifo_programs(), merging_programs()), st.data())
def test_random_programs(program: Program, data: st.DataObject) -> None:
    tape = recorded(program)
    for _ in range(3 if tape else 0):
        one = check(tape, data.draw(retimings(program)))
        event("order held" if one is None else "resumed" if one.events else "started again")


@settings(max_examples=60, deadline=None)
@given(long_programs(), st.data())
def test_a_resumed_run_skips(program: Program, data: st.DataObject) -> None:
    """What repeats behind the change is skipped as it is in a run from the start."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LEAST_CHUNKS", 2), ("LEAST_SERVICES", 0), ("FIRST_WAIT", 8)):
            patch.setattr(skipping, name, value)
        tape = recorded(program)
        one = check(tape, data.draw(retimings(program))) if tape else None
        if one is not None:
            one.advance()
            event(f"skipped: {one.skipped > 0}")


@settings(max_examples=60, deadline=None)
@given(fifo_programs(), st.data(), st.integers(1, 20), st.integers(1, 300))
def test_slices(program: Program, data: st.DataObject, most: int, step_ps: int) -> None:
    """In slices of services, or of time, a resumed run ends like the run in one go."""
    tape = recorded(program)
    program = data.draw(retimings(program))
    if tape is None or (replay := tape.replay(program)).in_order:
        return
    whole, by_events, by_time = Run(program), *(resume.resume(tape, program, replay) for _ in range(2))
    whole.advance()
    while not by_events.advance(max_events=most):
        assert by_events.events > 0
    now, other = replay.change_ps, Run(program)
    while not by_time.advance(until_ps=now):
        other.advance(until_ps=now)
        for name in ("delivered", "joined", "busy_ps", "finish_ps"):
            np.testing.assert_array_equal(getattr(by_time.state, name), getattr(other.state, name), err_msg=name)
        assert by_time.events == other.events
        now += max(step_ps, whole.outcome().makespan_ps // 20)
    for one in (by_events, by_time):
        assert_same(one.outcome(), whole.outcome())


@settings(max_examples=200, deadline=None)
@given(st.one_of(fifo_programs(), fifo_programs(), joining_programs(5)), st.data())
def test_a_tape_in_another_order_is_that_of_the_run(program: Program, data: st.DataObject) -> None:
    """It replays the same programs as one that is recorded, to the same times; and so does one put in order twice."""
    tape = recorded(program)
    if tape is None:
        return
    others = [data.draw(retimings(program, 1)) for _ in range(4)]
    for other in others:
        replay = tape.replay(other)
        if replay.in_order:
            continue
        tape, fresh = resume.record_again(tape, other, replay), Tape.record(other)
        np.testing.assert_array_equal(tape.places.before, fresh.places.before)
        for one in others:
            assert tape.replay(one) == fresh.replay(one)
            np.testing.assert_array_equal(tape.finish_ps(), fresh.finish_ps())
            np.testing.assert_array_equal(tape.start_ps(one), fresh.start_ps(one))


CASES = [(name, kind, form) for name, one in ALGORITHMS.items() for kind in one.functions
         for form in one.forms_of(kind) or (None,)]


@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize("spec", ["ring:5", "torus:4x3", "switch:6", "fat-tree:2"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_registry(case: tuple[str, str, str | None], spec: str) -> None:
    """Every algorithm, each server with a bandwidth of its own, drawn within 100, 1.1 and 1.01 times."""
    name, kind, form = case
    try:
        schedule = build(name, kind, from_spec(spec), "300KB", form)
    except WeftError:
        return
    rng = np.random.default_rng(0)
    for chunks, forwarding in ((1, "cut-through"), (6, "cut-through"), (5, "store-and-forward")):
        program = lower(schedule, Model(chunks=chunks, forwarding=forwarding), "off").program
        if not can_record(program) or program.chunk_hops() > 20_000:
            continue
        own = np.arange(program.n_servers)
        apart = program.service(np.arange(program.chunk_work.size)[:, None], program.server_rate)
        program = with_services(
            program._replace(server_rate=own.astype(np.int32)), own.size, lambda size, rate, of=apart: of[size, rate]
        )
        tape = Tape.record(program)
        for within in (100, 1.1, 1.01):
            factor = within ** rng.uniform(-0.5, 0.5, program.n_servers)
            slower = np.maximum(np.ceil(apart * factor), 1).astype(np.int64)
            check(tape, program._replace(service_ps=slower.reshape(-1)))


def two_late() -> tuple[Program, Program]:
    """Two tasks meet at a server after a third crossed it: the first before the second, and the other way round."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    common, first, second = (builder.server(rate) for rate in (4e12, 2e12, 1e12))
    early = builder.task(10, [(builder.server(4e12), 5), (common, 5)], Cutting(chunks=2))
    for own in (first, second):
        builder.task(200, [(own, 0), (common, 7)])
    builder.task(40, [(common, 3)], after=[early])
    program = builder.build()
    slower = program.service_ps.copy()
    slower[program.server_rate[first] :: program.n_rates] *= 4
    return program, program._replace(service_ps=slower)


def test_a_run_is_resumed_where_its_order_changes() -> None:
    """What was served before is not served again."""
    program, other = two_late()
    tape = Tape.record(program)
    one = check(tape, other)
    assert one is not None
    assert 0 < one.events < program.chunk_hops()
    assert one.now_ps < tape.replay(other).change_ps


@pytest.mark.parametrize("work", [99, 100, 101, 198, 200, 202])
@pytest.mark.parametrize("behind", ["whole", "stream", "join", "window"])
def test_what_is_delivered_around_the_change(work: int, behind: str) -> None:
    """A picosecond before the change, in it, and after it: what waits for the delivery begins in time."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    common, first, second, third, last = (builder.server(rate) for rate in (4e12, 2e12, 1e12, 5e11, 3e12))
    for own in (first, second):
        builder.task(200, [(own, 0), (common, 7)])
    sent = builder.task(work, [(third, 0)], Cutting(chunks=2))
    if behind == "join":
        sent = builder.task(0, after=[sent])
    whole, stream = [sent] * (behind in ("whole", "join")), [sent] * (behind == "stream")
    child = builder.task(40, [(last, 3)], Cutting(chunks=2), after=whole, stream=stream)
    if behind == "window":
        builder.window(child, sent, 1)
    program = builder.build()
    slower = program.service_ps.copy()
    slower[program.server_rate[first] :: program.n_rates] *= 4
    tape, other = Tape.record(program), program._replace(service_ps=slower)
    assert tape.replay(other).change_ps == 200
    assert check(tape, other) is not None


def test_little_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change after few services starts the run again."""
    program, other = two_late()
    tape = Tape.record(program)
    replay = tape.replay(other)
    before = int((tape._out < replay.change_ps).sum())
    for least, resumed in ((before - 1, True), (before, False)):
        monkeypatch.setattr(resume, "LEAST_SAVED", least)
        assert (resume.resume(tape, other, replay).events > 0) == resumed


def test_other_loops_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that do not fit a word, and pools, are run, and recorded, from the start."""
    program, other = two_late()
    tape = Tape.record(program)
    replay = tape.replay(other)
    with monkeypatch.context() as patch:
        patch.setattr(fifo, "KEY_BITS", 1)
        assert resume.resume(tape, other, replay).events == 0
        patch.delattr(resume, "_reordered")  # its ties are words as well
        assert resume.record_again(tape, other, replay).replay(other).in_order
    builder = ProgramBuilder()
    pool, common, first, second = builder.pool(1), *(builder.server(rate) for rate in (4e12, 2e12, 1e12))
    for own in (first, second):
        join = builder.task(0, after=[builder.task(100, [(own, 0)])])
        builder.ask(join, pool)
        builder.give(builder.task(10, [(common, 0)], after=[join]), pool)
    program = builder.build()
    slower = program.service_ps.copy()
    slower[program.server_rate[first] :: program.n_rates] *= 4
    other, tape = program._replace(service_ps=slower), Tape.record(program)
    one = check(tape, other)
    assert one is not None
    assert one.events == 0
    assert resume.record_again(tape, other, tape.replay(other)).replay(other).in_order
