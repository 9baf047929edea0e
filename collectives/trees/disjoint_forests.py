"""Edge-disjoint spanning forests with the maximum number of edges: the union of graphic matroids (Roskind, Tarjan).

An edge that fits into no forest can still be inserted if edges change forests along an augmenting chain, each making
room for the previous one. The shortest chain is searched; if there is none, there never will be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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

    def _insert(self, first: int, rooted: list[_Rooted]) -> set[int]:
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
