"""Virtual channels: hand-computed cases, what holds of every run, and both engines to the picosecond.

A server takes 1 ps for a unit of work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from sim.engine.reference.engine import Simulation, Visit, run_reference
from sim.engine.run import run
from sim.program import FIFO, Cutting, Program, ProgramBuilder
from sim.program.outcome import Deadlock
from tests.same_runs import assert_same
from tests.sim.engine.policies.test_rooms import UNIT, assert_engines_agree, starts
from tests.sim.engine.test_engine import outcome_or_deadlock
from tests.strategies import channel_programs, nic_programs, programs
from topologies import WeftError, from_spec


def served_by(builder: ProgramBuilder, link: int) -> list[int]:
    """Tasks in the order in which a server serves their chunks; the engines agree on it."""
    program = builder.build()
    assert_same(run(program, log=True), run_reference(program, log=True))
    simulation = Simulation(program)
    simulation.run()
    return [visit.task.index for visit in simulation.servers[link].done]


@pytest.mark.parametrize(("channels", "order"), [
    ((0, 0, 1), [0, 2, 1, 2, 0, 1]), ((1, 0, 1), [1, 0, 1, 2, 0, 2]),
    ((0, 1, 2), [0, 1, 2, 0, 1, 2]), ((0, 0, 0), [0, 1, 2, 0, 1, 2]),
])
def test_channels_take_turns_and_are_fifo_inside(channels: tuple[int, ...], order: list[int]) -> None:
    """Three tasks that arrive together, two chunks each; the channel behind the one served last is next."""
    builder = ProgramBuilder("store-and-forward")
    link = builder.server(UNIT)
    for number, channel in enumerate(channels):
        builder.task(20, [(builder.server(1000 * UNIT), 0), (link, 0, channel)], Cutting(chunks=2), tie_class=number)
    assert served_by(builder, link) == order


def test_the_pointer_stays_where_it_is_while_nothing_waits() -> None:
    """Channel 0 was served last, long ago: of two that arrive together, channel 1 is first."""
    builder = ProgramBuilder("store-and-forward")
    link = builder.server(UNIT)
    first = builder.task(1, [(link, 0, 0)])
    for channel in (0, 1):
        builder.task(1, [(link, 0, channel)], after=[first])
    assert served_by(builder, link) == [0, 2, 1]


def two_channels(shared: bool, buffer: int) -> ProgramBuilder:
    """Two chunks of channel 0 stand before a slow link, and channel 1 has one for another."""
    builder = ProgramBuilder("store-and-forward", bubble=shared)
    link = builder.server(UNIT, buffer=buffer, credit_ps=1)
    builder.task(4, [(link, 0, 0), (builder.server(UNIT / 4), 0)], Cutting(chunks=2))
    builder.task(2, [(builder.server(UNIT / 2), 0), (link, 0, 1), (builder.server(UNIT), 0)])
    return builder


def test_a_head_without_room_blocks_its_own_channel() -> None:
    """Room for one chunk of 2 units: the second of channel 0 waits until 11, and channel 1 has room of its own at 4."""
    assert starts(two_channels(shared=False, buffer=2)) == [[0, 2, 11, 13], [0, 4, 6]]


def test_a_shared_buffer_counts_both_channels_and_keeps_room_for_one_more() -> None:
    """Room for two chunks of 2: at 4 both are taken; at 11 one is free, and channel 1 needs two; it has them at 22."""
    assert starts(two_channels(shared=True, buffer=4)) == [[0, 2, 2, 10], [0, 19, 21]]
    assert starts(two_channels(shared=True, buffer=6)) == [[0, 2, 2, 10], [0, 11, 13]]
    assert starts(two_channels(shared=True, buffer=8)) == [[0, 2, 2, 10], [0, 4, 6]]


def circle(channels: tuple[int, int, int], buffer: int = 1, *, bubble: bool = False) -> Program:
    """Three links in a ring; two chunks from each go around, in a channel for each hop."""
    builder = ProgramBuilder("store-and-forward", bubble=bubble)
    ring = [builder.server(UNIT, buffer=buffer) for _ in range(3)]
    for first in range(3):
        path = [(ring[(first + hop) % 3], 1, channels[hop] if first or bubble else 0) for hop in range(3)]
        builder.task(2, path, Cutting(chunks=2))
    return builder.build()


def test_a_circle_is_broken_by_a_second_channel_or_a_bubble() -> None:
    with pytest.raises(Deadlock):
        run(circle((0, 0, 0)))
    with pytest.raises(Deadlock):
        run(circle((0, 0, 0), 2))
    dateline = ProgramBuilder("store-and-forward")
    ring = [dateline.server(UNIT, buffer=1) for _ in range(3)]
    for first in range(3):  # node 0 is where server 0 begins: what comes from server 2 takes channel 1 there
        hops = [(first + hop) % 3 for hop in range(3)]
        dateline.task(2, [(ring[at], 1, int(at < first)) for at in hops], Cutting(chunks=2))
    for program in (dateline.build(), circle((1, 0, 0), 2, bubble=True)):
        assert_same(run(program), run_reference(program))


@settings(max_examples=150, deadline=None)
@given(channel_programs())
def test_engines_agree(program: Program) -> None:
    assert_engines_agree(program)


@pytest.mark.verify
@settings(max_examples=3000, deadline=None)
@given(channel_programs())
def test_engines_agree_on_thousands(program: Program) -> None:
    assert_engines_agree(program)


@settings(max_examples=60, deadline=None)
@given(st.one_of(programs(), nic_programs()))
def test_one_channel_changes_nothing(program: Program) -> None:
    """Neutral: with a second channel that no hop takes, the run is the one with one."""
    more = program._replace(channels=2, hop_channel=np.zeros(program.hop_server.size, np.int8))
    one, other = (outcome_or_deadlock(of, "chunk") for of in (program, more))
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert_same(one, other)


@settings(max_examples=100, deadline=None)
@given(channel_programs())
def test_channels_are_fifo_and_none_has_two_turns_while_another_may_go(program: Program) -> None:
    """Of every service of the reference: it is the first of its channel, has room, and no channel before it had."""
    simulation = Simulation(program)
    plain = simulation.servers[0].__class__._start

    def start(server: object, visit: Visit) -> None:
        here, n = visit.server, program.channels
        assert here.discipline != FIFO or visit == min(
            (one for one in [*here.waiting, visit] if one.channel == visit.channel), key=lambda one: one.key)
        assert visit.fits
        last = here.done[-1].channel if here.done else -1
        for one in here.waiting if here.discipline == FIFO else []:
            heads = min((other for other in here.waiting if other.channel == one.channel), key=lambda other: other.key)
            between = (one.channel - last - 1) % n < (visit.channel - last - 1) % n
            assert not (between and heads.fits)
        plain(here, visit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation.servers[0].__class__, "_start", start)
        simulation.run()


def test_a_bubble_needs_room_for_two() -> None:
    builder = ProgramBuilder(bubble=True)
    builder.task(4, [(builder.server(UNIT, buffer=7), 0, 1)])
    with pytest.raises(WeftError, match="behind server 0 has room for 7, and two chunks of 4 need it"):
        builder.build()


ROUTERS: dict[str, Any] = {"bandwidth": "400Gb/s", "latency": "100ns", "hop_latency": "300ns"}
SMALL: dict[str, dict[str, Any]] = {
    "datelines": {"vcs": 2, "buffer": "8KiB"}, "bubbles": {"bubble": True, "buffer": "16KiB"},
}


@pytest.mark.parametrize(("algorithm", "spec", "lost"), [
    ("swing", "ring:8", True), ("recursive-doubling", "torus:4x4", False), ("direct", "torus:3x5", True),
])
@pytest.mark.parametrize("which", SMALL)
def test_neither_datelines_nor_bubbles_deadlock(algorithm: str, spec: str, lost: bool, which: str) -> None:
    """Buffers in which one channel sticks; the quotient is the full run; what symmetry is lost is said."""
    kind = "all-to-all" if algorithm == "direct" else "all-reduce"
    schedule = build(algorithm, kind, from_spec(spec, **ROUTERS), "240KiB")
    options: dict[str, Any] = {"chunk": "8KiB", "check": True}
    with pytest.raises(Deadlock):
        simulate(schedule, **options, buffer="8KiB")
    found, full = (simulate(schedule, **options, **SMALL[which], symmetry=one) for one in ("auto", "off"))
    assert found.time_ps == full.time_ps > simulate(schedule, **options).time_ps
    parts = found.why().parts
    assert sum(parts.values()) == found.time_ps
    assert parts["credits"] > 0
    if which == "datelines" and lost:
        assert "the routes of one orbit take different virtual channels (datelines)" in found.symmetry


@pytest.mark.parametrize("model", [{"nic": "shared"}, {}])
def test_two_channels_share_a_link_by_turns(model: dict[str, Any]) -> None:
    """Both engines agree on a fabric, with NICs and without, and with tasks added to it by a perturbed run."""
    schedule = build("recursive-doubling", "all-reduce", from_spec("torus:2x8", **ROUTERS), "64KiB")
    for more in ({}, {"buffer": "32KiB"}):
        one, other = (simulate(schedule, chunk="4KiB", vcs=2, engine=engine, **model, **more)
                      for engine in ("chunk", "reference"))
        assert one.time_ps == other.time_ps
        assert "2 virtual channels" in str(one)
        assert one.row()["vcs"] == 2
        assert one.spread(2).high_ps >= one.time_ps * 0.99


def test_where_no_route_crosses_a_dateline_the_program_is_that_of_one_channel() -> None:
    schedule = build("bucket", "all-reduce", from_spec("torus:4x4", **ROUTERS), "64KiB")
    one, two = (simulate(schedule, vcs=vcs) for vcs in (1, 2))
    assert (one.time_ps, one.symmetry) == (two.time_ps, two.symmetry)
    assert not two.lowered.program.has_channels


def test_what_channels_are_not_combined_with_is_rejected() -> None:
    fabric = from_spec("ring:4")
    schedule = build("ring", "all-reduce", fabric, "1MiB")
    rejected: tuple[tuple[dict[str, Any], str], ...] = (
        ({"engine": "fluid", "vcs": 2}, "vcs 2: not with the fluid engine"),
        ({"vcs": 3}, "links have 1 virtual channel, or 2 with datelines"),
        ({"bubble": True}, "bubble: is about buffers"),
        ({"bubble": True, "buffer": "1MiB", "vcs": 2}, "bubble: is about buffers of links with one virtual channel"),
        ({"bubble": True, "buffer": "1KiB", "chunk": "1000B"}, "smaller than two of the largest chunk, 1,?000 B"),
    )
    for options, said in rejected:
        with pytest.raises(WeftError, match=said):
            simulate(schedule, **options)
    for spec in ("switch:4", "fc:4", "circulant:16x1x5", "twisted-torus:4x4x8"):
        with pytest.raises(WeftError, match=f"datelines are of rings: on {spec} the link .* is no step along.*--vcs 1"):
            simulate(build("direct", "all-to-all", from_spec(spec), "1KiB"), vcs=2)
