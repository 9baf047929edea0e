"""The k shortest paths of each pair, over which its bytes can be spread (TopoOpt, model-parallel traffic)."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from topologies.checks import WeftError
from topologies.core.paths import Ints, Paths
from topologies.core.routing import distances
from topologies.core.topology import Topology


def k_shortest_paths(topology: Topology, src: Ints, dst: Ints, k: int) -> Paths:
    """Up to k simple paths for each pair: fewest links first, then lowest link indices.

    `src`, `dst` (n,).
    Returns the paths of one pair next to each other.
    WeftError: k below 1, or a pair without a route.
    """
    if k < 1:
        raise WeftError(f"{k} routes per pair requested: at least 1")
    targets, row = np.unique(dst, return_inverse=True)
    left = distances(topology, targets)
    leaving = _leaving(topology)
    routes: list[list[int]] = []
    pair: list[int] = []
    for at, (source, target) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        if left[row[at], source] < 0:
            names = topology.node_name(source), topology.node_name(target)
            raise WeftError(f"topology {topology.name}: no route from {names[0]} to {names[1]}")
        found = list(islice(_in_order(leaving, left[row[at]].tolist(), source, target), k))
        routes += found
        pair += [at] * len(found)
    ptr = np.concatenate(([0], np.cumsum([len(route) for route in routes], dtype=np.int64)))
    return Paths(ptr, np.array([link for route in routes for link in route], np.int32), np.array(pair, np.int64))


Leaving = list[list[tuple[int, int]]]
"""(link, the node it leads to), for each node."""


def _leaving(topology: Topology) -> Leaving:
    found: Leaving = [[] for _ in range(topology.n_nodes)]
    for link, (tail, head) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        found[tail].append((link, head))
    return found


def _in_order(leaving: Leaving, left: list[int], source: int, target: int) -> Iterator[list[int]]:
    """All simple paths, shortest first; `left` is the distance of each node to the target, -1 if unreachable."""
    for length in range(left[source], len(left)):
        yield from _of_length(leaving, left, source, target, length)
        if source == target:
            return


def _of_length(leaving: Leaving, left: list[int], source: int, target: int, length: int) -> Iterator[list[int]]:
    """Simple paths of exactly this many links, depth first; nodes too far from the target are not entered."""
    if length == 0:
        yield []
        return
    path: list[int] = []
    passed = [source]
    choices = [iter(leaving[source])]
    while choices:
        link, head = next(choices[-1], (-1, -1))
        if link < 0:
            choices.pop()
            passed.pop()
            if path:
                path.pop()
        elif head == target and len(path) + 1 == length:
            yield [*path, link]
        elif 0 < left[head] < length - len(path) and head not in passed:
            path.append(link)
            passed.append(head)
            choices.append(iter(leaving[head]))
