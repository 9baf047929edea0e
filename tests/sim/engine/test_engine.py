"""The chunk engine against the reference engine, and against itself in slices."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cases import ring_all_reduce, torus_all_to_all
from collectives import ALGORITHMS, build
from sim.engine import loop as _fifo
from sim.engine import run as engine
from sim.engine import setup as fifo
from sim.engine.core import calendar as _calendar
from sim.engine.core import lines as _fifo_line
from sim.engine.core import nic_room as _room
from sim.engine.core import nodes as _nodes
from sim.engine.core import tasks as _fifo_task
from sim.engine.core.state import BLOCK
from sim.engine.loop import run_changing, run_drawn, run_faulty, run_fifo, run_links, run_ordered, run_rounds
from sim.engine.nics import heaps as _fifo_nic_heaps
from sim.engine.nics import posts as _fifo_nic
from sim.engine.nics import pushes as _fifo_nic_pushes
from sim.engine.policies import choose as _ordered
from sim.engine.policies import faults as _faults
from sim.engine.policies import pools as _fifo_pools
from sim.engine.policies import rooms as _fifo_rooms
from sim.engine.policies import turns as _fifo_turns
from sim.engine.reference.engine import run_reference
from sim.engine.run import Run, check_size, memory_bytes, run
from sim.lower.job import lower
from sim.program import ORDERS, PRIORITY, Cutting, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.outcome import Deadlock, Outcome, Outrun, Progress, Stopped
from tests.oracles.general_loop.run import knows, run_general_loop
from tests.same_runs import assert_same
from tests.strategies import fifo_programs, pooled_fifo_programs, programs
from topologies import WeftError, from_spec
from topologies.core import extents


def outcome_or_deadlock(program: Program, which: str) -> Outcome | str:
    try:
        engine = {"chunk": run, "general": run_general_loop, "reference": run_reference}[which]
        return engine(program, log=True)
    except Deadlock as stuck:
        return str(stuck)


@settings(max_examples=400, deadline=None)
@given(programs())
def test_engines_agree_on_random_programs(program: Program) -> None:
    """Every service of every chunk starts in the same picosecond in both engines, or both see the same deadlock."""
    assert_loops_agree(program)


def assert_loops_agree(program: Program) -> Outcome | str:
    """The loop that is chosen, the general loop and the reference engine; returns what they agree on."""
    chunk = outcome_or_deadlock(program, "chunk")
    for which in ("general", "reference") if knows(program) else ("reference",):
        other = outcome_or_deadlock(program, which)
        if isinstance(chunk, str) or isinstance(other, str):
            assert chunk == other
        else:
            assert_same(chunk, other)
    return chunk


def assert_is_the_oracle(program: Program) -> None:
    """A run is that of the general loop, or both end in a deadlock."""
    try:
        outcome = run(program, log=True)
    except Deadlock:
        with pytest.raises(Deadlock):
            run_general_loop(program)
        return
    assert_same(outcome, run_general_loop(program, log=True))


@settings(max_examples=200, deadline=None)
@given(fifo_programs())
def test_committing_on_arrival_is_choosing_at_start(program: Program) -> None:
    """A fifo server that is committed when a chunk arrives is one that chooses when it is free."""
    assert Run(program)._kernel in (run_fifo, run_rounds)
    assert_is_the_oracle(program)


@settings(max_examples=200, deadline=None)
@given(st.one_of(programs(disciplines=ORDERS), pooled_fifo_programs()), st.sampled_from((1, 2, 256)))
def test_choosing_from_buckets_is_choosing_from_a_heap(program: Program, most: int) -> None:
    """Servers that choose, and pools, are one engine in both loops, whether a bucket has one rank or several."""
    with mock.patch.object(fifo, "MOST_BUCKETS", most):
        assert Run(program)._kernel in (run_fifo, run_rounds, run_ordered)
        assert_is_the_oracle(program)


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(1, 7), st.integers(1, 50))
def test_slices_give_the_same_arrays(program: Program, max_events: int, step_ps: int) -> None:
    """A run in slices of any number of events, or of picoseconds, is the run in one go."""
    whole = outcome_or_deadlock(program, "chunk")
    if isinstance(whole, str):
        return
    by_events, by_time = Run(program, log=True), Run(program, log=True)
    while not by_events.advance(max_events=max_events):
        pass
    until, span = 0, max(step_ps, whole.makespan_ps // 40)
    while not by_time.advance(until_ps=until):
        assert by_time.now_ps <= until
        until += span
    assert_same(by_events.outcome(), whole)
    assert_same(by_time.outcome(), whole)


def crowd(seed: int, disciplines: tuple[str, ...] = ORDERS[:1]) -> Program:
    """400 tasks from 1 ps to milliseconds that meet at 20 servers, many of them at the same time."""
    draw = np.random.default_rng(seed)
    builder = ProgramBuilder("cut-through" if seed % 2 else "store-and-forward")
    servers = [
        builder.server(10**12 / int(ps), disciplines[number % len(disciplines)])
        for number, ps in enumerate(draw.choice([1, 1, 7, 1000], 20))
    ]
    for task in range(400):
        path = [(servers[draw.integers(20)], int(draw.choice([0, 1, 10**6]))) for _ in range(draw.integers(0, 4))]
        parents = draw.choice(task, 2, replace=False).tolist() if task > 100 else []
        builder.task(
            int(draw.choice([0, 4, 4096, 10**6])), path, Cutting(chunks=int(draw.integers(1, 9))),
            after=parents[:1], stream=parents[1:], tie_class=int(draw.integers(3)), priority=task % 70 - 3,
        )
    return builder.build()


@pytest.mark.compiled
@pytest.mark.table
@pytest.mark.parametrize("disciplines", [ORDERS[:1], ORDERS, ORDERS[1:2]], ids=["fifo", "mixed", "priorities"])
@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_at_any_width_of_the_buckets(seed: int, disciplines: tuple[str, ...]) -> None:
    """However time is cut into buckets, and whatever is late, sorted or moved there: the general loop's outcome."""
    program = crowd(seed, disciplines)
    oracle = run_general_loop(program, log=True)
    for width in (None, 0, 3, 10, 20, 30):
        one = Run(program, log=True)
        assert one._kernel is (run_fifo if disciplines == ORDERS[:1] else run_ordered)
        if width is not None:
            one.state.run["width"] = width
        one.advance()
        assert_same(one.outcome(), oracle)


def test_keys_that_do_not_fit_a_word_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo, "KEY_BITS", 13)
    with pytest.raises(WeftError, match=r"needs \d+ bits of \(class, chunk, hop, task\) in a key; .* has 13"):
        Run(crowd(0))


def test_classes_below_zero_and_any_priorities_keep_their_order() -> None:
    program = crowd(0, ORDERS)
    other = program._replace(task_class=program.task_class - 7, task_priority=program.task_priority * 2**24)
    assert_same(run(other, log=True), run(program, log=True))


def two_hop_burst(n_tasks: int) -> Program:
    builder = ProgramBuilder(forwarding="store-and-forward")
    first, second = builder.server(1e12), builder.server(1e12)
    for _ in range(n_tasks):
        builder.task(10, [(first, 1000), (second, 1000)], Cutting(chunks=10))
    return builder.build()


def test_tokens_grow_when_chunks_in_flight_exceed_them() -> None:
    """A long wire holds more chunks than the engine set aside: it makes room and goes on."""
    program = two_hop_burst(40)
    one = Run(program)
    few = one.tokens
    one.advance()
    assert one.tokens > few
    assert_same(one.outcome(), run_reference(program))


def test_what_moves_to_a_lower_level_makes_room_as_it_goes() -> None:
    """600 events of one slot, each due in a bucket of its own: as many blocks, which are not there when it begins."""
    builder = ProgramBuilder("store-and-forward")
    for bucket in np.random.default_rng(0).permutation(600).tolist():
        builder.task(1, [(builder.server(1e12), 10**9 + 8192 * bucket), (builder.server(1e12), 0)])
    program = builder.build()
    one = Run(program, log=True)
    one.state.run["width"] = 10
    few = one.tokens
    one.advance()
    assert few < 600 * BLOCK <= one.tokens
    assert_same(one.outcome(), run_reference(program, log=True))


@pytest.mark.compiled
def test_room_is_for_what_is_in_flight() -> None:
    """On a ring a few chunks of every NPU are in flight; the levels of the calendar take no room of their own."""
    one = Run(ring_all_reduce(64, 16))
    one.advance()
    assert one.tokens < 2 * 16 * 64


@pytest.mark.parametrize("discipline", ["fifo", "lowest-chunk-first"])
def test_tokens_are_given_back(discipline: str) -> None:
    """However many chunks follow each other, they need no more than were set aside."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    builder.task(2000, [(builder.server(1e12, discipline), 1)], Cutting(chunks=2000))
    one = Run(builder.build())
    few = one.tokens
    one.advance()
    assert one.tokens == few < 2000


def test_chunks_that_are_released_ahead_take_no_room() -> None:
    """A task whose first server is behind has one event there, however many of its chunks are free to go."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    fast = builder.task(2000, [(builder.server(1e12), 1)], Cutting(chunks=2000))
    builder.task(2000, [(builder.server(1e11), 1)], Cutting(chunks=2000), stream=[fast])
    one = Run(builder.build())
    few = one.tokens
    assert one.advance() and one.now_ps == 20_003
    assert one.tokens == few < 2000


def test_a_run_that_cannot_go_on_ends() -> None:
    """The second chunk of a task waits for the first of another, which waits for all of it."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    first = builder.task(4, [(builder.server(1e12), 1)], Cutting(chunks=2))
    builder.window(first, builder.task(4, [(builder.server(1e12), 1)], after=[first]), 1)
    for engine_of in (run, run_general_loop):
        with pytest.raises(Deadlock):
            engine_of(builder.build())


def test_event_limit_says_how_far_it_came() -> None:
    """A run that reaches its limit reports simulated time and services done."""
    with pytest.raises(Stopped, match=r"limit of 5 services, at .* of 800 services"):
        run(two_hop_burst(40), max_events=5)


def test_progress_tells_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice says how far the run is; what is left shrinks to nothing at one rate."""
    monkeypatch.setattr(engine, "SLICE_EVENTS", 100)
    told: list[Progress] = []
    outcome = run(two_hop_burst(40), progress=told.append)
    assert [step.events for step in told] == sorted({step.events for step in told})
    assert all(step.total_events == outcome.events == 800 for step in told)
    assert all(step.seconds_left == pytest.approx((800 - step.events) / step.events_per_s) for step in told)
    assert told[0].events >= 200, "the first slice may have loaded its kernel: its rate tells nothing"
    assert len(told) >= 5


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_between_slices_and_says_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal is heard at the end of a slice of services, and the message says what was reached."""
    monkeypatch.setattr(engine, "SLICE_EVENTS", 100)
    with pytest.raises(Stopped, match=r"interrupted at .* of simulated time, 2\d\d of 800 services done"):
        run(two_hop_burst(40), progress=lambda step: signal.raise_signal(signal.SIGINT))


CASES = {
    "ring": ring_all_reduce(16, 4), "all-to-all": torus_all_to_all(4, 4),
    "priorities": torus_all_to_all(4, 4, discipline=PRIORITY),
}


@pytest.mark.parametrize("program", CASES.values(), ids=CASES)
def test_memory_is_estimated_before_the_start(program: Program) -> None:
    """The estimate covers the arrays of the whole run, but for what does not grow with the program."""
    one = Run(program)
    one.advance()
    wheel = one.state.slots.nbytes + one.state.occupied.nbytes + one.state.run.nbytes
    assert program.nbytes() + one.nbytes - wheel <= memory_bytes(program) * 1.1
    logged = Run(program, log=True)
    rows = logged.state.log_start_ps.nbytes + logged.state.log_before.nbytes
    assert memory_bytes(program, log=True) - memory_bytes(program) == rows == 16 * program.chunk_hops()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("build", "least", "limit"),
    [
        (ring_all_reduce, 128, 96), (torus_all_to_all, 16, 96),
        (partial(torus_all_to_all, discipline=PRIORITY), 16, 128),  # 32 of them for the lists of 255 priorities
    ],
    ids=["ring", "all-to-all", "priorities"],
)
def test_bytes_a_transfer(build: Callable[[int, int], Program], least: int, limit: int) -> None:
    """So many bytes per transfer, dependencies, routes and state included, and 24 for each chunk in flight."""
    program = build(least, 2)
    one = Run(program)
    one.advance()
    in_flight = one.state.events.nbytes + one.state.nodes.nbytes
    assert in_flight == 24 * one.tokens
    wheel = one.state.slots.nbytes + one.state.occupied.nbytes
    assert program.nbytes() + one.nbytes - in_flight - wheel < limit * program.n_tasks


def test_too_large_for_memory_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate, and what makes it smaller, are in the message."""
    monkeypatch.setattr(extents, "physical_memory", lambda: 1536)
    with pytest.raises(WeftError, match=r"needs about .* the limit is 1 KiB, two thirds of this .*: use fewer"):
        check_size(two_hop_burst(40), log=True)


def test_too_long_starts_only_where_a_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.engine.run.MOST_SERVICES", 799)
    with pytest.raises(WeftError, match=r"has 800 services; more than 799, .* larger chunks, or --max-events 800"):
        check_size(two_hop_burst(40), log=False)
    check_size(two_hop_burst(40), log=False, asked=True)
    monkeypatch.setattr("sim.engine.run.MOST_SERVICES", 800)
    check_size(two_hop_burst(40), log=False)


def test_one_specialization() -> None:
    """Whatever the program, the kernel compiles once: casts happen at the door."""
    run(two_hop_burst(2))
    for entry in (run_fifo, run_ordered, run_links, run_drawn, run_changing, run_faulty):
        assert len(getattr(entry, "signatures", [()])) <= 1, "\n".join(str(one)[-900:] for one in entry.signatures)


@pytest.mark.compiled
def test_helpers_are_typed_once() -> None:
    """Neither constants nor widths of numbers, only flags that leave branches out, make a helper compile again."""
    run(two_hop_burst(2))
    for module in (_calendar, _fifo, _fifo_line, _fifo_nic, _fifo_nic_heaps, _fifo_nic_pushes, _fifo_pools, _fifo_task,
                   _fifo_rooms, _fifo_turns, _nodes, _ordered, _faults, _room):
        for name, one in vars(module).items():
            typed = [[kind for kind in signature if "Literal[bool]" not in str(kind)]
                     for signature in getattr(one, "signatures", ())]
            assert all(typed[0] == other for other in typed), f"{name}: {typed}"


@pytest.mark.parametrize("discipline", ["fifo", "priority"])
def test_a_pause_is_due_when_as_many_services_have_begun(discipline: str) -> None:
    builder = ProgramBuilder(forwarding="store-and-forward")
    wire = builder.server(1e12, discipline)
    builder.task(10, [(wire, 0)], Cutting(chunks=10))
    one = Run(builder.build())
    for so_far in (1, 3):
        assert not one.advance(max_events=so_far - one.events)
        assert one.events == so_far
    assert not one.advance(until_ps=5) and one.now_ps == 5
    assert one.advance() and one.now_ps == 10


@given(st.lists(st.integers(0, 2**63 - 1), min_size=6, max_size=6))
def test_draws_of_words_are_draws_of_integers(keys: list[int]) -> None:
    """The hash for the compiler, in words that wrap, is the one of unlimited integers; both are run as Python here."""
    words = _faults._mix, _faults._word_begin, _faults._word_draw
    mix, begin, draw = (getattr(one, "py_func", one) for one in words)
    with np.errstate(over="ignore"), mock.patch.object(_faults, "_mix", mix):
        begun = _faults._plain_begin(*keys[:2])
        assert int(begin(*keys[:2])) == begun
        assert int(draw(np.int64(begun).astype(np.uint64), *keys[2:])) == _faults._plain_draw(begun, *keys[2:])


def test_nothing_to_do_takes_no_time() -> None:
    """A program without tasks ends at zero."""
    builder = ProgramBuilder()
    builder.server(1.0)
    outcome = run(builder.build())
    assert (outcome.makespan_ps, outcome.events) == (0, 0)


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(1, 7))
def test_what_servers_still_have_to_do_is_a_bound(program: Program, some: int) -> None:
    """It holds at every pause, never falls, and is the work of the busiest server before anything has begun."""
    one, bounds = Run(program), []
    try:
        while not one.advance(some):
            bounds.append(one.least_ps())
    except Deadlock:
        return
    bounds.append(one.least_ps())
    if one.program.is_healthy and not one.program.has_nics:
        assert Run(program).least_ps() == int(one.state.busy_ps.max(initial=0))
    assert bounds == sorted(bounds) or not bounds[-1]
    assert program.delivers_heads or max(bounds) <= one.outcome().makespan_ps


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if "all-reduce" in ALGORITHMS[name].functions])
@pytest.mark.parametrize("fabric", [
    "ring:7", "torus:4x3", pytest.param("fat-tree:4x3", marks=pytest.mark.compiled),
    pytest.param("leaf-spine:3x5x2", marks=pytest.mark.compiled),
])
def test_a_run_that_cannot_end_in_time_ends_early(name: str, fabric: str) -> None:
    """With a limit that it just keeps it ends, and with any shorter one does not, whenever it is looked at."""
    try:
        program = lower(build(name, "all-reduce", from_spec(fabric), "77777B"), Model(chunks=3)).program
    except WeftError:
        return
    whole = run(program)
    with mock.patch.object(engine, "LIMITED_EVENTS", 19):
        assert run(program, limit_ps=whole.makespan_ps).makespan_ps == whole.makespan_ps
        for limit_ps in (whole.makespan_ps - 1, whole.makespan_ps * 9 // 10, int(whole.busy_ps.max())):
            if limit_ps < whole.makespan_ps:
                with pytest.raises(Outrun):
                    run(program, limit_ps=limit_ps)
