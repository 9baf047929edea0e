"""Links that serve flows, or ports, in turn: hand-computed cases, and both engines to the picosecond.

A server takes 1 ps for a unit of work.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, build
from sim import Model, simulate
from sim.engine import setup
from sim.engine.loop import run_fifo, run_links
from sim.engine.reference.engine import Simulation, run_reference
from sim.engine.run import run
from sim.lower.job import lower
from sim.program import FIFO, Cutting, Program, ProgramBuilder
from tests.same_runs import assert_same
from tests.sim.engine.test_engine import outcome_or_deadlock
from tests.strategies import nic_programs, programs
from topologies import WeftError, from_spec

UNIT = 10**12
TURNS = ("round-robin-flow", "round-robin-port")
SMALL = Cutting(None, 2)
NO_TURNS = np.zeros(0, np.int64)


def order(builder: ProgramBuilder, server: int) -> list[int]:
    """Tasks in the order in which a server serves their chunks; the engines agree on it."""
    program = builder.build()
    assert_same(run(program, log=True), run_reference(program, log=True))
    simulation = Simulation(program)
    simulation.run()
    return [visit.task.index for visit in simulation.servers[server].done]


def injected(work: int, cutting: Cutting, flows: list[int], discipline: str = TURNS[0]) -> list[int]:
    """Tasks that arrive at time 0 at one server, each over a link of its own that is a thousand times as fast."""
    builder = ProgramBuilder("store-and-forward")
    link = builder.server(UNIT, discipline)
    for flow in flows:
        builder.task(work, [(builder.server(1000 * UNIT), 0), (link, 0)], cutting, flow=flow)
    return order(builder, link)


def test_flows_take_turns() -> None:
    """Two flows of which one is ahead: fifo serves all of its chunks first, rotation every second one."""
    builder = ProgramBuilder("store-and-forward")
    link = builder.server(UNIT, "round-robin-flow")
    for latency in (0, 3):
        fast = builder.server(1000 * UNIT)
        builder.task(8, [(fast, latency), (link, 0)], Cutting(chunks=4), flow=latency)
    assert order(builder, link) == [0, 0, 1, 0, 1, 0, 1, 1]


def test_transfers_of_one_flow_share_its_turn() -> None:
    assert injected(8, Cutting(chunks=4), [0, 0, 1]) == [0, 2, 1, 2, 0, 2, 1, 2, 0, 1, 0, 1]
    assert injected(8, Cutting(chunks=2), [0, 1, 2]) == [0, 1, 2] * 2


def test_ports_take_turns_and_what_begins_at_a_link_has_one_turn() -> None:
    builder = ProgramBuilder("store-and-forward")
    link, fast = builder.server(UNIT, "round-robin-port"), builder.server(1000 * UNIT)
    for flow in (0, 1):
        builder.task(4, [(fast, 0), (link, 0)], Cutting(chunks=2), flow=flow)
    for flow in (2, 3):
        builder.task(4, [(link, 0)], Cutting(chunks=2), flow=flow)
    served = order(builder, link)
    assert [task < 2 for task in served] == [False, True] * 4


def test_unequal_chunks_have_turns_of_equal_bytes() -> None:
    """Chunks of 8 and of 2 units: four small ones in a turn, as many bytes as one large one."""
    builder = ProgramBuilder("store-and-forward")
    link = builder.server(UNIT, "round-robin-flow")
    for work, cutting in ((24, Cutting(None, 8)), (24, SMALL)):
        builder.task(work, [(builder.server(1000 * UNIT), 0), (link, 0)], cutting)
    assert order(builder, link) == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_the_flow_served_last_waits_after_a_pause() -> None:
    """Two flows arrive together at a link that was idle: the one that it served last is second."""
    builder = ProgramBuilder("store-and-forward")
    link, fast = builder.server(UNIT, "round-robin-flow"), builder.server(UNIT)
    builder.task(1, [(link, 0)], flow=0)
    for flow in (0, 1):
        gate = builder.task(10, [(fast if flow else builder.server(UNIT), 0)])
        builder.task(1, [(link, 0)], after=[gate], flow=flow, tie_class=flow)
    assert order(builder, link) == [0, 4, 2]


def assert_engines_agree(program: Program) -> None:
    """Every service is in the same picosecond in both engines, or both see the same deadlock."""
    chunk, reference = outcome_or_deadlock(program, "chunk"), outcome_or_deadlock(program, "reference")
    if isinstance(chunk, str) or isinstance(reference, str):
        assert chunk == reference
    else:
        assert_same(chunk, reference)


@settings(max_examples=150, deadline=None)
@given(st.one_of(programs(disciplines=TURNS), nic_programs(disciplines=TURNS)))
def test_engines_agree(program: Program) -> None:
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(st.one_of(programs(disciplines=TURNS), nic_programs(disciplines=TURNS)))
def test_engines_agree_on_thousands(program: Program) -> None:
    assert_engines_agree(program)


@settings(max_examples=60, deadline=None)
@given(programs(disciplines=TURNS, pools=False))
def test_no_queue_has_two_turns_while_another_waits(program: Program) -> None:
    """At servers whose chunks all cost a whole turn; the queue that is served twice in a row was alone in waiting."""
    simulation = Simulation(program)
    simulation.run()
    for server, quantum in zip(simulation.servers, program.server_quantum, strict=True):
        if {visit.cost for visit in server.done} != {quantum}:
            continue
        for one, other in pairwise(server.done):
            waited = [visit for visit in server.done if visit.arrival_ps <= other.start_ps <= visit.start_ps]
            assert one.queue != other.queue or {visit.queue for visit in waited} == {one.queue}


@settings(max_examples=60, deadline=None)
@given(programs(disciplines=TURNS, pools=False))
def test_one_queue_at_each_link_is_fifo(program: Program) -> None:
    """Neutral: without anyone to take turns with, the order is that of arrival, to the picosecond."""
    one_queue = program._replace(task_queue=program.route_ptr[program.task_route], hop_queue=program.route_server)
    fifo = program._replace(server_discipline=np.full(program.n_servers, FIFO, np.int8), server_quantum=NO_TURNS)
    one, other = outcome_or_deadlock(one_queue, "chunk"), outcome_or_deadlock(fifo, "chunk")
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert_same(one, other)


@pytest.mark.parametrize(("collective", "loop"), [("all-gather", run_fifo), ("all-to-all", run_links)])
def test_a_link_with_one_queue_needs_no_choice(collective: str, loop: object) -> None:
    """Of a ring's pipeline each link carries one flow; a link that two cross does choose."""
    name = {"all-gather": "ring", "all-to-all": "direct"}[collective]
    program = lower(build(name, collective, from_spec("ring:7"), "1001KiB"), Model(discipline=TURNS[0])).program
    assert program.takes_turns and setup.loop(setup.simplified(program)) is loop
    assert_engines_agree(program)


def test_pools_have_one_queue() -> None:
    with pytest.raises(WeftError, match="discipline of a pool"):
        ProgramBuilder().pool(1, "round-robin-flow")


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, one in ALGORITHMS.items() for kind in one.functions])
def test_links_with_one_flow_are_fifo(name: str, kind: str) -> None:
    """Neutral: where each pair of ranks has a link of its own, turns change nothing, for any algorithm."""
    try:
        schedule = build(name, kind, from_spec("fc:4"), "64KiB")
    except WeftError:
        return
    fifo, turns = (simulate(schedule, chunk="4KiB", discipline=one, check=True) for one in ("fifo", TURNS[0]))
    assert fifo.time_ps == turns.time_ps


@pytest.mark.parametrize(("algorithm", "spec", "discipline", "ranks"), [
    ("swing", "torus:4x4", TURNS[0], "1 of 16"), ("ring", "torus:4x4", TURNS[1], "1 of 16"),
    ("ring", "switch:8", TURNS[0], "1 of 8"), ("swing", "switch:8", TURNS[1], "4 of 8"),
    ("recursive-doubling", "torus:4x4", TURNS[1], "4 of 16"),
])
@pytest.mark.compiled
def test_what_symmetry_is_kept(algorithm: str, spec: str, discipline: str, ranks: str) -> None:
    """Turns are by arrival and class, so the group is kept; not where it moves the ports of a switch."""
    schedule = build(algorithm, "all-reduce", from_spec(spec), "256KiB")
    found, full = (simulate(schedule, discipline=discipline, symmetry=one) for one in ("auto", "off"))
    assert found.time_ps == full.time_ps
    assert found.symmetry.startswith(ranks)
    assert ("it moves together what takes turns" in found.symmetry) == (spec == "switch:8" and discipline == TURNS[1])
