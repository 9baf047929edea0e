"""Trees on networks that look the same from every NPU: the trees of one root, translated, need no flows.

Where the translations of the coordinates are automorphisms, they move the k trees of rank 0 to every other rank, and
each link then carries as many trees as those of rank 0 have edges in the link's orbit. The optimum is reached if no
orbit has more than its share, k (N-1)/d on d equal orbits. The trees are shortest-path trees, as shallow as possible:
every NPU chooses, for each of the k trees, one of its neighbors closer to the root, and one small flow decides whether
the choices can respect the shares.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.carried import OfMany
from collectives.core.collective import collective
from collectives.core.grid import Grid
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.symmetry import translations
from collectives.core.transfers import Transfers, TransferTable
from collectives.trees.forest import Edge, Forest, Tree, check_tree
from collectives.trees.shares import gather_shares
from topologies import NPU, Topology
from topologies.core.symmetry import link_orbits
from topologies.flows.maxflow import FlowNetwork
from topologies.flows.tightest_cut import is_transitive, links_from, remembered

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RootTrees:
    """The k trees of rank 0; those of the other ranks are their translations."""

    parent: Ints  # (k, N): parent of each node in each tree; -1 for the root
    order: Ints  # (N,): nodes by distance from the root
    depth: Ints  # (N,)

    @property
    def k(self) -> int:
        """Trees per root."""
        return len(self.parent)


def transitive_pattern(
    topology: Topology, trees: RootTrees, kind: str, algorithm: str, form: str = "", *, whole: bool = False,
    note: str = "", progress: str = "free",
) -> Pattern:
    """The pattern of the trees of rank 0 and their translations.

    `topology`: a topology whose translations are automorphisms.
    `kind`: "all-gather", "reduce-scatter" or "all-reduce".
    `whole`: whether a node forwards a transfer only once it is complete, instead of chunk by chunk.
    `note`, `progress`: as in `Pattern`.
    """
    grid = Grid(topology.shape)
    phases = [(True,), (False,), (True, False)][("reduce-scatter", "all-gather", "all-reduce").index(kind)]
    edges = _Edges(grid, trees, phases, whole)
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=algorithm, form=form, n_blocks=trees.k * grid.p,
        emit=edges.emit, blocks_of=OfMany(edges.blocks_of), groups=translations(topology),
        own_proof=OwnProof(partial(_prove, topology, trees)), note=note, progress=progress,
    )


@remembered
def root_trees(topology: Topology, k: int | None = None) -> RootTrees | None:
    """Shortest-path trees of rank 0 that respect the shares of k trees in every link orbit, if there are any.

    By default, as many trees as the optimum takes.
    """
    if not has_free_translations(topology):
        return None
    shares = gather_shares(topology, k)
    distance = distances_to_zero(topology)
    k = shares.roots[0]
    nodes = np.arange(1, topology.n_nodes)
    rooms = dict(enumerate(np.array(shares.links)[np.unique(link_orbits(topology), return_index=True)[1]].tolist()))
    chosen = choose_links(choices_of(topology, distance, nodes), rooms, k)
    return None if chosen is None else RootTrees(
        _parents(topology, nodes, chosen, k), np.argsort(distance, kind="stable"), distance)


def moved_around(topology: Topology, trees: RootTrees) -> Forest:
    """The trees of all ranks: those of rank 0 and their translations."""
    grid = Grid(topology.shape)
    nodes = trees.order[1:]
    found = []
    for root in range(grid.p):
        here = np.full_like(nodes, root)
        children = grid.displace(nodes, here)
        for parent in trees.parent:
            parents = grid.displace(parent[nodes], here)
            links = topology.link_ids(parents, children)
            ends = zip(parents.tolist(), children.tolist(), links.tolist(), strict=True)
            found.append(Tree(root, 1, tuple(Edge(a, b, (link,)) for a, b, link in ends)))
    return Forest(topology, tuple(found))


def has_free_translations(topology: Topology) -> bool:
    """Whether translations map every NPU to every other, and every link has an equal opposite link."""
    if np.any(topology.kind != NPU) or topology.n_npus < 2 or not is_transitive(topology):
        return False
    parallel = (np.diff(topology.src) == 0) & (np.diff(topology.dst) == 0)
    back = topology.link_ids(topology.dst, topology.src)
    equal = np.all(back >= 0) and np.all(topology.bandwidth_Bps == topology.bandwidth_Bps[back])
    return bool(equal and not np.any(parallel))


def choices_of(topology: Topology, distance: Ints, nodes: Ints) -> list[dict[int, int]]:
    """For each node, the links over which a shortest path from rank 0 may enter it, keyed by orbit."""
    nearer = np.flatnonzero(distance[topology.src] + 1 == distance[topology.dst])
    orbit = link_orbits(topology)
    found: dict[int, dict[int, int]] = {int(node): {} for node in nodes}
    for link in nearer.tolist():
        if int(topology.dst[link]) in found:
            found[int(topology.dst[link])][int(orbit[link])] = link
    return list(found.values())


def choices_by_distance(topology: Topology, distance: Ints) -> Iterator[tuple[Ints, list[dict[int, int]]]]:
    """The nodes of each distance from 1 on, ascending, and their `choices_of`."""
    order = np.argsort(distance, kind="stable")[1:]
    choices, ends = choices_of(topology, distance, order), np.cumsum(np.bincount(distance[order])[1:]).tolist()
    for first, end in pairwise([0, *ends]):
        yield order[first:end], choices[first:end]


def choose_links(choices: Sequence[Mapping[int, int]], rooms: Mapping[int, int], k: int) -> list[list[int]] | None:
    """A link for each of the k trees of each node, at most `rooms[o]` in total from orbit o; None if impossible."""
    n, orbits = len(choices), sorted(rooms)
    network = FlowNetwork(n + len(orbits) + 2)
    source, sink = network.n_nodes - 2, network.n_nodes - 1
    for node in range(n):
        network.add(source, node, k)
    place = {orbit: n + at for at, orbit in enumerate(orbits)}
    arcs = [[network.add(node, place[orbit], k) for orbit in mine] for node, mine in enumerate(choices)]
    for orbit in orbits:
        network.add(place[orbit], sink, rooms[orbit])
    if network.flow(source, sink, k * n) < k * n:
        return None
    return [np.repeat(list(mine.values()), network.used(its)).tolist() for mine, its in zip(choices, arcs, strict=True)]


def _parents(topology: Topology, nodes: Ints, links: list[list[int]], k: int) -> Ints:
    parent = np.full((k, topology.n_nodes), -1, np.int64)
    parent[:, nodes] = topology.src[np.array(links)].T
    return parent


def distances_to_zero(topology: Topology) -> Ints:
    """Links from rank 0 to each node."""
    return links_from(topology)[0].astype(np.int64)  # links have opposites, so the distance is symmetric


class _Edges:
    """Transfers along the translations of the trees of rank 0.

    Slot (j, v) of a phase is the edge of tree j between v and its parent, for the root relative to which the source is
    v's parent (away from the root) or v itself (toward it).
    """

    def __init__(self, grid: Grid, trees: RootTrees, phases: Sequence[bool], whole: bool) -> None:
        self.grid, self.trees, self.phases = grid, trees, phases
        self.whole = whole
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
            waits = [self._from(root, edge[:, None]) for edge in below.T]
            table.add(
                slots, self.grid.displace(root, parent), step=high - self.trees.depth[child], port=port, reduces=True,
                after=waits if self.whole else (), stream=() if self.whole else waits,
            )
        if not self.phases[-1]:
            first = self.tree.size * (len(self.phases) - 1)
            root = self.grid.displace(table.ranks[None], parent, -1)
            above = self.number[self.tree, self.parent][:, None]
            waits = [(self.grid.displace(root, self.parent[above]), np.where(above >= 0, first + above, -1))]
            if first:
                summed = self.children[self.tree, 0]  # what has reached the root goes down from there
                waits += [self._from(root, np.where(parent == 0, edge[:, None], -1)) for edge in summed.T]
            table.add(
                first + slots, self.grid.displace(root, child), port=port,
                step=(high if first else 0) + self.trees.depth[parent],
                after=waits if self.whole else (), stream=() if self.whole else waits,
            )
        return table.build()

    def _from(self, root: Ints, edge: Ints) -> tuple[Ints, Ints]:
        """Source and slot of the transfer up an edge (-1 for none), for each root."""
        return self.grid.displace(root, self.child[edge]), np.where(edge >= 0, edge, -1)

    def blocks_of(self, source: Any, slot: int) -> list[Any]:
        """The block of a transfer: tree j of root r carries j N + r."""
        first = self.tree.size * (len(self.phases) - 1)
        down = slot >= first and not self.phases[-1]
        edge = slot - first if down else slot
        node: Any = int((self.parent if down else self.child)[edge])
        return [int(self.tree[edge]) * self.grid.p + self.grid.displace(source, node, -1)]


def _children(trees: RootTrees, number: Ints) -> Ints:
    """Edges to the children of each node in each tree, (k, N, most), padded with -1."""
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
    """Every tree of rank 0 spans all ranks along links; translations are automorphisms, so all others do too."""
    for parent in trees.parent.tolist():
        links = topology.link_ids(np.array([parent[node] for node in trees.order[1:].tolist()]), trees.order[1:])
        edges = (
            Edge(parent[node], node, (link,))
            for node, link in zip(trees.order[1:].tolist(), links.tolist(), strict=True)
        )
        check_tree(topology, Tree(0, 1, tuple(edges)))
    return "proved tree by tree"
