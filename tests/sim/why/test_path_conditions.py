"""Every piece of a critical path against an oracle that knows what may lie before what."""

from __future__ import annotations

from hypothesis import given, settings

from sim.engine.run import run
from sim.program import Program
from sim.program.outcome import Deadlock, Outcome
from sim.why.faulty_path import walk_of
from sim.why.path import Labels, Why
from tests.fault_strategies import faulty_programs
from tests.oracles.critical_path import Paths
from tests.strategies import fifo_programs, programs


def classes(program: Program) -> Labels:
    """Servers in two classes; a third of each latency is called a wire, and one picosecond an endpoint."""
    def latency(at: int) -> list[tuple[str, int]]:
        total = int(program.route_latency_ps[at])
        return [("wire", total // 3), ("endpoint", min(total, 1))]

    return Labels(lambda server: "even" if server % 2 == 0 else "odd", latency)


def explained(program: Program) -> tuple[Outcome, Why] | None:
    try:
        outcome = run(program, log=True)
    except Deadlock:
        return None
    return outcome, walk_of(program, outcome, classes(program)).walk()


def check(program: Program) -> None:
    found = explained(program)
    if found is None:
        return
    outcome, why = found
    assert why.makespan_ps == outcome.makespan_ps
    assert Paths(program, outcome, classes(program)).explain(why.pieces)
    served = {label: sum(piece.end_ps - piece.start_ps for piece in why.pieces if piece.name.endswith(f", {label}")
                         and not piece.name.startswith("waiting"))
              for label in ("even", "odd")}
    assert {label: ps for label, ps in served.items() if ps} == why.service_ps


@settings(max_examples=240)
@given(programs(pools=False))
def test_pieces_are_what_the_log_says(program: Program) -> None:
    check(program)


@settings(max_examples=160)
@given(faulty_programs(base=fifo_programs()))
def test_pieces_are_what_the_journal_says(program: Program) -> None:
    check(program)
