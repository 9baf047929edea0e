"""Parts of a graph that hang together; SciPy, which takes 0.4 s to import, only where much is to be looked at."""

import numpy as np
import numpy.typing as npt

from topologies.core.paths import distinct_of

Ints = npt.NDArray[np.integer]

FEW_EDGES = 2**17
"""Up to here passes over all edges take less time than an import."""


def components(n: int, src: Ints, dst: Ints, *, strong: bool = False) -> npt.NDArray[np.int64]:
    """Number of the part of each of n nodes, (n,); parts are numbered by their least nodes, unless they are strong.

    `strong`: parts in which every node reaches every other along the edges, not against them.
    """
    both_ways = not strong
    if src.size <= FEW_EDGES:
        there, back = src.astype(np.int64) * n + dst, dst.astype(np.int64) * n + src
        both_ways = both_ways or np.array_equal(distinct_of(there), distinct_of(back))
        if both_ways:
            return np.unique(_least_nodes(n, src, dst), return_inverse=True)[1].astype(np.int64)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(src.size, np.int8), (src, dst)), shape=(n, n))
    found = connected_components(edges, directed=not both_ways, connection="weak" if both_ways else "strong")[1]
    return np.asarray(found, np.int64)


def _least_nodes(n: int, src: Ints, dst: Ints) -> npt.NDArray[np.int64]:
    """The least node of the part of each: both ends of an edge take the lesser label, and labels are followed."""
    label = np.arange(n)
    while True:
        ends = label[src], label[dst]
        lesser = np.minimum(*ends)
        after = label.copy()
        for end in ends:
            np.minimum.at(after, end, lesser)
        while not np.array_equal(after, further := after[after]):
            after = further
        if np.array_equal(after, label):
            return label
        label = after
