"""Trees through switches that multicast and reduce: an all-reduce with chosen roots, packed as if they were NPUs.

A switch that every tree passes is a node of it like any other, and what the program and the packing of
`collectives.trees.pack` know of NPUs holds for it; branches that lead to switches alone are cut off. A tree need not
pass switches of which there are many, such as spines: those of the tiers next to the NPUs are taken, up to the tier of
the best rate, and the others forward.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.trees.forest import Forest, Tree
from collectives.trees.pack import MOST_VARIABLES, BestRoots, best_root_forests, check_program, program_variables
from topologies import NPU, Topology, WeftError
from topologies.core.reduction_units import unit_of
from topologies.flows.partitions import reducing_nodes
from topologies.flows.programs import best_roots
from topologies.flows.tightest_cut import remembered

SAME = 1e-6
"""Rates of linear programs that differ by this share are the same."""


class Raised(NamedTuple):
    """A network whose capable switches are NPUs, and the node and link of the original for each of it."""

    topology: Topology
    node: npt.NDArray[np.int64]
    link: npt.NDArray[np.int64]


@remembered
def capable_forests(topology: Topology, most: int) -> BestRoots:
    """Trees up and down through switches that reduce, in all at most `most`, and their loss against the program.

    Switches are those that the fabric says, else all, at the rate of their links.

    WeftError: none, one NPU, units behind them, a linear program that is too large, or what `best_root_forests` raises.
    """
    fabric, n = topology.as_it_reduces(), topology.n_npus
    capable = reducing_nodes(fabric, None if fabric.aggregation else True)
    if not capable.any() or np.any(unit_of(fabric) != np.arange(fabric.n_nodes)):
        what = "units that reduce behind its switches" if capable.any() else "no switches that reduce"
        raise WeftError(f"trees through switches that reduce: {topology.name} has {what}; use in-network")
    tier = np.full(fabric.n_nodes, np.iinfo(np.int16).max)
    np.minimum.at(tier, fabric.src, fabric.dimension)
    candidates = [_raised(fabric, capable & (tier <= highest)) for highest in np.unique(tier[capable]).tolist()]
    check_program(candidates[0].topology, "trees through switches that reduce")
    candidates = [one for one in candidates if program_variables(one.topology) <= MOST_VARIABLES]
    optimum = best_roots(fabric, tuple(np.flatnonzero(capable).tolist())).rate_Bps
    raised, rate_Bps = max(((one, best_roots(one.topology).rate_Bps) for one in candidates), key=lambda one: one[1])
    alike = best_roots(raised.topology, (), n).rate_Bps >= rate_Bps * (1 - SAME)
    found = best_root_forests(raised.topology, most, n if alike else 0)
    down, up = (_lowered(forest, raised, topology) for forest in (found.down, found.up))
    return BestRoots(up, down, max(0.0, 1 - rate_Bps * (1 - found.loss) / optimum))


def _raised(t: Topology, capable: npt.NDArray[np.bool_]) -> Raised:
    order = np.argsort(np.where(t.kind == NPU, 0, np.where(capable, 1, 2)), kind="stable")
    place = np.argsort(order)
    src, dst = place[t.src].astype(np.int32), place[t.dst].astype(np.int32)
    kind = np.where(capable, NPU, t.kind)[order]
    raised = replace(
        t, name=f"{t.name}, whose switches reduce", kind=kind, src=src, dst=dst, coords=t.coords[order],
        hop_latency_ps=t.hop_latency_ps[order], node_names=(), aggregation=None, optics=None,
    )
    return Raised(raised, order, np.lexsort((np.arange(t.n_links), dst, src)))


def _lowered(forest: Forest, raised: Raised, topology: Topology) -> Forest:
    """The same trees on the original network, without branches that lead to switches alone."""
    node, link = raised.node.tolist(), raised.link.tolist()
    trees = []
    for tree in forest.trees:
        needed, kept = set(range(topology.n_npus)), []
        for edge in reversed(tree.edges):
            if edge.child in needed:
                needed.add(edge.parent)
                links = tuple(link[one] for one in edge.links)
                kept.append(edge._replace(parent=node[edge.parent], child=node[edge.child], links=links))
        trees.append(Tree(node[tree.root], tree.multiplicity, tuple(reversed(kept))))
    return Forest(topology, tuple(trees), forest.inward)
