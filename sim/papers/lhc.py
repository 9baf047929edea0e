"""In-network aggregation and lossless homomorphic compression: published numbers next to ours, and what decides."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives import Schedule, build, in_network, parameter_server, ring, swing
from collectives.trees.aggregation import torus_trees
from sim.papers.tables import Left, Row, as_text
from sim.plots.lines import CYCLE, OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, legend, lines_of, log_axis, sizes_axis
from sim.scenarios.pool_streaming import PoolStreaming, slow_down, time_ps
from sim.scenarios.slot_sharing import RULES, Sharing, fallback_share, finishes_ps
from sim.simulation import simulate
from sim.study.tables import screen_width
from topologies import Topology, fat_tree, switch, torus
from topologies.core.links import rank_coordinates
from topologies.grouped import grouped
from topologies.units import PS_PER_S, bytes_per_s, format_size
from workloads.compression import FORMS, Codec, NibbleSum, baselines, layout_for, lossless_sum
from workloads.compression.gains import GRADIENTS, Compression, compressed_all_reduce, expansion, union_density
from workloads.compression.rates import INSTANT, Rates, measure

MIB = 2**20
PUBLISHED_SLOTS = {8: 63.673, 16: 31.838, 57: 8.941, 64: 8.934}
"""Milliseconds for 100 MiB."""

PUBLISHED_LOSS = {
    (1e-5, 64): (1.06, 1.65), (1e-5, 512): (1.00, 1.53), (1e-4, 64): (1.23, 3.70), (1e-4, 512): (1.07, 1.96),
    (1e-3, 64): (1.66, 8.57), (1e-3, 512): (1.07, 2.49), (1e-2, 64): (4.45, 36.5), (1e-2, 512): (1.35, 8.53),
}
"""Slow-down by (loss, slots) at timeouts of 0.1 and 1 ms, of one seed."""

PUBLISHED_NVLS = {5: (258e9, 262e9), 8: (273e9, 275e9)}
NVLS_EFFICIENCY, NVLINK_BPS = 0.835, 370e9

HEADLINE_THROUGHPUT, HEADLINE_ITERATION = 6.33, 3.74


def run(left: Left, quick: bool) -> None:
    """Print every table, and leave them, the figures and a page of both."""
    here = measure(2**22, 0.1).rates()
    tables: dict[str, list[Row]] = {"models": list(model_rows(here)), "headline": list(headline_rows())}
    opening = list(_opening(tables, here))
    print("\n".join(opening))
    for name, title, rows in _tables(quick):
        tables[name] = tables.get(name) or list(rows)
        print(f"\n{title}\n{indent(as_text(tables[name], screen_width() - 2, cell), '  ')}")
        left.table(name, tables[name])
    for name, draw in (("cliff", draw_cliff), ("throughput", draw_throughput), ("models", draw_models),
                       ("sizes", draw_sizes)):
        draw(left.out / f"lhc-{name}.png", tables[name])
    _leave_page(left, tables, opening)


def _opening(tables: Mapping[str, Sequence[Row]], here: Rates) -> Iterator[str]:
    """What is reproduced and what the published headlines assume, with the rates that they need."""
    needed = [one for row in tables["models"] if isinstance(one := row["codec_GBps_to_gain"], float)]
    most = {row["index_bits"]: row["union_at_most"] for row in reversed(tables["headline"]) if row["cells"] == 1.23}
    share = (1 - 1 / HEADLINE_ITERATION) / (1 - 1 / HEADLINE_THROUGHPUT)
    yield "Reproduced: slots, loss, late workers, jobs that share a switch, NVLink SHARP, the cliff of the codec."
    yield (
        f"Assumed by {HEADLINE_THROUGHPUT}x of an all-reduce and {HEADLINE_ITERATION}x of an iteration: a codec that "
        f"takes no time, a union of at most {most[1]:.1%} of nonzeros ({most[4]:.1%} with an index of 4-bit sums), and "
        f"communication that is {share:.0%} of the iteration."
    )
    yield (
        f"To gain anything here takes a codec of {min(needed):.2g} to {max(needed):.3g} GB/s; one core encodes at "
        f"{here.encode_Bps / 1e9:.2g}."
    )


def _tables(quick: bool) -> Iterator[tuple[str, str, Iterable[Row]]]:
    """Name, title and rows of each table."""
    yield "slots", "Slots against the bandwidth-delay product, 100 MiB, 8 workers", slot_rows()
    yield "stragglers", "Late and slow workers, and the ring", straggler_rows()
    yield "nvls", "NVLink SHARP: algbw of the pull form at 8 GiB, eta = 0.835 of 370 GB/s", nvls_rows()
    seeds = 5 if quick else 50
    yield "loss", f"Slow-down under loss, 16 MiB, {seeds} seeds", loss_rows(seeds, quick)
    yield "sharing", "Jobs that share 128 slots, 4 MiB each, windows of 64", sharing_rows()
    cliff = "Share of arrays that decode in full, and of items lost, by cells per item"
    yield "cliff", cliff, cliff_rows(1_000_000, 2 if quick else 10)
    yield "baselines", "What one of eight workers sends, and what is lost", baseline_rows()
    yield "throughput", "Aggregation speed-up by density and workers (100 Gb/s, codec for free)", throughput_rows()
    yield "headline", "What reaches the published 6.33x", ()
    yield "iteration", "What reaches the published 3.74x per iteration", iteration_rows()
    yield "models", "All-reduce of whole gradients, 8 workers at 100 Gb/s, seconds", ()
    yield "formats", "Values of 16 bits that are added as integers of 32, seconds", format_rows()
    yield "sizes", "In-network aggregation, ring, tree and Swing by size", size_rows(quick)


def slot_rows() -> Iterator[Row]:
    """Time and goodput by slots, the published table's and others between."""
    for slots in (8, 16, 32, 57, 58, 64, 128):
        job = PoolStreaming(size_bytes=100 * MIB, slots=slots)
        found_ps = time_ps(job)
        yield {
            "slots": slots, "published_ms": PUBLISHED_SLOTS.get(slots, ""), "simulated_ms": found_ps / 1e9,
            "closed_form_ms": job.published_form_ps() / 1e9, "difference": found_ps / job.published_form_ps() - 1,
            "goodput_Gbps": 8 * job.size_bytes / found_ps * 1e3,
        }


def straggler_rows() -> list[Row]:
    """The two stragglers, and push against the ring."""
    job = PoolStreaming(size_bytes=100 * MIB, slots=64)
    plain, late = time_ps(job), time_ps(job, late_ps={3: 5 * 10**9})
    slow = time_ps(job, rate_factor={3: Fraction(1, 2)})
    rows: list[Row] = [
        {"case": "one worker 5 ms late, ms more", "published": 5.0, "simulated": (late - plain) / 1e9},
        {"case": "one worker at half rate, times", "published": 2.0, "simulated": slow / plain},
    ]
    for p, published in ((8, 14.736), (2, 8.397)):
        ring_ps = simulate(_ring(p, 100 * MIB), chunks=1).time_ps
        mine = PoolStreaming(size_bytes=100 * MIB, slots=64, workers=p)
        pushed = time_ps(mine)
        rows.append({"case": f"ring p={p}, ms", "published": published, "simulated": ring_ps / 1e9})
        rows.append({"case": f"in-network / ring p={p}", "published": 8.934 / published, "simulated": pushed / ring_ps})
    return rows


def _ring(p: int, size: int) -> Schedule:
    fabric = switch(p, bandwidth="100Gb/s", latency="2us", hop_latency=0)
    return ring.all_reduce(fabric, size, directions=1)


def nvls_rows() -> Iterator[Row]:
    """Pull at the measured efficiency."""
    for n, (low, high) in PUBLISHED_NVLS.items():
        fabric = switch(n, bandwidth=bytes_per_s(NVLS_EFFICIENCY * NVLINK_BPS), latency="0.5us", hop_latency="0.3us")
        algbw = simulate(in_network.all_reduce(fabric, "8GiB", form="pull"), chunks=256).algbw
        middle = (low + high) / 2e9
        yield {
            "gpus": n, "measured_GBps": f"{low / 1e9:g}-{high / 1e9:g}", "simulated_GBps": algbw,
            "closed_form_GBps": NVLS_EFFICIENCY * NVLINK_BPS / (1 + 1 / n) / 1e9, "difference": algbw / middle - 1,
        }


def loss_rows(seeds: int, quick: bool = False) -> Iterator[Row]:
    """Mean and spread over seeds next to the one published seed."""
    for (loss, slots), published in PUBLISHED_LOSS.items():
        for timeout_ps, known in zip((10**8, 10**9), published, strict=True):
            if quick and (loss, timeout_ps) not in ((1e-5, 10**8), (1e-3, 10**8), (1e-2, 10**9)):
                continue
            job = PoolStreaming(size_bytes=16 * MIB, slots=slots)
            found = [slow_down(job, loss, timeout_ps, seed) for seed in range(seeds)]
            low, high = np.percentile(found, [5, 95])
            yield {
                "loss": loss, "timeout_ms": timeout_ps / 1e9, "slots": slots, "published": known,
                "mean": float(np.mean(found)), "difference": float(np.mean(found)) / known - 1, "p5": float(low),
                "p95": float(high), "most": max(found), "as_slow": float(np.mean(np.array(found) >= known - 0.005)),
                "seeds": seeds,
            }


def sharing_rows() -> Iterator[Row]:
    """Mean and last finish of several jobs under each rule."""
    job = PoolStreaming(size_bytes=4 * MIB, slots=64)
    for rule in RULES:
        for jobs in (1, 2, 4):
            sharing = Sharing(job=job, jobs=jobs, slots=128, rule=rule)
            times = [end_ps / 1e9 for end_ps in finishes_ps(sharing)]
            yield {
                "rule": rule, "jobs": jobs, "mean_ms": float(np.mean(times)), "last_ms": max(times),
                "fallback": fallback_share(sharing) if rule == "hashed" else 0.0,
            }


def cliff_rows(n_elements: int, trials: int) -> Iterator[Row]:
    """Decoding by cells per item, at the union of 8 workers of 1 %; `effective` are the cells in complete rows."""
    union = union_density(0.01, 8)
    for layout in FORMS:
        for cells in (1.0, 1.1, 1.15, 1.2, 1.21, 1.22, 1.23, 1.25, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0):
            lost, effective, full = [], [], 0
            for trial in range(trials):
                x = (np.random.default_rng(trial).random(n_elements) < union).astype(np.int32)
                n_items = int(x.sum())
                codec = Codec(layout_for(n_elements, n_items, cells, layout, seed=7 * trial))
                decoded = codec.decode(codec.encode(x))
                effective.append(codec.layout.n_cells / n_items)
                lost.append(1 - decoded.n_recovered / n_items)
                full += decoded.complete
            yield {
                "layout": layout, "cells": cells, "effective": float(np.mean(effective)), "full": full / trials,
                "lost": float(np.mean(lost)),
            }


def baseline_rows(n: int = 2**20) -> Iterator[Row]:
    """What eight workers send and lose through each codec, on `n` normal values at independent positions."""
    workers = 8
    for density in (0.001, 0.01, 0.1):
        rng = np.random.default_rng(0)
        arrays = [np.where(rng.random(n) < density, rng.normal(size=n), 0).astype(np.float32) for _ in range(workers)]
        exact = np.sum(np.array(arrays, np.float64), axis=0)
        n_items = int(np.count_nonzero(np.any(np.array(arrays) != 0, axis=0)))
        for name, (sent, total) in _codecs(arrays, n_items).items():
            error = float(np.square(total - exact).sum() / np.square(exact).sum())
            yield {"density": density, "codec": name, "bits_per_element": 8 * sent / n, "nmse": error}


def _codecs(arrays: list[npt.NDArray[np.float32]], n_items: int) -> dict[str, tuple[float, npt.NDArray[Any]]]:
    """Bytes of one worker, and the sum, by codec; messages that are not summed in transit count at their mean size."""
    n, layout = arrays[0].size, layout_for(arrays[0].size, n_items)
    scale = baselines.shared_scale(arrays)
    whole = lossless_sum(Codec(layout, dtype="int32"), [baselines.to_fixed(x, scale) for x in arrays])
    floating = lossless_sum(Codec(layout, dtype="float32"), arrays)
    blocks = [baselines.non_zero_blocks(x) for x in arrays]
    pairs = [baselines.top_k(x, max(1, n // 100)) for x in arrays]
    thc = baselines.Thc(n)
    half_width = thc.range_of(arrays)
    indices = [thc.encode(x, half_width, worker) for worker, x in enumerate(arrays)]
    return {
        "lossless, fixed point": (whole.wire_bytes, baselines.from_fixed(whole.values, scale)),
        "lossless, fp32": (floating.wire_bytes, floating.values),
        "nonzero blocks of 256": (float(np.mean([one.n_bytes for one in blocks])), baselines.add_blocks(blocks, n)),
        "top 1 %, all-gathered": (float(np.mean([one.n_bytes for one in pairs])), baselines.add_coordinates(pairs, n)),
        "THC, 4 bits": (indices[0].n_bytes, thc.decode(thc.add(indices), len(arrays), half_width)),
    }


@lru_cache(maxsize=64)
def _star(p: int) -> Topology:
    return switch(p, bandwidth="100Gb/s", latency="2us", hop_latency="0.8us")


FABRICS: dict[str, Callable[[int], Callable[[int], Schedule]]] = {
    "ring": lambda p: lambda size: _ring(p, size),
    "in-network": lambda p: lambda size: in_network.all_reduce(_star(p), size),
    "parameter server": lambda p: lambda size: parameter_server.all_reduce(_star(p), size),
}


@lru_cache(maxsize=4096)
def all_reduce_s(fabric: str, p: int, size: int) -> float:
    """Simulated seconds; transfers in 256 chunks, those of the ring whole, as its steps already pipeline."""
    chunks = 1 if fabric == "ring" else 256
    return simulate(FABRICS[fabric](p)(size), chunks=chunks).time_ps / PS_PER_S


def throughput_rows() -> Iterator[Row]:
    """Speed-up of a 400 MB all-reduce by density and workers; independent and identical supports.

    Sums of 4-bit fields count up to 15 workers; cases that the codec rejects are left out.
    """
    n = 100_000_000
    for density in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3):
        for workers in (2, 4, 8, 16):
            for support in ("independent", "identical"):
                union = union_density(density, workers if support == "independent" else 1)
                for fabric, bits in (("ring", 4), ("ring", 1), ("in-network", 1)):
                    if bits == 4 and workers > NibbleSum(n).max_workers:
                        continue
                    wanted = Compression(1.23, bits)
                    line = compressed_all_reduce(partial(all_reduce_s, fabric, workers), n, union, wanted)
                    yield {
                        "density": density, "workers": workers, "support": support, "union": union, "over": fabric,
                        "index_bits": bits, "speed_up": line.speed_up, "closed_form": wanted.speed_up(union),
                        "Gbps": 32 * n / line.total_s / 1e9,
                    }


def headline_rows() -> Iterator[Row]:
    """For each assumption, the union density at which 6.33x is reached, and whether the density allows it."""
    for cells, bits, what in (
        (1.23, 1, "spread layout, OR on the way"), (1.5, 1, "published layout, large arrays, OR"),
        (2.0, 1, "the demo's space, OR"), (1.23, 4, "spread layout, 4-bit sums (NCCL)"),
        (2.0, 4, "the demo's space, 4-bit sums"),
    ):
        most = (1 / HEADLINE_THROUGHPUT - bits / 32) / cells
        yield {
            "assumption": what, "cells": cells, "index_bits": bits, "union_at_most": most,
            "identical_5%": Compression(cells, bits).speed_up(0.05),
            "independent_5%_x8": Compression(cells, bits).speed_up(union_density(0.05, 8)),
            "demo_5%_reaches": "yes" if most >= 0.05 else "no",
        }


def iteration_rows() -> Iterator[Row]:
    """Speed-up of an iteration without overlap, by the share of communication in it."""
    for share in (0.5, 0.7, 0.8, 0.87, 0.9, 0.95, 1.0):
        row: Row = {"communication_share": share}
        for gain in (2.0, 4.0, HEADLINE_THROUGHPUT, 20.0):
            row[f"at_{gain:g}x"] = 1 / (1 - share + share / gain)
        row["6.33x_reaches_3.74x"] = "yes" if row["at_6.33x"] >= HEADLINE_ITERATION else "no"
        yield row


COMPUTE_S = 0.05
"""Compute of an iteration, assumed alike for all models: the published evaluation gives none."""


def model_rows(here: Rates) -> Iterator[Row]:
    """Whole gradients dense and through the codec; iteration with an assumed compute time, nothing overlapped.

    `here`: rates of the device that encodes and decodes.
    """
    for model in GRADIENTS.values():
        for support, shared in (("independent", 0.0), ("identical", 1.0), ("top 1 % identical", -1.0)):
            union = 0.01 if shared < 0 else model.union(8, shared)
            for fabric in FABRICS:
                yield {"model": model.name, "support": support, "union": union, "over": fabric,
                             **model_times(fabric, model.n_elements, union, here)}


def model_times(fabric: str, n_elements: int, union: float, here: Rates) -> Row:
    """Times of one gradient by each way to send it, on one fabric."""
    seconds = partial(all_reduce_s, fabric, 8)
    free = compressed_all_reduce(seconds, n_elements, union, Compression(), INSTANT)
    device = compressed_all_reduce(seconds, n_elements, union, Compression(), here)
    best_s, saved_s = min(free.total_s, free.dense_s), free.dense_s - free.total_s
    return {
        "dense_s": free.dense_s, "codec_free_s": free.total_s, "speed_up": free.speed_up,
        "with_codec_s": device.total_s, "compute_s": COMPUTE_S, "iteration_dense_s": COMPUTE_S + free.dense_s,
        "iteration_s": COMPUTE_S + best_s, "iteration_speed_up": (COMPUTE_S + free.dense_s) / (COMPUTE_S + best_s),
        "iteration_with_codec_s": COMPUTE_S + device.total_s,
        "codec_GBps_to_gain": 4 * n_elements / saved_s / 1e9 if saved_s > 0 else "",
    }


def format_rows() -> Iterator[Row]:
    """The effect of 32-bit integers in transit on 16-bit values: 100 million elements, 8 workers, codec for free."""
    n = 100_000_000
    for value_bits, over, dense_bits in ((32, "ring", 32), (32, "in-network", 32), (16, "ring", 16),
                                         (16, "in-network", 32)):
        seconds = partial(all_reduce_s, over, 8)
        for union in (0.01, 0.1, 0.3366):
            line = compressed_all_reduce(seconds, n, union, Compression(1.23, 1, value_bits), dense_bits=dense_bits)
            yield {
                "value_bits": value_bits, "over": over, "dense_expansion": expansion(value_bits, dense_bits),
                "cell_expansion": expansion(value_bits, 32), "union": union, "dense_s": line.dense_s,
                "codec_free_s": line.total_s, "speed_up": line.speed_up,
            }


def size_rows(quick: bool) -> Iterator[Row]:
    """Sizes from 32 B to 1 GiB, by twos (in a quick run by thirty-twos), on a fat-tree and on a torus."""
    fabrics = {"fat-tree:8": fat_tree(8), "torus:8x8": torus((8, 8))}
    for name, fabric in fabrics.items():
        for exponent in range(5, 31, 5 if quick else 1):
            size = 2**exponent
            for algorithm, one in _contenders(fabric, size):
                time_ps = simulate(one, chunks=_chunks(one)).time_ps
                yield {
                    "topology": name, "algorithm": algorithm, "size_bytes": size, "size": format_size(size),
                    "time_us": time_ps / 1e6, "goodput_Gbps": 8e3 * size / time_ps,
                }


MOST_CHUNKS = {in_network.NAME: 512, "double-binary-tree": 128}


def _chunks(one: Schedule) -> int:
    """Enough chunks that pipelines fill, at least 4 KiB each; other algorithms do not pipeline their steps."""
    return int(np.clip(one.block_bytes // 4096, 1, MOST_CHUNKS.get(one.pattern.algorithm, 8)))


def _contenders(fabric: Topology, size: int) -> Iterable[tuple[str, Schedule]]:
    direct = fabric.name.startswith("torus")
    # a fat-tree has no dimensions that algorithms should follow: its ranks form one row
    row = fabric if direct else replace(
        fabric, shape=(fabric.n_npus,), coords=rank_coordinates(fabric.n_npus, fabric.n_nodes))
    yield "in-network", in_network.all_reduce(fabric, size, routers=direct)
    if direct:
        yield "in-network, 2 trees", in_network.all_reduce(fabric, size, trees=torus_trees(fabric), routers=True)
    yield "ring", ring.all_reduce(row, size, directions=2 if direct else 1)
    yield "tree", build("double-binary-tree", "all-reduce", row, size)
    for form in swing.FORMS:
        yield f"swing ({form})", swing.all_reduce(row, size, form=form)


# --- the page -------------------------------------------------------------------------------------------------------


Tables = Mapping[str, Sequence[Row]]

SHOWN_SIZES = tuple(2**exponent for exponent in (5, 10, 15, 20, 25, 30))


def _leave_page(left: Left, tables: Tables, opening: Iterable[str]) -> None:
    """Most tables as they are; of some a table for each value."""
    gains = [
        _titled(f"{what}, {support} supports, {over}, {bits}-bit index, by density and workers", mine, "density",
                "workers", value)
        for support in ("independent", "identical") for over, bits in (("in-network", 1), ("ring", 4))
        if (mine := [row for row in tables["throughput"]
                     if (row["support"], row["over"], row["index_bits"]) == (support, over, bits)])
        for value, what in (("Gbps", "Throughput in Gb/s"), ("speed_up", "Speed-up"))
    ]
    cliff = [_titled(title, tables["cliff"], "cells", "layout", value) for value, title in (
        ("effective", "Cells per item in complete rows"), ("full", "Arrays decoded in full"), ("lost", "Items lost"))]
    shown = [row for row in tables["sizes"] if row["size_bytes"] in SHOWN_SIZES]
    sizes = [_titled(f"`{fabric}`", [row for row in shown if row["topology"] == fabric], "size", "algorithm", "time_us")
             for fabric in dict.fromkeys(row["topology"] for row in shown)]
    seeds, compute_s = tables["loss"][0]["seeds"], tables["models"][0]["compute_s"]
    plain = {name: table(rows, leave_out=("seeds", "compute_s")) for name, rows in tables.items()}
    several = {name: "\n\n".join(some) for name, some in (("throughput", gains), ("cliff", cliff), ("sizes", sizes))}
    left.page(opening=opening, seeds=seeds, compute_s=compute_s, **plain | several)


def _titled(title: str, rows: Iterable[Row], down: str, across: str, value: str) -> str:
    return "\n".join([f"{title}:", "", *table(pivot(rows, down, across, value), down)])


def pivot(rows: Iterable[Row], down: str, across: str, value: str) -> list[dict[str, Any]]:
    """One row for each value of one column, one column for each value of another."""
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row[down], {down: row[down]})[str(row[across])] = row[value]
    return list(found.values())


def table(rows: Sequence[Row], first: str = "", leave_out: Sequence[str] = ()) -> list[str]:
    """Lines of a Markdown table, numbers with five digits; `first` is a column of names."""
    head = [key for key in rows[0] if key not in leave_out]
    names = ["---" if key == first or isinstance(rows[0][key], str) else "--:" for key in head]
    lines = [f"| {' | '.join(cell(row.get(key, '')) for key in head)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'|'.join(names)}|", *lines]


def cell(value: object) -> str:
    """A value of a table as text: numbers of five digits, all of them where there are more before the point."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    return str(value)


# --- its figures ----------------------------------------------------------------------------------------------------


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
    found = grouped(((row["over"], row["index_bits"], row["density"]), row["speed_up"]) for row in rows)
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
