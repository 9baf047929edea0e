"""The critical path as a staircase over the links that it takes; what time was spent on, and predictions beside it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sim.plots import style
from sim.result import Result
from sim.why.path import Piece, Why, by_kind
from topologies import WeftError
from topologies.units import PS_PER_S, format_size

MOST_ROWS = 40
"""Most links with one row each; a longer path is drawn by the class of its pieces."""

KINDS = ("serialization", "queueing", "propagation", "hop processing", "endpoint")


def draw_critical_path(result: Result, path: Path, *, width: str = style.WIDE) -> None:
    """Draw where the time of a run went.

    WeftError: a run that takes no time.
    """
    why = result.why()
    if not why.makespan_ps:
        raise WeftError(f"{result.schedule.name} on {result.schedule.topology.name} takes no time: there is no path")
    names = row_names(result, why)
    shown = list(dict.fromkeys(names))
    with style.figure(path, width, height_in=1.35 + 0.13 * max(len(shown), 4)) as drawn:
        top, stairs = drawn.subplots(2, 1, height_ratios=(1, max(len(shown), 4) / 2.2), sharex=True)
        seconds = why.makespan_ps / PS_PER_S
        scale, unit = style.time_unit(seconds)
        colors = colors_of(piece.name for piece in why.pieces)
        _draw_sum(top, why, colors, scale)
        for piece, name in zip(why.pieces, names, strict=True):
            begin, length = _span(piece, scale)
            stairs.broken_barh([(begin, length)], (shown.index(name) - 0.4, 0.8), facecolor=colors[kind_of(piece.name)],
                               linewidth=0)
        stairs.set_yticks(range(len(shown)), shown, fontsize=5.5)
        stairs.invert_yaxis()
        stairs.set_xlim(0, seconds / scale)
        stairs.set_xlabel(f"time ({unit})")
        stairs.grid(visible=False, axis="y")
        patches = [Patch(color=color, label=kind) for kind, color in colors.items()]
        style.legend(drawn, patches)
        size = format_size(result.schedule.size_bytes)
        head = f"critical path: {result.schedule.name}, {size} on {result.schedule.topology.name}"
        style.heading(drawn, f"{head}, {style.time_label(seconds)}")


def row_names(result: Result, why: Why) -> list[str]:
    """Where each piece was spent: its link or, on long paths, its class."""
    topology = result.schedule.topology
    link_of = result.lowered.server_link

    def place(piece: Piece) -> str:
        link = int(link_of[piece.server]) if piece.server >= 0 else -1
        return topology.link_name(link) if link >= 0 else "waiting"

    links = [place(piece) for piece in why.pieces]
    return links if len(set(links)) <= MOST_ROWS else [piece.name for piece in why.pieces]


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """A color for every kind of piece, the common ones the same in all figures."""
    present = list(dict.fromkeys(map(kind_of, names)))
    kinds = dict.fromkeys([*KINDS, *present])
    return {kind: style.CYCLE[at % len(style.CYCLE)].color for at, kind in enumerate(kinds) if kind in present}


def kind_of(name: str) -> str:
    """"serialization, dimension 0" is serialization."""
    return name.partition(",")[0]


def _draw_sum(axes: Axes, why: Why, colors: dict[str, str], scale: float) -> None:
    """One bar: the parts, largest first; they sum to the makespan."""
    begin = 0.0
    for kind, part_ps in sorted(by_kind(why.parts).items(), key=lambda item: -item[1]):
        length = part_ps / PS_PER_S / scale
        axes.broken_barh([(begin, length)], (-0.4, 0.8), facecolor=colors[kind], linewidth=0)
        share = part_ps / why.makespan_ps
        if share > 0.08:
            axes.text(begin + length / 2, 0, f"{share:.0%}", ha="center", va="center", fontsize=6.5, color="white")
        begin += length
    axes.set_yticks([0], ["sum"])
    axes.set_ylim(-0.6, 0.6)
    axes.grid(visible=False)


def _span(piece: Piece, scale: float) -> tuple[float, float]:
    return piece.start_ps / PS_PER_S / scale, (piece.end_ps - piece.start_ps) / PS_PER_S / scale


def draw_validation(rows: Sequence[style.Row], path: Path, *, width: str = style.WIDE) -> None:
    """Draw the rows of `weft validate`."""
    with style.figure(path, width, height_in=2.9 if width == style.WIDE else 5.2) as drawn:
        if width == style.WIDE:
            left, right = drawn.subplots(1, 2, width_ratios=(1, 1.25))
        else:
            left, right = drawn.subplots(2, 1)
        draw_ratios(left, rows)
        draw_parts(right, rows)
        style.heading(drawn, style.subject(rows))
        roles = [Line2D([], [], color="#555555", marker="o", label="over the estimate"),
                 Line2D([], [], color="#555555", marker="o", markerfacecolor="white", label="over the lower bound"),
                 Line2D([], [], linestyle="none", label=" ")]
        named = [handle for axes in (left, right) for handle in axes.get_legend_handles_labels()[0]]
        style.legend(drawn, [*roles, *named])


def draw_ratios(axes: Axes, rows: Sequence[style.Row]) -> None:
    """Simulated time over the estimate (filled) and over the lower bound (hollow), by size."""
    for name, line in style.lines_of(row["algorithm"] for row in rows).items():
        own = [row for row in rows if row["algorithm"] == name and row["size_bytes"] > 0]
        sizes = [row["size_bytes"] for row in own]
        solid, hollow = line._replace(hollow=False).style(), line._replace(hollow=True).style()
        axes.plot(sizes, [row["time_s"] / row["lower_bound_s"] for row in own], **hollow | {"linewidth": 0.7})
        estimates = [row.get("estimate_s", np.nan) for row in own]  # of steps over planes there is none
        axes.plot(sizes, np.divide([row["time_s"] for row in own], estimates), label=name, **solid)
    axes.axhline(1, **style.REFERENCE)
    style.sizes_axis(axes, [row["size_bytes"] for row in rows], most=8)
    axes.set_title("simulated over predicted")


def draw_parts(axes: Axes, rows: Sequence[style.Row]) -> None:
    """Shares of the critical path, one bar per row."""
    places = np.arange(len(rows))
    bottom = np.zeros(len(rows))
    parts = [(row, by_kind(row["why"]["parts_ps"])) for row in rows]
    for line, name in zip(style.CYCLE, KINDS, strict=False):
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


def _label(row: style.Row, rows: Sequence[style.Row]) -> str:
    alone = len({one["algorithm"] for one in rows}) == 1
    size = style.size_label(row["size_bytes"])
    return size if alone else f"{row['algorithm']}, {size}"
