"""A fabric as a picture: nodes, switches, and links colored by their dimension."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D

from sim.plots.heatmap import check_drawable, draw_fabric, fabric_figure
from sim.plots.layout import layout
from sim.plots.style import CYCLE, heading, legend
from topologies import NPU, Topology
from topologies.units import format_rate


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
