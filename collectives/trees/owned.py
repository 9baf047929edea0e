"""Blocks that ranks own, each over a tree as rooted next to its owner: rows as arrays, millions of them.

Of blocks over a tree with the same root only the links between root and owner differ. `Flows` adds the same rows one by
one, past units that reduce and where links lead one way, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.collective import collective
from collectives.core.pattern import Pattern, Smaller
from collectives.core.sends import Columns, columns_pattern
from collectives.trees.aggregation import AggregationTree
from topologies import NPU, Topology
from topologies.core.reduction_units import unit_of

Ints = npt.NDArray[np.int64]


class _Rows(NamedTuple):
    """Rows of a block, which of them go to and from its owner alone, and on which others each waits, by index."""

    src: Ints
    dst: Ints
    step: Ints
    reduces: Ints
    loads: Ints
    stores: Ints
    row: Ints
    other: Ints


def is_plain(topology: Topology, trees: Sequence[AggregationTree]) -> bool:
    """Whether no unit reduces, the edges of the trees are links there and back, and they end at NPUs."""
    for tree in trees:
        child, parent = np.array(tree.parent, np.int64).reshape(-1, 2).T
        degree = np.bincount(child, minlength=topology.n_nodes) + np.bincount(parent, minlength=topology.n_nodes)
        both = (topology.link_ids(child, parent) >= 0) & (topology.link_ids(parent, child) >= 0)
        if not both.all() or np.any((degree == 1) & (topology.kind != NPU)):
            return False
    return topology.n_npus > 1 and not has_units(topology)


def has_units(topology: Topology) -> bool:
    """Whether units behind nodes add what passes them."""
    return bool(np.any(unit_of(topology) != np.arange(topology.n_nodes)))


def owned_pattern(
    topology: Topology, trees: Sequence[AggregationTree], kind: str, algorithm: str, form: str, smaller: Smaller
) -> Pattern:
    """The pattern in which the owner of each block loads its sum, stores it to all, or, in an all-reduce, both.

    `kind`: "reduce-scatter", "all-gather" or "all-reduce".
    `trees`: of which `is_plain` holds.
    """
    p, known, parts, start = topology.n_npus, dict[tuple[int, int, bool], _Rows](), [], 0
    for block in range(p * len(trees)):
        owner, tree = block % p, trees[block // p].near(block % p)
        key = block // p, tree.root, owner == tree.root
        if key not in known:
            known[key] = _rows(tree, owner, kind)
        src, dst, step, reduces, loads, stores, row, other = known[key]
        src, dst = src.copy(), dst.copy()
        src[stores], dst[loads] = owner, owner
        keep = (dst != owner) | (kind != "all-gather")  # what it stores it has
        place = np.cumsum(keep) - 1
        waiting = keep[row]
        parts.append((src[keep], dst[keep], step[keep], reduces[keep], np.full(place[-1] + 1, block),
                      np.bincount(place[row[waiting]], minlength=place[-1] + 1), place[other[waiting]] + start))
        start += int(place[-1]) + 1
    src, dst, step, reduces, blocks, waits, other = map(np.concatenate, zip(*parts, strict=True))
    ones, zeros = np.ones_like(src), np.zeros_like(src)
    columns = Columns(src, dst, step, zeros, ones, reduces, waits, other, np.zeros_like(other), ones,
                      topology.link_ids(src, dst).astype(np.int64))
    return columns_pattern(columns, blocks, topology=topology, kind=collective(kind), algorithm=algorithm, form=form,
                           n_blocks=p * len(trees), smaller=smaller, n_sources=topology.n_nodes)


def _rows(tree: AggregationTree, owner: int, kind: str) -> _Rows:
    """Up to the root, where all add; to the owner; from it to the root; and down to all."""
    child, parent = np.array(tree.parent, np.int64).reshape(-1, 2).T
    m, depth, edge = child.size, tree.depth, {node: at for at, node in enumerate(child.tolist())}
    below = np.array([tree.depth_of[node] for node in child.tolist()])
    above = np.array([edge.get(node, -1) for node in parent.tolist()])  # the edge over each, -1 below the root
    inner, top = np.flatnonzero(above >= 0), np.flatnonzero(above < 0)
    rows = [np.zeros((0, 4), np.int64)]  # source, receiver, step, whether it adds
    waits, loads, stores, last = list[tuple[Ints, Ints]](), np.zeros(0, np.int64), np.zeros(0, np.int64), top[:0]
    n = 0
    if kind != "all-gather":
        rows.append(np.stack((child, parent, depth - below, np.ones_like(child)), axis=1)[::-1])
        waits.append((m - 1 - above[inner], m - 1 - inner))
        last, n = m - 1 - top, m
        if owner != tree.root:
            rows.append(np.array([[tree.root, owner, depth + 1, 0]]))
            waits.append((np.full(last.size, n), last))
            loads, last, n = np.array([n]), np.array([n]), n + 1
    if kind != "reduce-scatter":
        if owner != tree.root:
            rows.append(np.array([[owner, tree.root, depth - 1, 0]]))
            waits.append((np.full(last.size, n), last))
            stores, last, n = np.array([n]), np.array([n]), n + 1
        rows.append(np.stack((parent, child, depth + below, np.zeros_like(child)), axis=1))
        waits += [(n + inner, n + above[inner]), (np.repeat(n + top, last.size), np.tile(last, top.size))]
    row, other = (np.concatenate(one) for one in zip(*waits, strict=True))
    order = np.lexsort((other, row))
    src, dst, step, reduces = np.concatenate(rows).T.copy()
    return _Rows(src, dst, step, reduces, loads, stores, row[order], other[order])
