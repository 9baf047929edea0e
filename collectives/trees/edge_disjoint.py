"""Aggregation trees that share no cable, over which an array is striped.

Where trees built one by one are too few, edge-disjoint spanning forests with the maximum number of edges are found: the
union of graphic matroids (Roskind, Tarjan). An edge that fits into no forest can still be inserted if edges change
forests along an augmenting chain, each making room for the previous one. The shortest chain is searched; if there is
none, there never will be.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from collectives.trees.aggregation import AggregationTree, minimum_depth_tree, reducing, torus_trees
from topologies import REDUCER, SWITCH, Topology, WeftError
from topologies.core.paths import distinct_of

Edge = tuple[int, int]


class DisjointForests:
    """A number of edge-disjoint forests over the nodes 0 to n - 1.

    `edges`: undirected, without duplicates or self-loops.
    """

    def __init__(self, n: int, edges: Sequence[Edge], count: int) -> None:
        self.n, self.edges, self.count = n, edges, count
        self.forest_of = [-1] * len(edges)  # of each edge, -1 for none
        self._at: list[list[int]] = [[] for _ in range(n)]
        for edge, ends in enumerate(edges):
            for end in ends:
                self._at[end].append(edge)

    def fill(self) -> None:
        """Grow the forests from different nodes at once, then insert every other edge for which there is a chain."""
        self._grow()
        rooted = [_Rooted(self, forest) for forest in range(self.count)]
        for edge, forest in enumerate(list(self.forest_of)):
            for changed in self._insert(edge, rooted) if forest < 0 else ():
                rooted[changed] = _Rooted(self, changed)

    def _grow(self) -> None:
        """Breadth-first in turn; an edge is skipped if other forests need it to reach one of its ends."""
        starts = [forest * self.n // self.count for forest in range(self.count)]
        inside = [{start} for start in starts]
        ahead = [deque([start]) for start in starts]
        free = [len(edges) for edges in self._at]
        missing = [self.count - starts.count(node) for node in range(self.n)]
        while any(ahead):
            for forest in range(self.count):
                edge = self._next_edge(ahead[forest], inside[forest], free, missing)
                if edge is None:
                    continue
                (new,) = set(self.edges[edge]) - inside[forest]
                self.forest_of[edge] = forest
                inside[forest].add(new)
                ahead[forest].append(new)
                missing[new] -= 1
                for end in self.edges[edge]:
                    free[end] -= 1

    def _next_edge(self, ahead: deque[int], inside: set[int], free: list[int], missing: list[int]) -> int | None:
        while ahead:
            node = ahead[0]
            for edge in self._at[node]:
                one, other = self.edges[edge]
                new = other if one == node else one
                spare = free[node] > missing[node] and free[new] >= missing[new]
                if spare and new not in inside and self.forest_of[edge] < 0:
                    return edge
            ahead.popleft()
        return None

    def _insert(self, first: int, rooted: "list[_Rooted]") -> set[int]:
        """Insert one edge along the shortest chain of edges that change forests; returns the forests that changed."""
        before: dict[int, int] = {first: -1}
        ahead = deque([first])
        while ahead:
            edge = ahead.popleft()
            for forest in range(self.count):
                if forest == self.forest_of[edge]:
                    continue
                between = rooted[forest].path(*self.edges[edge])
                if between is None:
                    return self._move(edge, forest, before)
                for other in between:
                    if other not in before:
                        before[other] = edge
                        ahead.append(other)
        return set()

    def _move(self, edge: int, forest: int, before: dict[int, int]) -> set[int]:
        changed = set()
        while edge >= 0:
            changed.add(forest)
            forest, self.forest_of[edge] = self.forest_of[edge], forest
            edge = before[edge]
        return changed


class _Rooted:
    """A forest with rooted trees, to find the path between two nodes."""

    def __init__(self, forests: DisjointForests, forest: int) -> None:
        neighbors: list[list[Edge]] = [[] for _ in range(forests.n)]
        for edge, its in enumerate(forests.forest_of):
            if its == forest:
                one, other = forests.edges[edge]
                neighbors[one].append((other, edge))
                neighbors[other].append((one, edge))
        self.up: list[Edge] = [(-1, -1)] * forests.n
        self.depth, self.root = [-1] * forests.n, [-1] * forests.n
        for root in range(forests.n):
            if self.root[root] < 0:
                self._hang(root, neighbors)

    def _hang(self, root: int, neighbors: list[list[Edge]]) -> None:
        self.root[root], self.depth[root] = root, 0
        ahead = [root]
        for node in ahead:
            for other, edge in neighbors[node]:
                if self.root[other] < 0:
                    self.root[other], self.depth[other], self.up[other] = root, self.depth[node] + 1, (node, edge)
                    ahead.append(other)

    def path(self, one: int, other: int) -> list[int] | None:
        """Edges between two nodes, or None if they are in different trees."""
        if self.root[one] != self.root[other]:
            return None
        found = []
        while one != other:
            if self.depth[one] < self.depth[other]:
                one, other = other, one
            one, edge = self.up[one]
            found.append(edge)
        return found


Trees = tuple[AggregationTree, ...]

MOST_PACKED = 2048
"""Limit on nodes for exchanging edges between trees."""

MOST_COUNTED = 1024
"""Limit on nodes x trees for counting the trees that exist in an error message: a second; 64 x 33 takes minutes."""

FREE, SHARED = -1, -2
"""Owners of unused cables, and of cables that every tree may use."""


def edge_disjoint_trees(topology: Topology, count: int, *, routers: bool = False) -> Trees:
    """Cable-disjoint trees; the only cable of an NPU that has no other is shared.

    On a two-dimensional torus two trees are `torus_trees`. Elsewhere they are first built one after the other, each of
    minimum depth, which is best with layered switches. If that yields too few, spanning trees are grown together and
    exchange edges until nothing more fits; each then takes the root and the paths of minimum depth among its own cables
    and the unused ones. Of unidirectional links only the downward ones are disjoint.

    `routers`: whether the routers of NPUs reduce.
    WeftError: fewer trees are found; the message says whether more exist.
    """
    if not 1 <= count <= max(topology.n_links, 1):
        raise WeftError(f"{count} aggregation trees: give at least 1, and at most the {topology.n_links} links")
    trees = _of_a_torus(topology) if routers and count == 2 else ()
    trees = trees or _one_by_one(topology, count, routers)
    if len(trees) == count:
        return trees
    packing = _Packing(topology, routers)
    found = packing.trees(count)
    if not found:
        raise WeftError(f"topology {topology.name}: {packing.most(count, len(trees))}, not {count}")
    return found


def most_trees(topology: Topology, routers: bool = False) -> int:
    """Upper bound on the number of edge-disjoint trees."""
    return _Packing(topology, routers).room


def _of_a_torus(topology: Topology) -> Trees:
    try:
        return torus_trees(topology)
    except WeftError:
        return ()  # not a torus


def _one_by_one(topology: Topology, count: int, routers: bool) -> Trees:
    """Minimum-depth trees, each among the cables left by the previous ones, as many as there are."""
    shared = {edge for edge, owner in _leaf_cables(topology, reducing(topology, routers), 1).items() if owner == SHARED}
    used: set[Edge] = set()
    trees: list[AggregationTree] = []
    for _ in range(count):
        try:
            tree = minimum_depth_tree(topology, routers=routers, unused=used)
        except WeftError:
            if not trees:
                raise
            break
        trees.append(tree)
        used |= _both_ways(_edge(*ends) for ends in tree.parent if _edge(*ends) not in shared)
    return tuple(trees)


class _Packing:
    """Trees grown together: spanning trees of the reducing nodes, with the other NPUs as leaves."""

    def __init__(self, topology: Topology, routers: bool) -> None:
        self.topology, self.routers = topology, routers
        self.inner = reducing(topology, routers)
        self.nodes = np.flatnonzero(self.inner)
        shared = (edge for edge, owner in _leaf_cables(topology, self.inner, 1).items() if owner == SHARED)
        self.switch_of = dict(shared)
        self.homes = {self.switch_of.get(npu, npu) for npu in range(topology.n_npus)}
        self.links = set(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
        self.between = sorted(
            (one, other) for one, other in self.links
            if one < other and (other, one) in self.links and self.inner[one] and self.inner[other]
        )

    def trees(self, count: int) -> Trees:
        """The requested number of trees, or none."""
        if count > self.room or self.nodes.size > MOST_PACKED:
            return ()
        number = {int(node): i for i, node in enumerate(self.nodes)}
        edges = [(number[one], number[other]) for one, other in self.between]
        forests = DisjointForests(len(number), edges, count)
        forests.fill()
        owner = dict(zip(self.between, forests.forest_of, strict=True))
        owner |= _leaf_cables(self.topology, self.inner, count)
        try:
            return self._shallow(owner, count)
        except WeftError:
            return ()  # a forest of the packing does not connect all NPUs

    def most(self, count: int, found: int) -> str:
        """Text about how many trees there are, if there are not `count`."""
        if self.nodes.size * count > MOST_COUNTED:
            return f"no more than {self.room} edge-disjoint trees can exist ({found} found one by one)"
        while found + 1 < count and self.trees(found + 1):
            found += 1
        few = self.nodes.size <= MOST_PACKED
        exact = found == self.room or (few and self.spans_all)
        beyond = "" if few or exact else f" (trees are packed among up to {MOST_PACKED:,} reducing nodes)"
        trees, exist = ("tree", "exists") if found == 1 else ("trees", "exist")
        return f"{found} edge-disjoint {trees} {exist if exact else 'found'}{beyond}"

    @property
    def spans_all(self) -> bool:
        """Whether every tree must reach every node and may pass through it."""
        return bool(self.nodes.size == self.topology.n_npus == self.topology.n_nodes)

    @property
    def room(self) -> int:
        """Upper bound on the number of trees: the cables of any NPU, or of the switch of an NPU with one cable.

        If trees span all nodes, each takes one cable fewer than there are nodes.
        """
        degree = dict.fromkeys(self.homes, 0)
        for one, other in self.links:
            if one in degree and other not in self.switch_of and self.topology.kind[other] != REDUCER:
                degree[one] += 1
        least = min(degree.values()) if len(self.homes) > 1 else self.topology.n_links
        spanning = len(self.between) // max(self.nodes.size - 1, 1)
        return min(least, spanning) if self.spans_all else least

    def _shallow(self, owner: dict[Edge, int], count: int) -> Trees:
        """Each tree of minimum depth among its cables; then again, deepest first, with the unused cables."""
        trees = {i: self._tree(owner, {i, SHARED}) for i in range(count)}
        for _ in range(2):
            for i in sorted(trees, key=lambda i: -trees[i].depth):
                trees[i] = min(trees[i], self._tree(owner, {i, FREE, SHARED}), key=lambda tree: tree.depth)
                taken = {_edge(*ends) for ends in trees[i].parent}
                for edge, whose in owner.items():
                    if whose in (i, FREE):
                        owner[edge] = i if edge in taken else FREE
        return tuple(trees[i] for i in range(count))

    def _tree(self, owner: dict[Edge, int], whose: set[int]) -> AggregationTree:
        others = _both_ways(edge for edge, one in owner.items() if one not in whose)
        return minimum_depth_tree(self.topology, routers=self.routers, unused=others)


def _leaf_cables(topology: Topology, inner: npt.NDArray[np.bool_], count: int) -> dict[Edge, int]:
    """Owner of each cable: all trees for the only cable of an NPU, in turn for the cables of non-reducing NPUs."""
    found: dict[Edge, int] = {}
    for npu in range(topology.n_npus):
        ends = distinct_of(topology.dst[topology.link_ptr[npu] : topology.link_ptr[npu + 1]])
        ends = ends[topology.kind[ends] != REDUCER].tolist()
        if len(ends) == 1 and topology.kind[ends[0]] == SWITCH:
            found[npu, ends[0]] = SHARED
        elif not inner[npu]:
            found |= {_edge(npu, end): i % count for i, end in enumerate(end for end in ends if inner[end])}
    return found


def _edge(one: int, other: int) -> Edge:
    return (one, other) if one < other else (other, one)


def _both_ways(edges: Iterable[Edge]) -> set[Edge]:
    return {pair for one, other in edges for pair in ((one, other), (other, one))}
