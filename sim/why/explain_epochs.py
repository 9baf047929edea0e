"""The critical path of a job whose circuits change: what switching took, and what the start of steps took."""

from __future__ import annotations

import numpy as np

from sim.lower.lowered import Lowered
from sim.program.outcome import Outcome
from sim.why.path import Labels, Why, explain


def explain_epochs(lowered: Lowered, outcome: Outcome) -> Why:
    """Where the time went; the endpoint latency of the model is the start-up of a step.

    `lowered`: of a job of `workloads.reconfigured`.
    `outcome`: of a run with `log=True`.
    WeftError: the run kept no log.
    """
    program = lowered.program
    controllers = set(np.flatnonzero(lowered.server_link < 0).tolist())

    def latency(at: int) -> list[tuple[str, int]]:
        hop = program.route_hop[at]
        last = program.hop_last[hop] and int(program.hop_server[hop]) not in controllers
        return [("start-up", lowered.model.endpoint_latency_ps)] if last else []

    found = explain(program, outcome, Labels(lambda server: "circuits", latency))
    pieces = tuple(
        piece._replace(name="reconfiguration") if piece.server in controllers else piece for piece in found.pieces
    )
    return Why(found.makespan_ps, pieces, found.service_ps)
