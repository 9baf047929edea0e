"""Chakra traces of all ranks as a job, so that weft's engines run what ASTRA-sim runs.

Collectives of one communicator group are matched by their order on each rank, messages by source, destination and tag.
Memory nodes, and communicator groups that are not a product of the network's dimensions, have no counterpart in a job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collectives.core.schedule import Schedule
from collectives.registry import build
from topologies import Topology, WeftError
from topologies.checks import checked
from workloads.formats.chakra import Trace, in_order
from workloads.formats.chakra_nodes import Communicates, Computes, Exchanges, Meaning, meaning, read_ranks
from workloads.job import COMPUTE_STREAM, Job

PS_PER_US = 10**6

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce")
"""Collectives that a job supports; broadcast and reduce have rank 0 as their root."""

_Place = tuple[int, int]
"""Rank, and place of a node in its trace."""


class _Shared(NamedTuple):
    """Nodes that are one operation; `sent` is the send of a receive."""

    what: Meaning
    places: tuple[_Place, ...]
    sent: _Place | None = None


@checked
def read_chakra(
    prefix: str | Path, topology: Topology, algorithms: str | Mapping[str, str] = "ring",
    groups: Mapping[int, tuple[int, ...]] | None = None,
) -> Job:
    """The job of the traces `<prefix>.<rank>.et`.

    Parameters
    ----------
    prefix : path
    topology : Topology
        Its NPUs have a trace each.
    algorithms : str or mapping of str to str
        Of every collective, or by collective; "hierarchical" for groups of some dimensions.
    groups : mapping of int to tuple of int, optional
        Communicator groups (`workloads.formats.comm_groups`).

    Raises
    ------
    WeftError
        Files that are not traces, or traces inconsistent with each other, the topology or a job.
    """
    traces, unread = read_ranks(prefix, topology.n_npus)
    if unread:
        raise WeftError(f"workload {prefix}: {unread[0]} is of a rank that {topology.name} does not have")
    return chakra_job(traces, topology, algorithms, groups, str(prefix))


def chakra_job(
    traces: Sequence[Trace], topology: Topology, algorithms: str | Mapping[str, str] = "ring",
    groups: Mapping[int, tuple[int, ...]] | None = None, name: str = "trace",
) -> Job:
    """The job of traces, one a rank; as `read_chakra`."""
    n, known = topology.n_npus, groups or {}
    meanings = [
        [meaning(node, rank, n, f"trace {name}.{rank}.et") for node in trace.nodes] for rank, trace in enumerate(traces)
    ]
    orders = [in_order(trace.nodes, f"trace {name}.{rank}.et") for rank, trace in enumerate(traces)]
    operations = _operations(meanings, orders, known, n, name)
    builder = _Builder(Job(topology), traces, algorithms, known)
    for operation in _sorted(operations, traces, name):
        builder.add(operation)
    return builder.job


def _operations(
    meanings: Sequence[Sequence[Meaning]], orders: Sequence[Sequence[int]], groups: Mapping[int, tuple[int, ...]],
    n: int, name: str,
) -> list[_Shared]:
    found: list[_Shared] = []
    turns: dict[tuple[int, int], list[_Place]] = defaultdict(list)
    ends: dict[tuple[int, int, int], tuple[list[_Place], list[_Place]]] = defaultdict(lambda: ([], []))
    for rank, order in enumerate(orders):
        for at in order:
            what = meanings[rank][at]
            if isinstance(what, Communicates):
                turns[what.group, rank].append((rank, at))
            elif isinstance(what, Exchanges):
                key = (rank, what.peer, what.tag) if what.sends else (what.peer, rank, what.tag)
                ends[key][0 if what.sends else 1].append((rank, at))
            else:
                found.append(_Shared(what, ((rank, at),)))
    for group in sorted({group for group, _ in turns}):
        found += _collectives(group, _members(group, groups, n, name), turns, meanings, name)
    for (src, dst, tag), (sends, receives) in ends.items():
        found += _messages(f"{name}: rank {src} to rank {dst}, tag {tag}", sends, receives, meanings)
    return found


def _members(group: int, groups: Mapping[int, tuple[int, ...]], n: int, name: str) -> tuple[int, ...]:
    if not group:
        return tuple(range(n))
    if group not in groups:
        raise WeftError(f"{name}: communicator group {group} is not given")
    return groups[group]


def _collectives(
    group: int, members: Sequence[int], turns: Mapping[tuple[int, int], list[_Place]],
    meanings: Sequence[Sequence[Meaning]], name: str,
) -> list[_Shared]:
    """The k-th collective of a group on all of its ranks, for every k."""
    for number, rank in (key for key in turns if key[0] == group):
        if rank not in members:
            raise WeftError(f"{name}: rank {rank} is not in its communicator group {number}")
    lines = [turns.get((group, rank), []) for rank in members]
    for rank, line in zip(members, lines, strict=True):
        if len(line) != len(lines[0]):
            raise WeftError(
                f"{name}: group {group}: rank {members[0]} has {len(lines[0])} collectives and rank {rank} {len(line)}"
            )
    found = []
    for places in zip(*lines, strict=True):
        what = [meanings[rank][at] for rank, at in places]
        alike = [(one.kind, one.size) for one in what if isinstance(one, Communicates)]
        for (rank, _), one in zip(places, alike, strict=True):
            if one != alike[0]:
                raise WeftError(
                    f"{name}: group {group}: rank {places[0][0]} begins an {alike[0][0]} of {alike[0][1]} bytes while "
                    f"rank {rank} begins an {one[0]} of {one[1]}"
                )
        found.append(_Shared(what[0], tuple(places)))
    return found


def _messages(
    where: str, sends: list[_Place], receives: list[_Place], meanings: Sequence[Sequence[Meaning]]
) -> list[_Shared]:
    if len(sends) != len(receives):
        raise WeftError(f"{where}: {len(sends)} sends and {len(receives)} receives")
    found = []
    for send, receive in zip(sends, receives, strict=True):
        sizes = [one.size for rank, at in (send, receive) if isinstance(one := meanings[rank][at], Exchanges)]
        if sizes[0] != sizes[1]:
            raise WeftError(f"{where}: {sizes[0]} bytes are sent and {sizes[1]} received")
        found += [
            _Shared(meanings[send[0]][send[1]], (send,)), _Shared(meanings[receive[0]][receive[1]], (receive,), send)
        ]
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
        self, job: Job, traces: Sequence[Trace], algorithms: str | Mapping[str, str],
        groups: Mapping[int, tuple[int, ...]],
    ) -> None:
        self.job, self.traces, self.algorithms, self.groups = job, traces, algorithms, groups
        self.number: dict[tuple[int, int], int] = {}
        self.schedules: dict[tuple[str, int, int], Schedule] = {}

    def add(self, operation: _Shared) -> None:
        """Add an operation whose predecessors are there."""
        nodes = [(rank, self.traces[rank].nodes[at]) for rank, at in operation.places]
        after = [self.number[rank, other] for rank, node in nodes for other in node.after]
        label, ranks, what = nodes[0][1].name or f"node {nodes[0][1].id}", [rank for rank, _ in nodes], operation.what
        if isinstance(what, Computes):
            stream = "cpu" if what.on_cpu else COMPUTE_STREAM
            number = self.job.compute(label, what.duration_us * PS_PER_US, kind="compute", stream=stream, npus=ranks,
                                      after=after)
        elif isinstance(what, Communicates):
            number = self.job.collective(label, self._schedule(what, label), npus=ranks, after=after)
        elif isinstance(what, Exchanges):
            number = self._exchange(label, what, ranks[0], operation.sent, after)
        else:
            number = self.job.send(label, 0, ranks, ranks, kind="join", after=after)
        for rank, node in nodes:
            self.number[rank, node.id] = number

    def _exchange(self, label: str, what: Exchanges, rank: int, sent: _Place | None, after: list[int]) -> int:
        """A message; or its receive, which is the message itself unless it waits for more."""
        if sent is None:
            return self.job.send(label, what.size, [rank], [what.peer], after=after)
        source, at = sent
        message = self.number[source, self.traces[source].nodes[at].id]
        return self.job.send(label, 0, [rank], [rank], kind="join", after=[message, *after]) if after else message

    def _schedule(self, what: Communicates, label: str) -> Schedule:
        key = what.kind, what.size, what.group
        if key not in self.schedules:
            self.schedules[key] = self._build(what, label)
        return self.schedules[key]

    def _build(self, what: Communicates, label: str) -> Schedule:
        if what.kind not in KINDS:
            raise WeftError(f"{label}: a {what.kind} is none of {', '.join(KINDS)}")
        if what.dims is not None and not all(what.dims[: len(self.job.topology.shape)]):
            raise WeftError(f"{label}: involved_dim {what.dims}: give a communicator group instead")
        topology = self.job.topology
        members = self.groups[what.group] if what.group else tuple(range(topology.n_npus))
        size = what.size * len(members) if what.kind == "all-gather" else what.size
        algorithm = self.algorithms if isinstance(self.algorithms, str) else self.algorithms.get(what.kind, "ring")
        options = {} if len(members) == topology.n_npus else {"group": group_spec(members, topology)}
        return build(algorithm, what.kind, topology, size, **options)


def group_spec(members: Sequence[int], topology: Topology) -> str:
    """Ranks as a process group of the topology's dimensions: "4,-1" (`collectives.core.process_groups`).

    WeftError: they are no product of equally spaced positions.
    """
    coords = topology.coords[np.array(sorted(members))]
    parts, count = [], 1
    for dim in range(coords.shape[1]):
        taken = np.unique(coords[:, dim])
        gaps = np.unique(np.diff(taken))
        if gaps.size > 1:
            count = -1
            break
        count *= taken.size
        stride = int(gaps[0]) if gaps.size else 1
        parts.append(f"{taken.size}@{stride}" if taken.size > 1 else "-1")
    if count != len(members):
        raise WeftError(
            f"communicator group of ranks {', '.join(map(str, members[:8]))}: no product of positions on "
            f"{topology.name}"
        )
    return ",".join(parts)
