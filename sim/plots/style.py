"""How figures look: sizes for a two-column page, fonts, axes, legends; `sim.plots.lines` has the lines.

Every function that draws a figure takes its `path`, .png, .pdf or .svg, and if it comes in both widths, a `width`:

    with figure(path, width) as drawn:
        axes = drawn.add_subplot()
        axes.plot(sizes, times, label=name, **line_of(name).style())
        sizes_axis(axes, sizes)
        log_axis(axes)
        legend(drawn)
"""

import math
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
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sim.plots.lines import CYCLE as CYCLE
from sim.plots.lines import Line as Line
from sim.plots.lines import line_of as line_of
from sim.plots.lines import lines_of as lines_of
from sim.whole_file import write_whole
from topologies.grouped import grouped

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
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 0.9995 * 2**power:  # blocks of a size that some ranks do not divide are a little less
            value = size_bytes / 2**power
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def sizes_axis(axes: Any, sizes_bytes: Iterable[int], most: int = 8) -> None:
    """A logarithmic axis, base 2, labeled at `most` sizes of the sweep, well apart; more than four are slanted."""
    sizes = sorted({size for size in sizes_bytes if size > 0})
    axes.set_xscale("log", base=2)
    shown = sizes[:1]
    for size in sizes[1:]:
        if math.log2(size / shown[-1]) > 0.999 * math.log2(sizes[-1] / sizes[0]) / max(most - 1, 1):
            shown.append(size)
    slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if most > 4 else {}
    axes.set_xticks(shown, [size_label(size) for size in shown], **slant)
    axes.minorticks_off()


def log_axis(axes: Axes, *, most: int = 9, horizontal: bool = False, unit_s: float | None = None) -> None:
    """A logarithmic axis of values with at most so many labels; after its lines are drawn.

    `unit_s`: of times, whose labels have units; default: plain numbers.
    """
    axis = axes.xaxis if horizontal else axes.yaxis
    axes.set(**{"xscale" if horizontal else "yscale": "log"})
    low, high = axes.get_xlim() if horizontal else axes.get_ylim()
    axis.set_major_locator(FixedLocator(log_ticks(low, high, most)))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: number(value) if unit_s is None else time_label(value * unit_s))
    )
    axis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high: 1, 2, 5 of each decade if they are few enough, else whole decades."""
    if high < 5 * low:
        even = MaxNLocator(min(most, 5), steps=[1, 2, 5, 10]).tick_values(low, high)
        return [float(tick) for tick in even if low <= tick <= high]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 5)):
        ticks = [step * 10.0**power for power in range(first, last + 1) if power % every == 0 for step in steps]
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) <= most:
            break
    return shown


def number(value: float) -> str:
    """A number on an axis: 0.001, 2, 50000, and with a power of 10 beyond."""
    if 1e-4 <= value < 1e5:
        return f"{value:g}"
    mantissa, _, power = f"{value:.2e}".partition("e")
    times = "" if float(mantissa) == 1 else rf"{float(mantissa):g}\cdot"
    return f"${times}10^{{{int(power)}}}$"


def time_label(seconds: float) -> str:
    """A time on an axis: "20 µs", "1 ms"."""
    length, unit = time_unit(seconds * (1 + 1e-9))
    return f"{seconds / length:.4g} {unit}"


def by_fabric(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each fabric, in the order in which they come."""
    return grouped((row["topology"], row) for row in rows)


def labels_across(drawn: Figure, panels: int) -> int:
    """Sizes that an axis of one of several panels side by side has room for."""
    return max(3, round(1.85 * drawn.get_figwidth() / min(panels, 4)))


def panels(drawn: Figure, count: int, rows: int = 1, **options: Any) -> list[list[Axes]]:
    """Axes for `count` fabrics side by side, as many columns as the width has room for; per fabric, its `rows` axes.

    Each of its rows has one vertical axis for all fabrics: limits are set once, after everything is drawn.
    """
    across = min(count, 4 if drawn.get_figwidth() > 5 else 2)
    down = -(-count // across)
    if "height_ratios" in options:
        options["height_ratios"] = [*options["height_ratios"]] * down
    drawn.set_figheight(drawn.get_figheight() * down)
    grid = drawn.subplots(rows * down, across, squeeze=False, sharey="row", **options)
    for at in range(rows, rows * down):
        grid[at, 0].sharey(grid[at % rows, 0])
    found = [[grid[rows * (at // across) + row, at % across] for row in range(rows)] for at in range(across * down)]
    for unused in found[count:]:
        for axes in unused:
            axes.remove()
    return found[:count]


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
        made = drawn.legend(handles=handles, loc="outside lower center", ncols=balanced, title=title,
                            title_fontproperties={"size": 6})
        box = made.get_window_extent()
        if box.width <= drawn.bbox.width or columns == 1:
            drawn.set_figheight(drawn.get_figheight() + box.height / drawn.dpi)
            return
        made.remove()


def heading(drawn: Figure, text: str) -> None:
    """A title above the panels: "all-reduce on torus:8x8"; smaller if it is too long for the width."""
    points = 9.0 if drawn.get_figwidth() > 5 else 8.0
    made = drawn.suptitle(text, fontsize=points, weight="bold")
    while made.get_window_extent().width > 0.98 * drawn.bbox.width and points > 5:
        points -= 0.25
        made.set_fontsize(points)


def subject(rows: Sequence[Row]) -> str:
    """"all-reduce on torus:8x8", or only the collective where the panels name the fabrics."""
    fabrics = by_fabric(rows)
    return f"{rows[0]['collective']} on {next(iter(fabrics))}" if len(fabrics) == 1 else str(rows[0]["collective"])
