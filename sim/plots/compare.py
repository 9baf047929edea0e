"""Figures of rows by size, NPUs or slots: goodput, runtime, lead of the fastest, speed-up, scaling, the roof."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from sim.analytic.cut_bound import Roof
from sim.plots.style import (
    REFERENCE,
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
from topologies import WeftError, from_spec
from topologies.grouped import grouped
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
    """All sizes of some curves, in bytes, ascending."""
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


def check_baseline(names: Sequence[str], baseline: str | None) -> str:
    """The algorithm that others are compared with: the baseline, or the first.

    WeftError: the baseline is not among the algorithms, or is the only one.
    """
    base = baseline or next(iter(names), "")
    if base not in names:
        raise WeftError(f"baseline {base!r} is not among the algorithms: {', '.join(names) or 'there are none'}")
    if len(names) < 2:
        raise WeftError(f"speed-up needs another algorithm beside {base}")
    return base


def draw_speedup(rows: Sequence[Row], path: Path, *, baseline: str | None = None, width: str = WIDE) -> None:
    """Draw speed-up by size.

    `rows`: of one collective; several fabrics are drawn side by side.
    `baseline`: the algorithm that the others are compared with; default: the first of the rows.
    WeftError: the baseline is not among the algorithms of a fabric, or is the only one.
    """
    fabrics = {name: curves_of(own) for name, own in by_fabric(rows).items()}
    bases = {name: check_baseline(list(curves), baseline) for name, curves in fabrics.items()}
    lines = lines_of(name for curves in fabrics.values() for name in curves)
    with figure(path, width, height_in=2.5) as drawn:
        columns = panels(drawn, len(fabrics))
        most = labels_across(drawn, len(fabrics))
        for (axes,), (fabric, curves) in zip(columns, fabrics.items(), strict=True):
            times = dict(curves[bases[fabric]])
            for name, points in curves.items():
                shared = [(size, times[size] / time_s) for size, time_s in points if size in times]
                if name != bases[fabric]:
                    axes.plot([size for size, _ in shared], [gain for _, gain in shared], label=name,
                              **lines[name].style())
            axes.axhline(1, **REFERENCE)
            sizes_axis(axes, list(times), most=most)
            axes.set_xlabel("size of the array")
            axes.set_title(fabric if len(fabrics) > 1 else "")
        columns[0][0].set_ylim(bottom=0)
        columns[0][0].set_ylabel(f"speed-up over {' or '.join(dict.fromkeys(bases.values()))}")
        heading(drawn, subject(rows))
        legend(drawn)


Points = dict[str, dict[int, Row]]
"""By algorithm and number of NPUs."""


def draw_scaling(rows: Sequence[Row], path: Path, *, size_bytes: int | None = None, width: str = WIDE) -> None:
    """Draw bandwidth and time over the number of NPUs, with the lower bound of each run (thin).

    `rows`: of several fabrics and one collective.
    `size_bytes`: default: the largest that all fabrics have.
    `width`: {"narrow", "wide"}; narrow shows the bandwidth alone.
    WeftError: fewer than two numbers of NPUs, or no such size.
    """
    size = common_size(rows) if size_bytes is None else size_bytes
    points = by_npus([row for row in rows if row["size_bytes"] == size])
    counts = sorted({npus for own in points.values() for npus in own})
    if len(counts) < 2:
        raise WeftError(f"scaling needs fabrics of several sizes: at {size_label(size)} there is {len(counts)}")
    lines = lines_of(points)
    with figure(path, width) as drawn:
        axes = list(drawn.subplots(1, 2)) if width == WIDE else [drawn.add_subplot()]
        for name, own in points.items():
            its, style = sorted(own), lines[name].style()
            thin: dict[str, Any] = REFERENCE | {"color": lines[name].color}
            axes[0].plot(its, [own[npus]["algbw_GBps"] for npus in its], label=name, **style)
            least_s = [own[npus]["lower_bound_s"] or float("nan") for npus in its]
            axes[0].plot(its, [size / one / 1e9 for one in least_s], **thin)
            if width == WIDE:
                axes[1].plot(its, [1e6 * own[npus]["time_s"] for npus in its], **style)
                axes[1].plot(its, [1e6 * own[npus]["lower_bound_s"] for npus in its], **thin)
        for one in axes:
            one.set_xscale("log", base=2)
            one.set_xticks(counts, [str(count) for count in counts], rotation=35 if len(counts) > 6 else 0)
            one.xaxis.set_minor_locator(NullLocator())
            one.set_xlabel("NPUs")
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("algbw (GB/s)")
        if width == WIDE:
            log_axis(axes[1])
            axes[1].set_ylabel("time (µs)")
        heading(drawn, f"{rows[0]['collective']} of {size_label(size)}, lower bounds dotted")
        legend(drawn)


def common_size(rows: Sequence[Row]) -> int:
    """The largest size that all fabrics have."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row["topology"], set()).add(row["size_bytes"])
    shared = set.intersection(*sizes.values()) if sizes else set()
    if not shared:
        raise WeftError(f"scaling needs a size common to all fabrics: {', '.join(sizes)} have none")
    return max(shared)


def by_npus(rows: Sequence[Row]) -> Points:
    """The fastest row of each algorithm and number of NPUs."""
    points: Points = {}
    for row in rows:
        npus = int(row["npus"]) if row.get("npus") else from_spec(row["topology"]).n_npus
        own = points.setdefault(row["algorithm"], {})
        if npus not in own or row["time_s"] < own[npus]["time_s"]:
            own[npus] = row
    return points


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


def draw_pool(rows: Sequence[Row], path: Path, *, width: str = WIDE) -> None:
    """Draw goodput over slots, a line for each rule or leaf, the closed form (thin), and the slots of a round trip.

    `rows`: of `sim.cli.pool`: one nonempty array, and several numbers of slots.
    """
    slots = sorted({int(row["slots"]) for row in rows})
    named = grouped((str(row.get("rule", row.get("leaf", "simulated"))), row)
                    for row in sorted(rows, key=lambda row: int(row["slots"])))
    lines = lines_of(named)
    with figure(path, width) as drawn:
        axes = drawn.add_subplot()
        for name, own in named.items():
            axes.plot([row["slots"] for row in own], [row["goodput_Gbps"] for row in own], label=name,
                      **lines[name].style())
        if len(named) == 1:
            own = next(iter(named.values()))
            closed = [8e-9 * row["size_bytes"] / row["closed_form_s"] for row in own]
            axes.plot([row["slots"] for row in own], closed, label="closed form", **REFERENCE)
        axes.axvline(rows[0]["slots_needed"], label="slots of one round trip", **REFERENCE | {"linestyle": (0, (4, 3))})
        axes.set_xscale("log", base=2)
        axes.set_xticks(slots, [str(count) for count in slots], rotation=35 if len(slots) > 8 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("slots of a job")
        axes.set_ylabel("goodput (Gb/s)")
        heading(drawn, f"{size_label(rows[0]['size_bytes'])}, {rows[0]['workers']} workers")
        legend(drawn)
