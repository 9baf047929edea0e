"""Dragonfly: fully connected groups of routers, with one cable between each pair of groups."""

from typing import Unpack

import numpy as np

from topologies.checks import WeftError, checked
from topologies.core.extents import check_extents, check_memory, format_extents
from topologies.core.links import Links, at_tier_rates, in_tiers
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Topology


@checked
def dragonfly(groups: int, routers: int, hosts: int | None = None, **links: Unpack[Links]) -> Topology:
    """A dragonfly: `dragonfly(9, 4)` has 9 groups of 4 routers, each router an NPU.

    Slot k of group G, at router k // h, goes to group G + k + 1, where h = (groups - 1) / routers is the number of
    global cables of a router. Without `hosts` every router is an NPU; otherwise routers are switches.

    Parameters
    ----------
    groups, routers : int
        Number of groups, and routers per group.
    hosts : int, optional
        NPUs per router.
    bandwidth, latency : quantity or one per tier
        Per direction of every cable: inside the groups, between them, and to the hosts if any.
    hop_latency : quantity
        Added on every arrival at a router.

    Raises
    ------
    WeftError
        A router count that does not divide groups - 1, a bad quantity, or more links than fit in memory.

    References
    ----------
    .. [1] J. Kim et al., "Technology-driven, highly-scalable dragonfly topology", ISCA 2008.
    """
    extents = check_extents([groups, routers, *([] if hosts is None else [hosts])], "dragonfly")
    name = f"dragonfly:{format_extents(extents)}"
    if (groups - 1) % routers:
        raise WeftError(
            f"{name}: {groups - 1} global cables per group cannot be split evenly over {routers} routers; "
            f"choose a number of groups that is a multiple of {routers}, plus 1"
        )
    at_router = hosts or 0
    n_routers = groups * routers
    check_memory(name, n_routers * (at_router + 1), n_routers * (routers + 2 * at_router) + groups**2)
    pairs, n_npus = [_local(groups, routers), _global(groups, routers)], n_routers
    if hosts is not None:
        n_npus = n_routers * hosts
        npu = np.arange(n_npus)
        router = n_npus + npu // hosts
        pairs = [pair + n_npus for pair in pairs]
        pairs.append(np.stack([np.concatenate([npu, router]), np.concatenate([router, npu])]))
    coords = _coordinates(extents[::-1], n_npus, 0 if hosts is None else n_routers)
    frame = in_tiers(
        name, [(src, dst) for src, dst in pairs], n_npus, shape=extents[::-1], coords=coords,
        router=ShortestPathRouter(),
    )
    return at_tier_rates(frame, len(pairs), links, npus_forward=hosts is None)


def _local(groups: int, routers: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Ends of the cables inside the groups, (2, n)."""
    group, a, b = (part.ravel() for part in np.indices((groups, routers, routers)))
    keep = a != b
    return np.stack([group * routers + a, group * routers + b])[:, keep]


def _global(groups: int, routers: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Ends of the cables between groups, (2, n)."""
    if groups == 1:
        return np.zeros((2, 0), np.int64)
    group, slot = (part.ravel() for part in np.indices((groups, groups - 1)))
    per_router = (groups - 1) // routers
    there = (group + slot + 1) % groups
    back = groups - 2 - slot
    return np.stack([group * routers + slot // per_router, there * routers + back // per_router])


def _coordinates(
    shape: tuple[int, ...], n_npus: int, n_switches: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    npus = np.indices(shape[::-1]).reshape(len(shape), -1)[::-1].T
    if not n_switches:
        return npus.astype(np.int32)
    switches = npus[:: n_npus // n_switches].copy()
    switches[:, 0] = -1
    return np.concatenate([npus, switches]).astype(np.int32)
