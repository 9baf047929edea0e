"""Algorithms under the roof that the fabric sets: latency at small sizes, the tightest cut at large ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.analytic.roof import Roof
from sim.plots.compare import curves_of, sizes_of
from sim.plots.style import WIDE, Row, figure, heading, lines_of, log_axis, sizes_axis
from topologies import WeftError


def draw_roofline(rows: Sequence[Row], path: Path, roof: Roof, *, width: str = WIDE) -> None:
    """Draw algbw by size on logarithmic axes, under the roof of the fabric.

    `rows`: of one topology and one collective.
    """
    curves = curves_of(rows)
    sizes = sizes_of(curves)
    if not sizes:
        raise WeftError("a roofline needs rows of sizes above zero")
    lines = lines_of(curves)
    with figure(path, width, height_in=3.2 if width == WIDE else 2.8) as drawn:
        axes = drawn.add_subplot()
        for name, points in curves.items():
            axes.plot([size for size, _ in points], [size / time_s / 1e9 for size, time_s in points], label=name,
                      **lines[name].style())
        log_axis(axes)
        lowest = min(size / time_s for points in curves.values() for size, time_s in points) / 1e9
        grid = np.geomspace(min(sizes), max(max(sizes), min(sizes) + 1), 200)
        top = np.array([size / roof.time_s(size) / 1e9 for size in grid]) if roof.time_s(max(sizes)) else np.array([])
        if top.size:
            axes.plot(grid, top, color="#222222", linewidth=1.6, label="roof", zorder=1)
            axes.fill_between(grid, top, 3 * top.max(), color="#ececec", linewidth=0, zorder=0)
            axes.set_ylim(lowest / 2, 2 * float(top.max()))
        if min(sizes) < roof.ridge_bytes < max(sizes):
            axes.axvline(roof.ridge_bytes, color="#222222", linewidth=0.6, linestyle=(0, (4, 3)))
            axes.annotate("latency | bandwidth", (roof.ridge_bytes, axes.get_ylim()[0]), xytext=(0, 4), ha="center",
                          textcoords="offset points", fontsize=6, color="#444444")
        sizes_axis(axes, sizes, most=13 if width == WIDE else 7)
        axes.set_ylabel("algbw (GB/s)")
        axes.set_xlabel("size of the array")
        axes.legend(loc="upper left")
        heading(drawn, rows)
