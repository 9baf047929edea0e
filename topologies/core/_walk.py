"""Compiled walks along many routes: fabrics of thousands of nodes have millions of hops."""

from functools import partial

from topologies.compiled import cached, part

_jit = partial(cached, nogil=True, _nrt=False)


@partial(part, nogil=True, _nrt=False)
def _link(link_ptr, dst, tail, head):  # type: ignore[no-untyped-def]  # jitted
    """The first link between two nodes, -1 where there is none."""
    low, high = link_ptr[tail], link_ptr[tail + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if dst[middle] < head:
            low = middle + 1
        else:
            high = middle
    return low if low < end and dst[low] == head else -1


@_jit
def walk(link_ptr, dst, axes, legs, src, first, end, ptr, links):  # type: ignore[no-untyped-def]  # jitted
    """Write down the links of routes, which follow their legs one behind the other.

    `link_ptr`, `dst` (n_nodes + 1,), (n_links,): links of each node, and where each of them leads.
    `axes` (n_dims, 3): stride, extent and first switch of each.
    `legs` (n_dims, 6, n_routes): those of `topologies.core.blocks.Leg`.
    `src`, `first`, `end` (n_routes,): node, first NPU and last node of each route.
    `ptr`, `links` (n_routes + 1,), (n_hops,): the routes; links are filled in.
    """
    for route in range(src.size):
        at, node, npu = ptr[route], src[route], first[route]
        if node != npu and at < ptr[route + 1]:
            links[at] = _link(link_ptr, dst, node, npu)
            at += 1
        node = npu
        for dim in range(axes.shape[0]):
            stride, extent, switch = axes[dim, 0], axes[dim, 1], axes[dim, 2]
            position, step, before, entry, onward, hops = legs[dim, :, route]
            origin = npu - position * stride
            for k in range(1, hops + 1):
                if k == before + 1:
                    npu = switch + origin % stride + origin // (stride * extent) * stride
                else:
                    if k == before + 2:
                        position, step = entry, onward
                    else:
                        position += step
                    position += extent * (position < 0) - extent * (position >= extent)
                    npu = origin + position * stride
                links[at] = _link(link_ptr, dst, node, npu)
                at, node = at + 1, npu
        if at < ptr[route + 1]:
            links[at] = _link(link_ptr, dst, node, end[route])


@_jit
def climb(link_ptr, dst, nodes, ptr, links):  # type: ignore[no-untyped-def]  # jitted
    """Write down the links of routes that go up some tiers and down again.

    `nodes` (2 * tiers + 1, n_routes): of the longest route; shorter ones skip the middle.
    `ptr`, `links` (n_routes + 1,), (n_hops,): the routes; links are filled in.
    """
    for route in range(ptr.size - 1):
        node, hops = nodes[0, route], ptr[route + 1] - ptr[route]
        for hop in range(hops):
            place = hop + 1 if 2 * hop < hops else hop + nodes.shape[0] - hops
            links[ptr[route] + hop] = _link(link_ptr, dst, node, nodes[place, route])
            node = nodes[place, route]


@_jit
def spread(ptr, tail, targets, distance, queue):  # type: ignore[no-untyped-def]  # jitted
    """Fill in the links from each node to each target, (n_targets, n_nodes); -1 on entry.

    `ptr`, `tail` (n_nodes + 1,), (n_links,): links that enter each node, and where each of them begins.
    `queue` (n_nodes,): scratch.
    """
    for row in range(targets.size):
        distance[row, targets[row]] = 0
        queue[0], begin, end = targets[row], 0, 1
        while begin < end:
            node = queue[begin]
            begin += 1
            for at in range(ptr[node], ptr[node + 1]):
                if distance[row, tail[at]] < 0:
                    distance[row, tail[at]] = distance[row, node] + 1
                    queue[end] = tail[at]
                    end += 1


@_jit
def descend(  # type: ignore[no-untyped-def]  # jitted
    link_ptr, dst, ways, distance, nearer, first, routes, row, src, ptr, last, index, links, tied
):
    """Write down the links of routes that come a link nearer to their target with each.

    `link_ptr`, `dst`: as of `walk`; `ways` (n_links,): links of each node in the order in which they are looked at.
    `distance` (n, n_nodes): links from each node to some targets, of which `first` is the number of the first.
    `nearer`: as many -1: scratch, the first link that leads nearer to them.
    `routes`: those to be written; `row`, `src`, `last` (n_routes,): target of each, where it begins, and its last link,
        behind the target, or -1.
    `index`: which of the links that lead nearer is taken, modulo their number, hop after hop; empty: the first.
    `links`, `tied`: filled in; whether a route had a choice, which is not told where the first is taken.
    """
    hop = 0
    for route in routes:
        to, to_first = distance[row[route] - first], nearer[row[route] - first]
        node, end = src[route], ptr[route + 1]
        if last[route] >= 0:
            end -= 1
            links[end] = last[route]
        for at in range(ptr[route], end):
            links[at] = to_first[node]
            if links[at] < 0 or index.size:
                found, several = -1, 0
                for way in range(link_ptr[node], link_ptr[node + 1]):
                    if to[dst[ways[way]]] == end - at - 1:
                        found = way if several == 0 else found
                        several += 1
                        if index.size == 0:
                            break
                if several > 1:
                    tied[route] = True
                    skipped = index[hop] % several
                    while skipped > 0:
                        found += 1
                        skipped -= to[dst[ways[found]]] == end - at - 1
                links[at] = to_first[node] = ways[found]
                hop += 1
            node = dst[links[at]]


@_jit
def leads(tail, head, ptr, links, src, dst):  # type: ignore[no-untyped-def]  # jitted
    """Whether each route that has links leads along them from its source to its destination.

    `tail`, `head` (n_links,): where links begin and end. `ptr`, `links`, `src`, `dst`: as of `broken_path`.
    """
    for route in range(src.size):
        node = src[route]
        for at in range(ptr[route], ptr[route + 1]):
            if tail[links[at]] != node:
                return False
            node = head[links[at]]
        if ptr[route] < ptr[route + 1] and node != dst[route]:
            return False
    return True
