"""Double binary tree: two binary trees over the ranks, each with half of the array; inner nodes of one are leaves of
the other (P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
2009; the tree of NCCL since version 2.4).
"""

from collections.abc import Callable

from collectives.core.builders import by_wiring, plain
from collectives.core.pattern import Pattern
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern
from topologies import Topology
from topologies.grouped import grouped

NAME = "double-binary-tree"


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    trees = double_tree(topology.n_npus)
    up, down = Forest(topology, trees, inward=True), Forest(topology, trees)
    return forest_pattern(topology, kind, NAME, up=up, down=down)


all_reduce = plain("all-reduce", _pattern, "Reduce up both trees and broadcast down again, chunk by chunk.")


def double_tree(p: int) -> tuple[Tree, ...]:
    """Both trees over p ranks; a single tree for one rank.

    In the first, odd ranks are leaves, and rank 0 is the parent of the root of a binary tree over the others in order.
    The second is its mirror image for an even number of ranks, and its shift by one for an odd number, so that leaves
    and inner nodes swap.
    """
    if p == 1:
        return (Tree(0, 1, ()),)
    mirrored = p % 2 == 0
    return _tree(p, lambda rank: rank), _tree(p, lambda rank: p - 1 - rank if mirrored else (rank + 1) % p)


def _tree(p: int, name: Callable[[int], int]) -> Tree:
    children = grouped((_parent(rank, p), rank) for rank in range(1, p))
    edges, waiting = [], [0]
    while waiting:
        rank = waiting.pop(0)
        for child in children.get(rank, ()):
            edges.append(Edge(name(rank), name(child)))
            waiting.append(child)
    return Tree(name(0), 1, tuple(edges))


def _parent(rank: int, p: int) -> int:
    """Parent of a rank above 0: by its lowest set bit b, in the middle of the next larger span if that exists."""
    bit = rank & -rank
    above = (rank ^ bit) | 2 * bit
    return above if above < p else rank ^ bit
