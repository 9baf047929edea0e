"""Circuits that change in time: what has to drain before a change, and what waits for it.

A change that is known beforehand is a task on the optical controller. It waits for the circuits in use to drain, takes
its delay, and whatever uses the new circuits waits for it. What crosses a circuit that comes up once, and was not up
before, waits for that, wherever it stands in the job. Of a circuit that comes back, the operations between two changes,
in the order of the job, are one era: each era is treated as a circuit of its own.
"""

from collections.abc import Sequence

import numpy as np

from sim.program import I32, I64, WHOLE
from topologies.core.paths import ranges
from workloads.job import Reconfigure


def circuit_edges(
    changes: Sequence[tuple[int, Reconfigure]], task_route: I64, hops: I64, route_link: I64, task_operation: I32
) -> I64:
    """Dependencies of changes of circuits, (3, E): what has to drain before each, and what waits for it.

    `changes`: with the task of each.
    `task_route`, `task_operation` (T,).
    `hops` (R,): hops of each route.
    `route_link` (H,): links of all routes; larger numbers are other servers.
    """
    if not changes:
        return np.zeros((3, 0), np.int64)
    first = np.cumsum(hops) - hops
    link = route_link[ranges(first[task_route], hops[task_route])]
    task = np.repeat(np.arange(task_route.size), hops[task_route])
    at = [int(task_operation[switching]) for switching, _ in changes]
    ups, downs = [list(work.up) for _, work in changes], [list(work.down) for _, work in changes]
    fresh = int(link.max(initial=-1)) + 1 + max((max(some, default=0) for some in (*ups, *downs)), default=0)
    for again, came in returning(changes, at).items():
        rows = np.flatnonzero(link == again)
        link[rows] = fresh + np.searchsorted(came, task_operation[task[rows]])
        for number, now in enumerate(at):
            before = int(np.searchsorted(came, now))
            ups[number] = [fresh + before + 1 if one == again else one for one in ups[number]]
            downs[number] = [fresh + before if one == again else one for one in downs[number]]
        fresh += len(came) + 1
    order = np.argsort(link, kind="stable")
    link, task = link[order], task[order]
    came_up = {one: switching for (switching, _), some in zip(changes, ups, strict=True) for one in some}
    edges = []
    for (switching, work), up, down in zip(changes, ups, downs, strict=True):
        waits = _crossing(link, task, up)
        edges.append([np.full(waits.size, switching), waits])
        if work.drain:
            before_it = [came_up[one] for one in down if one in came_up]
            drains = np.unique(np.append(_crossing(link, task, down), np.array(before_it, np.int64)))
            edges.append([drains, np.full(drains.size, switching)])
    parent, child = np.concatenate(edges, axis=1)
    return np.stack([parent, child, np.full(parent.size, WHOLE)])


def returning(changes: Sequence[tuple[int, Reconfigure]], at: Sequence[int]) -> dict[int, list[int]]:
    """Links that come up several times, or again after they went down, and when, in the order of `at`."""
    ups: dict[int, list[int]] = {}
    gone: dict[int, int] = {}
    for (_, work), now in zip(changes, at, strict=True):
        for one in work.down:
            gone.setdefault(one, now)
        for one in work.up:
            ups.setdefault(one, []).append(now)
    return {one: came for one, came in ups.items() if len(came) > 1 or gone.get(one, came[0] + 1) <= came[0]}


def _crossing(link: I64, task: I64, wanted: Sequence[int]) -> I64:
    """Tasks that cross some of the links; both columns are in the order of the links."""
    some = np.array(wanted, np.int64)
    low, high = (np.searchsorted(link, some, side) for side in ("left", "right"))
    return np.unique(task[ranges(low, high - low)])
