"""The compiled search in breadth from one node, for fabrics of millions of nodes."""

from functools import partial

from topologies.compiled import cached

_jit = partial(cached, nogil=True, _nrt=False)


@_jit
def farthest(link_ptr, dst, source, n_npus, hops, queue):  # type: ignore[no-untyped-def]  # jitted
    """Links on the longest of the shortest paths from `source` to an NPU; -1 if one cannot be reached.

    `link_ptr`, `dst` (n_nodes + 1,), (n_links,): links of each node, and where each of them leads.
    `hops`, `queue` (n_nodes,): scratch space.
    """
    hops[:] = -1
    hops[source], queue[0] = 0, source
    begin, end, npus, most = 0, 1, 0, 0
    while begin < end and npus < n_npus:
        node = queue[begin]
        begin += 1
        if node < n_npus:
            npus += 1
            most = hops[node]  # nodes come in the order of their distance
        for link in range(link_ptr[node], link_ptr[node + 1]):
            if hops[dst[link]] < 0:
                hops[dst[link]] = hops[node] + 1
                queue[end] = dst[link]
                end += 1
    return most if npus == n_npus else -1
