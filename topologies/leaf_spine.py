"""Leaf-spine networks: two tiers of switches."""

from __future__ import annotations

from topologies.core.topology import DEFAULT_BANDWIDTH, DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Topology
from topologies.core.updown import Tiers
from topologies.errors import WeftError
from topologies.fat_tree import build_tiers
from topologies.units import Quantities, Quantity


def leaf_spine(
    hosts: int,
    leaves: int,
    spines: int,
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """Leaves of `hosts` NPUs each, every leaf joined to every spine by one cable.

    NPUs have coordinates (place under the leaf, leaf). With equal cables the network is oversubscribed
    hosts : spines.

    Parameters
    ----------
    hosts : int
        NPUs of a leaf.
    leaves, spines : int
    bandwidth, latency : quantity or one for each tier
        Of one direction of the cables below the leaves and below the spines.
    hop_latency : quantity
        Charged on each arrival at a switch.

    Raises
    ------
    WeftError
        A number below 1, a bad quantity, or more links than can be held.
    """
    for what, count in (("hosts", hosts), ("leaves", leaves), ("spines", spines)):
        if not isinstance(count, int) or count < 1:
            raise WeftError(f"leaf-spine with {count!r} {what}: give a whole number of at least 1")
    tiers = Tiers(hosts, leaves, 1, spines, 0)
    return build_tiers(
        f"leaf-spine:{hosts}x{leaves}x{spines}", tiers, (hosts, leaves), bandwidth, latency, hop_latency
    )
