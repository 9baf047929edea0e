"""Tiers of switches: k-ary fat-trees, and leaves under spines; routes go up to a common switch and down again."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Unpack

import numpy as np
import numpy.typing as npt

from topologies.checks import Count, WeftError, checked
from topologies.core._walk import climb
from topologies.core.extents import check_memory
from topologies.core.links import MOST_KEPT_NODES, Links, at_tier_rates, in_tiers
from topologies.core.paths import Ints, Paths, routed
from topologies.core.reduction_units import unit_of
from topologies.core.routing import ShortestPathRouter, hash64
from topologies.core.symmetry import Permutation
from topologies.core.topology import Topology


@dataclass(frozen=True)
class Tiers:
    """Node numbering of a network with two or three tiers."""

    hosts: int  # NPUs per edge switch (or leaf)
    edges: int  # edge switches per pod; all leaves if there are no pods
    pods: int
    ups: int  # switches above each edge switch: aggregation switches per pod, or spines
    cores: int  # switches above each aggregation switch; 0 without a third tier

    @property
    def n_npus(self) -> int:
        """Hosts of all pods."""
        return self.hosts * self.edges * self.pods

    @property
    def n_nodes(self) -> int:
        """Hosts and switches."""
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
    """Minimal routes between NPUs; ties are between the switches at the top.

    `first`: by destination. Its position under the edge switch selects the second tier, the position of its edge switch
    the third, so that flows to the NPUs of one edge switch diverge (D-mod-k). `alternating`: likewise by source
    (S-mod-k). `split`: two routes, that of `first` and that of the next position. `ecmp`: a seeded hash of
    (source, destination). Pairs with a switch at either end take the shortest path.

    References
    ----------
    .. [1] E. Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all communication patterns",
       Concurrency and Computation 2010 (D-mod-k).
    """

    tiers: Tiers

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs; see `topologies.core.paths` for the tie rules."""
        between = (src < self.tiers.n_npus) & (dst < self.tiers.n_npus)
        if not np.all(between):
            return ShortestPathRouter().paths(topology, src, dst, tie, seed)
        return routed(lambda a, b: self._walk(topology, a, b, tie, seed), src, dst)

    def _walk(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        t, pair = self.tiers, np.arange(src.size)
        if tie == "split":
            apart = t.edge_of(src) != t.edge_of(dst)
            pair = np.repeat(pair, 1 + (apart & (t.ups > 1)))
            second = np.diff(pair, prepend=-1) == 0
            top = _by_place(t, dst[pair])
            top = (top[0] + second, top[1] + second)
        elif tie == "ecmp":
            drawn = [(hash64(seed, src, dst, tier) >> np.uint64(1)).astype(np.int64) for tier in (0, 1)]
            top = (drawn[0], drawn[1])
        else:
            top = _by_place(t, src if tie == "alternating" else dst)
        src, dst, up = src[pair], dst[pair], top[0] % t.ups
        core = t.first_core + up * t.cores + top[1] % max(t.cores, 1)
        # the nodes of the longest route; shorter ones skip the middle
        nodes = np.stack([
            src, t.edge_of(src), t.first_up + t.pod_of(src) * t.ups + up, core,
            t.first_up + t.pod_of(dst) * t.ups + up, t.edge_of(dst), dst,
        ])
        height = (src != dst) * (1 + (t.edge_of(src) != t.edge_of(dst)) + (t.pod_of(src) != t.pod_of(dst)))
        ptr = np.concatenate(([0], np.cumsum(2 * height)))
        links = np.empty(ptr[-1], np.int32)
        climb(topology.link_ptr, topology.dst, nodes, ptr, links)
        return Paths(ptr, links, pair)

    def followed(self, topology: Topology, nodes: Permutation) -> Permutation:
        """A permutation that moves NPUs alike, and switches so that routes by place go over those of their images.

        The given one where places move in no way that switches can follow.
        """
        t, image = self.tiers, nodes.copy()
        npu, moved = np.arange(t.n_npus), nodes[: t.n_npus].astype(np.int64)
        (place, edge), (to_place, to_edge) = _by_place(t, npu), _by_place(t, moved)
        up, to_up = place % t.ups, to_place % t.ups
        image[t.edge_of(npu)] = t.edge_of(moved)
        image[t.first_up + t.pod_of(npu) * t.ups + up] = t.first_up + t.pod_of(moved) * t.ups + to_up
        if t.cores:
            image[t.first_core + up * t.cores + edge % t.cores] = t.first_core + to_up * t.cores + to_edge % t.cores
        unit = unit_of(topology)
        reduces = np.flatnonzero(unit != np.arange(unit.size))
        image[unit[reduces]] = unit[image[reduces]]
        return image if np.array_equal(np.sort(image), np.arange(image.size)) else nodes


def _by_place(tiers: Tiers, npu: Ints) -> tuple[Ints, Ints]:
    """Position of each NPU under its edge switch, and of that edge switch in its pod."""
    return npu % tiers.hosts, npu // tiers.hosts % tiers.edges


@checked
def fat_tree(k: int, hosts: Count | None = None, **links: Unpack[Links]) -> Topology:
    """A k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches.

    NPUs have coordinates (position under the edge switch, edge switch in the pod, pod). Routes go up to the nearest
    common switches; see `UpDownRouter` for the choice among them.

    Parameters
    ----------
    k : int
        Ports per aggregation or core switch; even.
    hosts : int, optional
        NPUs per edge switch (default: k/2, rearrangeably nonblocking); h makes it oversubscribed 2h/k : 1.
    bandwidth, latency : quantity or one per tier
        Per direction of the cables below the edge, aggregation and core switches.
    hop_latency : quantity
        Added on every arrival at a switch.

    Raises
    ------
    WeftError
        An odd k, no hosts, a bad quantity, or more links than fit in memory.

    References
    ----------
    .. [1] M. Al-Fares, A. Loukissas, A. Vahdat, "A scalable, commodity data center network architecture",
       SIGCOMM 2008.
    """
    if k < 2 or k % 2:
        raise WeftError(f"fat-tree of {k!r}-port switches: give an even number of at least 2")
    hosts = k // 2 if hosts is None else hosts
    name = f"fat-tree:{k}" if hosts == k // 2 else f"fat-tree:{k}x{hosts}"
    tiers = Tiers(hosts, k // 2, k, k // 2, k // 2)
    return build_tiers(name, tiers, (hosts, k // 2, k), links)


@checked
def leaf_spine(hosts: Count, leaves: Count, spines: Count, **links: Unpack[Links]) -> Topology:
    """Leaves with `hosts` NPUs each, and one cable between every leaf and every spine.

    NPUs have coordinates (position under the leaf, leaf). With equal cables the network is oversubscribed
    hosts : spines.

    Parameters
    ----------
    hosts : int
        NPUs per leaf.
    leaves, spines : int
    bandwidth, latency : quantity or one per tier
        Per direction of the cables below the leaves and below the spines.
    hop_latency : quantity
        Added on every arrival at a switch.

    Raises
    ------
    WeftError
        A number below 1, a bad quantity, or more links than fit in memory.
    """
    tiers = Tiers(hosts, leaves, 1, spines, 0)
    return build_tiers(f"leaf-spine:{hosts}x{leaves}x{spines}", tiers, (hosts, leaves), links)


def build_tiers(name: str, tiers: Tiers, shape: tuple[int, ...], links: Links) -> Topology:
    """Build a tiered network; see `fat_tree` and `leaf_spine` for the parameters."""
    n_cables = tiers.n_npus + tiers.edges * tiers.pods * tiers.ups + tiers.ups * tiers.pods * tiers.cores
    check_memory(name, tiers.n_nodes, 2 * n_cables)
    build = _frame if tiers.n_nodes <= MOST_KEPT_NODES else _frame.__wrapped__
    return at_tier_rates(build(name, tiers, shape), 3 if tiers.cores else 2, links, npus_forward=False)


@lru_cache(maxsize=4)
def _frame(name: str, tiers: Tiers, shape: tuple[int, ...]) -> Topology:
    both_ways = [(np.concatenate([one, other]), np.concatenate([other, one])) for one, other in _tier_links(tiers)]
    return in_tiers(
        name, both_ways, tiers.n_npus, shape=shape, coords=_tier_coordinates(tiers)[:, : len(shape)],
        router=UpDownRouter(tiers), node_names=_names(tiers),
    )


def _names(tiers: Tiers) -> tuple[str, ...]:
    below, above = ("edge", "aggregation") if tiers.cores else ("leaf", "spine")
    counts = {
        "npu": tiers.n_npus, below: tiers.edges * tiers.pods, above: tiers.ups * tiers.pods,
        "core": tiers.ups * tiers.cores,
    }
    assert math.fsum(counts.values()) == tiers.n_nodes
    return tuple(f"{kind}{i}" for kind, count in counts.items() for i in range(count))


def _tier_links(tiers: Tiers) -> list[tuple[Ints, Ints]]:
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


def _tier_coordinates(tiers: Tiers) -> npt.NDArray[np.int32]:
    """Coordinates (n_nodes, 3) over host, edge and pod; those of a switch are negative in the dimensions it spans."""
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
