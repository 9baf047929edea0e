"""A fabric as a picture: links colored by their dimension, or by how busy they were.

Fabrics of up to 300 nodes are drawn link by link; larger grids of two dimensions as one image for each direction, one
pixel per link; other large fabrics as the links of each dimension in order of their busy share.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sim.plots.layout import Floats, Layout, layout
from sim.plots.lines import HEAT_STOPS
from sim.plots.style import CYCLE, NARROW, WIDE, figure, heading, legend
from topologies import NPU, Topology, WeftError
from topologies.units import format_rate

MOST_NODES_DRAWN = 300
HEAT = LinearSegmentedColormap.from_list("heat", HEAT_STOPS)

_BUSY = Normalize(0, 1)


def draw_heatmap(topology: Topology, utilization: Floats, path: Path, title: str = "", *, width: str = WIDE) -> None:
    """Draw the busy share of every link.

    `utilization` (n_links,): 0 to 1.
    `width`: {"narrow", "wide"}; at most; a drawing as high as wide is narrow.
    """
    if topology.n_nodes <= MOST_NODES_DRAWN:
        placed = layout(topology)
        with fabric_figure(path, placed, width) as (drawn, axes):
            draw_fabric(axes, topology, placed, HEAT(_BUSY(utilization)), order=np.argsort(utilization, kind="stable"))
            _finish(drawn, [axes], title)
        return
    if len(topology.shape) == 2 and topology.n_nodes == topology.n_npus:
        with figure(path, width, height_in=2.1 if topology.shape[0] < 2 * topology.shape[1] else 2.6) as drawn:
            _finish(drawn, _draw_images(drawn, topology, utilization), title)
        return
    with figure(path, NARROW) as drawn:
        _draw_ranked(drawn.add_subplot(), topology, utilization)
        heading(drawn, title)
        legend(drawn)


@contextmanager
def fabric_figure(path: Path, placed: Layout, most: str = WIDE) -> Iterator[tuple[Figure, Axes]]:
    """A figure with the proportions of a layout, at most `width` wide, and its axes."""
    wide, tall = (side + 1.0 for side in placed.extent())
    width, inches = (WIDE, 6.2) if wide > 1.7 * tall and most == WIDE else (NARROW, 2.9)
    with figure(path, width, height_in=float(np.clip(inches * tall / wide, 1.2, 6.0)) + 0.35) as drawn:
        axes = drawn.add_subplot()
        axes.set_aspect("equal")
        axes.axis("off")
        yield drawn, axes


def check_drawable(topology: Topology) -> None:
    """Reject fabrics whose nodes could not be distinguished."""
    if topology.n_nodes > MOST_NODES_DRAWN:
        raise WeftError(
            f"{topology.name} has {topology.n_nodes:,} nodes: at most {MOST_NODES_DRAWN} can be distinguished in a "
            "picture; draw a smaller one of the family"
        )


def draw_fabric(
    axes: Axes, topology: Topology, placed: Layout, colors: Floats, order: npt.NDArray[np.integer] | None = None
) -> None:
    """Draw nodes and links.

    `colors` (n_links, 4).
    `order` (n_links,): links from the bottom to the top.
    """
    order = np.arange(topology.n_links) if order is None else order
    inches = axes.get_window_extent().width / axes.get_figure(root=True).dpi  # type: ignore[union-attr]  # it has one
    points_per_unit = 72 * inches / (placed.extent()[0] + 1)
    axes.add_collection(
        LineCollection(
            [placed.links[link] for link in order], colors=colors[order], capstyle="round", joinstyle="round",
            linewidths=float(np.clip(0.07 * points_per_unit, 0.35, 1.8)),
        )
    )
    side = float(np.clip(0.17 * points_per_unit, 1.0, 7.0))
    npus = placed.nodes[topology.kind == NPU]
    switches = placed.nodes[(topology.kind != NPU) & ~np.isnan(placed.nodes[:, 0])]
    axes.scatter(npus[:, 0], npus[:, 1], s=side**2, color="#2b2b2b", zorder=3, linewidths=0)
    area = (1.5 * side) ** 2
    axes.scatter(switches[:, 0], switches[:, 1], s=area, color="#E69F00", marker="s", zorder=3, linewidths=0)
    low, high = placed.corners()
    axes.set_xlim(low[0] - 0.3, high[0] + 0.3)
    axes.set_ylim(low[1] - 0.3, high[1] + 0.3)


def _finish(drawn: Figure, axes: Sequence[Axes], title: str) -> None:
    bar = drawn.colorbar(ScalarMappable(_BUSY, HEAT), ax=list(axes), shrink=0.8, aspect=26, pad=0.02)
    bar.set_label("busy share of the time")
    bar.outline.set_visible(False)
    heading(drawn, title)


def _draw_images(drawn: Figure, topology: Topology, utilization: Floats) -> list[Axes]:
    """One image for each direction of each dimension: the pixel of a node is its link in that direction."""
    columns, rows = topology.shape
    axes: list[Axes] = list(np.ravel(drawn.subplots(*((1, 4) if columns < 2 * rows else (2, 2)))))
    steps = (topology.coords[topology.dst] - topology.coords[topology.src]).astype(np.int64)
    for one, (dim, sign) in zip(axes, ((0, 1), (0, -1), (1, 1), (1, -1)), strict=True):
        that_way = (topology.dimension == dim) & (np.mod(sign * steps[:, dim], topology.shape[dim]) == 1)
        image = np.full((rows, columns), np.nan)
        at = topology.coords[topology.src[that_way]]
        image[at[:, 1], at[:, 0]] = utilization[that_way]
        one.imshow(image, origin="lower", cmap=HEAT, norm=_BUSY, interpolation="nearest")
        one.set_title(f"dimension {dim}, {'+' if sign > 0 else '-'}", fontsize=7)
        one.set_xticks([])
        one.set_yticks([])
        one.grid(visible=False)
    return axes


def _draw_ranked(axes: Axes, topology: Topology, utilization: Floats) -> None:
    """Busy share of the links of each dimension, the busiest first."""
    for dimension in np.unique(topology.dimension):
        shares = np.sort(utilization[topology.dimension == dimension])[::-1]
        line = CYCLE[int(dimension) % len(CYCLE)]
        label = f"dimension {dimension}" if dimension >= 0 else "links"
        place = (np.arange(shares.size) + 0.5) / shares.size
        axes.plot(place, shares, color=line.color, linestyle=line.dashes, label=label)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of the links, the busiest first")
    axes.set_ylabel("busy share of the time")


def draw_topology(topology: Topology, path: Path) -> None:
    """Draw a fabric.

    WeftError: more nodes than can be distinguished.
    """
    check_drawable(topology)
    dimensions = np.unique(topology.dimension)
    colors = np.array([to_rgba(CYCLE[dim % len(CYCLE)].color) for dim in topology.dimension.tolist()]).reshape(-1, 4)
    placed = layout(topology)
    with fabric_figure(path, placed) as (drawn, axes):
        draw_fabric(axes, topology, placed, colors)
        heading(drawn, topology.name)
        handles = [Line2D([], [], color=CYCLE[dim % len(CYCLE)].color, linewidth=2, label=_label(topology, dim))
                   for dim in dimensions.tolist()]
        if handles:
            legend(drawn, handles)


def _label(topology: Topology, dimension: int) -> str:
    here = topology.dimension == dimension
    rates = np.unique(topology.bandwidth_Bps[here])
    rate = format_rate(rates[0]) if rates.size == 1 else f"{format_rate(rates[0])} to {format_rate(rates[-1])}"
    ends = topology.kind[topology.src[here]] + topology.kind[topology.dst[here]]
    what = "dimension" if np.all(ends == NPU) else "through switches: dimension"
    return f"{what} {dimension}, {rate}" if dimension >= 0 else f"links, {rate}"
