"""Links crossed by transfers: those they name themselves, otherwise those of the topology's router."""

import numpy as np

from collectives.core.proof import ScheduleError
from collectives.core.transfers import Transfers
from topologies import Paths, Topology
from topologies.core.path_checks import brief_links, broken_path
from topologies.core.paths import ranges


def paths_of(transfers: Transfers, topology: Topology, tie: str = "first", seed: int = 0) -> Paths:
    """Routes of transfers, one per row in order; two for a row that is split.

    `tie`, `seed`: as in `Topology.paths`; a transfer that names its links has no ties.
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


def check_named_links(transfers: Transfers, topology: Topology, name: str) -> None:
    """Reject links that do not lead from the source of their transfer to its destination.

    `name`: what names the links, for the message.
    ScheduleError: a link that does not exist, begins elsewhere than where the one before it ends, or ends elsewhere
        than at the destination; the message names the rank, the slot and the links.
    """
    ptr, links = transfers.via_ptr, transfers.via_links
    if ptr is None or links is None or not links.size:
        return
    fault = broken_path(topology, ptr, links, transfers.src, transfers.dst)
    if fault is not None:
        row, why = fault
        where = f"{name} on {topology.name}: slot {transfers.slot[row]} of rank {transfers.src[row]}"
        raise ScheduleError(f"{where} names the links {brief_links(links[ptr[row] : ptr[row + 1]])}, which are no path "
                            f"to rank {transfers.dst[row]}: {why}")
