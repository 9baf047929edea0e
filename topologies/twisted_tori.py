"""The twisted torus: a torus whose wrap-around links of the short dimensions also shift the long ones.

Of equal routes the first is one by a hash: the first of all would pile onto few links.

N. Jouppi et al., "TPU v4: An Optically Reconfigurable Supercomputer for Machine Learning with Hardware Support for
Embeddings", ISCA 2023: the optical circuits on the faces of the cubes switch between the two.
"""

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked
from topologies.core.extents import check_extents, check_memory, format_extents
from topologies.core.links import EqualLinks, Links, at_tier_rates, in_tiers
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Topology


@checked
def twisted_torus(shape: Sequence[int], **links: Unpack[EqualLinks]) -> Topology:
    """A twisted torus: `twisted_torus((4, 4, 8))` has 128 NPUs.

    Parameters
    ----------
    shape : sequence of int
        K, K, 2K: the wraps of dimensions 0 and 1 shift dimension 2 by K. K, 2K, 2K: the wrap of dimension 0 shifts
        dimensions 1 and 2 by K. K is at least 2.
    bandwidth, latency : quantity
        Per direction of every cable.
    hop_latency : quantity
        Added on every arrival at an NPU, which contains a router.

    Raises
    ------
    WeftError
        A different shape, or a bad quantity.
    """
    extents = check_extents(shape, "twisted-torus")
    name = f"twisted-torus:{format_extents(extents)}"
    shifts = _shifts(name, extents)
    n = int(np.prod(extents))
    check_memory(name, n, 6 * n)
    coords = np.stack(np.unravel_index(np.arange(n), extents, order="F"), axis=1)
    node, tiers = np.arange(n), []
    for dim in range(3):
        onward = _neighbor(coords, extents, dim, shifts.get(dim, {}))
        tiers.append((np.concatenate([node, onward]), np.concatenate([onward, node])))
    router, places = ShortestPathRouter(spread=True), coords.astype(np.int32)
    frame = in_tiers(name, tiers, n, shape=extents, coords=places, router=router)
    each = Links(bandwidth=[links["bandwidth"]] * 3, latency=[links["latency"]] * 3, hop_latency=links["hop_latency"])
    return at_tier_rates(frame, 3, each, npus_forward=True)


def _shifts(name: str, extents: tuple[int, ...]) -> dict[int, dict[int, int]]:
    """For each dimension whose wrap-around shifts others: the shifts."""
    k = extents[0]
    if k > 1 and extents == (k, k, 2 * k):
        return {0: {2: k}, 1: {2: k}}
    if k > 1 and extents == (k, 2 * k, 2 * k):
        return {0: {1: k, 2: k}}
    raise WeftError(f"{name}: a twisted torus is K x K x 2K or K x 2K x 2K with K of at least 2, such as 4x4x8")


def _neighbor(
    coords: npt.NDArray[np.int64], extents: tuple[int, ...], dim: int, shift: dict[int, int]
) -> npt.NDArray[np.int64]:
    """The next node in a dimension, (n,)."""
    moved = coords.copy()
    moved[:, dim] += 1
    wraps = moved[:, dim] == extents[dim]
    for other, by in shift.items():
        moved[wraps, other] += by
    return np.asarray(np.ravel_multi_index(tuple((moved % extents).T), extents, order="F"))
