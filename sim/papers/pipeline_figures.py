"""Figures of the pipeline schedules: the share of the bound that algorithms reach, by size and by chunks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.plots.lines import OTHERS
from sim.plots.style import REFERENCE, WIDE, Row, figure, heading, legend, lines_of, sizes_axis

COLUMNS = 3


def draw_sizes(path: Path, kind: str, rows: Sequence[Row]) -> None:
    """Share of the bound that every algorithm reaches, by size, one panel per fabric.

    `kind`: collective of the rows, for the title.
    `rows`: "fabric", "algorithm", "size_bytes" and "of_bound"; None where an algorithm does not run.
    """
    fabrics = list(dict.fromkeys(row["fabric"] for row in rows))
    lines = lines_of(row["algorithm"] for row in rows)
    height = -(-len(fabrics) // COLUMNS)
    with figure(path, WIDE, 0.4 + 1.4 * height) as drawn:
        panels = drawn.subplots(height, COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, fabric in zip(panels, fabrics, strict=False):
            for name, line in lines.items():
                own = [row for row in rows if (row["fabric"], row["algorithm"]) == (fabric, name) and row["of_bound"]]
                axes.plot([row["size_bytes"] for row in own], [100 * row["of_bound"] for row in own], label=name,
                          **line.style())
            axes.axhline(100, **REFERENCE)
            axes.set_title(fabric)
        for axes in panels[len(fabrics):]:
            axes.set_axis_off()
        for axes in panels[: len(fabrics)]:
            sizes_axis(axes, (row["size_bytes"] for row in rows), most=4)
            axes.tick_params(labelbottom=True)
        drawn.supylabel("share of the bound (%)", fontsize=8)
        heading(drawn, f"{kind}, best of 1, 8 and 64 chunks")
        legend(drawn)


def draw_service(path: Path, service: Sequence[Row], plateau: Sequence[Row]) -> None:
    """Time over the bound by chunks: both disciplines, and the plateau where all chunks are offered at once.

    `service`: "fabric", "chunks", "fifo" and "lowest-chunk-first".
    `plateau`: "fabric", "chunks" and "fifo".
    """
    shown = list(dict.fromkeys(row["fabric"] for row in plateau))
    series = ((service, "lowest-chunk-first", "lowest chunk first"), (service, "fifo", "FIFO, paced at the root"),
              (plateau, "fifo", "FIFO, all chunks offered at once"))
    with figure(path, WIDE, 2.1) as drawn:
        panels = drawn.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, fabric in zip(panels, shown, strict=True):
            for line, (rows, column, label) in zip(OTHERS, series, strict=False):
                own = [row for row in rows if row["fabric"] == fabric]
                axes.plot([row["chunks"] for row in own], [row[column] for row in own], label=label, **line.style())
            axes.axhline(1, **REFERENCE)
            counts = sorted({row["chunks"] for row in service})
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.set_title(fabric)
            axes.set_xlabel("chunks per tree")
        panels[0].set_ylabel("time over the bound")
        legend(drawn)
