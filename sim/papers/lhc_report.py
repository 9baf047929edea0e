"""The report of in-network aggregation and homomorphic compression: what `weft paper lhc` found, as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.papers.tables import Row, picture
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
        "those of `sim.papers.gradients`.", "",
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
