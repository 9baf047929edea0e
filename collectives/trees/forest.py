"""Forests: trees that span all NPUs, the share of the array on each, the links they cross, and their patterns.

A tree of multiplicity m carries m of the equal blocks of the array over every link it crosses. Every node forwards
chunks as they arrive: all-gather and broadcast flow away from the roots, reduce-scatter and reduce toward them; in an
all-reduce each block is reduced to a root and broadcast from it, chunk by chunk.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.pattern import OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.core.sends import SendList
from collectives.trees.alike import alike
from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered
from topologies.grouped import grouped

Routes = frozenset[tuple[int, ...]]
"""Ways between NPUs, each as links in order."""


class Edge(NamedTuple):
    """A tree edge, in the direction away from the root."""

    parent: int  # rank
    child: int  # rank
    # physical links that the data crosses, in order; empty if the topology chooses the route. In a forest of in-trees
    # they lead from the child to the parent.
    links: tuple[int, ...] = ()


class Tree(NamedTuple):
    """A tree that spans all NPUs."""

    root: int
    multiplicity: int  # number of blocks it carries
    edges: tuple[Edge, ...]  # parents before their children

    def depth(self) -> dict[int, int]:
        """Edges from the root to each rank."""
        found = {self.root: 0}
        for edge in self.edges:
            found[edge.child] = found[edge.parent] + 1
        return found

    @property
    def height(self) -> int:
        """Edges on the longest path from the root."""
        return max(self.depth().values())


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees on a topology."""

    topology: Topology
    trees: tuple[Tree, ...]
    inward: bool = False  # whether data flows toward the roots

    @property
    def height(self) -> int:
        """Height of the tallest tree."""
        return max((tree.height for tree in self.trees), default=0)

    @property
    def hops(self) -> int:
        """Largest number of links from a root to a leaf."""
        return self._farthest(lambda links: max(1, len(links)))

    @property
    def latency_ps(self) -> int:
        """Largest latency from a root to a leaf, of links and of what they enter."""
        each = (self.topology.latency_ps + self.topology.hop_latency_ps[self.topology.dst]).tolist()
        return self._farthest(lambda links: sum(each[link] for link in links))

    def _farthest(self, length: Callable[[Sequence[int]], int]) -> int:
        """The most from a root to a leaf, of the length of an edge with its links."""
        return max((max(_lengths(tree, length)) for tree in self.trees), default=0)

    def blocks_of_root(self, root: int) -> int:
        """Blocks of one root."""
        return sum(tree.multiplicity for tree in self.trees if tree.root == root)

    def times(self, many: int) -> "Forest":
        """The same trees, with the number of blocks multiplied."""
        if many == 1:
            return self
        trees = tuple(tree._replace(multiplicity=many * tree.multiplicity) for tree in self.trees)
        return Forest(self.topology, trees, self.inward)

    def turned(self, topology: Topology, back: Sequence[int], *, inward: bool) -> "Forest":
        """The same trees with every path backwards; `back` is the link of `topology` for each link here."""
        trees = tuple(
            tree._replace(edges=tuple(
                edge._replace(links=tuple(back[link] for link in reversed(edge.links))) for edge in tree.edges
            ))
            for tree in self.trees
        )
        return Forest(topology, trees, inward)

    def link_load(self) -> Counter[int]:
        """Blocks that cross each link."""
        load: Counter[int] = Counter()
        for tree in self.trees:
            for edge in tree.edges:
                for link in edge.links:
                    load[link] += tree.multiplicity
        return load

    def s_per_block_byte(self) -> Fraction:
        """Seconds per byte of every block on the busiest link: exact."""
        rates = self.topology.bandwidth_Bps
        loads = self.link_load().items()
        return max((blocks / Fraction(float(rates[link])) for link, blocks in loads), default=Fraction(0))

    def check(self) -> None:
        """Check that every tree spans all NPUs from its root, along existing links.

        WeftError: a bug in the code that built the forest; the message names the tree and the node.
        """
        for tree in self.trees:
            check_tree(self.topology, tree, self.inward)


def check_tree(topology: Topology, tree: Tree, inward: bool = False) -> None:
    """Check one tree; see `Forest.check`."""
    t, held = topology, {tree.root}
    what = f"a tree of root {t.node_name(tree.root)} on {t.name}"
    if tree.multiplicity < 1:
        raise WeftError(f"{what} has the multiplicity {tree.multiplicity}")
    for edge in tree.edges:
        if edge.parent not in held or edge.child in held:
            raise WeftError(f"{what} reaches {t.node_name(edge.child)} twice or from an unreached node")
        held.add(edge.child)
        ends = (edge.child, edge.parent) if inward else (edge.parent, edge.child)
        _check_route(t, what, edge.links, *ends)
    missing = set(range(t.n_npus)) - held
    if missing:
        raise WeftError(f"{what} does not reach {t.node_name(min(missing))}")


def _check_route(t: Topology, what: str, links: Sequence[int], start: int, end: int) -> None:
    at = start
    for link in links:
        if not 0 <= link < t.n_links or int(t.src[link]) != at:
            raise WeftError(f"{what} goes from {t.node_name(at)} over link {link}, which starts elsewhere")
        at = int(t.dst[link])
    if links and at != end:
        raise WeftError(f"{what} leads to {t.node_name(at)} instead of {t.node_name(end)}")


def _lengths(tree: Tree, length: Callable[[Sequence[int]], int]) -> Iterable[int]:
    found = {tree.root: 0}
    for edge in tree.edges:
        found[edge.child] = found[edge.parent] + length(edge.links)
    return found.values()


def reversed_forest(forest: Forest) -> Forest:
    """The same trees with data flowing in the other direction, along the opposite links.

    WeftError: a link without an opposite one.
    """
    t = forest.topology
    back = t.link_ids(t.dst, t.src).tolist()
    if min(back, default=0) < 0:
        link = back.index(-1)
        raise WeftError(f"{t.name}: trees that reduce go back over their links, and {t.link_name(link)} has none back")
    return forest.turned(t, back, inward=not forest.inward)


@remembered
def mirror_of(topology: Topology) -> Topology:
    """The network with every link reversed: itself where that is the same, so that its trees are packed once."""
    mirror = replace(topology, name=f"{topology.name} reversed", src=topology.dst, dst=topology.src)
    same = all(
        np.array_equal(getattr(mirror, name), getattr(topology, name)) for name in ("src", "dst", "bandwidth_Bps")
    )
    return topology if same else mirror


@remembered
def routes_of(topology: Topology, mirrored: bool = False) -> Routes:
    """The routes of the fabric between NPUs that pass no other NPU, as links in order.

    `mirrored`: backwards, on the links of its mirror.
    """
    npus = np.arange(topology.n_npus)
    src, dst = (ends.ravel() for ends in np.meshgrid(npus, npus))
    found = topology.paths(src[src != dst], dst[src != dst])
    back = np.argsort(_original_of(topology)) if mirrored else np.arange(topology.n_links)
    routes = (found.links[first:last] for first, last in pairwise(found.ptr.tolist()))
    past = (links for links in routes if links.size and (topology.dst[links[:-1]] >= topology.n_npus).all())
    return frozenset(tuple(back[links[::-1] if mirrored else links].tolist()) for links in past)


def _original_of(topology: Topology) -> npt.NDArray[np.int64]:
    """The link here of every link of the mirror."""
    return np.lexsort((topology.src, topology.dst))


def turned_back(forest: Forest, topology: Topology) -> Forest:
    """A forest on the reversed network, converted to trees toward the roots of the original."""
    return forest.turned(topology, _original_of(topology).tolist(), inward=True)


@dataclass(frozen=True)
class Piece:
    """Blocks with a tree up (inward) and a tree down; either may be absent."""

    blocks: tuple[int, ...]
    up: Tree | None
    down: Tree | None


def forest_pattern(
    topology: Topology, kind: str, algorithm: str, *, up: Forest | None = None, down: Forest | None = None,
    form: str = "", root: int = 0, whole: bool = False, note: str = "", reduces: bool = False,
) -> Pattern:
    """The pattern of a forest, checked tree by tree and proved.

    `kind`: "all-gather" and "broadcast" take `down`, "reduce-scatter" and "reduce" `up`, "all-reduce" both, with equal
        numbers of blocks at each root.
    `up`, `down`: toward and away from the roots.
    `root`: for broadcast and reduce.
    `whole`: whether a node forwards a transfer only once it is complete, instead of chunk by chunk.
    `note`: as in `Pattern`.
    `reduces`: whether switches are nodes of the trees, which reduce and multicast.
    """
    for forest in (up, down):
        if forest is not None:
            forest.check()
    pieces, n_blocks = pieces_of(topology, kind, up, down)
    sends = SendList()
    for port, piece in enumerate(pieces):
        _add(sends, piece, port, whole)
    sends.alike, groups = (None, ()) if reduces else alike(topology, sends.columns())
    proof = OwnProof(lambda: _prove_pieces(topology, kind, pieces, n_blocks, root))
    return sends.pattern(
        topology, kind, algorithm, n_blocks, form=form, own_proof=proof, root=root, note=note, groups=groups,
        n_sources=topology.n_nodes if reduces else None,
    )


def pieces_of(topology: Topology, kind: str, up: Forest | None, down: Forest | None) -> tuple[list[Piece], int]:
    """Each block with its trees, and the number of blocks."""
    p = topology.n_npus
    by_root = [grouped((tree.root, tree) for tree in forest.trees) if forest else None for forest in (up, down)]
    rooted = [trees for trees in by_root if trees is not None]
    shares = [{root: sum(tree.multiplicity for tree in trees) for root, trees in one.items()} for one in rooted]
    if any(share != shares[0] for share in shares):
        raise WeftError(f"{kind} on {topology.name}: the trees up and down have different shares at their roots")
    owned = kind in ("all-gather", "reduce-scatter")
    per_root = max(shares[0].values(), default=1)
    if owned and (set(shares[0]) != set(range(p)) or set(shares[0].values()) != {per_root}) and p > 1:
        raise WeftError(f"{kind} on {topology.name}: every rank must be the root of the same number of blocks")
    first = dict(zip(shares[0], np.cumsum([0, *shares[0].values()]).tolist(), strict=False))
    pieces = []
    for root, share in shares[0].items():
        cuts = sorted({0, share, *(int(at) for one in rooted for at in np.cumsum([t.multiplicity for t in one[root]]))})
        for low, high in pairwise(cuts):
            numbers = [j * p + root if owned else first[root] + j for j in range(low, high)]
            one, other = (_tree_at(trees[root], low) if trees else None for trees in by_root)
            pieces.append(Piece(tuple(numbers), one, other))
    return pieces, p * per_root if owned else max(1, sum(shares[0].values()))


def _tree_at(trees: Sequence[Tree], place: int) -> Tree:
    """The tree that carries block `place` of its root."""
    for tree in trees:
        if place < tree.multiplicity:
            return tree
        place -= tree.multiplicity
    raise AssertionError("more blocks than trees")


def _add(sends: SendList, piece: Piece, port: int, whole: bool) -> None:
    """The transfers of one piece: up in reverse order of the edges, then down."""
    brings: dict[int, list[int]] = {}  # transfers that deliver what a node forwards
    deepest = 0
    if piece.up is not None:
        depth = piece.up.depth()
        deepest = max(depth.values())
        for edge in reversed(piece.up.edges):
            waits = brings.pop(edge.child, [])
            number = sends.add(
                edge.child, edge.parent, piece.blocks, step=deepest - depth[edge.child], port=port, reduces=True,
                links=edge.links, after=waits if whole else (), stream=() if whole else waits,
            )
            brings.setdefault(edge.parent, []).append(number)
    if piece.down is not None:
        depth = piece.down.depth()
        for edge in piece.down.edges:
            waits = brings.get(edge.parent, [])
            number = sends.add(
                edge.parent, edge.child, piece.blocks, step=deepest + depth[edge.parent], port=port,
                links=edge.links, after=waits if whole else (), stream=() if whole else waits,
            )
            brings[edge.child] = [number]


def _prove_pieces(topology: Topology, kind: str, pieces: Iterable[Piece], n_blocks: int, root: int) -> str:
    """A proof for schedules too large to follow block by block.

    The trees span all ranks (`Forest.check`) and a node forwards what its tree delivered, so a block is reduced or
    broadcast by its own tree only. It remains to show that every block has its trees, at the right root, exactly once.
    """
    seen: list[int] = []
    for piece in pieces:
        seen += piece.blocks
        tree = piece.up or piece.down
        assert tree is not None
        needs_up = kind in ("all-reduce", "reduce-scatter", "reduce")
        needs_down = kind not in ("reduce-scatter", "reduce")
        if needs_up != (piece.up is not None) or needs_down != (piece.down is not None):
            raise ScheduleError(f"block {piece.blocks[0]} lacks a tree for its {kind}")
        if piece.up and piece.down and piece.up.root != piece.down.root:
            raise ScheduleError(f"block {piece.blocks[0]} is reduced at one root and broadcast from another")
        wrong = kind in ("all-gather", "reduce-scatter") and any(b % topology.n_npus != tree.root for b in piece.blocks)
        if wrong or (kind in ("broadcast", "reduce") and tree.root != root):
            raise ScheduleError(f"block {piece.blocks[0]} has the root {tree.root}, which does not own it")
    if sorted(seen) != list(range(n_blocks)):
        raise ScheduleError("a block has no tree, or more than one")
    return "proved tree by tree"
