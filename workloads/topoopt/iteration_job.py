"""An iteration as operations of a job: on the servers of one fabric, alone or beside other jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives import build, ring_rounds
from topologies import Topology, WeftError
from topologies.core.k_shortest import k_shortest_paths
from workloads.job import Job
from workloads.topoopt.iteration import AllReduce, Flows, Iteration

Ints = npt.NDArray[np.int64]

MOST_ROUTES = 1_024
"""Limit on the shortest paths of a pair, which are looked for one after another."""


@dataclass(frozen=True)
class Transport:
    """How messages and rounds are carried."""

    # whether a round ends when its acknowledgement has come back over as many links, or when the block has arrived
    acknowledged: bool = True
    # an all-reduce of fewer bytes per server is one round of the same bytes: the released simulator has 9000
    one_round_below: int = 9000
    # rounds are joined until there are no more than this, with their latencies added: a coarser, faster picture
    most_rounds: int | None = None
    message_chunks: int = 8  # chunks of a message between operations
    # which of equally short routes; `ecmp` hashes each pair of servers, PER_FLOW each flow of a pair: every operation
    # has flows of its own
    tie: str = "first"
    seed: int = 1
    # routes that share the bytes of a message between operations: the k shortest (TopoOpt), or one by `tie`
    routes: int = 1
    # algorithm of the all-reduces over all servers, None: rings; those over fewer servers are rings
    all_reduce: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.routes <= MOST_ROUTES:
            raise WeftError(f"{self.routes} routes per message: from 1 to {MOST_ROUTES}")
        if self.tie == "split":
            raise WeftError("tie rule 'split' is not for iterations: spread messages with routes=2 or more")


PACKETS = Transport()

PER_FLOW = "per flow"


@dataclass(frozen=True, eq=False)
class Rings:
    """The jumps that all-reduces use: those of all servers, and of smaller groups by their size."""

    jumps: tuple[int, ...]  # for all servers
    groups: dict[int, tuple[int, ...]]  # for groups of other sizes: jumps in places of the group

    def of(self, size: int, n: int) -> tuple[int, ...]:
        """Jumps, in places of the group, for a group of a size."""
        if size == n:
            return self.jumps or (1,)
        return self.groups.get(size, (1,))


ONE_RING = Rings((1,), {})
"""Every group goes around one ring, in its own order."""


def iteration_job(iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS) -> Job:
    """An iteration as a job; server i is NPU i.

    `fabric`: at least as many NPUs as the iteration has servers.
    WeftError: a fabric with too few NPUs, or one that does not join a pair.

    Examples
    --------
    >>> from topologies import switch
    >>> from workloads.topoopt import vgg16
    >>> len(iteration_job(vgg16(), switch(16), ONE_RING).operations)
    56
    """
    if fabric.n_npus < iteration.n:
        raise WeftError(f"{iteration.name} has {iteration.n} servers; {fabric.name} has {fabric.n_npus} NPUs")
    job = Job(fabric)
    add_iteration(job, iteration, range(iteration.n), rings, transport)
    return job


def add_iteration(
    job: Job, iteration: Iteration, servers: Sequence[int], rings: Rings, transport: Transport = PACKETS, *,
    after: Sequence[int] = (),
) -> list[int]:
    """Add an iteration to a job; returns the numbers of its computations and all-reduces.

    `servers`: the NPU of each server.
    `after`: operations that those wait for which wait for nothing of the iteration.
    """
    return _Adding(job, iteration, np.array(servers, np.int64), rings, transport).run(tuple(after))


class _Adding:
    def __init__(self, job: Job, iteration: Iteration, place: Ints, rings: Rings, transport: Transport) -> None:
        self.job, self.iteration, self.place, self.rings, self.transport = job, iteration, place, rings, transport
        self.everyone = place.tolist() == list(range(job.topology.n_npus))

    def run(self, before: tuple[int, ...]) -> list[int]:
        numbers: list[int] = []
        for op in self.iteration.ops:
            waits = [numbers[other] for other in op.after]
            for flows in op.receives:
                waits += self._messages(op.name, flows, numbers[flows.producer])
            starts = not op.after and not op.receives
            npus = None if op.servers is None and self.everyone else self.place[list(self.iteration.servers(op))]
            numbers.append(self.job.compute(
                op.name, op.duration_ps, npus=npus, after=(*waits, *(before if starts else ()))
            ))
        # All-reduces gate nothing of their iteration. Where they tie with messages of any job, those go first.
        return numbers + [
            self._all_reduce(op.name, one, number)
            for op, number in zip(self.iteration.ops, numbers[:], strict=True)
            for one in op.all_reduces if one.size_bytes and len(one.group or self.place) > 1
        ]

    def _messages(self, name: str, flows: Flows, producer: int) -> list[int]:
        """What has to end before what flows has arrived: the producer where something stays, and the messages."""
        moves = flows.src != flows.dst
        waits = [] if moves.all() else [producer]
        if not moves.any():
            return waits
        src, dst, size = self.place[flows.src[moves]], self.place[flows.dst[moves]], flows.size_bytes[moves]
        via: list[list[int]] = []
        if self.transport.routes > 1:
            paths = k_shortest_paths(self.job.topology, src, dst, self.transport.routes)
            via = [part.tolist() for part in np.split(paths.links, paths.ptr[1:-1])]
            src, dst, size = src[paths.pair], dst[paths.pair], _shares(size, paths.pair)
        elif (flow := self._flow()) is not None:
            paths = self.job.topology.paths(src, dst, "ecmp", flow)
            via = [part.tolist() for part in np.split(paths.links, paths.ptr[1:-1])]
        return [*waits, self.job.send(
            f"to {name}", tuple(size.tolist()), tuple(src.tolist()), tuple(dst.tolist()), via=via, after=[producer],
            laps=2 if self.transport.acknowledged else 1, detached=True,
        )]

    def _flow(self) -> int | None:
        """What distinguishes the flows of the next operation, where each has a route of its own."""
        return self.transport.seed << 32 | len(self.job.operations) if self.transport.tie == PER_FLOW else None

    def _all_reduce(self, name: str, one: AllReduce, after: int) -> int:
        n, transport = self.iteration.n, self.transport
        group = self.place if one.group is None else self.place[list(one.group)]
        whole = one.group is None and self.everyone
        if whole and transport.all_reduce is not None:
            chosen = build(transport.all_reduce, "all-reduce", self.job.topology, one.size_bytes)
            return self.job.collective(f"gradients of {name}", chosen, after=[after], turn=1)
        schedule = ring_rounds.all_reduce(
            self.job.topology, one.size_bytes, jumps=self.rings.of(group.size, n),
            group=None if whole else group.tolist(), most_rounds=transport.most_rounds,
            one_round=one.size_bytes < transport.one_round_below * group.size, acknowledged=transport.acknowledged,
            flow=self._flow(),
        )
        return self.job.collective(
            f"gradients of {name}", schedule, npus=None if whole else group, after=[after], turn=1
        )


def _shares(size: Ints, pair: Ints) -> Ints:
    """Bytes of each route when those of a pair share its bytes; the first carry the odd ones."""
    count = np.bincount(pair, minlength=size.size)[pair]
    place = np.arange(pair.size) - np.searchsorted(pair, pair)
    return size[pair] // count + (place < size[pair] % count)
