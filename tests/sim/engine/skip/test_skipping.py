"""Skipping what repeats: the same arrays as the run that simulates every service, on anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, build
from sim import simulate
from sim.engine.compile.door import DISABLED
from sim.engine.run import Run, run
from sim.engine.skip import setup as skipping
from sim.engine.skip.state import ALLOWED, MADE, N_RUNS, STRETCHES, TRY
from sim.lower.job import lower
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.model import PRESETS, Model
from sim.program.outcome import Deadlock
from sim.timeline.link_load import link_load
from sim.timeline.perfetto import write_perfetto
from sim.why.path import Walk, explain
from tests.eager_runs import (
    DEFAULTS,
    assert_same,
    assert_same_so_far,
    check,
    check_everything,
    eager,
    on_programs_of_any_size,
)
from tests.oracles.general_loop.run import run_general_loop
from tests.repeating_programs import repeating_programs
from tests.strategies import joining_programs, long_programs, merging_programs
from topologies import WeftError, from_spec


@pytest.fixture(scope="module", autouse=True)
def _on_programs_of_any_size() -> Iterator[None]:
    with on_programs_of_any_size():
        yield


@pytest.fixture
def _by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DEFAULTS.items():
        monkeypatch.setattr(skipping, name, value)


@settings(max_examples=400, deadline=None)
@given(program=long_programs())
def test_random_programs(program: Program) -> None:
    """Random streams, windows, routes, classes and sizes; more than half of them have stretches."""
    event("skipped" if check(program) else "nothing skipped")


@settings(max_examples=200, deadline=None)
@given(program=repeating_programs(300 if DISABLED else 12_000), share=st.floats(0, 1))
def test_random_parts_side_by_side(program: Program, share: float) -> None:
    """Parts of different periods that meet, end and wait for each other, against every other engine."""
    event("skipped" if check_everything(program, share) else "nothing skipped")


def grew(one: Run) -> bool:
    """Whether a queue that grew was skipped: what was under way of it became a run."""
    return one._skipping is not None and bool(one._skipping.register[MADE] > 0)


@settings(max_examples=150, deadline=None)
@given(program=merging_programs())
def test_random_queues(program: Program) -> None:
    """Streams that meet at servers which serve fewer chunks than come."""
    event("skipped" if check(program) else "nothing skipped")


@settings(max_examples=150, deadline=None)
@given(program=joining_programs())
def test_random_pools(program: Program) -> None:
    """Stretches end where units are given back, and what waits for units does not stand in their way."""
    whole = Run(program, log=True, skip=False)
    if check(program):
        event("skipped")
    try:
        oracle = run_general_loop(program, log=True)
    except Deadlock as stuck:
        with pytest.raises(Deadlock, match=re.escape(str(stuck))):
            whole.advance()
        return
    whole.advance()
    assert_same(whole.outcome(), oracle)


@settings(max_examples=60, deadline=None)
@given(program=st.one_of(long_programs(), merging_programs()), most=st.integers(1, 400), step_ps=st.integers(1, 2000))
def test_slices(program: Program, most: int, step_ps: int) -> None:
    """A run in slices of services, of simulated ones, or of time ends like the run in one go."""
    whole = Run(program, skip=False)
    try:
        whole.advance()
    except Deadlock:
        return
    by_events, by_work, by_time = eager(program), eager(program), eager(program)
    while not by_events.advance(max_events=most):
        pass
    while not by_work.advance(max_simulated=most):
        pass
    now = 0
    while not by_time.advance(until_ps=now):
        now += max(step_ps, whole.outcome().makespan_ps // 50)
    for one in (by_events, by_work, by_time):
        assert_same(one.outcome(), whole.outcome())


@settings(max_examples=60, deadline=None)
@given(program=st.one_of(long_programs(), merging_programs()), share=st.floats(0, 1))
def test_a_pause_stands_where_the_whole_run_stands(program: Program, share: float) -> None:
    """At any time, what was delivered and how long servers were busy is what it is without skipping."""
    whole, one, other = Run(program, skip=False), eager(program), Run(program, skip=False)
    try:
        whole.advance()
    except Deadlock:
        return
    until_ps = int(whole.outcome().makespan_ps * share)
    assert one.advance(until_ps=until_ps) == other.advance(until_ps=until_ps)
    assert_same_so_far(one, other)


CASES = [(name, kind, form) for name, one in ALGORITHMS.items() for kind in one.functions
         for form in one.forms_of(kind) or (None,)]


@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize("spec", ["ring:5", "torus:4x3", "switch:6", "fat-tree:2"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("symmetry", ["auto", "off"])
def test_registry(case: tuple[str, str, str | None], spec: str, symmetry: str) -> None:
    """Every algorithm, with links alike and with links that are not."""
    name, kind, form = case
    for rate, chunks, forwarding in (("50GB/s", 96, "cut-through"), ("12.3456GB/s", 131, "store-and-forward")):
        try:
            schedule = build(name, kind, from_spec(spec, bandwidth=rate), "300KB", form)
        except WeftError:
            return
        program = lower(schedule, Model(chunks=chunks, forwarding=forwarding), symmetry).program
        if program.chunk_hops() < 20_000:
            check(program)


FEWER = [
    ("ring:64", "ring", "all-reduce", 150, 330), ("torus:8x8", "bucket", "all-reduce", 135, 330),
    ("fat-tree:4", "ring", "all-reduce", 90, 270), ("switch:16", "direct", "all-reduce", 400, 400),
    ("switch:16", "recursive-doubling", "all-reduce", 300, 300), ("torus:8x8", "in-network", "all-reduce", 150, 170),
    ("fat-tree:4", "in-network", "all-reduce", 250, 250), ("fat-tree:4", "swing", "all-reduce", 55, 170),
    ("torus:8x8", "pipelined", "all-gather", 80, 90), ("torus:8x8", "ring", "all-reduce", 85, 330),
    ("fat-tree:4", "pipelined", "all-gather", 30, 30),
    ("torus:4x4x4", "hierarchical", "all-reduce", 16, 60),
    ("torus:8x8", "swing", "all-reduce", 13, 240), ("torus:8x8", "recursive-doubling", "all-reduce", 6, 6),
]


@pytest.mark.compiled
@pytest.mark.parametrize("size", ["512MiB", "4GiB"])
@pytest.mark.parametrize(("spec", "name", "kind", "short", "long"), FEWER)
def test_services_simulated_of_4096_chunks(
    spec: str, name: str, kind: str, short: int, long: int, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of N services at most N / `short`, with longer chunks N / `long`, are simulated, at the default cost."""
    monkeypatch.setattr(skipping, "FIRST_WAIT", DEFAULTS["FIRST_WAIT"])
    program = lower(build(name, kind, from_spec(spec), size), Model(chunks=4096)).program
    found, fewer = run(program), short if size == "512MiB" else long
    assert 0 < (found.events - found.skipped) * fewer <= found.events
    assert_same(found, run(program, skip=False))


QUEUES = [("switch:16", 4096, 50), ("switch:16", 65536, 700), ("fat-tree:4", 4096, 20), ("fat-tree:4", 65536, 300)]


@pytest.mark.compiled
@pytest.mark.parametrize(("spec", "chunks", "fewer"), QUEUES)
def test_services_simulated_of_queues_that_grow(
    spec: str, chunks: int, fewer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of N services at most N / `fewer` are simulated where all send to one, at the default cost."""
    monkeypatch.setattr(skipping, "FIRST_WAIT", DEFAULTS["FIRST_WAIT"])
    program = lower(build("parameter-server", "all-reduce", from_spec(spec), "64GiB"), Model(chunks=chunks)).program
    one = Run(program)
    assert one.advance()
    assert grew(one)
    assert 0 < (one.events - one.skipped) * fewer <= one.events
    assert_same(one.outcome(), run(program, skip=False))


def incast(senders: int, chunks: int, tail: int = 0) -> Program:
    """Some senders to one server, each over a server of its own; the last chunk is smaller by so many bytes."""
    builder = ProgramBuilder("store-and-forward", "tail")
    shared = builder.server(10**12)
    sent = [
        builder.task(4 * chunks - tail, [(builder.server(10**12), 9), (shared, 50)], Cutting(chunks))
        for _ in range(senders)
    ]
    builder.task(4 * chunks, [(builder.server(10**12), 5)], Cutting(chunks), stream=sent[:1])
    return builder.build()


@pytest.mark.parametrize("tail", [0, 3])
@pytest.mark.parametrize("senders", [2, 3, 7])
def test_a_queue_that_grows_and_shrinks_is_skipped(senders: int, tail: int) -> None:
    """Of a queue of thousands, few chunks are simulated, whether or not the last are smaller."""
    one = eager(incast(senders, 3000, tail))
    assert one.advance()
    assert grew(one)
    assert one.events - one.skipped < one.events // 20
    assert check(incast(senders, 300, tail)) > 0


def test_a_run_ends_as_it_should_where_trying_has_to_end_while_there_are_runs() -> None:
    program = incast(5, 3000)
    one = eager(program)
    assert not one.advance(max_events=9000)
    assert one._skipping is not None
    assert one.skipped > 8000
    assert one._skipping.register[N_RUNS] > 0
    one._skipping.register[ALLOWED] = -(10**12)
    stretches = int(one._skipping.register[STRETCHES])
    assert one.advance()
    assert one._skipping.register[STRETCHES] == stretches
    assert_same(one.outcome(), run(program, skip=False))


def test_a_queue_that_ends_within_a_row_of_its_run() -> None:
    """Chunks that are left of a run's first rows are put back where they are due, before all else that is."""
    builder = ProgramBuilder("store-and-forward", "head")
    rates = (Fraction(10**12, ps) for ps in (5, 1, 4, 9, 1, 12, 5))
    a, b, c, d, e, f, g = (builder.server(rate) for rate in rates)
    cutting = Cutting(200, packet_header_bytes=3)
    first = builder.task(400, [(c, 0), (b, 0), (d, 7)], cutting)
    builder.task(400, [(e, 0), (a, 0)], cutting, after=[first])
    builder.task(398, [(f, 0), (b, 100), (g, 100)], cutting)
    assert check(builder.build()) > 1000


def two_on_one(chunks: tuple[int, int], work: tuple[int, int], classes: tuple[int, int] = (0, 0)) -> Program:
    """Two tasks on one server, of as many chunks and as much work each."""
    builder = ProgramBuilder("store-and-forward", "tail")
    server = builder.server(10**9)
    for count, size, tie_class in zip(chunks, work, classes, strict=True):
        builder.task(size, [(server, 0)], Cutting(count), tie_class=tie_class)
    return builder.build()


@pytest.mark.usefixtures("_by_default")
def test_nothing_is_tried_on_few_chunks() -> None:
    assert Run(two_on_one((63, 1), (10**6, 1)))._skipping is None
    assert Run(two_on_one((10**6, 1), (10**8, 1)), skip=False)._skipping is None
    assert Run(two_on_one((10**6, 1), (10**8, 1)))._skipping is not None


@pytest.mark.compiled
@pytest.mark.parametrize("allowed", [12, 24, 30, 48])
def test_a_stretch_that_waits_for_room_is_taken_whatever_trying_has_cost(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skipping, "ALLOWED", allowed)
    schedule = build("swing", "all-reduce", from_spec("torus:8x8", "400Gb/s", "100ns", "300ns"), "16MiB")
    one = Run(lower(schedule, PRESETS["swing-paper"], "off").program)
    assert one._skipping is not None
    assert one.advance()
    assert one._skipping.register[TRY] == 0
    assert_same(one.outcome(), run(one.program, skip=False))


def test_a_limit_on_services_counts_those_skipped() -> None:
    """A limit falls on the service on which it falls without skipping."""
    program = two_on_one((5000, 5000), (500_000, 500_000))
    one, other = eager(program), Run(program, skip=False)
    assert not one.advance(max_events=7001)
    assert not other.advance(max_events=7001)
    assert one.events == other.events
    assert one.skipped > 0


def test_a_result_says_what_was_skipped() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:8"), "64MiB")
    found, whole = simulate(schedule, chunks=1024), simulate(schedule, chunks=1024, skip=False)
    assert found.skipped > found.events // 2
    assert whole.skipped == 0
    share = f"{found.skipped / found.events:.1%} of {found.events:,}"
    assert f"{share} services repeat others and were skipped" in str(found)
    assert "skipped" not in str(whole)
    assert found.row() | {"skipped": 0, "wall_s": 0} == whole.row() | {"wall_s": 0}


@pytest.mark.parametrize(("name", "spec", "chunks"), [
    ("recursive-doubling", "torus:4x2", 700), ("ring", "fat-tree:2", 300), ("bucket", "torus:4x4", 64),
])
def test_what_is_read_from_a_log_is_the_same(tmp_path: Path, name: str, spec: str, chunks: int) -> None:
    """Critical path, trace and load of the links, where the log has stretches that were not simulated."""
    schedule = build(name, "all-reduce", from_spec(spec), "256MiB")
    found, whole = (simulate(schedule, chunks=chunks, log=True, skip=skip) for skip in (True, False))
    assert found.skipped > 0
    assert whole.skipped == 0
    assert found.why() == whole.why()
    assert found.why().service_ps == whole.why().service_ps
    files = tmp_path / "found.json", tmp_path / "whole.json"
    for result, file in zip((found, whole), files, strict=True):
        write_perfetto(result.timeline(), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    loads = [link_load(result.lowered, result.logged, 50) for result in (found, whole)]
    np.testing.assert_array_equal(*loads)


def test_a_critical_path_leaps_over_what_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of periods few are walked."""
    steps: list[object] = []
    step = Walk.step
    monkeypatch.setattr(Walk, "step", lambda self, state: (steps.append(state), step(self, state))[1])
    program = two_on_one((5000, 5000), (500_000, 500_000))
    logged, whole = eager(program, log=True), Run(program, log=True, skip=False)
    for one in (logged, whole):
        assert one.advance()
    path = explain(program, logged.outcome())
    assert len(steps) * 20 < len(path.pieces)
    assert path == explain(program, whole.outcome())


def test_more_parts_than_are_followed() -> None:
    """Where too much goes on apart, nothing is skipped and nothing is wrong."""
    builder = ProgramBuilder("store-and-forward", "tail")
    for _ in range(1025):
        builder.task(100, [(builder.server(10**9), 0)], Cutting(20))
    assert check(builder.build()) == 0


def test_a_stream_that_lags_behind_is_released_in_time() -> None:
    """A child that waits for half of its parent's chunks holds nothing up, and its release ends a stretch."""
    builder = ProgramBuilder("cut-through", "tail")
    server = builder.server(10**12)
    parent = builder.task(608, [(server, 1), (server, 1)], Cutting(152))
    builder.task(4, [(server, 1)], Cutting(2, None, 0, 0), stream=[parent])
    program = builder.build()
    assert check(program) > 0


def a_fast_one_overtakes() -> Program:
    """Chunks of two tasks meet at a server every 10 ps; from 1 ns on, those of the fast task have the higher number.

    The fast task starts 500 ps later and sends twice as many chunks in the same time.
    """
    builder = ProgramBuilder("store-and-forward", "tail")
    slow, fast, shared = builder.server(10**11), builder.server(2 * 10**11), builder.server(10**12)
    first = builder.task(50, [(builder.server(10**11), 0)], Cutting(1))
    builder.task(400, [(slow, 0), (shared, 40)], Cutting(400))
    builder.task(600, [(fast, 0), (shared, 40)], Cutting(600), after=[first])
    return builder.build()


def test_ties_that_turn_around_are_not_skipped_over() -> None:
    """Where the lower chunk is that of another task from some time on, the order at the server turns around there."""
    program = a_fast_one_overtakes()
    skipped = 0
    for until_ps in range(1700, 2200, 3):
        whole, one = Run(program, skip=False), eager(program)
        assert not whole.advance(until_ps=until_ps)
        assert not one.advance(until_ps=until_ps)
        np.testing.assert_array_equal(one.state.delivered, whole.state.delivered)
        skipped += one.skipped > 0
    assert skipped > 100
    assert check(program) > 0


def test_what_is_on_its_way_to_a_part_ends_the_stretch() -> None:
    """A chunk that arrives after a long latency is served in its turn."""
    builder = ProgramBuilder("store-and-forward", "tail")
    shared, far = builder.server(10**12), builder.server(10**12)
    builder.task(50_000, [(shared, 0)], Cutting(5000))
    builder.task(7, [(far, 10_001), (shared, 0)], Cutting(1))
    program = builder.build()
    assert check(program) > 2000
    assert run(program).finish_ps.tolist() == [50_007, 10_017]
