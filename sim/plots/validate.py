"""The figure of a validation: simulated times over predictions, and what the critical path was spent on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.plots.critical_path import KINDS
from sim.plots.style import (
    CYCLE,
    REFERENCE,
    WIDE,
    Row,
    figure,
    heading,
    legend,
    lines_of,
    size_label,
    sizes_axis,
    subject,
)
from sim.why.path import by_kind


def draw_validation(rows: Sequence[Row], path: Path, *, width: str = WIDE) -> None:
    """Draw the rows of `weft validate`."""
    with figure(path, width, height_in=2.9 if width == WIDE else 5.2) as drawn:
        if width == WIDE:
            left, right = drawn.subplots(1, 2, width_ratios=(1, 1.25))
        else:
            left, right = drawn.subplots(2, 1)
        draw_ratios(left, rows)
        draw_parts(right, rows)
        heading(drawn, subject(rows))
        roles = [Line2D([], [], color="#555555", marker="o", label="over the estimate"),
                 Line2D([], [], color="#555555", marker="o", markerfacecolor="white", label="over the lower bound"),
                 Line2D([], [], linestyle="none", label=" ")]
        named = [handle for axes in (left, right) for handle in axes.get_legend_handles_labels()[0]]
        legend(drawn, [*roles, *named])


def draw_ratios(axes: Axes, rows: Sequence[Row]) -> None:
    """Simulated time over the estimate (filled) and over the lower bound (hollow), by size."""
    for name, line in lines_of(row["algorithm"] for row in rows).items():
        own = [row for row in rows if row["algorithm"] == name and row["size_bytes"] > 0]
        sizes = [row["size_bytes"] for row in own]
        solid, hollow = line._replace(hollow=False).style(), line._replace(hollow=True).style()
        axes.plot(sizes, [row["time_s"] / row["lower_bound_s"] for row in own], **hollow | {"linewidth": 0.7})
        axes.plot(sizes, [row["time_s"] / row["estimate_s"] for row in own], label=name, **solid)
    axes.axhline(1, **REFERENCE)
    sizes_axis(axes, [row["size_bytes"] for row in rows], most=8)
    axes.set_title("simulated over predicted")


def draw_parts(axes: Axes, rows: Sequence[Row]) -> None:
    """Shares of the critical path, one bar per row."""
    places = np.arange(len(rows))
    bottom = np.zeros(len(rows))
    parts = [(row, by_kind(row["why"]["parts_ps"])) for row in rows]
    for line, name in zip(CYCLE, KINDS, strict=False):
        share = np.array([100 * part.get(name, 0) / max(row["why"]["makespan_ps"], 1) for row, part in parts])
        if share.any():
            axes.bar(places, share, bottom=bottom, width=0.78, color=line.color, label=name, linewidth=0)
        bottom += share
    every = max(1, -(-len(rows) // 14))
    axes.set_xticks(places[::every], [_label(row, rows) for row in rows][::every], rotation=35, ha="right",
                    rotation_mode="anchor", fontsize=6)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 100)
    axes.set_title("where the time went (%)")


def _label(row: Row, rows: Sequence[Row]) -> str:
    alone = len({one["algorithm"] for one in rows}) == 1
    return size_label(row["size_bytes"]) if alone else f"{row['algorithm']}, {size_label(row['size_bytes'])}"
