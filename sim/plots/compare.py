"""The figure of a comparison: goodput by size, runtime of small arrays, and the winner's gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.plots.style import (
    WIDE,
    Line,
    Row,
    by_fabric,
    figure,
    heading,
    labels_across,
    legend,
    lines_of,
    log_axis,
    panels,
    size_label,
    sizes_axis,
    subject,
)
from topologies.units import counted

Curves = dict[str, list[tuple[int, float]]]
"""By algorithm: (size in bytes, time in seconds), ascending."""

Lines = Mapping[str, Line]

SMALL_BYTES = 32 * 1024
"""Sizes up to this have a goodput too small to see beside the others: their runtime is drawn instead."""


def draw_comparison(rows: Sequence[Row], path: Path, title: str | None = None, *, width: str = WIDE) -> None:
    """Draw a comparison: goodput by size, and the runtime of small arrays on a logarithmic axis.

    `rows`: of one collective; several fabrics are drawn side by side; sizes of 0 are left out.
    `title`: default: "all-reduce on torus:8x8".
    `width`: {"narrow", "wide"}; wide figures of one fabric have the lead of the fastest too.
    """
    fabrics = {name: curves_of(own) for name, own in by_fabric(rows).items()}
    lines = lines_of(name for curves in fabrics.values() for name in curves)
    alone = width == WIDE and len(fabrics) == 1
    with figure(path, width, height_in=3.1 if alone else 3.4) as drawn:
        if alone:
            _draw_wide(drawn, next(iter(fabrics.values())), lines)
        else:
            _draw_side_by_side(drawn, fabrics, lines)
        heading(drawn, title or subject(rows))
        legend(drawn, title=assumptions(rows))


def _draw_wide(drawn: Figure, curves: Curves, lines: Lines) -> None:
    """Goodput on the left; runtime and, of several algorithms, the lead of the fastest on the right."""
    several = len(curves) > 1
    places = drawn.add_gridspec(2, 2, width_ratios=(1.75, 1))
    goodput = drawn.add_subplot(places[:, 0])
    draw_goodput(goodput, curves, lines)
    goodput.set_ylim(bottom=0)
    runtime = drawn.add_subplot(places[0, 1] if several else places[:, 1])
    draw_runtime(runtime, curves, lines)
    log_axis(runtime, most=5)
    if several:
        draw_gain(drawn.add_subplot(places[1, 1]), curves, lines)


def _draw_side_by_side(drawn: Figure, fabrics: dict[str, Curves], lines: Lines) -> None:
    """A column for each fabric, goodput above runtime, on the same scales."""
    columns = panels(drawn, len(fabrics), 2, height_ratios=(1.3, 1))
    most = labels_across(drawn, len(fabrics))
    for (above, below), (name, curves) in zip(columns, fabrics.items(), strict=True):
        draw_goodput(above, curves, lines, most)
        draw_runtime(below, curves, lines, most)
        above.set_xlabel("")
        if len(fabrics) > 1:
            above.set_title(name)
            below.set_title("")
        for axes in (above, below):
            if not axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]  # it is one of a grid
                axes.set_ylabel("")
    columns[0][0].set_ylim(bottom=0)
    for _, below in columns:
        log_axis(below, most=6)


def assumptions(rows: Sequence[Row]) -> str:
    """What decides the times: forwarding, chunking, engine; of a library, its choice."""
    row = rows[0]
    if "limit" in row:
        return "algorithm and protocol as the library chooses"
    by_size, count = row["chunk_bytes"], row["chunks"]
    chosen = any(one.get("chunks_chosen") for one in rows)
    cut = f"{size_label(by_size)} chunks" if by_size else f"{counted(count, 'chunk')} per transfer"
    if chosen or len({(one["chunk_bytes"], one["chunks"]) for one in rows}) > 1:
        cut = "chunks as chosen for each point" if chosen else "chunks as each row says"
    return f"{row['forwarding']}, {cut}, {row['engine']} engine"


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


def draw_goodput(axes: Axes, curves: Curves, lines: Lines, most: int = 13) -> None:
    """Goodput, 8 x size / time, in Gb/s, at most so many sizes labeled; after the last panel its axis begins at 0."""
    for name, points in curves.items():
        sizes = [size for size, _ in points]
        axes.plot(sizes, [8e-9 * size / time_s for size, time_s in points], label=name, **lines[name].style())
    sizes_axis(axes, sizes_of(curves), most=most)
    axes.set_ylabel("goodput (Gb/s)")
    axes.set_xlabel("size of the array")


def draw_runtime(axes: Axes, curves: Curves, lines: Lines, most: int = 6) -> None:
    """Runtime in microseconds of small arrays, or of all if none is small; `log_axis` comes after the last panel."""
    sizes = sizes_of(curves)
    small = [size for size in sizes if size <= SMALL_BYTES] or sizes
    for name, points in curves.items():
        some = [(size, 1e6 * time_s) for size, time_s in points if size in small]
        axes.plot([size for size, _ in some], [time_us for _, time_us in some], **lines[name].style())
    sizes_axis(axes, small, most=most)
    axes.set_title("runtime of small arrays" if max(small, default=0) <= SMALL_BYTES else "runtime")
    axes.set_ylabel("time (µs)")
    axes.set_xlabel("size of the array")


def draw_gain(axes: Axes, curves: Curves, lines: Lines) -> None:
    """By how much the fastest beats the second, each bar in the color of the fastest."""
    found = gains(curves)
    sizes = [size for size, _, _ in found]
    places = range(len(found))
    axes.bar(places, [gain for _, gain, _ in found], color=[lines[name].color for _, _, name in found], width=0.72)
    every = max(1, -(-len(sizes) // 7))
    axes.set_xticks(list(places)[::every], [size_label(size) for size in sizes[::every]], rotation=35, ha="right",
                    rotation_mode="anchor")
    axes.grid(visible=False, axis="x")
    axes.set_title("lead of the fastest")
    axes.set_ylabel("over the second (%)")
