"""NCCL trees: chains inside boxes, and double binary trees between them.

Every position in a box, or as many of each NIC, has its own pair of trees over the boxes, with an equal part of the
array, so that all NICs are used alike; the GPUs of a box are a chain that ends at that position, mirrored in the twin,
and all chains together use the links of a mesh alike.
Partial sums go up and results come down, chunk by chunk.

Of two boxes each has one neighbor in every tree, so half as much crosses the network as in a ring: the bus bandwidth
passes the rate of the NICs (NCCL's maintainers, nccl-tests 160, 196 and 309).
"""

from itertools import pairwise

from collectives.core.boxes import entries_of, equal_boxes, zigzag
from collectives.core.builders import by_wiring, plain
from collectives.core.pattern import Pattern
from collectives.double_binary_tree import double_tree
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern
from topologies import Topology, WeftError

NAME = "nccl-trees"
MOST_EDGES = 200_000
"""Limit on the edges of all trees, each built in Python: about five seconds."""


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    boxes = equal_boxes(topology, NAME)
    gpus = len(boxes[0])
    if 2 * gpus * topology.n_npus > MOST_EDGES:
        raise WeftError(
            f"{NAME} on {topology.name}: {2 * gpus} trees over {topology.n_npus:,} NPUs have more than "
            f"{MOST_EDGES:,} edges"
        )
    trees = tuple(tree for position in entries_of(topology, boxes[0]) for tree in _pair(boxes, position))
    up, down = Forest(topology, trees, inward=True), Forest(topology, trees)
    return forest_pattern(topology, kind, NAME, up=up, down=down)


all_reduce = plain("all-reduce", _pattern, """
    Reduce up all trees and broadcast down again; boxes, the NPUs that links of tier 0 join, are of equal size.

    WeftError: boxes of several sizes, or more than `MOST_EDGES` edges.

    Examples
    --------
    >>> from topologies import dgx_a100
    >>> all_reduce(dgx_a100(2), "1MiB").proof
    'proved'
    """)


def _pair(boxes: list[list[int]], position: int) -> list[Tree]:
    """The trees over one position of every box, with the chains of the boxes; a single box has one chain."""
    gpus, found = len(boxes[0]), []
    for turn, over in zip((1, -1), double_tree(len(boxes)), strict=False):
        chain = [(position + turn * step) % gpus for step in zigzag(gpus)]
        edges = [Edge(boxes[edge.parent][position], boxes[edge.child][position]) for edge in over.edges]
        inside = [Edge(box[a], box[b]) for box in boxes for a, b in pairwise(chain)]
        found.append(Tree(boxes[over.root][position], 1, (*edges, *inside)))
    return found
