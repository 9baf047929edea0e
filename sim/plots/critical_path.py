"""The critical path as a staircase over the links that it takes, and what its time was spent on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.plots.lines import CYCLE
from sim.plots.style import WIDE, figure, heading, legend, time_label, time_unit
from sim.result import Result
from sim.why.path import Why, by_kind
from sim.why.walks import Piece
from topologies import WeftError
from topologies.units import PS_PER_S, format_size

MOST_ROWS = 40
"""Most links with one row each; a longer path is drawn by the class of its pieces."""

KINDS = ("serialization", "queueing", "propagation", "hop processing", "endpoint")


def draw_critical_path(result: Result, path: Path, *, width: str = WIDE) -> None:
    """Draw where the time of a run went.

    WeftError: a run that takes no time.
    """
    why = result.why()
    if not why.makespan_ps:
        raise WeftError(f"{result.schedule.name} on {result.schedule.topology.name} takes no time: there is no path")
    names = row_names(result, why)
    shown = list(dict.fromkeys(names))
    with figure(path, width, height_in=1.35 + 0.13 * max(len(shown), 4)) as drawn:
        top, stairs = drawn.subplots(2, 1, height_ratios=(1, max(len(shown), 4) / 2.2), sharex=True)
        seconds = why.makespan_ps / PS_PER_S
        scale, unit = time_unit(seconds)
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
        legend(drawn, patches)
        size = format_size(result.schedule.size_bytes)
        head = f"critical path: {result.schedule.name}, {size} on {result.schedule.topology.name}"
        heading(drawn, f"{head}, {time_label(seconds)}")


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
    return {kind: CYCLE[at % len(CYCLE)].color for at, kind in enumerate(kinds) if kind in present}


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
