"""The critical path: every picosecond of it has a name, on any program."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from sim.engine.compile.rows import rows
from sim.engine.run import run
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.outcome import Deadlock
from sim.why import spans
from sim.why.backward import PieceRow
from sim.why.faulty_path import walk_of
from sim.why.path import PLAIN, Labels, LoggedWalk, Trail, Why, by_kind
from sim.why.spans import BY
from tests.strategies import programs
from topologies import WeftError, bytes_per_s, from_spec


def why_of(program: Program) -> Why:
    return LoggedWalk(program, run(program, log=True)).walk()


@settings(max_examples=200, deadline=None)
@given(programs())
def test_pieces_fill_the_time_from_start_to_makespan(program: Program) -> None:
    """On any program the pieces follow each other without gap or overlap, and sum to the makespan."""
    try:
        why = why_of(program)
    except Deadlock:
        return
    ends = [0, *(piece.end_ps for piece in why.pieces)]
    starts = [*(piece.start_ps for piece in why.pieces), why.makespan_ps]
    assert starts == ends
    assert sum(why.parts.values()) == why.makespan_ps


def test_the_account_in_words() -> None:
    """Largest first, with shares; a run of one picosecond, and one of none."""
    columns = np.array([[0, 1, 4, 5], [1, 4, 5, 10], [0, 1, 2, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
    names = "a, x", "b, y", "a, y"
    assert str(Why(10, Trail(*columns), names, {})) == (
        "10 ps = 10 ps, of which\n                 8 ps   80.0%  b, y\n                 1 ps   10.0%  a, x\n"
        "                 1 ps   10.0%  a, y"
    )
    assert str(Why(1, Trail(*columns[:, :1]), names, {})).endswith("1 ps  100.0%  a, x")
    assert str(Why(0, Trail(*columns[:, :0]), names, {})) == "0 ps = 0 ps, of which"
    assert by_kind(Why(10, Trail(*columns), names, {}).parts) == {"b": 8, "a": 2}
    assert by_kind({"a: x, y": 1, "a: z": 2}, ": ") == {"a": 3}


def test_one_transfer_is_serialization_and_propagation() -> None:
    """Ten bytes at one byte a nanosecond and 5 ns of wire: 10 ns and 5 ns."""
    builder = ProgramBuilder()
    wire = builder.server(1e9)
    builder.task(10, [(wire, 5000)])
    assert why_of(builder.build()).parts == {"serialization, server 0": 10_000, "propagation": 5_000}


def test_waiting_for_another_transfer_is_queueing() -> None:
    """The second of two transfers on a wire spends the first one's service in the queue."""
    builder = ProgramBuilder()
    wire = builder.server(1e9)
    builder.task(10, [(wire, 5000)], tie_class=0)
    builder.task(7, [(wire, 5000)], tie_class=1)
    parts = why_of(builder.build()).parts
    assert parts == {"queueing, server 0": 10_000, "serialization, server 0": 7_000, "propagation": 5_000}


def test_a_faster_link_after_a_slow_one_waits_for_the_tail() -> None:
    """Cut-through into a rising rate: the time until the tail can follow is serialization on the slow link."""
    builder = ProgramBuilder()
    slow, fast = builder.server(1e9), builder.server(2e9)
    builder.task(10, [(slow, 1000), (fast, 1000)])
    parts = why_of(builder.build()).parts
    assert parts == {"serialization, server 0": 5_000, "serialization, server 1": 5_000, "propagation": 2_000}


def test_waiting_for_units_of_a_pool_is_the_time_of_who_held_them() -> None:
    """With one slot the second transfer starts when the first is delivered: both are on the path."""
    builder = ProgramBuilder()
    wires = [builder.server(1e9), builder.server(1e9)]
    slot = builder.pool(1)
    for index, wire in enumerate(wires):
        task = builder.task(10, [(wire, 1000)], tie_class=index)
        builder.ask(task, slot)
        builder.give(task, slot)
    parts = why_of(builder.build()).parts
    assert parts == {"serialization, server 0": 10_000, "serialization, server 1": 10_000, "propagation": 2_000}


def test_services_on_the_path_give_the_derivative() -> None:
    """Slowing one class of links by a thousandth moves the makespan by a thousandth of its services on the path."""
    schedule = build("bucket", "all-reduce", from_spec("torus:4x4", bandwidth="50GB/s"), "1MiB")
    base = simulate(schedule, rank_progress="free")  # ports that wait for each other all wait for the slower class
    slower = from_spec("torus:4x4", bandwidth=[bytes_per_s(50e9 / 1.001), "50GB/s"])
    moved = simulate(build("bucket", "all-reduce", slower, "1MiB"), rank_progress="free").time_ps - base.time_ps
    assert moved == pytest.approx(base.why().service_ps["dimension 0"] / 1000, rel=1e-3)


def two_dimensions(forwarding: str, deliver: str, size_bytes: int, slow: float) -> Program:
    """Transfers along a fast and a slow server, each with latency, some waiting for others."""
    builder = ProgramBuilder(forwarding, deliver)
    fast_wire, slow_wire, back = builder.server(50e9), builder.server(slow), builder.server(50e9)
    cut = Cutting(chunks=8)
    first = builder.task(size_bytes, [(fast_wire, 500_000), (slow_wire, 200_000)], cut)
    second = builder.task(size_bytes, [(slow_wire, 200_000), (back, 500_000)], cut, stream=[first])
    builder.task(3 * size_bytes, [(back, 500_000), (slow_wire, 200_000)], cut, after=[second])
    return builder.build()


PROGRAMS = [
    two_dimensions(forwarding, deliver, 1 << 20, slow)
    for forwarding in ("store-and-forward", "cut-through")
    for deliver in ("tail", "head")
    for slow in (20e9, 130e9)
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_services_on_the_path_are_finite_differences(program: Program) -> None:
    """A thousandth more of each rate changes the engine's makespan by the services on the path, within a thousandth."""
    rates = Labels(lambda server: str(program.server_rate[server]), lambda hop: [])
    found = LoggedWalk(program, run(program, log=True), rates).walk()
    for rate in range(program.n_rates):
        service = program.service_ps.astype(np.float64)
        service[rate :: program.n_rates] /= 1 + 1e-3
        faster = run(program._replace(service_ps=np.rint(service).astype(np.int64))).makespan_ps
        expected = -found.service_ps.get(str(rate), 0) * 1e-3
        assert faster - found.makespan_ps == pytest.approx(expected, rel=2e-3, abs=100)  # rounding: 1 ps a service


def test_a_run_without_a_log_cannot_be_explained() -> None:
    """The message says what is missing."""
    builder = ProgramBuilder()
    builder.task(1, [(builder.server(1e9), 0)], Cutting(chunks=1))
    program = builder.build()
    with pytest.raises(WeftError, match="log=True"):
        LoggedWalk(program, run(program)).walk()
    with pytest.raises(WeftError, match="log=True"):
        walk_of(program, run(program), PLAIN)


@pytest.mark.parametrize("spec", ["torus:4x4", "switch:8", "hx2mesh:2x2", "torus:3x5"])
def test_the_account_of_a_collective_names_its_parts(spec: str) -> None:
    """Latencies are split into wires, hops and endpoints; the parts sum to the time."""
    result = simulate(build("direct", "all-to-all", from_spec(spec), "64KiB"), endpoint_latency="500ns")
    parts = result.why().parts
    assert sum(parts.values()) == result.time_ps
    assert parts["endpoint"] == 500_000
    assert {"propagation", "hop processing"} <= set(parts)
    assert np.all(np.array(list(parts.values())) > 0)


@pytest.mark.parametrize("name", ["swing", "bucket"])
def test_pieces_fill_the_time_with_nics(name: str) -> None:
    """Before the first chunk of a NIC is nothing, and what was sent long before another is not in front of it."""
    built = build(name, "all-reduce", from_spec("torus:4x4"), "64KiB")
    why = simulate(built, nic="shared", chunks=4).why()
    assert [0, *(piece.end_ps for piece in why.pieces)] == [*(piece.start_ps for piece in why.pieces), why.makespan_ps]


def test_a_join_that_gives_what_it_took_is_not_its_own_cause() -> None:
    """A join takes the slot that a transfer returns, and returns it in the same picosecond, chunk by chunk."""
    builder = ProgramBuilder()
    wire, other, slot = builder.server(1e9), builder.server(1e9), builder.pool(1)
    early = builder.task(1, [(other, 1000)])
    joins = [builder.task(3, (), Cutting(chunks=3), after=[early]) for _ in range(2)]
    holder = builder.task(10, [(wire, 5000)])
    last = builder.task(7, [(wire, 5000)], after=joins)
    for task in (holder, *joins):
        builder.ask(task, slot)
        builder.give(task, slot)
    why = why_of(builder.build())
    assert why.makespan_ps == 10_000 + 5_000 + 7_000 + 5_000
    assert [piece.task for piece in why.pieces if piece.name == "propagation"] == [holder, last]


@given(programs(), st.integers(3, 9))
@settings(deadline=None)
def test_an_account_without_pieces_is_that_of_the_path(program: Program, room: int) -> None:
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return
    walk, once = LoggedWalk(program, outcome), LoggedWalk(program, outcome, once=True)
    once.back = once.back._replace(pieces=rows(PieceRow, room))
    parts, served = once.account(lambda trail: trail)
    why = walk.walk()
    assert list(parts.items()) == list(why.parts.items()) and served == why.service_ps


def test_the_path_of_a_long_run_is_walked_once_more_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result = simulate(build("swing", "all-reduce", from_spec("torus:4x4"), "64KiB"), chunks=3)
    short = {by: result.why(by) for by in BY}
    monkeypatch.setattr(spans, "MOST_KEPT", 0)
    for by, why in short.items():
        long = result.why(by)
        assert list(long.parts.items()) == list(why.parts.items()) and str(long) == str(why)
        assert "trail" not in vars(long) and long == why and "trail" in vars(long)


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(1, 4), st.booleans())
def test_pieces_taken_together_have_the_parts_of_each(program: Program, groups: int, alike: bool) -> None:
    """Summed by group, name and class of server, where many servers are of one class, or each is of its own."""
    labels = Labels(lambda server: f"class {server % 2}", lambda hop: [("wire", 1)] * (hop % 2)) if alike else PLAIN
    try:
        walk = walk_of(program, run(program, log=True), labels)
    except Deadlock:
        return
    piece, _ = walk.followed(walk.end())
    group = np.arange(piece.size) % groups

    def summed(trail: Trail, groups_of: np.ndarray) -> Counter[tuple[int, int, str]]:
        total = Counter[tuple[int, int, str]]()
        for of, name, server, ps in zip(groups_of, trail.name, trail.server, trail.length_ps, strict=True):
            total[int(of), int(name), labels.server(int(server)) if server >= 0 else ""] += int(ps)
        return total

    each, source = walk.named(piece)
    assert summed(*walk.together(piece, group)) == summed(each, group[source])
