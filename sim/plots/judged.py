"""The figure of a judgment: measured and expected times over sizes, where the curve breaks, and what changed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, ScalarFormatter

from sim.optimizer.design import FrontPoint
from sim.plots.style import CYCLE, NARROW, WIDE, figure, legend, sizes_axis, time_unit

Plain = Mapping[str, Any]

_ALONE, _DARK = "#cc3311", "#444444"


def draw_judgment(
    tables: Sequence[Plain], changed: Sequence[Plain], path: Path, *, good: float, width: str = WIDE
) -> None:
    """Draw a column of panels for each table: times, and below them the share of the expected rate.

    Dashed lines stand where the library is expected to switch algorithm or protocol, dotted ones where the measured
    curve breaks; outliers and contradictions are red. With an earlier run, its share is there as well.

    `tables`, `changed`: as in the JSON of `weft judge`.
    `good`: share from which a rate is good.
    """
    with figure(path, width, 3.6) as drawn:
        grid = drawn.subplots(2, len(tables), squeeze=False, height_ratios=(1.7, 1), sharex="col")
        for (upper, lower), table in zip(grid.T, tables, strict=True):
            _times(upper, table)
            _shares(lower, table, [one for one in changed if one["source"] == table["source"]], good)
        grid[0, 0].set_ylabel("µs")
        grid[1, 0].set_ylabel("expected / measured")
        grid[0, 0].legend(fontsize=6)


def _times(axes: Axes, table: Plain) -> None:
    rows = table["rows"]
    sizes = [row["size_bytes"] for row in rows]
    axes.loglog(sizes, [row["expected_s"] * 1e6 for row in rows], label="expected", **CYCLE[0].style() | {"marker": ""})
    axes.loglog(sizes, [row["measured_s"] * 1e6 for row in rows], ".", color="#000000", label="measured")
    odd = {*table["outliers"], *table["contradictions"]}
    few = [row for row in rows if row["size_bytes"] in odd]
    if few:
        axes.loglog([row["size_bytes"] for row in few], [row["measured_s"] * 1e6 for row in few], ".", color=_ALONE,
                    label="outlier")
    for places, dashes in ((table["switches"], "--"), (table["breaks"], ":")):
        for size in places:
            axes.axvline(size * 2**0.5, linestyle=dashes, color=_DARK, linewidth=0.7)
    axes.set_title(f"{Path(table['source']).name}: {table['verdict']}", fontsize=7)


def _shares(axes: Axes, table: Plain, changed: Sequence[Plain], good: float) -> None:
    rows = table["rows"]
    sizes = [row["size_bytes"] for row in rows]
    axes.plot(sizes, [row["ratio"] for row in rows], color="#000000", label="now")
    for line, one in zip(CYCLE, changed, strict=False):
        factor = {row["size_bytes"]: row["factor"] for row in one["rows"]}
        both = [row for row in rows if row["size_bytes"] in factor]
        axes.plot([row["size_bytes"] for row in both], [row["ratio"] * factor[row["size_bytes"]] for row in both],
                  label=Path(one["baseline"]).name, **line.style() | {"marker": ""})
        axes.legend(fontsize=6)
    axes.axhline(good, color=_DARK, linewidth=0.7)
    axes.set_ylim(bottom=0)
    sizes_axis(axes, sizes)


def draw_pareto(front: Sequence[FrontPoint], path: Path) -> None:
    """Draw the front; dominated points are hollow."""
    scale, unit = time_unit(min(p.design.time_ns for p in front) / 1e9)
    with figure(path, NARROW) as drawn:
        axes = drawn.add_subplot()
        equal, designed = CYCLE[1], CYCLE[0]
        axes.plot([p.equal_cost / 1e6 for p in front], [p.design.equal_time_ns / 1e9 / scale for p in front],
                  label="equal split", **equal.style())
        axes.plot([p.cost / 1e6 for p in front], [p.design.time_ns / 1e9 / scale for p in front],
                  label="designed", **designed.style())
        beaten = [p for p in front if p.dominated]
        axes.plot([p.cost / 1e6 for p in beaten], [p.design.time_ns / 1e9 / scale for p in beaten], linestyle="none",
                  marker=designed.marker, markerfacecolor="white", markeredgecolor=designed.color)
        for point in front[:: max(1, len(front) // 4)]:
            axes.annotate(f"{point.total_GBps:.0f} GB/s", (point.cost / 1e6, point.design.time_ns / 1e9 / scale),
                          textcoords="offset points", xytext=(4, 4), fontsize=6)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.minorticks_off()
        axes.set_xlabel("network cost (M$)")
        axes.set_ylabel(f"iteration time ({unit})")
        legend(drawn)
