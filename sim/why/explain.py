"""The critical path of a lowered schedule, with the names of its topology."""

from __future__ import annotations

import numpy as np

from sim.engine.run import AccountLabels, check_memory, run
from sim.lower.schedule import Lowered
from sim.program.outcome import Outcome
from sim.why.account import Account, account
from sim.why.path import Labels, Why, explain


def explain_lowered(lowered: Lowered, outcome: Outcome | None = None) -> Why:
    """Why a schedule takes as long as it does; runs it with a log unless a logged outcome is given."""
    if outcome is None or outcome.log is None:
        check_memory(lowered.program, log=True)
        outcome = run(lowered.program, log=True)
    return explain(lowered.program, outcome, labels(lowered))


def account_lowered(lowered: Lowered) -> Account:
    """Where the time of a schedule goes, for runs whose log would not fit in memory."""
    return account(lowered.program, account_labels(lowered))


def account_labels(lowered: Lowered) -> AccountLabels:
    """The names of `labels`, in the columns that the engine carries along."""
    topology, shape, program = lowered.schedule.topology, lowered.shape, lowered.program
    dimensions, server_class = np.unique(topology.dimension[shape.server_link], return_inverse=True)
    link = shape.server_link[program.hop_server]
    hop = topology.hop_latency_ps[topology.dst[link]]
    endpoint = np.where(program.hop_last != 0, lowered.model.endpoint_latency_ps, 0)
    return AccountLabels(
        classes=tuple(f"dimension {dim}" if dim >= 0 else "links" for dim in dimensions.tolist()),
        server_class=server_class.astype(np.int32),
        latencies=("propagation", "hop processing", "endpoint"),
        latency_ps=np.stack([program.hop_latency_ps - hop - endpoint, hop, endpoint], axis=1),
    )


def labels(lowered: Lowered) -> Labels:
    """Servers named by the dimension of their links; latencies split into wire, hop and endpoint."""
    topology, shape, program = lowered.schedule.topology, lowered.shape, lowered.program
    ends = set((shape.route_ptr[1:] - 1).tolist())

    def server(index: int) -> str:
        dimension = int(topology.dimension[shape.server_link[index]])
        return f"dimension {dimension}" if dimension >= 0 else "links"

    def latency(at: int) -> list[tuple[str, int]]:
        link = shape.server_link[program.hop_server[program.route_hop[at]]]
        hop = int(topology.hop_latency_ps[topology.dst[link]])
        endpoint = lowered.model.endpoint_latency_ps if at in ends else 0
        return [("hop processing", hop), ("endpoint", endpoint)]

    return Labels(server, latency)
