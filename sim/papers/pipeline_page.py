"""The page of the pipeline schedules: four tables in Markdown, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sim.papers.tables import Row, md_head, md_line
from sim.plots.lines import OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend, lines_of, sizes_axis
from topologies.units import format_size

SHOWN = 6
"""Columns of sizes, about as many; the figures have all."""

WITHIN = 1.04

HEAD = """# Pipeline schedules: optimum and simulated

Source: Zhao, Krishnamurthy: Bandwidth Optimal Pipeline Schedule for Collective Communication, arXiv 2305.18461;
ForestColl, arXiv 2402.06787; for the comparison BFB (arXiv 2202.03356) and TACOS (MICRO'24). `weft paper pipeline`
computes this page. Machines have their own bandwidths and 500 ns per link; elsewhere a link has 1 GB/s and 100 ns, and
a hop takes 300 ns.
"""

OPTIMUM = """
## The optimum

All-gather: N x* from the tightest cut, exact as a fraction (1/x* in seconds for shards of 1 GB), beside what is
expected: 346.67 GB/s for two DGX A100 is printed by the authors' public code; the others follow from the cut that the
field states for them. CPU seconds of the bound and of the trees: on two shared cores, nothing remembered. All-reduce:
the bound by cuts, reduce-scatter, then all-gather, each at its optimum, and the linear program with chosen roots (up to
36 NPUs).
"""

TIMES = """
## What the algorithms make of it

Algorithm bandwidth in GB/s by size, and the share of the bound at the largest. Each is the best of 1, 8 and 64 chunks
per transfer, cut-through; pipelined trees and BFB with links that serve the lowest chunk first, the others FIFO.

![all-gather](../images/pipeline-all-gather.png)

*All-gather: `weft paper pipeline`.*

![all-reduce](../images/pipeline-all-reduce.png)

*All-reduce: `weft paper pipeline`.*
"""

SERVICE = """
## How near a run comes

Time over the exact bound, all-gather of 1 GiB along the packed trees, store-and-forward, no latency. What remains is
the filling of the pipeline: four times the chunks leave a quarter of it, and lower trees (`dgx-a100:4` takes four times
as many as it must, 8 links high instead of 20) leave less.

![service](../images/pipeline-service.png)

*Service: `weft paper pipeline`.*
"""

PLATEAU = """
Here a transfer has at most one chunk at its first link, which paces its root. Where every root offers all its chunks
at once instead, a node's own chunks are queued ahead of those that it must forward, and FIFO stays on a plateau
regardless of the number of chunks:
"""


def page(
    optimum: Sequence[Row], times: Sequence[Row], service: Sequence[Row], plateau: Sequence[Row]
) -> str:
    """The page; rows as `sim.papers.pipeline` makes them."""
    lines = [HEAD, OPTIMUM, *_optimum(optimum), TIMES, *_times(times), *_refusals(times), SERVICE,
             *_service(service), *_late(service), PLATEAU, *_plateau(plateau)]
    return "\n".join(lines) + "\n"


def _optimum(rows: Sequence[Row]) -> Iterable[str]:
    yield from md_head("fabric", "NPUs", "1/x*", "N x*, GB/s", "expected", "trees a root", "height", "in links",
                       "bound, s", "trees, s", "all-reduce by cuts", "two phases", "best roots")
    for row in rows:
        yield md_line(row["fabric"], row["npus"], row["inverse_x"], row["optimum_GBps"], row["expected_GBps"],
                      row["trees_a_root"], row["height"], row["hops"], f"{row['bound_cpu_s']:.3f}",
                      f"{row['trees_cpu_s']:.2f}", row["all_reduce_bound_GBps"], row["two_phase_GBps"],
                      row["best_roots_GBps"])


def _times(rows: Sequence[Row]) -> Iterable[str]:
    sizes = sorted({row["size_bytes"] for row in rows})
    shown = sizes[:: -(-len(sizes) // SHOWN)]
    yield from md_head("fabric", "collective", "algorithm", *map(format_size, shown),
                       f"of the bound at {format_size(sizes[-1])}")
    lines: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        if row["algbw_GBps"] is not None:
            lines.setdefault((row["fabric"], row["collective"], row["algorithm"]), {})[row["size_bytes"]] = row
    for names, line in lines.items():
        largest = f"{100 * line[sizes[-1]]['of_bound']:.1f} %"
        yield md_line(*names, *(line[size]["algbw_GBps"] for size in shown), largest)


def _refusals(rows: Sequence[Row]) -> Iterable[str]:
    """Algorithms and the fabrics that they do not take."""
    refused: dict[str, list[str]] = {}
    for row in rows:
        if row["algbw_GBps"] is None and row["fabric"] not in refused.setdefault(row["algorithm"], []):
            refused[row["algorithm"]].append(row["fabric"])
    yield ""
    yield from (f"- {name} does not take {', '.join(fabrics)}." for name, fabrics in refused.items())


def _service(rows: Sequence[Row]) -> Iterable[str]:
    counts = list(dict.fromkeys(row["chunks"] for row in rows))
    yield from md_head("fabric", *(f"{name}, {count}" for name in ("lowest first", "FIFO") for count in counts))
    for fabric in dict.fromkeys(row["fabric"] for row in rows):
        own = [row for row in rows if row["fabric"] == fabric]
        yield md_line(fabric, *(f"{row[name]:.4f}" for name in ("lowest-chunk-first", "fifo") for row in own))


def _late(rows: Sequence[Row]) -> Iterable[str]:
    """Fabrics that are not near the bound at 64 chunks, and why."""
    late = [row["fabric"] for row in rows if row["chunks"] == 64 and row["lowest-chunk-first"] > WITHIN]
    yield ""
    reason = ": the highest trees in links, each of which stores a chunk before it forwards it" if late else ""
    yield f"Above {WITHIN:.2f} at 64 chunks: {', '.join(late) if late else 'none'}{reason}."


def _plateau(rows: Sequence[Row]) -> Iterable[str]:
    counts = list(dict.fromkeys(row["chunks"] for row in rows))
    yield from md_head("fabric", *(f"FIFO, {count} at once" for count in counts))
    for fabric in dict.fromkeys(row["fabric"] for row in rows):
        yield md_line(fabric, *(f"{row['fifo']:.4f}" for row in rows if row["fabric"] == fabric))


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
