"""Bandwidth-optimal pipeline schedules (arXiv 2305.18461, ForestColl): optimum, generation time, simulated bandwidth.

Leaves three tables and their figures: the optimum of each fabric beside the published one, what every algorithm makes
of it at each size, and how the time over the bound falls with the number of chunks under either service discipline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib.pyplot as plt

from collectives import algorithm, build
from collectives.pack_forest import gather_forest
from collectives.transitive_trees import root_trees
from sim.analytic.cut_bound import cut_bound
from sim.simulate import simulate
from sim.tables import aligned, to_csv
from topologies import Topology, WeftError, from_spec
from topologies.units import format_size

HELP = "pipelined trees at the optimum of any fabric (arXiv 2305.18461, ForestColl), against rings, trees and others"

Row = dict[str, Any]

LATENCY, HOP_LATENCY = "100ns", "300ns"
GPU_LATENCY, GPU_HOP_LATENCY = "500ns", "0s"

FABRICS: dict[str, tuple[str | None, Fraction]] = {
    "dgx-a100:2": (None, Fraction(1040, 3)),
    "dgx-a100:4": (None, Fraction(8 * 4 * 25, 3)),
    "mi250:1": (None, Fraction(2400, 7)),
    "mi250:2": (None, Fraction(32 * 166, 15)),
    "dgx1:1": (None, Fraction(8 * 150, 7)),
    "torus:4x4": ("1GB/s", Fraction(64, 15)),
    "torus:8x8": ("1GB/s", Fraction(256, 63)),
    "torus:4x4x4": ("1GB/s", Fraction(128, 21)),
    "hypercube:4": ("1GB/s", Fraction(64, 15)),
    "random-regular:16x4x1": ("1GB/s", Fraction(64, 15)),
    "random-regular:32x4x7": ("1GB/s", Fraction(128, 31)),
    "dragonfly:9x4": ("1GB/s", Fraction(36, 7)),
}
"""Spec, bandwidth of a link where the machine does not say it, and the optimum N x* in GB/s.

Published: 346.67 for two DGX A100 (the authors' public code prints it). The others follow from the cut that each
paper of the field states for them, (N - 1) shards into the NPU of the least ingress or one box to the others.
"""

FAT_TREES = ("leaf-spine:4x4x4", "leaf-spine:4x4", "fat-tree:4")
"""Tried in this order; the first that is registered stands for the fat trees."""

QUICK = ("dgx-a100:2", "mi250:1", "torus:4x4", "random-regular:16x4x1")

ALGORITHMS = ("pipelined", "bfb", "tacos", "nccl-rings", "ring", "swing", "double-binary-tree")

KINDS = ("all-gather", "all-reduce")
SIZES = tuple(2**power for power in range(10, 31, 2))
QUICK_SIZES = (2**12, 2**20, 2**28)

CHUNKS = (4, 16, 64, 256)
LARGE = 2**30


def run(out: Path, quick: bool) -> None:
    """Compute everything, print the tables and leave them with the figures in `out`."""
    specs = [*(QUICK if quick else FABRICS), *_fat_tree(quick)]
    optimum = [_optimum_row(spec) for spec in specs]
    _leave(out / "optimum", optimum, ("fabric", "NPUs", "optimum_GBps", "expected_GBps", "inverse_x", "trees_a_root",
                                      "height", "bound_wall_s", "trees_wall_s"))
    times = [row for spec in specs for row in _time_rows(spec, QUICK_SIZES if quick else SIZES)]
    (out / "algbw.csv").write_text(to_csv(times), encoding="utf-8")
    _print_times(times)
    service = [row for spec in specs for row in _service_rows(spec, CHUNKS[:3] if quick else CHUNKS)]
    _leave(out / "service", service, ("fabric", "chunks", "fifo", "lowest_chunk_first"))
    for spec in specs:
        _draw_sizes(out, spec, [row for row in times if row["fabric"] == spec])
    _draw_service(out, service)


@lru_cache(maxsize=32)
def _fabric(spec: str) -> Topology:
    bandwidth = FABRICS.get(spec, ("1GB/s", None))[0]
    machine = bandwidth is None
    return from_spec(
        spec, bandwidth, GPU_LATENCY if machine else LATENCY, GPU_HOP_LATENCY if machine else HOP_LATENCY
    )


def _fat_tree(quick: bool) -> list[str]:
    for spec in () if quick else FAT_TREES:
        try:
            _fabric(spec)
        except WeftError:
            continue
        return [spec]
    return []


def _optimum_row(spec: str) -> Row:
    topology = _fabric(spec)
    started = perf_counter()
    bound = cut_bound(topology, "all-gather")
    bounded = perf_counter()
    trees = root_trees(topology)
    if trees is not None:
        k, height = trees.k, int(trees.depth.max())
    else:
        forest = gather_forest(topology)
        k, height = forest.blocks_of_root(0), forest.height
    expected = FABRICS[spec][1] if spec in FABRICS else None
    rate = 1 / bound.s_per_byte / 10**9
    return {
        "fabric": spec, "NPUs": topology.n_npus, "optimum_GBps": float(rate),
        "expected_GBps": None if expected is None else float(expected),
        "inverse_x": str(bound.s_per_byte * topology.n_npus * 10**9), "trees_a_root": k, "height": height,
        "bound_wall_s": bounded - started, "trees_wall_s": perf_counter() - bounded,
    }


def _time_rows(spec: str, sizes: Sequence[int]) -> Iterator[Row]:
    """Each algorithm at each size, with the better of a few chunk counts; what cannot run says why."""
    topology = _fabric(spec)
    for kind in KINDS:
        bound = cut_bound(topology, kind)
        for name in ALGORITHMS:
            if kind not in algorithm(name).functions:
                continue
            for size in sizes:
                row: Row = {"fabric": spec, "collective": kind, "algorithm": name, "size": format_size(size),
                            "size_bytes": size}
                try:
                    time_s, note = _best_time_s(topology, name, kind, size)
                except WeftError as refusal:
                    yield row | {"algbw_GBps": None, "of_bound": None, "note": str(refusal)}
                    break
                least_s = float(bound.s_per_byte * size)
                yield row | {"algbw_GBps": size / time_s / 1e9, "of_bound": least_s / time_s, "time_s": time_s,
                             "note": note}


def _best_time_s(topology: Topology, name: str, kind: str, size: int) -> tuple[float, str]:
    """Time, and the chunks and discipline that reach it."""
    options: dict[str, Any] = {"form": "two-phase"} if (name, kind) == ("pipelined", "all-reduce") else {}
    schedule = build(name, kind, topology, size, **options)
    found = []
    for discipline in ("lowest-chunk-first", "priority") if name in ("pipelined", "bfb") else ("fifo",):
        for chunks in (1, 8, 64):
            result = simulate(schedule, chunks=chunks, discipline=discipline)
            found.append((result.time_s, f"{chunks} chunks, {discipline}"))
    return min(found)


def _service_rows(spec: str, chunks: Sequence[int]) -> Iterator[Row]:
    """Time over the exact bound of a large all-gather, store-and-forward and without latency, as in the reference."""
    topology = _fabric(spec)
    still = topology.with_links(latency_ps=topology.latency_ps * 0)
    schedule = build("pipelined", "all-gather", still, LARGE)
    least_s = float(cut_bound(still, "all-gather").s_per_byte * LARGE)
    for count in chunks:
        over = {
            discipline: simulate(
                schedule, chunks=count, discipline=discipline, forwarding="store-and-forward"
            ).time_s / least_s
            for discipline in ("fifo", "lowest-chunk-first")
        }
        yield {"fabric": spec, "chunks": count, "fifo": over["fifo"], "lowest_chunk_first": over["lowest-chunk-first"]}


def _leave(path: Path, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a table, and leave it as CSV."""
    path.with_suffix(".csv").write_text(to_csv(rows), encoding="utf-8")
    print(f"# {path.name}")
    print(aligned([list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)], left=1))


def _print_times(rows: Sequence[Row]) -> None:
    """Algorithm bandwidth in GB/s, one line an algorithm and one column a size; what cannot run says why."""
    sizes = sorted({row["size_bytes"] for row in rows})
    lines: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        lines.setdefault((row["fabric"], row["collective"], row["algorithm"]), {})[row["size_bytes"]] = row
    table = [["fabric", "collective", "algorithm", *map(format_size, sizes), "of bound"]]
    for names, line in lines.items():
        cells = [_cell(line[size].get("algbw_GBps")) if size in line else "" for size in sizes]
        table.append([*names, *cells, _cell(line[max(line)].get("of_bound"))])
    print("# algbw (GB/s)")
    print(aligned(table, left=1))
    for names, line in lines.items():
        refused = line[min(line)]
        if refused["algbw_GBps"] is None:
            print(f"# {' '.join(names)}: {refused['note']}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw_sizes(out: Path, spec: str, rows: Sequence[Row]) -> None:
    """Algorithm bandwidth by size, one panel a collective, with the optimum."""
    figure, panels = plt.subplots(1, len(KINDS), figsize=(9, 3.6), layout="constrained")
    for axes, kind in zip(panels, KINDS, strict=True):
        for name in ALGORITHMS:
            curve = [row for row in rows if (row["collective"], row["algorithm"]) == (kind, name) and row["algbw_GBps"]]
            if curve:
                sizes, rates = ([row[column] for row in curve] for column in ("size_bytes", "algbw_GBps"))
                axes.plot(sizes, rates, "o-", ms=3, label=name)
        rate = float(1 / cut_bound(_fabric(spec), kind).s_per_byte) / 1e9
        axes.axhline(rate, color="black", ls="--", lw=1, label="bound")
        axes.set(xscale="log", xlabel="size (bytes)", ylabel="algbw (GB/s)", title=f"{kind} on {spec}")
        axes.set_xscale("log", base=2)
    panels[0].legend(fontsize=7)
    figure.savefig(out / f"{spec.replace(':', '-')}.png", dpi=150)
    plt.close(figure)


def _draw_service(out: Path, rows: Sequence[Row]) -> None:
    """Time over the bound by the number of chunks, under both disciplines."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axes, discipline in zip(panels, ("fifo", "lowest_chunk_first"), strict=True):
        for spec in dict.fromkeys(row["fabric"] for row in rows):
            curve = [row for row in rows if row["fabric"] == spec]
            axes.plot([row["chunks"] for row in curve], [row[discipline] for row in curve], "o-", ms=3, label=spec)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="chunks a transfer", title=discipline.replace("_", " "))
    panels[0].set_ylabel("time over the bound")
    panels[1].legend(fontsize=7)
    figure.savefig(out / "service.png", dpi=150)
    plt.close(figure)
