"""The reference engine against hand-computed cases of the contract, and against its own log.

Unless a test says otherwise a server takes 1 ps for a unit of work, and work is given in these units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings

from sim.engine.reference.engine import run_reference
from sim.program import ORDERS, PER_CHUNK, PER_TASK, Cutting, Program, ProgramBuilder
from sim.program.contract import WEIGHTS
from sim.program.outcome import Deadlock, Outcome
from tests.strategies import fifo_programs, programs

UNIT = 10**12
SAF, CT = "store-and-forward", "cut-through"
TWO, THREE, FOUR = Cutting(chunks=2), Cutting(chunks=3), Cutting(chunks=4)


def finishes(builder: ProgramBuilder) -> list[int]:
    return [int(ps) for ps in run_reference(builder.build()).finish_ps]


def starts(builder: ProgramBuilder, task: int) -> list[int]:
    """Start of each service of a task, chunk by chunk and hop by hop."""
    log = run_reference(builder.build(), log=True).log
    assert log is not None
    return [int(ps) for ps in log.start_ps[log.base[task] : log.base[task + 1]]]


def gate(builder: ProgramBuilder, ps: int) -> int:
    """A task that is delivered at `ps`, on a server of its own."""
    return builder.task(ps, [(builder.server(UNIT), 0)])


# One hop and two


@pytest.mark.parametrize("forwarding", [SAF, CT])
def test_one_hop(forwarding: str) -> None:
    """When is a task of one hop delivered? Service and latency after its start, however it is forwarded."""
    builder = ProgramBuilder(forwarding)
    builder.task(10, [(builder.server(UNIT), 5)])
    assert finishes(builder) == [15]


@pytest.mark.parametrize("forwarding", [SAF, CT])
def test_one_hop_in_chunks(forwarding: str) -> None:
    """Do chunks change the time of a single hop? No: they follow each other without a gap."""
    builder = ProgramBuilder(forwarding)
    builder.task(10, [(builder.server(UNIT), 5)], TWO)
    assert starts(builder, 0) == [0, 5]
    assert finishes(builder) == [15]


@pytest.mark.parametrize(
    ("forwarding", "rates", "second_start", "finish"),
    [
        (SAF, (UNIT / 2, UNIT), 23, 36),
        (SAF, (UNIT, UNIT / 2), 13, 36),
        (CT, (UNIT, UNIT), 3, 16),
        (CT, (UNIT, UNIT / 2), 3, 26),
        (CT, (UNIT / 2, UNIT), 13, 26),
    ],
)
def test_two_hops(forwarding: str, rates: tuple[float, float], second_start: int, finish: int) -> None:
    """When does a chunk start at its second hop? With its head where rates fall, with its tail where they rise."""
    builder = ProgramBuilder(forwarding)
    builder.task(10, [(builder.server(rate), 3) for rate in rates])
    assert starts(builder, 0) == [0, second_start]
    assert finishes(builder) == [finish]


def test_store_and_forward_overlaps_chunks() -> None:
    """Do two hops work on two chunks at once? Yes: chunk 1 crosses the first while chunk 0 crosses the second."""
    builder = ProgramBuilder(SAF)
    builder.task(10, [(builder.server(UNIT), 0), (builder.server(UNIT), 0)], TWO)
    assert starts(builder, 0) == [0, 5, 5, 10]
    assert finishes(builder) == [15]


def test_a_server_twice_in_a_route() -> None:
    """May a route cross a server twice? Yes: the chunk waits there for itself, and later chunks for both passes."""
    builder = ProgramBuilder(CT)
    server = builder.server(UNIT)
    builder.task(10, [(server, 1), (server, 1)], TWO)
    # Chunk 0 is back at 1, before chunk 1 is injected at 5.
    assert starts(builder, 0) == [0, 5, 10, 15]
    assert finishes(builder) == [21]


@pytest.mark.parametrize("forwarding", [SAF, CT])
def test_zero_bytes(forwarding: str) -> None:
    """Does an empty message take time? 1 ps on each server, and the latencies."""
    builder = ProgramBuilder(forwarding)
    builder.task(0, [(builder.server(UNIT), 4), (builder.server(UNIT), 5)])
    assert finishes(builder) == [1 + 4 + 1 + 5 - (forwarding == CT)]


@pytest.mark.parametrize("forwarding", [SAF, CT])
def test_head_delivery(forwarding: str) -> None:
    """What does head delivery change? A chunk counts as delivered before its service ends; the server stays busy."""
    builder = ProgramBuilder(forwarding, deliver="head")
    server = builder.server(UNIT)
    first = builder.task(10, [(server, 3)], TWO)
    builder.task(4, [(server, 3)], after=[first])
    assert starts(builder, first) == [0, 5]
    # Released at 8, when the head of chunk 1 is in; served at 10, when the tail has left.
    assert finishes(builder) == [8, 13]
    outcome = run_reference(builder.build())
    assert outcome.makespan_ps == 13
    assert list(outcome.busy_ps) == [14]


@pytest.mark.parametrize(("forwarding", "deliver", "expected"), [
    (SAF, "tail", 30), (SAF, "head", 21), (CT, "tail", 13), (CT, "head", 3),
])
def test_hops_without_latency(forwarding: str, deliver: str, expected: int) -> None:
    """Where is zero raised to 1 ps? At every hop of cut-through, and where a head is delivered; nowhere else."""
    builder = ProgramBuilder(forwarding, deliver=deliver)
    builder.task(10, [(builder.server(UNIT), 0) for _ in range(3)])
    assert finishes(builder) == [expected]


@pytest.mark.parametrize(("hops", "nanoseconds"), [(1, 20_031), (2, 40_062)])
def test_the_astra_sim_cell(hops: int, nanoseconds: int) -> None:
    """Do we agree with ASTRA-sim on 1 MiB at 50 GiB/s and 500 ns a hop?"""
    builder = ProgramBuilder(SAF)
    builder.task(1 << 20, [(builder.server(50 * 2**30), 500_000) for _ in range(hops)])
    assert finishes(builder)[0] / 1000 == pytest.approx(nanoseconds, abs=hops)


def test_an_empty_program() -> None:
    """How long does nothing take?"""
    outcome = run_reference(ProgramBuilder().build())
    assert (outcome.makespan_ps, outcome.events) == (0, 0)


# Injection and ties


def test_tasks_that_share_a_source_interleave() -> None:
    """Does a task keep its source until it is done? No: its next chunk queues behind the other task's first."""
    builder = ProgramBuilder(SAF)
    source = builder.server(UNIT)
    first = builder.task(10, [(source, 1)], TWO)
    second = builder.task(10, [(source, 1)], TWO)
    assert starts(builder, first) == [0, 10]
    assert starts(builder, second) == [5, 15]
    assert finishes(builder) == [16, 21]


def test_tie_by_class() -> None:
    """Who goes first of two that arrive together? The smaller class."""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT)
    builder.task(5, [(server, 0)], tie_class=1)
    builder.task(5, [(server, 0)], tie_class=0)
    assert finishes(builder) == [10, 5]


def test_an_earlier_arrival_goes_before_a_smaller_class() -> None:
    """Does the class matter where the arrivals differ? No."""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT)
    builder.task(10, [(server, 0)])
    builder.task(5, [(server, 0)], after=[gate(builder, 2)], tie_class=0)
    early = builder.task(5, [(server, 0)], after=[gate(builder, 1)], tie_class=1)
    assert starts(builder, early) == [10]


def test_tie_by_chunk() -> None:
    """And where the classes are equal? The smaller chunk, whatever its hop."""
    builder = ProgramBuilder(SAF)
    shared = builder.server(UNIT)
    builder.task(10, [(shared, 0)], TWO)
    builder.task(5, [(builder.server(UNIT), 0), (shared, 0)])
    # At 5 the second chunk of task 0, just injected, meets the only chunk of task 1.
    assert finishes(builder) == [15, 10]


def test_tie_by_hop() -> None:
    """And where the chunks are equal too? The smaller hop."""
    builder = ProgramBuilder(SAF)
    shared = builder.server(UNIT)
    early = gate(builder, 5)
    traveled = builder.task(5, [(builder.server(UNIT), 0), (shared, 0)])
    injected = builder.task(5, [(shared, 0)], after=[early])
    assert starts(builder, injected) == [5]
    assert starts(builder, traveled) == [0, 10]


def test_tie_by_task() -> None:
    """And where everything is equal? The smaller task index."""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT)
    for _ in range(3):
        builder.task(5, [(server, 0)])
    assert finishes(builder) == [5, 10, 15]


def test_an_arrival_by_zero_latency_is_in_time() -> None:
    """Does a chunk that arrives in the picosecond in which a server falls free take part in the choice?"""
    builder = ProgramBuilder(SAF)
    shared = builder.server(UNIT, "priority")
    builder.task(5, [(shared, 0)], priority=1)
    waiting = builder.task(5, [(shared, 0)], priority=1)
    urgent = builder.task(5, [(builder.server(UNIT), 0), (shared, 0)], priority=0)
    assert starts(builder, urgent) == [0, 5]
    assert starts(builder, waiting) == [10]


# Disciplines


@pytest.mark.parametrize(
    ("discipline", "order"),
    [
        ("fifo", "XYZ"),
        ("priority", "ZYX"),
        ("smallest-first", "YZX"),
        ("lowest-chunk-first", "XYZ"),
    ],
)
def test_disciplines(discipline: str, order: str) -> None:
    """Whom does a server choose of three that wait?"""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT, discipline)
    builder.task(10, [(server, 0)])
    tasks = {
        "X": builder.task(6, [(server, 0)], after=[gate(builder, 1)], priority=2),
        "Y": builder.task(4, [(server, 0)], after=[gate(builder, 2)], priority=1),
        "Z": builder.task(5, [(server, 0)], after=[gate(builder, 3)], priority=0),
    }
    assert sorted(tasks, key=lambda name: starts(builder, tasks[name])) == list(order)


@pytest.mark.parametrize(("discipline", "late_start"), [("fifo", 32), ("lowest-chunk-first", 12)])
def test_lowest_chunk_first(discipline: str, late_start: int) -> None:
    """Does a first chunk overtake the later chunks of another task? Only with lowest-chunk-first."""
    builder = ProgramBuilder(SAF)
    shared = builder.server(UNIT / 5, discipline)
    builder.task(6, [(builder.server(UNIT), 0), (shared, 0)], THREE)
    late = builder.task(2, [(shared, 0)], after=[gate(builder, 7)])
    assert starts(builder, late) == [late_start]


def test_smallest_first_counts_the_whole_task() -> None:
    """Is a small chunk of a large task small? No: the bytes of the task count."""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT, "smallest-first")
    large = builder.task(8, [(server, 0)], FOUR)
    small = builder.task(4, [(server, 0)])
    assert starts(builder, small) == [0]
    assert starts(builder, large) == [4, 6, 8, 10]


def test_the_chunk_just_injected_takes_part() -> None:
    """Is the next chunk of an urgent task there when its server chooses? Yes: it joins before the choice."""
    builder = ProgramBuilder(SAF)
    server = builder.server(UNIT, "priority")
    builder.task(10, [(server, 0)], TWO, priority=0)
    builder.task(5, [(server, 0)], priority=1)
    assert finishes(builder) == [10, 15]


# Dependencies


@pytest.mark.parametrize(("parent", "child", "expected"), [(3, 2, [4, 6]), (2, 3, [3, 6, 7]), (1, 2, [6, 7])])
def test_stream_with_unequal_chunks(parent: int, child: int, expected: list[int]) -> None:
    """Which chunks of A does chunk j of B wait for? The first ceil((j+1) C_A / C_B)."""
    builder = ProgramBuilder(SAF)
    first = builder.task(6, [(builder.server(UNIT), 0)], Cutting(chunks=parent))
    second = builder.task(child, [(builder.server(UNIT), 0)], Cutting(chunks=child), stream=[first])
    assert starts(builder, second) == expected


def test_whole_dependency_waits_for_every_chunk() -> None:
    """Does a whole dependency let the first chunk through early? No."""
    builder = ProgramBuilder(SAF)
    first = builder.task(6, [(builder.server(UNIT), 2)], THREE)
    second = builder.task(2, [(builder.server(UNIT), 0)], TWO, after=[first])
    assert starts(builder, second) == [8, 9]


@pytest.mark.parametrize(("window", "expected"), [(1, [0, 12, 24, 36]), (2, [0, 2, 12, 14]), (4, [0, 2, 4, 6])])
def test_window_on_itself(window: int, expected: list[int]) -> None:
    """How many chunks may be on their way with a window of w on oneself? w."""
    builder = ProgramBuilder(SAF)
    task = builder.task(8, [(builder.server(UNIT), 10)], FOUR)
    builder.window(task, task, window)
    assert starts(builder, task) == expected


@pytest.mark.parametrize(("window", "expected"), [(1, [0, 7, 14, 21]), (2, [0, 2, 7, 12])])
def test_window_on_the_receiver(window: int, expected: list[int]) -> None:
    """Does a window on a later task hold the sender back to the pace of its receiver?"""
    builder = ProgramBuilder(SAF)
    sender = builder.task(8, [(builder.server(UNIT), 0)], FOUR)
    receiver = builder.task(20, [(builder.server(UNIT), 0)], FOUR, stream=[sender])
    builder.window(sender, receiver, window)
    assert starts(builder, sender) == expected


def test_empty_route_joins() -> None:
    """What does a task without a route do? It is delivered with the last of what it waits for, at once."""
    builder = ProgramBuilder(SAF)
    join = builder.task(0, after=[gate(builder, 3), gate(builder, 8)])
    after = builder.task(2, [(builder.server(UNIT), 0)], after=[join])
    outcome = run_reference(builder.build())
    assert (outcome.start_ps[join], outcome.finish_ps[join]) == (8, 8)
    assert outcome.finish_ps[after] == 10


def test_empty_route_passes_chunks() -> None:
    """Does a join without a route pass chunks one by one? Yes."""
    builder = ProgramBuilder(SAF)
    parent = builder.task(9, [(builder.server(UNIT), 0)], THREE)
    join = builder.task(3, (), THREE, stream=[parent])
    child = builder.task(3, [(builder.server(UNIT), 0)], THREE, stream=[join])
    outcome = run_reference(builder.build())
    assert (outcome.start_ps[join], outcome.finish_ps[join]) == (3, 9)
    assert starts(builder, child) == [3, 6, 9]


# Pools


def test_pool_per_chunk() -> None:
    """When may the next chunk go if each takes the only unit? When the one before is delivered, not just served."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1)
    task = builder.task(10, [(builder.server(UNIT), 3)], TWO)
    builder.ask(task, pool)
    builder.give(task, pool)
    assert starts(builder, task) == [0, 8]


def test_pool_per_task() -> None:
    """And if a task takes it for all its chunks? The other task waits for the last of them."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1)
    tasks = [builder.task(10, [(builder.server(UNIT), 3)], TWO) for _ in range(2)]
    for task in tasks:
        builder.ask(task, pool, per=PER_TASK)
        builder.give(task, pool, per=PER_TASK)
    assert [starts(builder, task) for task in tasks] == [[0, 5], [13, 18]]


def test_pool_given_back_by_another_task() -> None:
    """May another task return the units? Yes: here the receiver frees the slot of the sender."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1)
    sender = builder.task(4, [(builder.server(UNIT), 0)], TWO)
    receiver = builder.task(10, [(builder.server(UNIT), 0)], TWO, stream=[sender])
    builder.ask(sender, pool)
    builder.give(receiver, pool)
    assert starts(builder, sender) == [0, 7]


def test_pool_head_of_line_blocks() -> None:
    """May a small request pass a large one that does not fit? No: the head of the line blocks."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(2)
    held, large, small = (
        builder.task(10, [(builder.server(UNIT), 0)], after=[gate(builder, ps)] if ps else []) for ps in (0, 1, 2)
    )
    for task, units in ((held, 1), (large, 2), (small, 1)):
        builder.ask(task, pool, units)
        builder.give(task, pool, units)
    assert [starts(builder, task) for task in (held, large, small)] == [[0], [10], [20]]


@pytest.mark.parametrize(("discipline", "order"), [("fifo", "XYZ"), ("priority", "ZYX"), ("smallest-first", "YZX")])
def test_pool_disciplines(discipline: str, order: str) -> None:
    """Whom does a pool choose of three that wait?"""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1, discipline)
    held = builder.task(10, [(builder.server(UNIT), 0)])
    tasks = {
        "X": builder.task(6, [(builder.server(UNIT), 0)], after=[gate(builder, 1)], priority=2),
        "Y": builder.task(4, [(builder.server(UNIT), 0)], after=[gate(builder, 2)], priority=1),
        "Z": builder.task(5, [(builder.server(UNIT), 0)], after=[gate(builder, 3)], priority=0),
    }
    for task in (held, *tasks.values()):
        builder.ask(task, pool)
        builder.give(task, pool)
    assert sorted(tasks, key=lambda name: starts(builder, tasks[name])) == list(order)


def test_pool_grants_when_everything_has_settled() -> None:
    """Does a request that comes by way of joins lose to one that was there first? Not in the same picosecond."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1)
    join = first = gate(builder, 3)
    direct = builder.task(5, [(builder.server(UNIT), 0)], after=[first], tie_class=1)
    for _ in range(5):
        join = builder.task(0, after=[join])
    joined = builder.task(5, [(builder.server(UNIT), 0)], after=[join], tie_class=0)
    for task in (direct, joined):
        builder.ask(task, pool)
        builder.give(task, pool)
    assert starts(builder, joined) == [3]
    assert starts(builder, direct) == [8]


def test_pools_grant_in_one_round() -> None:
    """Does a request that one pool's grant causes take part in another pool's grants of that round? No."""
    builder = ProgramBuilder(SAF)
    opening, contended = builder.pool(1), builder.pool(1)
    opener = builder.task(0)
    builder.ask(opener, opening)
    caused = builder.task(5, [(builder.server(UNIT), 0)], after=[opener], tie_class=0)
    waiting = builder.task(5, [(builder.server(UNIT), 0)], tie_class=1)
    for task in (caused, waiting):
        builder.ask(task, contended)
        builder.give(task, contended)
    assert finishes(builder) == [0, 10, 5]


def test_empty_route_asks_chunk_by_chunk() -> None:
    """Do all chunks of a task without a route ask at once? No: the next asks when the one before is delivered."""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(2)
    join = builder.task(2, (), TWO, tie_class=0)
    other = builder.task(5, [(builder.server(UNIT), 0)], tie_class=1)
    for task in (join, other):
        builder.ask(task, pool)
    builder.give(other, pool)
    # The first round gives one unit to the first chunk of the join and the other to the task beside it.
    assert finishes(builder) == [5, 5]


# What cannot finish


def test_deadlock_names_who_waits_for_a_pool() -> None:
    """What does a program say that takes units and never returns them?"""
    builder = ProgramBuilder(SAF)
    pool = builder.pool(1)
    task = builder.task(10, [(builder.server(UNIT), 0)], TWO)
    builder.ask(task, pool)
    builder.task(1, [(builder.server(UNIT), 0)], after=[task])
    message = "2 of 2 tasks can never finish: task 0 waits for 1 units of pool 0; task 1 waits for task 0"
    with pytest.raises(Deadlock, match=message):
        run_reference(builder.build())


def test_deadlock_names_who_waits_for_a_window() -> None:
    """What does a program say whose window waits for what comes after it?"""
    builder = ProgramBuilder(SAF)
    sender = builder.task(10, [(builder.server(UNIT), 0)], TWO)
    receiver = builder.task(10, [(builder.server(UNIT), 0)], TWO, after=[sender])
    builder.window(sender, receiver, 1)
    with pytest.raises(Deadlock, match="task 0 waits for task 1; task 1 waits for task 0"):
        run_reference(builder.build())


# Any program: the log is read back with the contract in hand


@dataclass(frozen=True)
class Service:
    """One row of a log."""

    task: int
    chunk: int
    hop: int
    row: int
    server: int
    start_ps: int
    service_ps: int
    latency_ps: int
    before: int

    @property
    def end_ps(self) -> int:
        return self.start_ps + self.service_ps


class Reading:
    """The services of a run, and the times that the contract derives from them."""

    def __init__(self, program: Program, outcome: Outcome) -> None:
        assert outcome.log is not None
        self.program, self.outcome, self.log = program, outcome, outcome.log
        self.chunks, self.hops = program.chunks(), program.hops()
        self.services = [
            self._service(task, chunk, hop)
            for task in range(program.n_tasks)
            for chunk in range(self.chunks[task])
            for hop in range(self.hops[task])
        ]
        self.whole, self.streams = program.whole_edges(), program.stream_edges()
        self.delivered_ps = cache(self._delivered_ps)
        self.released_ps = cache(self._released_ps)

    def _service(self, task: int, chunk: int, hop: int) -> Service:
        p = self.program
        cut, at = p.task_cut[task], int(p.route_ptr[p.task_route[task]]) + hop
        size = p.cut_size[cut][0 if chunk < p.cut_first[cut] else 1]
        server = int(p.route_server[at])
        row = int(self.log.base[task] + chunk * self.hops[task] + hop)
        service_ps = int(p.service(size, p.server_rate[server]))
        start_ps, before = int(self.log.start_ps[row]), int(self.log.before[row])
        return Service(task, chunk, hop, row, server, start_ps, service_ps, int(p.route_latency_ps[at]), before)

    def at(self, task: int, chunk: int, hop: int) -> Service:
        return self.services[int(self.log.base[task] + chunk * self.hops[task] + hop)]

    def on(self, server: int) -> list[Service]:
        return sorted((s for s in self.services if s.server == server), key=lambda s: s.start_ps)

    def _delivered_ps(self, task: int, chunk: int) -> int:
        """Exact with a route; without one only where no pool is asked."""
        if self.hops[task] == 0:
            return self.released_ps(task, chunk)
        last = self.at(task, chunk, int(self.hops[task]) - 1)
        return (last.start_ps if self.program.delivers_heads else last.end_ps) + last.latency_ps

    def _released_ps(self, task: int, chunk: int) -> int:
        """Latest of what the chunk waits for; a lower bound where a pool delays tasks without a route."""
        latest = 0
        for parent in self.whole[0][self.whole[1] == task].tolist():
            latest = max(latest, self.delivered_ps(parent, int(self.chunks[parent]) - 1))
        parents, children, lags = self.streams
        for parent, lag in zip(parents[children == task].tolist(), lags[children == task].tolist(), strict=True):
            count = chunk - lag + 1 if lag else -(-(chunk + 1) * int(self.chunks[parent]) // int(self.chunks[task]))
            if count > 0:
                latest = max(latest, self.delivered_ps(parent, count - 1))
        if self.hops[task] == 0 and chunk > 0:
            latest = max(latest, self.delivered_ps(task, chunk - 1))
        return latest

    def ready_ps(self, service: Service) -> int:
        """Arrival at the server: exact after the first hop, and at the first where there is no pool."""
        if service.hop > 0:
            prior = self.at(service.task, service.chunk, service.hop - 1)
            if not self.program.cut_through:
                return prior.end_ps + prior.latency_ps
            return prior.latency_ps + max(prior.start_ps, prior.end_ps - service.service_ps)
        injected = self.at(service.task, service.chunk - 1, 0).end_ps if service.chunk else 0
        return max(self.released_ps(service.task, service.chunk), injected)

    def key(self, service: Service) -> tuple[int, ...]:
        p, task = self.program, service.task
        priority = int(p.task_priority[task]) if p.task_priority.size else 0
        looked_at = priority, int(p.cut_work[p.task_cut[task]]), service.chunk
        rank = int(WEIGHTS[p.server_discipline[service.server]] @ looked_at)
        return rank, self.ready_ps(service), int(p.task_class[task]), service.chunk, service.hop, task


def on_every_run(check: Callable[[Reading], None], program: Program) -> None:
    """Check what a program's run says; a deadlock says nothing."""
    try:
        outcome = run_reference(program, log=True)
    except Deadlock:
        return
    check(Reading(program, outcome))


def check_conservation(run: Reading) -> None:
    assert run.outcome.events == len(run.services) == run.program.chunk_hops()
    assert run.outcome.makespan_ps == run.outcome.finish_ps.max()
    for server in range(run.program.n_servers):
        assert run.outcome.busy_ps[server] == sum(service.service_ps for service in run.on(server))


def check_servers(run: Reading) -> None:
    for server in range(run.program.n_servers):
        before, free_ps = -1, 0
        for service in run.on(server):
            assert service.start_ps >= free_ps
            assert service.before == before
            before, free_ps = service.row, service.end_ps


def check_dependencies(run: Reading) -> None:
    assert all(service.start_ps >= run.ready_ps(service) for service in run.services)
    for task in range(run.program.n_tasks):
        assert run.outcome.start_ps[task] >= run.released_ps(task, 0)
        last = int(run.chunks[task]) - 1
        if run.hops[task]:
            assert run.outcome.start_ps[task] == run.at(task, 0, 0).start_ps
            assert run.outcome.finish_ps[task] == run.delivered_ps(task, last)
        else:
            assert run.outcome.finish_ps[task] >= run.delivered_ps(task, last)


def check_path_minimum(run: Reading) -> None:
    """No task undercuts its last chunk alone, nor its services at its first server."""
    for task in range(run.program.n_tasks):
        last = int(run.chunks[task]) - 1
        path = [run.at(task, last, hop) for hop in range(run.hops[task])]
        if not path:
            continue
        elapsed = int(run.outcome.finish_ps[task] - run.outcome.start_ps[task])
        latencies = sum(service.latency_ps for service in path)
        first_server = sum(run.at(task, chunk, 0).service_ps for chunk in range(last))
        services = [service.service_ps for service in path]
        if not run.program.cut_through:
            alone = sum(services[:-1]) + (0 if run.program.delivers_heads else services[-1])
        else:
            alone = 0 if run.program.delivers_heads else max(services)
        assert elapsed >= first_server + latencies + alone


def check_choices(run: Reading) -> None:
    """No server idles while a chunk waits, and each choice is the least key of those that wait."""
    for server in range(run.program.n_servers):
        services, free_ps = run.on(server), 0
        for position, chosen in enumerate(services):
            assert chosen.start_ps == max(free_ps, min(run.ready_ps(s) for s in services[position:]))
            waiting = [s for s in services[position:] if run.ready_ps(s) <= chosen.start_ps]
            assert chosen == min(waiting, key=run.key)
            free_ps = chosen.end_ps


def check_pools(run: Reading) -> None:
    """Units out, counted from the first service of who took them, never exceed the capacity."""
    p = run.program
    moves: list[tuple[int, int, int]] = []
    for task in range(p.n_tasks if p.pool_capacity.size else 0):
        chunks = range(run.chunks[task])
        if p.task_pool[task] >= 0 and run.hops[task]:
            takers = chunks if p.task_per[task] == PER_CHUNK else chunks[:1]
            moves += [(run.at(task, c, 0).start_ps, int(p.task_units[task]), int(p.task_pool[task])) for c in takers]
        for row in range(p.give_ptr[task], p.give_ptr[task + 1]):
            givers = chunks if p.give_per[row] == PER_CHUNK else chunks[-1:]
            moves += [(run.delivered_ps(task, c), -int(p.give_units[row]), int(p.give_pool[row])) for c in givers]
    out = [0] * p.pool_capacity.size
    for _, units, pool in sorted(moves):
        out[pool] += units
        assert out[pool] <= p.pool_capacity[pool]


@settings(deadline=None)
@given(programs())
def test_pools_lend_no_more_than_they_have(program: Program) -> None:
    """Are there ever more units out than the capacity?"""
    on_every_run(check_pools, program)


@settings(deadline=None)
@given(programs())
def test_work_is_conserved(program: Program) -> None:
    """Is the busy time of each server the sum of its services?"""
    on_every_run(check_conservation, program)


@settings(deadline=None)
@given(programs())
def test_no_server_serves_two_at_once(program: Program) -> None:
    """Does every service start after the one before it on its server has ended?"""
    on_every_run(check_servers, program)


@settings(deadline=None)
@given(programs())
def test_starts_respect_dependencies(program: Program) -> None:
    """Does every chunk start after what it waits for, after the chunk before it and after its hop before?"""
    on_every_run(check_dependencies, program)


@settings(deadline=None)
@given(programs())
def test_no_task_undercuts_its_path(program: Program) -> None:
    """Is the time from start to finish at least that of the path?"""
    on_every_run(check_path_minimum, program)


@settings(deadline=None)
@given(programs(disciplines=ORDERS, pools=False))  # queues that take turns: test_turns.py
def test_every_choice_is_the_contracts(program: Program) -> None:
    """Without pools every arrival can be derived from the log: is each choice of each server the right one?"""
    on_every_run(check_choices, program)


@settings(deadline=None)
@given(fifo_programs())
def test_fifo_serves_in_order_of_arrival(program: Program) -> None:
    """Does a fifo server serve in the order of arrival and tie?"""
    on_every_run(check_choices, program)


@settings(deadline=None)
@given(programs())
def test_runs_are_deterministic(program: Program) -> None:
    """Does a second run, with or without a log, give the same answer?"""

    def answer(log: bool) -> object:
        try:
            outcome = run_reference(program, log=log)
        except Deadlock as deadlock:
            return str(deadlock)
        return [outcome.start_ps.tolist(), outcome.finish_ps.tolist(), outcome.busy_ps.tolist(), outcome.events]

    assert answer(log=True) == answer(log=False)
