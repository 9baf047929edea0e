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
