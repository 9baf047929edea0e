"""Faults together with NICs, buffers, channels and turns: hand-computed cases of the reference, and both engines."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from sim.certify.healthy import certify
from sim.engine.reference.engine import run_reference
from sim.program import Cutting, Posting, Program, ProgramBuilder
from sim.program.contract import COMPLETES, DROPS, LOSES, WAITS
from sim.program.disrupt import Disruptions, Path, Phase, disrupt
from sim.program.outcome import Deadlock
from sim.why.faulty_path import walk_of
from sim.why.path import PLAIN
from tests.fault_strategies import composed_programs
from tests.sim.engine.policies.test_faults import assert_engines_agree
from topologies import WeftError

UNIT = 10**12
TWO, THREE, FOUR = (Cutting(chunks=chunks) for chunks in (2, 3, 4))
Rows = dict[tuple[int, int], list[int]]


@settings(max_examples=100)
@given(composed_programs())
def test_engines_agree_on_any_combination(program: Program) -> None:
    """Every service, lost or not, is in the same picosecond in both engines, or both see the same end."""
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=3000)
@given(composed_programs())
def test_engines_agree_on_many_combinations(program: Program) -> None:
    """The same on more programs."""
    assert_engines_agree(program)


@settings(max_examples=60)
@given(composed_programs())
def test_every_certificate_holds_and_every_picosecond_has_a_name(program: Program) -> None:
    """Of the reference: pieces follow each other without a gap from 0 to the makespan, whatever went wrong."""
    try:
        outcome = run_reference(program, log=True)
    except Deadlock:
        return
    if program.is_healthy:
        return
    certify(program, outcome)
    why = walk_of(program, outcome, PLAIN).walk()
    ends = [0, *(piece.end_ps for piece in why.pieces)]
    assert [piece.start_ps for piece in why.pieces] == ends[:-1]
    assert ends[-1] == outcome.makespan_ps == sum(why.parts.values())


# Hand-computed: a server takes 1 ps for a unit of work unless said otherwise.


def building(push_ps: int = 1, queue: int = 5, bubble: bool = False) -> ProgramBuilder:
    """Of NPUs that post at once, and engines that push a unit in so much time."""
    return ProgramBuilder("store-and-forward", posting=Posting(0, Fraction(push_ps, 5), queue), bubble=bubble)


def outage(down: int, up: int) -> list[Phase]:
    return [Phase(down, Fraction(0)), Phase(up)]


def journal(builder: ProgramBuilder, **faults: object) -> tuple[Rows, Rows]:
    """When each chunk arrived at the servers that it came to, and when it was served, dropped or sent away there."""
    program = disrupt(builder.build(), Disruptions(**faults))  # type: ignore[arg-type]  # its fields
    found = run_reference(program, log=True).journal
    assert found is not None
    arrivals: Rows = {}
    starts: Rows = {}
    for task, chunk, arrival, start in zip(found.task, found.chunk, found.arrival_ps, found.start_ps, strict=True):
        arrivals.setdefault((int(task), int(chunk)), []).append(int(arrival))
        starts.setdefault((int(task), int(chunk)), []).append(int(start))
    return arrivals, starts


def served(builder: ProgramBuilder, **faults: object) -> Rows:
    """When each chunk was served, dropped or sent away."""
    return journal(builder, **faults)[1]


def of_task(rows: Rows, task: int = 0) -> list[list[int]]:
    return [times for (one, _), times in sorted(rows.items()) if one == task]


def test_the_queue_of_a_nic_that_is_down_stays() -> None:
    """Chunk 0 would cross the 2 and waits in the queue, which is full with it, until 20."""
    builder = building()
    nic = builder.nic(UNIT)
    builder.task(15, [(nic, 0)], THREE)
    arrivals, starts = journal(builder, phases={nic: outage(2, 20)})
    assert of_task(arrivals) == [[0], [25], [30]]
    assert of_task(starts) == [[20], [25], [30]]


def test_what_arrives_again_at_a_nic_is_work_in_its_queue() -> None:
    """Chunk 0, cut off on the link at 7, is in the queue again at 11, beside chunk 2; chunk 3 is pushed at 20."""
    builder = building()
    nic, link = builder.nic(UNIT), builder.server(UNIT)
    builder.task(20, [(nic, 0), (link, 0)], FOUR)
    arrivals, _ = journal(builder, phases={link: outage(7, 8)}, crossing={link: LOSES}, resend_ps={link: 4})
    assert of_task(arrivals) == [[0, 5, 11, 20], [5, 10], [10, 15], [20, 25]]


def test_pushes_come_before_what_arrives_again_in_the_same_picosecond() -> None:
    """Chunk 0 is in the queue again at 10, when chunk 1 leaves it: chunk 2 is pushed all the same, chunk 3 at 20."""
    builder = building()
    nic, link = builder.nic(UNIT), builder.server(UNIT)
    builder.task(20, [(nic, 0), (link, 0)], FOUR)
    arrivals, _ = journal(builder, phases={link: outage(7, 8)}, crossing={link: LOSES}, resend_ps={link: 3})
    assert [times[0] for times in of_task(arrivals)] == [0, 5, 10, 20]
    assert of_task(arrivals)[0] == [0, 5, 10, 15]


def test_what_a_nic_drops_gives_its_room_back_for_the_next_picosecond() -> None:
    """There is room for one; the second task is pushed a picosecond after the first was dropped, and again comes 9."""
    builder = building(push_ps=5)
    nic = builder.nic(UNIT, engines=2)
    for _ in range(2):
        builder.task(5, [(nic, 0)])
    _, starts = journal(builder, phases={nic: outage(0, 3)}, crossing={nic: WAITS + DROPS}, resend_ps={nic: 9})
    assert [of_task(starts, task) for task in range(2)] == [[[0, 9]], [[1, 14]]]


@pytest.mark.parametrize(("has_nic", "starts"), [(True, [[0, 50], [4]]), (False, [[0, 50], [55]])])
def test_an_engine_goes_on_with_the_chunk_after_one_that_was_dropped(has_nic: bool, starts: list[list[int]]) -> None:
    """Chunk 0 is dropped, and comes again after 50; chunk 1 is pushed at 4, or without a NIC waits on."""
    builder = building(push_ps=4)
    first = builder.nic(UNIT) if has_nic else builder.server(UNIT)
    builder.task(10, [(first, 0)], TWO)
    rows = served(builder, phases={first: outage(0, 3)}, crossing={first: WAITS + DROPS}, resend_ps={first: 50})
    assert of_task(rows) == starts


def test_the_route_is_that_of_the_push_or_of_the_choice() -> None:
    """The detour holds from 3 on: of chunk 1, pushed at 5, and of another task's, in the queue before that time."""
    builder = building(queue=6)
    nic, old, new = builder.nic(UNIT, engines=2), builder.server(UNIT), builder.server(UNIT)
    path = [(nic, 0), (old, 0)]
    builder.task(10, path, TWO)
    builder.task(5, path)
    program = disrupt(builder.build(), Disruptions(detours={task: [(3, ((nic, 0), (new, 0)))] for task in (0, 1)}))
    found = run_reference(program, log=True).journal
    assert found is not None
    way = [(task, chunk, start, arrival, program.route_server[at]) for task, chunk, at, arrival, start in
           zip(found.task, found.chunk, found.at, found.arrival_ps, found.start_ps, strict=True)]
    assert way == [
        (0, 0, 0, 0, nic), (0, 0, 5, 5, old), (1, 0, 5, 0, nic), (0, 1, 10, 5, nic), (1, 0, 10, 10, new),
        (0, 1, 15, 15, new),
    ]


@pytest.mark.parametrize(("task", "path"), [(0, (1, 2)), (0, (1,)), (1, (0, 2)), (0, (0, 3)), (0, (3,))])
def test_routes_of_a_nic_begin_there_and_no_others(task: int, path: Sequence[int]) -> None:
    builder = building()
    nic, link, _, _ = builder.nic(UNIT), builder.server(UNIT), builder.server(UNIT), builder.nic(UNIT)
    builder.task(5, [(nic, 0), (link, 0)])
    builder.task(5, [(link, 0)])
    with pytest.raises(WeftError, match=r"is a NIC: routes begin there|one of them is a NIC"):
        disrupt(builder.build(), Disruptions(detours={task: [(3, tuple((server, 0) for server in path))]}))


@pytest.mark.parametrize(("deadline_ps", "start"), [(3, 3), (9, 5)])
def test_a_deadline_ends_the_wait_for_a_push(deadline_ps: int, start: int) -> None:
    """The parent is pushed at 5, when its engine is done."""
    builder = building(push_ps=5)
    parent = builder.task(5, [(builder.nic(UNIT), 0)])
    child = builder.task(5, [(builder.server(UNIT), 0)], pushed=[parent])
    assert served(builder, deadline_ps={child: deadline_ps})[child, 0] == [start]


def test_a_chunk_lost_in_service_gives_back_its_buffer_at_the_end_of_that() -> None:
    """Cut off at 2; the server is up at 3 and knows of the room at 5."""
    builder = building()
    wire = builder.server(UNIT, buffer=5, credit_ps=3)
    builder.task(10, [(wire, 0)], TWO)
    rows = served(builder, phases={wire: outage(2, 3)}, crossing={wire: LOSES}, resend_ps={wire: 40})
    assert of_task(rows) == [[0, 42], [5]]


def test_a_chunk_cut_off_at_the_next_server_gives_back_both_buffers_then() -> None:
    """Cut off at 7 behind b: a, with a credit latency of 3, knows at 10; b, with one of 1, at 8."""
    builder = building()
    a, b = builder.server(UNIT, buffer=5, credit_ps=3), builder.server(UNIT, buffer=5, credit_ps=1)
    builder.task(10, [(a, 0), (b, 0)], TWO)
    builder.task(5, [(b, 0)], after=[builder.task(6, [(builder.server(UNIT), 0)])])
    rows = served(builder, phases={b: outage(7, 8)}, crossing={b: LOSES}, resend_ps={b: 40})
    assert of_task(rows) == [[0, 5, 47, 52], [10, 15]]
    assert of_task(rows, 2) == [[8]]


def test_a_chunk_dropped_while_it_waits_gives_back_the_buffer_before() -> None:
    """Dropped at 5, when it arrives at a server that is down: the one before knows at 8."""
    builder = building()
    a, b = builder.server(UNIT, buffer=5, credit_ps=3), builder.server(UNIT)
    builder.task(10, [(a, 0), (b, 0)], TWO)
    rows = served(builder, phases={b: outage(0, 7)}, crossing={b: COMPLETES + DROPS}, resend_ps={b: 40})
    assert of_task(rows) == [[0, 5, 45, 50], [8, 13]]


def test_a_chunk_that_is_in_gives_back_its_buffer_though_it_waits_for_others() -> None:
    """Chunk 0 is cut off at 2, chunk 1 is in at 18 and not delivered: chunk 2 starts at 19."""
    builder = building()
    wire = builder.server(UNIT, buffer=5)
    builder.task(15, [(wire, 10)], THREE)
    rows = served(builder, phases={wire: outage(2, 3)}, crossing={wire: LOSES}, resend_ps={wire: 100})
    assert of_task(rows) == [[0, 102], [3], [19]]


def test_a_server_that_waits_for_room_drops_when_it_goes_down() -> None:
    """Chunk 1 waits for room since 5, is dropped at 9, and comes again at 39."""
    builder = building()
    wire = builder.server(UNIT, buffer=5)
    builder.task(10, [(wire, 20)], TWO)
    rows = served(builder, phases={wire: outage(9, 12)}, crossing={wire: WAITS + DROPS}, resend_ps={wire: 30})
    assert of_task(rows) == [[0], [9, 39]]


def test_a_chunk_takes_its_detour_before_it_asks_for_room() -> None:
    """The wire has no room until 26, and nobody looks when the detour begins; at 7 another chunk arrives."""
    builder = building()
    wire, new = builder.server(UNIT, buffer=5), builder.server(UNIT)
    for _ in range(2):
        builder.task(5, [(wire, 20)])
    builder.task(5, [(wire, 0)], after=[builder.task(7, [(builder.server(UNIT), 0)])])
    rows = served(builder, detours={1: [(6, ((new, 0),))]})
    assert [of_task(rows, task) for task in (0, 1, 3)] == [[[0]], [[7, 8]], [[26]]]


def test_what_does_not_fit_holds_up_no_other_channel_and_what_fits_may_wait_for_a_repair() -> None:
    """At 5 channel 1 would be served, if the service did not cross the 8; at 20 channel 0, whose turn it is, has
    no room, and channel 1 has its turn still."""
    builder = building()
    wire = builder.server(UNIT, buffer=5)
    builder.task(10, [(wire, 40, 0)], TWO)
    builder.task(5, [(wire, 0, 1)])
    assert served(builder, phases={wire: outage(8, 20)}) == {(0, 0): [0], (0, 1): [46], (1, 0): [20]}


def turning(costs: Sequence[tuple[int, int]]) -> tuple[ProgramBuilder, int]:
    """A server that serves flows in turn, and tasks of (flow, work) that are there from 0 on."""
    builder = building()
    wire = builder.server(UNIT, "round-robin-flow")
    for flow, work in costs:
        builder.task(work, [(wire, 0)], flow=flow)
    return builder, wire


def test_to_look_moves_the_line() -> None:
    """At 3 flow 0 gets its quantum, and would cross the 5; flow 1, there from 4 on, is behind it at 10."""
    builder, wire = turning([(0, 3), (0, 3)])
    builder.task(3, [(wire, 0)], after=[builder.task(4, [(builder.server(UNIT), 0)])], flow=1)
    rows = served(builder, phases={wire: outage(5, 10)})
    assert [of_task(rows, task) for task in (0, 1, 3)] == [[[0]], [[10]], [[13]]]


@pytest.mark.parametrize(("drops", "starts"), [(0, [0, 8, 5]), (DROPS, [0, 12, 15])])
def test_queues_whose_chunks_are_dropped_leave_the_line(drops: int, starts: list[int]) -> None:
    """Of 3 units flow 0 has spent all at 3, and waits for flow 1; unless both come anew, at 12."""
    builder, wire = turning([(0, 3), (0, 3), (1, 3)])
    rows = served(builder, phases={wire: outage(3, 5)}, crossing={wire: WAITS + drops}, resend_ps={wire: 9})
    assert [rows[task, 0][-1] for task in range(3)] == starts


def test_a_queue_looks_for_detours_when_it_has_its_turn() -> None:
    """The detour of task 1 holds since 1; flow 1 has its turn at 3, flow 0 at 6. There it goes away, and task 3 of its
    flow is served."""
    builder, _ = turning([(0, 3), (0, 3), (1, 3), (0, 3)])
    new = builder.server(UNIT)
    rows = served(builder, detours={1: [(1, ((new, 0),))]})
    assert rows == {(0, 0): [0], (1, 0): [6, 7], (2, 0): [3], (3, 0): [6]}


def test_a_detour_over_the_same_server_keeps_its_place() -> None:
    """Task 0 goes on over its server, with another latency, before task 1 of its flow."""
    builder, wire = turning([(1, 3), (0, 3), (0, 3)])
    rows = served(builder, detours={1: [(1, ((wire, 7),))]})
    assert rows == {(0, 0): [0], (1, 0): [3], (2, 0): [6]}


def test_detours_have_queues_and_count_for_quanta() -> None:
    """By flow and place on the detour, by the server before on it, and by the largest chunk that may come."""
    builder = building()
    flows, ports, a = (builder.server(UNIT, name) for name in ("round-robin-flow", "round-robin-port", "fifo"))
    builder.task(2, [(a, 0), (flows, 0), (ports, 0)], flow=4)
    builder.task(9, [(a, 0)], flow=4)
    builder.task(1, [(a, 0), (ports, 0)], flow=5)
    detours: dict[int, list[tuple[int, Path]]] = {
        1: [(5, ((a, 0), (flows, 3), (ports, 0)))], 2: [(5, ((flows, 0), (a, 0), (ports, 0)))],
    }
    program = disrupt(builder.build(), Disruptions(detours=detours))
    first = program.hop_queue[program.task_queue[0] + np.arange(3)]
    second, third = (program.hop_queue[at + np.arange(3)] for at in program.detour_queue)
    assert np.array_equal(second[1:], first[1:])
    assert third[0] != first[1]
    assert third[2] == program.hop_queue[program.task_queue[2] + 1] != first[2]
    assert program.server_quantum.tolist() == [9, 9, 9]


def test_a_detour_needs_room_for_its_chunks() -> None:
    builder = building()
    wire, small = builder.server(UNIT), builder.server(UNIT, buffer=4)
    builder.task(5, [(wire, 0)])
    with pytest.raises(WeftError, match="behind server 1 has room for 4, and a chunk of 5 crosses it"):
        disrupt(builder.build(), Disruptions(detours={0: [(5, ((small, 0),))]}))


def test_a_bubble_is_of_the_largest_chunk_of_detours_too() -> None:
    """Channel 1 of a buffer of 12 leaves room for the 5 that may come by a detour, and not only for the 2."""
    builder = building(bubble=True)
    wire, ring = builder.server(UNIT), builder.server(UNIT, buffer=12)
    builder.task(5, [(wire, 0, 1)])
    builder.task(2, [(ring, 0, 1)])
    assert builder.build().server_buffer.reshape(2, 2)[:, ring].tolist() == [12, 10]
    program = disrupt(builder.build(), Disruptions(detours={0: [(5, ((ring, 0, 1),))]}))
    assert program.server_buffer.reshape(2, 2)[:, ring].tolist() == [12, 7]


def test_a_detour_may_change_the_channel() -> None:
    """At 5 task 2 of channel 1 has its turn; at 10 task 1, which goes to channel 1: task 3 is first in channel 0."""
    builder = building()
    wire = builder.server(UNIT)
    for channel in (0, 0, 1, 0):
        builder.task(5, [(wire, 0, channel)])
    rows = served(builder, detours={1: [(3, ((wire, 0, 1),))]})
    assert [rows[task, 0] for task in range(4)] == [[0], [15], [5], [10]]


def test_a_channel_whose_first_chunk_goes_away_is_looked_at_again() -> None:
    """At 5 channel 1 has its turn: task 1 goes to another server, and task 2 behind it is served."""
    builder = building()
    wire, new = builder.server(UNIT), builder.server(UNIT)
    for channel in (0, 1, 1, 0):
        builder.task(5, [(wire, 0, channel)])
    rows = served(builder, detours={1: [(3, ((new, 0, 0),))]})
    assert [rows[task, 0] for task in range(4)] == [[0], [5, 6], [5], [10]]


def test_a_chunk_without_room_looks_for_its_detour_when_another_channel_gets_room_back() -> None:
    """Task 2 waits for the room of channel 1, which task 1 holds until 61; at 16 channel 0 has its room again, and the
    server looks: task 2 goes there, where it fits."""
    builder = building()
    wire, slow = builder.server(UNIT, buffer=5), builder.server(UNIT // 10)
    builder.task(5, [(wire, 10, 0)])
    for _ in range(2):
        builder.task(5, [(wire, 0, 1), (slow, 0)])
    program = disrupt(builder.build(), Disruptions(detours={2: [(12, ((wire, 0, 0),))]}))
    assert run_reference(program).start_ps.tolist() == [0, 5, 16]
    assert_engines_agree(program)


def test_a_detour_may_bring_a_channel() -> None:
    """Servers have two queues then, and each has a buffer."""
    builder = building()
    wire = builder.server(UNIT, buffer=5)
    for _ in range(2):
        builder.task(5, [(wire, 0)])
    program = disrupt(builder.build(), Disruptions(detours={1: [(3, ((wire, 0, 1),))]}))
    assert (program.channels, program.server_buffer.tolist()) == (2, [5, 5])
    assert run_reference(program).start_ps.tolist() == [0, 5]
