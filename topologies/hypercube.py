"""The hypercube: two NPUs along every dimension."""

from __future__ import annotations

from topologies.core.blocks import Ring
from topologies.core.extents import check_extents
from topologies.core.topology import DEFAULT_BANDWIDTH, DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Topology
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def hypercube(
    dimensions: int,
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """A hypercube: `hypercube(4)` has 16 NPUs, each with a cable to the NPUs whose rank differs in one bit.

    Parameters
    ----------
    dimensions : int
    bandwidth, latency : quantity or one for each dimension
        Of one direction of every cable of a dimension; dimension 0 is the lowest bit of the rank.
    hop_latency : quantity
        Charged on each arrival at an NPU, which carries a router.

    Raises
    ------
    WeftError
        Fewer than one dimension, a bad quantity, or more links than can be held.
    """
    (count,) = check_extents(dimensions, "hypercube")
    return build_product(f"hypercube:{count}", [Ring(2)] * count, bandwidth, latency, hop_latency)
