"""Figures of in-network aggregation and homomorphic compression."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.papers.tables import Row
from sim.plots.style import CYCLE, REFERENCE, WIDE, figure, legend, lines_of, log_axis, sizes_axis


def draw_cliff(path: Path, rows: Sequence[Row]) -> None:
    """Share of arrays that decode in full and of items lost, by cells per item."""
    layouts = list(dict.fromkeys(row["layout"] for row in rows))
    with figure(path, WIDE, 2.4) as drawn:
        axes = drawn.subplots(1, 2, sharex=True)
        for (key, label), one in zip((("full", "arrays decoded in full"), ("lost", "items lost")), axes, strict=True):
            for at, (layout, line) in enumerate(lines_of(layouts).items()):
                mine = [row for row in rows if row["layout"] == layout]
                nested = {"markersize": 7.0 - 1.5 * at, "zorder": 2 + at}  # layouts that agree are marks in one another
                one.plot([row["effective"] for row in mine], [row[key] for row in mine], label=f"{layout} layout",
                         **line._replace(hollow=True).style() | nested)
            one.axvline(1.2218, label="threshold 1.2218", **REFERENCE)
            one.set_xlabel("sketch cells per nonzero of the union")
            one.set_ylabel(label)
            one.set_ylim(-0.03, 1.03)
        legend(drawn)


def draw_throughput(path: Path, rows: Sequence[Row]) -> None:
    """Speed-up by density for several numbers of workers, and the published headline."""
    counts = sorted({row["workers"] for row in rows})
    with figure(path, WIDE, 2.7) as drawn:
        axes = drawn.subplots(1, 2, sharey=True)
        for support, one in zip(("independent", "identical"), axes, strict=True):
            for at, (workers, line) in enumerate(zip(counts, CYCLE, strict=False)):
                for over, bits, dashes in (("in-network", 1, "-"), ("ring", 4, (0, (4, 2)))):
                    mine = [row for row in rows if (row["support"], row["workers"], row["over"], row["index_bits"])
                            == (support, workers, over, bits)]
                    nested = {"linestyle": dashes, "markersize": 6.5 - 1.3 * at, "linewidth": 2.0 - 0.4 * at}
                    one.plot([row["density"] for row in mine], [row["speed_up"] for row in mine],
                             **line._replace(hollow=True).style() | nested | {"zorder": 2 + at},
                             label=f"{workers} workers" if dashes == "-" else None)
            one.axhline(6.33, label="published: up to 6.33", **REFERENCE)
            one.axhline(1.0, **REFERENCE | {"linestyle": "-"})
            one.set_xscale("log")
            log_axis(one)
            one.set_xlabel("share of nonzeros of one worker")
            one.set_title(f"{support} supports")
        axes[0].set_ylabel("all-reduce speed-up")
        legend(drawn, title="solid: 1-bit index, in the network; dashed: 4-bit index, ring")


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
