"""Breadth-first broadcast (BFB): every shard takes shortest paths, and each step balances the links into every node.

At step t a node receives the shards of all roots at distance t, each split among the neighbors that have it, so that
its most loaded link carries as little as possible (L. Zhao et al., "Efficient direct-connect topologies for collective
communications", NSDI 2025, arXiv 2202.03356). Optimal with as many steps as the diameter on rings, tori, hypercubes
and complete graphs; elsewhere, shortest paths may cost bandwidth.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from collectives.core.builders import by_wiring, plain
from collectives.core.pattern import Pattern
from collectives.trees import transitive
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern, reversed_forest
from topologies import NPU, ShortestPathRouter, Topology, WeftError
from topologies.core.symmetry import link_orbits
from topologies.flows.cuts import whole_capacities
from topologies.flows.maxflow import LARGEST, FlowNetwork
from topologies.flows.tightest_cut import remembered

NAME = "bfb"
MOST_BLOCKS = 96
"""Limit on the parts of a shard; below it the fractions of the optimum are exact."""

MOST_NPUS = 128
"""Limit on NPUs that are not alike, since the steps of each are computed separately."""


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    if np.any(topology.kind != NPU):
        raise WeftError(f"{NAME} on {topology.name}: only direct networks are supported, and this one has switches")
    if topology.n_npus == 1:
        alone = Forest(topology, (Tree(0, 1, ()),))
        return forest_pattern(topology, kind, NAME, up=alone, down=alone)
    k = _parts(topology)
    if transitive.has_free_translations(topology):
        trees = _translated_trees(topology, k)
        return transitive.transitive_pattern(topology, trees, kind, NAME, whole=True, progress="all")
    down = _forest(topology, k)
    up = None if kind == "all-gather" else reversed_forest(down)
    return forest_pattern(topology, kind, NAME, up=up, down=None if kind == "reduce-scatter" else down, whole=True)


all_gather = plain("all-gather", _pattern, """
    BFB all-gather.

    WeftError: switches, unreachable NPUs, or fractions that need more than 96 parts of a shard.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, "The all-gather reversed; requires every link to have an opposite.")
all_reduce = plain("all-reduce", _pattern, "Reduce-scatter, then all-gather.")


def _parts(topology: Topology) -> int:
    """Number of parts of a shard for which all loads are integers."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    steps = [load for loads in _all_loads(topology) for load in loads]
    parts = math.lcm(*((load * rate).denominator for load in set(steps) for rate in set(rates)))
    if parts > MOST_BLOCKS:
        raise WeftError(
            f"{NAME} on {topology.name}: balanced loads need {parts} parts of a shard (limit: {MOST_BLOCKS})"
        )
    return parts


@remembered
def _all_loads(topology: Topology) -> list[list[Fraction]]:
    """For each node (only rank 0 if all are alike) the time of each step, in shards per unit of bandwidth."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    if transitive.has_free_translations(topology):
        distance = transitive.distances_to_zero(topology)
        orbit = link_orbits(topology)
        rate_of = {int(one): rates[link] for link, one in enumerate(orbit.tolist())}
        return [[_least_time(choices, rate_of) for _, choices in transitive.choices_by_distance(topology, distance)]]
    distances = _distances(topology)
    last = int(distances.max())
    return [
        [_least_time(_entries(topology, distances, node, t), dict(enumerate(rates))) for t in range(1, last + 1)]
        for node in range(topology.n_npus)
    ]


def _distances(topology: Topology) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Links from each NPU (row) to each (column)."""
    n = topology.n_npus
    if n > MOST_NPUS:
        raise WeftError(f"{NAME} on {topology.name}: {n} NPUs that are not alike (limit: {MOST_NPUS})")
    src, dst = (part.ravel() for part in np.indices((n, n)))
    return np.diff(ShortestPathRouter().paths(topology, src, dst, "first", 0).ptr).reshape(n, n)


def _entries(
    topology: Topology, distances: np.ndarray[tuple[int, int], np.dtype[np.int64]], node: int, step: int
) -> list[dict[int, int]]:
    """For each root at a distance, the links over which its shard may enter a node."""
    entering = np.flatnonzero(topology.dst == node).tolist()
    roots = np.flatnonzero(distances[:, node] == step).tolist()
    return [{link: link for link in entering if distances[root, topology.src[link]] == step - 1} for root in roots]


def _least_time(choices: Sequence[Mapping[int, int]], rates: Mapping[int, int]) -> Fraction:
    """Shortest time in which every shard can be split among its links, by Newton's method on cuts.

    The answer is the largest ratio of shards to the total bandwidth of the links they may use.
    """
    links = sorted({link for mine in choices for link in mine})
    if not choices:
        return Fraction(0)
    place = {link: len(choices) + at for at, link in enumerate(links)}
    most = len(choices) * sum(rates[link] for link in links)  # of any capacity below, and of their sums
    network = FlowNetwork(len(choices) + len(links) + 2, 4 * most * (len(choices) + 1) > LARGEST)
    source, sink = network.n_nodes - 2, network.n_nodes - 1
    supply = [network.add(source, at) for at in range(len(choices))]
    inner = [network.add(at, place[link]) for at, mine in enumerate(choices) for link in mine]
    drain = [network.add(place[link], sink) for link in links]
    time = Fraction(len(choices), sum(rates[link] for link in links))
    while True:
        network.capacity[supply] = time.denominator
        network.capacity[inner] = time.denominator
        network.capacity[drain] = [time.numerator * rates[link] for link in links]
        due = time.denominator * len(choices)
        if network.flow(source, sink, due) >= due:
            return time
        side = network.source_side()
        tight = [mine for at, mine in enumerate(choices) if side[at]]
        time = Fraction(len(tight), sum(rates[link] for link in {link for mine in tight for link in mine}))


def _translated_trees(topology: Topology, k: int) -> transitive.RootTrees:
    """The k trees of rank 0 whose loads are those of `_all_loads`."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    distance = transitive.distances_to_zero(topology)
    orbit = link_orbits(topology)
    rate_of = {int(one): rates[link] for link, one in enumerate(orbit.tolist())}
    parent = np.full((k, topology.n_nodes), -1, np.int64)
    ways = transitive.choices_by_distance(topology, distance)
    for time, (nodes, choices) in zip(_all_loads(topology)[0], ways, strict=True):
        links = transitive.choose_links(choices, _rooms(rate_of, time, k), k)
        assert links is not None
        parent[:, nodes] = topology.src[np.array(links)].T
    return transitive.RootTrees(parent, np.argsort(distance, kind="stable"), distance)


def _forest(topology: Topology, k: int) -> Forest:
    """One tree per part of each shard."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    distances = _distances(topology)
    n = topology.n_npus
    enters = np.full((n, k, n), -1, np.int64)  # root, part, node: the link
    for node, times in enumerate(_all_loads(topology)):
        for step, time in enumerate(times, 1):
            roots = np.flatnonzero(distances[:, node] == step)
            if roots.size:
                entries = _entries(topology, distances, node, step)
                links = transitive.choose_links(entries, _rooms(dict(enumerate(rates)), time, k), k)
                assert links is not None
                enters[roots, :, node] = np.array(links)
    trees = []
    for root in range(n):
        order = np.argsort(distances[root], kind="stable")[1:].tolist()
        for part in range(k):
            into = enters[root, part].tolist()
            trees.append(Tree(root, 1, tuple(Edge(int(topology.src[into[x]]), x, (into[x],)) for x in order)))
    return Forest(topology, tuple(trees))


def _rooms(rates: Mapping[int, int], time: Fraction, k: int) -> dict[int, int]:
    """Parts that each link can carry in a given time."""
    return {link: math.floor(time * k * rate) for link, rate in rates.items()}
