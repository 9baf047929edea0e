"""Routes up to a common switch and down again, in networks of tiers: fat-trees and leaf-spine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from topologies.core.paths import Ints, Paths
from topologies.core.routing import ShortestPathRouter, hash64

if TYPE_CHECKING:
    from topologies.core.topology import Topology


@dataclass(frozen=True)
class Tiers:
    """How nodes of a network of two or three tiers are numbered.

    Attributes
    ----------
    hosts : int
        NPUs of an edge switch (or leaf).
    edges : int
        Edge switches of a pod; leaves in all where there are no pods.
    pods : int
    ups : int
        Switches above an edge switch: aggregation switches of a pod, or spines.
    cores : int
        Switches above an aggregation switch; 0 where there is no third tier.
    """

    hosts: int
    edges: int
    pods: int
    ups: int
    cores: int

    @property
    def n_npus(self) -> int:
        return self.hosts * self.edges * self.pods

    @property
    def n_nodes(self) -> int:
        return self.first_core + self.ups * self.cores

    @property
    def first_up(self) -> int:
        """The first switch of the second tier."""
        return self.n_npus + self.edges * self.pods

    @property
    def first_core(self) -> int:
        """The first switch of the third tier; core c of aggregation position a is `first_core + a * cores + c`."""
        return self.first_up + self.ups * self.pods

    def edge_of(self, npu: Ints) -> Ints:
        """Edge switch of each NPU."""
        return self.n_npus + npu // self.hosts

    def pod_of(self, npu: Ints) -> Ints:
        """Pod of each NPU."""
        return npu // (self.hosts * self.edges)


@dataclass(frozen=True)
class UpDownRouter:
    """Minimal routes between NPUs; which of the switches on top is the tie.

    `first`: by the destination, its place under the edge switch choosing the second tier and that of its edge switch
    the third, so that flows to the NPUs of one edge switch go apart (D-mod-k); `alternating`: by the source in the
    same way (S-mod-k); `split`: two routes, the one of `first` and the one of the next place; `ecmp`: a seeded hash
    of (source, destination). Other pairs, those with a switch at an end, take the shortest path.

    References
    ----------
    .. [1] E. Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all communication patterns",
       Concurrency and Computation 2010 (D-mod-k).
    """

    tiers: Tiers

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs; `topologies.core.paths` explains the tie rules."""
        between = (src < self.tiers.n_npus) & (dst < self.tiers.n_npus)
        if not np.all(between):
            return ShortestPathRouter().paths(topology, src, dst, tie, seed)
        pair = np.arange(src.size)
        if tie == "split":
            apart = self.tiers.edge_of(src) != self.tiers.edge_of(dst)
            pair = np.repeat(pair, 1 + (apart & (self.tiers.ups > 1)))
            second = np.diff(pair, prepend=-1) == 0
            way = _by_place(self.tiers, dst[pair])
            way = (way[0] + second, way[1] + second)
        elif tie == "ecmp":
            drawn = [(hash64(seed, src, dst, tier) >> np.uint64(1)).astype(np.int64) for tier in (0, 1)]
            way = (drawn[0], drawn[1])
        else:
            way = _by_place(self.tiers, src if tie == "alternating" else dst)
        return self._walk(topology, src[pair], dst[pair], way, pair)

    def _walk(self, topology: Topology, src: Ints, dst: Ints, way: tuple[Ints, Ints], pair: Ints) -> Paths:
        t = self.tiers
        up = way[0] % t.ups
        core = t.first_core + up * t.cores + way[1] % max(t.cores, 1)
        # the nodes of the longest route; shorter ones leave out the middle
        nodes = np.stack([
            src, t.edge_of(src), t.first_up + t.pod_of(src) * t.ups + up, core,
            t.first_up + t.pod_of(dst) * t.ups + up, t.edge_of(dst), dst,
        ])
        height = (src != dst) * (1 + (t.edge_of(src) != t.edge_of(dst)) + (t.pod_of(src) != t.pod_of(dst)))
        last = np.array([0, 2, 4, 6])[height]
        order = np.array([[0] * 7, [0, 1, 6, 0, 0, 0, 0], [0, 1, 2, 5, 6, 0, 0], [0, 1, 2, 3, 4, 5, 6]])[height]
        route = np.repeat(np.arange(src.size), last)
        ptr = np.concatenate(([0], np.cumsum(last)))
        hop = np.arange(route.size) - ptr[route]
        tail, head = nodes[order[route, hop], route], nodes[order[route, hop + 1], route]
        return Paths(ptr, topology.link_ids(tail, head), pair)


def _by_place(tiers: Tiers, npu: Ints) -> tuple[Ints, Ints]:
    """Place under the edge switch, and place of the edge switch in its pod, of each NPU."""
    return npu % tiers.hosts, npu // tiers.hosts % tiers.edges


def tier_links(tiers: Tiers) -> list[tuple[Ints, Ints]]:
    """Ends (lower, upper) of the cables of each tier."""
    npus = np.arange(tiers.n_npus)
    edges = np.arange(tiers.edges * tiers.pods)
    found = [(npus, tiers.edge_of(npus)), (
        np.repeat(tiers.n_npus + edges, tiers.ups),
        (tiers.first_up + (edges // tiers.edges * tiers.ups)[:, None] + np.arange(tiers.ups)).ravel(),
    )]
    if tiers.cores:
        ups = np.arange(tiers.ups * tiers.pods)
        found.append((
            np.repeat(tiers.first_up + ups, tiers.cores),
            (tiers.first_core + (ups % tiers.ups * tiers.cores)[:, None] + np.arange(tiers.cores)).ravel(),
        ))
    return found


def tier_coordinates(tiers: Tiers) -> npt.NDArray[np.int32]:
    """Coordinates (n_nodes, 3) over host, edge and pod; a switch has negative ones in the dimensions that it spans."""
    npus, edges = np.arange(tiers.n_npus), np.arange(tiers.edges * tiers.pods)
    ups, cores = np.arange(tiers.ups * tiers.pods), np.arange(tiers.ups * tiers.cores)
    per = max(tiers.cores, 1)
    rows = [
        np.stack([npus % tiers.hosts, npus // tiers.hosts % tiers.edges, tiers.pod_of(npus)], axis=1),
        np.stack([np.full_like(edges, -1), edges % tiers.edges, edges // tiers.edges], axis=1),
        np.stack([np.full_like(ups, -1), -1 - ups % tiers.ups, ups // tiers.ups], axis=1),
        np.stack([-1 - cores % per, -1 - cores // per, np.full_like(cores, -1)], axis=1),
    ]
    return np.concatenate(rows).astype(np.int32)
