"""Transfers of partial sums up an aggregation tree, and of results down, node by node.

A transfer depends only on its tree, and the tree of a large network differs from that of a small one with the same
number of levels only in the number of children: schedules that are too large are proved on small networks. That the
large tree is a tree, reaches all ranks and reduces only where it may is checked on the tree itself.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from collectives.core.pattern import Pattern, Smaller
from collectives.core.sends import SendList
from collectives.trees.aggregation import AggregationTree
from topologies import (
    NPU,
    REDUCER,
    SWITCH,
    Topology,
    WeftError,
    fat_tree,
    from_spec,
    leaf_spine,
    switch,
    torus,
    with_reduction_units,
)
from topologies.core.reduction_units import unit_of


class Relays(SendList):
    """Collects transfers one by one; the same number of those of each source tie alike."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(alike_by_slot=True)
        self.topology = topology
        self._first: dict[tuple[int, int], int] = {}  # of parallel links
        for link, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
            self._first.setdefault(ends, link)

    def along(
        self, nodes: Sequence[int], blocks: Sequence[int], *, step: int = 0, reduces: bool = False,
        stream: Sequence[int] = (), port: int = 0,
    ) -> int:
        """Add a transfer along a path of nodes; returns its index.

        `nodes`: from the source to the receiver, connected by links.
        `reduces`, `stream`: as in `add`.
        `port`: index of the neighbor among those of the last node.
        """
        ends = int(nodes[0]), int(nodes[-1])
        return self.add(*ends, tuple(blocks), step=step, reduces=reduces, stream=stream, links=self._path(nodes, port))

    def _path(self, nodes: Sequence[int], port: int) -> list[int]:
        try:
            links = [self._first[pair] for pair in pairwise(nodes)]
        except KeyError:
            raise WeftError(f"topology {self.topology.name}: no links along the path {list(nodes)}") from None
        if port and links:
            count = self._count(nodes[-2], nodes[-1], links[-1])
            links[-1] += port % count
        return links

    def _count(self, tail: int, head: int, first: int) -> int:
        """Number of parallel links, of which this is the first."""
        t, link = self.topology, first
        while link < t.n_links and t.src[link] == tail and t.dst[link] == head:
            link += 1
        return link - first


MOST_TRANSFERS = 1_000_000
"""Limit on transfers of a schedule, each built in Python: about ten seconds."""


class Flows:
    """Builds the transfers of partial sums and results along trees."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.relays = Relays(topology)
        self._unit = unit_of(topology)
        self._port = _ports(topology)
        self._routes: dict[tuple[int, int], list[int]] = {}

    def near(self, tree: AggregationTree, rank: int) -> AggregationTree:
        """A tree rooted next to a rank, for a block of its own; as it is if some edges have no link back."""
        both_ways = all((node, up) in self._port and (up, node) in self._port for node, up in tree.parent)
        return tree.near(rank) if both_ways else tree

    def collect(
        self, tree: AggregationTree, sources: Iterable[int], blocks: Sequence[int],
        feed: dict[int, list[int]] | None = None, again: bool = False,
    ) -> tuple[dict[int, int], list[int]]:
        """Send blocks up a tree; returns what each source sent, and the rows that arrive at the root.

        `sources`: ranks that contribute.
        `feed`: rows that a source waits for.
        `again`: whether a complete sum goes up: nodes store what arrives instead of adding.
        """
        wanted, feed = set(sources), feed or {}
        arriving: dict[int, list[int]] = {}
        sent: dict[int, int] = {}
        nodes = tree.nodes()
        for node in reversed(nodes):
            waits = arriving.get(node, []) + (feed.get(node, []) if node in wanted else [])
            if node == tree.root or not (node in arriving or node in wanted):
                continue
            own, parent = int(self._unit[node]), tree.parent_of[node]
            if own != node and node in wanted and not again:
                # the router of an NPU adds the NPU's own contribution in its unit
                waits = [*waits, self.relays.along([node, own], blocks, step=tree.depth, reduces=True)]
            place = node if again else own
            above = parent if again else int(self._unit[parent])
            hop = self.route(node, parent)
            path = [*([place] if place != node else []), *hop, *([above] if above != parent else [])]
            row = self.relays.along(
                path, blocks, step=tree.depth - tree.depth_of[node], reduces=not again, stream=waits,
                port=self._port[hop[-2], parent] if above != parent else 0,
            )
            arriving.setdefault(parent, []).append(row)
            if node in wanted:
                sent[node] = row
        at_root = arriving.get(tree.root, [])
        if tree.root in wanted:
            at_root = at_root + feed.get(tree.root, [])
        unit = int(self._unit[tree.root])
        if unit != tree.root and not again and at_root:
            if tree.root in wanted:
                at_root = [*at_root, self.relays.along([tree.root, unit], blocks, step=tree.depth, reduces=True)]
            at_root = [self.relays.along([unit, tree.root], blocks, step=tree.depth, stream=at_root)]
        return sent, at_root

    def direct(self, source: int, receiver: int, blocks: Sequence[int], feed: Sequence[int] = ()) -> int:
        """Send blocks past all switches, after the rows in `feed`; returns the row."""
        path = self.route(source, receiver)
        return self.relays.along(path, blocks, step=int(bool(feed)), reduces=not feed, stream=feed)

    def route(self, source: int, receiver: int) -> list[int]:
        """Nodes of the link between two nodes, or of the route if there is no link."""
        if (source, receiver) not in self._routes:
            if (source, receiver) in self._port:
                return [source, receiver]
            self.find_routes([source], [receiver])
        return self._routes[source, receiver]

    def find_routes(self, sources: Sequence[int], receivers: Sequence[int]) -> None:
        """Look up the routes of many pairs of nodes at once, for speed."""
        paths = self.topology.paths(np.array(sources, np.int64), np.array(receivers, np.int64))
        after, ptr = self.topology.dst[paths.links].tolist(), paths.ptr.tolist()
        for i, ends in enumerate(zip(sources, receivers, strict=True)):
            self._routes[ends] = [ends[0], *after[ptr[i] : ptr[i + 1]]]

    def spread(
        self, tree: AggregationTree, ranks: Iterable[int], blocks: Sequence[int], at_root: Sequence[int]
    ) -> dict[int, int]:
        """Send blocks down a tree, one copy on each edge; returns the row that delivers to each rank."""
        wanted = set(ranks)
        reaches = set(wanted)
        for node, parent in reversed(tree.parent):
            if node in reaches:
                reaches.add(parent)
        arriving: dict[int, Sequence[int]] = {tree.root: at_root}
        received: dict[int, int] = {}
        for node, parent in tree.parent:
            if node in reaches:
                step = tree.depth + tree.depth_of[node]
                row = self.relays.along([parent, node], blocks, step=step, stream=arriving[parent])
                arriving[node] = [row]
                if node in wanted:
                    received[node] = row
        return received

    def pattern(
        self, kind: str, algorithm: str, form: str, n_blocks: int, root: int = 0, smaller: Smaller | None = None
    ) -> Pattern:
        """The pattern of everything added so far."""
        return self.relays.pattern(
            self.topology, kind, algorithm, n_blocks, form=form, root=root, smaller=smaller,
            n_sources=self.topology.n_nodes,
        )


def _ports(topology: Topology) -> dict[tuple[int, int], int]:
    """Index of each node among the neighbors of another."""
    found: dict[tuple[int, int], int] = {}
    seen: dict[int, int] = {}
    for src, dst in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        if (src, dst) not in found:
            found[src, dst] = seen.get(dst, 0)
            seen[dst] = found[src, dst] + 1
    return found


def small_network(topology: Topology, trees: Sequence[AggregationTree]) -> Topology:
    """A network with trees of the same kind: over switches in one, two or three layers, or over the routers of NPUs.

    It has reduction units if the large one has any, and admits two cable-disjoint trees.
    """
    tree = max(trees, key=lambda tree: tree.depth)
    if any(topology.kind[node] == NPU and node != tree.root for node in tree.children):
        return _with_units(topology, torus((4, 4)))
    layers = (tree.depth + 1) // 2 if topology.kind[tree.root] == NPU else tree.depth
    return _with_units(topology, switch(8) if layers < 2 else leaf_spine(4, 4, 4) if layers == 2 else fat_tree(4))


def small_rails(topology: Topology) -> Topology:
    """A network of nodes and rails, with switches if the large one has any."""
    switches = np.any(topology.kind == SWITCH)
    return _with_units(topology, from_spec("SW(3)_SW(4)")) if switches else torus((3, 4))


def _with_units(topology: Topology, small: Topology) -> Topology:
    if not np.any(topology.kind == REDUCER):
        return small
    nodes = range(small.n_nodes) if not np.any(small.kind == SWITCH) else None
    return with_reduction_units(small, "100GB/s", nodes=nodes)
