"""The compiled certificate of long logs against the one that sorts them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.certify import healthy
from sim.certify.healthy import CertificateError, certify
from sim.certify.in_turn import is_in_turn
from sim.engine.run import run
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.contract import HEAD
from sim.program.outcome import Deadlock, Log, Outcome
from tests.same_runs import assert_same
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


class Line:
    """Times of a run in plain loops, where servers serve in a line that is given: each service as soon as its chunk is
    there and the one before it has ended, but for those that are shifted."""

    def __init__(self, program: Program, before: np.ndarray, shifts: dict[int, int]) -> None:
        self.program, self.before, self.shifts = program, before, shifts
        self.hops, self.chunks = program.hops().tolist(), program.chunks().tolist()
        self.rows = [
            (task, chunk, hop) for task in range(program.n_tasks) for chunk in range(self.chunks[task])
            for hop in range(self.hops[task])
        ]
        self.row = {one: row for row, one in enumerate(self.rows)}
        self.start_ps = cache(self.start_ps)  # type: ignore[method-assign]  # of this run alone
        self.delivered_ps = cache(self.delivered_ps)  # type: ignore[method-assign]  # likewise

    def hop(self, row: int, on: int = 0) -> int:
        task, _, hop = self.rows[row]
        return int(self.program.route_hop[self.program.route_ptr[self.program.task_route[task]] + hop + on])

    def takes_ps(self, row: int, hop: int) -> int:
        task, chunk, _ = self.rows[row]
        cut = self.program.task_cut[task]
        size = self.program.cut_size[cut, int(chunk >= self.program.cut_first[cut])]
        rate = self.program.server_rate[self.program.hop_server[hop]]
        return int(self.program.service_ps[self.program.service_row[size] + rate])

    def end_ps(self, row: int) -> int:
        return self.start_ps(row) + self.takes_ps(row, self.hop(row))

    def start_ps(self, row: int) -> int:
        task, chunk, hop = self.rows[row]
        if hop:
            there = self.ready_ps(row - 1)
        else:
            there = max(self.released_ps(task, chunk), self.end_ps(self.row[task, chunk - 1, 0]) if chunk else 0)
        free = self.end_ps(int(self.before[row])) if self.before[row] >= 0 else 0
        return max(there, free) + self.shifts.get(row, 0)

    def ready_ps(self, row: int) -> int:
        hop = self.hop(row)
        start, end, latency = self.start_ps(row), self.end_ps(row), int(self.program.hop_latency_ps[hop])
        if self.program.hop_last[hop]:
            return latency + (start if self.program.hop_last[hop] == HEAD else end)
        if not self.program.cut_through:
            return latency + end
        return latency + max(start, end - self.takes_ps(row, self.hop(row, on=1)))

    def delivered_ps(self, task: int, chunk: int) -> int:
        if self.hops[task]:
            return self.ready_ps(self.row[task, chunk, self.hops[task] - 1])
        return self.released_ps(task, chunk)

    def released_ps(self, task: int, chunk: int) -> int:
        waits = [(parent, self.chunks[parent]) for parent, child in zip(*self.program.whole_edges(), strict=True)
                 if child == task]
        for parent, child, lag in zip(*self.program.stream_edges(), strict=True):
            if child == task:
                share = Fraction((chunk + 1) * self.chunks[parent], self.chunks[task])
                waits.append((parent, chunk + 1 - lag if lag else ceil(share)))
        return max([0, *(self.delivered_ps(int(one), int(count) - 1) for one, count in waits if count > 0)])

    def outcome(self) -> Outcome:
        """Of which everything follows from these times."""
        start = np.array([self.start_ps(row) for row in range(len(self.rows))], np.int64)
        busy = np.zeros(self.program.n_servers, np.int64)
        for row in range(start.size):
            busy[self.program.hop_server[self.hop(row)]] += self.end_ps(row) - self.start_ps(row)
        began = [
            self.start_ps(self.row[task, 0, 0]) if hops else self.delivered_ps(task, 0)
            for task, hops in enumerate(self.hops)
        ]
        finish = np.array([self.delivered_ps(task, last - 1) for task, last in enumerate(self.chunks)], np.int64)
        base = np.append(0, np.cumsum(np.multiply(self.hops, self.chunks)))
        return Outcome(np.array(began, np.int64), finish, busy, int(finish.max(initial=0)), start.size,
                       Log(base, start, self.before))


def many_for_few(forwarding: str, deliver: str, parent: int, child: int) -> Program:
    """One task waits for another chunk by chunk, both in chunks of two sizes, over rates that rise and fall."""
    builder = ProgramBuilder(forwarding, deliver)
    servers = [builder.server(Fraction(10**12) / ps) for ps in (Fraction(17, 10), 3, 1, Fraction(1, 2))]
    builder.task(5, [(servers[3], 1)])
    first = builder.task(3 * parent + 1, [(one, 2) for one in servers[:3]], Cutting(chunks=parent))
    builder.task(2 * child + 1, [(servers[3], 0), (servers[2], 4)], Cutting(chunks=child), stream=[first])
    return builder.build()


def windows(own: int, other: int) -> Program:
    """A task that waits for its own chunks, and in a window for those of a slow one that comes later and is longer."""
    builder = ProgramBuilder("store-and-forward")
    fast, slow = builder.server(10**12), builder.server(Fraction(10**12, 7))
    one = builder.task(16, [(fast, 9)], Cutting(chunks=5))
    two = builder.task(9, [(slow, 1)], Cutting(chunks=7))
    builder.window(one, one, own)
    builder.window(one, two, other)
    return builder.build()


def joined(chunks: int) -> Program:
    """Tasks without servers, whole and by chunks, between tasks on servers; they wait for the later of two."""
    builder = ProgramBuilder()
    wires = [builder.server(Fraction(10**12, ps)) for ps in (1, 4, 3)]
    ends = [builder.task(work, [(wire, 3)], Cutting(chunks=2)) for work, wire in ((7, wires[0]), (5, wires[1]))]
    join = builder.task(0, after=ends)
    at_once = builder.task(chunks, cutting=Cutting(chunks=chunks), after=ends[::-1])
    by_two = builder.task(2, cutting=Cutting(chunks=2), stream=[*ends, builder.task(0)])
    builder.task(3 * chunks + 1, [(wires[0], 1)], Cutting(chunks=chunks), stream=[at_once], after=[join])
    builder.task(9, [(wires[2], 1), (wires[0], 0)], Cutting(chunks=4), stream=[by_two])
    return builder.build()


def alone(work: int) -> Program:
    """One task of one chunk on one server, or without."""
    builder = ProgramBuilder()
    builder.task(work, [(builder.server(Fraction(10**12, 3)), 2)] if work else [])
    return builder.build()


def last_first() -> Program:
    """The first task waits for the last as a whole."""
    builder = ProgramBuilder()
    wire = builder.server(Fraction(10**12, 3))
    builder.task(3, [(wire, 1)], Cutting(chunks=3), after=[1])
    builder.task(5, [(wire, 2)], Cutting(chunks=2))
    return builder.build()


def behind_another() -> Program:
    """A chunk that waits for a task, long after its server has served another."""
    builder = ProgramBuilder()
    wire = builder.server(Fraction(10**12, 3))
    builder.task(2, [(wire, 1)])
    first = builder.task(17, [(builder.server(10**12), 2)])
    builder.task(1, [(wire, 0)], after=[first])
    return builder.build()


RUNS = {
    "fewer wait for more": lambda: many_for_few("cut-through", "tail", 7, 3),
    "more wait for fewer": lambda: many_for_few("cut-through", "head", 3, 7),
    "as many": lambda: many_for_few("store-and-forward", "head", 5, 5),
    "one for all": lambda: many_for_few("store-and-forward", "tail", 4, 1),
    "windows of one": lambda: windows(1, 1),
    "windows of several": lambda: windows(2, 3),
    "joins of one": lambda: joined(1),
    "joins of two": lambda: joined(2),
    "joins of three": lambda: joined(3),
    "the last first": last_first,
    "behind another": behind_another,
    "one chunk": lambda: alone(5),
    "no server": lambda: alone(0),
    "nothing": lambda: ProgramBuilder().build(),
}


def refused(program: Program, wrong: Outcome, reason: str) -> None:
    """By the passes, and with the reason by the certificate that sorts."""
    assert not proved(program, wrong)
    with pytest.raises(CertificateError, match=reason):
        certify(program, wrong)


@pytest.mark.parametrize("name", RUNS)
def test_one_picosecond_is_refused(name: str) -> None:
    """A service that begins 1 ps sooner or later than it can, or once its server is free, with all that follows."""
    program = RUNS[name]()
    outcome = run(program, log=True)
    assert outcome.log is not None
    right = Line(program, outcome.log.before, {})
    assert_same(right.outcome(), outcome)
    assert proved(program, outcome)
    for row, before in enumerate(outcome.log.before.tolist()):
        waits_ps = right.start_ps(row) - (right.end_ps(before) if before >= 0 else 0)
        for shift in {-1, 1, -waits_ps} - {0}:
            line = Line(program, outcome.log.before, {row: shift})
            assert line.start_ps(row) == right.start_ps(row) + shift
            early = "causality: .* before" if waits_ps else "two chunks at|causality: .* before"
            refused(program, line.outcome(), early if shift < 0 else "capacity: .* which is free")


@pytest.mark.parametrize("name", RUNS)
def test_each_number_of_a_run_is_looked_at(name: str) -> None:
    """Times, sums and the services before each: any other is refused, but for one below 0 where there is none."""
    program = RUNS[name]()
    outcome = run(program, log=True)
    log = outcome.log
    assert log is not None
    for field in ("start_ps", "finish_ps", "busy_ps"):
        for at, by in product(range(getattr(outcome, field).size), (-1, 1)):
            values = getattr(outcome, field).copy()
            values[at] += by
            refused(program, outcome._replace(**{field: values}), "causality|conservation")
    for by in (-1, 1):
        refused(program, outcome._replace(events=outcome.events + by), "conservation")
    for at, by in product(range(log.base.size), (-1, 1)):
        base = log.base.copy()
        base[at] += by
        assert not proved(program, outcome._replace(log=log._replace(base=base)))
    for at, other in product(range(log.before.size), range(-2, log.before.size + 2)):
        before = log.before.copy()
        before[at] = other
        same = other == log.before[at] or max(other, log.before[at]) < 0
        assert proved(program, outcome._replace(log=log._replace(before=before))) == same


class Met(NamedTuple):
    """A chunk of a task that meets another at a server, in the order in which those that come at once are served."""

    tie_class: int
    chunk: int
    hop: int
    hops: int  # of the task's route: decides nothing


def meet(tasks: Sequence[Met]) -> Program:
    """These chunks arrive at server 0 in the same picosecond, and are served for 5 ps; others arrive far from them."""
    builder = ProgramBuilder("store-and-forward")
    shared = builder.server(Fraction(10**12, 5))
    for one in tasks:
        own = [builder.server(10**12) for _ in range(one.hops)]
        wait_ps = 1000 - 50 * (one.chunk + 1)  # of services of 50 ps
        clock = builder.task(4, [(builder.server(Fraction(10**12, 50)), wait_ps - one.hop)], Cutting(chunks=4))
        route = [(server, 0) for server in own]
        route[one.hop] = shared, 3
        builder.task(4, route, Cutting(chunks=4), stream=[clock], tie_class=one.tie_class)
    return builder.build()


TURNS = [
    (Met(0, 2, 1, 2), Met(1, 0, 0, 1)), (Met(0, 1, 0, 3), Met(1, 1, 0, 3)), (Met(0, 0, 2, 3), Met(0, 1, 0, 2)),
    (Met(0, 1, 1, 2), Met(0, 2, 1, 4)), (Met(0, 1, 2, 3), Met(0, 2, 0, 1)), (Met(1, 2, 0, 2), Met(1, 2, 1, 3)),
    (Met(0, 1, 1, 2), Met(0, 1, 2, 3)), (Met(0, 2, 0, 1), Met(0, 2, 3, 4)), (Met(0, 0, 0, 3), Met(0, 0, 1, 2)),
    (Met(0, 1, 1, 3), Met(0, 1, 1, 2)), (Met(0, 1, 1, 2), Met(0, 1, 1, 3)), (Met(2, 3, 2, 3), Met(2, 3, 2, 4)),
]
"""The first is served first: by class, chunk, hop; the last three by the number of the task alone."""


@pytest.mark.parametrize(("first", "second"), [
    *TURNS, *((second, first) for first, second in TURNS if first[:3] != second[:3])
])
def test_of_two_that_come_at_once_the_turn_is_looked_at(first: Met, second: Met) -> None:
    """Class, chunk, hop, task: the first that differs. In each order of the tasks, unless that decides."""
    program = meet((first, second))
    outcome = run(program, log=True)
    log = outcome.log
    assert log is not None
    assert proved(program, outcome)
    rows = [int(log.base[task] + one.chunk * one.hops + one.hop) for task, one in ((1, first), (3, second))]
    early, late = rows if first[:3] <= second[:3] else rows[::-1]
    assert log.start_ps[late] - log.start_ps[early] == 5
    assert log.before[late] == early
    before = log.before.copy()
    before[early], before[late], before[log.before == late] = late, before[early], early
    wrong = Line(program, before, {}).outcome()
    assert wrong.log is not None
    assert wrong.log.start_ps[early] == log.start_ps[late]
    refused(program, wrong, "order: server 0 serves")


def test_what_leaves_no_trace_is_left_to_the_sort() -> None:
    """The middle of three chunks of a task without servers may have been delivered at any time: who came first?"""
    builder = ProgramBuilder("store-and-forward")
    wire, busy = builder.server(10**12), builder.server(10**12)
    parent = builder.task(9, [(wire, 2)], Cutting(chunks=3))
    middle = builder.task(3, cutting=Cutting(chunks=3), stream=[parent])
    builder.task(40, [(busy, 0)])
    builder.task(9, [(busy, 0)], Cutting(chunks=3), stream=[middle])
    program = builder.build()
    outcome = run(program, log=True)
    assert outcome.start_ps[middle] < outcome.finish_ps[middle] < 40
    assert accepted(program, outcome)
    assert not proved(program, outcome)


def test_what_a_chunk_waits_for_must_be() -> None:
    """The last of three waits in a window for the second chunk of a task that has one."""
    builder = ProgramBuilder("store-and-forward")
    wire = builder.server(10**12)
    one, other = builder.task(3, [(wire, 0)]), builder.task(30, [(wire, 0)], Cutting(chunks=3))
    builder.window(other, one, 2)
    program = builder.build()
    outcome = run(program, log=True)
    assert proved(program, outcome)
    never = program._replace(parent_lag=program.parent_lag - 1)
    refused(never, outcome, "causality: chunk 2 of task 1 is served by server 0 at .* before it is there")


def test_services_take_time() -> None:
    """The line of a server is one because it goes on in time: of two of 0 ps each might be before the other."""
    program = alone(5)
    at_once = program._replace(service_ps=np.zeros_like(program.service_ps))
    outcome = Line(at_once, np.array([-1]), {}).outcome()
    assert accepted(at_once, outcome)
    assert not proved(at_once, outcome)
