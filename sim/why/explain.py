"""The critical path of a lowered schedule, with the names of its topology."""

from __future__ import annotations

from sim.engine.run import check_memory, run
from sim.lower.schedule import Lowered
from sim.program.outcome import Outcome
from sim.why.path import Labels, Why, explain


def explain_lowered(lowered: Lowered, outcome: Outcome | None = None) -> Why:
    """Why a schedule takes as long as it does; runs it with a log unless a logged outcome is given."""
    if outcome is None or outcome.log is None:
        check_memory(lowered.program, log=True)
        outcome = run(lowered.program, log=True)
    return explain(lowered.program, outcome, labels(lowered))


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
