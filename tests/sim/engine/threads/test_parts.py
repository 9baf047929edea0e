"""A run in parts: the same arrays as the run in one, whatever the parts and whoever runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, build
from sim import simulate
from sim.engine import run as engine
from sim.engine import setup as fifo
from sim.engine.loop import run_fifo
from sim.engine.run import Run, run
from sim.engine.threads import parts
from sim.engine.threads import windows as _parts
from sim.lower.job import lower
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.outcome import Deadlock
from tests.eager_runs import assert_same
from tests.strategies import fifo_programs
from topologies import WeftError, from_spec

ROOMS = (1, 2, parts.FIRST_ROOM)
"""Of boxes: a part that fills one ends its window in the midst of a picosecond."""


def in_parts(program: Program, n_parts: int, seed: int, *, threads: bool = False, log: bool = True) -> Run:
    """A run that goes on in parts after its first picosecond."""
    one = Run(program, log=log, skip=False)
    try:
        over = one.advance(1)
    except Deadlock:  # at once
        return Run(program, log=log, skip=False)
    if not over:
        groups = parts.groups_of(program)
        deal = np.random.default_rng(seed).integers(0, n_parts, groups.first.size)
        cut = parts.dealt(program, groups, n_parts, deal) if seed % 3 else parts.cut(program, n_parts)
        if cut.ahead_ps > 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(parts, "FIRST_ROOM", ROOMS[seed % len(ROOMS)])
                one._parts = parts.Parts(program, one.state, n_parts, cut, in_turn=not threads)
    return one


def in_cut(program: Program, cut: parts.Cut) -> Run:
    """A run to its end in the parts of a cut."""
    one = Run(program, skip=False)
    one.advance(1)
    one._parts = parts.Parts(program, one.state, 2, cut)
    one.advance()
    return one


def check(program: Program, n_parts: int, seed: int, *, threads: bool = False, log: bool = True) -> bool:
    """Hold a run in parts against the run in one; returns whether it had parts."""
    whole, one = Run(program, log=log, skip=False), in_parts(program, n_parts, seed, threads=threads, log=log)
    assert said(one) == said(whole)
    assert_same(one.outcome(), whole.outcome())
    for name in ("delivered", "joined"):
        np.testing.assert_array_equal(getattr(one.state, name), getattr(whole.state, name), err_msg=name)
    return one._parts is not None


def said(one: Run) -> str:
    """How a run ends."""
    try:
        one.advance()
    except Deadlock as stuck:
        return str(stuck)
    return "finished"


@settings(max_examples=400, deadline=None)
@given(program=fifo_programs(), n_parts=st.integers(2, 5), seed=st.integers(0, 99))
def test_random_programs(program: Program, n_parts: int, seed: int) -> None:
    event("in parts" if check(program, n_parts, seed) else "in one")


@pytest.mark.compiled
@settings(max_examples=40, deadline=None)
@given(program=fifo_programs(), n_parts=st.integers(2, 3), seed=st.integers(0, 99))
def test_random_programs_on_threads(program: Program, n_parts: int, seed: int) -> None:
    event("in parts" if check(program, n_parts, seed, threads=True) else "in one")


@settings(max_examples=60, deadline=None)
@given(program=fifo_programs(), seed=st.integers(0, 99), most=st.integers(1, 60), step_ps=st.integers(1, 2000))
def test_slices(program: Program, seed: int, most: int, step_ps: int) -> None:
    """A run in slices of services, or of time, ends like the run in one go; up to a time it stands where that does."""
    whole = Run(program, skip=False)
    if said(whole) != "finished":
        return
    by_events, by_time = in_parts(program, 2, seed), in_parts(program, 3, seed)
    while not by_events.advance(max_events=most):
        assert by_events.events > 0
    now, other = by_time.now_ps, Run(program, skip=False)
    while not by_time.advance(until_ps=now):
        other.advance(until_ps=now)
        by_time.outcome()
        for name in ("delivered", "joined", "busy_ps", "finish_ps"):
            np.testing.assert_array_equal(getattr(by_time.state, name), getattr(other.state, name), err_msg=name)
        assert by_time.events == other.events
        now += max(step_ps, whole.outcome().makespan_ps // 20)
    for one in (by_events, by_time):
        assert_same(one.outcome(), whole.outcome())


CASES = [(name, kind, form) for name, one in ALGORITHMS.items() for kind in one.functions
         for form in one.forms_of(kind) or (None,)]


@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize("spec", ["ring:5", "torus:4x3", "switch:6", "fat-tree:2"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_registry(case: tuple[str, str, str | None], spec: str) -> None:
    """Every algorithm, in parts as they are cut by default and as they are drawn, with symmetry and without."""
    name, kind, form = case
    for symmetry, n_parts, forwarding in (("auto", 2, "cut-through"), ("off", 3, "store-and-forward")):
        try:
            schedule = build(name, kind, from_spec(spec), "300KB", form)
        except WeftError:
            return
        program = lower(schedule, Model(chunks=7, forwarding=forwarding), symmetry).program
        if fifo.loop(program) is run_fifo and program.pool_capacity.size == 0:
            check(program, n_parts, 1)
        one = Run(program, log=True, threads=n_parts)
        if not one.advance(1):
            one.spread()
            one.advance()
        assert_same(one.outcome(), run(program, log=True))


def crossing(chunks: int, tasks: int = 1, latency_ps: int = 5, rate: int = 10**9) -> Program:
    """Tasks that cross two servers, of which the second begins tasks of its own when they are delivered."""
    builder = ProgramBuilder("store-and-forward", "tail")
    servers = [builder.server(rate) for _ in range(4)]
    for _ in range(tasks):
        for here, there in ((0, 2), (2, 0)):
            sent = builder.task(1000, [(servers[here], latency_ps), (servers[there + 1], latency_ps)],
                                Cutting(chunks))
            builder.task(1000, [(servers[there], latency_ps)], Cutting(chunks), stream=[sent])
    return builder.build()


def test_who_is_told_of_a_delivery() -> None:
    """The parts in which something waits for it, or else that of its last server; and how far apart parts may be."""
    program = crossing(1)
    groups = parts.groups_of(program)
    assert groups.first.tolist() == [0, 1, 2, 3]
    cut = parts.dealt(program, groups, 2, np.array([0, 0, 1, 1]))
    service = int(program.service_ps.max())
    assert cut.ahead_ps == service + 5
    assert cut.begin_part.tolist() == [0, 1, 1, 0]
    assert cut.delivery_parts.tolist() == [2, 2, 1, 1]
    assert parts.dealt(program, groups, 2, np.zeros(4, int)).ahead_ps > 10**15


def test_what_passes_between_groups() -> None:
    """Chunks from server to server of a route, and from its last to where what waits for them begins."""
    program = crossing(3, tasks=2)
    links = parts.links_of(program, parts.groups_of(program)).toarray()
    assert links.tolist() == [[0, 6, 0, 6], [6, 0, 6, 0], [0, 6, 0, 6], [6, 0, 6, 0]]
    # Servers 0 and 3 do what comes from the one and is answered by the other: 4 tasks of 3 chunks pass into each part.
    cut = parts.dealt(program, parts.groups_of(program), 2, np.array([0, 1, 1, 0]))
    assert cut.gain == pytest.approx(36 / (18 + parts.CROSSING * 12 / 2))


@pytest.mark.compiled
def test_parts_of_a_random_graph_are_halves_that_little_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the chunks cross between stripes of it, a fifth or less between halves; what is predicted holds."""
    program = lower(build("ring", "all-reduce", from_spec("random-regular:128x4x1"), "16MiB"),
                    Model(chunks=16), "off").program
    groups = parts.groups_of(program)
    found, work = parts.cut(program, 2), groups.work.sum()
    monkeypatch.setattr(parts, "CLOSE", 0)
    stripes = parts.cut(program, 2)
    sent = [(work / one.gain - work / 2) * 2 / parts.CROSSING / work for one in (found, stripes)]
    assert sent[0] < 0.25 < 0.4 < sent[1]
    deal = found.server_part[groups.first]
    predicted = parts._gain_of(program, groups, parts.links_of(program, groups), 2, deal)
    assert predicted == pytest.approx(found.gain, rel=0.02)
    assert_same(in_cut(program, found).outcome(), run(program))


@pytest.mark.parametrize(("forwarding", "deliver", "ahead_ps"), [
    ("store-and-forward", "tail", 1005), ("store-and-forward", "head", 7), ("cut-through", "tail", 5),
])
def test_how_far_apart_parts_may_be(forwarding: str, deliver: str, ahead_ps: int) -> None:
    """The latency of a hop behind which another part begins, and the service where nothing leaves before its end."""
    builder = ProgramBuilder(forwarding, deliver)
    one, other = builder.server(10**12), builder.server(10**12)
    sent = builder.task(1000, [(one, 5), (other, 7)], Cutting(1))
    builder.task(1000, [(one, 3)], Cutting(1), after=[sent])
    program = builder.build()
    assert int(program.service_ps.min()) == 1000
    assert parts.dealt(program, parts.groups_of(program), 2, np.array([0, 1])).ahead_ps == ahead_ps


def test_what_begins_with_a_delivery_begins_where_it_is() -> None:
    """A transfer that crosses nothing is delivered when it is released: what waits for it is in its part."""
    builder = ProgramBuilder("store-and-forward", "tail")
    servers = [builder.server(10**12) for _ in range(3)]
    sent = [builder.task(1000, [(server, 5)], Cutting(1)) for server in servers]
    barrier = builder.task(0, [], Cutting(1), after=sent)
    builder.task(1000, [(servers[2], 5)], Cutting(1), after=[barrier])
    builder.task(1000, [(servers[1], 5)], Cutting(1), after=[barrier])
    program = builder.build()
    groups = parts.groups_of(program)
    assert groups.owner.tolist()[:3] == [0, 1, 1]
    assert groups.owner[3 + barrier] == 1
    assert parts.dealt(program, groups, 2, np.array([0, 1])).delivery_parts.tolist()[:4] == [2, 2, 2, 2]
    assert check(program, 2, 0)


def test_boxes_and_calendars_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many events are sent at once: room is made between two looks of the threads, and nothing is lost."""
    monkeypatch.setattr(parts, "FIRST_ROOM", 1)
    program = crossing(9, tasks=300, latency_ps=10**7, rate=10**12)
    one = in_parts(program, 2, 0)
    assert one._parts is not None
    room, events = one._parts.states[0].mail.size, one._parts.states[0].event.size
    one.advance()
    assert one._parts.states[0].mail.size > room
    assert one._parts.states[0].event.size > events
    assert_same(one.outcome(), run(program, log=True))


def test_a_part_that_has_filled_a_box_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has left to send in the picosecond in which its window ended arrives before the others are beyond it."""
    monkeypatch.setattr(parts, "FIRST_ROOM", 1)
    builder = ProgramBuilder("store-and-forward", "tail")
    met, busy, *others = (builder.server(10**12) for _ in range(22))
    first = builder.task(1000, [(others[0], 5)], Cutting(1))
    for server in others:
        builder.task(1000, [(server, 10_000), (met, 5)], Cutting(1), after=[first])
    builder.task(100_000, [(busy, 5)], Cutting(100))
    program = builder.build()
    cut = parts.dealt(program, parts.groups_of(program), 2, np.array([1, 1] + 20 * [0]))
    assert cut.ahead_ps == 11_000
    assert_same(in_cut(program, cut).outcome(), run(program))


def test_a_thread_that_fails_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    one = in_parts(crossing(9, tasks=3), 2, 0, threads=True)
    assert one._parts is not None
    others, failing = one._parts._run, one._parts.states[1]

    def fail(state: Any, *limits: int) -> int:
        if state is failing:
            raise MemoryError("no room")
        return others(state, *limits)

    monkeypatch.setattr(one._parts, "_run", fail)
    with pytest.raises(MemoryError, match="no room"):
        one.advance()


def test_a_result_says_on_how_many_threads_it_ran() -> None:
    schedule = build("recursive-doubling", "all-reduce", from_spec("torus:4x4"), "64KiB")
    one, two = simulate(schedule, symmetry="off", log=True), simulate(schedule, symmetry="off", log=True, threads=2)
    assert one.outcome is not None
    assert two.outcome is not None
    assert_same(one.outcome, two.outcome)
    assert (one.outcome.threads, two.outcome.threads) == (1, 2)
    assert "; 2 threads" in str(two)
    assert "thread" not in str(one)
    assert one.row() | {"wall_s": 0, "threads": 2} == two.row() | {"wall_s": 0}


def test_threads_do_not_change_what_is_skipped() -> None:
    schedule = build("swing", "all-reduce", from_spec("torus:4x4"), "16MiB")
    one, two = (simulate(schedule, chunks=4096, threads=threads).outcome for threads in (1, 2))
    assert one is not None
    assert two is not None
    assert one.skipped == two.skipped > 0


@pytest.mark.parametrize(("options", "why"), [
    ({"discipline": "priority"}, "links that serve in another order: they are simulated in one order"),
    ({"nic": "shared"}, "NICs: they are"),
    ({"buffer": "32KiB"}, "buffers: they are"),
    ({"tie": "first"}, "it does not fall into parts that share its work"),
    ({"max_events": 10**6}, "its services are counted up to a limit"),
])
def test_why_a_run_stays_on_one_thread(options: dict[str, Any], why: str) -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "64KiB")  # one link stands for all
    found = simulate(schedule, threads=2, **options)
    assert f"note: on one thread: {why}" in str(found)


@pytest.mark.parametrize(("kind", "fabric", "size", "chunks", "why"), [
    ("all-reduce", "ring:8", "64MiB", 8192, "stretches that repeat are skipped"),
    ("all-gather", "random-regular:32x4", "1MiB", 128, "stretches that repeat are looked for to its end"),
])
def test_where_stretches_are_looked_for_it_is_said_whether_any_were_found(
    kind: str, fabric: str, size: str, chunks: int, why: str
) -> None:
    found = simulate(build("ring", kind, from_spec(fabric), size), chunks=chunks, threads=2)
    assert f"note: on one thread: {why}" in str(found)
    assert (found.skipped > 0) == ("are skipped" in why)


def test_pools_stay_on_one_thread() -> None:
    """Whoever takes units is seen by all parts at once; such runs of joins are in the fifo loop nevertheless."""
    schedule = build("hierarchical", "all-reduce", from_spec("torus:3x3"), "64KiB")
    found = simulate(schedule, threads=2, symmetry="off")
    assert "on one thread: pools: they are simulated in one order" in str(found)
    assert found.time_ps == simulate(schedule, symmetry="off").time_ps


def test_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or two: the parts wait for each other, and where they share a core that takes a hundred times as long."""
    schedule = build("recursive-doubling", "all-reduce", from_spec("torus:4x4"), "64KiB")
    for cores, asked, taken in ((3, 1000, 3), (1, 1000, 2), (3, 2, 2)):
        monkeypatch.setattr(parts, "cores", lambda cores=cores: cores)
        found = simulate(schedule, symmetry="off", threads=asked)
        assert f"; {taken} threads" in str(found)
        assert (f"note: on {taken} threads: more than cores (" in str(found)) == (asked > taken)


def test_nothing_is_simulated_on_several_threads() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:1"), "64KiB")
    assert "on one thread: there is nothing to simulate" in str(simulate(schedule, threads=2))


def test_threads_must_be_at_least_one() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "64KiB")
    for number in (0, -1):
        with pytest.raises(WeftError, match=f"threads is {number}: give an integer from 1"):
            simulate(schedule, threads=number)
    with pytest.raises(WeftError, match="2 threads need the chunk engine"):
        simulate(schedule, threads=2, engine="reference")


@pytest.mark.compiled
def test_one_specialization() -> None:
    """Whatever the program and its parts, the kernels compile once."""
    check(crossing(3), 2, 0)
    check(crossing(3), 3, 0, log=False)
    for entry in (_parts.run_part, _parts.find_groups, _parts.find_deliveries):
        assert len(getattr(entry, "signatures", ())) == 1


@pytest.fixture
def long_run(monkeypatch: pytest.MonkeyPatch) -> Program:
    """One that would take two cores, if they were watched for long enough and the other one was idle."""
    monkeypatch.setattr(parts, "cores", lambda: 2)
    monkeypatch.setattr(parts, "idle_cores", lambda watch: 1)
    for name, value in {"LEAST_SERVICES": 1, "LEAST_A_WINDOW": 1, "LEAST_WATCHED_S": 0.0}.items():
        monkeypatch.setattr(parts, name, value)
    monkeypatch.setattr(engine, "SLICE_EVENTS", 10_000)
    return lower(build("direct", "all-to-all", from_spec("torus:4x4"), "16MiB"), Model(chunks=64), "off").program


def unasked(program: Program) -> int:
    """The threads that a run takes by itself."""
    return run(program, skip=False, threads=None).threads


def test_long_runs_with_wide_windows_take_all_idle_cores(long_run: Program) -> None:
    assert unasked(long_run) == 2


@pytest.mark.parametrize(("name", "value"), [
    ("LEAST_SERVICES", 1 << 60), ("LEAST_A_WINDOW", 1 << 60), ("LEAST_WATCHED_S", 1e9),
    ("cores", lambda: 1),  # as in a worker
    ("idle_cores", lambda watch: 0),
])
def test_without_a_number_what_does_not_pay_stays_on_one_thread(
    long_run: Program, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(parts, name, value)
    assert unasked(long_run) == 1


def test_a_number_is_taken_on_a_busy_machine_too(long_run: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "idle_cores", lambda watch: 0)
    assert run(long_run, skip=False, threads=2).threads == 2


class _Watched(parts.Watch):
    def __init__(self, idle: float) -> None:
        self._idle = idle

    def idle(self) -> float:
        return self._idle


@pytest.mark.parametrize(("idle", "free"), [(-3.0, 0), (-0.1, 0), (0.0, 0), (0.7, 0), (0.8, 1), (1.05, 1), (2.9, 3)])
def test_a_core_is_free_if_others_use_little_of_it(idle: float, free: int) -> None:
    assert max(parts.idle_cores(_Watched(idle)), 0) == free
