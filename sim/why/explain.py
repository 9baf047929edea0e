"""The critical path of a lowered run, with the names of its topology and its job."""

from __future__ import annotations

from sim.engine.run import check_size, run
from sim.lower.lowered import Lowered
from sim.program.outcome import Outcome
from sim.why.faulty_path import walk_of
from sim.why.names import Names
from sim.why.path import Why
from topologies.checks import choice
from topologies.garbage import few_searches
from topologies.stages import staged

BY = ("dimension", "operation", "kind", "tenant")


def run_with_log(lowered: Lowered) -> Outcome:
    """A run of the chunk engine that keeps every service."""
    check_size(lowered.program, log=True, asked=True)
    return run(lowered.program, log=True)


@staged("critical path")
@few_searches()
def explain_run(lowered: Lowered, outcome: Outcome, by: str = "dimension") -> Why:
    """Why a run takes as long as it does.

    Parameters
    ----------
    lowered : Lowered
    outcome : Outcome
        Of a run with `log=True`.
    by : {"dimension", "operation", "kind", "tenant"}
        How pieces are named: what was done on which class of servers ("serialization, dimension 0"), or whose it was:
        the operation ("gradients 3"), its kind ("data all-reduce"), or its tenant.

    Raises
    ------
    WeftError
        The run kept no log, or another name.
    """
    choice(by, BY, "by")
    names = Names(lowered)
    found = walk_of(lowered.program, outcome, names.labels).walk()
    kinds = {piece[2:]: piece for piece in found.pieces}  # all that a name depends on
    named = {kind: names.name(piece, by) for kind, piece in kinds.items()}
    pieces = tuple(
        piece if piece.name == named[piece[2:]] else piece._replace(name=named[piece[2:]]) for piece in found.pieces
    )
    return Why(found.makespan_ps, pieces, found.service_ps)
