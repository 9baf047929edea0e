"""The torus: a ring in every dimension."""

from __future__ import annotations

from collections.abc import Sequence

from topologies.core.blocks import Ring
from topologies.core.extents import check_extents, format_extents
from topologies.core.topology import (
    DEFAULT_BANDWIDTH,
    DEFAULT_HOP_LATENCY,
    DEFAULT_LATENCY,
    Topology,
)
from topologies.multidim import build_product
from topologies.units import Quantities, Quantity


def torus(
    shape: int | Sequence[int],
    *,
    bandwidth: Quantities = DEFAULT_BANDWIDTH,
    latency: Quantities = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """A torus of any number of dimensions: `torus((8, 8))` has 64 NPUs and 256 links.

    Along an extent of 1 there are no links; of 2 one cable (two links); of 3 and more a ring.

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
    """
    extents = check_extents(shape, "torus")
    blocks = [Ring(extent) for extent in extents]
    return build_product(f"torus:{format_extents(extents)}", blocks, bandwidth, latency, hop_latency)
