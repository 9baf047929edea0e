"""Trees on networks that look the same from every NPU: those of one root, moved around, need no flows.

Where the translations of the coordinates are automorphisms, they move the k trees of rank 0 to every other rank, and
each link then carries as many trees as those of rank 0 have edges in the link's orbit. The optimum is reached if no
orbit has more than its share, k (N-1)/d on d equal orbits. The trees are shortest-path trees, as low as trees can be:
every NPU chooses, for each of the k trees, one of its neighbours that are nearer to the root, and one small flow
tells whether the choices can keep the shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from collectives.collective import collective
from collectives.forest import Edge, Tree, check_tree
from collectives.grid import Grid
from collectives.pattern import Pattern
from collectives.symmetry import translations
from collectives.transfers import Transfers, TransferTable
from collectives.tree_shares import gather_shares
from topologies import NPU, Topology
from topologies.flow import FlowNetwork
from topologies.routing import ShortestPathRouter
from topologies.symmetry import link_permutation, translation
from topologies.tightest_cut import is_transitive, remembered

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RootTrees:
    """The k trees of rank 0; those of the other ranks are their translations.

    Attributes
    ----------
    parent : (k, N) int64
        Parent of each node in each tree; -1 for the root.
    order : (N,) int64
        Nodes by their distance from the root.
    depth : (N,) int64
    """

    parent: Ints
    order: Ints
    depth: Ints

    @property
    def k(self) -> int:
        """Trees a root."""
        return len(self.parent)


def transitive_pattern(topology: Topology, kind: str, algorithm: str, form: str) -> Pattern | None:
    """The pattern of a network without switches whose translations are automorphisms; None where that fails."""
    trees = root_trees(topology)
    if trees is None:
        return None
    grid = Grid(topology.shape)
    phases = [(True,), (False,), (True, False)][("reduce-scatter", "all-gather", "all-reduce").index(kind)]
    edges = _Edges(grid, trees, phases)
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=algorithm, form=form, n_blocks=trees.k * grid.p,
        emit=edges.emit, blocks_of=edges.blocks_of, groups=translations(topology),
        own_proof=partial(_prove, topology, trees),
    )


@remembered
def root_trees(topology: Topology) -> RootTrees | None:
    """Shortest-path trees of rank 0 that keep the shares of the optimum in every link orbit, if there are any."""
    if np.any(topology.kind != NPU) or topology.n_npus < 2 or not is_transitive(topology):
        return None
    orbit = _link_orbits(topology)
    twice = np.diff(topology.src) + np.diff(topology.dst)
    mirrored = topology.link_ids(topology.dst, topology.src)
    if np.any(mirrored < 0) or np.any(twice == 0) or np.any(
        topology.bandwidth_Bps != topology.bandwidth_Bps[mirrored]
    ):
        return None
    shares = gather_shares(topology)
    distance = _distances(topology)
    chosen = _choose(topology, orbit, np.array(shares.links), distance, shares.roots[0])
    if chosen is None:
        return None
    return RootTrees(chosen, np.argsort(distance, kind="stable"), distance)


def _link_orbits(topology: Topology) -> Ints:
    """The orbit of each link under the translations, (n_links,)."""
    n = topology.n_links
    images = [
        link_permutation(topology, translation(topology, dim)) for dim, extent in enumerate(topology.shape) if extent > 1
    ]
    ends = np.concatenate([image for image in images if image is not None])
    starts = np.tile(np.arange(n), len(images))
    _, label = connected_components(coo_array((np.ones(ends.size, np.int8), (starts, ends)), shape=(n, n)), directed=False)
    return label.astype(np.int64)


def _distances(topology: Topology) -> Ints:
    """Links from rank 0 to each node."""
    nodes = np.arange(topology.n_nodes)
    routes = ShortestPathRouter().paths(topology, nodes, np.zeros_like(nodes), "first", 0)
    return np.diff(routes.ptr)  # links have their opposites, so it is as far back


def _choose(topology: Topology, orbit: Ints, room: Ints, distance: Ints, k: int) -> Ints | None:
    """Parent of each node in each of the k trees, so that no orbit exceeds its room; None where it must."""
    n = topology.n_nodes
    links = np.flatnonzero(distance[topology.src] + 1 == distance[topology.dst])
    network = FlowNetwork(n + int(orbit.max()) + 2)
    sink = network.n_nodes - 1
    for node in range(1, n):
        network.add(0, node, k)
    arcs = [network.add(int(topology.dst[link]), n + int(orbit[link]), k) for link in links.tolist()]
    _, first = np.unique(orbit, return_index=True)
    for one, link in enumerate(first.tolist()):
        network.add(n + one, sink, int(room[link]))
    if network.flow(0, sink, k * (n - 1)) < k * (n - 1):
        return None
    many = network.used(arcs)
    parent = np.full((k, n), -1, np.int64)
    heads, tails = topology.dst[links], topology.src[links].astype(np.int64)
    for node in range(1, n):
        mine = np.flatnonzero(heads == node)
        parent[:, node] = np.repeat(tails[mine], many[mine])
    return parent


class _Edges:
    """Transfers along the translations of the trees of rank 0.

    Slot (j, v) of a phase is the edge of tree j between v and its parent, of the root from which the source is seen
    as v's parent (away from the root) or as v (towards it).
    """

    def __init__(self, grid: Grid, trees: RootTrees, phases: Sequence[bool]) -> None:
        self.grid, self.trees, self.phases = grid, trees, phases
        k, p = trees.parent.shape
        self.tree, self.child = (part.ravel() for part in np.meshgrid(np.arange(k), trees.order[1:], indexing="ij"))
        self.parent = trees.parent[self.tree, self.child]
        self.number = np.full((k, p), -1, np.int64)
        self.number[self.tree, self.child] = np.arange(self.tree.size)
        self.children = _children(trees, self.number)

    def emit(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        """Transfers of some ranks."""
        table = TransferTable(ranks)
        high = int(self.trees.depth.max())
        slots = np.arange(self.tree.size)[:, None]
        port = self.tree[:, None]
        parent, child = self.parent[:, None], self.child[:, None]
        if self.phases[0]:
            root = self.grid.displace(table.ranks[None], child, -1)
            below = self.children[self.tree, self.child]  # (edges, most children)
            table.add(
                slots, self.grid.displace(root, parent), step=high - self.trees.depth[child], port=port, reduces=True,
                stream=[self._from(root, edge[:, None]) for edge in below.T],
            )
        if not self.phases[-1]:
            first = self.tree.size * (len(self.phases) - 1)
            root = self.grid.displace(table.ranks[None], parent, -1)
            above = self.number[self.tree, self.parent][:, None]
            stream = [(self.grid.displace(root, self.parent[above]), np.where(above >= 0, first + above, -1))]
            if first:
                summed = np.where(parent == 0, self.children[self.tree, 0][:, :, None].transpose(1, 0, 2), -1)
                stream += [self._from(root, edge) for edge in summed]
            table.add(
                first + slots, self.grid.displace(root, child), port=port,
                step=(high if first else 0) + self.trees.depth[parent], stream=stream,
            )
        return table.build()

    def _from(self, root: Ints, edge: Ints) -> tuple[Ints, Ints]:
        """Source and slot of the transfer up an edge (-1 for none), for each root."""
        return self.grid.displace(root, self.child[edge]), np.where(edge >= 0, edge, -1)

    def blocks_of(self, source: int, slot: int) -> Sequence[int]:
        """The block of a transfer: tree j of root r carries j N + r."""
        first = self.tree.size * (len(self.phases) - 1)
        down = slot >= first and not self.phases[-1]
        edge = slot - first if down else slot
        end = self.parent[edge] if down else self.child[edge]
        root = self.grid.displace(np.array([source]), np.array([end]), -1)
        return [int(self.tree[edge]) * self.grid.p + int(root[0])]


def _children(trees: RootTrees, number: Ints) -> Ints:
    """Edges to the children of each node in each tree, (k, N, most), filled up with -1."""
    k, p = trees.parent.shape
    tree, child = (part.ravel() for part in np.indices((k, p)))
    parent = trees.parent.ravel()
    order = np.flatnonzero(parent >= 0)
    order = order[np.lexsort((child[order], parent[order], tree[order]))]
    key = tree[order] * p + parent[order]
    place = np.arange(order.size) - np.searchsorted(key, key)
    table = np.full((k * p, int(place.max(initial=-1)) + 1), -1, np.int64)
    table[key, place] = number[tree[order], child[order]]
    return table.reshape(k, p, -1)


def _prove(topology: Topology, trees: RootTrees) -> str:
    """Every tree of rank 0 spans all ranks along links; translations are automorphisms, so all others do, too."""
    for parent in trees.parent.tolist():
        links = topology.link_ids(np.array([parent[node] for node in trees.order[1:].tolist()]), trees.order[1:])
        edges = (
            Edge(parent[node], node, (link,))
            for node, link in zip(trees.order[1:].tolist(), links.tolist(), strict=True)
        )
        check_tree(topology, Tree(0, 1, tuple(edges)))
    return "proved tree by tree"
