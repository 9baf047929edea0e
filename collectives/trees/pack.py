"""From shares to a forest on the physical links: switches are split off, trees packed, and edges mapped back."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from collectives.trees.edge_splitting import Pair, take_paths, without_switches
from collectives.trees.edge_splitting import Shares as PathShares
from collectives.trees.forest import Edge, Forest, Tree
from collectives.trees.packing import Batch, pack_trees
from collectives.trees.shares import Shares, broadcast_shares, gather_shares
from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered

LEVEL_NPUS = 64
"""Default limit on NPUs for growing trees level by level, which takes seconds and halves their height."""

SPREAD_TREES = 16
"""Default limit on trees per root for splitting switches into many thin links; above it, trees multiply."""

SPREAD_NEIGHBORS = 48
"""Default limit on neighbors of a switch for the same, since pairs of neighbors multiply too."""

FINER = 4
"""If the optimum takes fewer trees per root, this multiple is tried behind switches, for shallower trees."""

FINER_NPUS = 32
"""Limit on NPUs for trying that: less than a second."""


@remembered
def gather_forest(topology: Topology, k: int | None = None, level: bool | None = None) -> Forest:
    """Trees away from every root that reach the bandwidth optimum of an all-gather.

    `k`: trees per root. Default: as many as the optimum takes, or `FINER` times as many if those are shallower.
    `level`: as in `pack_forest`.
    WeftError: unreachable NPUs, or a k that does not fit past the switches.
    """
    shares = gather_shares(topology, k)
    forest = pack_forest(topology, shares, level)
    if k is None and _may_be_lower(topology, shares, forest):
        finer = pack_forest(topology, shares.times(FINER), level)
        return finer if finer.hops < forest.hops else forest
    return forest


def _may_be_lower(topology: Topology, shares: Shares, forest: Forest) -> bool:
    """Whether finer shares may lead past the switches with fewer links: 20 against 8 on dgx-a100:4."""
    behind = topology.n_nodes > topology.n_npus and topology.n_npus <= FINER_NPUS
    return behind and max(shares.roots.values()) < FINER and forest.height > 2


@remembered
def scatter_forest(topology: Topology, k: int | None = None) -> Forest:
    """Trees toward every root: those of an all-gather on the reversed network."""
    return turned_back(gather_forest(mirror_of(topology), k), topology)


@remembered
def broadcast_forest(topology: Topology, root: int, k: int | None = None) -> Forest:
    """Trees away from one root, at the largest rate of a broadcast, or of one with k trees."""
    return pack_forest(topology, broadcast_shares(topology, root, k))


@remembered
def reduce_forest(topology: Topology, root: int, k: int | None = None) -> Forest:
    """Trees toward one root, at the largest rate of a reduction, or of one with k trees."""
    return turned_back(broadcast_forest(mirror_of(topology), root, k), topology)


def pack_forest(
    topology: Topology, shares: Shares, level: bool | None = None, spread: bool | None = None
) -> Forest:
    """The forest with the given shares; its link loads are checked against them.

    `level`: whether trees grow level by level. Default: up to `LEVEL_NPUS` NPUs.
    `spread`: as in `without_switches`. Default: up to `SPREAD_TREES` and `SPREAD_NEIGHBORS`.
    """
    if topology.n_npus == 1:
        return Forest(topology, (Tree(0, shares.roots[0], ()),))
    level = topology.n_npus <= LEVEL_NPUS if level is None else level
    if spread is None:
        neighbors = np.bincount(topology.src, minlength=topology.n_nodes)[topology.n_npus :].max(initial=0)
        spread = max(shares.roots.values()) <= SPREAD_TREES and neighbors <= SPREAD_NEIGHBORS
    logical = without_switches(topology, shares.links, shares.roots, spread=spread)
    batches = pack_trees(topology.n_npus, logical.capacity, shares.roots, level=level)
    paths = {pair: deque(found) for pair, found in logical.paths.items()}
    trees = tuple(tree for batch in batches for tree in _mapped(batch, paths))
    forest = Forest(topology, tuple(sorted(trees, key=lambda tree: tree.root)))
    _check_shares(forest, shares)
    return forest


def _mapped(batch: Batch, paths: dict[Pair, PathShares]) -> list[Tree]:
    """The trees of a batch on physical links, split according to the paths of its edges."""
    taken = {(batch.parent[node], node): take_paths(paths[batch.parent[node], node], batch.multiplicity)
             for node in batch.nodes[1:]}
    trees, left = [], batch.multiplicity
    while left:
        many = min([left, *(found[0][1] for found in taken.values())])
        edges = []
        for (parent, child), found in taken.items():
            ((links, _),) = take_paths(found, many)
            edges.append(Edge(parent, child, links))
        trees.append(Tree(batch.root, many, tuple(edges)))
        left -= many
    return trees


def _check_shares(forest: Forest, shares: Shares) -> None:
    forest.check()
    for link, load in forest.link_load().items():
        if load > shares.links[link]:
            raise WeftError(
                f"{forest.topology.link_name(link)} carries {load} trees but has capacity for {shares.links[link]}"
            )
    for root, share in shares.roots.items():
        if forest.blocks_of_root(root) != share:
            raise WeftError(f"root {root} has {forest.blocks_of_root(root)} trees instead of {share}")


@remembered
def mirror_of(topology: Topology) -> Topology:
    """The network with every link reversed: itself where that is the same, so that its trees are packed once."""
    mirror = replace(topology, name=f"{topology.name} reversed", src=topology.dst, dst=topology.src)
    same = all(
        np.array_equal(getattr(mirror, name), getattr(topology, name)) for name in ("src", "dst", "bandwidth_Bps")
    )
    return topology if same else mirror


def turned_back(forest: Forest, topology: Topology) -> Forest:
    """A forest on the reversed network, converted to trees toward the roots of the original."""
    original = np.lexsort((topology.src, topology.dst)).tolist()  # link i of the mirror is this link
    return forest.turned(topology, original, inward=True)
