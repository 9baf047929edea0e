"""Link loads: of a set of transfers, or where every pair spreads its traffic evenly over all of its shortest paths.

The latter is edge betweenness: U. Brandes, "A faster algorithm for betweenness centrality", 2001 (the dependency
accumulation).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked, told
from topologies.core.routing import distances
from topologies.core.topology import IntArray, Topology

Floats = npt.NDArray[np.float64]


@checked
def link_loads(
    topology: Topology, src: IntArray, dst: IntArray, size_bytes: float | Sequence[float] | Floats, tie: str = "first",
    seed: int = 0,
) -> Floats:
    """Bytes that cross each link when every pair sends along its routes.

    Parameters
    ----------
    topology : Topology
    src, dst : (n,) int
        Ends of each transfer.
    size_bytes : float or (n,) float
        Bytes per transfer, split equally over the routes of a pair.
    tie, seed
        As in `Topology.paths`.

    Returns
    -------
    (n_links,) float64

    Raises
    ------
    WeftError
        An unknown tie rule, a node that does not exist, or a pair without a route.
    """
    paths = topology.paths(src, dst, tie, seed)
    routes_per_pair = np.bincount(paths.pair, minlength=np.size(src))
    try:
        sizes = np.broadcast_to(np.asarray(size_bytes, np.float64), np.shape(src))
    except (TypeError, ValueError):
        raise WeftError(f"size_bytes is {told(size_bytes)}: give a number, or one for each pair") from None
    share = sizes / routes_per_pair
    weights = np.repeat(share[paths.pair], np.diff(paths.ptr))
    return np.asarray(np.bincount(paths.links, weights, minlength=topology.n_links), np.float64)


def hop_distances(topology: Topology) -> npt.NDArray[np.int64]:
    """Links on a shortest path between each pair of nodes, (n_nodes, n_nodes); -1 if there is none."""
    return distances(topology, np.arange(topology.n_nodes)).T.astype(np.int64)


def spread_loads(topology: Topology, demand: Floats) -> Floats:
    """Load of each link, (n_links,), when each pair's demand splits evenly over all of its shortest paths.

    `demand` (n_nodes, n_nodes): from row to column. Demand of pairs without a path is ignored.
    """
    distance = hop_distances(topology)
    loads = np.zeros(topology.n_links)
    for source in range(topology.n_nodes):
        hops = distance[source]
        useful = np.flatnonzero((hops[topology.src] >= 0) & (hops[topology.dst] == hops[topology.src] + 1))
        layer = hops[topology.dst[useful]]
        ways = np.zeros(topology.n_nodes)
        ways[source] = 1.0
        for depth in range(1, int(hops.max()) + 1):
            links = useful[layer == depth]
            np.add.at(ways, topology.dst[links], ways[topology.src[links]])
        onward = demand[source].astype(np.float64).copy()
        for depth in range(int(hops.max()), 0, -1):
            links = useful[layer == depth]
            share = onward[topology.dst[links]] * ways[topology.src[links]] / ways[topology.dst[links]]
            loads[links] += share
            np.add.at(onward, topology.src[links], share)
    return loads


def average_path(topology: Topology) -> float:
    """Mean number of links between distinct NPUs; infinite if some pair has no path."""
    p = topology.n_npus
    hops = hop_distances(topology)[:p, :p]
    if np.any(hops < 0):
        return float("inf")
    return float(hops.sum() / (p * (p - 1))) if p > 1 else 0.0


def diameter(topology: Topology) -> int:
    """Largest number of links between two NPUs; -1 if some pair has no path."""
    p = topology.n_npus
    hops = hop_distances(topology)[:p, :p]
    return -1 if np.any(hops < 0) else int(hops.max())
