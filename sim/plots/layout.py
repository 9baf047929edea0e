"""Where nodes and links of a fabric are drawn.

A link is drawn as a harpoon to the right of the center of its cable, so that the two directions are side by side.
NPUs of several dimensions form a grid, the planes of further dimensions beside each other. There a link that
wraps around, one to or from a switch, and one of a third or further dimension is a stub at its NPU; links that pass
over nodes are arcs. Switches that are connected to each other form tiers above the NPUs. Other fabrics form a circle
around their switches.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import NPU, Topology

Floats = npt.NDArray[np.float64]

APART = 0.055
"""Distance of a direction from the center of its cable; neighbors on the grid have distance 1."""

CLEARANCE = 0.13
"""Distance between the center of a node and the ends of its links."""

STUB, GAP = 0.5, 0.4
_STUB_ANGLES = np.radians([45, 20, 70])
"""Of dimensions 2, 3 and 4; the reverse directions are turned by 180 degrees."""


class Layout(NamedTuple):
    """Where the nodes and links of a fabric are drawn."""

    nodes: Floats  # (n_nodes, 2): NaN for switches that are not drawn
    links: list[Floats]  # (k, 2) each: the line of each link, barb included

    def corners(self) -> tuple[Floats, Floats]:
        """Lowest and highest coordinates, (2,) each."""
        points = np.concatenate([self.nodes[~np.isnan(self.nodes[:, 0])], *self.links])
        return points.min(axis=0), points.max(axis=0)

    def extent(self) -> tuple[float, float]:
        """Width and height."""
        low, high = self.corners()
        return float(high[0] - low[0]), float(high[1] - low[1])


def layout(topology: Topology) -> Layout:
    """Place nodes and links of any fabric."""
    between_switches = (topology.kind[topology.src] != NPU) & (topology.kind[topology.dst] != NPU)
    tiers = bool(np.any(between_switches))
    if sum(extent > 1 for extent in topology.shape) > 1 and not tiers:
        return _Grid(topology).layout()
    nodes = _in_tiers(topology) if tiers else _around(topology)
    ends = zip(nodes[topology.src], nodes[topology.dst], strict=True)
    return Layout(nodes, [_harpoon(start, end, _swing(start, end) if tiers else 0.0) for start, end in ends])


def _swing(start: Floats, end: Floats) -> float:
    """Bend of a link between two nodes of one tier, to pass the nodes between them."""
    length = float(abs(end[0] - start[0]))
    return 0.12 * length if start[1] == end[1] else 0.0


def _around(topology: Topology) -> Floats:
    """NPUs on a circle, switches inside: one in the middle, several on a smaller circle."""
    n_switches = topology.n_nodes - topology.n_npus
    radius = max(topology.n_npus / (2 * np.pi), 1.2)
    nodes = np.zeros((topology.n_nodes, 2))
    nodes[topology.kind == NPU] = _circle(topology.n_npus, radius)
    if n_switches > 1:
        nodes[topology.kind != NPU] = _circle(n_switches, 0.45 * radius)
    return nodes


def _in_tiers(topology: Topology) -> Floats:
    """NPUs in a row; every switch as many tiers above as links from the nearest NPU, spread over the width."""
    tier = np.where(topology.kind == NPU, 0, topology.n_nodes)
    for _ in range(topology.n_nodes):
        reached = tier.copy()
        np.minimum.at(reached, topology.dst, tier[topology.src] + 1)
        if np.array_equal(reached, tier):
            break
        tier = reached
    width = max(topology.n_npus - 1, 1)
    nodes = np.zeros((topology.n_nodes, 2))
    for level in np.unique(tier):
        there = np.flatnonzero(tier == level)
        there = there[np.argsort([_mean_below(topology, nodes, tier, int(node)) for node in there], kind="stable")]
        nodes[there, 0] = (np.arange(there.size) + 0.5) / there.size * width
        nodes[there, 1] = level * max(1.2, 0.14 * width)
    return nodes


def _mean_below(topology: Topology, nodes: Floats, tier: npt.NDArray[np.int64], node: int) -> float:
    """Mean place of the neighbors one tier below; the number of an NPU."""
    below = topology.dst[(topology.src == node) & (tier[topology.dst] < tier[node])]
    return float(nodes[below, 0].mean()) if below.size else float(node)


class _Grid:
    """The drawing of a fabric of several dimensions."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.coords = topology.coords.astype(np.int64)
        npus = topology.n_npus
        self.between_npus = (topology.src < npus) & (topology.dst < npus)
        self.delta = self.coords[topology.dst] - self.coords[topology.src]
        self.nodes = self._positions()
        self.rings = [self._is_ring(dim) for dim in range(len(topology.shape))]

    def layout(self) -> Layout:
        return Layout(self.nodes, [self._link(link) for link in range(self.topology.n_links)])

    def _positions(self) -> Floats:
        """Dimensions 0 and 1 as columns and rows, with gaps where nothing joins neighbors; planes side by side."""
        shape, n_npus = self.topology.shape, self.topology.n_npus
        column, row = self._places(0), self._places(1)
        plane, weight = np.zeros(n_npus), 1
        for dim in range(2, len(shape)):
            plane += weight * self.coords[:n_npus, dim]
            weight *= shape[dim]
        nodes = np.full((self.topology.n_nodes, 2), np.nan)
        nodes[:n_npus, 0] = column[self.coords[:n_npus, 0]] + plane * (column[-1] + 1.9)
        nodes[:n_npus, 1] = row[self.coords[:n_npus, 1]]
        return nodes

    def _places(self, dim: int) -> Floats:
        gaps = [0.0 if self._joined(dim, at) else GAP for at in range(self.topology.shape[dim] - 1)]
        return np.concatenate([[0.0], np.cumsum(1.0 + np.array(gaps))])

    def _joined(self, dim: int, at: int) -> bool:
        """Whether links join two neighboring coordinates."""
        here = self.coords[self.topology.src, dim] == at
        return bool(np.any(here & self.between_npus & (self.delta[:, dim] == 1)))

    def _is_ring(self, dim: int) -> bool:
        """Whether a link across the whole extent wraps around, instead of being one of many."""
        lengths = np.abs(self.delta[self.between_npus & (self.topology.dimension == dim), dim])
        return bool(np.all((lengths <= 1) | (lengths == self.topology.shape[dim] - 1)))

    def _link(self, link: int) -> Floats:
        src, dst = int(self.topology.src[link]), int(self.topology.dst[link])
        dim = self._dimension(link)
        if not self.between_npus[link]:
            npu, leaves = (src, True) if src < self.topology.n_npus else (dst, False)
            return self._stub(npu, dim, self._side(npu, dim), leaves)
        delta = int(self.delta[link, dim])
        wraps = abs(delta) > 1 and self.rings[dim]
        if dim > 1 or wraps or np.count_nonzero(self.delta[link]) > 1:
            return self._stub(src, dim, 1 if (delta > 0) != wraps else -1, leaves=True)
        return _harpoon(self.nodes[src], self.nodes[dst], min(0.1 * abs(delta), 0.4) if abs(delta) > 1 else 0.0)

    def _dimension(self, link: int) -> int:
        """The coordinate along which a link is drawn: its dimension, or the first that it changes."""
        dim = int(self.topology.dimension[link])
        if 0 <= dim < len(self.topology.shape) and (self.delta[link, dim] or not self.between_npus[link]):
            return dim
        return int(np.flatnonzero(self.delta[link])[0])

    def _side(self, npu: int, dim: int) -> int:
        """On which side of an NPU its switch is drawn: where it has no neighbor, else above."""
        at = int(self.coords[npu, dim])
        return -1 if at == 0 or not self._joined(dim, at - 1) else 1

    def _stub(self, npu: int, dim: int, sign: int, leaves: bool) -> Floats:
        angle = (0.0, np.pi / 2)[dim] if dim < 2 else _STUB_ANGLES[(dim - 2) % len(_STUB_ANGLES)]
        near = self.nodes[npu]
        far = near + sign * STUB * np.array([np.cos(angle), np.sin(angle)])
        return _harpoon(near, far, open_end=True) if leaves else _harpoon(far, near, open_start=True)


def _circle(n: int, radius: float) -> Floats:
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _harpoon(
    start: Floats, end: Floats, bend: float = 0.0, *, open_start: bool = False, open_end: bool = False
) -> Floats:
    """A line from start to end, to the right of the middle, with half an arrow head; clear of nodes at its ends."""
    along = end - start
    length = max(float(np.hypot(*along)), 1e-9)
    unit = along / length
    clear = min(CLEARANCE, 0.3 * length) / length
    steps = np.linspace(0 if open_start else clear, 1 if open_end else 1 - clear, 2 if bend == 0 else 17)
    right = np.array([unit[1], -unit[0]])
    line = start + np.outer(steps, along) + np.outer(APART + bend * 4 * steps * (1 - steps), right)
    tip = line[-1] - line[-2]
    tip = tip / max(float(np.hypot(*tip)), 1e-9)
    barb = line[-1] - 0.13 * tip + 0.07 * np.array([tip[1], -tip[0]])
    return np.asarray(np.vstack([line, barb]), np.float64)
