"""TopologyFinder: rings for all-reduces, matchings for the other traffic between servers, and routes.

The degree is split by traffic. Defects of the released code are not repeated: the heaviest group gets the most rings,
a pair counts its demand in both directions, and no ring is chosen twice in opposite directions while others remain.

W. Wang et al., "TopoOpt: Co-optimizing Network Topology and Parallelization Strategy for Distributed Training Jobs",
NSDI 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, gcd

import numpy as np
import numpy.typing as npt

from topologies import Topology, WeftError, circulant, optical, select_permutations, totient_perms
from topologies.units import Quantity, counted
from workloads.job import Communicate, Job, Send
from workloads.topoopt.carriage import ONE_RING, Rings

Floats = npt.NDArray[np.float64]

MOST_INTERFACES = 1_024
"""More than any server has; each is a ring or matching that is looked for."""


@dataclass(frozen=True, eq=False)
class Demand:
    """Traffic of a job in one iteration."""

    # by size of the groups: sum over them of what leaves their servers, 2 (k - 1) bytes for each byte added up
    all_reduce: Mapping[int, float]
    flows: Floats  # (n, n): everything else, from row to column

    @classmethod
    def of(cls, job: Job) -> "Demand":
        """The demand of a job, whose collectives are all-reduces."""
        by_size, n = dict[int, float](), job.topology.n_npus
        flows = np.zeros((n, n))
        for one in job.operations:
            if isinstance(one.work, Send):
                np.add.at(flows, (one.work.src, one.work.dst), one.work.size_bytes)
            elif isinstance(one.work, Communicate):
                k = n if one.npus is None else len(one.npus)
                by_size[k] = by_size.get(k, 0.0) + 2.0 * (k - 1) * one.work.schedule.size_bytes
        np.fill_diagonal(flows, 0.0)
        return cls(by_size, flows)


@dataclass(frozen=True, eq=False)
class Fabric:
    """A network for a job."""

    topology: Topology
    rings: Rings = ONE_RING
    ring_degree: int = 1  # interfaces of each server for rings
    matched_degree: int = 0  # interfaces of each server for matchings
    matched: tuple[tuple[int, int], ...] = ()  # pairs with a circuit of their own

    @property
    def rate_Bps(self) -> float:
        """The most that a server sends."""
        sends = np.bincount(self.topology.src, self.topology.bandwidth_Bps, self.topology.n_nodes)
        return float(sends[: self.topology.n_npus].max())


def find_topology(
    n: int, degree: int, demand: Demand, *, duplex: bool = True, rule: str = "paper", split: bool = True,
    bandwidth: Quantity = "100Gb/s", latency: Quantity = "1us", hop_latency: Quantity = 0,
) -> Fabric:
    """Circuits for a job (TopoOpt, TopologyFinder).

    `n`: servers.
    `degree`: optical interfaces of each; even where duplex.
    `rule`: {"paper", "code"}; how jumps progress.
    `split`: whether interfaces are split between rings and matchings, or all go to rings as in the released code.
    `bandwidth`, `latency`, `hop_latency`: of one direction of a circuit; the last is charged on each arrival at a
        server.
    WeftError: an odd degree of duplex interfaces, or fewer servers than two.
    """
    if n < 2:
        raise WeftError(f"a topology for {counted(n, 'server')}: at least 2")
    if degree < (2 if duplex else 1) or (duplex and degree % 2):
        raise WeftError(
            f"{degree} duplex interfaces: a ring takes two of each server: an even degree from 2 on"
            if duplex else f"{degree} interfaces: at least 1"
        )
    if degree > MOST_INTERFACES:
        raise WeftError(f"{degree:,} interfaces of a server: at most {MOST_INTERFACES:,}")
    ring_degree = split_degree(degree, demand, duplex) if split else degree
    rings, built = _rings(n, ring_degree, demand, duplex, rule)
    matched = matchings(demand.flows, degree - ring_degree)
    if not matched:
        topology = circulant(n, built, duplex=duplex, bandwidth=bandwidth, latency=latency, hop_latency=hop_latency)
        return Fabric(topology, rings, ring_degree, degree - ring_degree)
    pairs = [(v, (v + jump) % n) for jump in built for v in range(n) if not (duplex and 2 * jump == n and v >= jump)]
    both_ways = [] if duplex else [(b, a) for a, b in matched]
    topology = optical(
        n, degree, (*pairs, *matched, *both_ways), duplex, bandwidth=bandwidth, latency=latency,
        hop_latency=hop_latency, name=f"topoopt:{n}x{degree}",
    )
    return Fabric(topology, rings, ring_degree, degree - ring_degree, tuple(matched))


def split_degree(degree: int, demand: Demand, duplex: bool) -> int:
    """Interfaces for rings: their share of the traffic, rounded up; at least one ring, and whole duplex rings."""
    rings, flows = float(sum(demand.all_reduce.values())), float(demand.flows.sum())
    share = rings / (rings + flows) if rings + flows else 1.0
    least = 2 if duplex else 1
    wanted = max(least, ceil(degree * share))
    return min(degree, wanted + wanted % least)


def _rings(n: int, degree: int, demand: Demand, duplex: bool, rule: str) -> tuple[Rings, list[int]]:
    """Directed rings of all and of groups, and the jumps to build (parallel ones repeated)."""
    total = float(sum(demand.all_reduce.values()))
    left, rings = degree, dict[int, int]()
    for k, traffic in sorted(demand.all_reduce.items(), key=lambda item: (-item[1], -item[0])):
        each = _interfaces(k, duplex)
        if left >= each and total:
            rings[k] = min(left // each, max(1, ceil(degree * traffic / total / each)))
            left -= each * rings[k]
    each = _interfaces(n, duplex)
    while n not in rings and left < each:  # all servers must reach each other
        last = list(rings)[-1]
        rings[last] -= 1
        left += _interfaces(last, duplex)
        rings = {k: count for k, count in rings.items() if count}
    if n not in rings:
        rings[n] = left // each
        left -= each * rings[n]
    if left and 2 in rings:
        rings[2] += left
    chosen = {k: _some_rings(n, k, count, duplex, rule) for k, count in rings.items()}
    built = [jump for jumps in chosen.values() for jump in jumps]
    groups = {k: _directed(k, [jump // (n // k) for jump in jumps], duplex) for k, jumps in chosen.items() if k < n}
    return Rings(_directed(n, chosen[n], duplex), groups), built


def _interfaces(k: int, duplex: bool) -> int:
    """Interfaces of a server that a ring of k takes: two servers share one cable for both directions."""
    return 2 if duplex and k > 2 else 1


def _some_rings(n: int, k: int, count: int, duplex: bool, rule: str) -> list[int]:
    """Jumps of so many rings; where candidates run out, parallel rings."""
    jumps = select_permutations(
        n, count * (2 if duplex else 1), totient_perms(n, k), rule=rule, duplex=duplex, dedupe=duplex
    )
    return (jumps * count)[:count]


def _directed(k: int, jumps: list[int], duplex: bool) -> tuple[int, ...]:
    """Each duplex ring runs both ways; two servers share one cable for both."""
    back = [k - jump for jump in jumps if duplex and 2 * jump != k]
    assert all(gcd(jump, k) == 1 for jump in jumps)
    return (*jumps, *back)


def matchings(flows: Floats, degree: int) -> list[tuple[int, int]]:
    """Pairs to join, in `degree` matchings of the largest demand; a pair's demand halves with each circuit it gets."""
    import rustworkx as rx  # heavy: loaded where it is used

    left = flows + flows.T
    chosen: list[tuple[int, int]] = []
    for _ in range(degree):
        graph = rx.PyGraph()
        graph.add_nodes_from(range(len(left)))
        ends = np.argwhere(np.triu(left, 1) > 0)
        if not len(ends):
            break
        # Integers keep the matching exact; 2^40 leaves room for sums.
        weight = np.maximum(1, (left / left.max() * 2**40)).astype(np.int64)
        graph.add_edges_from([(a, b, int(weight[a, b])) for a, b in ends.tolist()])
        pairs = rx.max_weight_matching(graph, max_cardinality=True, weight_fn=int)
        for a, b in sorted((min(pair), max(pair)) for pair in pairs):
            left[a, b] = left[b, a] = left[a, b] / 2
            chosen.append((a, b))
    return chosen
