"""NPUs around one switch."""

from __future__ import annotations

from topologies.core.blocks import Switched
from topologies.core.extents import check_extents
from topologies.core.topology import (
    DEFAULT_BANDWIDTH,
    DEFAULT_HOP_LATENCY,
    DEFAULT_LATENCY,
    Topology,
)
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def switch(
    n: int,
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """`n` NPUs, each with one cable to the same switch; one NPU alone has neither cable nor switch.

    Parameters
    ----------
    n : int
        Number of NPUs.
    bandwidth, latency : quantity
        Of one direction of every cable.
    hop_latency : quantity
        Charged on each arrival at the switch; NPUs are plain endpoints and charge none.

    Raises
    ------
    WeftError
        Fewer than one NPU, a bad quantity, or more links than can be held.
    """
    (extent,) = check_extents(n, "switch")
    return build_product(f"switch:{extent}", [Switched(extent)], bandwidth, latency, hop_latency)
