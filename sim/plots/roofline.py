"""Algorithms under the roof that the fabric sets: latency at small sizes, the tightest cut at large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sim.analytic.roof import Roof
from sim.plots.compare import curves_of, sizes_of
from sim.plots.style import (
    REFERENCE,
    WIDE,
    Row,
    by_fabric,
    figure,
    heading,
    labels_across,
    legend,
    lines_of,
    log_axis,
    panels,
    sizes_axis,
    subject,
)
from topologies import WeftError


def draw_roofline(rows: Sequence[Row], path: Path, roofs: Mapping[str, Roof], *, width: str = WIDE) -> None:
    """Draw algbw by size on logarithmic axes, under the roof of the fabric; several fabrics side by side.

    `rows`: of one collective.
    `roofs`: by the fabric of the rows.
    """
    fabrics = {name: curves for name, own in by_fabric(rows).items() if sizes_of(curves := curves_of(own))}
    if not fabrics:
        raise WeftError("a roofline needs rows of sizes above zero")
    lines = lines_of(name for curves in fabrics.values() for name in curves)
    with figure(path, width, height_in=2.8) as drawn:
        columns = panels(drawn, len(fabrics))
        most = labels_across(drawn, len(fabrics))
        for (axes,), (fabric, curves) in zip(columns, fabrics.items(), strict=True):
            for name, points in curves.items():
                axes.plot([size for size, _ in points], [size / time_s / 1e9 for size, time_s in points], label=name,
                          **lines[name].style())
            sizes_axis(axes, sizes_of(curves), most=most)
            axes.set_xlabel("size of the array")
            axes.set_title(fabric if len(fabrics) > 1 else "")
        rates = [size / time_s / 1e9 for curves in fabrics.values() for points in curves.values()
                 for size, time_s in points]
        tops = [_draw_roof(axes, sizes_of(curves), roofs[fabric])
                for (axes,), (fabric, curves) in zip(columns, fabrics.items(), strict=True)]
        columns[0][0].set_yscale("log")
        columns[0][0].set_ylim(min(rates) / 2, 2 * max(*rates, *tops))
        for (axes,) in columns:
            log_axis(axes, most=12)
        columns[0][0].set_ylabel("algbw (GB/s)")
        heading(drawn, subject(rows))
        legend(drawn)


def _draw_roof(axes: Axes, sizes: Sequence[int], roof: Roof) -> float:
    """The roof, what is above it, and its ridge; its height in GB/s, 0 without one."""
    grid = np.geomspace(min(sizes), max(max(sizes), min(sizes) + 1), 200)
    if not roof.time_s(max(sizes)):
        return 0.0
    top = np.array([size / roof.time_s(size) / 1e9 for size in grid])
    axes.plot(grid, top, color="#222222", linewidth=1.6, label="roof", zorder=1)
    axes.fill_between(grid, top, 1e6 * top.max(), color="#ececec", linewidth=0, zorder=0)
    if min(sizes) < roof.ridge_bytes < max(sizes):
        axes.axvline(roof.ridge_bytes, **REFERENCE)
        axes.annotate("latency \N{LEFTWARDS ARROW} \N{RIGHTWARDS ARROW} bandwidth", (roof.ridge_bytes, 0),
                      xycoords=axes.get_xaxis_transform(), xytext=(0, 3), textcoords="offset points", ha="center",
                      fontsize=6, color="#444444")
    return float(top.max())
