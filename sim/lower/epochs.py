"""Circuits that change in time: what has to drain before a change, and what waits for it.

A change that is known beforehand is a task on the optical controller. It waits for the circuits in use to drain, takes
its delay, and whatever uses the new circuits waits for it. Every circuit of an epoch is a separate link, so that what
crosses it shows in which epoch it is sent.
"""

from collections.abc import Sequence

import numpy as np

from sim.program import I64, WHOLE
from topologies import WeftError
from topologies.core.paths import ranges
from workloads.job import Reconfigure


def circuit_edges(changes: Sequence[tuple[int, Reconfigure]], task_route: I64, hops: I64, route_link: I64) -> I64:
    """Dependencies of changes of circuits, (3, E): what has to drain before each, and what waits for it.

    `changes`: with the task of each.
    `task_route` (T,).
    `hops` (R,): hops of each route.
    `route_link` (H,): links of all routes; larger numbers are other servers.
    WeftError: a link that two changes bring up.
    """
    if not changes:
        return np.zeros((3, 0), np.int64)
    first = np.cumsum(hops) - hops
    link = route_link[ranges(first[task_route], hops[task_route])]
    task = np.repeat(np.arange(task_route.size), hops[task_route])
    order = np.argsort(link, kind="stable")
    link, task = link[order], task[order]
    came_up: dict[int, int] = {}
    edges = []
    for switching, work in changes:
        if twice := came_up.keys() & set(work.up):
            raise WeftError(f"link {min(twice)} is brought up twice: a circuit of a later epoch is a link of its own")
        came_up |= dict.fromkeys(work.up, switching)
    for switching, work in changes:
        waits = _crossing(link, task, work.up)
        edges.append([np.full(waits.size, switching), waits])
        if work.drain:
            before = [came_up[one] for one in work.down if one in came_up]
            drains = np.unique(np.append(_crossing(link, task, work.down), np.array(before, np.int64)))
            edges.append([drains, np.full(drains.size, switching)])
    parent, child = np.concatenate(edges, axis=1)
    return np.stack([parent, child, np.full(parent.size, WHOLE)])


def _crossing(link: I64, task: I64, wanted: Sequence[int]) -> I64:
    """Tasks that cross some of the links; both columns are in the order of the links."""
    some = np.array(wanted, np.int64)
    low, high = (np.searchsorted(link, some, side) for side in ("left", "right"))
    return np.unique(task[ranges(low, high - low)])
