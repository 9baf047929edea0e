"""One training iteration on one fabric: computations, messages, and all-reduces that go around several rings.

Each round of a ring moves one block from every server to the next. All rounds of a server in one ring are one task
whose chunks are the blocks: chunk j waits for the delivery of chunk j - 1 of the server's own and of the one behind
it, so that an iteration of a hundred servers has thousands of tasks and not millions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.engine.run import run
from sim.program import WHOLE, Columns, Cutting, Program, assemble
from sim.program.outcome import Outcome
from topologies import Topology, WeftError
from topologies.circulants import CoinRouter
from topologies.core.k_shortest import k_shortest_paths
from topologies.core.paths import Paths
from topologies.units import PS_PER_S
from workloads.topoopt import AllReduce, Iteration

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transport:
    """How messages and rounds are carried.

    Attributes
    ----------
    acknowledged : bool
        Whether a round ends when its acknowledgement has come back over as many links, or when the block has arrived.
    one_round_below : int
        An all-reduce of fewer bytes a server is one round of the same bytes: the released simulator has 9000.
    most_rounds : int or None
        Rounds are joined until there are no more than this, with their latencies added: a coarser, faster picture.
    message_chunks : int
        Chunks of a message between operations.
    tie : str
        Which of equally short routes; `ecmp` hashes each pair of servers.
    seed : int
    routes : int
        Ways that share the bytes of a message between operations: the k shortest (TopoOpt), or one by `tie`.
    """

    acknowledged: bool = True
    one_round_below: int = 9000
    most_rounds: int | None = None
    message_chunks: int = 8
    tie: str = "first"
    seed: int = 1
    routes: int = 1

    def __post_init__(self) -> None:
        if self.routes < 1:
            raise WeftError(f"{self.routes} routes of a message: at least 1")
        if self.tie == "split":
            raise WeftError("tie rule 'split' is not for iterations: spread messages with routes=2 or more")


PACKETS = Transport()


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program and what its tasks are.

    Attributes
    ----------
    program : Program
    images : int
        Servers that each simulated one stands for.
    wire_bytes : int
        Bytes over all links, forwarding counted.
    logical_bytes : int
        Bytes that leave a server for another.
    task_op : (T,) int64
        Operation of each task; that at the destination for a message, the one before it for an all-reduce.
    """

    program: Program
    images: int
    wire_bytes: int
    logical_bytes: int
    task_op: Ints

    @property
    def bandwidth_tax(self) -> float:
        """Bytes on all links over bytes asked for; 1 where nothing moves."""
        return self.wire_bytes / self.logical_bytes if self.logical_bytes else 1.0


@dataclass(frozen=True, eq=False)
class Rings:
    """The jumps that all-reduces use: those of all servers, and of smaller groups by their size.

    Attributes
    ----------
    jumps : tuple of int
        For all servers.
    groups : dict of int to tuple of int
        For groups of other sizes: jumps in places of the group.
    """

    jumps: tuple[int, ...]
    groups: dict[int, tuple[int, ...]]

    def of(self, size: int, n: int) -> tuple[int, ...]:
        """Jumps, in places of the group, for a group of a size."""
        if size == n:
            return self.jumps or (1,)
        return self.groups.get(size, (1,))


def lower_iteration(
    iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS
) -> Lowered:
    """The program of an iteration.

    Parameters
    ----------
    iteration : Iteration
    fabric : Topology
        At least as many NPUs as the iteration has servers; server i is NPU i.
    rings : Rings
    transport : Transport

    Raises
    ------
    WeftError
        A fabric with too few NPUs, or one that does not join a pair.
    """
    if fabric.n_npus < iteration.n:
        raise WeftError(f"{iteration.name} has {iteration.n} servers; {fabric.name} has {fabric.n_npus} NPUs")
    return _Lowering(iteration, fabric, rings, transport).build()


def simulate_iteration(
    iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport = PACKETS
) -> tuple[Lowered, Outcome]:
    """Lower an iteration and run it; the makespan is the iteration time."""
    lowered = lower_iteration(iteration, fabric, rings, transport)
    return lowered, run(lowered.program)


class _Lowering:
    def __init__(self, iteration: Iteration, fabric: Topology, rings: Rings, transport: Transport) -> None:
        self.iteration, self.fabric, self.rings, self.transport = iteration, fabric, rings, transport
        n = iteration.n
        whole = rings.of(n, n)
        self.one = (
            iteration.is_uniform() and isinstance(fabric.router, CoinRouter) and fabric.n_npus == n
            and set(whole) <= set(fabric.router.coins)
        )
        self.active = np.arange(1 if self.one else n)
        self.cuttings: list[Cutting] = [Cutting(chunks=1), Cutting(chunks=transport.message_chunks)]
        self.work: list[Ints] = []
        self.cut: list[Ints] = []
        self.route: list[Ints] = []
        self.tie: list[Ints] = []
        self.edges: list[Ints] = []
        self.route_hops: list[Ints] = []
        self.route_server: list[Ints] = []
        self.route_latency: list[Ints] = []
        self.n_tasks = self.n_routes = self.next_tie = 0
        self.ring_routes: dict[tuple[tuple[int, ...], int, int], int] = {}
        self.wire = self.logical = 0
        self.op_task: list[Ints] = []
        self.task_op: list[Ints] = []
        self.reduces: dict[int, list[tuple[Ints, Ints]]] = {}  # operation -> (servers, tasks) of its all-reduces
        self.hop_latency = fabric.latency_ps + fabric.hop_latency_ps[fabric.dst]

    def build(self) -> Lowered:
        n = self.iteration.n
        compute = self._add_routes(
            np.ones(self.active.size, np.int64), self.fabric.n_links + self.active, np.zeros(self.active.size, np.int64)
        )
        for number, op in enumerate(self.iteration.ops):
            at = self.active if op.servers is None else np.array(op.servers, np.int64)
            first = self._add_tasks(at.size, np.full(at.size, op.duration_ps), 0, compute + at, number)
            task = np.full(n, -1, np.int64)
            task[at] = first + np.arange(at.size)
            self.op_task.append(task)
            for other in op.after:
                here = at[self.op_task[other][at] >= 0]
                self._edges(self.op_task[other][here], task[here], WHOLE)
        for number, op in enumerate(self.iteration.ops):
            for flows in op.receives:
                self._add_flows(number, flows.producer, flows.src, flows.dst, flows.size_bytes)
        for number, op in enumerate(self.iteration.ops):
            for one in op.all_reduces:
                self._add_all_reduce(number, one)
        for number, op in enumerate(self.iteration.ops):
            for servers, tasks in (pair for other in op.after_all_reduces for pair in self.reduces.get(other, [])):
                self._edges(tasks, self.op_task[number][servers], WHOLE)
        images = self.iteration.n if self.one else 1
        task_op = np.concatenate(self.task_op) if self.task_op else np.zeros(0, np.int64)
        return Lowered(self._assemble(), images, self.wire * images, self.logical * images, task_op)

    def _add_flows(self, number: int, producer: int, src: Ints, dst: Ints, size: Ints) -> None:
        moves = (src != dst) & (size > 0)
        stays = ~moves
        here = self.op_task[producer][src[stays]], self.op_task[number][dst[stays]]
        self._edges(*here, WHOLE)
        src, dst, size = src[moves], dst[moves], size[moves]
        if not src.size:
            return
        self.logical += int(size.sum())
        paths = self._paths(src, dst)
        src, dst, size = src[paths.pair], dst[paths.pair], _shares(size, paths.pair)
        routes, hops = self._add_paths(paths, 1)
        first = self._add_tasks(src.size, size, 1, routes + np.arange(src.size), number)
        tasks = first + np.arange(src.size)
        self._edges(self.op_task[producer][src], tasks, WHOLE)
        self._edges(tasks, self.op_task[number][dst], WHOLE)
        self.wire += int((size * hops).sum())

    def _add_all_reduce(self, number: int, one: AllReduce) -> None:
        n = self.iteration.n
        group = np.arange(n) if one.group is None else np.array(one.group, np.int64)
        k = group.size
        if k < 2 or not one.size_bytes:
            return
        jumps = self.rings.of(k, n)
        members = self.active if self.one else np.arange(k)
        share = -(-one.size_bytes // len(jumps))
        rounds = 2 * (k - 1)
        if one.size_bytes < self.transport.one_round_below * k:
            block, count, joined = -(-share * rounds // k), 1, 1
        else:
            count = min(rounds, self.transport.most_rounds or rounds)
            block, joined = -(-share * rounds // (k * count)), -(-rounds // count)
        cut = self._cutting(count)
        for jump in jumps:
            routes, hops = self._ring_routes(tuple(group.tolist()), jump, joined)
            first = self._add_tasks(members.size, np.full(members.size, block * count), cut, routes + members, number)
            tasks = first + np.arange(members.size)
            self._edges(self.op_task[number][group[members]], tasks, WHOLE)
            self._edges(tasks, tasks, 1)
            self.reduces.setdefault(number, []).append((group[members], tasks))
            if not self.one:
                self._edges(tasks, first + (np.arange(k) + jump) % k, 1)
            self.wire += int(block * count * hops[members].sum())
            self.logical += block * count * members.size

    def _ring_routes(self, group: tuple[int, ...], jump: int, joined: int) -> tuple[int, Ints]:
        places = np.array(group, np.int64)
        src, dst = places, places[(np.arange(places.size) + jump) % places.size]
        key = (group, jump, joined)
        paths = self._paths(src, dst, 1)
        if key not in self.ring_routes:
            self.ring_routes[key] = self._add_paths(paths, joined)[0]
        return self.ring_routes[key], np.diff(paths.ptr)

    def _paths(self, src: Ints, dst: Ints, routes: int | None = None) -> Paths:
        """Ways of pairs: one by the tie rule, or the k shortest."""
        k = self.transport.routes if routes is None else routes
        if k > 1:
            return k_shortest_paths(self.fabric, src, dst, k)
        return self.fabric.paths(src, dst, self.transport.tie, self.transport.seed)

    def _add_paths(self, paths: Paths, joined: int) -> tuple[int, Ints]:
        """Routes; the last hop of each carries the acknowledgement, and the latency of joined rounds."""
        hops = np.diff(paths.ptr)
        latency = self.hop_latency[paths.links].astype(np.int64)
        along = np.bincount(np.repeat(np.arange(hops.size), hops), latency, minlength=hops.size).astype(np.int64)
        last = paths.ptr[1:] - 1
        ways = 2 if self.transport.acknowledged else 1
        latency[last] += along * (ways * joined - 1)
        return self._add_routes(hops, paths.links.astype(np.int64), latency), hops

    def _cutting(self, count: int) -> int:
        wanted = Cutting(chunks=count)
        if wanted not in self.cuttings:
            self.cuttings.append(wanted)
        return self.cuttings.index(wanted)

    def _add_tasks(self, count: int, work: Ints, cut: int, route: Ints, op: int) -> int:
        self.work.append(work.astype(np.int64))
        self.cut.append(np.full(count, cut))
        self.route.append(route)
        self.task_op.append(np.full(count, op))
        self.tie.append(np.full(count, self.next_tie))
        self.next_tie += 1
        self.n_tasks += count
        return self.n_tasks - count

    def _add_routes(self, hops: Ints, server: Ints, latency: Ints) -> int:
        self.route_hops.append(hops)
        self.route_server.append(server)
        self.route_latency.append(latency)
        self.n_routes += hops.size
        return self.n_routes - hops.size

    def _edges(self, parent: Ints, child: Ints, lag: int) -> None:
        real = (parent >= 0) & (child >= 0)
        self.edges.append(np.stack([parent[real], child[real], np.full(int(real.sum()), lag)]))

    def _assemble(self) -> Program:
        key = np.concatenate(self.route_server)
        used, server = np.unique(key, return_inverse=True)
        rates = [
            Fraction(float(self.fabric.bandwidth_Bps[one])) if one < self.fabric.n_links else Fraction(PS_PER_S)
            for one in used.tolist()
        ]
        distinct = sorted(set(rates))
        number = {rate: at for at, rate in enumerate(distinct)}
        edges = np.concatenate(self.edges, axis=1)
        columns = Columns(
            rates=distinct,
            server_rate=np.array([number[rate] for rate in rates], np.int32),
            server_discipline=np.zeros(used.size, np.int8),
            route_ptr=np.concatenate(([0], np.cumsum(np.concatenate(self.route_hops)))).astype(np.int32),
            route_server=server.astype(np.int32),
            route_latency_ps=np.concatenate(self.route_latency),
            task_work=np.concatenate(self.work),
            task_cutting=np.concatenate(self.cut).astype(np.int32),
            task_route=np.concatenate(self.route).astype(np.int32),
            task_class=np.concatenate(self.tie).astype(np.int32),
            task_priority=np.zeros(self.n_tasks, np.int32),
            edge_parent=edges[0].astype(np.int32),
            edge_child=edges[1].astype(np.int32),
            edge_lag=edges[2].astype(np.int32),
        )
        return assemble(columns, self.cuttings)


def _shares(size: Ints, pair: Ints) -> Ints:
    """Bytes of each route when those of a pair share its bytes; the first carry the odd ones."""
    count = np.bincount(pair, minlength=size.size)[pair]
    place = np.arange(pair.size) - np.searchsorted(pair, pair)
    return size[pair] // count + (place < size[pair] % count)


def lower_bound_ps(iteration: Iteration, rate_Bps: float) -> int:
    """No run is faster where a server sends `rate_Bps`: it computes, and its all-reduces follow their first operation.

    Each all-reduce of k servers sends 2 (k-1)/k of its bytes from every member, none before its operation ends; by the
    bytes of those that begin last, from any moment on.
    """
    done, best = 0, iteration.compute_ps()
    if not iteration.is_uniform():
        return best
    left = [(op.duration_ps, sum(one.size_bytes for one in op.all_reduces)) for op in iteration.ops]
    share = Fraction(2 * (iteration.n - 1), iteration.n) * PS_PER_S / Fraction(rate_Bps)
    for at, (duration, _) in enumerate(left):
        done += duration
        best = max(best, done + int(share * sum(size for _, size in left[at:])))
    return best
