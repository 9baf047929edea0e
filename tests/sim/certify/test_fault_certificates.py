"""Mutations: every certificate catches what it is for, with faults and in the schedule itself."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build, ring
from collectives.core.proof import ScheduleError, prove
from sim.certify.healthy import CertificateError, certify
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.faults.plan import FaultPlan, LinkDown, Repair
from sim.program import Cutting, Posting, Program, ProgramBuilder
from sim.program.contract import DROPS, LOSES, PER_TASK
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.outcome import Journal, Outcome
from sim.simulation import simulate
from topologies import from_spec
from topologies import ring as ring_fabric

ENGINES = "chunk", "reference"


def faulty() -> tuple[Program, Outcome]:
    """Two tasks of two hops; server 0 is down from 8 to 20, where chunk 1 of task 0 is cut off, and slow afterwards."""
    builder = ProgramBuilder("store-and-forward")
    first, second = builder.server(10**12), builder.server(10**12)
    one = builder.task(10, [(first, 3), (second, 3)], Cutting(chunks=2))
    builder.task(10, [(first, 3), (second, 3)], Cutting(chunks=2), after=[one])
    faults = Disruptions(
        phases={first: [Phase(8, Fraction(0)), Phase(20, Fraction(1, 2))]}, crossing={first: LOSES},
        resend_ps={first: 20, second: 20},
    )
    program = disrupt(builder.build(), faults)
    return program, run(program, log=True)


def with_journal(outcome: Outcome, change: Callable[[Journal], Journal]) -> Outcome:
    assert outcome.journal is not None
    return outcome._replace(journal=change(outcome.journal))


def without(row: int) -> Callable[[Journal], Journal]:
    def change(journal: Journal) -> Journal:
        kept = np.arange(journal.task.size) != row
        return Journal(*(column[kept] for column in journal))

    return change


def moved(row: int, by_ps: int) -> Callable[[Journal], Journal]:
    def change(journal: Journal) -> Journal:
        start, end = journal.start_ps.copy(), journal.end_ps.copy()
        start[row] += by_ps
        end[row] += by_ps
        return journal._replace(start_ps=start, end_ps=end)

    return change


def changed(name: str, row: int, value: int) -> Callable[[Journal], Journal]:
    def change(journal: Journal) -> Journal:
        column = getattr(journal, name).copy()
        column[row] = value
        return journal._replace(**{name: column})

    return change


def test_the_run_itself_passes() -> None:
    """And it is the run that the mutations below think it is."""
    program, outcome = faulty()
    certify(program, outcome, outcome.makespan_ps)
    assert outcome.journal is not None
    assert outcome.journal.lost.tolist() == [False, True, *[False] * 7]
    assert outcome.journal.start_ps[:3].tolist() == [0, 5, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(2), "conservation: never delivered"),  # the second hop of chunk 0: a chunk that was dropped
        (without(0), "conservation: an attempt begins in the middle"),
        (changed("lost", 1, 0), "conservation: a hop is left out or taken twice"),  # delivered, and sent again
        (changed("lost", -1, 1), "conservation: never delivered"),
        (moved(1, -1), "capacity: server 0 serves two chunks at"),
        (moved(3, -18), "capacity: server 0 is down and serves"),
        (changed("end_ps", 1, 9), "conservation: server 0 was busy for"),
        (moved(2, -1), "causality: served before it arrived"),
        (changed("arrival_ps", 2, 7), "causality: arrived before it was ready"),
        (changed("ready_ps", -1, 1), "causality: task 1 finished"),
    ],
)
def test_a_mutated_journal_is_caught(change: Callable[[Journal], Journal], message: str) -> None:
    """A dropped chunk, two services at once, service while down, and everything that is too early."""
    program, outcome = faulty()
    with pytest.raises(CertificateError, match=message):
        certify(program, with_journal(outcome, change))


def test_a_service_that_is_too_short_is_caught() -> None:
    """At half the rate a chunk takes twice as long; totals that agree do not hide it."""
    program, outcome = faulty()
    assert outcome.journal is not None
    row = int(np.flatnonzero(outcome.journal.start_ps >= 20)[0])
    busy = outcome.busy_ps.copy()
    busy[0] -= 1
    shorter = with_journal(outcome, changed("end_ps", row, int(outcome.journal.end_ps[row]) - 1))
    with pytest.raises(CertificateError, match="capacity: served faster than its server can"):
        certify(program, shorter._replace(busy_ps=busy))


def test_a_service_across_the_end_of_its_server_is_caught() -> None:
    """Chunk 1 of task 0 is cut off at 8, when its server goes down; equal totals do not hide it."""
    program, outcome = faulty()
    longer = with_journal(outcome, changed("end_ps", 1, 9))
    with pytest.raises(CertificateError, match="capacity: server 0 goes down while it serves: chunk 1 of task 0"):
        certify(program, longer._replace(busy_ps=outcome.busy_ps + np.array([1, 0])))


def test_a_chunk_that_is_missing_altogether_is_caught() -> None:
    """No row of it is left, so that nothing else in the journal is wrong."""
    program, outcome = faulty()

    def without_last_chunk(journal: Journal) -> Journal:
        kept = (journal.task != 1) | (journal.chunk != 1)
        return Journal(*(column[kept] for column in journal))

    with pytest.raises(CertificateError, match="conservation: 3 chunks were sent where the program has 4"):
        certify(program, with_journal(outcome, without_last_chunk))


def test_what_has_left_its_source_is_not_sent_another_way() -> None:
    """Chunk 1 of task 0 crosses a hop, leaves the queue of the next one, and begins anew."""
    program, outcome = faulty()

    def with_a_row(journal: Journal) -> Journal:
        row = Journal(*map(np.array, (0, 1, journal.at[2], 10, 10, 10, 11, False, True)))
        lost = journal.lost & (np.arange(journal.task.size) != 1)
        return Journal(*(np.append(*columns) for columns in zip(journal._replace(lost=lost), row, strict=True)))

    with pytest.raises(CertificateError, match="conservation: sent another way after it had left its source"):
        certify(program, with_journal(outcome, with_a_row))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda outcome: outcome._replace(events=outcome.events + 1), "conservation: 10 services"),
        (lambda outcome: outcome._replace(busy_ps=outcome.busy_ps + 1), "conservation: server 0 was busy"),
        (lambda outcome: outcome._replace(start_ps=outcome.start_ps * 0), "causality: task 1 started at 0 ps"),
        (lambda outcome: outcome._replace(finish_ps=np.add(outcome.finish_ps, [0, 1])), "causality: task 1 finished"),
        (lambda outcome: outcome._replace(journal=None), "checked by its journal"),
    ],
)
def test_a_mutated_outcome_is_caught(change: Callable[[Outcome], Outcome], message: str) -> None:
    """Totals and times of tasks that the journal does not bear out."""
    program, outcome = faulty()
    with pytest.raises(CertificateError, match=message):
        certify(program, change(outcome))


def test_a_run_below_its_bound_is_caught() -> None:
    """Faults do not lift the bounds of the healthy fabric."""
    program, outcome = faulty()
    with pytest.raises(CertificateError, match="bounds: the run took"):
        certify(program, outcome, outcome.makespan_ps + 1)


def test_a_mutated_program_is_caught() -> None:
    """The run of one program is not a run of another: a faster server, or one that was down for longer."""
    program, outcome = faulty()
    with pytest.raises(CertificateError):
        certify(program._replace(service_ps=program.service_ps + 1), outcome)
    with pytest.raises(CertificateError, match="down"):
        certify(program._replace(timetable_from_ps=program.timetable_from_ps + np.array([0, 30])), outcome)


def disturbed() -> tuple[Program, Outcome]:
    """A window on what follows chunk by chunk; a server that slows down, losses, two kinds of jitter, and a detour."""
    builder = ProgramBuilder()
    near, far, other = (builder.server(10**12) for _ in range(3))
    one = builder.task(50, [(near, 3), (far, 3)], Cutting(chunks=5))
    two = builder.task(50, [(far, 2), (other, 2)], Cutting(chunks=5), stream=[one])
    builder.window(one, two, 3)
    builder.task(20, [(near, 3)], Cutting(chunks=2))
    faults = Disruptions(
        phases={far: [Phase(30, Fraction(1, 2), 4)]},
        loss={near: 0.3}, resend_ps={near: 9},
        jitter={far: (np.array([0, 5, 10, 15]), False), other: (np.array([0, 2, 4, 6]), True)},
        detours={one: [(45, ((other, 3), (far, 3)))]}, seed=2,
    )
    program = disrupt(builder.build(), faults)
    return program, run(program, log=True)


def test_the_disturbed_run_itself_passes() -> None:
    """And in it chunks were lost, and one was sent another way."""
    program, outcome = disturbed()
    certify(program, outcome, outcome.makespan_ps)
    assert outcome.journal is not None
    assert [int(rows.sum()) for rows in (outcome.journal.lost, outcome.journal.moved)] == [3, 1]


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("hop_latency_ps", lambda old: old + 1, "causality: ready before its time"),
        ("hop_latency_ps", lambda old: old - 1, "causality: ready after its time"),
        ("timetable_latency_ps", lambda old: old * 2, "causality: ready before its time"),
        ("jitter_ps", lambda old: old * [[2], [1]], "causality: ready before its time"),
        ("jitter_ps", lambda old: old * [[1], [2]], "capacity: served faster than its server can"),
        ("jitter_ps", lambda old: old // [[1], [2]], "capacity: served for longer than its server takes"),
        ("server_loss", lambda old: old * 0, "causality: lost, and neither cut off nor drawn"),
        ("server_loss", lambda old: old * 2, "causality: cut off or drawn, and not lost"),
        ("seed", lambda old: old + 1, "causality|capacity"),
        ("server_resend_ps", lambda old: old + 1, "causality: ready before its time"),
        ("server_resend_ps", lambda old: old * 2, "causality: ready before its time"),
        ("detour_from_ps", lambda old: old + 10**12, "causality: it takes a route that is not in force"),
        ("detour_from_ps", lambda old: old * 0, "causality: it takes a route that is not in force"),
        ("parent_lag", lambda old: np.where(old, 2, old), "causality: joined before it was released"),
        ("parent_lag", lambda old: np.where(old, 4, old), "causality: joined later than its release"),
        ("task_deadline_ps", lambda old: np.zeros(3, np.int64), "causality: joined later than its release"),
        ("cut_through", lambda old: 0, "causality: ready before its time"),
    ],
)
def test_the_run_of_another_program_is_caught(field: str, change: Callable[[Any], Any], message: str) -> None:
    """Each rule in turn was another: what the run says of itself is compared with what the program says."""
    program, outcome = disturbed()
    with pytest.raises(CertificateError, match=message):
        certify(program._replace(**{field: change(getattr(program, field))}), outcome)


def test_a_mutated_row_that_was_lost_or_moved_is_caught() -> None:
    """Sent again too early, also where its arrival agrees; another way at no time, twice, or without a word."""
    program, outcome = disturbed()
    journal = outcome.journal
    assert journal is not None
    lost, away = int(np.flatnonzero(journal.lost)[0]), int(np.flatnonzero(journal.moved)[0])
    early = int(journal.ready_ps[lost]) - 1
    again = int(np.flatnonzero((journal.task == journal.task[lost]) & (journal.chunk == journal.chunk[lost]))[1])

    def twice_early(journal: Journal) -> Journal:
        return changed("arrival_ps", again, early)(changed("ready_ps", lost, early)(journal))

    for change, message in (
        (changed("ready_ps", lost, early), "causality: arrived after it was ready"),
        (twice_early, "causality: ready before its time"),
        (changed("ready_ps", away, 0), "causality: arrived after it was ready"),
        (without(away), "causality: arrived after it was ready"),
        (changed("start_ps", away, 0), "conservation"),
        (changed("at", away, int(program.route_ptr[program.detour_route[0]])), "causality: sent another way"),
        (changed("task", 0, 2), "conservation"),
    ):
        with pytest.raises(CertificateError, match=message):
            certify(program, with_journal(outcome, change))


def late_and_dropped() -> tuple[Program, Outcome]:
    """A server that is down from 5 to 20 drops what waits for it; another is never down."""
    builder = ProgramBuilder("store-and-forward")
    down, up = builder.server(10**12), builder.server(10**12)
    builder.task(10, [(up, 1), (down, 1)])
    faults = Disruptions(
        phases={down: [Phase(5, Fraction(0)), Phase(20)]}, crossing={down: LOSES + DROPS}, resend_ps={down: 12, up: 12},
    )
    program = disrupt(builder.build(), faults)
    return program, run(program, log=True)


def test_what_is_dropped_is_dropped_by_a_server_that_is_down() -> None:
    """The chunk comes at 11 and is dropped, again at 23, and is in at 45; nothing else would drop it."""
    program, outcome = late_and_dropped()
    certify(program, outcome)
    assert outcome.journal is not None
    assert outcome.journal.start_ps.tolist() == [0, 11, 23, 34]
    for other in (
        program._replace(timetable_from_ps=program.timetable_from_ps + 7),
        program._replace(server_crossing=program.server_crossing % DROPS),
    ):
        with pytest.raises(CertificateError, match="capacity: server 0 drops what it may not"):
            certify(other, outcome)


def test_a_server_serves_as_soon_as_it_is_up_again() -> None:
    """Down from 5 to 20, while the second chunk waits; a server that is up from 19 on serves it then."""
    builder = ProgramBuilder("store-and-forward")
    builder.task(10, [(builder.server(10**12), 0)], Cutting(chunks=2))
    program = disrupt(builder.build(), Disruptions(phases={0: [Phase(5, Fraction(0)), Phase(20)]}))
    outcome = run(program, log=True)
    certify(program, outcome, 25)
    earlier = program._replace(timetable_from_ps=program.timetable_from_ps - np.array([0, 1]))
    with pytest.raises(CertificateError, match="capacity: it waits at a free server: chunk 1 of task 0, from 20 ps"):
        certify(earlier, outcome)


def test_only_those_who_ask_a_pool_may_join_late() -> None:
    """The second task waits for the one unit until the first, which loses a chunk, is in."""
    builder = ProgramBuilder()
    pool = builder.pool(1)
    for _ in range(2):
        task = builder.task(10, [(builder.server(10**12), 2)])
        builder.ask(task, pool, 1, PER_TASK)
        builder.give(task, pool, 1, PER_TASK)
    program = disrupt(builder.build(), Disruptions(loss={0: 0.5}, resend_ps={0: 8}, seed=4))
    outcome = run(program, log=True)
    certify(program, outcome)
    assert outcome.journal is not None
    assert outcome.journal.lost.tolist() == [True, False, False]
    without_pools = program._replace(task_pool=program.task_pool[:0])
    with pytest.raises(CertificateError, match=r"causality: joined later than its release .*: chunk 0 of task 1"):
        certify(without_pools, outcome)


def test_a_chunk_that_waits_at_a_free_server_is_caught() -> None:
    """Server 1 is never down: the service of the chunk that came at 23 begins then."""
    program, outcome = late_and_dropped()
    journal = outcome.journal
    assert journal is not None

    def later(journal: Journal) -> Journal:
        shift = np.array([0, 0, 1, 1])
        times = {name: getattr(journal, name) + shift for name in ("start_ps", "end_ps", "ready_ps")}
        return journal._replace(arrival_ps=np.add(journal.arrival_ps, [0, 0, 0, 1]), **times)

    with pytest.raises(CertificateError, match="capacity: it waits at a free server"):
        certify(program, with_journal(outcome._replace(finish_ps=outcome.finish_ps + 1), later))


@settings(max_examples=60)
@given(st.data())
def test_chunks_may_be_lost_ahead_before_they_have_left(data: st.DataObject) -> None:
    """With cut-through a service ahead may be cut off before the first one ends, at whose end the next chunk joins."""
    builder = ProgramBuilder()
    rates = data.draw(st.lists(st.sampled_from((1, 2, 3)), min_size=2, max_size=3))
    path = [(builder.server(rate * 10**12), data.draw(st.integers(0, 3))) for rate in rates]
    for _ in range(data.draw(st.integers(1, 2))):
        builder.task(data.draw(st.integers(30, 90)), path, Cutting(chunks=data.draw(st.integers(2, 3))))
    down, crossing = data.draw(st.integers(1, 40)), data.draw(st.sampled_from((LOSES, LOSES + DROPS)))
    phases = {1: [Phase(down, Fraction(0)), Phase(down + data.draw(st.integers(1, 60)), Fraction(1))]}
    faults = Disruptions(phases=phases, crossing={1: crossing}, resend_ps=dict.fromkeys(range(len(path)), 25))
    program = disrupt(builder.build(), faults)
    certify(program, run(program, log=True))


def test_a_service_that_is_cut_off_ahead_ends_before_the_first_one() -> None:
    """And the next chunk joins at the end of the first one: the link to a rank is down for 19 us."""
    schedule = build("swing", "reduce-scatter", from_spec("switch:8"), "1MiB")
    faults = LinkDown(link="switch0->npu0", at="1us"), Repair(link="switch0->npu0", at="20us")
    plan = FaultPlan(faults=faults, in_flight="lost", timeout="5us")
    times = {simulate(schedule, chunks=3, faults=plan, engine=name, check=True).time_ps for name in ENGINES}
    assert times == {45_190_680}


def _proved(change: Callable[[dict[str, np.ndarray]], None]) -> None:
    pattern = ring.all_reduce(ring_fabric(4), "1KiB").pattern
    transfers = pattern.transfers()
    arrays = {name: getattr(transfers, name).copy() for name in ("dst", "reduces", "dep_slot")}
    change(arrays)
    prove(pattern.kind, pattern.p, pattern.n_blocks, 0, transfers._replace(**arrays), pattern.blocks_of)


def _swap(name: str, row: int, value: int) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][row] = value

    return change


def test_the_proof_catches_a_broken_schedule() -> None:
    """One transfer to the wrong rank, or one that overwrites what it should add to, and the collective is not done."""
    _proved(lambda arrays: None)
    for name, row, value in (("dst", 10, 2), ("reduces", 0, 0)):
        with pytest.raises(ScheduleError):
            _proved(_swap(name, row, value))


def sending(**changes: Any) -> Program:
    """Two NPUs that send to a third, over a link that has room for two chunks, and fails from 8 to 20."""
    queue = changes.pop("queue", 6)
    builder = ProgramBuilder("store-and-forward", posting=Posting(0, Fraction(1, 2), queue))
    nics = [builder.nic(10**12, changes.get("engines", 1)) for _ in range(2)]
    link = builder.server(10**12, changes.get("discipline", "fifo"), buffer=changes.get("buffer", 10),
                          credit_ps=changes.get("credit_ps", 4))
    for task in range(6):
        path = [(nics[task % 2], 3), (link, 30)]
        builder.task(15, path, Cutting(chunks=5 - task % 2 * 2), flow=changes.get("flow", task), priority=-task)
    faults = Disruptions(
        phases={link: [Phase(8, Fraction(0)), Phase(20)]}, crossing={link: LOSES}, resend_ps={link: 7},
    )
    return disrupt(builder.build(), faults)


@pytest.mark.parametrize(("one", "other", "message"), [
    ({}, {"buffer": 100}, "capacity: it starts without room behind its server"),
    ({"credit_ps": 1}, {"credit_ps": 50}, "capacity: it waits at a free server"),
    ({}, {"queue": 60}, "capacity: pushed into the queue of a NIC that was full"),
    ({"queue": 100}, {"queue": 100, "engines": 3}, "capacity: pushed while all engines of its NIC are busy"),
    ({"queue": 100, "engines": 3, "flow": 5}, {"queue": 100, "engines": 3}, "capacity: pushed while another of its fl"),
    ({}, {"discipline": "priority"}, "order: server 2 served another before it"),
])
def test_a_run_by_other_rules_is_caught(one: dict[str, Any], other: dict[str, Any], message: str) -> None:
    """The journal of a program with more room, engines or flows, or in another order, is none of this one."""
    program, outcome = sending(**one), run_reference(sending(**one), log=True)
    certify(program, outcome)
    with pytest.raises(CertificateError, match=message):
        certify(program, run_reference(sending(**other), log=True))
