"""HyperX: every NPU joined to all others of its line, in every dimension."""

from __future__ import annotations

from collections.abc import Sequence

from topologies.core.blocks import FullyConnected
from topologies.core.extents import check_extents, format_extents
from topologies.core.topology import DEFAULT_BANDWIDTH, DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Topology
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def hyperx(
    shape: int | Sequence[int],
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """A HyperX of one NPU a router: `hyperx((4, 4))` has 16 NPUs of degree 6, also called a flattened butterfly.

    Parameters
    ----------
    shape : int or sequence of int
        Extents; dimension 0 varies fastest in the rank.
    bandwidth, latency : quantity or one for each dimension
        Of one direction of every cable of a dimension.
    hop_latency : quantity
        Charged on each arrival at an NPU, which carries a router.

    Raises
    ------
    WeftError
        An extent below 1, a bad quantity, or more links than can be held.

    References
    ----------
    .. [1] J. H. Ahn et al., "HyperX: topology, routing, and packaging of efficient large-scale networks", SC 2009.
    """
    extents = check_extents(shape, "hyperx")
    blocks = [FullyConnected(extent) for extent in extents]
    return build_product(f"hyperx:{format_extents(extents)}", blocks, bandwidth, latency, hop_latency)
