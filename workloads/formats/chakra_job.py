"""Chakra traces of all ranks as a job, so that weft's engines run what ASTRA-sim runs.

Collectives of one communicator group are matched by their order on each rank, messages by source, destination and tag.
A computation takes its duration, or, where it has none, what its operations take by a roofline; of those that are ready
the one of the smallest id goes first, as in ASTRA-sim (`workloads.formats.waits`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.units import counted
from workloads.formats.astra_memory import RemoteMemory, Roofline
from workloads.formats.chakra import Trace, in_order
from workloads.formats.chakra_json import Groups, groups_of
from workloads.formats.chakra_nodes import (
    EVERYONE,
    Communicates,
    Computes,
    Exchanges,
    Meaning,
    Remembers,
    ending_of,
    meaning,
    passed_over,
    read_ranks,
)
from workloads.formats.comm_groups import Sets, of_rank
from workloads.formats.flight_recorder import read_dumps
from workloads.formats.kineto import read_profiles
from workloads.formats.waits import waits_outside
from workloads.group_collectives import GroupCollectives, Named
from workloads.job import COMPUTE_STREAM, Job

PS_PER_NS = 1000

CPU_STREAM, MEMORY_STREAM = "cpu", "remote memory"

OPERATIONS, BYTES, ACCESSES = "operations without a duration", "operations on bytes", "accesses to remote memory"

Members = tuple[int, ...]

_Place = tuple[int, int]
"""Rank, and place of a node in its trace."""


class Hardware(NamedTuple):
    """What computes and remembers, where traces say how much and not how long."""

    roofline: Roofline | None = None
    memory: RemoteMemory | None = None
    whose: str = ""  # rates, where nobody gave them: of a machine
    used: set[str] | None = None  # what timed something is added: operations, bytes, accesses


class _Shared(NamedTuple):
    """Nodes that are one operation; `sent` is the send of a receive."""

    what: Meaning
    places: tuple[_Place, ...]
    sent: _Place | None = None
    members: Members = ()  # of a collective, in the order of its group


@checked
def read_chakra(
    prefix: str | Path, topology: Topology, algorithms: str | Mapping[str, str] = "ring",
    groups: Mapping[int | str, tuple[int, ...]] | None = None,
) -> Job:
    """The job of the traces `<prefix>.<rank>.et`.

    Parameters
    ----------
    prefix : path
    topology : Topology
        Its NPUs have a trace each.
    algorithms : str or mapping of str to str
        Of every collective, or by collective; one that does not implement a collective leaves it to
        `workloads.group_collectives.DEFAULTS`.
    groups : mapping of int or str to tuple of int, optional
        Communicator groups by number or name (`workloads.formats.comm_groups`).

    Raises
    ------
    WeftError
        Files that are not traces, or traces inconsistent with each other, the topology or a job.
    """
    return open_chakra(prefix, topology, algorithms, {str(name): (npus,) for name, npus in (groups or {}).items()})[0]


def open_chakra(
    prefix: str | Path, topology: Topology, algorithms: Named, groups: Sets, hardware: Hardware = Hardware()
) -> tuple[Job, list[str]]:
    """The job, and notes: what is passed over, and which algorithms were chosen; as `read_chakra`."""
    traces, unread = read_ranks(prefix, topology.n_npus)
    if unread:
        raise WeftError(f"workload {prefix}: {unread[0]} is of a rank that {topology.name} does not have")
    job, notes = chakra_job(traces, topology, algorithms, groups, str(prefix), hardware, f".%d{ending_of(prefix)}")
    return job, [*passed_over(traces), *notes]


def open_dumps(prefix: str, topology: Topology, algorithms: Named) -> tuple[Job, list[str]]:
    """The job of dumps of PyTorch's flight recorder, and notes (`workloads.formats.flight_recorder`)."""
    traces, told = read_dumps(prefix, topology.n_npus)
    job, notes = chakra_job(traces, topology, algorithms, {}, prefix, ending="%d.json")
    return job, [*told, *notes]


def open_profiles(name: str, topology: Topology, algorithms: Named) -> tuple[Job, list[str]]:
    """The job of Kineto profiles of PyTorch, and notes (`workloads.formats.kineto`)."""
    traces, told = read_profiles(name, topology.n_npus)
    job, notes = chakra_job(traces, topology, algorithms, {}, name, ending=", rank %d")
    return job, [*told, *notes]


def chakra_job(
    traces: Sequence[Trace], topology: Topology, algorithms: Named = (), groups: Sets | None = None,
    name: str = "trace", hardware: Hardware = Hardware(), ending: str = ".%d.et",
) -> tuple[Job, list[str]]:
    """The job of traces, one a rank, and notes; as `read_chakra`.

    `ending`: of the names of their files, with the rank.
    """
    n, files = topology.n_npus, [f"trace {name}{ending % rank}" for rank in range(len(traces))]
    meanings = [
        [meaning(node, rank, n, files[rank]) for node in trace.nodes] for rank, trace in enumerate(traces)
    ]
    orders = [in_order(trace.nodes, where) for trace, where in zip(traces, files, strict=True)]
    known = [{**of_rank(groups or {}, rank), **groups_of(trace, n)} for rank, trace in enumerate(traces)]
    operations = _Matching(meanings, known, topology, name).operations(orders)
    named = {what.group for one in meanings for what in one if isinstance(what, Communicates)}
    if groups and not named & set(groups):
        given = ", ".join(list(groups)[:4])
        raise WeftError(f"workload {name}: no collective runs in a group that is given ({given}): omit the groups")
    turns = [_turns(*one) for one in zip(traces, meanings, orders, strict=True)]
    builder = _Builder(Job(topology), traces, turns, algorithms, hardware, files)
    for operation in _sorted(operations, traces, name):
        builder.add(operation)
    return builder.job, [*builder.notes, *builder.collectives.notes]


class _Turns(NamedTuple):
    """Of the nodes of a rank, by id."""

    place: Mapping[int, int]  # in the order of their stream
    waits: Mapping[int, Sequence[int]]


def _turns(trace: Trace, meanings: Sequence[Meaning], order: Sequence[int]) -> _Turns:
    numbers = [trace.nodes[at].id for at in order]
    stream = {node.id: name for node, what in zip(trace.nodes, meanings, strict=True) if (name := _stream(what))}
    waits = waits_outside(numbers, {node.id: node.after for node in trace.nodes}, stream)
    return _Turns({number: place for place, number in enumerate(numbers)}, waits)


def _stream(what: Meaning) -> str:
    if isinstance(what, Computes):
        return CPU_STREAM if what.on_cpu else what.stream or COMPUTE_STREAM
    return MEMORY_STREAM if isinstance(what, Remembers) else ""


class _Matching:
    """Nodes of all ranks that are one operation."""

    def __init__(
        self, meanings: Sequence[Sequence[Meaning]], groups: Sequence[Groups], topology: Topology, name: str
    ) -> None:
        self.meanings, self.groups, self.topology, self.name = meanings, groups, topology, name
        self._of_dims: dict[tuple[tuple[bool, ...], int], Members] = {}

    def operations(self, orders: Sequence[Sequence[int]]) -> list[_Shared]:
        found: list[_Shared] = []
        turns: dict[tuple[str, Members], dict[int, list[_Place]]] = defaultdict(lambda: defaultdict(list))
        ends: dict[tuple[int, int, int], tuple[list[_Place], list[_Place]]] = defaultdict(lambda: ([], []))
        for rank, order in enumerate(orders):
            for at in order:
                what = self.meanings[rank][at]
                if isinstance(what, Communicates):
                    turns[what.group, self._members(what, rank)][rank].append((rank, at))
                elif isinstance(what, Exchanges):
                    key = (rank, what.peer, what.tag) if what.sends else (what.peer, rank, what.tag)
                    ends[key][0 if what.sends else 1].append((rank, at))
                else:
                    found.append(_Shared(what, ((rank, at),)))
        for (group, members), lines in turns.items():
            found += self._collectives(group, members, lines)
        for (src, dst, tag), (sends, receives) in ends.items():
            found += self._messages(f"{self.name}: rank {src} to rank {dst}, tag {tag}", sends, receives)
        return found

    def _members(self, what: Communicates, rank: int) -> Members:
        if what.group not in EVERYONE:
            if what.group not in self.groups[rank]:
                raise WeftError(f"{self.name}: communicator group {what.group} is not given: --comm-group FILE")
            members = self.groups[rank][what.group]
            if rank not in members:
                raise WeftError(f"{self.name}: rank {rank} is not in its communicator group {what.group}")
            return members
        n_dims = len(self.topology.shape)
        dims = (*(what.dims or (True,) * n_dims), *(False,) * n_dims)[:n_dims]
        key = dims, -1 if all(dims) else rank
        if key not in self._of_dims:
            coords = self.topology.coords
            fixed = [dim for dim, involved in enumerate(dims) if not involved]
            alike = np.all(coords[:, fixed] == coords[rank, fixed], axis=1)
            self._of_dims[key] = tuple(np.flatnonzero(alike[: self.topology.n_npus]).tolist())
        return self._of_dims[key]

    def _collectives(self, group: str, members: Members, lines: Mapping[int, list[_Place]]) -> list[_Shared]:
        """The k-th collective of a group on all of its ranks, for every k."""
        of_each = [lines.get(rank, []) for rank in members]
        said = f"{self.name}: group {group or 0}"
        for rank, line in zip(members, of_each, strict=True):
            if len(line) != len(of_each[0]):
                raise WeftError(
                    f"{said}: rank {members[0]} has {len(of_each[0])} collectives and rank {rank} {len(line)}"
                )
        found = []
        for places in zip(*of_each, strict=True):
            what = [self.meanings[rank][at] for rank, at in places]
            alike = [(one.kind, one.size) for one in what if isinstance(one, Communicates)]
            for (rank, _), one in zip(places, alike, strict=True):
                if one != alike[0]:
                    raise WeftError(
                        f"{said}: rank {places[0][0]} begins {alike[0][0]} of {alike[0][1]} bytes while rank {rank} "
                        f"begins {one[0]} of {one[1]}"
                    )
            found.append(_Shared(what[0], tuple(places), members=members))
        return found

    def _messages(self, where: str, sends: list[_Place], receives: list[_Place]) -> list[_Shared]:
        if len(sends) != len(receives):
            raise WeftError(f"{where}: {len(sends)} sends and {len(receives)} receives")
        found = []
        for send, receive in zip(sends, receives, strict=True):
            what = [self.meanings[rank][at] for rank, at in (send, receive)]
            sizes = [one.size for one in what if isinstance(one, Exchanges)]
            if sizes[0] != sizes[1]:
                raise WeftError(f"{where}: {sizes[0]} bytes are sent and {sizes[1]} received")
            found += [_Shared(what[0], (send,)), _Shared(what[1], (receive,), send)]
        return found


def _sorted(operations: Sequence[_Shared], traces: Sequence[Trace], name: str) -> list[_Shared]:
    """In an order that respects what all nodes wait for."""
    owner = {place: number for number, one in enumerate(operations) for place in one.places}
    place_of = [{node.id: at for at, node in enumerate(trace.nodes)} for trace in traces]
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(operations)), ()))
    for number, one in enumerate(operations):
        before = [(rank, place_of[rank][other]) for rank, at in one.places for other in traces[rank].nodes[at].after]
        sorter.add(number, *(owner[place] for place in [*before, *([one.sent] if one.sent else [])]))
    try:
        return [operations[number] for number in sorter.static_order()]
    except CycleError as fault:
        rank, at = operations[min(fault.args[1])].places[0]
        node = traces[rank].nodes[at].id
        raise WeftError(f"{name}: rank {rank}: node {node} waits for itself in a cycle") from None


class _Builder:
    """Adds operations to a job; a node of the trace is then known by the number of its operation."""

    def __init__(
        self, job: Job, traces: Sequence[Trace], turns: Sequence[_Turns], algorithms: Named, hardware: Hardware,
        files: Sequence[str],
    ) -> None:
        self.job, self.traces, self.turns, self.hardware, self.files = job, traces, turns, hardware, files
        self.collectives = GroupCollectives(job.topology, algorithms)
        self.used: set[str] = set() if hardware.used is None else hardware.used
        self.unbound = 0  # operations whose bytes no rate of a memory times
        self.number: dict[tuple[int, int], int] = {}

    @property
    def notes(self) -> list[str]:
        rates, whose = self.hardware.roofline, self.hardware.whose
        if rates is None or OPERATIONS not in self.used:
            return []
        if self.unbound:
            return [f"{counted(self.unbound, 'operation')} move bytes that take no time of their own: "
                    "--memory-bandwidth RATE times what memory bounds"]
        return [f"operations without a duration take the rates of {whose}: --peak, --efficiency and --memory-bandwidth "
                "give others"] if whose else []

    def add(self, operation: _Shared) -> None:
        """Add an operation whose predecessors are there."""
        nodes = [(rank, self.traces[rank].nodes[at]) for rank, at in operation.places]
        after = [self.number[rank, other] for rank, node in nodes for other in self.turns[rank].waits[node.id]]
        label, ranks, what = nodes[0][1].name or f"node {nodes[0][1].id}", [rank for rank, _ in nodes], operation.what
        where = f"{self.files[ranks[0]]}: node {nodes[0][1].id}"
        if isinstance(what, Computes):
            number = self._serve(label, "compute", what, ranks[0], nodes[0][1].id, self._compute_ps(what, where), after)
        elif isinstance(what, Remembers):
            time_ps = self._memory_ps(what, where)
            number = self._serve(label, "remote memory", what, ranks[0], nodes[0][1].id, time_ps, after)
        elif isinstance(what, Communicates):
            size = what.size * len(operation.members) if what.kind in ("all-gather", "gather") else what.size
            number = self.collectives.add(self.job, label, what.kind, size, operation.members, after)
        elif isinstance(what, Exchanges):
            number = self._exchange(label, what, ranks[0], operation.sent, after)
        else:
            number = self.job.send(label, 0, ranks, ranks, kind="join", after=after)
        for rank, node in nodes:
            self.number[rank, node.id] = number

    def _serve(self, label: str, kind: str, what: Meaning, rank: int, node: int, time_ps: int, after: list[int]) -> int:
        """Work on a stream, in its turn."""
        return self.job.compute(label, time_ps, kind=kind, stream=_stream(what), npus=[rank], after=after,
                                priority=self.turns[rank].place[node])

    def _compute_ps(self, what: Computes, where: str) -> int:
        if what.duration_ns or not what.operations:
            return what.duration_ns * PS_PER_NS
        if self.hardware.roofline is None:
            raise WeftError(
                f"{where} has {what.operations:,} operations and no duration: give --peak TFLOPS, and for what its "
                "memory bounds --memory-bandwidth RATE, ASTRA-sim's --system FILE, or a --machine whose GPU is known"
            )
        self.used |= {OPERATIONS, *([BYTES] if what.bytes else [])}
        self.unbound += bool(what.bytes) and self.hardware.roofline.memory_Bps is None
        return self.hardware.roofline.time_ps(what.operations, what.bytes or 0)

    def _memory_ps(self, what: Remembers, where: str) -> int:
        memory = self.hardware.memory
        if memory is None and not what.duration_ns:
            raise WeftError(f"{where} is an access to remote memory: give --remote-memory FILE")
        if memory is not None and memory.sharing != 1:
            raise WeftError(f"{where} is an access to a memory that NPUs share: only weft astra lets them wait for it")
        self.used.add(ACCESSES)
        return (what.duration_ns if memory is None else memory.time_ns(what.bytes)) * PS_PER_NS

    def _exchange(self, label: str, what: Exchanges, rank: int, sent: _Place | None, after: list[int]) -> int:
        """A message; or its receive, which is the message itself unless it waits for more."""
        if sent is None:
            return self.job.send(label, what.size, [rank], [what.peer], after=after)
        source, at = sent
        message = self.number[source, self.traces[source].nodes[at].id]
        return self.job.send(label, 0, [rank], [rank], kind="join", after=[message, *after]) if after else message
