"""LIBRA (Won et al., ISPASS'24): the published splits, and what a design gains over equal bandwidths, simulated too."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from sim.papers.libra_cases import A100_SCALE, WORKLOADS, GainPoint, compare_splits, compute_points
from sim.papers.libra_figure import draw
from sim.papers.tables import md_head, md_line, picture, write_table
from sim.whole_file import write_text_whole

BUDGETS_GBPS = (100, 200, 300, 400, 500, 700, 1000)
CHUNKS = 64


def run(out: Path, quick: bool) -> None:
    """Compute all points and write `splits.csv`, `points.csv`, `libra.md` and the figures to `out`."""
    networks = ("4D-4K",) if quick else ("3D-4K", "4D-4K")
    budgets = (100, 300, 1000) if quick else BUDGETS_GBPS
    print(f"LIBRA: {', '.join(networks)} at {len(budgets)} budgets", file=sys.stderr)
    splits = compare_splits()
    chunks, evaluations = (16, 30) if quick else (CHUNKS, 60)
    points = list(compute_points(networks, WORKLOADS, budgets, chunks, evaluations))
    write_table(out / "splits.csv", splits)
    write_table(out / "points.csv", [asdict(point) for point in points])
    report = "\n".join([*_split_table(splits), "", *_point_table(points)])
    write_text_whole(out / "libra.md", "\n".join([*_heading(chunks, evaluations), report]) + "\n")
    print(report)
    draw(out, points)
    print(f"tables and figures are in {out}/", file=sys.stderr)


def _heading(chunks: int, evaluations: int) -> list[str]:
    return [
        "# LIBRA (Won et al., ISPASS'24)",
        "",
        "Made by `weft paper libra`. The workloads are made from hyper-parameters and equal the published files",
        "(compute up to truncation to integer nanoseconds). Simulated with hierarchical collectives of",
        f"{chunks} pipeline chunks, one active chunk per dimension, links of 1 ns; at most {evaluations} choices of "
        "bandwidths per point.",
        "",
        "GPT-3 on 4D-4K is where formula and simulation differ: its data-parallel group takes 2 of the 8 NPUs of the",
        "fully connected dimension, hence one link of seven, but the formula grants it the full bandwidth.",
        "",
        *picture("libra-speedup", "speed-up", "libra"),
        *picture("libra-perf-per-cost", "perf per cost", "libra"),
    ]


def _split_table(rows: list[dict[str, object]]) -> list[str]:
    lines = [
        "Splits of 100 GB/s published in 2022 (compute as shipped, forward collectives twice), and the certified",
        "optimum. Where two dimensions have the same price, time x cost leaves their split free.",
        "",
        *md_head("network", "workload", "least", "published (GB/s)", "optimum (GB/s)", "published over optimum",
                 numbers=1),
    ]
    for row in rows:
        names = (row[key] for key in ("network", "workload", "goal", "published", "ours"))
        lines.append(md_line(*names, f"{row['published_over_optimum']:.6f}"))
    return lines


def _point_table(points: list[GainPoint]) -> list[str]:
    lines = [
        f"Gains over the equal split, compute x {A100_SCALE} (A100): by LIBRA's formulas, the same split simulated, "
        "and the split optimized for the simulation. Prices and counting of 2024.",
        "",
        *md_head("network", "workload", "least", "GB/s", "speed-up: formula", "simulated", "optimized",
                 "perf per cost: formula", "simulated", "optimized", numbers=7),
    ]
    for p in points:
        numbers = (p.analytic_speedup, p.replayed_speedup, p.simulated_speedup, p.analytic_gain, p.replayed_gain,
                   p.simulated_gain)
        shown = (f"{number:.3f}" for number in numbers)
        lines.append(md_line(p.network, p.workload, p.goal, f"{p.budget_GBps:.0f}", *shown))
    return lines
