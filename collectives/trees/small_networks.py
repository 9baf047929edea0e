"""Small networks that stand for large ones with reducing nodes, to prove tree schedules that are too large.

A transfer of such a schedule depends only on its tree, and the tree of a large network differs from that of a small
one with the same number of levels only in the number of children. That the large tree is a tree, reaches all ranks and
reduces only where it may is checked on the tree itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.trees.aggregation import AggregationTree
from topologies import (
    NPU,
    REDUCER,
    SWITCH,
    Topology,
    fat_tree,
    from_spec,
    leaf_spine,
    switch,
    torus,
    with_reduction_units,
)


def small_network(topology: Topology, trees: Sequence[AggregationTree]) -> Topology:
    """A network with trees of the same kind: over switches in one, two or three layers, or over the routers of NPUs.

    It has reduction units if the large one has any, and admits two cable-disjoint trees.
    """
    tree = max(trees, key=lambda tree: tree.depth)
    if any(topology.kind[node] == NPU and node != tree.root for node in tree.children):
        return _with_units(topology, torus((4, 4)))
    layers = (tree.depth + 1) // 2 if topology.kind[tree.root] == NPU else tree.depth
    return _with_units(topology, switch(8) if layers < 2 else leaf_spine(4, 4, 4) if layers == 2 else fat_tree(4))


def small_rails(topology: Topology) -> Topology:
    """A network of nodes and rails, with switches if the large one has any."""
    switches = np.any(topology.kind == SWITCH)
    return _with_units(topology, from_spec("SW(3)_SW(4)")) if switches else torus((3, 4))


def _with_units(topology: Topology, small: Topology) -> Topology:
    if not np.any(topology.kind == REDUCER):
        return small
    nodes = range(small.n_nodes) if not np.any(small.kind == SWITCH) else None
    return with_reduction_units(small, "100GB/s", nodes=nodes)
