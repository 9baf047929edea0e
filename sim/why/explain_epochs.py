"""The critical path of a program whose circuits change: what switching took, and what the start of steps took."""

from __future__ import annotations

from sim.lower.epochs import EpochProgram
from sim.program.outcome import Outcome
from sim.why.path import Labels, Why, explain


def explain_epochs(epochs: EpochProgram, outcome: Outcome, start_up_ps: int = 0) -> Why:
    """Where the time went.

    Parameters
    ----------
    epochs : EpochProgram
    outcome : Outcome
        Of a run with `log=True`.
    start_up_ps : int
        Of a step: the endpoint latency of the model that the program was built with.

    Raises
    ------
    WeftError
        The run kept no log.
    """
    program = epochs.program
    controllers = set(program.hop_server[_hops_of(epochs)].tolist())

    def latency(at: int) -> list[tuple[str, int]]:
        hop = program.route_hop[at]
        last = program.hop_last[hop] and int(program.hop_server[hop]) not in controllers
        return [("start-up", start_up_ps)] if last else []

    found = explain(program, outcome, Labels(lambda server: "circuits", latency))
    pieces = tuple(
        piece._replace(name="reconfiguration") if piece.server in controllers else piece for piece in found.pieces
    )
    return Why(found.makespan_ps, pieces, found.service_ps)


def _hops_of(epochs: EpochProgram) -> list[int]:
    """The hop of each task on the controller; a change that takes no time has none."""
    program = epochs.program
    starts = [int(program.route_ptr[program.task_route[task]]) for task in epochs.switching]
    ends = [int(program.route_ptr[program.task_route[task] + 1]) for task in epochs.switching]
    return [int(program.route_hop[start]) for start, end in zip(starts, ends, strict=True) if end > start]
