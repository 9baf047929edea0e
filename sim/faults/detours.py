"""Ways around what is down: which routes change when, and to what."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from sim.program.columns import distinct_of
from sim.program.contract import I32, Program
from sim.program.disrupt import Path
from topologies import Topology
from topologies.core.routing import ShortestPathRouter, distances

Links = tuple[int, ...]


def detours(
    program: Program, topology: Topology, server_link: I32, breaks: Sequence[tuple[int, frozenset[int]]],
    reroute_ps: int, path: Callable[[Links, int, int], Path],
) -> dict[int, list[tuple[int, Path]]]:
    """For every task whose route breaks, the paths that it takes from each time on.

    `server_link` (S,): -1 for a server of another kind.
    `breaks`: each time, and the links that are down from then on.
    `reroute_ps`: from a break until routes have changed.
    `path`: over some links, and the servers of a NIC in front of them and behind them; -1: none.
    """
    own, at_ends = _own_links(program, server_link)
    ends = {route: (int(topology.src[links[0]]), int(topology.dst[links[-1]])) for route, links in own.items()}
    ever = frozenset().union(*(down for _, down in breaks))
    through: dict[int, list[int]] = defaultdict(list)
    for route, links in own.items():
        for link in ever.intersection(links):
            through[link].append(route)
    off: dict[int, Links] = {}
    found: dict[int, list[tuple[int, Path]]] = {}

    @cache
    def around(down: frozenset[int]) -> tuple[set[int], dict[tuple[int, int], Links]]:
        """Routes that break, and the paths in their place."""
        broken = {route for link in down for route in through[link]}
        return broken, _ways(topology, down, {ends[route] for route in broken})

    for time, down in breaks:
        broken, ways = around(down)
        for route in sorted(broken | off.keys()):
            want = ways.get(ends[route]) if route in broken else own[route]
            if want is not None and want != off.get(route, own[route]):
                found.setdefault(route, []).append((time + reroute_ps, path(want, *at_ends[route])))
                off[route] = want
                if want == own[route]:
                    del off[route]
    return {task: found[route] for task, route in enumerate(program.task_route.tolist()) if route in found}


def _own_links(program: Program, server_link: I32) -> tuple[dict[int, Links], dict[int, tuple[int, int]]]:
    """The links of every route over links that a task has, and the servers in front of them and behind them, if any."""
    server, ptr = program.route_server, program.route_ptr.tolist()
    own, ends = {}, {}
    for route in distinct_of(program.task_route).tolist():
        hops = server[ptr[route] : ptr[route + 1]].tolist()
        if links := tuple(link for link in server_link[hops].tolist() if link >= 0):
            own[route] = links
            ends[route] = hops[0] if server_link[hops[0]] < 0 else -1, hops[-1] if server_link[hops[-1]] < 0 else -1
    return own, ends


def _ways(topology: Topology, down: frozenset[int], pairs: set[tuple[int, int]]) -> dict[tuple[int, int], Links]:
    """The shortest path of each pair over what is up, where there is one."""
    if not pairs:
        return {}
    up = np.setdiff1d(np.arange(topology.n_links), sorted(down))
    rest = replace(
        topology, src=topology.src[up], dst=topology.dst[up], bandwidth_Bps=topology.bandwidth_Bps[up],
        latency_ps=topology.latency_ps[up], dimension=topology.dimension[up], router=ShortestPathRouter(),
    )
    src, dst = np.array(sorted(pairs), np.int64).T
    targets, row = np.unique(dst, return_inverse=True)
    joined = distances(rest, targets)[row, src] >= 0
    src, dst = src[joined], dst[joined]
    paths = rest.paths(src, dst)
    links, ptr = up[paths.links].tolist(), paths.ptr.tolist()
    return {
        (a, b): tuple(links[begin:end])
        for a, b, begin, end in zip(src.tolist(), dst.tolist(), ptr[:-1], ptr[1:], strict=True)
    }
