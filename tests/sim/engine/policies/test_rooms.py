"""Buffers behind links: hand-computed cases, what holds of every run, and both engines to the picosecond.

A server takes 1 ps for a unit of work.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from sim import PRESETS, simulate
from sim.certify.healthy import certify
from sim.engine.loop import run_fifo, run_links
from sim.engine.reference.engine import Simulation, run_reference
from sim.engine.run import Run, run
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.contract import UNBOUNDED
from sim.program.outcome import Deadlock, Outcome
from sim.program.turns import with_buffers
from tests.same_runs import assert_same
from tests.sim.engine.test_engine import assert_loops_agree, outcome_or_deadlock
from tests.strategies import channel_programs, credit_programs, nic_programs, programs
from topologies import WeftError, from_spec

UNIT = 10**12


def logged(program: Program) -> Outcome:
    outcome = run(program, log=True)
    assert_same(outcome, run_reference(program, log=True))
    certify(program, outcome)
    return outcome


def starts(builder: ProgramBuilder) -> list[list[int]]:
    """Starts of the services of each task, chunk by chunk and hop by hop; the engines agree on them."""
    log = logged(builder.build()).log
    assert log is not None
    return [part.tolist() for part in np.split(log.start_ps, log.base[1:-1])]


def line(buffer: int, credit_ps: int, slow: int = 3, chunks: int = 4) -> ProgramBuilder:
    """Chunks of one unit over a link with a buffer, and one that is slower."""
    builder = ProgramBuilder("store-and-forward")
    path = [(builder.server(UNIT, buffer=buffer, credit_ps=credit_ps), 0), (builder.server(Fraction(UNIT, slow)), 0)]
    builder.task(chunks, path, Cutting(chunks=chunks))
    return builder


def test_a_link_waits_for_room_behind_it() -> None:
    """Room for two: the third chunk starts when the first has left the next link and that is known."""
    # The first is served behind it from 1 to 4, the second to 7.
    assert starts(line(buffer=2, credit_ps=1)) == [[0, 1, 1, 4, 5, 7, 8, 10]]
    assert starts(line(buffer=2, credit_ps=4)) == [[0, 1, 1, 4, 8, 9, 11, 12]]
    assert starts(line(buffer=4, credit_ps=4)) == [[0, 1, 1, 4, 2, 7, 3, 10]]


def test_the_last_link_has_its_room_back_when_a_chunk_is_delivered() -> None:
    builder = ProgramBuilder("store-and-forward")
    builder.task(3, [(builder.server(UNIT, buffer=1, credit_ps=2), 5)], Cutting(chunks=3))
    assert starts(builder) == [[0, 8, 16]]  # served for 1, under way for 5, known after 2


def test_a_head_without_room_blocks_its_queue() -> None:
    """A small chunk that would fit waits behind a large one that does not; by priority it does not wait."""
    for discipline, small_ps in (("fifo", 19), ("priority", 4)):
        builder = ProgramBuilder("store-and-forward")
        link = builder.server(UNIT, discipline, buffer=4, credit_ps=1)
        builder.task(3, [(link, 0), (builder.server(UNIT / 2), 0)], priority=0)
        builder.task(4, [(link, 0), (builder.server(UNIT), 0)], priority=2, tie_class=1)
        builder.task(1, [(builder.server(UNIT / 4), 0), (link, 0)], priority=1, tie_class=2)
        found = starts(builder)
        assert (found[1][0], found[2][1]) == (10, small_ps)


def test_a_circle_of_buffers_is_named() -> None:
    """Three links, each full of chunks for the next: nothing moves."""
    builder = ProgramBuilder("store-and-forward")
    ring = [builder.server(UNIT, buffer=1) for _ in range(3)]
    for first in range(3):
        builder.task(2, [(ring[first], 1), (ring[(first + 1) % 3], 1), (ring[(first + 2) % 3], 1)], Cutting(chunks=2))
    for engine in (run, run_reference):
        with pytest.raises(Deadlock, match="no server of a circle has room behind it: 0 > 1 > 2 > 0") as stuck:
            engine(builder.build())
        assert stuck.value.circle == (0, 1, 2)


def assert_engines_agree(program: Program) -> None:
    """Every service is in the same picosecond in both engines, or both see the same deadlock; the run is certified."""
    chunk = assert_loops_agree(program)
    if not isinstance(chunk, str):
        certify(program, chunk)


def test_a_buffer_that_cannot_fill_is_none() -> None:
    """Two tasks of 6 units cross a link, in two kinds of hop: with room for more than 12 it commits them on arrival."""
    kernels = {}
    for room in (6, 12, 13):
        builder = ProgramBuilder("store-and-forward")
        link, behind = builder.server(UNIT, buffer=room), builder.server(UNIT)
        builder.task(6, [(link, 0), (behind, 0)], Cutting(chunks=3))
        builder.task(6, [(link, 1)], Cutting(chunks=2))
        program = builder.build()
        kernels[room] = Run(program)._kernel
        assert not isinstance(assert_loops_agree(program), str)
    assert kernels == {6: run_links, 12: run_links, 13: run_fifo}


@settings(max_examples=150, deadline=None)
@given(credit_programs())
def test_engines_agree(program: Program) -> None:
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(credit_programs())
def test_engines_agree_on_thousands(program: Program) -> None:
    assert_engines_agree(program)


@settings(max_examples=100, deadline=None)
@given(st.one_of(programs(), nic_programs()))
def test_buffers_that_never_fill_change_nothing(program: Program) -> None:
    """Neutral: with room for all that ever crosses a link, the run is the one without buffers."""
    room = np.full(program.n_servers, UNBOUNDED - 1)
    one, other = (outcome_or_deadlock(of, "chunk") for of in (program, with_buffers(program, room, room * 0 + 1)))
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert_same(one, other)


@settings(max_examples=60, deadline=None)
@given(st.one_of(credit_programs(), channel_programs()))
def test_no_buffer_holds_more_than_it_has_room_for(program: Program) -> None:
    """Occupancy is within its bounds in every picosecond of the reference, and 0 at the end."""
    simulation = Simulation(program)
    plain = simulation.clock.step

    def step() -> None:
        plain()
        for server in simulation.servers:
            for room, limit in zip(server.rooms, server.limits, strict=True):
                assert 0 <= room.used <= max(server.limits if program.buffer_shared else [limit])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation.clock, "step", step)
        simulation.run()
    if program.server_buffer.size and all(task.delivered == task.chunks for task in simulation.tasks):
        assert not any(room.used for server in simulation.servers for room in server.rooms)


def test_a_buffer_has_room_for_the_largest_chunk() -> None:
    builder = ProgramBuilder()
    builder.task(5, [(builder.server(UNIT, buffer=2), 0)], Cutting(None, 3))
    with pytest.raises(WeftError, match="the buffer behind server 0 has room for 2, and a chunk of 3 crosses it"):
        builder.build()


ROUTERS: dict[str, Any] = {"bandwidth": "400Gb/s", "latency": "100ns", "hop_latency": "300ns"}


@pytest.mark.parametrize(("algorithm", "spec"), [
    ("swing", "torus:4x4"), ("bucket", "torus:3x4"), ("ring", "switch:6"), ("recursive-doubling", "torus:4x4"),
    ("direct", "leaf-spine:2x2x2"),
])
@pytest.mark.parametrize("discipline", ["fifo", "round-robin-flow"])
@pytest.mark.compiled
def test_buffers_on_a_fabric(algorithm: str, spec: str, discipline: str) -> None:
    """Large buffers change nothing, small ones cost time; the quotient is the full run; the parts add up."""
    kind = "all-to-all" if algorithm == "direct" else "all-reduce"
    schedule = build(algorithm, kind, from_spec(spec, **ROUTERS), "1MiB")
    options: dict[str, Any] = {"chunk": "8KiB", "discipline": discipline, "check": True}
    free, large = simulate(schedule, **options), simulate(schedule, **options, buffer="1GiB")
    assert (large.time_ps, large.symmetry) == (free.time_ps, free.symmetry)
    assert large.notes() == []
    small, full = (simulate(schedule, **options, buffer="32KiB", symmetry=one) for one in ("auto", "off"))
    assert small.time_ps == full.time_ps > free.time_ps
    assert "buffers of 32 KiB are below" in small.notes()[0]
    parts = small.why().parts
    assert sum(parts.values()) == small.time_ps
    assert parts["credits"] > 0


@pytest.mark.compiled
def test_a_deadlock_names_the_links_of_its_circle() -> None:
    schedule = build("swing", "all-reduce", from_spec("torus:8x8", **ROUTERS), "2MiB")
    with pytest.raises(Deadlock, match=r"buffers are full in a circle, .*: npu0->npu1, npu1->npu2, .*npu7->npu0, npu0"):
        simulate(schedule, model=PRESETS["swing-paper"], buffer="16KiB")


def test_what_buffers_are_not_combined_with_is_rejected() -> None:
    fabric = from_spec("ring:4")
    schedule = build("ring", "all-reduce", fabric, "1MiB")
    rejected: tuple[tuple[dict[str, Any], str], ...] = (
        ({"credit_latency": "1us"}, "is of buffers, and there"),
        ({"buffer": "1KiB"}, r"buffers of 1 KiB \(1,024 B\) are smaller than the largest chunk, 8 KiB"),
    )
    for options, said in rejected:
        with pytest.raises(WeftError, match=said):
            simulate(schedule, **options)
