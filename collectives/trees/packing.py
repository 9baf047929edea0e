"""Packing spanning trees: as many out-trees from every root as the cuts of the network allow (Edmonds' branchings).

Batches of equal trees grow edge by edge. An edge may serve as many trees of a batch as the tightest cut
it crosses has capacity beyond the needs of the unfinished batches inside that cut, computed by one maximum flow
(Schrijver, Combinatorial Optimization, section 53; Berczi and Frank), unless a cut found before forbids the edge. An
edge that may serve none never will again, so each batch examines each edge once; and an edge that may serve some always
exists.

A set of nodes is tight when the capacity of the edges into it equals the number of unfinished trees without a node in
it, each of which must still enter. It remains tight: the next edge into it serves such a tree, and takes as much from
one side as from the other. So a set that one flow has found forbids, for good, every edge into it to all trees that
have a node in it. On fat-tree:8, 110 sets answer 18,633 of the 18,743 questions whose answer is no.

Low trees behind switches: one greedy pass that grows them from all roots at once, within what links may carry.

Split-off switches (`edge_splitting`) leave links between arbitrary pairs of NPUs, and trees on them wind through the
fabric: 162 links on fat-tree:8, where 6 reach everybody. Here an edge of a tree is a way from one NPU past switches to
another. Trees take turns, an edge at a time: first over links that could carry all trees if every root sent to
everybody itself, then over those that could not, such as the NICs of boxes or thin uplinks, and as near to the root as
possible. So a root enters each box once, and the box shares out what came. Of ways that are equal in this the one with
most left is taken. That need not lead to the end where trees fit; then they are packed (`packing`).
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.core._ways import NONE, roomiest
from collectives.trees.forest import Edge, Routes, Tree
from topologies import Topology, WeftError
from topologies.compiled import held
from topologies.core.paths import distinct_of
from topologies.flows.maxflow import LARGEST, FlowNetwork
from topologies.flows.tightest_cut import remembered
from topologies.stages import count


class TightSets:
    """Tight sets of nodes, as bits of integers."""

    def __init__(self) -> None:
        self._with: dict[int, list[int]] = defaultdict(list)  # by node, the sets that it is in, the last useful first

    def add(self, inside: npt.NDArray[np.bool_]) -> None:
        """Keep a set, given as whether each node is in it, (n_nodes,)."""
        nodes = np.flatnonzero(inside).tolist()
        bits = sum(1 << node for node in nodes)
        for node in nodes:
            self._with[node].insert(0, bits)

    def forbid(self, x: int, y: int, reached: int) -> bool:
        """Whether a set has y, not x, and a reached node, given as bits: then the edge from x to y serves no tree."""
        sets = self._with[y]
        for place, bits in enumerate(sets):
            if bits & reached and not bits >> x & 1:
                if place:
                    sets.insert(0, sets.pop(place))
                return True
        return False


Pair = tuple[int, int]


@dataclass(eq=False)
class Batch:
    """Equal trees that grow together."""

    root: int
    multiplicity: int
    nodes: list[int]  # reached nodes, in order
    parent: dict[int, int]
    depth: dict[int, int]  # edges from the root to each reached node
    place: int = 0  # position of the node whose edges are being examined
    looked: int = 0  # how many of them were examined
    reached: int = 0  # the same nodes, as bits
    hub: int = -1  # the hub that feeds the reached nodes in the flow network, -1 before the trees start
    begun: bool = False

    def copy(self, multiplicity: int) -> "Batch":
        """A copy of the partial trees with a different multiplicity."""
        fresh = Batch(self.root, multiplicity, list(self.nodes), dict(self.parent), dict(self.depth))
        fresh.place, fresh.looked, fresh.reached, fresh.begun = self.place, self.looked, self.reached, True
        return fresh


def pack_trees(
    n_nodes: int, capacity: Mapping[Pair, int], roots: Mapping[int, int], *, level: bool = False
) -> list[Batch]:
    """Spanning out-trees within the capacities, with a given number per root.

    `capacity`: by (tail, head), the number of trees that may use each link.
    `roots`: trees per root.
    `level`: whether all trees grow by one level at a time, which makes them shallow but takes longer; otherwise they
        grow one after the other.
    WeftError: the capacities do not admit this many trees.
    """
    return _Packing(n_nodes, capacity, roots).run(level)


class _Packing:
    def __init__(self, n_nodes: int, capacity: Mapping[Pair, int], roots: Mapping[int, int]) -> None:
        self.n = n_nodes
        self.capacity = {pair: cap for pair, cap in capacity.items() if cap}
        self.need = sum(roots.values())
        self.grown = 0  # edges of all trees
        self.infinite = 2 * (sum(self.capacity.values()) + self.need) + 1
        self.network = FlowNetwork(n_nodes + 1, 4 * self.infinite > LARGEST)
        self.arc = {pair: self.network.add(*pair, cap) for pair, cap in self.capacity.items()}
        self.source = n_nodes
        self.feed = [self.network.add(self.source, node) for node in range(n_nodes)]
        self.heads: dict[int, list[int]] = defaultdict(list)
        for tail, head in self.capacity:
            self.heads[tail].append(head)
        self.batches = [
            Batch(root, many, [root], {}, {root: 0}, reached=1 << root) for root, many in roots.items() if many
        ]
        self.unfinished = 0  # trees that wait or grow
        for batch in self.batches:
            self._set_waiting(batch.root, batch.multiplicity)
        self.hubs = np.zeros(0, np.int64)  # arc from the source to each hub; its capacity is the need of the batch
        self.spokes: list[dict[int, int]] = []  # arcs from a hub to the nodes that its batch has reached
        self.hub_holds = np.zeros((0, n_nodes), np.bool_)
        self.free: list[int] = []
        self.tight = TightSets()

    def run(self, level: bool) -> list[Batch]:
        done: list[Batch] = []
        open_, reach = list(self.batches), 0
        while open_:
            left: list[Batch] = []
            queue = open_[::-1]
            while queue:
                batch = queue.pop()
                queue += self._grow(batch, reach if level else self.n)
                if len(batch.nodes) == self.n:
                    self._finish(batch)
                    done.append(batch)
                elif batch.place == len(batch.nodes):
                    raise WeftError(f"{self.need} trees do not fit: those of root {batch.root} cannot all continue")
                else:
                    left.append(batch)
            open_, reach = left, reach + 1
        return done

    def _grow(self, batch: Batch, reach: int) -> list[Batch]:
        """Add edges from nodes up to a depth; returns the part of the batch that was split off."""
        rest = []
        self._open(batch)
        while batch.place < len(batch.nodes) and len(batch.nodes) < self.n:
            x = batch.nodes[batch.place]
            if batch.depth[x] > reach:
                break
            heads = self.heads[x]
            while batch.looked < len(heads):
                y = heads[batch.looked]
                most = 0 if y in batch.depth else min(self.capacity[x, y], batch.multiplicity)
                if most:
                    most = self._fitting(batch, x, y, most)
                if most:
                    if most < batch.multiplicity:
                        rest.append(batch.copy(batch.multiplicity - most))
                        self._open(rest[-1])
                        self._set_need(batch, most)
                    self._add(batch, x, y)
                batch.looked += 1
            batch.place, batch.looked = batch.place + 1, 0
        return rest

    def _fitting(self, batch: Batch, x: int, y: int, most: int) -> int:
        """Number of trees of a batch that may use the edge from x to y, at most `most`."""
        if self.tight.forbid(x, y, batch.reached):
            return 0
        slack = self._slack(batch, x, y, most)
        if slack < most:  # the tightest cut has no more than these trees take
            self.tight.add(~self.network.source_side()[: self.n])
        return slack

    def _slack(self, batch: Batch, x: int, y: int, most: int) -> int:
        """The same, by a flow."""
        capacity = self.network.capacity
        there = self.hub_holds[:, y].copy()
        there[batch.hub] = True
        arcs = np.append(self.hubs[there], self.feed[y])
        aside, capacity[arcs] = capacity[arcs], 0
        due = self.unfinished - int(aside.sum())
        arrives = self.network.flow_again(y, self.source, y, due)  # most of it as when y was last looked at
        capacity[arcs] = aside
        if arrives == due:
            return self.network.onward(x, y, most)  # every way out of the source is full: what is more comes from x
        return max(0, arrives + self.network.further([self.feed[x]], self.source, y, due + most - arrives) - due)

    def _add(self, batch: Batch, x: int, y: int) -> None:
        batch.nodes.append(y)
        batch.reached |= 1 << y
        batch.parent[y], batch.depth[y] = x, batch.depth[x] + 1
        self.capacity[x, y] -= batch.multiplicity
        self.network.capacity[self.arc[x, y]] = self.capacity[x, y]
        self._reach(batch.hub, y)
        self.grown += batch.multiplicity
        count("edges of trees", self.grown, self.need * (self.n - 1))

    def _set_waiting(self, root: int, change: int) -> None:
        """Account for trees that have not started: they remain at their root, without a hub."""
        self.network.capacity[self.feed[root]] += change
        self.unfinished += change

    def _open(self, batch: Batch) -> None:
        """Give a batch its own hub."""
        if batch.hub >= 0:
            return
        if not batch.begun:
            self._set_waiting(batch.root, -batch.multiplicity)
            batch.begun = True
        if not self.free:
            node = self.network.add_node()
            self.hubs = np.append(self.hubs, self.network.add(self.source, node))
            self.spokes.append({})
            self.hub_holds = np.concatenate([self.hub_holds, np.zeros((1, self.n), np.bool_)])
            self.free.append(self.hubs.size - 1)
        batch.hub = self.free.pop()
        for node in batch.nodes:
            self._reach(batch.hub, node)
        self._set_need(batch, batch.multiplicity)

    def _set_need(self, batch: Batch, multiplicity: int) -> None:
        self._require(batch.hub, multiplicity)
        batch.multiplicity = multiplicity

    def _require(self, hub: int, trees: int) -> None:
        capacity, arc = self.network.capacity, self.hubs[hub]
        self.unfinished += trees - int(capacity[arc])
        capacity[arc] = trees

    def _reach(self, hub: int, node: int) -> None:
        self.hub_holds[hub, node] = True
        spokes = self.spokes[hub]
        if node not in spokes:
            spokes[node] = self.network.add(self.n + 1 + hub, node)
        self.network.capacity[spokes[node]] = self.infinite

    def _finish(self, batch: Batch) -> None:
        """Release a batch whose trees span all nodes."""
        hub = batch.hub
        self._require(hub, 0)
        self.hub_holds[hub] = False
        self.network.capacity[list(self.spokes[hub].values())] = 0
        self.free.append(hub)


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

    def __init__(self, root: int, prices: int) -> None:
        self.root, self.edges = root, list[Edge]()
        # By price, what may have ways on, and none gets one again: depth, in which order they came, NPU; lowest first.
        self.nodes = [[(0, 0, root)] for _ in range(prices)]


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
    tie = TIE if len(roots) == 1 else 0.0
    priced = ways.exist & (scarce == distinct_of(scarce[ways.exist])[:, None, None])
    growing = [_Growing(root, len(priced)) for root, trees in roots.items() for _ in range(trees)]
    missing = np.arange(n) != np.array([tree.root for tree in growing], np.int64)[:, None]
    ask = np.zeros(4, np.int64)
    way_on = held(roomiest, ways.links, priced, missing, left, share, tie, ask)

    def grow(number: int, tree: _Growing, price: int) -> bool:
        """Add one edge to a tree over ways of a price, as near to its root as possible; whether there was one."""
        nodes = tree.nodes[price]
        while nodes:
            depth, _, node = nodes[0]
            ask[:] = number, tree.root, price, node
            if (found := way_on()) == NONE:
                del nodes[0]
                continue
            child, way = divmod(found, ways.links.shape[2])
            taken = [link for link in ways.links[node, child, way].tolist() if link != ways.none]
            left[taken] -= 1
            missing[number, child] = False
            for some in tree.nodes:
                insort(some, (depth + 1, len(tree.edges) + 1, child))
            tree.edges.append(Edge(node, child, tuple(taken)))
            return True
        return False

    for _ in range(n - 1):
        for number, tree in enumerate(growing):
            if not any(grow(number, tree, price) for price in range(len(priced))):
                return None
    return tuple(Tree(tree.root, 1, tuple(tree.edges)) for tree in growing)
