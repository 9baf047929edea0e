"""Link loads of a set of transfers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked, told
from topologies.core.topology import IntArray, Topology

Floats = npt.NDArray[np.float64]


@checked
def link_loads(
    topology: Topology,
    src: IntArray,
    dst: IntArray,
    size_bytes: npt.ArrayLike,
    tie: str = "first",
    seed: int = 0,
) -> Floats:
    """Bytes that cross each link when every pair sends along its routes.

    Parameters
    ----------
    topology : Topology
    src, dst : (n,) int
        Ends of each transfer.
    size_bytes : float or (n,) float
        Bytes per transfer, split equally over the routes of a pair.
    tie, seed
        As in `Topology.paths`.

    Returns
    -------
    (n_links,) float64

    Raises
    ------
    WeftError
        An unknown tie rule, a node that does not exist, or a pair without a route.
    """
    paths = topology.paths(src, dst, tie, seed)
    routes_per_pair = np.bincount(paths.pair, minlength=np.size(src))
    try:
        sizes = np.broadcast_to(np.asarray(size_bytes, np.float64), np.shape(src))
    except (TypeError, ValueError):
        raise WeftError(f"size_bytes is {told(size_bytes)}: give a number, or one for each pair") from None
    share = sizes / routes_per_pair
    weights = np.repeat(share[paths.pair], np.diff(paths.ptr))
    return np.asarray(np.bincount(paths.links, weights, minlength=topology.n_links), np.float64)
