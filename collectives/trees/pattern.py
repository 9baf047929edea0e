"""Patterns of forests: each tree carries its own blocks, and every node forwards chunks as they arrive.

All-gather and broadcast flow away from the roots, reduce-scatter and reduce toward them; in an all-reduce each block
is reduced to a root and broadcast from it, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collectives.core.pattern import OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.core.sends import SendList
from collectives.trees.forest import Forest, Tree
from topologies import Topology, WeftError


@dataclass(frozen=True)
class Piece:
    """Blocks with a tree up (inward) and a tree down; either may be absent."""

    blocks: tuple[int, ...]
    up: Tree | None
    down: Tree | None


def forest_pattern(
    topology: Topology, kind: str, algorithm: str, *, up: Forest | None = None, down: Forest | None = None,
    form: str = "", root: int = 0, whole: bool = False, note: str = "",
) -> Pattern:
    """The pattern of a forest, checked tree by tree and proved.

    `kind`: "all-gather" and "broadcast" take `down`, "reduce-scatter" and "reduce" `up`, "all-reduce" both, with equal
        numbers of blocks at each root.
    `up`, `down`: toward and away from the roots.
    `root`: for broadcast and reduce.
    `whole`: whether a node forwards a transfer only once it is complete, instead of chunk by chunk.
    `note`: as in `Pattern`.
    """
    for forest in (up, down):
        if forest is not None:
            forest.check()
    pieces, n_blocks = pieces_of(topology, kind, up, down)
    sends = SendList()
    for port, piece in enumerate(pieces):
        _add(sends, piece, port, whole)
    proof = OwnProof(lambda: _prove_pieces(topology, kind, pieces, n_blocks, root))
    return sends.pattern(topology, kind, algorithm, n_blocks, form=form, own_proof=proof, root=root, note=note)


def pieces_of(topology: Topology, kind: str, up: Forest | None, down: Forest | None) -> tuple[list[Piece], int]:
    """Each block with its trees, and the number of blocks."""
    p = topology.n_npus
    by_root = [_by_root(forest) if forest else None for forest in (up, down)]
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


def _by_root(forest: Forest) -> dict[int, list[Tree]]:
    found: dict[int, list[Tree]] = {}
    for tree in forest.trees:
        found.setdefault(tree.root, []).append(tree)
    return found


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

