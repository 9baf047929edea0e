"""Recursive bisection of a graph into parts between which little passes: for fabrics without rows, as random graphs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from sim.program import I8

FIRST, LAST = 1.0, 2.0
"""How strongly nodes follow their neighbors, first and last: at 1 little persists but what separates whole halves."""
OWN = 0.5
"""How much they keep of their own lean: without it, all nodes of a bipartite graph would swap sides at every step."""

Floats = npt.NDArray[np.float64]


def part_of_nodes(links: csr_array, work: Floats, parts: int, steps: int) -> I8:
    """The part of each node, (N,), with about equal shares of the work: halves of halves.

    `links`: (N, N), symmetric; what passes between two nodes.
    `steps`: more of them let less cross; each takes some nanoseconds per link.
    """
    part = np.zeros(work.size, np.int8)
    if parts > 1:
        lower = parts // 2
        upper = _upper_half(links, work, lower / parts, steps)
        for first, count, nodes in ((0, lower, np.flatnonzero(~upper)), (lower, parts - lower, np.flatnonzero(upper))):
            part[nodes] = first + part_of_nodes(links[nodes][:, nodes], work[nodes], count, steps)
    return part


def _upper_half(links: csr_array, work: Floats, share: float, steps: int) -> npt.NDArray[np.bool_]:
    """Which nodes are in the upper of two halves; `share`: of the work, in the lower.

    Every node leans to the side of its neighbors, more and more strongly, while the sides stay balanced (mean-field
    annealing).
    """
    neighbors = np.maximum(links.sum(axis=1), np.finfo(float).tiny)
    weight = work / max(work.sum(), 1)
    side = np.random.default_rng(0).normal(size=work.size)
    for strength in np.geomspace(FIRST, LAST, steps):
        pull = (links @ side / neighbors + OWN * side) / (1 + OWN)
        side = np.tanh(strength * (pull - weight @ pull))
    order = np.argsort(links @ side / neighbors, kind="stable")
    before = np.cumsum(weight[order])
    upper = np.zeros(work.size, bool)
    upper[order] = before - weight[order] / 2 > share * weight.sum()
    return upper
