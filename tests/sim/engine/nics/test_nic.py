"""NICs: hand-computed cases of posts, engines, pushes and turns, and both engines to the picosecond.

A server takes 1 ps for a unit of work unless its rate is given; an engine pushes a unit in 1 ps unless a test says so.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.loop import run_fifo_nics
from sim.engine.reference.engine import Simulation, run_reference
from sim.engine.reference.policies import Nic, Want
from sim.engine.run import Run, memory_bytes, run
from sim.program import Cutting, Posting, Program, ProgramBuilder
from sim.program.outcome import Deadlock, Outcome
from tests.oracles.general_loop.run import run_general_loop
from tests.same_runs import assert_same, few_calls
from tests.strategies import nic_programs
from topologies import WeftError

UNIT = 10**12
FAST = Fraction(1000 * UNIT)
WIDE = 10**6
TWO, THREE = Cutting(chunks=2), Cutting(chunks=3)


def building(post_ps: int = 0, push_ps: int = 1, queue: int = WIDE, in_turn: int = 0) -> ProgramBuilder:
    return ProgramBuilder("store-and-forward", posting=Posting(post_ps, Fraction(push_ps), queue, in_turn))


def starts(builder: ProgramBuilder) -> list[list[int]]:
    """Starts of the services of each task, chunk by chunk and hop by hop, in both engines."""
    program = builder.build()
    outcome = run_reference(program, log=True)
    with few_calls():
        found = run(program, log=True)
    assert_same(found, outcome)
    log = outcome.log
    assert log is not None
    return [part.tolist() for part in np.split(log.start_ps, log.base[1:-1])]


def test_an_npu_posts_one_transfer_after_the_other() -> None:
    """When do transfers that are ready together reach the NIC? `post_ps` apart, by class; engines are enough."""
    builder = building(post_ps=4)
    nic = builder.nic(FAST, engines=3)
    for tie_class in (2, 0, 1):
        builder.task(1, [(nic, 0)], tie_class=tie_class)
    assert starts(builder) == [[8], [0], [4]]


def test_a_post_waits_only_for_the_post_before() -> None:
    """Does an NPU that has not posted for long post at once? Yes, and the next one `post_ps` later."""
    builder = building(post_ps=4)
    nic = builder.nic(FAST, engines=3)
    late = builder.task(10, [(builder.server(UNIT), 0)])
    builder.task(1, [(nic, 0)])
    builder.task(1, [(nic, 0)], after=[late])
    builder.task(1, [(nic, 0)], after=[late])
    assert starts(builder)[1:] == [[0], [10], [14]]


def test_an_engine_pushes_one_chunk_after_the_other() -> None:
    """How fast do chunks reach the queue? One every push time of their size, and the engine then takes another."""
    builder = building(push_ps=2)
    nic = builder.nic(FAST)
    builder.task(9, [(nic, 0)], THREE)
    builder.task(2, [(nic, 0)])
    assert starts(builder) == [[0, 6, 12], [18]]


def test_a_slow_nic_holds_no_engine_up() -> None:
    """Do engines wait for service? Not while there is room: the queue is served in the order of pushes."""
    builder = building(push_ps=1)
    nic = builder.nic(UNIT, engines=2)
    builder.task(30, [(nic, 0)], THREE)
    gate = builder.task(5, [(builder.server(UNIT), 0)])
    builder.task(30, [(nic, 0)], THREE, after=[gate])
    # Pushed at 0, 10, 20 and at 5, 15, 25.
    assert starts(builder) == [[0, 20, 40], [0], [10, 30, 50]]


def test_one_transfer_of_a_flow_at_a_time() -> None:
    """Do two transfers to one destination overlap? No: the second lets another one pass, which goes elsewhere."""
    builder = building(push_ps=1)
    nic = builder.nic(FAST, engines=2)
    for flow in (0, 0, 1):
        builder.task(10, [(nic, 0)], TWO, flow=flow)
    # Pushed at 0, 5; at 10, 15; and at 0, 5 with the first, for whose service it waits 1 ps.
    assert starts(builder) == [[0, 5], [10, 15], [1, 6]]


def test_who_waits_for_a_flow_keeps_its_place() -> None:
    """Who gets an engine that two want? The one that was posted first, though its flow held it up."""
    builder = building(push_ps=1)
    nic = builder.nic(FAST, engines=1)
    for flow in (0, 0, 1):
        builder.task(10, [(nic, 0)], flow=flow)
    assert starts(builder) == [[0], [10], [20]]


def test_a_queue_of_one_chunk_makes_engines_take_turns() -> None:
    """What does a queue that holds one chunk do? Engines push in rotation, as each service ends."""
    builder = building(push_ps=1, queue=1)
    nic = builder.nic(Fraction(UNIT, 2), engines=3)
    for _ in range(2):
        builder.task(12, [(nic, 0)], THREE)
    builder.task(4, [(nic, 0)])
    assert starts(builder) == [[0, 24, 40], [8, 32, 48], [16]]


def test_a_full_queue_holds_engines_up_until_a_service_ends() -> None:
    """When does an engine push again? When the queue, with the chunk in service, has less than it holds."""
    builder = building(push_ps=1, queue=8)
    nic, link = builder.nic(Fraction(UNIT, 10)), builder.server(UNIT)
    sent = builder.task(12, [(nic, 0)], THREE)
    builder.task(1, [(link, 0)], pushed=[sent])
    # Pushed at 0, 4 and, when the first service ends, at 40.
    assert starts(builder) == [[0, 40, 80], [44]]


def test_a_send_is_complete_when_it_is_pushed() -> None:
    """When does who waits for the push begin? When the engine is done with the last chunk, long before delivery."""
    builder = building(push_ps=1)
    nic = builder.nic(UNIT, engines=2)
    sent = builder.task(6, [(nic, 100)], TWO)
    builder.task(3, [(nic, 0)], pushed=[sent])
    builder.task(3, [(nic, 0)], after=[sent])
    assert starts(builder) == [[0, 3], [6], [106]]


@pytest.mark.parametrize(("in_turn", "ports"), [(0, [0, 0, 1]), (2, [0, 1, 0]), (1, [0, 0, 1])])
def test_the_port_posted_last_is_left_out(in_turn: int, ports: list[int]) -> None:
    """Which port goes on when two are ready? With turns not the one that was posted last, whatever its class."""
    builder = building(post_ps=2, in_turn=in_turn)
    nic = builder.nic(FAST, engines=4)
    tasks = [builder.task(1, [(nic, 0)], port=port, tie_class=port) for port in (0, 0, 1)]
    found = starts(builder)
    assert [(0, 0, 1)[task] for task in sorted(tasks, key=lambda task: found[task])] == ports


def test_the_last_port_is_left_out_until_another_was_posted() -> None:
    """How long is a port left out? Until another one was posted, or has nothing left to push."""
    builder = building(post_ps=1, push_ps=1, in_turn=2)
    nic = builder.nic(FAST, engines=4)
    builder.task(1, [(nic, 0)], port=0)
    builder.task(1, [(nic, 0)], port=0)
    late = builder.task(7, [(builder.server(UNIT), 0)])
    builder.task(1, [(nic, 0)], port=1, after=[late])
    builder.task(1, [(nic, 0)], port=0)
    # Port 0 at 0, nothing until port 1 at 7, then port 0; port 1 has then pushed everything, and port 0 goes on.
    assert starts(builder) == [[0], [8], [0], [7], [9]]


def test_ports_of_later_phases_are_not_waited_for() -> None:
    """Port 0 goes on where all that port 1 has left is of the next phase, behind a barrier that waits for port 0."""
    builder = building(post_ps=1, push_ps=1, in_turn=2)
    nic = builder.nic(FAST, engines=4)
    builder.task(1, [(nic, 0)], port=1)
    done = [builder.task(1, [(nic, 0)], port=0) for _ in range(2)]
    builder.task(1, [(nic, 0)], port=3, after=done)
    assert starts(builder) == [[0], [1], [2], [3]]


def test_a_port_alone_is_not_left_out() -> None:
    """Does an NPU with one port wait for turns? No."""
    builder = building(post_ps=1, push_ps=1, in_turn=2)
    nic = builder.nic(FAST, engines=4)
    for _ in range(3):
        builder.task(1, [(nic, 0)])
    assert starts(builder) == [[0], [1], [2]]


def test_an_engine_does_not_wait_for_chunks_that_are_not_released() -> None:
    """What does an engine do between two chunks of a stream? It takes others; the next chunk is posted anew."""
    builder = building(push_ps=1)
    nic, link = builder.nic(FAST), builder.server(UNIT)
    before = builder.task(20, [(link, 0)], TWO)
    builder.task(4, [(nic, 0)], TWO, stream=[before])
    gate = builder.task(11, [(builder.server(UNIT), 0)])
    builder.task(9, [(nic, 0)], THREE, after=[gate])
    # Chunks of the stream are released at 10 and at 20; the other holds the engine from 12 to 21.
    assert starts(builder)[1] == [10, 21]
    assert starts(builder)[3] == [12, 15, 18]


@pytest.mark.parametrize(("where", "said"), [
    ("second hop", "server 0 is a NIC: routes begin there"), ("pool", "task 0 asks a pool and a NIC"),
    ("pushed", "task 1 is waited for until it is pushed, and has no NIC"),
])
def test_what_nics_do_not_do_is_rejected(where: str, said: str) -> None:
    builder = building()
    nic, link = builder.nic(UNIT), builder.server(UNIT)
    task = builder.task(1, [(link, 0), (nic, 0)] if where == "second hop" else [(nic, 0), (link, 0)])
    other = builder.task(1, [(link, 0)])
    if where == "pool":
        builder.ask(task, builder.pool(1))
    if where == "pushed":
        builder.task(1, [(link, 0)], pushed=[other])
    with pytest.raises(WeftError, match=said):
        builder.build()


def test_a_nic_has_an_engine() -> None:
    with pytest.raises(WeftError, match="0 engines"):
        building().nic(UNIT, engines=0)


def outcome_or_deadlock(program: Program, which: str) -> Outcome | str:
    try:
        if which == "reference":
            return run_reference(program, log=True)
        return (run_general_loop if which == "general" else run)(program, log=True)
    except Deadlock as stuck:
        return str(stuck)


@settings(max_examples=300)
@given(nic_programs(pools=True))
def test_engines_agree(program: Program) -> None:
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=3000)
@given(nic_programs(pools=True))
def test_engines_agree_on_thousands(program: Program) -> None:
    assert_engines_agree(program)


def assert_engines_agree(program: Program) -> None:
    assert_agree(program, "chunk", "reference")


def assert_agree(program: Program, one: str, other: str) -> None:
    """Every service is in the same picosecond in both engines, or both see the same end."""
    chunk, reference = outcome_or_deadlock(program, one), outcome_or_deadlock(program, other)
    if isinstance(chunk, str) or isinstance(reference, str):
        assert chunk == reference
        return
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(chunk, name), getattr(reference, name), err_msg=name)
    assert (chunk.makespan_ps, chunk.events) == (reference.makespan_ps, reference.events)
    assert chunk.log is not None
    assert reference.log is not None
    for mine, theirs in zip(chunk.log, reference.log, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=300)
@given(nic_programs(disciplines=("fifo",)))
def test_loops_agree(program: Program) -> None:
    """Servers that are all fifo have a loop of their own, with NICs as well."""
    assert Run(program)._kernel is run_fifo_nics
    assert_agree(program, "chunk", "general")


@pytest.mark.verify
@settings(max_examples=3000)
@given(nic_programs(disciplines=("fifo",), pools=True))
def test_loops_and_reference_agree_on_thousands(program: Program) -> None:
    assert_agree(program, "chunk", "general")
    assert_engines_agree(program)


@settings(max_examples=100)
@given(nic_programs(disciplines=("fifo",)), st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1))
def test_pauses_change_nothing(program: Program, limits: list[tuple[int, int]]) -> None:
    """A run in slices of services, or of time, ends like the run in one go."""
    whole, sliced = Run(program, log=True), Run(program, log=True)
    try:
        whole.advance()
    except Deadlock:
        return
    over, turn = False, 0
    while not over:
        most, step_ps = limits[turn % len(limits)]
        over = sliced.advance(max_events=most) or sliced.advance(until_ps=sliced.now_ps + step_ps)
        turn += 1
    assert_same(sliced.outcome(), whole.outcome())


@settings(max_examples=60)
@given(nic_programs())
def test_pushes_are_apart_and_flows_are_one_at_a_time(program: Program) -> None:
    """Pushes of a transfer are a push time apart, no flow has two transfers in the queue at once, posts are apart."""
    simulation = Simulation(program)
    pushes: list[tuple[int, int, int, int]] = []  # NIC, ps, task, chunk
    posts: list[tuple[int, int]] = []
    for server in simulation.servers:
        if server.nic is not None:
            _watch(server.nic, server.conditions.index, pushes, posts)
    simulation.run()
    by_task: dict[int, list[tuple[int, int]]] = {}
    for _, now, task, chunk in pushes:
        by_task.setdefault(task, []).append((now, chunk))
    for task, pushed in by_task.items():
        cut = program.task_cut[task]
        for (one, chunk), (other, _) in pairwise(pushed):
            size = program.cut_size[cut, 0 if chunk < program.cut_first[cut] else 1]
            assert other - one >= program.push_ps[size]
    for nic in {nic for nic, _ in posts}:
        times = [now for where, now in posts if where == nic]
        assert all(other - one >= program.post_ps for one, other in pairwise(times))


def _watch(nic: Nic, number: int, pushes: list[tuple[int, int, int, int]], posts: list[tuple[int, int]]) -> None:
    plain = nic.round

    def watched() -> None:
        unposted, pushing = list(nic.unposted), {*nic.pushing, *nic.posted, *nic.unposted}
        before_room = nic.room
        plain()
        posts.extend((number, nic.now_ps()) for want in unposted if want not in nic.unposted)
        gone = pushing - {*nic.pushing, *nic.posted, *nic.unposted}
        pushes.extend((number, nic.now_ps(), want.task.index, want.chunk) for want in gone)
        assert not gone or before_room > 0
        assert len({task.flow for task in nic.holder.values()}) == len(nic.holder)
        assert nic.engines >= 0
        assert not any(isinstance(want, Want) and want.since_ps > nic.now_ps() for want in nic.pushing)

    nic.round = watched  # type: ignore[method-assign]  # this one NIC is watched


@settings(max_examples=100)
@given(nic_programs())
def test_every_chunk_of_a_random_program_is_delivered(program: Program) -> None:
    """A program without turns ends, whatever its engines and queues: no engine waits for what it holds up."""
    outcome = run_reference(program._replace(ports_in_turn=0))
    assert int(outcome.finish_ps.min()) >= 0
    assert outcome.events == program.chunk_hops()


def test_memory_is_estimated_with_nics() -> None:
    """What a task takes at its NIC is part of the estimate."""
    builder = building(post_ps=1)
    nics = [builder.nic(FAST, engines=4) for _ in range(50)]
    for flow in range(20_000):
        builder.task(1, [(nics[flow % 50], 1)], flow=flow)
    program = builder.build()
    one = Run(program)
    calendar = one.state.slots.nbytes + one.state.occupied.nbytes + one.state.run.nbytes
    assert program.nbytes() + one.nbytes - calendar <= memory_bytes(program) * 1.1
    assert memory_bytes(program) <= 1.5 * (program.nbytes() + one.nbytes)
