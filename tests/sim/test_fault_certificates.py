"""Mutations: every certificate catches what it is for, with faults and in the schedule itself."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from collectives import ring
from collectives.proof import ScheduleError, prove
from sim.certificates import CertificateError, certify
from sim.contract import LOSES
from sim.disrupt import Disruptions, Phase, disrupt
from sim.engine import run
from sim.outcome import Journal, Outcome
from sim.program import Cutting, Program, ProgramBuilder
from topologies import ring as ring_fabric


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
