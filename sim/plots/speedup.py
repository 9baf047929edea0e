"""How much faster than one algorithm the others are, by size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.plots.compare import curves_of
from sim.plots.style import (
    REFERENCE,
    WIDE,
    Row,
    by_fabric,
    figure,
    heading,
    labels_across,
    legend,
    lines_of,
    panels,
    sizes_axis,
    subject,
)
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
