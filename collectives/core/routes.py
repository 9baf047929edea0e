"""Links crossed by transfers: those they name themselves, otherwise those of the topology's router."""

from __future__ import annotations

import numpy as np

from collectives.core.proof import ScheduleError
from collectives.core.transfers import Transfers
from topologies import Paths, Topology
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
    exists = (links >= 0) & (links < topology.n_links)
    if not exists.all():
        at = int(np.argmin(exists))
        _refuse_links(transfers, topology, name, at, f"link {links[at]} is not one of 0 to {topology.n_links - 1}")
    named = np.flatnonzero(ptr[1:] > ptr[:-1])
    first, last = ptr[:-1][named], ptr[1:][named] - 1
    ends = topology.dst[links]
    begins = np.empty(links.size, np.int64)
    begins[1:] = ends[:-1]
    begins[first] = transfers.src[named]
    apart = topology.src[links] != begins
    if apart.any():
        at = int(np.argmax(apart))
        here = topology.node_name(int(begins[at]))
        _refuse_links(transfers, topology, name, at, f"link {links[at]} does not begin at {here}")
    elsewhere = ends[last] != transfers.dst[named]
    if elsewhere.any():
        at = int(last[np.argmax(elsewhere)])
        _refuse_links(transfers, topology, name, at, f"they end at {topology.node_name(int(ends[at]))}")


def _refuse_links(transfers: Transfers, topology: Topology, name: str, at: int, fault: str) -> None:
    ptr, links = transfers.via_ptr, transfers.via_links
    assert ptr is not None and links is not None
    row = int(np.searchsorted(ptr, at, side="right")) - 1
    route = links[ptr[row] : ptr[row + 1]].tolist()
    shown = f"{', '.join(map(str, route[:8]))}{', ...' if len(route) > 8 else ''}"
    where = f"{name} on {topology.name}: slot {transfers.slot[row]} of rank {transfers.src[row]}"
    raise ScheduleError(
        f"{where} names the links [{shown}], which are no path to rank {transfers.dst[row]}: {fault}"
    )
