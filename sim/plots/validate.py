"""The figure of a validation: simulated times over predictions, and what the critical path was spent on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sim.plots.critical_path import KINDS
from sim.plots.style import CYCLE, WIDE, Row, figure, lines_of, size_label, sizes_axis
from sim.why.path import by_kind


def draw_validation(rows: Sequence[Row], path: Path, *, width: str = WIDE) -> None:
    """Draw the rows of `weft validate`."""
    with figure(path, width, height_in=2.9 if width == WIDE else 5.2) as drawn:
        if width == WIDE:
            left, right = drawn.subplots(1, 2, width_ratios=(1, 1.25))
        else:
            left, right = drawn.subplots(2, 1)
        draw_ratios(left, rows)
        draw_parts(right, rows, 5 if width == WIDE else 3)
        drawn.suptitle(f"{rows[0]['collective']} on {rows[0]['topology']}", fontsize=9.5, weight="bold")


def draw_ratios(axes: Axes, rows: Sequence[Row]) -> None:
    """Simulated time over the estimate (filled) and over the lower bound (hollow), by size."""
    for name, line in lines_of(row["algorithm"] for row in rows).items():
        own = [row for row in rows if row["algorithm"] == name and row["size_bytes"] > 0]
        sizes = [row["size_bytes"] for row in own]
        style = line.style()
        axes.plot(sizes, [row["time_s"] / row["estimate_s"] for row in own], label=f"{name} / estimate", **style)
        hollow = style | {"markerfacecolor": "white", "markeredgecolor": style["color"], "markeredgewidth": 0.9,
                          "linewidth": 0.7, "alpha": 0.85}
        axes.plot(sizes, [row["time_s"] / row["lower_bound_s"] for row in own], label=f"{name} / lower bound", **hollow)
    axes.axhline(1, color="#444444", linewidth=0.7)
    sizes_axis(axes, [row["size_bytes"] for row in rows], most=8)
    axes.set_title("simulated over predicted")
    axes.legend(fontsize=6, loc="best")


def draw_parts(axes: Axes, rows: Sequence[Row], columns: int = 5) -> None:
    """Shares of the critical path, one bar per row; the legend in so many columns."""
    places = np.arange(len(rows))
    bottom = np.zeros(len(rows))
    parts = [(row, by_kind(row["why"]["parts_ps"])) for row in rows]
    for line, name in zip(CYCLE, KINDS, strict=False):
        share = np.array([100 * part.get(name, 0) / max(row["why"]["makespan_ps"], 1) for row, part in parts])
        axes.bar(places, share, bottom=bottom, width=0.78, color=line.color, label=name, linewidth=0)
        bottom += share
    every = max(1, -(-len(rows) // 14))
    axes.set_xticks(places[::every], [_label(row, rows) for row in rows][::every], rotation=35, ha="right",
                    rotation_mode="anchor", fontsize=6)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 100)
    axes.set_title("where the time went (%)")
    axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.3),
                ncols=columns, handlelength=1, columnspacing=1)


def _label(row: Row, rows: Sequence[Row]) -> str:
    alone = len({one["algorithm"] for one in rows}) == 1
    return size_label(row["size_bytes"]) if alone else f"{row['algorithm']}, {size_label(row['size_bytes'])}"
