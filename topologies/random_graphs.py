"""Random regular networks: every NPU has the same number of cables, to random other NPUs (Jellyfish)."""

from typing import Unpack

import numpy as np

from topologies.checks import Natural, WeftError, checked
from topologies.core.extents import check_extents
from topologies.core.links import EqualLinks, network_of, per_tier
from topologies.core.topology import Topology
from topologies.units import parse_time

MOST_ENDS = 200_000
"""Limit on NPUs x degree."""


@checked
def random_regular(n: int, degree: int, seed: Natural = 1, **links: Unpack[EqualLinks]) -> Topology:
    """A random regular network: `random_regular(32, 4, 7)` has 32 NPUs with 4 cables each.

    Parameters
    ----------
    n, degree : int
        NPUs, and cables per NPU.
    seed : int
        The same seed gives the same network.
    bandwidth, latency : quantity
        Per direction of every cable.
    hop_latency : quantity
        Added on every arrival at an NPU, which contains a router.

    Raises
    ------
    WeftError
        A degree of n or more, an odd number of cable ends, a disconnected draw, or a bad quantity.

    References
    ----------
    .. [1] A. Singla et al., "Jellyfish: networking data centers randomly", NSDI 2012.
    """
    import networkx as nx  # heavy: loaded where it is used

    check_extents((n, degree), "random-regular")
    name = f"random-regular:{n}x{degree}x{seed}"
    if degree >= n or n * degree % 2:
        raise WeftError(f"{name}: {n} NPUs cannot have {degree} cables each: n x degree must be even and degree < n")
    if n * degree > MOST_ENDS:
        raise WeftError(f"{name} has {n * degree:,} cable ends: at most {MOST_ENDS:,}, which are drawn in seconds")
    graph = nx.random_regular_graph(min(degree, n - 1 - degree), n, seed=seed)
    if degree > n - 1 - degree:  # drawing a dense one cable by cable need not end
        graph = nx.complement(graph)
    if not nx.is_connected(graph):
        raise WeftError(f"{name}: this draw is not connected; choose another seed or a larger degree")
    ends = sorted((a, b) for one, other in graph.edges for a, b in ((one, other), (other, one)))
    (rate,), (time_ps,) = per_tier(links["bandwidth"], links["latency"], 1)
    hop_ps = np.full(n, parse_time(links["hop_latency"], "hop latency") * bool(ends))
    return network_of(name, n, n, ends, np.full(len(ends), rate), np.full(len(ends), time_ps), hop_ps)
