"""Circuits that follow demand while a job trains: live, drain, look at what is left, switch, go on.

TopoOpt's OCS baseline. A cycle is live for four reconfiguration delays; then no sender starts another chunk, what is
under way drains, the bytes left of the messages are collected, a greedy rule builds the next circuits, and the fabric
is dark for one delay. Computation goes on meanwhile. The result is a job: its messages are cut where circuits change.
"""

import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import islice

import numpy as np
import numpy.typing as npt
import rustworkx as rx

from sim.engine.run import Run
from sim.lower.job import lower
from sim.program.model import Model
from sim.simulation import simulate
from topologies import Topology, WeftError
from topologies.core.epochs import circuit_epochs
from topologies.optics import between
from workloads.job import CLOCK, Compute, Job, Operation, Send

LIVE_DELAYS = 4
"""Length of the live part of a cycle, in reconfiguration delays."""

FIRST_PS = 10**9
"""The first cycle is live for one delay, and no longer than this."""

Pair = tuple[int, int]
Ints = npt.NDArray[np.int64]


def greedy_circuits(demand: npt.NDArray[np.float64], degree: int, rng: random.Random) -> list[Pair]:
    """Duplex circuits for a demand, (n, n): the pair with the largest demand gets one and its demand halves.

    Then servers without circuits and free interfaces are connected at random, and components are joined.
    """
    n = len(demand)
    wish = np.maximum(demand, demand.T)
    free = [degree] * n
    pairs: list[Pair] = []
    heap = [(-float(wish[a, b]), int(a), int(b)) for a, b in np.argwhere(np.triu(wish, 1) > 0)]
    heapify(heap)
    while heap:
        want, a, b = heappop(heap)
        if free[a] and free[b]:
            pairs.append((a, b))
            free[a] -= 1
            free[b] -= 1
            heappush(heap, (want / 2, a, b))
    while len(open_ := [v for v in range(n) if free[v]]) > 1:
        a, b = rng.sample(open_, 2)
        pairs.append((min(a, b), max(a, b)))
        free[a] -= 1
        free[b] -= 1
    _join(pairs, wish, n, degree)
    return pairs


def _join(pairs: list[Pair], wish: npt.NDArray[np.float64], n: int, degree: int) -> None:
    """Swap the ends of two circuits of different components, those of least demand that lie on a cycle first."""
    while True:
        graph = rx.PyGraph()
        graph.add_nodes_from(range(n))
        graph.add_edges_from([(a, b, at) for at, (a, b) in enumerate(pairs)])
        parts = rx.connected_components(graph)
        if len(parts) <= 1:
            return
        if degree < 2:
            raise WeftError(f"{degree} interface per server cannot connect {n} servers: at least 2")
        parallel = Counter(pairs)
        bridges = {(min(edge), max(edge)) for edge in rx.bridges(graph)}
        bridges = {pair for pair in bridges if parallel[pair] == 1}

        def least(part: set[int], bridges: set[Pair] = bridges) -> int:
            inside = [at for at, (a, _) in enumerate(pairs) if a in part]
            return min(inside, key=lambda at: (pairs[at] in bridges, wish[pairs[at]], at), default=-1)

        smallest = sorted(parts, key=lambda part: (len(part) > 1, min(part)))
        first, second = smallest[0], smallest[1]
        one, other = least(first), least(second)
        (c, d) = pairs[other]
        if one < 0:  # an isolated server, all its interfaces free, is inserted
            (alone,) = first
            pairs[other] = min(c, alone), max(c, alone)
            pairs.append((min(d, alone), max(d, alone)))
        else:
            (a, b) = pairs[one]
            pairs[one], pairs[other] = (min(a, c), max(a, c)), (min(b, d), max(b, d))


WHOLE_CHUNKS = Model(chunks=None, chunk_bytes=1 << 16, forwarding="store-and-forward")


def follow_demand(job: Job, model: Model = WHOLE_CHUNKS, *, seed: int = 1) -> Job:
    """The job with circuits that follow its demand, to be simulated with the same model, which gives a chunk size.

    `job`: of computations and messages, on duplex circuits such as "ocs:16x4,duplex"; no computation waits for one.
    `seed`: of the circuits that no demand asks for.
    WeftError: circuits without a delay, or work that waits for messages.
    """
    return _Follower(job, model, seed).run()


@dataclass
class _Messages:
    """A send, and what is left of its messages."""

    operation: Operation
    release_ps: int  # when the computations before it have ended
    before: list[int]  # sends that it waits for
    src: Ints
    dst: Ints
    left: Ints

    def add(
        self, job: Job, rows: Ints, size: Ints, after: Sequence[int], via: Sequence[Sequence[int]] = ()
    ) -> int:
        """Add some bytes of some of the messages to a job."""
        one = self.operation
        assert isinstance(one.work, Send)
        return job.send(one.name, size.tolist(), self.src[rows].tolist(), self.dst[rows].tolist(), via=via,
                        kind=one.kind, after=after, laps=one.work.laps, detached=one.work.detached)


_Sent = list[tuple[int, Ints, Ints]]
"""Number of a send, its messages, and bytes of each."""


class _Follower:
    def __init__(self, job: Job, model: Model, seed: int) -> None:
        optics = job.topology.optics
        if optics is None or not optics.duplex:
            raise WeftError(f"circuits that follow demand are duplex, such as ocs:16x4,duplex; not {job.topology.name}")
        if optics.delay_ps == 0:
            raise WeftError("circuits that follow demand need a reconfiguration delay above zero: it sets their cycle")
        self.job, self.model, self.optics, self.random = job, model, optics, random.Random(seed)
        self.n, self.rate, self.chunk = job.topology.n_npus, optics.ports * optics.rate_Bps, model.chunk_bytes or 1
        self.all = self._sends()
        self.open = {number: one for number, one in self.all.items() if one.left.any()}  # with bytes left
        self.moved: dict[Hashable, tuple[list[Ints], int]] = {}  # by what was simulated
        self.eras: list[tuple[Topology, int, _Sent]] = []  # circuits, time that they are live, and what begins

    def _sends(self) -> dict[int, _Messages]:
        ended: dict[int, int] = {}
        sends: dict[int, _Messages] = {}
        for number, one in enumerate(self.job.operations):
            before, work = [other for other in one.after if other in sends], one.work
            now = max((ended[other] if other in ended else sends[other].release_ps for other in one.after), default=0)
            if isinstance(work, Send) and isinstance(work.size_bytes, tuple):
                columns = (np.array(column, np.int64) for column in (work.src, work.dst, work.size_bytes))
                sends[number] = _Messages(one, now, before, *columns)
            elif isinstance(work, Compute) and one.npus is None and not before:
                ended[number] = now + work.duration_ps
            else:
                raise WeftError(f"operation {one.name!r}: circuits follow the demand of messages and of computations "
                                "on all servers that wait for none, as in data parallelism")
        return sends

    def run(self) -> Job:
        now, live = 0, min(self.optics.delay_ps, FIRST_PS)
        fabric = self._fabric(np.zeros((self.n, self.n)))
        while self.open:
            sent, drained_ps = self._live(fabric, now, live)
            self.eras.append((fabric, live, sent))
            now += max(live, drained_ps)
            fabric = self._fabric(self._demand(now))
            now, live = now + self.optics.delay_ps, LIVE_DELAYS * self.optics.delay_ps
        return self._whole()

    def _fabric(self, demand: npt.NDArray[np.float64]) -> Topology:
        return between(self.job.topology, greedy_circuits(demand, self.optics.ports, self.random))

    def _demand(self, now: int) -> npt.NDArray[np.float64]:
        """Bytes left of every message that may be under way before circuits change again: that waits for no own one."""
        demand, busy = np.zeros((self.n, self.n)), dict[int, Ints]()
        for number, one in self.open.items():
            if one.release_ps <= now + LIVE_DELAYS * self.optics.delay_ps:
                left, waits = one.left > 0, np.zeros(self.n, np.bool_)
                for other in one.before:
                    waits[busy.get(other, [])] = True
                mine = left & ~waits[one.src]
                np.add.at(demand, (one.src[mine], one.dst[mine]), one.left[mine])
                busy[number] = one.src[left]
        return demand

    def _live(self, fabric: Topology, now: int, live: int) -> tuple[_Sent, int]:
        """What begins while circuits are live, and when all of it is delivered."""
        sent = self._may_begin(now, live)
        if not sent:
            return [], 0
        alike = fabric.src.tobytes(), fabric.dst.tobytes(), live, *self._seen(now, sent)
        if alike not in self.moved:
            self.moved[alike] = self._simulated(fabric, now, live, sent)
        sizes, drained_ps = self.moved[alike]
        begun: _Sent = []
        for (number, rows, _), size in zip(sent, sizes, strict=True):
            left = self.all[number].left
            left[rows] -= size
            if size.any():
                begun.append((number, rows[size > 0], size[size > 0]))
            if not left.any():
                del self.open[number]
        return begun, drained_ps

    def _seen(self, now: int, sent: _Sent) -> Iterator[Hashable]:
        """All that a simulation of some messages from a moment on depends on."""
        place = {number: at for at, (number, _, _) in enumerate(sent)}
        for number, rows, size in self._by_release(sent):
            one = self.all[number]
            work = one.operation.work
            assert isinstance(work, Send)
            yield (place[number], max(one.release_ps - now, 0), *(place[at] for at in one.before if at in place),
                   one.operation.kind, work.laps, work.detached, one.src[rows].tobytes(), one.dst[rows].tobytes(),
                   size.tobytes())

    def _by_release(self, sent: _Sent) -> _Sent:
        return sorted(sent, key=lambda one: self.all[one[0]].release_ps)

    def _simulated(self, fabric: Topology, now: int, live: int, sent: _Sent) -> tuple[list[Ints], int]:
        """Bytes of each message that begin while circuits are live, and when all of them are delivered."""
        job, operations = self._part(fabric, now, sent)
        lowered = lower(job, self.model, "off")
        paused = Run(lowered.program)
        paused.advance(until_ps=live)
        sizes: list[Ints] = []
        for number, _, left in sent:
            tasks = np.flatnonzero((lowered.task_operation == operations[number]) & (lowered.task_row >= 0))
            transfers = lowered.transfers[operations[number]]
            assert transfers is not None
            moved = np.zeros(left.size, np.int64)
            moved[transfers.slot[lowered.task_row[tasks]]] = self.chunk * paused.state.joined[tasks]
            sizes.append(np.minimum(moved, left))
        begun = [(number, rows[size > 0], size[size > 0]) for (number, rows, _), size in zip(sent, sizes, strict=True)]
        begun = [one for one in begun if one[1].size]
        if not begun:
            return sizes, 0
        return sizes, simulate(self._part(fabric, now, begun)[0], model=self.model, symmetry="off").time_ps

    def _may_begin(self, now: int, live: int) -> _Sent:
        """Messages that may begin so soon, and at most as much of them as may."""
        found: _Sent = []
        most, latency_ps = int(self.rate * live / 1e12) + 2 * self.chunk, int(self.job.topology.latency_ps.min())
        ends: dict[int, npt.NDArray[np.float64]] = {}  # earliest end of each send on each server
        later: set[int] = set()  # sends of which none may begin
        for number, one in self.open.items():
            if one.release_ps > now + live or not later.isdisjoint(one.before):
                later.add(number)
                continue
            begin = np.full(self.n, float(max(one.release_ps - now, 0)))
            for other in one.before:
                begin = np.maximum(begin, ends.get(other, 0.0))
            rows = np.flatnonzero((one.left > 0) & (begin[one.src] <= live))
            if not rows.size:
                later.add(number)
                continue
            found.append((number, rows, np.minimum(one.left[rows], most)))
            last = np.where(one.left > 0, np.inf, 0.0)
            last[rows] = begin[one.src[rows]] + 1e12 * one.left[rows] / self.rate + latency_ps
            ends[number] = np.zeros(self.n)
            for end in (one.src, one.dst):
                np.maximum.at(ends[number], end, last)
        return found

    def _part(self, fabric: Topology, now: int, sent: _Sent) -> tuple[Job, dict[int, int]]:
        """A job of some messages of some bytes, from a moment on, and its operations by the numbers of the sends."""
        job, numbers, tick, ticked = Job(fabric), dict[int, int](), list[int](), now
        for number, rows, size in self._by_release(sent):
            one = self.all[number]
            if one.release_ps > ticked:
                tick = [job.compute("clock", one.release_ps - ticked, stream=CLOCK, after=tick)]
                ticked = one.release_ps
            numbers[number] = one.add(job, rows, size, [numbers[at] for at in one.before if at in numbers] or tick)
        return job, numbers

    def _whole(self) -> Job:
        """The job, with its messages in the eras in which they begin."""
        fabrics, lives, sent = zip(*self.eras, strict=True) if self.eras else ((self.job.topology,), (0,), ((),))
        epochs, change = circuit_epochs(fabrics, name=self.job.topology.name), list[int]()
        whole, numbers = Job(epochs.topology, speed=self.job.speed), dict[int, int]()
        for number, operation in enumerate(self.job.operations):
            if number not in self.all:
                whole.operations.append(replace(operation, after=tuple(numbers[at] for at in operation.after)))
                numbers[number] = len(whole.operations) - 1
        for era, begun in enumerate(sent):
            if era:
                down, up = (epochs.links[at].tolist() for at in (era - 1, era))
                live = whole.compute("live", lives[era - 1], stream=f"{CLOCK}cycles", npus=[0], after=change)
                change = [whole.reconfigure(f"cycle {era}", f"{self.optics.delay_ps}ps", down, up, after=[live])]
            src = [end for number, rows, _ in begun for end in self.all[number].src[rows].tolist()]
            dst = [end for number, rows, _ in begun for end in self.all[number].dst[rows].tolist()]
            routes = iter(epochs.route(era, src, dst))
            for number, rows, size in begun:
                one = self.all[number]
                after = [numbers[at] for at in one.operation.after if at in numbers]
                numbers[number] = one.add(whole, rows, size, after, list(islice(routes, rows.size)))
        return whole
