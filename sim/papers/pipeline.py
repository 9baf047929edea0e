"""Bandwidth-optimal pipeline schedules (arXiv 2305.18461, ForestColl): optimum, generation time, simulated bandwidth.

Leaves the tables `optimum`, `algbw`, `service` and `plateau`, their figures, and the page that explains them: the
optimum of each fabric beside the expected one, what every algorithm reaches at each size, and how the time over the
bound falls with the number of chunks, by service discipline and by how chunks are offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from time import process_time

from collectives import algorithm, build
from collectives.core.schedule import Schedule, schedule
from collectives.trees.forest import Forest, forest_pattern
from collectives.trees.pack import gather_forest, two_phase_rate_Bps
from collectives.trees.transitive import root_trees
from sim.analytic.cut_bound import cut_bound
from sim.papers.pipeline_page import draw_service, draw_sizes, page
from sim.papers.tables import Row, as_text, write_table
from sim.simulation import simulate
from sim.study.tables import screen_width
from sim.whole_file import write_text_whole
from topologies import Topology, WeftError, from_spec
from topologies.flows.programs import best_roots
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

FAT_TREES = ("leaf-spine:4x4x4", "fat-tree:4")
"""Of two and three levels."""

QUICK = ("dgx-a100:2", "mi250:1", "torus:4x4", "random-regular:16x4x1")

PLATEAU = ("torus:4x4", "dgx1:1", "dgx-a100:2", "mi250:1")
"""Fabrics on which all chunks are also offered at once."""

ALGORITHMS = ("pipelined", "bfb", "tacos", "nccl-rings", "ring", "swing", "double-binary-tree")

KINDS = ("all-gather", "all-reduce")
SIZES = tuple(2**power for power in range(10, 31, 2))
QUICK_SIZES = (2**12, 2**20, 2**28)

CHUNKS = (4, 16, 64, 256)
LARGE = 2**30
LEAST_CHUNK_BYTES = 256
"""Smallest part of a shard in the search for the best number of chunks."""

PROGRAM_NPUS = 36
"""NPUs up to which the linear program of an all-reduce is solved: seconds."""


def run(out: Path, quick: bool) -> None:
    """Compute everything, print the tables and write them with the page and the figures to `out`."""
    specs = QUICK if quick else (*FABRICS, *FAT_TREES)
    optimum_row(specs[0])  # compiles the flows, which is not what is measured
    optimum = [optimum_row(spec) for spec in specs]
    _leave(out / "optimum", optimum)
    times = [row for spec in specs for row in time_rows(spec, QUICK_SIZES if quick else SIZES)]
    write_table(out / "algbw.csv", times)
    chunks = CHUNKS[:3] if quick else CHUNKS
    service = [row for spec in specs for row in service_rows(spec, chunks)]
    _leave(out / "service", service)
    plateau = [row for spec in PLATEAU for row in plateau_rows(spec, chunks[:3])]
    _leave(out / "plateau", plateau)
    leave_page(out, optimum, times, service, plateau)


def leave_page(
    out: Path, optimum: Sequence[Row], times: Sequence[Row], service: Sequence[Row], plateau: Sequence[Row]
) -> None:
    """The page of the four tables, and the figures."""
    text = page(optimum, times, service, plateau)
    write_text_whole(out / "pipeline.md", text)
    print(text)
    for kind in KINDS:
        draw_sizes(out / f"pipeline-{kind}.png", kind, [row for row in times if row["collective"] == kind])
    draw_service(out / "pipeline-service.png", service, plateau)


@lru_cache(maxsize=32)
def _fabric(spec: str) -> Topology:
    bandwidth = FABRICS.get(spec, ("1GB/s", None))[0]
    machine = bandwidth is None
    return from_spec(
        spec, bandwidth, GPU_LATENCY if machine else LATENCY, GPU_HOP_LATENCY if machine else HOP_LATENCY
    )


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
    return min(
        (simulate(built, chunks=chunks, discipline=_discipline(name)).time_s, chunks)
        for chunks in (1, 8, 64) if chunks == 1 or shard >= chunks * LEAST_CHUNK_BYTES
    )


def _discipline(name: str) -> str:
    return "lowest-chunk-first" if name in ("pipelined", "bfb") else "fifo"


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


def _leave(path: Path, rows: Sequence[Row]) -> None:
    """Print a table, and write it as CSV."""
    write_table(path.with_suffix(".csv"), rows)
    print(f"# {path.name}\n{as_text(rows, screen_width())}")
