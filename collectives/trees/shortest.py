"""Shortest-path trees of every root at once, on networks without switches: a tree a root, in linear time.

Which of the neighbors nearer to a root hands a node the root's block is free. Every node chooses so that its links
carry as many blocks as their rates allow: first where there is least choice, then by moving blocks from a full link to
another one, by way of links between them. So links into one node are even; whether all trees reach the optimum, the
loads tell.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.collective import collective
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.core.sends import Columns, slots_of
from collectives.core.transfers import sources_only
from topologies import NPU, Topology
from topologies.flows.tightest_cut import gather_cut, remembered

Ints = npt.NDArray[np.int64]

MOST_EDGES = 1_300_000
"""Limit on roots times nodes: an all-reduce has twice as many transfers, which take half a minute and 3 GiB."""


def is_direct(topology: Topology) -> bool:
    """Whether there are no switches, every link has an opposite one, and trees of all roots are few enough."""
    opposite = topology.link_ids(topology.dst, topology.src)
    few = topology.n_npus**2 <= MOST_EDGES
    return few and bool(np.all(topology.kind == NPU)) and bool(np.all(opposite >= 0))


@remembered
def shortest_trees(topology: Topology) -> Ints:
    """The link by which each node has the block of each root: (roots, nodes), -1 for the root itself."""
    from scipy.sparse import csr_array  # heavy: loaded where it is used
    from scipy.sparse.csgraph import shortest_path

    n = topology.n_nodes
    ends = csr_array((np.ones(topology.n_links), (topology.src, topology.dst)), shape=(n, n))
    distance = shortest_path(ends, unweighted=True)
    found = np.full((n, n), -1, np.int64)
    for node in range(n):
        links = np.flatnonzero(topology.dst == node)
        nearer = distance[:, topology.src[links]] + 1 == distance[:, node, None]
        others = np.flatnonzero(nearer.any(axis=1))
        found[others, node] = links[_evened(nearer[others], 1 / topology.bandwidth_Bps[links])]
    return found


def _evened(may: npt.NDArray[np.bool_], cost: npt.NDArray[np.float64]) -> Ints:
    """A link for each block of those that it may take, so that the fullest link is as little full as possible."""
    ways = [np.flatnonzero(row).tolist() for row in may]
    rate, load = cost.tolist(), [0.0] * cost.size
    chosen = np.empty(len(ways), np.int64)
    for block in np.argsort(may.sum(axis=1), kind="stable").tolist():
        best = min(ways[block], key=lambda link: load[link] + rate[link])
        chosen[block] = best
        load[best] += rate[best]
    while (path := _relief(may, chosen, load, rate)) is not None:
        for block, link in path:
            load[chosen[block]] -= rate[chosen[block]]
            chosen[block] = link
            load[link] += rate[link]
    return chosen


def _relief(
    may: npt.NDArray[np.bool_], chosen: Ints, load: list[float], rate: list[float]
) -> list[tuple[int, int]] | None:
    """Blocks that move, each to the next link, so that the fullest link has one less and no other is as full."""
    full = int(np.argmax(load))
    came: dict[int, tuple[int, int]] = {full: (-1, -1)}  # by which block, and from where
    reached = [full]
    for link in reached:
        mine = np.flatnonzero(chosen == link)
        for other in np.flatnonzero(may[mine].any(axis=0)).tolist():
            if other in came:
                continue
            came[other] = int(mine[np.argmax(may[mine, other])]), link
            reached.append(other)
            if load[other] + rate[other] < load[full] * (1 - 1e-9):
                path = []
                while other != full:
                    block, before = came[other]
                    path.append((block, other))
                    other = before
                return path
    return None


def loss_of(topology: Topology) -> float:
    """Share of the bandwidth that the fullest link costs, against the optimum of an all-gather."""
    trees, cut = shortest_trees(topology), gather_cut(topology)
    blocks = np.bincount(trees[trees >= 0], minlength=topology.n_links)
    busiest = float((blocks / topology.bandwidth_Bps).max(initial=0))
    return 0.0 if cut is None else max(0.0, 1 - float(cut.s_per_byte) / busiest)


def shortest_pattern(topology: Topology, kind: str, algorithm: str, form: str) -> Pattern:
    """The pattern of these trees: away from the roots, toward them over the opposite links, or one after the other."""
    trees, n = shortest_trees(topology), topology.n_npus
    columns, block = _columns(topology, trees, kind)
    table = columns.table()
    start = np.concatenate(([0], np.cumsum(np.bincount(columns.src, minlength=n))))
    of_slot = np.empty(block.size, np.int64)
    of_slot[start[columns.src] + slots_of(columns.src)] = block
    twice = " of two phases in turn" if kind == "all-reduce" else ""
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=algorithm, form=form, n_blocks=n,
        emit=partial(sources_only, table), blocks_of=lambda source, slot: [int(of_slot[start[source] + slot])],
        own_proof=OwnProof(partial(_prove, topology, trees)),
        note=f"1 tree per root, of shortest paths, {loss_of(topology):.2%} below the optimum{twice}",
    )


def _columns(topology: Topology, trees: Ints, kind: str) -> tuple[Columns, Ints]:
    """All transfers, and the block of each: toward the roots the farthest first, away from them the nearest."""
    n = topology.n_npus
    root, child = np.nonzero(trees >= 0)
    depth = _depths(topology, trees)[root, child]
    order = np.lexsort(((child - root) % n, depth))
    root, child, depth = root[order], child[order], depth[order]
    link, m = trees[root, child], root.size
    parent = topology.src[link].astype(np.int64)
    number = np.full((n, n), -1, np.int64)  # of the edge above a node
    number[root, child] = np.arange(m)
    above, deepest = number[root, parent], int(depth.max(initial=0))  # the edge above an edge; -1 at a root
    below, tops = np.flatnonzero(above >= 0), np.flatnonzero(above < 0)
    back = topology.link_ids(child, parent)
    up: list[npt.NDArray[Any]] = [child, parent, deepest - depth, back, np.ones(m), root]
    down = [parent, child, depth - 1, link, np.zeros(m), root]
    parts, waits = [], []
    if kind != "all-gather":
        parts.append(np.stack([of[::-1] for of in up]))
        waits.append(m - 1 - np.stack([above[below], below]))
    if kind != "reduce-scatter":
        first = m * len(parts)
        parts.append(np.stack(down) + np.array([0, 0, deepest if first else 0, 0, 0, 0])[:, None])
        waits.append(first + np.stack([below, above[below]]))
    if len(parts) == 2:  # a root has the sums of all its neighbors before it sends one
        tops = tops[np.argsort(root[tops], kind="stable")]
        one, other = _alike(root[tops])
        waits.append(np.stack([m + tops[one], m - 1 - tops[other]]))
    src, dst, step, links, reduces, block = np.concatenate(parts, axis=1).astype(np.int64)
    waiter, awaited = np.concatenate(waits, axis=1)
    awaited, ones = awaited[np.argsort(waiter, kind="stable")], np.ones(src.size, np.int64)
    counts = np.bincount(waiter, minlength=src.size)
    return Columns(src, dst, step, 0 * ones, ones, reduces, counts, awaited, 0 * awaited, ones, links), block


def _alike(values: Ints) -> tuple[Ints, Ints]:
    """All pairs of places with equal values, which are sorted."""
    counts = np.bincount(values)[values]
    first = np.searchsorted(values, values)
    start = np.cumsum(counts) - counts
    return np.repeat(np.arange(values.size), counts), np.arange(counts.sum()) - np.repeat(start - first, counts)


def _depths(topology: Topology, trees: Ints) -> Ints:
    """Links between each root and each node."""
    n = topology.n_npus
    parent = np.where(trees >= 0, topology.src[trees], np.arange(n))
    depth, at = np.zeros((n, n), np.int64), np.tile(np.arange(n), (n, 1))
    for _ in range(n):
        away = at != np.arange(n)[:, None]
        if not away.any():
            return depth
        depth += away
        at = np.take_along_axis(parent, at, axis=1)
    raise ScheduleError(f"a tree on {topology.name} does not reach its root")


def _prove(topology: Topology, trees: Ints) -> str:
    """Every node but the root has one link that enters it, and from every node they lead back to the root."""
    n = topology.n_npus
    root, node = np.nonzero(trees >= 0)
    if root.size != n * (n - 1) or (root == node).any() or (topology.dst[trees[root, node]] != node).any():
        raise ScheduleError(f"a tree on {topology.name} does not span all ranks")
    _depths(topology, trees)
    return "proved tree by tree"
