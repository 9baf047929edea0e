"""Bandwidth-optimal pipeline schedules (arXiv 2305.18461, ForestColl): optimum, generation time, simulated bandwidth.

Leaves the tables `optimum`, `algbw`, `service`, `plateau` and `ran`, figures, and the page that explains them: the
optimum of each fabric beside the expected one, what every algorithm reaches at each size, how the time over the bound
falls with the number of chunks, by service discipline and by how chunks are offered, and what was measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from time import process_time

from collectives import Schedule, algorithm, build, schedule
from collectives.trees.forest import Forest, forest_pattern
from collectives.trees.pack import gather_forest, two_phase_rate_Bps
from collectives.trees.transitive import root_trees
from sim.analytic.cut_bound import cut_bound
from sim.library.expected import expected, timed
from sim.library.tuner import Setting, candidates
from sim.papers.tables import Left, Row, as_text, md_table, read_published
from sim.plots.lines import OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend, lines_of, sizes_axis
from sim.simulation import simulate
from sim.study.library_runs import as_found
from sim.study.tables import screen_width
from topologies import Topology, WeftError, from_spec
from topologies.flows.programs import best_roots
from topologies.machines.profile import machine
from topologies.units import format_size

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
"""Spec, bandwidth of a link unless the machine defines it, and the optimum N x* in GB/s.

Published: 346.67 for two DGX A100 (the authors' public code prints it). The others follow from the cut that each
paper of the field states for them, (N - 1) shards into the NPU of the least ingress or one box to the others.
"""

FAT_TREES = ("leaf-spine:4x4x4", "leaf-spine:8x8x2", "fat-tree:4", "fat-tree:8")
"""Of two and three levels; the second has four hosts to an uplink."""

QUICK = ("dgx-a100:2", "mi250:1", "torus:4x4", "random-regular:16x4x1")

PLATEAU = ("torus:4x4", "dgx1:1", "dgx-a100:2", "mi250:1")
"""Fabrics on which all chunks are also offered at once."""

ALGORITHMS = ("pipelined", "direct", "bfb", "tacos", "nccl-rings", "ring", "swing", "double-binary-tree")

KINDS = ("all-gather", "all-reduce")
SIZES = tuple(2**power for power in range(10, 31, 2))
QUICK_SIZES = (2**12, 2**20, 2**28)

CHUNKS = (4, 16, 64, 256)
LARGE = 2**30
LEAST_CHUNK_BYTES = 256
"""Smallest part of a shard in the search for the best number of chunks."""

RAN_SIZES = tuple(2**power for power in (20, 22, 24, 26, 28, 30, 33))
RAN: dict[str, list[list[float]]] = read_published("pipeline")["ran"]
"""ForestColl's own runs on two boxes of 8 A100-SXM4-80GB with a NIC of 200 Gb/s a GPU (liangyuRain/mscclpp-public,
branch msr, January 2024): algbw in GB/s of one tree a root as MSCCL XML, and of NCCL 2.12.12 with all its protocols."""

PROGRAM_NPUS = 36
"""NPUs up to which the linear program of an all-reduce is solved: seconds."""


def run(left: Left, quick: bool) -> None:
    """Compute everything, print the tables and write them with the page and the figures."""
    specs = QUICK if quick else (*FABRICS, *FAT_TREES)
    optimum_row(specs[0])  # compiles the flows, which is not what is measured
    optimum = [optimum_row(spec) for spec in specs]
    _leave(left, "optimum", optimum)
    times = [row for spec in specs for row in time_rows(spec, QUICK_SIZES if quick else SIZES)]
    left.table("algbw", times)
    chunks = CHUNKS[:3] if quick else CHUNKS
    service = [row for spec in specs for row in service_rows(spec, chunks)]
    _leave(left, "service", service)
    plateau = [row for spec in PLATEAU for row in plateau_rows(spec, chunks[:3])]
    _leave(left, "plateau", plateau)
    ran = list(ran_rows(RAN_SIZES[::3] if quick else RAN_SIZES))
    _leave(left, "ran", ran)
    leave_page(left, optimum, times, service, plateau, ran)


def leave_page(
    left: Left, optimum: Sequence[Row], times: Sequence[Row], service: Sequence[Row], plateau: Sequence[Row],
    ran: Sequence[Row],
) -> None:
    """The page of the five tables, and the figures."""
    print(left.page(
        optimum=_optimum(optimum), times=_times(times), refusals=_refusals(times), late=_late(service), ran=_ran(ran),
        service=_by_chunks(service, {"lowest-chunk-first": "lowest first, {}", "fifo": "FIFO, {}"}),
        plateau=_by_chunks(plateau, {"fifo": "FIFO, {} at once"}),
    ))
    for kind in KINDS:
        draw_sizes(left.out / f"pipeline-{kind}.png", kind, [row for row in times if row["collective"] == kind])
    draw_service(left.out / "pipeline-service.png", service, plateau)


@lru_cache(maxsize=32)
def _fabric(spec: str) -> Topology:
    bandwidth = FABRICS.get(spec, ("1GB/s", None))[0]
    machine = bandwidth is None
    return from_spec(spec, bandwidth, GPU_LATENCY if machine else LATENCY, GPU_HOP_LATENCY if machine else HOP_LATENCY)


def optimum_row(spec: str) -> Row:
    """The optimum of an all-gather and of an all-reduce, and what it takes to find it and its trees."""
    topology = _fabric.__wrapped__(spec)  # a fresh one: nothing is cached
    started = process_time()
    bound = cut_bound(topology, "all-gather")
    bounded = process_time()
    trees = root_trees(topology)
    if trees is not None:
        k = trees.k
        height = hops = int(trees.depth.max())
    else:
        forest = gather_forest(topology)
        k, height, hops = forest.blocks_of_root(0), forest.height, forest.hops
    packed = process_time()
    expected = FABRICS[spec][1] if spec in FABRICS else None
    two_phase = two_phase_rate_Bps(topology)
    return {
        "fabric": spec, "npus": topology.n_npus, "optimum_GBps": _GBps(bound.s_per_byte),
        "expected_GBps": None if expected is None else float(expected),
        "inverse_x": str(bound.s_per_byte * topology.n_npus * 10**9), "trees_a_root": k, "height": height, "hops": hops,
        "all_reduce_bound_GBps": _GBps(cut_bound(topology, "all-reduce").s_per_byte),
        "two_phase_GBps": None if two_phase is None else float(two_phase) / 1e9,
        "best_roots_GBps": best_roots(topology).rate_Bps / 1e9 if topology.n_npus <= PROGRAM_NPUS else None,
        "bound_cpu_s": bounded - started, "trees_cpu_s": packed - bounded,
    }


def time_rows(spec: str, sizes: Sequence[int]) -> Iterator[Row]:
    """Each algorithm at each size, with the best of a few chunk counts; with the reason where it cannot run."""
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
                    time_s, chunks = _best_time_s(topology, name, kind, size)
                except WeftError as refusal:
                    yield row | dict.fromkeys(("algbw_GBps", "of_bound", "time_s", "chunks")) | {"note": str(refusal)}
                    break
                least_s = float(bound.s_per_byte * size)
                yield row | {"algbw_GBps": size / time_s / 1e9, "of_bound": least_s / time_s, "time_s": time_s,
                             "chunks": chunks, "note": ""}


def _best_time_s(topology: Topology, name: str, kind: str, size: int) -> tuple[float, int]:
    """Time, and the chunks that reach it."""
    form = "two-phase" if (name, kind) == ("pipelined", "all-reduce") else None
    built = build(name, kind, topology, size, form)
    shard = size // topology.n_npus
    discipline = "lowest-chunk-first" if name in ("pipelined", "bfb") else "fifo"
    return min(
        (simulate(built, chunks=chunks, discipline=discipline).time_s, chunks)
        for chunks in (1, 8, 64) if chunks == 1 or shard >= chunks * LEAST_CHUNK_BYTES
    )


def service_rows(spec: str, chunks: Sequence[int]) -> Iterator[Row]:
    """Time over the exact bound of a large all-gather, store-and-forward and without latency."""
    still = _without_latency(spec)
    large = build("pipelined", "all-gather", still, LARGE)
    for count in chunks:
        yield {"fabric": spec, "chunks": count, **{name: _over_bound(still, large, name, count) for name in SERVICES}}


def plateau_rows(spec: str, counts: Sequence[int]) -> Iterator[Row]:
    """The same where every root offers all its chunks at once, each a separate transfer."""
    still = _without_latency(spec)
    forest = gather_forest(still)
    for count in counts:
        yield {"fabric": spec, "chunks": count, "fifo": _over_bound(still, all_at_once(forest, count), "fifo", 1)}


def ran_rows(sizes: Sequence[int]) -> Iterator[Row]:
    """What was measured on two boxes of A100, and what is predicted: algbw of the trees and of the library."""
    for kind, (forest, library) in RAN.items():
        setting = Setting(machine=machine("dgx-a100"), nodes=2, gpus=8, collective=kind)
        ring = next(one for one in candidates(setting) if (one.algorithm, one.protocol) == ("Ring", "Simple"))
        bound = cut_bound(_fabric("dgx-a100:2"), kind)
        for size in sizes:
            found, at = as_found(setting, timed(setting, ring, size)), RAN_SIZES.index(size)
            built = build("pipelined", kind, found.fabric, size, k=1)
            chunks = min(CHUNKS[2], max(1, round(built.block_bytes / found.chunk_bytes)))
            time_s = found.base_s + simulate(built, chunks=chunks, discipline="lowest-chunk-first").time_s
            yield {
                "collective": kind, "size_bytes": size, "optimum_GBps": float(1 / bound.s_per_byte) / 1e9,
                "forest_ran_GBps": forest[at], "forest_GBps": size / time_s / 1e9, "library_ran_GBps": library[at],
                "library_GBps": size / expected(setting, size).time_s / 1e9,
            }


def all_at_once(forest: Forest, chunks: int) -> Schedule:
    """A large all-gather along a forest, every chunk of a tree a separate transfer without dependencies."""
    cut = Forest(forest.topology, tuple(sorted(forest.trees * chunks, key=lambda tree: tree.root)))
    return schedule(forest_pattern(forest.topology, "all-gather", "pipelined", down=cut), LARGE, 1)


SERVICES = ("fifo", "lowest-chunk-first")


def _without_latency(spec: str) -> Topology:
    topology = _fabric(spec)
    return topology.with_links(latency_ps=topology.latency_ps * 0)


def _over_bound(topology: Topology, large: Schedule, discipline: str, chunks: int) -> float:
    least_s = float(cut_bound(topology, "all-gather").s_per_byte * LARGE)
    result = simulate(large, chunks=chunks, discipline=discipline, forwarding="store-and-forward")
    return result.time_s / least_s


def _GBps(s_per_byte: Fraction) -> float:
    return float(1 / s_per_byte / 10**9)


def _leave(left: Left, name: str, rows: Sequence[Row]) -> None:
    """Print a table, and leave it."""
    left.table(name, rows)
    print(f"# {name}\n{as_text(rows, screen_width())}")


SHOWN = 6
"""Columns of sizes, about as many; the figures have all."""

WITHIN = 1.04

def _optimum(rows: Sequence[Row]) -> list[str]:
    columns = ("fabric", "NPUs", "1/x*", "N x*, GB/s", "expected", "trees a root", "height", "in links",
               "bound, s", "trees, s", "all-reduce by cuts", "two phases", "best roots")
    first = ("fabric", "npus", "inverse_x", "optimum_GBps", "expected_GBps", "trees_a_root", "height", "hops")
    last = ("all_reduce_bound_GBps", "two_phase_GBps", "best_roots_GBps")
    return md_table(columns, [
        (*map(row.get, first), f"{row['bound_cpu_s']:.3f}", f"{row['trees_cpu_s']:.2f}", *map(row.get, last))
        for row in rows
    ])


def _times(rows: Sequence[Row]) -> list[str]:
    sizes = sorted({row["size_bytes"] for row in rows})
    shown = sizes[:: -(-len(sizes) // SHOWN)]
    lines: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        if row["algbw_GBps"] is not None:
            lines.setdefault((row["fabric"], row["collective"], row["algorithm"]), {})[row["size_bytes"]] = row
    return md_table(
        ("fabric", "collective", "algorithm", *map(format_size, shown), f"of the bound at {format_size(sizes[-1])}"),
        [(*names, *(line[size]["algbw_GBps"] for size in shown), f"{100 * line[sizes[-1]]['of_bound']:.1f} %")
         for names, line in lines.items()],
    )


def _ran(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        rates = [row[f"{what}_GBps"] for what in ("optimum", "forest_ran", "forest", "library_ran", "library")]
        lines.append((row["collective"], format_size(row["size_bytes"]), *(f"{rate:.1f}" for rate in rates),
                      f"{rates[1] / rates[3]:.2f}", f"{rates[2] / rates[4]:.2f}"))
    return md_table(("collective", "size", "optimum", "forest, measured", "forest, ours", "NCCL, measured",
                     "NCCL, ours", "ratio, measured", "ratio, ours"), lines)


def _refusals(rows: Sequence[Row]) -> list[str]:
    """Algorithms and the fabrics that they do not take."""
    refused: dict[str, list[str]] = {}
    for row in rows:
        if row["algbw_GBps"] is None and row["fabric"] not in refused.setdefault(row["algorithm"], []):
            refused[row["algorithm"]].append(row["fabric"])
    return [f"- {name} does not take {', '.join(fabrics)}." for name, fabrics in refused.items()]


def _by_chunks(rows: Sequence[Row], named: Mapping[str, str]) -> list[str]:
    """A line for each fabric; `named`: what is before and behind the chunks in the head, by column."""
    counts = list(dict.fromkeys(row["chunks"] for row in rows))
    fabrics = {fabric: [row for row in rows if row["fabric"] == fabric] for fabric in _fabrics(rows)}
    return md_table(("fabric", *(said.format(count) for said in named.values() for count in counts)), [
        (fabric, *(f"{row[name]:.4f}" for name in named for row in own)) for fabric, own in fabrics.items()
    ])


def _fabrics(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["fabric"] for row in rows))


def _late(rows: Sequence[Row]) -> str:
    """Fabrics that are not near the bound at 64 chunks, and why."""
    late = [row["fabric"] for row in rows if row["chunks"] == 64 and row["lowest-chunk-first"] > WITHIN]
    reason = ": the highest trees in links, each of which stores a chunk before it forwards it" if late else ""
    return f"Above {WITHIN:.2f} at 64 chunks: {', '.join(late) if late else 'none'}{reason}."


COLUMNS = 3


def draw_sizes(path: Path, kind: str, rows: Sequence[Row]) -> None:
    """Share of the bound that every algorithm reaches, by size, one panel per fabric.

    `kind`: collective of the rows, for the title.
    `rows`: "fabric", "algorithm", "size_bytes" and "of_bound"; None where an algorithm does not run.
    """
    fabrics, lines = _fabrics(rows), lines_of(row["algorithm"] for row in rows)
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
    shown = _fabrics(plateau)
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
