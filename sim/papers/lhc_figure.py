"""Figures of in-network aggregation and homomorphic compression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.papers.tables import Row
from sim.plots.style import WIDE, figure, lines_of, sizes_axis

COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#7F7F7F", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_cliff(path: Path, rows: Sequence[Row]) -> None:
    """Share of arrays that decode in full and of items lost, by cells per item."""
    with figure(path, WIDE, 2.8) as drawn:
        axes = drawn.subplots(1, 2, sharex=True)
        for (key, label), one in zip((("full", "arrays decoded in full"), ("lost", "items lost")), axes, strict=True):
            for at, layout in enumerate(dict.fromkeys(row["layout"] for row in rows)):
                mine = [row for row in rows if row["layout"] == layout]
                one.plot([row["effective"] for row in mine], [row[key] for row in mine], color=COLORS[at],
                         marker=MARKERS[at], markersize=3.5, linewidth=1.2, label=f"{layout} layout", zorder=9 - at)
            one.axvline(1.2218, color="black", linewidth=0.7, linestyle=":")
            one.set_xlabel("sketch cells per nonzero of the union")
            one.set_ylabel(label)
            one.set_ylim(-0.03, 1.03)
        axes[0].annotate("threshold 1.2218", (1.2218, 0.5), (1.45, 0.42), fontsize=7,
                         arrowprops={"arrowstyle": "-", "linewidth": 0.5})
        axes[1].legend(frameon=False, fontsize=7)


def draw_throughput(path: Path, rows: Sequence[Row]) -> None:
    """Speed-up by density for several numbers of workers, and the published headline."""
    with figure(path, WIDE, 2.9) as drawn:
        axes = drawn.subplots(1, 2, sharey=True)
        for support, one in zip(("independent", "identical"), axes, strict=True):
            for at, workers in enumerate(sorted({row["workers"] for row in rows})):
                for over, bits, dashes in (("in-network", 1, "-"), ("ring", 4, "--")):
                    mine = [row for row in rows if (row["support"], row["workers"], row["over"], row["index_bits"])
                            == (support, workers, over, bits)]
                    one.plot([row["density"] for row in mine], [row["speed_up"] for row in mine], dashes,
                             color=COLORS[at], marker=MARKERS[at], markersize=3, linewidth=1.1,
                             label=f"{workers} workers" if dashes == "-" else None)
            one.axhline(6.33, color="black", linewidth=0.7, linestyle=":")
            one.axhline(1.0, color="black", linewidth=0.7)
            one.set_xscale("log")
            one.set_yscale("log", base=2)
            one.set_xlabel("share of nonzeros of one worker")
            one.set_title(f"{support} supports", fontsize=9)
        axes[0].set_ylabel("all-reduce speed-up")
        axes[1].text(0.001, 5.3, "published: up to 6.33", fontsize=7)
        axes[0].set_ylim(0.4, 40)
        axes[0].text(0.001, 0.45, "solid: 1-bit index, in network; dashed: 4-bit, ring", fontsize=7)
        axes[1].legend(frameon=False, fontsize=7)


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
                one.bar(places, [found[model][key] for model in models], width, color=COLORS[at],
                        label="dense" if kind == "dense" else f"codec, {kind}")
            one.set_title(fabric)
            one.set_yscale("log")
            one.set_xticks(range(len(models)), models, rotation=20)
        axes[0].set_ylabel("iteration (s)")
        axes[0].legend(frameon=False, fontsize=6.5)


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
                one.plot([row["size_bytes"] for row in mine], [row["goodput_Gbps"] for row in mine], markersize=3.5,
                         linewidth=1.1, label=algorithm, **lines[algorithm].style())
            one.set_title(fabric, fontsize=9)
            one.set_yscale("log")
            one.set_ylabel("goodput (Gb/s)")
            sizes_axis(one, [row["size_bytes"] for row in here])
            one.legend(frameon=False, fontsize=6.5, loc="lower right")
