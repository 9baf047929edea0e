"""The timeline of an iteration: a row for the computations and one for each kind of communication of each NPU."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from sim.plots.style import CYCLE, WIDE, figure, legend, time_unit
from sim.result import Result
from sim.why.spans import Span
from topologies.units import PS_PER_S
from workloads.job import Compute

MAX_NPUS = 8
"""Limit of NPUs drawn, spread over those that were simulated."""


def draw_timeline(result: Result, path: Path) -> None:
    """Draw the operations of the simulated NPUs as bars over time."""
    rows = timeline_rows(result)
    with figure(path, WIDE, height_in=0.9 + 0.22 * max(len(rows), 1)) as drawn:
        _draw(drawn, result, rows)


def timeline_rows(result: Result) -> dict[tuple[int, str], list[Span]]:
    """Spans by (NPU, row): streams of computation first, then kinds of communication in the order they begin."""
    ranks = result.ranks
    shown = ranks if len(ranks) <= MAX_NPUS else [ranks[at * len(ranks) // MAX_NPUS] for at in range(MAX_NPUS)]
    streams: dict[tuple[int, str], list[Span]] = {}
    others: dict[tuple[int, str], list[Span]] = {}
    for span in result.spans():
        operation = result.job.operations[span.operation]
        if span.rank in shown and span.end_ps > span.start_ps:
            rows = streams if isinstance(operation.work, Compute) else others
            name = operation.work.stream if isinstance(operation.work, Compute) else operation.kind
            rows.setdefault((span.rank, name), []).append(span)
    ordered = [key for rank in shown for rows in (streams, others) for key in rows if key[0] == rank]
    return {key: (streams | others)[key] for key in ordered}


def _draw(drawn: Figure, result: Result, rows: dict[tuple[int, str], list[Span]]) -> None:
    axes = drawn.add_subplot()
    scale, unit = time_unit(result.time_s)
    kinds = list(dict.fromkeys(operation.kind for operation in result.job.operations))
    several = len(result.ranks) > 1
    for height, spans in enumerate(rows.values()):
        for kind in dict.fromkeys(result.job.operations[span.operation].kind for span in spans):
            bars = [
                (span.start_ps / PS_PER_S / scale, (span.end_ps - span.start_ps) / PS_PER_S / scale)
                for span in spans if result.job.operations[span.operation].kind == kind
            ]
            color = CYCLE[kinds.index(kind) % len(CYCLE)].color
            axes.broken_barh(bars, (height - 0.4, 0.8), facecolor=color, edgecolor="white", linewidth=0.2, label=kind)
    axes.set_yticks(range(len(rows)), [f"NPU {rank}: {name}" if several else name for rank, name in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, max(result.time_s / scale, 1e-12))
    axes.set_xlabel(f"time ({unit})")
    axes.grid(visible=False, axis="y")
    legend(drawn)
