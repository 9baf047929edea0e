"""The critical path of a lowered run, with the names of its topology and its job."""

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property

import numpy as np

from sim.engine.run import check_size, run
from sim.lower.lowered import Lowered
from sim.lower.nics import STREAMS
from sim.lower.rotor import turns_of
from sim.program import I64, unique_rows
from sim.program.outcome import Outcome
from sim.why.faulty_path import MOVED, RESENT, walk_of
from sim.why.logged_path import LoggedWalk
from sim.why.path import REPAIR, Account, Labels, Piece, Trail, Walks, Why
from topologies.checks import choice
from topologies.process import few_searches
from topologies.stages import staged
from workloads.job import Compute, Operation, Reconfigure

LATE, RECONFIGURATION, TURN = "late worker", "reconfiguration", "waiting for the turn of a circuit"

IDLE_ELSEWHERE = "computation of others"
"""Time in which an NPU waits for what another one computes: the bubbles of a pipeline."""

WAIT_ELSEWHERE = "communication of others"
"""Time in which an NPU waits for communication in which it does not take part at that moment."""

NO_DIMENSION = ""

MOST_KEPT = 4_000_000
"""Services of a run up to which the pieces of its critical path are kept: they would outgrow all else."""


class Names:
    """Names for the critical path of a lowered run.

    `labels`: links by their dimension, streams, late starts; latencies as wire, hop, endpoint.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        turns = turns_of(lowered.topology) is not None
        self.labels = Labels(self._server, self._latency, TURN if turns else REPAIR)

    def operation(self, piece: Piece) -> Operation | None:
        """The operation of a piece; None for a task that faults have added."""
        number = self.number(piece)
        return self.lowered.job.operations[number] if number >= 0 else None

    def number(self, piece: Piece) -> int:
        """Number of the operation of a piece; -1 for a task that faults have added."""
        of_task = self.lowered.task_operation
        return int(of_task[piece.task]) if piece.task < of_task.size else -1

    def kinds(self, walks: Walks, trail: Trail, classes: I64) -> tuple[tuple[Piece, ...], I64]:
        """A piece of each kind, and the kind of each piece of some paths.

        `classes`: of the operations, (n,); pieces of operations of one class are called alike.
        """
        of_task = np.append(classes[self.lowered.task_operation], classes.size)
        operation, server = of_task[np.minimum(trail.task, of_task.size - 1)], self._server_class[trail.server]
        named = trail.name.astype(np.int64) * self._server_class.size + server
        kinds, kind = unique_rows(named * (classes.size + 1) + operation)
        some = np.zeros(kinds.size, np.int64)
        some[kind] = np.arange(kind.size)
        return trail.at(some).listed(walks.names), kind

    def name(self, piece: Piece, by: str = "dimension") -> str:
        """Of a piece by its dimension, operation, kind or tenant; a late start whichever task waits for it."""
        if piece.server in self.lowered.late:
            return self._server(piece.server)
        operation = self.operation(piece)
        return piece.name if operation is None else self.said(operation, piece.name, by)

    @staticmethod
    def said(operation: Operation, name: str, by: str) -> str:
        """What a piece of an operation is called that has a name of its own."""
        if by == "dimension":
            return RECONFIGURATION if isinstance(operation.work, Reconfigure) else name
        return {"operation": operation.name, "kind": operation.kind, "tenant": operation.tenant}[by] or operation.name

    def exposed(self, piece: Piece) -> tuple[str, str]:
        """Kind of communication and dimension of a piece for which a computation waits."""
        operation = self.operation(piece)
        if operation is None:
            return LATE, NO_DIMENSION
        if piece.name.startswith((REPAIR, TURN, RESENT, MOVED)):
            return operation.kind, piece.name.partition(",")[0]
        if isinstance(operation.work, Compute):
            return IDLE_ELSEWHERE, NO_DIMENSION
        return operation.kind, NO_DIMENSION if isinstance(operation.work, Reconfigure) else self._server(piece.server)

    @cached_property
    def _server_class(self) -> I64:
        """Servers with one label have one number; the last one is of no server."""
        return classes_of([*map(self._server, range(self.lowered.program.n_servers)), None])

    def dimension(self, link: int) -> str:
        """Of a link: "dimension 0", or "links" where it has none."""
        number = int(self.lowered.topology.dimension[link])
        return f"dimension {number}" if number >= 0 else "links"

    def _server(self, index: int) -> str:
        lowered = self.lowered
        if index in lowered.late:
            return f"{LATE} {lowered.late[index]}"
        if index in lowered.timers:
            return "timeout"
        link = int(lowered.server_link[index])
        if link >= 0:
            return self.dimension(link)
        if lowered.is_end(index):
            return STREAMS[lowered.server_stream[index]]
        return "compute" if lowered.server_rank[index] >= 0 else RECONFIGURATION

    def _latency(self, hop: int) -> list[tuple[str, int]]:
        lowered, program, topology = self.lowered, self.lowered.program, self.lowered.topology
        server = int(program.hop_server[hop])
        link = int(lowered.server_link[server])
        if link < 0:
            name = "endpoint" if lowered.is_end(server) else self._server(server)
            return [(name, int(program.hop_latency_ps[hop]))]
        endpoint = lowered.model.endpoint_latency_ps if program.hop_last[hop] else 0
        if program.has_nics:  # a part of it lies behind the NIC
            of_link = int(topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]])
            endpoint = int(program.hop_latency_ps[hop]) - of_link if program.hop_last[hop] else 0
        return [("hop processing", int(topology.hop_latency_ps[topology.dst[link]])), ("endpoint", endpoint)]


def classes_of(values: Iterable[Hashable]) -> I64:
    """The number of each value, (n,): equal ones have one."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in values], np.int64)


BY = ("dimension", "operation", "kind", "tenant")


def run_with_log(lowered: Lowered) -> Outcome:
    """A run of the chunk engine that keeps every service."""
    check_size(lowered.program, log=True, asked=True)
    return run(lowered.program, log=True)


@staged("critical path")
@few_searches()
def explain_run(lowered: Lowered, outcome: Outcome, by: str = "dimension") -> Why:
    """Why a run takes as long as it does.

    `outcome`: of a run with `log=True`.
    `by`: {"dimension", "operation", "kind", "tenant"}; how pieces are named: what was done on which class of servers
        ("serialization, dimension 0"), or whose it was: the operation ("gradients 3"), its kind ("data all-reduce"), or
        its tenant.
    WeftError: the run kept no log, or another name.
    """
    choice(by, BY, "by")
    if outcome.log is None or outcome.events <= MOST_KEPT:
        return _walked(lowered, outcome, by)
    walks = LoggedWalk(lowered.program, outcome, Names(lowered).labels, once=True)
    account = walks.account(_renaming(lowered, walks, by))
    return Account(outcome.makespan_ps, *account, lambda: _walked(lowered, run_with_log(lowered), by))


def _walked(lowered: Lowered, outcome: Outcome, by: str) -> Why:
    walks = walk_of(lowered.program, outcome, Names(lowered).labels)
    return walks.walk(_renaming(lowered, walks, by))


def _renaming(lowered: Lowered, walks: Walks, by: str) -> Callable[[Trail], Trail]:
    """What gives pieces the names that are asked for."""
    names, classes = Names(lowered), classes_of(Names.said(one, "", by) for one in lowered.job.operations)

    def rename(trail: Trail) -> Trail:
        some, kind = names.kinds(walks, trail, classes)
        return trail._replace(name=np.array([walks.number(names.name(one, by)) for one in some], np.int64)[kind])

    return rename
