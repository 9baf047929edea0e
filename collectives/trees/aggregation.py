"""Aggregation trees: the links over which partial sums go up to a root, and results come down."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from topologies import NPU, OCS, SWITCH, Topology, WeftError
from topologies.core.symmetry import translation
from topologies.grouped import grouped
from topologies.stages import count

MOST_DISTANCES = 4_000_000
"""Limit on distances held at a time in the search for a root."""


@dataclass(frozen=True)
class AggregationTree:
    """A tree of nodes; results go down its edges, and partial sums up."""

    root: int
    parent: tuple[tuple[int, int], ...]  # (node, parent) of every node but the root, from the root outward

    @cached_property
    def parent_of(self) -> dict[int, int]:
        """Parent of each node but the root."""
        return dict(self.parent)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Children of each node that has any."""
        return grouped((parent, node) for node, parent in self.parent)

    @cached_property
    def depth_of(self) -> dict[int, int]:
        """Levels below the root."""
        found = {self.root: 0}
        for node, parent in self.parent:
            found[node] = found[parent] + 1
        return found

    @cached_property
    def depth(self) -> int:
        """Levels of the deepest node."""
        return max(self.depth_of.values())

    @property
    def fan_in(self) -> int:
        """Largest number of children of a node."""
        return max(map(len, self.children.values()), default=0)

    def nodes(self) -> list[int]:
        """All nodes, parents before their children."""
        return [self.root, *(node for node, _ in self.parent)]

    def near(self, rank: int) -> "AggregationTree":
        """The same edges, rooted where `rank` joins the others: a block of its own crosses none of them twice."""
        root = rank if rank == self.root or rank in self.children else self.parent_of[rank]
        if root == self.root:
            return self
        path = [root]
        while path[-1] != self.root:
            path.append(self.parent_of[path[-1]])
        kept = (edge for edge in self.parent if edge[0] not in path)
        return AggregationTree(root, (*((above, below) for below, above in pairwise(path)), *kept))


def given_tree(topology: Topology, root: int, parents: dict[int, int]) -> AggregationTree:
    """A user-defined tree; whether routers of NPUs among its inner nodes may reduce is said when a schedule uses it.

    `parents`: of every node but the root.
    WeftError: nodes not connected to the root, an edge without links in both directions, or an inner node that can
        never reduce, such as an optical switch.
    """
    children = grouped((parent, node) for node, parent in parents.items())
    order: list[tuple[int, int]] = []
    ahead = deque([root])
    while ahead:
        node = ahead.popleft()
        for child in children.get(node, ()):
            order.append((child, node))
            ahead.append(child)
    if len(order) < len(parents) or root in parents:
        raise WeftError(f"topology {topology.name}: the tree is not connected to its root, node {root}")
    tree = AggregationTree(root, tuple(order))
    _check_links(topology, tree, both_ways=True)
    _check_inner(topology, tree, routers=True)
    return tree


def check_tree(topology: Topology, tree: AggregationTree, *, routers: bool) -> None:
    """Reject a tree that uses links outside the network, misses a rank, or reduces where it cannot.

    WeftError: names the node.
    """
    known = {tree.root}
    for node, parent in tree.parent:
        if node in known or parent not in known:
            raise WeftError(f"topology {topology.name}: the tree is disconnected at node {node}")
        known.add(node)
    _check_links(topology, tree, both_ways=False)
    for rank in range(topology.n_npus):
        if rank not in known:
            raise WeftError(f"topology {topology.name}: rank {rank} is not in the tree of root {tree.root}")
    _check_inner(topology, tree, routers)


def reducing(topology: Topology, routers: bool) -> npt.NDArray[np.bool_]:
    """Whether each node may reduce and copy, (n_nodes,): switches, and with `routers` the routers of NPUs."""
    inner = np.asarray(topology.kind == SWITCH)
    return inner | (topology.kind == NPU) if routers else inner


def _check_links(topology: Topology, tree: AggregationTree, both_ways: bool) -> None:
    for node in (tree.root, *(node for node, _ in tree.parent)):
        if not isinstance(node, int | np.integer) or not 0 <= node < topology.n_nodes:
            raise WeftError(f"topology {topology.name}: the tree has a node {node!r}; nodes are 0 to "
                            f"{topology.n_nodes - 1}")
    for child, parent in tree.parent:
        for ends in ((child, parent), (parent, child))[0 if both_ways else 1 :]:
            if _link(topology, *ends) < 0:
                raise WeftError(f"topology {topology.name}: the tree needs a link from node {ends[0]} to {ends[1]}")


def _check_inner(topology: Topology, tree: AggregationTree, routers: bool) -> None:
    may = reducing(topology, routers)
    for node in tree.children:
        if not may[node]:
            raise WeftError(f"topology {topology.name}: {_cannot_reduce(topology, node)}")


def _cannot_reduce(topology: Topology, node: int) -> str:
    name = topology.node_name(node)
    if topology.kind[node] == NPU:
        return f"{name} is an NPU inside the tree: routers of NPUs reduce only with routers=True"
    what = "an optical switch" if topology.kind[node] == OCS else "a reduction unit"
    return f"{name} is {what} and cannot be an inner node: switches reduce, and routers of NPUs with routers=True"


def minimum_depth_tree(
    topology: Topology, *, members: Iterable[int] | None = None, root: int | None = None, routers: bool = False,
    dimensions: Iterable[int] | None = None, unused: Iterable[tuple[int, int]] = (),
) -> AggregationTree:
    """A tree of shortest paths from the best root to all members; the first among equal roots.

    Edges are cables if cables suffice. In a network of unidirectional links an edge is a downward link, and partial
    sums go up along the route from child to parent.

    `members`: NPUs to be reached (default: all).
    `root`: a switch, an NPU whose router reduces, or an NPU that is the only destination.
    `routers`: whether the routers of members may reduce and branch.
    `dimensions`: use only links of these (default: all).
    `unused`: edges that must not be used.
    WeftError: no node that can reduce reaches all members, or the root is neither a rank nor a reducing switch.
    """
    wanted = list(range(topology.n_npus)) if members is None else sorted(set(members))
    if root is not None and not 0 <= root < topology.n_nodes:
        raise WeftError(f"topology {topology.name}: root {root} does not exist; nodes are 0 to {topology.n_nodes - 1}")
    if root is not None and topology.kind[root] not in (NPU, SWITCH):
        raise WeftError(f"topology {topology.name}: {_cannot_reduce(topology, root)}")
    inner = reducing(topology, routers)
    inner[: topology.n_npus] &= np.isin(np.arange(topology.n_npus), wanted)  # others would contribute
    kept, taken = None if dimensions is None else frozenset(dimensions), frozenset(unused)
    whole = members is None and kept is None and not taken
    alike = whole and bool(inner.all()) and topology.n_nodes == topology.n_npus and _looks_alike(topology)
    found = None
    for both_ways in (True, False):
        neighbors = _neighbors(topology, kept, taken, both_ways)
        start = root
        if start is None:
            start = wanted[0] if alike or len(wanted) == 1 else _best_root(neighbors, wanted, inner)
        found = None if start is None else _search(neighbors, start, wanted, inner)
        if found is not None:
            break
    if found is None:
        what = "switches or routers" if routers else "switches"
        n, n_npus = len(wanted), topology.n_npus
        who = f"all {n} NPUs" if n == n_npus else f"{n} of the {n_npus} NPUs, {wanted[0]} to {wanted[-1]}"
        raise WeftError(
            f"topology {topology.name}: no tree of reducing {what} connects {who}"
            + ("" if routers else "; routers of NPUs reduce only with routers=True, optical switches never")
        )
    return found


def _looks_alike(topology: Topology) -> bool:
    """Whether the translations of the coordinates move links to links, whatever their rates: no root is best."""
    t = topology
    moves = [translation(t, dim) for dim, extent in enumerate(t.shape) if extent > 1]
    return all(move is not None and bool(np.all(t.link_ids(move[t.src], move[t.dst]) >= 0)) for move in moves)


def torus_trees(topology: Topology) -> tuple[AggregationTree, AggregationTree]:
    """Two edge-disjoint spanning trees of a two-dimensional torus, which together use all cables but two.

    The first uses the rows, the second the columns; wrap-around cables connect what each leaves to the other.

    WeftError: a different network, or an extent below 3.
    """
    shape = topology.shape
    if len(shape) != 2 or min(shape) < 3 or not topology.name.startswith("torus"):
        raise WeftError(f"topology {topology.name}: the two trees exist on a torus with two extents of at least 3")
    a, b = shape
    rows = [((x, y), (x + 1, y)) for y in range(1, b) for x in range(a - 1)]
    rows += [((0, y), (0, y + 1)) for y in range(b - 1)] + [((x, b - 1), (x, 0)) for x in range(1, a)]
    columns = [((x, y), (x, y + 1)) for x in range(1, a) for y in range(b - 1)]
    columns += [((x, 0), (x + 1, 0)) for x in range(1, a - 1)] + [((a - 1, y), (0, y)) for y in range(b)]
    return _rooted(topology, rows), _rooted(topology, columns)


def _rooted(topology: Topology, edges: list[tuple[tuple[int, int], tuple[int, int]]]) -> AggregationTree:
    """The tree formed by edges between coordinates, rooted for minimum depth."""
    width = topology.shape[0]
    neighbors: dict[int, list[int]] = {}
    for (x, y), (u, v) in edges:
        one, other = x + width * y, u + width * v
        neighbors.setdefault(one, []).append(other)
        neighbors.setdefault(other, []).append(one)
    ranks, everywhere = range(topology.n_npus), np.ones(topology.n_nodes, np.bool_)
    root = _best_root(neighbors, ranks, everywhere)
    tree = None if root is None else _search(neighbors, root, ranks, everywhere)
    if tree is None:
        raise WeftError(f"topology {topology.name}: its shape is not a torus of all {topology.n_npus} NPUs")
    _check_links(topology, tree, both_ways=True)
    return tree


@lru_cache(maxsize=8)
def _neighbors(
    topology: Topology, dimensions: frozenset[int] | None, unused: frozenset[tuple[int, int]], both_ways: bool
) -> dict[int, list[int]]:
    """Nodes to which each node has a link, optionally in both directions."""
    pairs = [
        (int(src), int(dst)) for src, dst, dim in zip(topology.src, topology.dst, topology.dimension, strict=True)
        if dimensions is None or int(dim) in dimensions
    ]
    there = set(pairs) - unused
    return grouped((src, dst) for src, dst in dict.fromkeys(pairs)
                   if (src, dst) in there and (not both_ways or (dst, src) in there))


def _best_root(neighbors: dict[int, list[int]], wanted: Sequence[int], inner: np.ndarray) -> int | None:
    """The first among the branching nodes with the smallest distance to the farthest wanted node.

    Candidates are tried in order of a lower bound: their distance to nodes that were farthest from earlier candidates.
    If switches are alike, most are never tried; if all nodes are, as on a ring, no bound tells them apart: do not ask.
    """
    from scipy.sparse import coo_array  # heavy: loaded where it is used
    from scipy.sparse.csgraph import shortest_path

    n, candidates = inner.size, np.flatnonzero(inner)
    ends = [(node, other) for node, others in neighbors.items() if inner[node] for other in others]
    if not ends or not candidates.size:
        return None
    src, dst = np.array(ends).T
    graph = coo_array((np.ones(src.size), (src, dst)), shape=(n, n)).tocsr()
    back, members = graph.T.tocsr(), np.array(wanted)
    at_least, tried = np.zeros(candidates.size), np.zeros(candidates.size, np.bool_)
    best, at_once = (np.inf, -1), 1
    while True:
        open_ = np.flatnonzero(~tried & ((at_least < best[0]) | ((at_least == best[0]) & (candidates < best[1]))))
        count("nodes ruled out as roots", candidates.size - open_.size, candidates.size)
        if not open_.size:
            return int(best[1]) if np.isfinite(best[0]) else None
        few = open_[np.argsort(at_least[open_], kind="stable")[:at_once]]
        away = shortest_path(graph, unweighted=True, indices=candidates[few])[:, members]
        farthest = away.max(axis=1)
        best = min(best, *zip(farthest.tolist(), candidates[few].tolist(), strict=True))
        tried[few] = True
        landmark = members[int(np.argmax(away[0]))]
        at_least = np.maximum(at_least, shortest_path(back, unweighted=True, indices=[landmark])[0, candidates])
        at_once = min(2 * at_once, max(1, MOST_DISTANCES // n))


def _search(
    neighbors: dict[int, list[int]], root: int, wanted: Iterable[int], inner: np.ndarray
) -> AggregationTree | None:
    """Breadth-first search from the root through nodes that may branch, pruning branches that reach no wanted node."""
    parent = {root: root}
    ahead = deque([root])
    while ahead:
        node = ahead.popleft()
        if node != root and not inner[node]:
            continue
        for other in neighbors.get(node, ()):
            if other not in parent:
                parent[other] = node
                ahead.append(other)
    kept: set[int] = {root}
    for node in wanted:
        if node not in parent:
            return None
        while node not in kept:
            kept.add(node)
            node = parent[node]
    return AggregationTree(root, tuple((node, up) for node, up in parent.items() if node in kept and node != root))


def _link(topology: Topology, src: int, dst: int) -> int:
    return int(topology.link_ids(np.array([src]), np.array([dst]))[0])
