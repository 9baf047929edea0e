"""Programs in which something changes in time: hand-computed cases, and both engines to the picosecond."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.certify.healthy import certify
from sim.engine.policies.faults import OF_LOSS, _plain_begin, _plain_draw
from sim.engine.reference.engine import run_reference
from sim.engine.run import Run, run
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.contract import ATTEMPTS, COMPLETES, DROPS, LOSES, WAITS
from sim.program.disrupt import Disruptions, Phase, disrupt
from sim.program.outcome import Deadlock, Journal, Outcome
from sim.why.faulty_path import walk_of
from sim.why.path import PLAIN
from tests.fault_strategies import faulty_programs
from topologies import WeftError

UNIT = 10**12
HALF = Fraction(1, 2)


def outcome_or_deadlock(program: Program, which: str) -> Outcome | str:
    try:
        return run(program, log=True) if which == "chunk" else run_reference(program, log=True)
    except Deadlock as stuck:
        return str(stuck)


def assert_same(one: Outcome, other: Outcome) -> None:
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)
    assert (one.journal is None) == (other.journal is None)
    for name, mine, theirs in zip(Journal._fields, one.journal or (), other.journal or (), strict=False):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def assert_engines_agree(program: Program) -> None:
    chunk, reference = outcome_or_deadlock(program, "chunk"), outcome_or_deadlock(program, "reference")
    if isinstance(chunk, str) or isinstance(reference, str):
        assert chunk == reference
    else:
        assert_same(chunk, reference)


@settings(max_examples=50)
@given(faulty_programs())
def test_engines_agree_under_faults(program: Program) -> None:
    """Every service, lost or not, is in the same picosecond in both engines, or both see the same end."""
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=2000)
@given(faulty_programs())
def test_engines_agree_under_many_faults(program: Program) -> None:
    """The same on more programs."""
    assert_engines_agree(program)


@settings(max_examples=30)
@given(faulty_programs())
def test_every_picosecond_has_a_name_and_every_certificate_holds(program: Program) -> None:
    """Pieces follow each other without a gap from 0 to the makespan, whatever went wrong."""
    outcome = outcome_or_deadlock(program, "chunk")
    if isinstance(outcome, str) or program.is_healthy:
        return
    certify(program, outcome)
    why = walk_of(program, outcome, PLAIN).walk()
    ends = [0, *(piece.end_ps for piece in why.pieces)]
    assert [piece.start_ps for piece in why.pieces] == ends[:-1]
    assert ends[-1] == outcome.makespan_ps == sum(why.parts.values())


@settings(max_examples=30)
@given(faulty_programs(), st.integers(1, 7), st.integers(1, 50))
def test_slices_give_the_same_arrays(program: Program, max_events: int, step_ps: int) -> None:
    """A run in slices of services, or of picoseconds, is the run in one go."""
    whole = outcome_or_deadlock(program, "chunk")
    if isinstance(whole, str):
        return
    by_events, by_time = Run(program, log=True), Run(program, log=True)
    while not by_events.advance(max_events=max_events):
        pass
    until, span = 0, max(step_ps, whole.makespan_ps // 40)
    while not by_time.advance(until_ps=until):
        until += span
    assert_same(by_events.outcome(), whole)
    assert_same(by_time.outcome(), whole)


# Hand-computed: a server takes 1 ps for a unit of work unless said otherwise.


def two_chunks(**faults: object) -> Program:
    """10 units in two chunks over one server of latency 3; healthy, they start at 0 and 5 and are in at 8 and 13."""
    builder = ProgramBuilder("store-and-forward")
    builder.task(10, [(builder.server(UNIT), 3)], Cutting(chunks=2))
    return disrupt(builder.build(), Disruptions(**faults))  # type: ignore[arg-type]  # its fields


def starts_and_finish(program: Program) -> tuple[list[int], int]:
    outcome = run(program, log=True)
    assert_same(outcome, run_reference(program, log=True))
    certify(program, outcome)
    assert outcome.journal is not None
    return outcome.journal.start_ps.tolist(), outcome.makespan_ps


def test_the_rate_at_the_start_holds() -> None:
    """A service that has begun keeps its rate; the next one has half of it, and the latency of its start."""
    program = two_chunks(phases={0: [Phase(2, HALF, 4)]})
    assert starts_and_finish(program) == ([0, 5], 5 + 10 + 3 + 4)


@pytest.mark.parametrize(
    ("crossing", "starts", "finish"),
    [
        (WAITS, [0, 20], 28),  # the second chunk would end at 10, and waits for the repair at 20
        (COMPLETES, [0, 5], 13),
        (LOSES, [0, 5, 28], 36),  # cut off at 8, sent again 20 later
        (WAITS + DROPS, [0, 8, 28], 36),  # waits until 8, where it is dropped
        (COMPLETES + DROPS, [0, 5], 13),
    ],
)
def test_a_server_that_goes_down_and_comes_back(crossing: int, starts: list[int], finish: int) -> None:
    """From 8 to 20: what would cross the 8 waits, is completed, or is lost and sent again."""
    program = two_chunks(
        phases={0: [Phase(8, Fraction(0)), Phase(20)]}, crossing={0: crossing}, resend_ps={0: 20}
    )
    assert starts_and_finish(program) == (starts, finish)


def test_what_comes_to_a_lossy_server_that_is_down_is_lost_again() -> None:
    """Sent again every 5 ps, at 13, 18 and 23, until the server is up; the last time it is served."""
    program = two_chunks(phases={0: [Phase(8, Fraction(0)), Phase(20)]}, crossing={0: LOSES + DROPS}, resend_ps={0: 5})
    assert starts_and_finish(program) == ([0, 5, 13, 18, 23], 31)


def test_a_detour_is_taken_when_a_chunk_is_sent_again() -> None:
    """The first chunk goes the old way; the second is lost there and goes the new one, with its latency."""
    builder = ProgramBuilder("store-and-forward")
    old, new = builder.server(UNIT), builder.server(UNIT)
    task = builder.task(10, [(old, 3)], Cutting(chunks=2))
    faults = Disruptions(
        phases={old: [Phase(8, Fraction(0))]}, crossing={old: LOSES + DROPS}, resend_ps={old: 4},
        detours={task: [(10, ((new, 1), (new, 2)))]},
    )
    assert starts_and_finish(disrupt(builder.build(), faults)) == ([0, 5, 12, 18], 25)


def test_a_detour_holds_from_its_time_on() -> None:
    """Chunk 1 joins at 5, where the detour begins: it is at the new server at once."""
    builder = ProgramBuilder("store-and-forward")
    old, new = builder.server(UNIT), builder.server(UNIT)
    task = builder.task(10, [(old, 3)], Cutting(chunks=2))
    for begins, finish in ((5, 11), (6, 13)):
        program = disrupt(builder.build(), Disruptions(detours={task: [(begins, ((new, 1),))]}))
        assert starts_and_finish(program) == ([0, 5], finish)


def test_a_chunk_that_waited_for_a_unit_takes_the_detour_of_when_it_has_it() -> None:
    """The unit is free at 10, the detour holds since 3: the chunk is at the new server at once."""
    builder = ProgramBuilder("store-and-forward")
    old, new, pool = builder.server(UNIT), builder.server(UNIT), builder.pool(1)
    for server in (builder.server(UNIT), old):
        task = builder.task(10, [(server, 0)])
        builder.ask(task, pool)
        builder.give(task, pool)
    program = disrupt(builder.build(), Disruptions(detours={task: [(3, ((new, 1),))]}))
    assert starts_and_finish(program) == ([0, 10], 21)


def test_a_chunk_in_the_queue_takes_a_detour() -> None:
    """At 10 the server chooses the second task, whose detour holds since 8: by the same server, with another latency,
    it is served at once; by another one, a picosecond later."""
    builder = ProgramBuilder("store-and-forward")
    old, new = builder.server(UNIT), builder.server(UNIT)
    builder.task(10, [(old, 0)])
    task = builder.task(5, [(old, 0)])
    same, other = (disrupt(builder.build(), Disruptions(detours={task: [(8, ((one, 20),))]})) for one in (old, new))
    assert starts_and_finish(same) == ([0, 10], 35)
    assert starts_and_finish(other) == ([0, 10, 11], 36)


@pytest.mark.parametrize("crossing", [WAITS, LOSES])
def test_a_service_that_ends_as_its_server_goes_down_does_not_cross(crossing: int) -> None:
    program = two_chunks(phases={0: [Phase(10, Fraction(0)), Phase(20)]}, crossing={0: crossing})
    assert starts_and_finish(program) == ([0, 5], 13)


def test_what_waits_for_a_repair_begins_nothing_before() -> None:
    """At 5, five times as slow, the first service would cross the 8; at 6 it would not, and waits all the same."""
    builder = ProgramBuilder("store-and-forward")
    wire = builder.server(UNIT)
    builder.task(2, [(wire, 0)], after=[builder.task(5, [(builder.server(UNIT), 0)])])
    phases = [Phase(0, Fraction(1, 5)), Phase(6), Phase(8, Fraction(0)), Phase(20)]
    program = disrupt(builder.build(), Disruptions(phases={wire: phases}, crossing={wire: WAITS}))
    assert starts_and_finish(program) == ([0, 20], 22)


def test_a_draw_below_the_loss_is_a_loss() -> None:
    """Lost is what draws less than the share; the draw itself is not."""
    program = two_chunks(loss={0: 0.5}, resend_ps={0: 7}, seed=4)
    mine = _plain_draw(_plain_begin(4, OF_LOSS), 0, 0, 0, 0)
    for loss, lost in ((mine, False), (mine + 1, True), (mine - 1, False)):
        found = run(program._replace(server_loss=np.array([loss])), log=True).journal
        assert found is not None and bool(found.lost[0]) == lost


def test_a_run_without_a_journal_takes_as_long() -> None:
    program = two_chunks(phases={0: [Phase(8, Fraction(0)), Phase(20)]}, loss={0: 0.5}, resend_ps={0: 7})
    silent = run(program)
    assert silent.journal is None
    assert_same(silent._replace(journal=run(program, log=True).journal), run(program, log=True))


@settings(max_examples=30)
@given(faulty_programs())
def test_lapses_are_those_of_the_journal(program: Program) -> None:
    with suppress(Deadlock):
        found = [run(program), run(program, log=True), run_reference(program)]
        lapses = [one.lapses for one in found if one.lapses is not None]
        assert len(lapses) == (0 if program.is_healthy else 3)  # now and then a draw has no fault
        for name, *three in zip(Journal._fields, *lapses, strict=bool(lapses)):
            for one in three[1:]:
                np.testing.assert_array_equal(one, three[0], err_msg=name)


def test_the_journal_grows() -> None:
    """Each of ten chunks is lost many times: there are more services than were set aside for."""
    builder = ProgramBuilder()
    wire = builder.server(UNIT)
    builder.task(10, [(wire, 1)], Cutting(chunks=10))
    one = Run(disrupt(builder.build(), Disruptions(loss={wire: 0.9}, resend_ps={wire: 7})), log=True)
    before = one.state.journal.size
    one.advance()
    assert one.state.journal.size > before
    assert_same(one.outcome(), run_reference(one.program, log=True))


def test_tokens_of_chunks_that_were_delivered_late_are_given_back() -> None:
    """Whatever was lost and overtaken: chunks that follow each other need no more than were set aside."""
    builder = ProgramBuilder()
    wire = builder.server(UNIT)
    builder.task(1000, [(wire, 1)], Cutting(chunks=1000))
    one = Run(disrupt(builder.build(), Disruptions(loss={wire: 0.1}, resend_ps={wire: 2})))
    few = one.tokens
    one.advance()
    assert one.tokens == few < 1000


def test_a_server_that_is_down_sends_nobody_another_way() -> None:
    """At 10 the old server sends the second task to the new one, which is down until 30; then it sends it back."""
    builder = ProgramBuilder("store-and-forward")
    old, new = builder.server(UNIT), builder.server(UNIT)
    builder.task(10, [(old, 0)])
    task = builder.task(5, [(old, 0)])
    faults = Disruptions(
        phases={new: [Phase(5, Fraction(0)), Phase(30)]}, crossing={new: WAITS},
        detours={task: [(8, ((new, 1),)), (11, ((old, 1),))]},
    )
    assert starts_and_finish(disrupt(builder.build(), faults)) == ([0, 10, 30, 31], 37)


def test_chunks_that_overtake_are_delivered_in_order() -> None:
    """Chunk 0 is lost and comes second; who follows chunk by chunk begins when it is in, with both at once."""
    builder = ProgramBuilder("store-and-forward")
    wire, other = builder.server(UNIT), builder.server(UNIT)
    first = builder.task(10, [(wire, 3)], Cutting(chunks=2))
    second = builder.task(10, [(other, 0)], Cutting(chunks=2), stream=[first])
    for seed in range(50):
        program = disrupt(builder.build(), Disruptions(loss={wire: 0.5}, resend_ps={wire: 30}, seed=seed))
        journal = run(program, log=True).journal
        assert journal is not None
        of_first = journal.task == first
        if journal.lost[of_first].tolist() == [True, False, False]:
            assert journal.start_ps[of_first].tolist() == [0, 5, 35]
            assert journal.start_ps[journal.task == second].tolist() == [43, 48]
            assert_engines_agree(program)
            return
    pytest.fail("no seed lost the first chunk alone")


def test_a_deadline_ends_the_wait() -> None:
    """A join with a deadline at 6 goes on without the task that takes until 13, and one at 20 does not."""
    for deadline, start in ((6, 6), (20, 13)):
        builder = ProgramBuilder("store-and-forward")
        slow = builder.task(10, [(builder.server(UNIT), 3)])
        join = builder.task(0, after=[slow])
        builder.task(2, [(builder.server(UNIT), 0)], after=[join])
        program = disrupt(builder.build(), Disruptions(deadline_ps={join: deadline}))
        outcome = run(program, log=True)
        assert_same(outcome, run_reference(program, log=True))
        certify(program, outcome)
        assert outcome.start_ps.tolist() == [0, start, start]


def test_jitter_is_drawn_from_its_table() -> None:
    """Every draw is one of the quantiles, added to the latency or to the service; another seed draws others."""
    quantiles = np.array([0, 2, 4, 6], np.int64)
    found = set()
    for seed in range(20):
        late = run(two_chunks(jitter={0: (quantiles, False)}, seed=seed), log=True)
        long = run(two_chunks(jitter={0: (quantiles, True)}, seed=seed), log=True)
        assert late.journal is not None and long.journal is not None
        assert set((late.journal.ready_ps - late.journal.end_ps - 3).tolist()) <= set(quantiles.tolist())
        assert set((long.journal.end_ps - long.journal.start_ps - 5).tolist()) <= set(quantiles.tolist())
        found.add((late.makespan_ps, long.makespan_ps))
    assert len(found) > 3


def test_losses_have_the_probability_that_was_asked_for() -> None:
    """Of 2,000 chunks, each sent until it is in, a share of 0.3 of all services is lost, within four sigma."""
    builder = ProgramBuilder()
    wire = builder.server(UNIT)
    builder.task(2000, [(wire, 1)], Cutting(chunks=2000))
    outcome = run(disrupt(builder.build(), Disruptions(loss={wire: 0.3}, resend_ps={wire: 7})), log=True)
    lost = outcome.events - 2000
    assert abs(lost / outcome.events - 0.3) < 4 * (0.3 * 0.7 / outcome.events) ** 0.5


@pytest.mark.parametrize("which", ["chunk", "reference"])
def test_down_for_good_is_a_report_and_not_a_hang(which: str) -> None:
    """Who waits at which server; or, where chunks are lost, how often they were sent before they were given up."""
    down = {0: [Phase(8, Fraction(0))]}
    assert outcome_or_deadlock(two_chunks(phases=down), which) == (
        "1 of 1 tasks can never finish: task 0 waits for server 0, which is down for good"
    )
    lossy = two_chunks(phases=down, crossing={0: LOSES + DROPS}, resend_ps={0: 5})
    assert outcome_or_deadlock(lossy, which) == (
        f"1 of 1 tasks can never finish: chunk 1 of task 0 was lost {ATTEMPTS} times, at last by server 0"
    )


def test_a_plan_that_changes_nothing_leaves_the_program_healthy() -> None:
    """No phases, no draws: the fast loops run, and the log is as ever."""
    program = two_chunks()
    assert program.is_healthy
    assert run(program, log=True).log is not None


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"phases": {0: [Phase(5), Phase(5, HALF)]}}, "times must rise"),
        ({"phases": {0: [Phase(5, Fraction(2))]}}, "from 0 .down. to 1, not 2"),
        ({"loss": {0: 1.0}}, "loses a share of 1"),
        ({"loss": {0: 0.1}, "resend_ps": {0: 0}}, "timeout of 0 ps"),
        ({"detours": {0: [(5, ())]}}, "a detour that is no path"),
        ({"deadline_ps": {0: -1}}, "deadline at -1 ps"),
        ({"jitter": {0: (np.array([-1]), False)}}, "jitter of -1 ps"),
        ({"phases": {0: [Phase(0, Fraction(1, 2**61))]}}, "the clock ends"),
        ({"phases": {0: [Phase(2**62)]}}, "the clock ends"),
    ],
)
def test_what_is_refused(faults: dict[str, object], message: str) -> None:
    """Each fault that means nothing is named."""
    with pytest.raises(WeftError, match=message):
        two_chunks(**faults)
