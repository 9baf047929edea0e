"""The critical path of a lowered run, with the names of its topology and its job."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.run import check_memory, run
from sim.lower.lowered import Lowered
from sim.program import check_choice
from sim.program.outcome import Outcome
from sim.why.faulty_path import walk_of
from sim.why.path import Labels, Why
from sim.why.walks import Piece

LATE = "late worker"
BY = ("dimension", "operation", "kind", "tenant")


def run_with_log(lowered: Lowered) -> Outcome:
    """A run of the chunk engine that keeps every service."""
    check_memory(lowered.program, log=True)
    return run(lowered.program, log=True)


def explain_run(lowered: Lowered, outcome: Outcome, by: str = "dimension") -> Why:
    """Why a run takes as long as it does.

    Parameters
    ----------
    lowered : Lowered
    outcome : Outcome
        Of a run with `log=True`.
    by : {"dimension", "operation", "kind", "tenant"}
        How pieces are named: what was done on which class of servers ("serialisation, dimension 0"), or whose it was:
        the operation ("gradients 3"), its kind ("data all-reduce"), or its tenant.

    Raises
    ------
    WeftError
        The run kept no log, or another name.
    """
    check_choice(by, BY, "by")
    found = walk_of(lowered.program, outcome, labels(lowered)).walk()
    name = _namer(lowered, by)
    return Why(found.makespan_ps, tuple(piece._replace(name=name(piece)) for piece in found.pieces), found.service_ps)


def _namer(lowered: Lowered, by: str) -> Callable[[Piece], str]:
    """What pieces are called, given their names by dimension; a late start is named so whichever task waits for it."""
    operations, server = lowered.job.operations, labels(lowered).server

    def name(piece: Piece) -> str:
        if piece.server in lowered.late:
            return server(piece.server)
        if by == "dimension" or piece.task >= lowered.task_operation.size:
            return piece.name
        operation = operations[int(lowered.task_operation[piece.task])]
        named = {"operation": operation.name, "kind": operation.kind, "tenant": operation.tenant}[by]
        return operation.name if named is None else named

    return name


def labels(lowered: Lowered) -> Labels:
    """Names for the critical path: links by their dimension, streams, late starts; latencies as wire, hop, endpoint."""
    topology, program = lowered.topology, lowered.program

    def server(index: int) -> str:
        if index in lowered.late:
            return f"{LATE} {lowered.late[index]}"
        if index in lowered.timers:
            return "timeout"
        link = int(lowered.server_link[index])
        if link < 0:
            return "compute" if lowered.server_rank[index] >= 0 else "reconfiguration"
        dimension = int(topology.dimension[link])
        return f"dimension {dimension}" if dimension >= 0 else "links"

    def latency(at: int) -> list[tuple[str, int]]:
        kind = program.route_hop[at]
        link = int(lowered.server_link[program.hop_server[kind]])
        if link < 0:
            return [(server(int(program.hop_server[kind])), int(program.hop_latency_ps[kind]))]
        endpoint = lowered.model.endpoint_latency_ps if program.hop_last[kind] else 0
        return [("hop processing", int(topology.hop_latency_ps[topology.dst[link]])), ("endpoint", endpoint)]

    return Labels(server, latency)
