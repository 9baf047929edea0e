"""An iteration of a job on servers of a fabric, alone or beside other jobs: computations, messages and all-reduces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collectives import build, ring_rounds
from topologies import Topology, WeftError, switch
from topologies.core.k_shortest import k_shortest_paths
from workloads.job import COMPUTE_STREAM, Job, Operation, repeat

Ints = npt.NDArray[np.int64]

FEW = 8
"""Messages of a source that are sends of their own where all sources have as many, of one size."""

PAIRS = 512
"""Placements whose messages are kept for further jobs."""

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
    # algorithm of the all-reduces over all servers, None: rings; those over fewer servers are rings. ROUNDS: rings
    # each round of which is a send
    all_reduce: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.routes <= MOST_ROUTES:
            raise WeftError(f"{self.routes} routes per message: from 1 to {MOST_ROUTES}")
        if self.tie == "split":
            raise WeftError("tie rule 'split' is not for iterations: spread messages with routes=2 or more")


PACKETS = Transport()

ROUNDS = "ring rounds"

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


class Carriage:
    """Adds the operations of an iteration to a job.

    `servers`: the NPU of each server.
    `after`: operations that those wait for which wait for nothing of the iteration.
    """

    def __init__(
        self, job: Job, servers: Sequence[int], rings: Rings = ONE_RING, transport: Transport = PACKETS,
        after: Sequence[int] = (),
    ) -> None:
        self.job, self.place, self.rings, self.transport = job, np.array(servers, np.int64), rings, transport
        self.before, self.everyone = tuple(after), self.place.tolist() == list(range(job.topology.n_npus))
        self.computations: list[int] = []
        self._gradients: list[tuple[str, int, tuple[int, ...] | None, int]] = []

    def compute(
        self, name: str, duration_ps: int, servers: Sequence[int] | None = None, after: Sequence[int] = (),
        stream: str = COMPUTE_STREAM,
    ) -> int:
        """A computation on some servers, or all; it begins on each when what it waits for has ended there."""
        npus = None if servers is None and self.everyone else self.place if servers is None else self.place[[*servers]]
        self.computations.append(
            self.job.compute(name, duration_ps, npus=npus, after=after or self.before, stream=stream))
        return self.computations[-1]

    def messages(self, name: str, src: Ints, dst: Ints, size_bytes: Ints, producer: int) -> list[int]:
        """What an operation gives another: what ends before all has arrived, which is the producer where it stays.

        `src`, `dst`, `size_bytes`: (n,) transfers.
        """
        moves = src != dst
        waits = [] if moves.all() else [producer]
        if not moves.any():
            return waits
        src, dst, size = self.place[src[moves]], self.place[dst[moves]], size_bytes[moves]
        paths = None
        if self.transport.routes > 1:
            paths = k_shortest_paths(self.job.topology, src, dst, self.transport.routes)
            src, dst, size = src[paths.pair], dst[paths.pair], _shares(size, paths.pair)
        elif (flow := self._flow()) is not None:
            paths = self.job.topology.paths(src, dst, "ecmp", flow)
        laps = 2 if self.transport.acknowledged else 1
        if paths is not None:
            via = [part.tolist() for part in np.split(paths.links, paths.ptr[1:-1])]
            return [*waits, self.job.send(f"to {name}", tuple(size.tolist()), src.tolist(), dst.tolist(), via=via,
                                          after=[producer], laps=laps, detached=True)]
        alike = _sends(self.job.topology, laps, src.tobytes(), dst.tobytes(), size.tobytes())
        return waits + [repeat(self.job, f"to {name}", one, [producer]) for one in alike]

    def gradients(self, name: str, size_bytes: int, after: int, group: tuple[int, ...] | None = None) -> None:
        """An all-reduce of some servers, in the order of the ring +1, or of all; begins as an operation ends on each.

        It gates nothing of the iteration, and stands behind all else. Where it ties with messages, those go first.
        """
        if size_bytes and len(self.place if group is None else group) > 1:
            self._gradients.append((f"gradients of {name}", size_bytes, group, after))

    def finish(self) -> list[int]:
        """Add the all-reduces; returns the numbers of the computations and all-reduces."""
        return self.computations + [number for one in self._gradients for number in self._all_reduce(*one)]

    def _flow(self) -> int | None:
        """What distinguishes the flows of the next operation, where each has a route of its own."""
        return self.transport.seed << 32 | len(self.job.operations) if self.transport.tie == PER_FLOW else None

    def _all_reduce(self, name: str, size_bytes: int, servers: tuple[int, ...] | None, after: int) -> list[int]:
        n, transport = self.place.size, self.transport
        group = self.place if servers is None else self.place[list(servers)]
        whole = servers is None and self.everyone
        if whole and transport.all_reduce not in (None, ROUNDS):
            chosen = build(transport.all_reduce, "all-reduce", self.job.topology, size_bytes)
            return [self.job.collective(name, chosen, after=[after], turn=1)]
        if transport.all_reduce == ROUNDS:
            return self._rounds(name, size_bytes, group, after)
        schedule = ring_rounds.all_reduce(
            self.job.topology, size_bytes, jumps=self.rings.of(group.size, n),
            group=None if whole else group.tolist(), most_rounds=transport.most_rounds,
            one_round=size_bytes < transport.one_round_below * group.size, acknowledged=transport.acknowledged,
            flow=self._flow(),
        )
        return [self.job.collective(name, schedule, npus=None if whole else group, after=[after], turn=1)]

    def _rounds(self, name: str, size_bytes: int, group: Ints, after: int) -> list[int]:
        """The rings of an all-reduce, each round of which is a send; returns the last ones."""
        jumps, last, n = self.rings.of(group.size, self.place.size), list[int](), group.size
        block = -(-size_bytes // (n * len(jumps)))
        for jump in jumps:
            before = after
            for step in range(2 * (n - 1)):
                before = self.job.send(f"{name}, +{jump}, round {step}", (block,) * n, group.tolist(),
                                       np.roll(group, -jump).tolist(), after=[before],
                                       laps=2 if self.transport.acknowledged else 1)
            last.append(before)
        return last


@dataclass(frozen=True, eq=False)
class Iteration:
    """One training iteration on n servers, which adds itself to a job; no optimizer step."""

    name: str
    n: int
    add: Callable[[Carriage], None]

    def onto(
        self, job: Job, servers: Sequence[int], rings: Rings = ONE_RING, transport: Transport = PACKETS, *,
        after: Sequence[int] = (),
    ) -> list[int]:
        """Add it to a job; returns the numbers of its computations and all-reduces."""
        carriage = Carriage(job, servers, rings, transport, after)
        self.add(carriage)
        return carriage.finish()

    def job(
        self, fabric: Topology | None = None, rings: Rings = ONE_RING, transport: Transport = PACKETS
    ) -> Job:
        """A job of its own; server i is NPU i.

        `fabric`: at least as many NPUs as there are servers; one ideal switch unless given.
        WeftError: a fabric with too few NPUs, or one that does not join a pair.

        Examples
        --------
        >>> from workloads.topoopt import vgg16
        >>> len(vgg16().job().operations)
        88
        """
        network = switch(self.n) if fabric is None else fabric
        if network.n_npus < self.n:
            raise WeftError(f"{self.name} has {self.n} servers; {network.name} has {network.n_npus} NPUs")
        found = Job(network)
        self.onto(found, range(self.n), rings, transport)
        return found


@lru_cache(PAIRS)
def _sends(fabric: Topology, laps: int, *columns: bytes) -> list[Operation]:
    """The sends of messages, given as sources, destinations and bytes of each."""
    job, (src, dst, size) = Job(fabric), (np.frombuffer(column, np.int64) for column in columns)
    count = np.bincount(src)
    several = int(count.max())
    each: int | tuple[int, ...] = tuple(size.tolist())
    parts: Iterable[Ints] = [np.arange(src.size)]
    if several <= FEW and src.size == several * np.count_nonzero(count) and np.ptp(size) == 0:
        # Where all sources send alike, each message of them is a send, whose symmetry shows.
        each, parts = int(size[0]), np.argsort(src, kind="stable").reshape(-1, several).T
    for at in parts:
        job.send("", each, src[at].tolist(), dst[at].tolist(), laps=laps, detached=True)
    return job.operations


def _shares(size: Ints, pair: Ints) -> Ints:
    """Bytes of each route when those of a pair share its bytes; the first carry the odd ones."""
    count = np.bincount(pair, minlength=size.size)[pair]
    place = np.arange(pair.size) - np.searchsorted(pair, pair)
    return size[pair] // count + (place < size[pair] % count)
