"""How busy every link was, drawn on the fabric.

Grids of up to 256 NPUs in one or two dimensions are drawn link by link, each cable as its two directions side by
side; larger grids of two dimensions as one image for each direction, a pixel a link; other fabrics with their NPUs
around their switches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from sim.plots.style import WIDE, figure, save
from topologies import NPU, Topology

Floats = npt.NDArray[np.float64]

MOST_NODES_DRAWN = 256
HEAT = LinearSegmentedColormap.from_list("heat", ["#d9e2ec", "#8fb8de", "#3f7fbf", "#7a3b8f", "#c8102e"])
"""Idle links are pale, not white: they are there."""

SIDE = 0.07
"""Distance of a direction from the middle of its cable, in units of the grid."""


def draw_heatmap(topology: Topology, utilisation: Floats, path: Path, title: str = "") -> None:
    """Draw the busy share of every link.

    Parameters
    ----------
    topology : Topology
    utilisation : (n_links,) float
        0 to 1.
    path : Path
        .png, .pdf or .svg.
    title : str
    """
    large = topology.n_nodes > MOST_NODES_DRAWN and len(topology.shape) == 2 and topology.n_nodes == topology.n_npus
    with figure(WIDE, height_in=2.2 if large else _height_in(topology)) as drawn:
        norm = Normalize(0, max(float(utilisation.max(initial=0)), 1e-9))
        axes = _draw_images(drawn, topology, utilisation, norm) if large else [drawn.add_subplot()]
        if not large:
            draw_links(axes[0], topology, utilisation, norm)
        bar = drawn.colorbar(ScalarMappable(norm, HEAT), ax=axes, shrink=0.75, aspect=24, pad=0.02)
        bar.set_label("busy share of the time")
        bar.outline.set_visible(False)
        drawn.suptitle(f"{title} on {topology.name}" if title else topology.name, fontsize=9, weight="bold")
        save(drawn, path)


def draw_links(axes: Axes, topology: Topology, values: Floats, norm: Normalize, cmap: Any = HEAT) -> None:
    """Draw every link as a line beside the middle of its cable, coloured by its value, the busiest on top."""
    place = positions(topology)
    lines = [_line(place[src], place[dst], topology) for src, dst in zip(topology.src, topology.dst, strict=True)]
    order = np.argsort(values, kind="stable")
    scale = float(np.clip(14 / max(place.max(), 1), 0.35, 2.2))
    axes.add_collection(
        LineCollection([lines[link] for link in order], colors=cmap(norm(values[order])), linewidths=scale,
                       capstyle="round")
    )
    npu = topology.kind == NPU
    size = float(np.clip(900 / max(place[:, 0].max() + 1, 6) ** 2, 2, 26))
    axes.scatter(*place[npu].T, s=size, color="#333333", zorder=3, linewidths=0)
    axes.scatter(*place[~npu].T, s=2.2 * size, color="#E69F00", marker="s", zorder=3, linewidths=0)
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.axis("off")
    axes.autoscale_view()


def positions(topology: Topology) -> Floats:
    """Where each node is drawn, (n_nodes, 2): NPUs on their grid, planes side by side, or around a circle."""
    shape, n_npus = topology.shape, topology.n_npus
    if n_npus == topology.n_nodes and len(shape) > 1:
        return grid_positions(topology.coords[:, :].astype(np.float64), shape)
    if n_npus == topology.n_nodes:
        return _circle(n_npus, max(n_npus / 6, 1.2))
    if len(shape) == 2:
        return _with_switches_outside(topology)
    around = _circle(n_npus, max(n_npus / 6, 1.5))
    n_switches = topology.n_nodes - n_npus
    inner = _circle(n_switches, max(n_npus / 6, 1.5) * 0.45) if n_switches > 1 else np.zeros((n_switches, 2))
    middle = around.max() / 2
    return np.concatenate([around, inner - inner.mean(axis=0, keepdims=True) + middle if n_switches else inner])


def grid_positions(coords: Floats, shape: tuple[int, ...]) -> Floats:
    """Dimensions 0 and 1 as columns and rows; planes of further dimensions beside each other."""
    x, y = coords[:, 0].copy(), coords[:, 1].copy()
    apart, step = 0, shape[0] + 1.5
    weight = 1
    for dim in range(2, len(shape)):
        apart = apart + weight * coords[:, dim]
        weight *= shape[dim]
    return np.stack([x + step * apart, y], axis=1)


def _circle(n: int, radius: float) -> Floats:
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    return radius + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _with_switches_outside(topology: Topology) -> Floats:
    """NPUs on a grid; the switch of a row to its left, of a column below it."""
    place = topology.coords.astype(np.float64)
    outside = place < 0
    place[outside] = 0.9 * place[outside] - 0.6
    return place


def _line(start: Floats, end: Floats, topology: Topology) -> list[tuple[float, float]]:
    """A direction, to the right of the middle of its cable; a long one leaves its nodes in an arc."""
    along = end - start
    length = float(np.hypot(*along))
    unit = along / max(length, 1e-9)
    right = np.array([unit[1], -unit[0]])
    bend = SIDE if length < 1.6 or topology.n_npus != topology.n_nodes else SIDE + 0.10 * min(length, 6) ** 0.9
    steps = np.linspace(0, 1, 2 if bend == SIDE else 15)
    offset = SIDE + (bend - SIDE) * 4 * steps * (1 - steps)
    points = start + np.outer(steps, along) + np.outer(offset, right)
    return [(float(x), float(y)) for x, y in points]


def _height_in(topology: Topology) -> float:
    """As tall as the drawing needs at the width of the page."""
    place = positions(topology)
    wide, tall = np.ptp(place, axis=0) + 1.5
    return float(np.clip(5.6 * tall / wide, 1.6, 5.6))


def _draw_images(drawn: Figure, topology: Topology, utilisation: Floats, norm: Normalize) -> list[Axes]:
    """One image for each direction of each dimension: the pixel of a node is its link that way."""
    axes: list[Axes] = list(drawn.subplots(1, 4))
    names = ("dimension 0, +", "dimension 0, -", "dimension 1, +", "dimension 1, -")
    columns, rows = topology.shape
    steps = (topology.coords[topology.dst] - topology.coords[topology.src]).astype(np.int64)
    for one, name, (dim, sign) in zip(axes, names, ((0, 1), (0, -1), (1, 1), (1, -1)), strict=True):
        extent = topology.shape[dim]
        that_way = (topology.dimension == dim) & (np.mod(sign * steps[:, dim], extent) == 1)
        image = np.full((rows, columns), np.nan)
        at = topology.coords[topology.src[that_way]]
        image[at[:, 1], at[:, 0]] = utilisation[that_way]
        one.imshow(image, origin="lower", cmap=HEAT, norm=norm, interpolation="nearest")
        one.set_title(name, fontsize=7)
        one.set_xticks([])
        one.set_yticks([])
        one.grid(visible=False)
    return axes
