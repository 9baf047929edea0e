"""Links crossed by transfers: those they name themselves, otherwise those of the topology's router."""

from __future__ import annotations

import numpy as np

from collectives.core.transfers import Transfers
from topologies import Paths, Topology
from topologies.core.paths import ranges


def paths_of(transfers: Transfers, topology: Topology, tie: str = "first", seed: int = 0) -> Paths:
    """Routes of transfers, one per row in order; two for a row that is split.

    Parameters
    ----------
    transfers : Transfers
    topology : Topology
    tie, seed
        As in `Topology.paths`; a transfer that names its links has no ties.
    """
    if transfers.via_ptr is None or transfers.via_links is None:
        return topology.paths(transfers.src, transfers.dst, tie, seed)
    hops = np.diff(transfers.via_ptr)
    chosen = np.flatnonzero((hops == 0) & (transfers.src != transfers.dst))
    if not chosen.size:
        return Paths(transfers.via_ptr, transfers.via_links, np.arange(hops.size))
    rest = topology.paths(transfers.src[chosen], transfers.dst[chosen], tie, seed)
    own = np.flatnonzero((hops > 0) | (transfers.src == transfers.dst))
    pair = np.concatenate([own, chosen[rest.pair]])
    start = np.concatenate([transfers.via_ptr[own], rest.ptr[:-1] + transfers.via_links.size])
    length = np.concatenate([hops[own], np.diff(rest.ptr)])
    order = np.argsort(pair, kind="stable")
    links = np.concatenate([transfers.via_links, rest.links])
    ptr = np.concatenate(([0], np.cumsum(length[order])))
    return Paths(ptr, links[ranges(start[order], length[order])], pair[order])
