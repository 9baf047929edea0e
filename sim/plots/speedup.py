"""How much faster than one algorithm the others are, by size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.plots.compare import curves_of
from sim.plots.style import WIDE, Row, figure, heading, lines_of, sizes_axis
from topologies import WeftError


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

    `rows`: of one topology and one collective.
    `baseline`: the algorithm that the others are compared with; default: the first of the rows.
    WeftError: the baseline is not among the algorithms, or is the only one.
    """
    curves = curves_of(rows)
    base = check_baseline(list(curves), baseline)
    times, lines = dict(curves[base]), lines_of(curves)
    with figure(path, width) as drawn:
        axes = drawn.add_subplot()
        for name, points in curves.items():
            shared = [(size, times[size] / time_s) for size, time_s in points if size in times]
            if name != base:
                axes.plot([size for size, _ in shared], [gain for _, gain in shared], label=name, **lines[name].style())
        axes.axhline(1, color="#444444", linewidth=0.8)
        sizes_axis(axes, list(times), most=13 if width == WIDE else 7)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"speed-up over {base}")
        axes.set_xlabel("size of the array")
        axes.legend(ncols=1 if len(curves) < 7 else 2)
        heading(drawn, rows)
