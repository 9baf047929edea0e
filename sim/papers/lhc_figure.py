"""Figures of in-network aggregation and homomorphic compression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.papers.tables import Row
from sim.plots.lines import CYCLE, OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, legend, lines_of, log_axis, sizes_axis

THRESHOLD, AROUND = 1.2218, 0.04
"""Cells per item at which decoding begins to succeed, and half of what the zoom around it shows."""

ALIKE = 0.05
"""Difference of curves that no reader sees on a logarithmic axis."""


def draw_cliff(path: Path, rows: Sequence[Row]) -> None:
    """Share of arrays that decode in full and of items lost, by cells per item: all, and around the threshold."""
    layouts = list(dict.fromkeys(row["layout"] for row in rows))
    near = [row for row in rows if abs(row["effective"] - THRESHOLD) < AROUND]
    with figure(path, WIDE, 4.3) as drawn:
        axes = drawn.subplots(2, 2, sharex="col", sharey="row")
        for (key, label), pair in zip((("full", "arrays decoded in full"), ("lost", "items lost")), axes, strict=True):
            for one, shown in zip(pair, (rows, near), strict=True):
                for at, (layout, line) in enumerate(lines_of(layouts).items()):
                    mine = [row for row in shown if row["layout"] == layout]
                    nested = {"markersize": 7.0 - 1.5 * at, "zorder": 2 + at}  # what agrees is seen
                    one.plot([row["effective"] for row in mine], [row[key] for row in mine], label=f"{layout} layout",
                             **line.style() | nested)
                one.axvline(THRESHOLD, label=f"threshold {THRESHOLD}", **REFERENCE)
                one.set_ylim(-0.03, 1.03)
            pair[0].set_ylabel(label)
        for one, title in zip(axes[0], ("all sizes of the sketch", "around the threshold"), strict=True):
            one.set_title(title)
        for one in axes[1]:
            one.set_xlabel("sketch cells per nonzero of the union")
        legend(drawn)


def draw_throughput(path: Path, rows: Sequence[Row]) -> None:
    """Speed-up by density for several numbers of workers, and the published headline."""
    counts = sorted({row["workers"] for row in rows})
    with figure(path, WIDE, 2.7) as drawn:
        axes = drawn.subplots(1, 2, sharey=True)
        for support, one in zip(("independent", "identical"), axes, strict=True):
            for at, (workers, line) in enumerate(zip(counts, OTHERS, strict=False)):
                for over, bits, dashes in (("in-network", 1, "-"), ("ring", 4, (0, (4, 2)))):
                    mine = [row for row in rows if (row["support"], row["workers"], row["over"], row["index_bits"])
                            == (support, workers, over, bits)]
                    nested = {"linestyle": dashes, "markersize": 6.5 - 1.3 * at, "linewidth": 2.0 - 0.4 * at}
                    one.plot([row["density"] for row in mine], [row["speed_up"] for row in mine],
                             **line.style() | nested | {"zorder": 2 + at},
                             label=f"{workers} workers" if dashes == "-" else None)
            one.axhline(6.33, label="published: up to 6.33", **REFERENCE)
            one.axhline(1.0, **REFERENCE | {"linestyle": "-"})
            one.set_xscale("log")
            log_axis(one)
            one.set_xlabel("share of nonzeros of one worker")
            one.set_title(f"{support} supports{_alike(row for row in rows if row['support'] == support)}")
        axes[0].set_ylabel("all-reduce speed-up")
        legend(drawn, title="solid: 1-bit index, in the network; dashed: 4-bit index, ring")


def _alike(rows: Iterable[Row]) -> str:
    """By how little numbers of workers differ, where their curves cannot be told apart."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        found.setdefault((row["over"], row["index_bits"], row["density"]), []).append(row["speed_up"])
    apart = max(max(each) / min(each) - 1 for each in found.values())
    return f": workers agree to {max(1, math.ceil(100 * apart))} %" if apart < ALIKE else ""


def draw_models(path: Path, rows: Sequence[Row]) -> None:
    """Time of an iteration of each model, over each fabric, dense and with the codec for two kinds of support."""
    kinds = list(dict.fromkeys(row["support"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    fabrics = list(dict.fromkeys(row["over"] for row in rows))
    with figure(path, WIDE, 2.8) as drawn:
        axes = drawn.subplots(1, len(fabrics), sharey=True, squeeze=False)[0]
        width = 0.8 / (len(kinds) + 1)
        for fabric, one in zip(fabrics, axes, strict=True):
            for at, kind in enumerate(["dense", *kinds]):
                found = {row["model"]: row for row in rows
                         if row["over"] == fabric and row["support"] == (kinds[0] if kind == "dense" else kind)}
                key = "iteration_dense_s" if kind == "dense" else "iteration_s"
                places = [number + (at - len(kinds) / 2) * width for number in range(len(models))]
                one.bar(places, [found[model][key] for model in models], width, color=CYCLE[at].color,
                        label="dense" if kind == "dense" else f"codec, {kind}")
            one.set_title(fabric)
            log_axis(one)
            one.set_xticks(range(len(models)), models, rotation=20)
        axes[0].set_ylabel("iteration (s)")
        legend(drawn)


def draw_sizes(path: Path, rows: Sequence[Row]) -> None:
    """Goodput by size on each fabric."""
    fabrics = list(dict.fromkeys(row["topology"] for row in rows))
    lines = lines_of(row["algorithm"] for row in rows)
    with figure(path, WIDE, 3.1) as drawn:
        axes = drawn.subplots(1, len(fabrics), squeeze=False)[0]
        for fabric, one in zip(fabrics, axes, strict=True):
            here = [row for row in rows if row["topology"] == fabric]
            for algorithm in dict.fromkeys(row["algorithm"] for row in here):
                mine = [row for row in here if row["algorithm"] == algorithm]
                one.plot([row["size_bytes"] for row in mine], [row["goodput_Gbps"] for row in mine], label=algorithm,
                         **lines[algorithm].style())
            one.set_title(fabric)
            log_axis(one)
            one.set_ylabel("goodput (Gb/s)")
            sizes_axis(one, [row["size_bytes"] for row in here], most=7)
        legend(drawn)
