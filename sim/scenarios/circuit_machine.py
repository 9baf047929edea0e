"""Circuits that follow demand while a job trains: pause, drain, look, switch, go dark, go on.

The state machine of TopoOpt's OCS baseline. A cycle is live for four reconfiguration delays; then no sender starts
another chunk, what is under way drains, the remaining bytes of all transfers are collected, a greedy rule builds
the next circuits, and the fabric is dark for one delay. Computation goes on meanwhile.

A live period is simulated by the chunk engine until its end; the chunks that had begun by then are simulated to their
delivery in a second, shortened program, which is the drain.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt
import rustworkx as rx

from sim.engine.run import Run, run
from sim.program import Cutting, ProgramBuilder
from topologies import Circuits, Topology, WeftError, optical
from topologies.units import Quantity, parse_bandwidth, parse_time
from workloads.topoopt import Iteration

LIVE_DELAYS = 4
"""Length of the live part of a cycle, in reconfiguration delays."""

Pair = tuple[int, int]
_Key = tuple[int, int, int]
"""Stream, server, round."""


@dataclass(frozen=True)
class Cycles:
    time_ps: int
    reconfigurations: int
    dark_ps: int  # sum of the dark times
    delivered_bytes: int


def greedy_circuits(
    demand: npt.NDArray[np.float64], degree: int, rng: random.Random, *, connect: bool = True
) -> list[Pair]:
    """Duplex circuits for a demand: the pair with the largest demand gets one and its demand halves.

    Then servers without circuits and free interfaces are connected at random, and components are joined.

    `demand` (n, n).
    `connect`: whether to use up free interfaces and join components, so that servers can forward for each other.
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
    if connect and n > 1:
        _fill(pairs, free, rng)
        _join(pairs, wish, n, degree)
    return pairs


def _fill(pairs: list[Pair], free: list[int], rng: random.Random) -> None:
    while len(open_ := [v for v in range(len(free)) if free[v]]) > 1:
        a, b = rng.sample(open_, 2)
        pairs.append((min(a, b), max(a, b)))
        free[a] -= 1
        free[b] -= 1


def _join(pairs: list[Pair], wish: npt.NDArray[np.float64], n: int, degree: int) -> None:
    """Swap the ends of two circuits of different components, those of least demand that lie on a cycle first."""
    while True:
        graph = rx.PyGraph()
        graph.add_nodes_from(range(n))
        graph.add_edges_from([(a, b, at) for at, (a, b) in enumerate(pairs)])
        parts = rx.connected_components(graph)
        if len(parts) == 1:
            return
        if degree < 2:
            raise WeftError(f"{degree} interface per server cannot connect {n} servers: at least 2, or no forwarding")
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


@dataclass
class _Stream:
    """The rounds of one all-reduce in one ring."""

    ready_ps: int  # when its operation ends
    jump: int
    rounds: int
    block: int
    done: list[int] = field(default_factory=list)  # rounds that each server has delivered
    left: list[int] = field(default_factory=list)  # bytes left of each server's current round


@dataclass
class CircuitMachine:
    """One data-parallel iteration on circuits that follow demand.

    `iteration`: uniform: every server does the same, and only all-reduces couple them.
    `degree`: duplex interfaces of each server.
    `delay`: reconfiguration delay; above zero.
    `rings`: parallel directed rings of each all-reduce: +1, -1, then +3, -3, ...; the released code has one.
    `forwarding`: whether servers forward for each other; otherwise pairs wait until they have a circuit.
    """

    iteration: Iteration
    degree: int
    delay: Quantity
    rings: Sequence[int] = (1,)
    bandwidth: Quantity = "100Gb/s"
    latency: Quantity = "1us"
    forwarding: bool = True
    chunk_bytes: int = 1 << 16
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.iteration.is_uniform():
            raise WeftError(
                f"{self.iteration.name} has operations on some servers only; following demand is simulated for data "
                "parallelism"
            )
        self._delay_ps = parse_time(self.delay, "reconfiguration delay")
        if self._delay_ps == 0:
            raise WeftError("circuits that follow demand need a reconfiguration delay above zero: it sets their cycle")
        self._rate = parse_bandwidth(self.bandwidth, "bandwidth of a circuit")
        self._latency_ps = parse_time(self.latency, "latency of a circuit")

    def run(self) -> Cycles:
        """Run cycles until everything is delivered."""
        n, rng = self.iteration.n, random.Random(self.seed)
        streams = self._streams()
        total = sum(n * stream.rounds * stream.block for stream in streams)
        fabric = self._fabric(greedy_circuits(np.zeros((n, n)), self.degree, rng))
        now, end, live = 0, self.iteration.compute_ps(), min(self._delay_ps, 10**9)
        count = 0
        while any(min(stream.done) < stream.rounds for stream in streams):
            begun = [stream.ready_ps for stream in streams if min(stream.done) < stream.rounds]
            if min(begun) > now + live:  # nothing to send in this cycle
                now += live
            else:
                spent, last = self._live(streams, fabric, now, live)
                if all(min(stream.done) == stream.rounds for stream in streams):
                    end = max(end, now + last)
                    break
                now += max(live, spent)
            demand = self._demand(streams, now)
            fabric = self._fabric(greedy_circuits(demand, self.degree, rng, connect=self.forwarding))
            count, now, live = count + 1, now + self._delay_ps, LIVE_DELAYS * self._delay_ps
        return Cycles(end, count, count * self._delay_ps, total)

    def _streams(self) -> list[_Stream]:
        n, now, streams = self.iteration.n, 0, []
        for op in self.iteration.ops:
            now += op.duration_ps
            for one in op.all_reduces:
                block = -(-one.size_bytes // (n * len(self.rings)))
                streams += [
                    _Stream(now, jump, 2 * (n - 1), block, [0] * n, [block] * n) for jump in self.rings if block
                ]
        return streams

    def _fabric(self, pairs: list[Pair]) -> Topology:
        circuits = Circuits(self.iteration.n, self.degree, tuple(pairs))
        return optical(circuits, bandwidth=self.bandwidth, latency=self.latency)

    def _demand(self, streams: list[_Stream], now: int) -> npt.NDArray[np.float64]:
        """Bytes left of every transfer that may be in flight."""
        n = self.iteration.n
        demand = np.zeros((n, n))
        for stream in streams:
            if stream.ready_ps <= now + LIVE_DELAYS * self._delay_ps:
                for v in range(n):
                    if stream.done[v] < stream.rounds:
                        demand[v, (v + stream.jump) % n] += stream.left[v]
        return demand

    def _live(self, streams: list[_Stream], fabric: Topology, now: int, live: int) -> tuple[int, int]:
        """One live period and its drain: ps until all chunks in flight are delivered, and until the last delivery."""
        tasks, program = self._program(streams, fabric, now, live, None)
        if not tasks:
            return live, 0
        paused = Run(program.build())
        paused.advance(until_ps=live)
        joined = paused.state.joined.copy()
        kept = {key: int(joined[task]) for key, task in tasks.items() if joined[task]}
        tasks, program = self._program(streams, fabric, now, live, kept)
        outcome = run(program.build()) if kept else None
        last = max((int(outcome.finish_ps[task]) for task in tasks.values()), default=0) if outcome else 0
        for (number, v, _), chunks in sorted(kept.items()):
            stream = streams[number]
            sent = min(stream.left[v], chunks * self.chunk_bytes)
            stream.left[v] -= sent
            if stream.left[v] == 0:
                stream.done[v] += 1
                stream.left[v] = stream.block if stream.done[v] < stream.rounds else 0
        return last, last

    def _program(
        self, streams: list[_Stream], fabric: Topology, now: int, live: int, kept: dict[_Key, int] | None
    ) -> tuple[dict[_Key, int], ProgramBuilder]:
        """Tasks of the rounds that may begin in this period, or the kept tasks truncated."""
        n, builder = self.iteration.n, ProgramBuilder()
        links = [builder.server(float(rate)) for rate in fabric.bandwidth_Bps]
        clock = builder.server(10**12)
        latency = self._latency_ps
        nodes = np.arange(n)
        routes = {
            jump: _routes(fabric, nodes, (nodes + jump) % n, self.forwarding) for jump in set(self.rings)
        }
        tasks: dict[_Key, int] = {}
        tick, at = -1, 0
        order = sorted(range(len(streams)), key=lambda number: streams[number].ready_ps)
        for number in order:
            stream = streams[number]
            if stream.ready_ps > now + live:
                break
            if stream.ready_ps - now > at:
                tick = builder.task(stream.ready_ps - now - at, [(clock, 0)], after=[tick] if tick >= 0 else [])
                at = stream.ready_ps - now
            # A round takes at least the time of its block at the full rate of a server, plus two latencies.
            most = 2 + live // (2 * latency + int(stream.block * 1e12 / (self._rate * self.degree)))
            for step in range(min(stream.done), stream.rounds):
                for v in range(n):
                    key = (number, v, step)
                    route = routes[stream.jump][v]
                    late = not stream.done[v] <= step < min(stream.done[v] + most, stream.rounds)
                    if late or route is None or (kept is not None and key not in kept):
                        continue
                    left = stream.left[v] if step == stream.done[v] else stream.block
                    size = left if kept is None else min(left, kept[key] * self.chunk_bytes)
                    behind = (v - stream.jump) % n
                    before = [(number, v, step - 1), (number, behind, step - 1)]
                    waits = [tasks[one] for one in before if one in tasks]
                    if any(one not in tasks and stream.done[one[1]] <= one[2] for one in before if step):
                        continue  # what it waits for cannot end in this period
                    # The acknowledgment comes back over as many links.
                    path = [(links[link], latency) for link in route[:-1]]
                    path.append((links[route[-1]], latency * (1 + len(route))))
                    tasks[key] = builder.task(
                        size, path, Cutting(None, self.chunk_bytes),
                        after=waits or ([tick] if tick >= 0 else []), tie_class=number,
                    )
                if step > max(stream.done) + most:
                    break
        return tasks, builder


def _routes(
    fabric: Topology, src: npt.NDArray[np.int64], dst: npt.NDArray[np.int64], forwarding: bool
) -> list[list[int] | None]:
    """Links from each source to its destination; None where forwarding is not allowed."""
    if not forwarding:
        return [[int(link)] if link >= 0 else None for link in fabric.link_ids(src, dst)]
    paths = fabric.paths(src, dst, "ecmp", 1)
    return [paths.links[paths.ptr[at] : paths.ptr[at + 1]].tolist() for at in range(src.size)]
