"""From shares to a forest on the physical links: switches are split away, trees packed, their edges mapped back."""

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
"""NPUs up to which trees grow level by level unless told otherwise: seconds, and about half as high."""

SPREAD_TREES = 16
"""Trees a root up to which switches are split into many thin links unless told otherwise; beyond, trees multiply."""

SPREAD_NEIGHBOURS = 48
"""Neighbours of a switch up to which the same holds: pairs of neighbours multiply as well."""


FINER = 4
"""Where the optimum takes fewer trees a root, as many times the trees are tried behind switches, for lower ones."""

FINER_NPUS = 32
"""NPUs up to which they are: less than a second."""


@remembered
def gather_forest(
    topology: Topology, k: int | None = None, level: bool | None = None, spread: bool | None = None
) -> Forest:
    """Trees away from every root that reach the optimum of an all-gather.

    Parameters
    ----------
    topology : Topology
    k : int, optional
        Trees a root; unless given, as many as the optimum takes, or `FINER` times as many where they are lower.
    level : bool, optional
        Whether trees grow level by level; up to `LEVEL_NPUS` unless given.
    spread : bool, optional
        As in `without_switches`; up to `SPREAD_TREES` and `SPREAD_NEIGHBOURS` unless given.

    Raises
    ------
    WeftError
        NPUs that cannot be reached, or a k that does not fit past the switches.
    """
    shares = gather_shares(topology, k)
    forest = pack_forest(topology, shares, level, spread)
    if k is None and _may_be_lower(topology, shares, forest):
        finer = pack_forest(topology, shares.times(FINER), level, spread)
        return finer if finer.hops < forest.hops else forest
    return forest


def _may_be_lower(topology: Topology, shares: Shares, forest: Forest) -> bool:
    """Whether finer shares may lead past the switches in fewer links: 20 and 8 on dgx-a100:4."""
    behind = topology.n_nodes > topology.n_npus and topology.n_npus <= FINER_NPUS
    return behind and max(shares.roots.values()) < FINER and forest.height > 2


@remembered
def scatter_forest(
    topology: Topology, k: int | None = None, level: bool | None = None, spread: bool | None = None
) -> Forest:
    """Trees towards every root: those of an all-gather on the reversed network. Parameters as there."""
    mirror = mirror_of(topology)
    return turned_back(gather_forest(mirror, k, level, spread), topology)


@remembered
def broadcast_forest(topology: Topology, root: int, level: bool | None = None, spread: bool | None = None) -> Forest:
    """Trees away from one root, at the largest rate of a broadcast."""
    return pack_forest(topology, broadcast_shares(topology, root), level, spread)


@remembered
def reduce_forest(topology: Topology, root: int, level: bool | None = None, spread: bool | None = None) -> Forest:
    """Trees towards one root, at the largest rate of a reduction."""
    return turned_back(broadcast_forest(mirror_of(topology), root, level, spread), topology)


def pack_forest(topology: Topology, shares: Shares, level: bool | None, spread: bool | None) -> Forest:
    """The forest of the given shares; its link loads are checked against them."""
    if topology.n_npus == 1:
        return Forest(topology, (Tree(0, shares.roots[0], ()),))
    level = topology.n_npus <= LEVEL_NPUS if level is None else level
    if spread is None:
        neighbours = np.bincount(topology.src, minlength=topology.n_nodes)[topology.n_npus :].max(initial=0)
        spread = max(shares.roots.values()) <= SPREAD_TREES and neighbours <= SPREAD_NEIGHBOURS
    logical = without_switches(topology, shares.links, shares.roots, spread=spread)
    batches = pack_trees(topology.n_npus, logical.capacity, shares.roots, level=level)
    paths = {pair: deque(found) for pair, found in logical.paths.items()}
    trees = tuple(tree for batch in batches for tree in _mapped(batch, paths))
    forest = Forest(topology, tuple(sorted(trees, key=lambda tree: tree.root)))
    _check_shares(forest, shares)
    return forest


def _mapped(batch: Batch, paths: dict[Pair, PathShares]) -> list[Tree]:
    """The trees of a batch on physical links; as many as the paths of its edges make of it."""
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
                f"{forest.topology.link_name(link)} carries {load} trees and has room for {shares.links[link]}"
            )
    for root, share in shares.roots.items():
        if forest.blocks_of_root(root) != share:
            raise WeftError(f"root {root} has {forest.blocks_of_root(root)} trees and should have {share}")


@remembered
def mirror_of(topology: Topology) -> Topology:
    """The network with every link turned round."""
    return replace(topology, name=f"{topology.name} reversed", src=topology.dst, dst=topology.src)


def turned_back(forest: Forest, topology: Topology) -> Forest:
    """A forest of the reversed network as trees towards the roots of the network itself."""
    original = np.lexsort((topology.src, topology.dst)).tolist()  # link i of the mirror is this one
    trees = tuple(
        tree._replace(
            edges=tuple(
                edge._replace(links=tuple(original[link] for link in reversed(edge.links))) for edge in tree.edges
            )
        )
        for tree in forest.trees
    )
    return Forest(topology, trees, inward=True)
