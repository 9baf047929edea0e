"""Low trees behind switches: one greedy pass that grows them from all roots at once, within what links may carry.

Split-off switches (`edge_splitting`) leave links between arbitrary pairs of NPUs, and trees on them wind through the
fabric: 162 links on fat-tree:8, where 6 reach everybody. Here an edge of a tree is a way from one NPU past switches to
another. Trees take turns, an edge at a time: first over links that could carry all trees if every root sent to
everybody itself, then over those that could not, such as the NICs of boxes or thin uplinks, and as near to the root as
possible. So a root enters each box once, and the box shares out what came. Of ways that are equal in this the one with
most left is taken. That need not lead to the end where trees fit; then they are packed (`packing`).
"""

from bisect import insort
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from collectives.trees.forest import Edge, Routes, Tree
from topologies import Topology
from topologies.flows.tightest_cut import remembered

MOST_WAYS = 16
"""Equal ways between two NPUs that are looked at."""

MOST_EDGES, MOST_OF_A_ROOT = 70_000, 16
"""Limits on edges of all trees, some 10 s, and on trees of a root on average: where many are needed, few fit so."""

TIE = 1e-6
"""Weight of the room on all links of a way beside the least of them, which decides first: where one root sends, the
least of all is its own, and its trees have to begin apart."""


class _Ways:
    """The shortest ways between NPUs past switches.

    Attributes
    ----------
    links : (n_npus, n_npus, ways, hops) int32
        Of each way, filled up with links that do not exist; ways are repeated where there are fewer.
    exist : (n_npus, n_npus) bool
    """

    def __init__(self, topology: Topology, routes: Routes | None) -> None:
        n, tails, heads = topology.n_npus, topology.src.tolist(), topology.dst.tolist()
        onward: list[list[tuple[int, int]]] = [[] for _ in range(topology.n_nodes)]
        for link, (tail, head) in enumerate(zip(tails, heads, strict=True)):
            onward[tail].append((link, head))
        if routes is None:
            found = {(npu, other): ways for npu in range(n) for other, ways in _ways_from(npu, n, onward).items()}
        else:
            found = {(tails[way[0]], heads[way[-1]]): [way] for way in sorted(routes)}
        ways, hops = (max(map(measure, found.values()), default=1) for measure in (len, _longest))
        self.none = topology.n_links
        self.links = np.full((n, n, ways, hops), self.none, np.int32)
        self.exist = np.zeros((n, n), np.bool_)
        for pair, some in found.items():
            self.exist[pair] = True
            for number in range(ways):
                way = some[number % len(some)]
                self.links[pair][number, : len(way)] = way

    def scarce(self, trees: int, carry: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(n_npus, n_npus) links on each way that could not carry so many trees of every root to everybody."""
        load = np.bincount(
            self.links[self.exist].reshape(-1), minlength=self.none + 1
        ).astype(float) * trees / self.links.shape[2]
        short = np.append(load[:-1] > carry * (1 + 1e-9), False)
        return np.asarray(short[self.links].sum(axis=3).min(axis=2))


@remembered
def _ways(topology: Topology, routes: Routes | None) -> _Ways:
    return _Ways(topology, routes)


def _longest(ways: list[tuple[int, ...]]) -> int:
    return max(map(len, ways))


def _ways_from(npu: int, n: int, onward: Sequence[Sequence[tuple[int, int]]]) -> dict[int, list[tuple[int, ...]]]:
    """The shortest ways from one NPU to others, level by level, through switches only."""
    ways: dict[int, list[tuple[int, ...]]] = {npu: [()]}
    front, level = [npu], {npu: 0}
    while front:
        reached = []
        for node in front:
            for link, head in onward[node] if node == npu or node >= n else ():
                if level.setdefault(head, level[node] + 1) == level[node] + 1:
                    if head not in ways:
                        reached.append(head)
                    there = ways.setdefault(head, [])
                    there += [(*way, link) for way in ways[node]][: MOST_WAYS - len(there)]
        front = reached
    return {other: some for other, some in ways.items() if other < n and other != npu}


class _Growing:
    """A tree that grows."""

    def __init__(self, root: int, n: int, prices: int) -> None:
        self.root, self.edges = root, list[Edge]()
        # By price, what may have ways on, and none gets one again: depth, in which order they came, NPU; lowest first.
        self.nodes = [[(0, 0, root)] for _ in range(prices)]
        self.missing = np.arange(n) != root


def low_trees(
    topology: Topology, roots: Mapping[int, int], links: Sequence[int], routes: Routes | None = None
) -> tuple[Tree, ...] | None:
    """Trees from each root past switches, as many as asked for, or None if this does not find them.

    `roots`: trees by NPU.
    `links`: trees that each link may carry.
    `routes`: the ways there are. Default: the shortest.
    """
    n, many = topology.n_npus, sum(roots.values())
    if topology.n_nodes == n or many * n > MOST_EDGES or many > MOST_OF_A_ROOT * n:
        return None
    ways = _ways(topology, routes)
    carry = np.asarray(links, np.int64)
    scarce = ways.scarce(max(1, many // n), carry)
    left, share = np.append(carry.astype(float), np.inf), np.append(1 / np.maximum(carry, 1), 1)
    tie = TIE if len(roots) == 1 else 0
    priced = [ways.exist & (scarce == price) for price in np.unique(scarce[ways.exist])]
    growing = [_Growing(root, n, len(priced)) for root, trees in roots.items() for _ in range(trees)]
    for _ in range(n - 1):
        for tree in growing:
            if not any(_grow(tree, ways, price, cheap, left, share, tie) for price, cheap in enumerate(priced)):
                return None
    return tuple(Tree(tree.root, 1, tuple(tree.edges)) for tree in growing)


def _grow(
    tree: _Growing, ways: _Ways, price: int, cheap: npt.NDArray[np.bool_], left: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64], tie: float,
) -> bool:
    """Add one edge to a tree over cheap ways, as near to its root as possible; whether there was one."""
    nodes = tree.nodes[price]
    while nodes:
        depth, _, node = nodes[0]
        others = np.flatnonzero(tree.missing & cheap[node])
        behind = int(np.searchsorted(others, tree.root))
        others = np.concatenate((others[behind:], others[:behind]))  # each root begins behind itself
        links = ways.links[node, others]
        here = left[links]
        room = np.minimum(here * share[links], 1)
        rank = room.min(axis=2) + tie * room.mean(axis=2) if tie else room.min(axis=2)
        best = np.where((here < 1).any(axis=2), -1, rank)
        if best.max(initial=-1) < 0:
            del nodes[0]
            continue
        other, way = np.unravel_index(int(best.argmax()), best.shape)
        taken = [link for link in links[other, way].tolist() if link != ways.none]
        left[taken] -= 1
        child = int(others[other])
        tree.missing[child] = False
        for some in tree.nodes:
            insort(some, (depth + 1, len(tree.edges) + 1, child))
        tree.edges.append(Edge(node, child, tuple(taken)))
        return True
    return False
