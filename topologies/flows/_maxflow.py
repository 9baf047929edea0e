"""The compiled maximum flow: Dinic's algorithm on integers, over arcs in linked lists.

Arc a and its reverse a ^ 1 are adjacent. For capacities beyond 64 bits the function also runs as plain Python
(`augment.py_func`) on arrays of Python integers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from topologies.compiled import cached


def _jit(function: Callable[..., Any]) -> Any:
    return cached(function, [Path(__file__)], nogil=True)


@_jit
def augment(first, following, head, left, source, sink, limit, level, current, queue, path):  # type: ignore[no-untyped-def]  # jitted
    """Push at most `limit` from source to sink; returns the amount pushed.

    Parameters
    ----------
    first : (n_nodes,) int64
        First outgoing arc of each node, -1 for none.
    following, head : (n_arcs,) int64
        Next arc of the same node; head node of an arc.
    left : (n_arcs,) int64
        Residual capacity of each arc; updated.
    level, current, queue, path : (n_nodes,) int64
        Scratch space. If less than `limit` was pushed, the nodes with level >= 0 are the source side of the
        minimum cut closest to the source.
    """
    pushed = limit * 0
    while pushed < limit:
        for node in range(len(level)):
            level[node] = -1
        level[source] = 0
        queue[0] = source
        begin, end = 0, 1
        while begin < end and level[sink] < 0:
            node = queue[begin]
            begin += 1
            arc = first[node]
            while arc >= 0:
                other = head[arc]
                if left[arc] > 0 and level[other] < 0:
                    level[other] = level[node] + 1
                    queue[end] = other
                    end += 1
                arc = following[arc]
        if level[sink] < 0:
            break
        for node in range(len(current)):  # a copy of arrays would compile the text of its error message, for 2 s
            current[node] = first[node]
        depth = 0
        node = source
        while True:
            if node == sink:
                most = limit - pushed
                for i in range(depth):
                    most = min(most, left[path[i]])
                back = depth
                for i in range(depth - 1, -1, -1):
                    left[path[i]] -= most
                    left[path[i] ^ 1] += most
                    if left[path[i]] == 0:
                        back = i
                pushed += most
                if pushed >= limit:
                    break
                depth = back
                node = head[path[depth] ^ 1]
                continue
            arc = current[node]
            while arc >= 0 and not (left[arc] > 0 and level[head[arc]] == level[node] + 1):
                arc = following[arc]
            current[node] = arc
            if arc >= 0:
                path[depth] = arc
                depth += 1
                node = head[arc]
            elif depth == 0:
                break
            else:
                level[node] = -2
                depth -= 1
                node = head[path[depth] ^ 1]
                current[node] = following[current[node]]
    return pushed
