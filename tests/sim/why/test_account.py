"""The account carried forward: the same sums as the walk back along a log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from collectives import build
from sim.engine.run import Run, run
from sim.lower.schedule import lower
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.model import SWING_PAPER, Model
from sim.program.outcome import Deadlock
from sim.why.account import account, plain_labels
from sim.why.explain import account_lowered, explain_lowered
from sim.why.path import explain
from tests.strategies import programs
from topologies import from_spec


@settings(max_examples=200, deadline=None)
@given(programs())
def test_parts_sum_to_the_makespan(program: Program) -> None:
    """On any program that ends, every picosecond has a name, and the run is the same as without an account."""
    try:
        outcome = run(program)
    except Deadlock:
        return
    found = account(program)
    assert found.makespan_ps == outcome.makespan_ps == sum(found.parts.values())


def unlike() -> Program:
    """Transfers whose times never coincide: the critical path is the only one."""
    builder = ProgramBuilder()
    wires = [builder.server(rate) for rate in (50e9, 33e9, 71e9)]
    first = builder.task(1_000_003, [(wires[0], 500_001), (wires[1], 100_003)], Cutting(chunks=7))
    second = builder.task(700_001, [(wires[1], 90_001), (wires[2], 10_007)], Cutting(chunks=5), stream=[first])
    third = builder.task(400_009, [(wires[2], 7_001)], Cutting(chunks=3), after=[first])
    builder.task(300_007, [(wires[0], 4_001), (wires[2], 3_001)], Cutting(chunks=4), after=[second, third])
    return builder.build()


def test_where_nothing_ties_it_is_the_walk() -> None:
    """Name by name, where there is only one critical path."""
    program = unlike()
    found, why = account(program), explain(program, run(program, log=True))
    assert found.parts == why.parts
    assert found.service_ps == why.service_ps


MODELS = {"default": Model(), "swing": SWING_PAPER, "priority": Model(discipline="priority")}
NAMES = {f"{what}, dimension {dim}" for what in ("serialisation", "queueing") for dim in (0, 1)}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("algorithm", "topology"), [("ring", "torus:8"), ("swing", "torus:4x4"), ("bucket", "torus:4x2")]
)
def test_on_the_quotient_it_names_what_the_walk_names(algorithm: str, topology: str, model: Model) -> None:
    """The account of a symmetric run sums to its time under the names of the topology."""
    lowered = lower(build(algorithm, "all-reduce", from_spec(topology), "1MiB"), model)
    found, why = account_lowered(lowered), explain_lowered(lowered)
    assert sum(found.parts.values()) == found.makespan_ps == why.makespan_ps
    assert set(found.parts) <= NAMES | {"propagation", "hop processing", "endpoint"}
    assert found.parts.get("endpoint", 0) == why.parts.get("endpoint", 0)


def test_memory_does_not_grow_with_the_services() -> None:
    """Ten times the chunks on one wire, the same arrays."""

    def of(chunks: int) -> int:
        builder = ProgramBuilder()
        builder.task(10**6, [(builder.server(1e9), 0)], Cutting(chunks=chunks))
        program = builder.build()
        one = Run(program, labels=plain_labels(program))
        one.advance()
        return sum(array.nbytes for array in one.state)

    assert of(1000) == of(100)
