"""Forests: trees that span all NPUs, the share of the array on each, and the links they cross.

A tree of multiplicity m carries m of the equal blocks of the array over every link it crosses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered


class Edge(NamedTuple):
    """A tree edge, in the direction away from the root."""

    parent: int  # rank
    child: int  # rank
    # physical links that the data crosses, in order; empty if the topology chooses the route. In a forest of in-trees
    # they lead from the child to the parent.
    links: tuple[int, ...] = ()


class Tree(NamedTuple):
    """A tree that spans all NPUs."""

    root: int
    multiplicity: int  # number of blocks it carries
    edges: tuple[Edge, ...]  # parents before their children

    def depth(self) -> dict[int, int]:
        """Edges from the root to each rank."""
        found = {self.root: 0}
        for edge in self.edges:
            found[edge.child] = found[edge.parent] + 1
        return found

    @property
    def height(self) -> int:
        """Edges on the longest path from the root."""
        return max(self.depth().values())


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees on a topology."""

    topology: Topology
    trees: tuple[Tree, ...]
    inward: bool = False  # whether data flows toward the roots

    @property
    def height(self) -> int:
        """Height of the tallest tree."""
        return max((tree.height for tree in self.trees), default=0)

    @property
    def hops(self) -> int:
        """Largest number of links from a root to a leaf."""
        return max((max(_hops(tree), default=0) for tree in self.trees), default=0)

    def blocks_of_root(self, root: int) -> int:
        """Blocks of one root."""
        return sum(tree.multiplicity for tree in self.trees if tree.root == root)

    def times(self, many: int) -> Forest:
        """The same trees, with the number of blocks multiplied."""
        if many == 1:
            return self
        trees = tuple(tree._replace(multiplicity=many * tree.multiplicity) for tree in self.trees)
        return Forest(self.topology, trees, self.inward)

    def turned(self, topology: Topology, back: Sequence[int], *, inward: bool) -> Forest:
        """The same trees with every path backwards; `back` is the link of `topology` for each link here."""
        trees = tuple(
            tree._replace(edges=tuple(
                edge._replace(links=tuple(back[link] for link in reversed(edge.links))) for edge in tree.edges
            ))
            for tree in self.trees
        )
        return Forest(topology, trees, inward)

    def link_load(self) -> Counter[int]:
        """Blocks that cross each link."""
        load: Counter[int] = Counter()
        for tree in self.trees:
            for edge in tree.edges:
                for link in edge.links:
                    load[link] += tree.multiplicity
        return load

    def s_per_block_byte(self) -> Fraction:
        """Seconds per byte of every block on the busiest link: exact."""
        rates = self.topology.bandwidth_Bps
        loads = self.link_load().items()
        return max((blocks / Fraction(float(rates[link])) for link, blocks in loads), default=Fraction(0))

    def check(self) -> None:
        """Check that every tree spans all NPUs from its root, along existing links.

        WeftError: a bug in the code that built the forest; the message names the tree and the node.
        """
        for tree in self.trees:
            check_tree(self.topology, tree, self.inward)


def check_tree(topology: Topology, tree: Tree, inward: bool = False) -> None:
    """Check one tree; see `Forest.check`."""
    t, held = topology, {tree.root}
    what = f"a tree of root {t.node_name(tree.root)} on {t.name}"
    if tree.multiplicity < 1:
        raise WeftError(f"{what} has the multiplicity {tree.multiplicity}")
    for edge in tree.edges:
        if edge.parent not in held or edge.child in held:
            raise WeftError(f"{what} reaches {t.node_name(edge.child)} twice or from an unreached node")
        held.add(edge.child)
        ends = (edge.child, edge.parent) if inward else (edge.parent, edge.child)
        _check_route(t, what, edge.links, *ends)
    missing = set(range(t.n_npus)) - held
    if missing:
        raise WeftError(f"{what} does not reach {t.node_name(min(missing))}")


def _check_route(t: Topology, what: str, links: Sequence[int], start: int, end: int) -> None:
    at = start
    for link in links:
        if not 0 <= link < t.n_links or int(t.src[link]) != at:
            raise WeftError(f"{what} goes from {t.node_name(at)} over link {link}, which starts elsewhere")
        at = int(t.dst[link])
    if links and at != end:
        raise WeftError(f"{what} leads to {t.node_name(at)} instead of {t.node_name(end)}")


def _hops(tree: Tree) -> Iterable[int]:
    depth = {tree.root: 0}
    for edge in tree.edges:
        depth[edge.child] = depth[edge.parent] + max(1, len(edge.links))
    return depth.values()


def reversed_forest(forest: Forest) -> Forest:
    """The same trees with data flowing in the other direction, along the opposite links.

    WeftError: a link without an opposite one.
    """
    t = forest.topology
    back = t.link_ids(t.dst, t.src).tolist()
    if min(back, default=0) < 0:
        link = back.index(-1)
        raise WeftError(f"topology {t.name}: {t.link_name(link)} has no link in the other direction")
    return forest.turned(t, back, inward=not forest.inward)


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
