"""Every NPU joined to every other."""

from __future__ import annotations

from topologies.core.blocks import FullyConnected
from topologies.core.extents import check_extents
from topologies.core.topology import (
    DEFAULT_BANDWIDTH,
    DEFAULT_HOP_LATENCY,
    DEFAULT_LATENCY,
    Topology,
)
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def fully_connected(
    n: int,
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """`n` NPUs, each joined to every other by a cable of its own.

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
    (extent,) = check_extents(n, "fc")
    return build_product(f"fc:{extent}", [FullyConnected(extent)], bandwidth, latency, hop_latency)
