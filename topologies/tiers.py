"""Tiers of switches: k-ary fat-trees, and leaves under spines."""

import math
from functools import lru_cache
from typing import Unpack

import numpy as np

from topologies.checks import Count, WeftError, checked
from topologies.core.extents import check_memory
from topologies.core.links import MOST_KEPT_NODES, Links, at_tier_rates, in_tiers
from topologies.core.topology import Topology
from topologies.core.updown import Tiers, UpDownRouter, tier_coordinates, tier_links


@checked
def fat_tree(k: int, hosts: Count | None = None, **links: Unpack[Links]) -> Topology:
    """A k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches.

    NPUs have coordinates (position under the edge switch, edge switch in the pod, pod). Routes go up to the nearest
    common switches; see `topologies.core.updown` for the choice among them.

    Parameters
    ----------
    k : int
        Ports per aggregation or core switch; even.
    hosts : int, optional
        NPUs per edge switch (default: k/2, rearrangeably nonblocking); h makes it oversubscribed 2h/k : 1.
    bandwidth, latency : quantity or one per tier
        Per direction of the cables below the edge, aggregation and core switches.
    hop_latency : quantity
        Added on every arrival at a switch.

    Raises
    ------
    WeftError
        An odd k, no hosts, a bad quantity, or more links than fit in memory.

    References
    ----------
    .. [1] M. Al-Fares, A. Loukissas, A. Vahdat, "A scalable, commodity data center network architecture",
       SIGCOMM 2008.
    """
    if k < 2 or k % 2:
        raise WeftError(f"fat-tree of {k!r}-port switches: give an even number of at least 2")
    hosts = k // 2 if hosts is None else hosts
    name = f"fat-tree:{k}" if hosts == k // 2 else f"fat-tree:{k}x{hosts}"
    tiers = Tiers(hosts, k // 2, k, k // 2, k // 2)
    return build_tiers(name, tiers, (hosts, k // 2, k), links)


@checked
def leaf_spine(hosts: Count, leaves: Count, spines: Count, **links: Unpack[Links]) -> Topology:
    """Leaves with `hosts` NPUs each, and one cable between every leaf and every spine.

    NPUs have coordinates (position under the leaf, leaf). With equal cables the network is oversubscribed
    hosts : spines.

    Parameters
    ----------
    hosts : int
        NPUs per leaf.
    leaves, spines : int
    bandwidth, latency : quantity or one per tier
        Per direction of the cables below the leaves and below the spines.
    hop_latency : quantity
        Added on every arrival at a switch.

    Raises
    ------
    WeftError
        A number below 1, a bad quantity, or more links than fit in memory.
    """
    tiers = Tiers(hosts, leaves, 1, spines, 0)
    return build_tiers(f"leaf-spine:{hosts}x{leaves}x{spines}", tiers, (hosts, leaves), links)


def build_tiers(name: str, tiers: Tiers, shape: tuple[int, ...], links: Links) -> Topology:
    """Build a tiered network; see `fat_tree` and `leaf_spine` for the parameters."""
    n_cables = tiers.n_npus + tiers.edges * tiers.pods * tiers.ups + tiers.ups * tiers.pods * tiers.cores
    check_memory(name, tiers.n_nodes, 2 * n_cables)
    build = _frame if tiers.n_nodes <= MOST_KEPT_NODES else _frame.__wrapped__
    return at_tier_rates(build(name, tiers, shape), 3 if tiers.cores else 2, links, npus_forward=False)


@lru_cache(maxsize=4)
def _frame(name: str, tiers: Tiers, shape: tuple[int, ...]) -> Topology:
    both_ways = [(np.concatenate([lower, upper]), np.concatenate([upper, lower])) for lower, upper in tier_links(tiers)]
    return in_tiers(
        name, both_ways, tiers.n_npus, shape=shape, coords=tier_coordinates(tiers)[:, : len(shape)],
        router=UpDownRouter(tiers), node_names=_names(tiers),
    )


def _names(tiers: Tiers) -> tuple[str, ...]:
    below, above = ("edge", "aggregation") if tiers.cores else ("leaf", "spine")
    counts = {
        "npu": tiers.n_npus, below: tiers.edges * tiers.pods, above: tiers.ups * tiers.pods,
        "core": tiers.ups * tiers.cores,
    }
    assert math.fsum(counts.values()) == tiers.n_nodes
    return tuple(f"{kind}{i}" for kind, count in counts.items() for i in range(count))
