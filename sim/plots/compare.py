"""The figure of a comparison: goodput by size, runtime of small arrays, and the winner's gain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sim.plots.style import WIDE, Row, figure, lines_of, size_label, sizes_axis
from topologies.units import counted

Curves = dict[str, list[tuple[int, float]]]
"""By algorithm: (size in bytes, time in seconds), ascending."""

MOST_IN_AXES = 6
"""Algorithms whose legend fits among the curves."""

SMALL_BYTES = 32 * 1024
"""Sizes up to this have a goodput too small for the figure: the runtime is drawn instead."""


def draw_comparison(rows: Sequence[Row], path: Path, title: str | None = None, *, width: str = WIDE) -> None:
    """Draw a comparison.

    `rows`: of one topology and one collective; sizes of 0 are left out.
    `title`: default: "all-reduce on torus:8x8".
    `width`: {"narrow", "wide"}; narrow shows the goodput alone.
    """
    curves = curves_of(rows)
    small = [size for size in sizes_of(curves) if size <= SMALL_BYTES]
    crowded = len(curves) > MOST_IN_AXES
    columns = 5 if width == WIDE else 2
    legend_in = crowded * (0.2 + 0.14 * -(-len(curves) // columns))
    with figure(path, width, height_in=(3.1 if width == WIDE else 2.5) + legend_in) as drawn:
        if width != WIDE:
            draw_goodput(drawn.add_subplot(), curves, most=7)
        elif len(curves) > 1:
            places = drawn.add_gridspec(2, 2, width_ratios=(1.75, 1))
            draw_goodput(drawn.add_subplot(places[:, 0]), curves)
            draw_runtime(drawn.add_subplot(places[0, 1]), curves, small or sizes_of(curves))
            draw_gain(drawn.add_subplot(places[1, 1]), curves)
        else:
            left_axes, right_axes = drawn.subplots(1, 2, width_ratios=(1.4, 1))
            draw_goodput(left_axes, curves)
            draw_runtime(right_axes, curves, small or sizes_of(curves))
        first = rows[0]
        if crowded:
            handles = drawn.axes[0].get_legend_handles_labels()
            drawn.legend(*handles, loc="outside lower center", ncols=columns, fontsize=6)
        else:
            drawn.axes[0].legend(loc="upper left")
        drawn.suptitle(title or f"{first['collective']} on {first['topology']}", fontsize=9.5, weight="bold")
        if width == WIDE:
            drawn.text(1, 1, assumptions(first), fontsize=6, color="#777777", ha="right", va="top")
        else:
            drawn.axes[0].set_title(assumptions(first), fontsize=6, color="#777777", weight="normal", loc="center")


def assumptions(row: Row) -> str:
    """What decides the times: forwarding, chunking, engine."""
    count = f"{counted(row['chunks'], 'chunk')} per transfer"
    cut = f"{size_label(row['chunk_bytes'])} chunks" if row["chunk_bytes"] else count
    return f"{row['forwarding']}, {cut}, {row['engine']} engine "


def curves_of(rows: Sequence[Row]) -> Curves:
    """Times by algorithm; the best of several rows of one algorithm and size."""
    best: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["size_bytes"] > 0 and row["time_s"] > 0:
            own = best.setdefault(row["algorithm"], {})
            own[row["size_bytes"]] = min(row["time_s"], own.get(row["size_bytes"], row["time_s"]))
    return {name: sorted(points.items()) for name, points in best.items()}


def sizes_of(curves: Curves) -> list[int]:
    return sorted({size for points in curves.values() for size, _ in points})


def gains(curves: Curves) -> list[tuple[int, float, str]]:
    """Size, gain and name of the fastest: how many percent longer the second takes."""
    found = []
    for size in sizes_of(curves):
        times = sorted((dict(points)[size], name) for name, points in curves.items() if size in dict(points))
        if len(times) > 1:
            found.append((size, 100 * (times[1][0] / times[0][0] - 1), times[0][1]))
    return found


def draw_goodput(axes: Axes, curves: Curves, most: int = 13) -> None:
    """Goodput, 8 x size / time, in Gb/s; at most so many sizes are labeled."""
    lines = lines_of(curves)
    for name, points in curves.items():
        sizes = [size for size, _ in points]
        axes.plot(sizes, [8e-9 * size / time_s for size, time_s in points], label=name, **lines[name].style())
    sizes_axis(axes, sizes_of(curves), most=most)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("goodput (Gb/s)")
    axes.set_xlabel("size of the array")


def draw_runtime(axes: Axes, curves: Curves, sizes_bytes: Sequence[int]) -> None:
    """Runtime at some sizes, in microseconds, on a logarithmic axis if algorithms differ widely."""
    lines = lines_of(curves)
    shown = [time_s for points in curves.values() for size, time_s in points if size in sizes_bytes]
    for name, points in curves.items():
        some = [(size, 1e6 * time_s) for size, time_s in points if size in sizes_bytes]
        axes.plot([size for size, _ in some], [time_us for _, time_us in some], **lines[name].style())
    sizes_axis(axes, sizes_bytes, most=6)
    if shown and max(shown) > 5 * min(shown):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.set_title("runtime of small arrays" if max(sizes_bytes, default=0) <= SMALL_BYTES else "runtime")
    axes.set_ylabel("time (µs)")


def draw_gain(axes: Axes, curves: Curves) -> None:
    """By how much the fastest beats the second, each bar in the color of the fastest."""
    found, lines = gains(curves), lines_of(curves)
    sizes = [size for size, _, _ in found]
    places = range(len(found))
    axes.bar(places, [gain for _, gain, _ in found], color=[lines[name].color for _, _, name in found], width=0.72)
    every = max(1, -(-len(sizes) // 7))
    axes.set_xticks(list(places)[::every], [size_label(size) for size in sizes[::every]], rotation=35, ha="right",
                    rotation_mode="anchor")
    axes.grid(visible=False, axis="x")
    axes.set_title("lead of the fastest")
    axes.set_ylabel("over the second (%)")
