"""Which translations of a fabric map a forest onto itself, and the order of ties that they keep.

Trees are built one by one, and their transfers numbered as they come. Where a translation moves every tree to one of
the forest, as from rail to rail of some boxes, a transfer and its images share slot, tie and port instead: one rail
then stands for all, and which transfer goes first at a link does not depend on the rail.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial

import numpy as np

from collectives.core.sends import Columns, Ints
from collectives.core.symmetry import STRIDES, Group, Groups, links_moved, node_group
from topologies import Topology
from topologies.core.components import components
from topologies.core.symmetry import Permutation, translation, wiring_permutation


def alike(topology: Topology, sends: Columns) -> tuple[tuple[Ints, Ints] | None, Groups | tuple[()]]:
    """Slot and port of each transfer, (n,), that its images share; and the groups that move it to them.

    `sends`: of trees, which `port` numbers; no two of a tree have the same ends.
    None and no groups: no translation moves every tree to a tree.
    """
    every, images, strides = np.arange(sends.src.size), list[Ints](), dict[int, int]()
    for dim, extent in enumerate(topology.shape):
        for by in (by for by in STRIDES if by < extent):
            if (image := _image(topology, sends, translation(topology, dim, by))) is not None:
                images.append(image)
                strides[dim] = by
                break
    if not images:
        return None, ()
    ends = np.tile(every, len(images)), np.concatenate(images)
    slot, port = components(every.size, *ends), _ports(sends, *ends)
    return (slot, port), Groups(topology, partial(_translations, strides))


def _ports(sends: Columns, one: Ints, image: Ints) -> Ints:
    """The place of each tree among those of a rank, in the order of the first images of its transfers from there."""
    n_trees = int(sends.port.max(initial=0)) + 1
    _, first, row = np.unique(sends.src * n_trees + sends.port, return_index=True, return_inverse=True)
    tree = components(row.size, np.append(one, np.arange(row.size)), np.append(image, first[row]))
    seen, place = np.unique(sends.src * row.size + tree, return_inverse=True)
    port: Ints = place - np.searchsorted(seen, sends.src * row.size)
    return port


def _translations(strides: Mapping[int, int], topology: Topology) -> Group:
    moves = ((f"translation in dimension {dim}", translation(topology, dim, by)) for dim, by in strides.items())
    return node_group(topology, "translations", moves)


def _image(topology: Topology, sends: Columns, nodes: Permutation | None) -> Ints | None:
    """The transfer to which a permutation of the nodes moves each; None where it moves a tree to none."""
    if nodes is None:
        return None
    src, dst = nodes[sends.src].astype(np.int64), nodes[sends.dst].astype(np.int64)
    ends, others = (np.sort(tail * topology.n_nodes + head) for tail, head in ((sends.src, sends.dst), (src, dst)))
    if not np.array_equal(ends, others) or (links := links_moved(topology, nodes, wiring_permutation)) is None:
        return None
    moved = sends._replace(src=src, dst=dst, links=links[sends.links].astype(np.int64))
    here, there = np.split(_numbers(topology, sends, moved), 2)
    mine, images = _trees(sends.port, here), _trees(sends.port, there)
    same = {numbers: deque[Ints]() for numbers, _ in mine}
    for numbers, sends_of in mine:
        same[numbers].append(sends_of)
    image = np.empty_like(here)
    for numbers, sends_of in images:
        if not same.get(numbers):
            return None
        image[sends_of] = same[numbers].popleft()
    return image


def _numbers(topology: Topology, *sends: Columns) -> Ints:
    """A number of each transfer, equal where ends, links, blocks and what the receiver does are."""
    src, dst, reduces, blocks, hops, links = (
        np.concatenate(columns)
        for columns in zip(*((c.src, c.dst, c.reduces, c.blocks, c.hops, c.links) for c in sends), strict=True)
    )
    number: Ints = (src * topology.n_nodes + dst) * 2 + reduces
    first = np.cumsum(hops) - hops
    columns = [blocks]
    for hop in range(int(hops.max(initial=0))):
        columns.append(np.where(hops > hop, links[np.minimum(first + hop, links.size - 1)], -1))
    for column in columns:
        number = np.unique(number, return_inverse=True)[1] * (column.max(initial=0) + 2) + column + 1
    return number


def _trees(port: Ints, number: Ints) -> list[tuple[bytes, Ints]]:
    """The numbers of the transfers of each tree in ascending order, as bytes, and the transfers in that order."""
    order = np.lexsort((number, port))
    cuts = np.flatnonzero(np.diff(port[order])) + 1
    return [(number[tree].tobytes(), tree) for tree in np.split(order, cuts)]
