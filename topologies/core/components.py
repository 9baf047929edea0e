"""Parts of a graph that hang together; the compiler and SciPy, slow to import, only where there is much to look at."""

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
    if not strong or (src.size <= FEW_EDGES and _both_ways(n, src, dst)):
        number: npt.NDArray[np.int64] = np.unique(least_nodes(n, src, dst), return_inverse=True)[1]
        return number
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(src.size, np.int8), (src, dst)), shape=(n, n))
    return np.asarray(connected_components(edges, connection="strong")[1], np.int64)


def _both_ways(n: int, src: Ints, dst: Ints) -> bool:
    there, back = src.astype(np.int64) * n + dst, dst.astype(np.int64) * n + src
    return np.array_equal(distinct_of(there), distinct_of(back))


def least_nodes(n: int, src: Ints, dst: Ints) -> npt.NDArray[np.integer]:
    """The least node of the part of each of n nodes, (n,)."""
    if src.size <= FEW_EDGES:
        return _followed(n, src, dst)
    from topologies.core._join import join  # loads the compiler, so only when needed

    least = np.arange(n, dtype=np.int32)
    join(least, src.astype(np.int32, copy=False), dst.astype(np.int32, copy=False))
    return least


def _followed(n: int, src: Ints, dst: Ints) -> npt.NDArray[np.int64]:
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
