"""The report of in-network aggregation and homomorphic compression: what `weft paper lhc` found, as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.papers.tables import Row, picture
from sim.plots.lines import CYCLE, OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, legend, lines_of, log_axis, sizes_axis
from sim.whole_file import write_text_whole

Tables = Mapping[str, Sequence[Row]]

SHOWN_SIZES = tuple(2**exponent for exponent in (5, 10, 15, 20, 25, 30))


def write_report(path: Path, tables: Tables) -> None:
    """Write the page from the tables of `sim.papers.lhc.run` by name, with the pictures next to it."""
    write_text_whole(path, "\n".join(_page(tables)))


def _page(tables: Tables) -> Iterable[str]:
    seeds = tables["loss"][0]["seeds"]
    yield from (
        "# In-network aggregation and lossless homomorphic compression", "",
        "Made by `weft paper lhc`; [the background](../background/in_network.md) describes the model.", "",
        "## Slots, stragglers, NVLink SHARP", "",
        "100 MiB, 8 workers at 100 Gb/s, 2 us of wire, 0.8 us of switch, packets of 1024 + 66 B.", "",
    )
    yield from table(tables["slots"])
    yield from table(tables["stragglers"])
    yield "NVLS (`form=\"pull\"`), algbw at 8 GiB with one efficiency, 0.835 of 370 GB/s, for all numbers of GPUs:\n"
    yield from table(tables["nvls"])
    yield from (
        "## Loss", "",
        f"Slow-down of 16 MiB against no loss: mean and 5th to 95th percentile of {seeds} seeds next to the one "
        "published seed, and the share of seeds that are at least as slow.", "",
    )
    yield from table(tables["loss"], leave_out=("seeds",))
    yield from (
        "## Several jobs on one switch", "", "128 slots, 4 MiB per job, windows of 64 packets.", "",
    )
    yield from table(tables["sharing"])
    yield from (
        "## The cliff", "", *picture("lhc-cliff", "share of arrays decoded in full, and of items lost", "lhc"),
        "A million elements, union of 8 workers of 1 % each. Sketches have complete rows of 64 or 1,024 cells, hence "
        "more cells than requested: the first table lists how many, and they are the x-axis of the figure.", "",
    )
    yield from table(pivot(tables["cliff"], "cells", "layout", "effective"), "cells", "Cells per item in complete rows")
    yield from table(pivot(tables["cliff"], "cells", "layout", "full"), "cells", "Arrays decoded in full")
    yield from table(pivot(tables["cliff"], "cells", "layout", "lost"), "cells", "Items lost")
    yield from (
        "## Codecs", "", "What one of eight workers sends, and what the sum loses (NMSE), on normal values at "
        "independent positions. fp32 through the codec is neither bit-exact nor element-wise accurate.", "",
    )
    yield from table(tables["baselines"])
    yield from _gains(tables)
    yield from _sizes(tables)


def _gains(tables: Tables) -> Iterable[str]:
    yield from (
        "## Aggregation throughput", "", *picture("lhc-throughput", "speed-up by density and workers", "lhc"),
        "All-reduce of 400 MB at 100 Gb/s per link, codec for free, 1.23 cells per item. Throughput is 32 bits times "
        "the elements over the time; the union of all workers decides. Sums of 4-bit fields count up to 15 workers, so "
        "the codec rejects them for 16.", "",
    )
    for support in ("independent", "identical"):
        for over, bits in (("in-network", 1), ("ring", 4)):
            mine = [row for row in tables["throughput"]
                    if (row["support"], row["over"], row["index_bits"]) == (support, over, bits)]
            for value, what in (("Gbps", "Throughput in Gb/s"), ("speed_up", "Speed-up")):
                title = f"{what}, {support} supports, {over}, {bits}-bit index, by density and workers"
                yield from table(pivot(mine, "density", "workers", value), "density", title)
    yield from (
        "## The headline: up to 6.33x, and 3.74x an iteration", "",
        "`union_at_most` is the densest union at which 6.33x is reached; the demo of the published code has 5 % of "
        "nonzeros at the same positions of every worker.", "",
    )
    yield from table(tables["headline"])
    yield "Speed-up of an iteration, nothing overlapped, by the share of communication and its speed-up:\n"
    yield from table(tables["iteration"])
    yield from (
        "## Models", "", *picture("lhc-models", "time of an iteration", "lhc"),
        "8 workers at 100 Gb/s, whole gradients. The published evaluation gives no compute times: "
        f"{tables['models'][0]['compute_s']:g} s are assumed for every model, and nothing overlaps. `codec_free_s` and "
        "`iteration_s` are without the time of the codec, and an iteration takes the dense all-reduce where that is "
        "faster; `with_codec_s` and `iteration_with_codec_s` encode, count and peel at the rates of one core of the "
        "machine that made this page, always through the codec. `codec_GBps_to_gain` is how many bytes of the dense "
        "array a device must encode and decode in a second, both together, to win anything. Sizes and densities are "
        "those of `workloads.compression.gains`.", "",
    )
    yield from table(tables["models"], leave_out=("compute_s",))
    yield from (
        "## Number formats", "",
        "100 million elements, 8 workers, codec for free, 1.23 cells per item, 1-bit index. A switch that adds 32-bit "
        "integers doubles a dense 16-bit array, and cells have 32 bits everywhere.", "",
    )
    yield from table(tables["formats"])


def _sizes(tables: Tables) -> Iterable[str]:
    yield from (
        "## In the network, ring, tree and Swing, 32 B to 1 GiB", "",
        *picture("lhc-sizes", "goodput by size", "lhc"),
        "Microseconds. Routers of the torus reduce (`routers=True`); ranks of the fat-tree form one row for the "
        "algorithms that follow dimensions.", "",
    )
    for topology in dict.fromkeys(row["topology"] for row in tables["sizes"]):
        mine = [row for row in tables["sizes"] if row["topology"] == topology and row["size_bytes"] in SHOWN_SIZES]
        yield from table(pivot(mine, "size", "algorithm", "time_us"), "size", f"`{topology}`")


def pivot(rows: Iterable[Row], down: str, across: str, value: str) -> list[dict[str, Any]]:
    """One row for each value of one column, one column for each value of another."""
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row[down], {down: row[down]})[str(row[across])] = row[value]
    return list(found.values())


def table(rows: Sequence[Row], first: str = "", title: str = "", leave_out: Sequence[str] = ()) -> Iterable[str]:
    """Lines of a Markdown table, numbers with five digits."""
    if not rows:
        return
    head = [key for key in rows[0] if key not in leave_out]
    if title:
        yield f"{title}:\n"
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if key == first or isinstance(rows[0][key], str) else '--:' for key in head)}|"
    for row in rows:
        yield f"| {' | '.join(cell(row.get(key, '')) for key in head)} |"
    yield ""


def cell(value: object) -> str:
    """A value of a table as text: numbers of five digits, all of them where there are more before the point."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    return str(value)


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
