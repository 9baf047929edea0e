"""The ring: a torus of one dimension."""

from __future__ import annotations

from topologies.core.blocks import Ring
from topologies.core.extents import check_extents
from topologies.core.topology import (
    DEFAULT_BANDWIDTH,
    DEFAULT_HOP_LATENCY,
    DEFAULT_LATENCY,
    Topology,
)
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def ring(
    n: int,
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """`n` NPUs in a ring; two are joined by one cable, one has none.

    Parameters
    ----------
    n : int
        Number of NPUs.
    bandwidth, latency : quantity
        Of one direction of every cable.
    hop_latency : quantity
        Charged on each arrival at an NPU, which carries a router.

    Raises
    ------
    WeftError
        Fewer than one NPU, a bad quantity, or more links than can be held.
    """
    (extent,) = check_extents(n, "ring")
    return build_product(f"ring:{extent}", [Ring(extent)], bandwidth, latency, hop_latency)
