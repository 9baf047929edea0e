"""Swing (De Sensi et al., NSDI'24): every plotted point of five topologies beside the simulated one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from sim.papers.swing_figure import draw, draw_orders
from sim.papers.swing_forms import first_bandwidth_by_rate, forms
from sim.papers.swing_formulas import of_formulas
from sim.papers.swing_nics import in_order, with_nics
from sim.papers.swing_points import (
    QUICK,
    REASONS,
    SPECS,
    WITH_NICS,
    Comparison,
    by_curve,
    compare,
    compare_orders,
    compare_with_nics,
    error_lowest_chunk_first,
    margin,
    published,
    winners,
    worker_count,
)
from sim.papers.tables import md_head, picture, write_table
from sim.whole_file import write_text_whole
from topologies.units import format_size


def run(out: Path, quick: bool) -> None:
    """Compute all points and write `points.csv`, `swing.md` and one figure per topology to `out`."""
    topologies = [name for name in SPECS if not quick or name in QUICK]
    print(f"Swing: {', '.join(topologies)} on {worker_count()} workers", file=sys.stderr)
    comparisons = compare(topologies)
    write_table(out / "points.csv", [asdict(c) | {"holds": c.holds, "reason": c.reason} for c in comparisons])
    shapes = [name for name in WITH_NICS if name in topologies]
    of_sst, in_fifo, in_turn = compare_with_nics(shapes), *(compare_orders(shapes, one) for one in ("fifo", "rotate"))
    for name, points in (("sst", of_sst), ("fifo", in_fifo), ("in-turn", in_turn)):
        write_table(out / f"points-{name}.csv", [asdict(c) for c in points])
    report = "\n".join([
        *_report(comparisons), "", *with_nics(comparisons, of_sst), "", *_winners(of_sst), "",
        *in_order(comparisons, in_fifo, in_turn), *forms(comparisons, of_sst, first_bandwidth_by_rate()),
        *(() if quick else of_formulas()),
    ])
    write_text_whole(out / "swing.md", report + "\n")
    print(report)
    for name in topologies:
        draw(out / f"swing-{name}", name, [c for c in comparisons if c.topology == name])
    draw_orders(out / "swing-nic-order", comparisons, in_fifo, in_turn)
    print(f"tables and figures are in {out}/", file=sys.stderr)


def _report(comparisons: list[Comparison]) -> Iterator[str]:
    yield "# Swing: published and simulated"
    yield ""
    yield f"Source: {published()['source']}."
    yield ""
    yield "Error of the simulated time against the published one, by size; `!` marks a point outside its bar."
    yield "Set-up: 400 Gb/s links, 100 ns wires, 300 ns routers, 8 KiB packets and a header of 8 B per message,"
    yield "cut-through, head delivery, 0.52 us of endpoints, ties by the parity of the source's coordinate, fifo links."
    yield "Hx2Mesh is simulated with `--preset swing-hx`, the NICs and waits below: 0.1 us for a hop on a board,"
    yield "0.506 us from edge to edge through a switch, 0.214 us of endpoints, which the figures give, and recursive"
    yield "doubling with the pairs of the authors' program (`--option pairs=shifted`)."
    yield ""
    sizes = sorted({c.size_bytes for c in comparisons})
    yield from md_head("topology", "algorithm", *(format_size(s).replace(" ", "") for s in sizes))
    for (topology, algorithm), row in by_curve(comparisons).items():
        cells = {c.size_bytes: _cell(c) for c in row}
        yield f"| {topology} | {algorithm} | " + " | ".join(cells.get(s, "") for s in sizes) + " |"
    yield ""
    for topology in dict.fromkeys(c.topology for c in comparisons):
        yield from picture(f"swing-{topology}", f"all-reduce on {topology}, published and simulated", "swing")
    yield from _outside(comparisons)
    yield ""
    yield from _winners(comparisons)
    yield ""
    yield "Why points differ:"
    for key in dict.fromkeys(c.reason for c in comparisons if c.reason):
        yield f"- {key}: {REASONS[key]}."


def _cell(c: Comparison) -> str:
    if c.error != c.error:
        return "-"
    return f"{100 * c.error:+.1f} %" + ("" if c.holds else " !")


def _outside(comparisons: list[Comparison]) -> Iterator[str]:
    barred = [c for c in comparisons if c.bar is not None]
    missed = [c for c in barred if not c.holds]
    yield f"{len(barred) - len(missed)} of {len(barred)} points with a bar are within it."
    for c in missed:
        assert c.bar is not None
        yield (
            f"- {c.topology} {c.algorithm} at {format_size(c.size_bytes)}: {100 * c.error:+.1f} % (bar "
            f"{100 * c.bar:.0f} %): {REASONS[c.reason]}. With links that serve the lowest chunk first, which keeps "
            f"flows together as well, it is {100 * error_lowest_chunk_first(c):+.1f} %."
        )


def _winners(comparisons: list[Comparison]) -> Iterator[str]:
    found = winners(comparisons)
    same = [w for w in found if w[2] == w[3]]
    clear = [w for w in found if margin(comparisons, *w[:2]) > 0.01]
    yield (
        f"The fastest algorithm is the published one at {len(same)} of {len(found)} sizes, and at "
        f"{sum(w in same for w in clear)} of the {len(clear)} at which it leads by more than 1 % in the paper."
    )
    for topology, size, theirs, ours in found:
        if theirs != ours:
            pair = {c.algorithm: c for c in comparisons if (c.topology, c.size_bytes) == (topology, size)}
            lead = pair[theirs].simulated_us / pair[ours].simulated_us - 1
            gap = pair[ours].published_us / pair[theirs].published_us - 1
            reason = REASONS[pair[ours].reason or pair[theirs].reason or "fifo"]
            yield (
                f"- {topology} at {format_size(size)}: {theirs} in the paper (by {100 * gap:.1f} %), {ours} here (by "
                f"{100 * lead:.1f} %): {reason}."
            )
