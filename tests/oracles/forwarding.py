"""What switches that only forward allow, by the plain linear program: one flow to each NPU within what links carry.

At a switch as much of what is broadcast comes in as goes out, and as much of what is reduced.
"""

import numpy as np
from scipy.optimize import linprog

from topologies import Topology


def gather_Bps(t: Topology, root: int | None = None) -> float:
    """Bytes per second of each root of an all-gather, or of one root's broadcast."""
    roots = list(range(t.n_npus)) if root is None else [root]
    return _solved(t, roots, (False,), alike=True) / len(roots)


def all_reduce_Bps(t: Topology) -> float:
    """Bytes of the array per second of an all-reduce along trees of any roots."""
    return _solved(t, list(range(t.n_npus)), (False, True), alike=False)


def _flows(t: Topology, roots: list[int], columns: int, first: int, *, up: bool) -> tuple[list, list]:
    """Rows that are zero, of flows that start at `first` from roots, whose rates are the first columns, to each NPU."""
    equal, places = [], []
    for npu in range(t.n_npus):
        at = first + npu * t.n_links
        places.append(at)
        for node in range(t.n_nodes):
            row = np.zeros(columns)
            for link, (tail, head) in enumerate(zip(t.src.tolist(), t.dst.tolist(), strict=True)):
                tail, head = (head, tail) if up else (tail, head)
                row[at + link] += int(node == head) - int(node == tail)
            for column, root in enumerate(roots):
                row[column] += int(node == root) - int(node == npu)
            equal.append(row)
    return equal, places


def _solved(t: Topology, roots: list[int], ways: tuple[bool, ...], *, alike: bool) -> float:
    unit, n, m, r = t.bandwidth_Bps.max(), t.n_npus, t.n_links, len(roots)
    columns = r + len(ways) * (m + n * m)
    equal, upper, limit = [], [], []
    for way, up in enumerate(ways):
        carried = r + way * (m + n * m)
        rows, places = _flows(t, roots, columns, carried + m, up=up)
        equal += rows
        for switch in range(n, t.n_nodes):
            row = np.zeros(columns)
            row[carried : carried + m] = (t.dst == switch).astype(int) - (t.src == switch)
            equal.append(row)
        for at in places:
            for link in range(m):
                row = np.zeros(columns)
                row[at + link], row[carried + link] = 1, -1
                upper.append(row)
                limit.append(0)
    for link in range(m):
        row = np.zeros(columns)
        row[[r + way * (m + n * m) + link for way in range(len(ways))]] = 1
        upper.append(row)
        limit.append(t.bandwidth_Bps[link] / unit)
    if alike:
        for other in range(1, r):
            row = np.zeros(columns)
            row[0], row[other] = 1, -1
            equal.append(row)
    cost = np.zeros(columns)
    cost[:r] = -1
    found = linprog(cost, np.array(upper), limit, np.array(equal), np.zeros(len(equal)), method="highs")
    assert found.status == 0, found.message
    return float(-found.fun * unit)
