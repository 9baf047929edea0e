"""How figures look: sizes for a two-column page, fonts, axes, legends; `sim.plots.lines` has the lines.

Every function that draws a figure takes its `path`, .png, .pdf or .svg, and if it comes in both widths, a `width`:

    with figure(path, width) as drawn:
        axes = drawn.add_subplot()
        axes.plot(sizes, times, label=name, **line_of(name).style())
        sizes_axis(axes, sizes)
        log_axis(axes)
        legend(drawn)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sim.plots.lines import CYCLE as CYCLE
from sim.plots.lines import Line as Line
from sim.plots.lines import line_of as line_of
from sim.plots.lines import lines_of as lines_of
from sim.whole_file import write_whole

_HERE = Path(__file__).parent

Row = Mapping[str, Any]

NARROW, WIDE = "narrow", "wide"
"""3.3 in: one column of a two-column page; 7 in: both."""

REFERENCE: dict[str, Any] = {"color": "#444444", "linewidth": 0.7, "linestyle": (0, (1, 1.5)), "zorder": 1}
"""Arguments for `Axes.plot` and `axhline`: a bound, a threshold, a published headline."""

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@contextmanager
def figure(path: Path, width: str = WIDE, height_in: float | None = None) -> Iterator[Figure]:
    """An empty figure in the style of the package, to draw on inside the `with`, which saves it at its end.

    Without a date, so that the same figure is the same file.

    `height_in`: instead of the style's own.
    """
    with matplotlib.style.context([str(_HERE / "paper.mplstyle"), str(_HERE / f"{width}.mplstyle")]):
        drawn = Figure()
        FigureCanvasAgg(drawn)
        if height_in is not None:
            drawn.set_figheight(height_in)
        yield drawn
        dated = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=UserWarning)  # a glyph that the font lacks
            write_whole(path, lambda file: drawn.savefig(file, metadata=dated.get(path.suffix, {})))


def size_label(size_bytes: float) -> str:
    """A size on an axis, base 2: 32 B, 8 KiB, 512 MiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def sizes_axis(axes: Any, sizes_bytes: Iterable[int], most: int = 8) -> None:
    """A logarithmic axis, base 2, labeled at sizes of the sweep."""
    sizes = sorted({size for size in sizes_bytes if size > 0})
    axes.set_xscale("log", base=2)
    every = max(1, -(-len(sizes) // most))
    axes.set_xticks(sizes[::every], [size_label(size) for size in sizes[::every]], rotation=35, ha="right",
                    rotation_mode="anchor")
    axes.minorticks_off()


def log_axis(axes: Axes) -> None:
    """A logarithmic axis of values, base 10, with plain numbers; 1, 2 and 5 are labeled where space permits."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is shown: its length in seconds, and its name."""
    return next((one for one in TIME_UNITS if seconds >= one[0]), TIME_UNITS[-1])


def legend(drawn: Figure, handles: Sequence[Artist] | None = None, *, title: str | None = None) -> None:
    """One legend below the panels, which it never covers; the figure grows by its height.

    `handles`: default: whatever has a label, once.
    """
    if handles is None:
        labeled: dict[str, Artist] = {}
        for axes in drawn.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labeled.setdefault(label, handle)
        handles = list(labeled.values())
    for columns in range(len(handles), 0, -1):
        balanced = -(-len(handles) // -(-len(handles) // columns))
        made = drawn.legend(handles=handles, loc="outside lower center", ncols=balanced, title=title)
        box = made.get_window_extent()
        if box.width <= drawn.bbox.width or columns == 1:
            drawn.set_figheight(drawn.get_figheight() + box.height / drawn.dpi)
            return
        made.remove()


def heading(drawn: Figure, rows: Sequence[Row]) -> None:
    """"all-reduce on torus:8x8" above a figure."""
    size = 9.0 if drawn.get_figwidth() > 5 else 8.0
    drawn.suptitle(f"{rows[0]['collective']} on {rows[0]['topology']}", fontsize=size, weight="bold")
