"""Time over cost, designed and equal split."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import FuncFormatter, LogLocator, ScalarFormatter

from sim.optimizer.design import FrontPoint
from sim.plots.style import CYCLE, NARROW, figure, legend, time_unit


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
