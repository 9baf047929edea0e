"""Logs in which servers served the wrong chunk first, planted into runs that are right in all else."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, build
from sim import simulate
from sim.certify import order
from sim.certify.healthy import CertificateError, certify
from sim.certify.order import overtaken
from sim.engine.run import run
from sim.program import DISCIPLINES, ORDERS, Cutting, Program, ProgramBuilder
from sim.program.contract import CLOCK_END_PS
from sim.program.outcome import Deadlock, Outcome
from tests.strategies import channel_programs, joining_programs, merging_programs, programs
from topologies import WeftError, from_spec

FAST = 10**12


def meeting(forwarding: str, deliver: str, latency: int, apart: int, hops: int, classes: tuple[int, int]) -> Program:
    """Tasks 2 and 4, of three chunks, meet at a server, the second so many ps later; it is busy with another at first.

    Each begins when a task of its own is delivered, and crosses no server before or one.
    """
    builder = ProgramBuilder(forwarding, deliver)
    shared = builder.server(Fraction(FAST, 5))
    builder.task(20, [(shared, 0)])
    for late, tie_class in zip((0, apart), classes, strict=True):
        begin = builder.task(10, [(builder.server(FAST), 10 + late)])
        own = [(builder.server(FAST), latency) for _ in range(hops)]
        builder.task(30, [*own, (shared, 0)], Cutting(chunks=3), after=[begin], tie_class=tie_class)
    return builder.build()


def swapped(program: Program, outcome: Outcome, one: tuple[int, int, int], other: tuple[int, int, int]) -> Outcome:
    """The run with two services (task, chunk, hop) of one server in each other's place."""
    assert outcome.log is not None
    start, hops = outcome.log.start_ps.copy(), program.hops()
    rows = [int(outcome.log.base[task] + chunk * hops[task] + hop) for task, chunk, hop in (one, other)]
    start[rows] = start[rows[::-1]]
    return outcome._replace(log=outcome.log._replace(start_ps=start))


LATER = [
    ("store-and-forward", "tail", 7), ("store-and-forward", "tail", 0), ("cut-through", "tail", 0),
    ("cut-through", "head", 3), ("store-and-forward", "head", 0), ("cut-through", "tail", CLOCK_END_PS // 16),
]


@pytest.mark.parametrize(("forwarding", "deliver", "latency"), LATER)
@pytest.mark.parametrize(("apart", "classes"), [(1, (1, 0)), (0, (0, 1)), (0, (0, 0))])
def test_chunks_that_overtake_at_a_later_hop_are_refused(
    forwarding: str, deliver: str, latency: int, apart: int, classes: tuple[int, int]
) -> None:
    """One that came 1 ps later; in the same picosecond one of a higher class, or of a task with a higher number."""
    program = meeting(forwarding, deliver, latency, apart, 1, classes)
    outcome = run(program, log=True)
    certify(program, outcome)
    what = r"order: server 0 serves chunk 1 of task 4 at \d+ ps, before chunk 1 of task 2, which is there since \d+ ps"
    with pytest.raises(CertificateError, match=what):
        certify(program, swapped(program, outcome, (2, 1, 1), (4, 1, 1)))


@pytest.mark.parametrize(("apart", "classes"), [(1, (1, 0)), (0, (0, 1)), (0, (0, 0))])
def test_chunks_that_overtake_at_their_first_hop_are_refused(apart: int, classes: tuple[int, int]) -> None:
    """Their arrival is when what they wait for is delivered."""
    program = meeting("store-and-forward", "tail", 0, apart, 0, classes)
    outcome = run(program, log=True)
    certify(program, outcome)
    assert outcome.log is not None
    assert outcome.log.start_ps.tolist() == [0, 0, 100, 200, 300, 0, 150, 250, 350]
    start = np.array([0, 0, 150, 250, 350, 0, 100, 200, 300])
    wrong = outcome._replace(
        log=outcome.log._replace(start_ps=start), start_ps=start[[0, 1, 2, 5, 6]],
        finish_ps=outcome.finish_ps[[0, 1, 4, 3, 2]],
    )
    what = "order: server 0 serves chunk 0 of task 4 at 100 ps, before chunk 0 of task 2, which is there since 20 ps"
    with pytest.raises(CertificateError, match=what):
        certify(program, wrong)


@settings(max_examples=200, deadline=None)
@given(program=programs(pools=False, disciplines=ORDERS), rng=st.randoms(use_true_random=False))
def test_what_is_found_is_what_is_counted_out(program: Program, rng: Random) -> None:
    """Services of small programs in any order, and arrivals at any time; near the end of the clock as well."""
    is_found_as_counted_out(program, rng)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("disciplines", [ORDERS[:1], ORDERS[:2], ORDERS[2:], DISCIPLINES[4:5], DISCIPLINES[4:]])
def test_what_is_found_in_each_queue_is_what_is_counted_out(
    disciplines: tuple[str, ...], channels: int, seed: int
) -> None:
    """The same of what every discipline looks at, and of servers with several queues: each has an order of its own."""
    rng = Random(seed)
    builder = ProgramBuilder("store-and-forward", "tail")
    servers = [(builder.server(FAST, one), one in ("fifo", *DISCIPLINES[4:])) for one in (*disciplines, *disciplines)]
    for _ in range(8):
        path = [
            (one, 0, rng.randrange(channels) if disciplines[0] == "fifo" and fifo else 0)
            for one, fifo in rng.sample(servers, min(len(servers), rng.randint(1, 3)))
        ]
        chunks = rng.randint(1, 3)
        builder.task(
            12 * chunks, path, Cutting(chunks=chunks), tie_class=rng.randrange(2), priority=rng.randrange(-1, 2),
            flow=rng.randrange(3),
        )
    program = builder.build()
    assert sum(is_found_as_counted_out(program, rng) for _ in range(12)) > 0


def is_found_as_counted_out(program: Program, rng: Random) -> bool:
    """Hold what is found against what is counted out; returns whether it is something."""
    hops, chunks = program.hops(), program.chunks()
    task = np.repeat(np.arange(program.n_tasks), chunks * hops)
    chunk, hop = np.divmod(np.arange(task.size) - np.repeat(np.cumsum(chunks * hops) - chunks * hops, chunks * hops),
                           np.maximum(hops[task], 1))
    at = program.route_ptr[program.task_route[task]] + hop
    base = rng.choice((0, CLOCK_END_PS - 200))
    start = base + np.array(rng.sample(range(200), min(task.size, 200)), np.int64)
    task, chunk, hop, at = (column[: start.size] for column in (task, chunk, hop, at))
    arrival = start - np.array([rng.choice((0, 0, 1, 5, 60)) for _ in range(start.size)], np.int64)
    expected = counted_out(program, np.stack([task, chunk, hop, start, arrival], axis=1), at)
    served = np.lexsort((start, program.route_server[at]))
    found = overtaken(program, task, chunk, hop, at, start, arrival, served)
    assert (found in expected) if found is not None else not expected
    return found is not None


def counted_out(program: Program, rows: np.ndarray, at: np.ndarray) -> set[tuple[int, int]]:
    """Pairs of services of a queue of which the first began while the second was due."""
    found = set()
    due: list[tuple[int, ...]] = []
    queues: list[tuple[object, ...]] = []
    for (task, chunk, hop, _, arrival), place in zip(rows.tolist(), at.tolist(), strict=True):
        server = int(program.route_server[place])
        discipline = DISCIPLINES[program.server_discipline[server]]
        rank = {
            "priority": program.task_priority[task] if program.task_priority.size else 0,
            "smallest-first": program.cut_work[program.task_cut[task]], "lowest-chunk-first": chunk,
        }.get(discipline, 0)
        due.append((rank, arrival, program.task_class[task], chunk, hop, task))
        queues.append((server, *queue_of(program, discipline, task, hop, place)))
    for early, late in permutations(range(len(rows)), 2):
        waits = rows[late, 4] <= rows[early, 3] < rows[late, 3]
        if queues[early] == queues[late] and waits and due[late] < due[early]:
            found.add((early, late))
    return found


def queue_of(program: Program, discipline: str, task: int, hop: int, place: int) -> tuple[object, ...]:
    """What tells the queue of a chunk from others of its server."""
    if discipline == "round-robin-flow":
        return program.task_flow[task], hop
    if discipline == "round-robin-port":
        return (program.route_server[place - 1] if hop else None,)
    return (program.route_line[place],)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_rows_that_rise(columns: int) -> None:
    """As they are sorted, in the order of columns; few values, so that there are ties everywhere."""
    rng, rising = np.random.default_rng(columns), 0
    for size in range(6):
        for _ in range(60):
            rows = rng.integers(0, 3, (size, columns)).tolist()
            rows = sorted(rows) if rng.random() < 0.3 else rows
            table = np.array(rows, np.int64).reshape(size, columns)
            assert order._rise(tuple(table.T)) == (rows == sorted(rows))
            rising += rows == sorted(rows)
    assert 60 < rising < 300


@settings(max_examples=150, deadline=None)
@given(st.one_of(
    programs(), programs(disciplines=DISCIPLINES), channel_programs(), joining_programs(30), merging_programs(),
))
def test_every_run_serves_in_order(program: Program) -> None:
    """Any discipline, pool, channel and buffer."""
    try:
        certify(program, run(program, log=True))
    except Deadlock:
        return


CASES = [(name, kind) for name, one in ALGORITHMS.items() for kind in one.functions]


@pytest.mark.table
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case))
@pytest.mark.parametrize(("forwarding", "deliver", "latency"), [
    ("cut-through", "tail", "500ns"), ("store-and-forward", "head", "0s"), ("cut-through", "head", "0s"),
])
def test_the_registry_serves_in_order(case: tuple[str, str], forwarding: str, deliver: str, latency: str) -> None:
    try:
        schedule = build(*case, from_spec("torus:4x3", latency=latency), "300KB")
    except WeftError:
        return
    simulate(schedule, chunks=7, forwarding=forwarding, deliver=deliver, check=True)
