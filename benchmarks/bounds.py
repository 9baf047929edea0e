"""`python -m benchmarks.bounds`: what bounds and packed trees cost, and how near runs come: docs/reference/bounds.md.
The first of them are measured by `python -m benchmarks` as well, which README quotes.

CPU seconds of this process, compiled beforehand, every fabric fresh.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, redirect_stdout
from functools import partial
from io import StringIO
from itertools import starmap
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, TypeVar

import numpy as np

from benchmarks.between import HEADS, WHY, crossings
from collectives import Schedule, build, concurrent_flow, direct, pipelined
from collectives.trees.pack import gather_forest, pack_forest
from collectives.trees.shares import gather_shares
from sim import simulate
from sim.analytic.bounds import bounds
from sim.analytic.cut_bound import cut_bound
from sim.cli import main as weft
from sim.cli.bound import bound_rows
from sim.papers.pipeline import LARGE, all_at_once
from sim.program.model import make_model
from sim.program.model_options import DEFAULT_CHUNKS
from sim.result import Result
from sim.study.choice import choose
from sim.study.tables import aligned
from sim.whole_file import write_text_whole
from tests.fabrics import random_fabric
from topologies import from_spec
from topologies.flows.programs import all_to_all_rate_Bps
from topologies.flows.tightest_cut import gather_cut
from topologies.units import format_time

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "bounds.md"

BOUNDS = ("dgx-a100:128", "torus:32x32", "torus:8x8x16", "mesh:32x32", "random-regular:1024x8x1", "hypercube:10")
"""1,024 NPUs each."""

PACKED = (
    ("torus:8x8", False),
    ("random-regular:64x4x1", False),
    ("mesh:8x8", False),
    ("mi250:4", False),
    ("torus:8x8", True),
    ("random-regular:64x4x1", True),
    ("mesh:8x8", True),
    ("mi250:4", True),
    ("dgx-a100:8", True),
    ("random-regular:256x4x1", False),
    ("torus:16x16", False),
)
"""Spec, and whether all trees grow level by level; the trees of tori are packed here as if their NPUs differed."""

LOW = ("dgx-a100:2", "dgx-a100:8", "dgx-h100:8", "leaf-spine:8x8x2", "leaf-spine:16x8x8", "fat-tree:4", "fat-tree:8")
"""Behind switches: low trees as they are by default, where a greedy pass finds them."""

SWITCHED: tuple[tuple[str, str | tuple[str, ...], int], ...] = (
    ("switch:8", "50GB/s", 1),
    ("leaf-spine:4x4x1", ("50GB/s", "20GB/s"), 1),
    ("leaf-spine:4x4x1", ("50GB/s", "400GB/s"), 1),
    ("leaf-spine:4x4x2", ("50GB/s", "20GB/s"), 2),
    ("fat-tree:4", ("50GB/s", "20GB/s", "20GB/s"), 2),
    ("fat-tree:4", ("50GB/s", "200GB/s", "200GB/s"), 1),
)
"""Fabrics whose switches multicast and reduce, the rates of their tiers, and trees."""

REDUCED = (
    ("all-reduce", "push"), ("all-reduce", "pull"), ("all-gather", ""), ("reduce-scatter", ""), ("broadcast", ""),
    ("reduce", ""),
)

BOXES = "dgx-a100:2", "dgx-h100:2"
BOXED = (("nvls-trees", ""), ("in-network", "rail-wise"), ("pipelined", "best-roots"))

_POSTED = {"posted": True}
THOUSANDS: tuple[tuple[str, str, str, dict[str, object]], ...] = (
    *(("fat-tree:16", kind, "ring", {}) for kind in ("all-gather", "all-reduce")),
    *(("dgx-h100:128", kind, "nccl-rings", _POSTED) for kind in ("all-gather", "all-reduce")),
    *(("random-regular:1024x8", kind, "pipelined", {}) for kind in ("all-gather", "all-reduce")),
    *(("dragonfly:33x32", kind, "pipelined", {}) for kind in ("all-gather", "all-reduce")),
    ("torus:8x8x8", "all-to-all", "concurrent-flow", {}),
)
PLAIN = (
    ("mesh:4x4, one link at 9.99 of 10 GB/s", "--topology slow.json"),
    ("mesh:4x4, decimal rates", "--topology mesh:4x4 --link-bandwidth 9.7GB/s,3.3GB/s"),
    ("torus:3x5, decimal rates", "--topology torus:3x5 --link-bandwidth 12.5GB/s,7.3GB/s"),
    ("leaf-spine, 4:1", "--topology leaf-spine:4x8x2"),
    ("fat-tree:4", "--topology fat-tree:4"),
    ("dgx-a100:2", "--topology dgx-a100:2"),
    ("dgx-h100:2", "--topology dgx-h100:2"),
)
PLAIN_KINDS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all")
SLOW = "edges", 5, 9.99e9  # of the file that weft topology --topology mesh:4x4 --link-bandwidth 10GB/s --output writes

SKEWED = "dgx-h100:4"
SKEWS = ("zipf:0", "zipf:0.5", "zipf:0.9", "zipf:1.2", "zipf:2", "zipf:3", "moe:0.5", "moe:0.9", "moe:1.2", "moe:3")

ALIKE = ("torus:64x64", "torus:16x16x16", "hypercube:12")
"""4,096 NPUs each."""

SCATTERED = (
    "torus:4x4",
    "torus:8x8",
    "mesh:4x4",
    "hypercube:4",
    "random-regular:16x4x1",
    "random-regular:32x4x7",
    "dragonfly:9x4",
    "dgx1:1",
    "mi250:1",
    "dgx-a100:2",
    "leaf-spine:4x4x4",
)

HEAD = ("what", "fabric", "CPU s")
BOUND, TREES = "bound of an all-gather, 1,024 NPUs", "packed trees"
TREES_ALIKE = "packed trees by symmetry, and their proof"

RANDOM = 50
NEAR = 1.04
MOST_CHUNKS, PLATEAU_CHUNKS = 1024, 64

Line = list[str]
T = TypeVar("T")


def main() -> None:
    """Measure everything, print it and write the page."""
    _warm()
    lines = [
        "# Exact bounds and packed trees",
        "",
        "`python -m benchmarks.bounds` writes this page. CPU seconds, two shared cores.",
        "",
    ]
    lines += _table("Bound of an all-gather, 1,024 NPUs", ["fabric", "1/x*", "CPU s"], map(_bound, BOUNDS))
    lines += _table(
        "Packing",
        ["fabric", "NPUs", "growth", "trees", "height", "hops", "CPU s"],
        (*(_packed(*which) for which in PACKED), *map(_low, LOW)),
    )
    lines += _table(
        "4,096 NPUs that are alike: the schedule, proved", ["fabric", "trees a root", "CPU s"], map(_alike, ALIKE)
    )
    lines += _random()
    lines += _table(
        "All-to-all of 64 MiB: simulated time over that of the maximum concurrent flow, best of 1, 4 and 16 chunks",
        ["fabric", "concurrent-flow", "direct", "direct, ties split", "CPU s of the routes"],
        map(_scattered, SCATTERED),
    )
    lines += switched()
    lines += plain()
    lines += between()
    lines += thousands()
    lines += skewed()
    write_text_whole(PAGE, "\n".join(lines).rstrip() + "\n")


def rows() -> Iterator[Line]:
    """Rows of the table of `python -m benchmarks`."""
    _warm()
    yield from ([BOUND, spec, _bound(spec)[-1]] for spec in BOUNDS)
    yield from ([TREES, spec, _packed(spec, level=False)[-1]] for spec, level in PACKED if not level)
    yield from ([TREES_ALIKE, spec, _alike(spec)[-1]] for spec in ALIKE)


def _warm() -> None:
    """Compile and import what is measured."""
    cut_bound(from_spec("dgx-a100:2"), "all-gather")
    pack_forest(from_spec("dgx-a100:2"), gather_shares(from_spec("dgx-a100:2")), level=False)
    pipelined.all_gather(from_spec("torus:4x4"), LARGE)


def _bound(spec: str) -> Line:
    topology = from_spec(spec, bandwidth=None if spec.startswith("dgx") else "1GB/s")
    cut, cpu_s = _timed(lambda: gather_cut(topology))
    assert cut is not None
    return [spec, str(cut.s_per_byte * 10**9), f"{cpu_s:.2f}"]


def switched() -> list[str]:
    """How near in-network aggregation comes to the bound of switches that multicast and reduce."""
    head = ["fabric", "rates of the tiers", "trees", *(f"{kind} {form}".strip() for kind, form in REDUCED)]
    title = (
        "Switches that multicast and reduce: `in-network` over `weft bound --reducing-switches`, 64 MiB in 256 chunks"
    )
    between = _table(
        "The same, all-reduce between boxes: 64 MiB in as many chunks as `weft compare` chooses",
        ["fabric", *(" ".join(one).strip() for one in BOXED)],
        ([spec, *starmap(partial(_of_program, spec), BOXED)] for spec in BOXES),
    )
    return [
        *_table(title, head, (_switched(*which) for which in SWITCHED)),
        "A rank that loads a sum (pull, reduce-scatter) sends its own part through the switch as well, n + 1 parts for",
        "n, as an NVLink does: 1 + 1/n, and n/(n - 1), are what to expect where the links of NPUs are the bottleneck.",
        "",
        *between,
        "The links of dgx-h100 run at 0.835 of their bandwidth where their switches reduce, as measured: 375.75 of 450",
        "GB/s. The bound by cuts, 400 GB/s, does not count that what a NIC brings crosses the switch as well; the",
        "linear program of trees with switches that multicast and reduce does, on those links: 377.4 GB/s",
        "(`weft bound` prints both). `pipelined` is with `--option switches=reduce`: its trees pass the switches of",
        "the boxes as nodes. With switches that forward its own optimum is 87 and 71 % of these bounds.",
        "",
    ]


def _switched(spec: str, rates: str | tuple[str, ...], trees: int) -> Line:
    over = (_over_ideal(spec, rates, kind, "in-network", form, trees=trees) for kind, form in REDUCED)
    return [spec, rates if isinstance(rates, str) else ", ".join(rates), str(trees), *over]


def _of_program(spec: str, name: str, form: str) -> str:
    """Over the linear program of switches that reduce at the rate that the fabric says."""
    options = {"switches": "reduce"} if name == "pipelined" else {}
    built = build(name, "all-reduce", from_spec(spec), "64MiB", form or None, **options)
    ideal = bound_rows(from_spec(spec), "all-reduce", reducing_switches=True)[-1]["s_per_GB"] * built.size_bytes / 1e9
    return f"{_as_compared(built).time_s / ideal:.4f}"


def _as_compared(built: Schedule) -> Result:
    """In as many chunks as suit it, as `weft compare` runs it."""
    return choose(built, make_model(chunks=DEFAULT_CHUNKS), lambda tried, model: simulate(tried, model=model))


def _over_ideal(
    spec: str, rates: str | tuple[str, ...] | None, kind: str, name: str, form: str, **options: int
) -> str:
    topology = from_spec(spec, bandwidth=rates)
    built = build(name, kind, topology, "64MiB", form or None, **options)
    ideal = float(cut_bound(topology, kind, reducing_switches=True).s_per_byte) * built.size_bytes
    return f"{simulate(built, chunks=256).time_s / ideal:.4f}"


def plain() -> list[str]:
    """What plain commands say of fabrics with rates for which nothing was chosen."""
    rows = []
    with TemporaryDirectory() as folder, chdir(folder):
        _run("topology --topology mesh:4x4 --link-bandwidth 10GB/s --output slow.json")
        slow, (edges, at, rate_Bps) = json.loads(Path("slow.json").read_text()), SLOW
        slow[edges][at]["bandwidth_Bps"] = rate_Bps
        Path("slow.json").write_text(json.dumps(slow))
        for what, flags in PLAIN:
            shares = []
            for kind in PLAIN_KINDS:
                name = "concurrent-flow" if kind == "all-to-all" else "pipelined"
                (ran,) = _run(f"compare {flags} --collective {kind} --algorithm {name} -b 256M")
                known = _run(f"bound {flags} --collective {kind} --program --no-reducing-switches")
                best = {one["by"]: one["s_per_GB"] for one in known}
                ideal_s = best.get("linear program", best["cut"]) * 2**28 / 1e9
                shares.append(f"{100 * ideal_s / ran['time_s']:.1f} %")
            rows.append([what, f"`{flags}`", *shares])
    title = "Of the optimum at 256 MiB: one slow link, decimal rates, four to one, switches that only forward"
    return [
        *_table(title, ["fabric", "flags", *PLAIN_KINDS], rows),
        "By `weft compare FLAGS --collective NAME --algorithm pipelined -b 256M` (all-to-all: `concurrent-flow`),",
        "over the cut, or for all-reduce and all-to-all the linear program, of `weft bound FLAGS --collective NAME",
        "--program --no-reducing-switches`. `slow.json` is written by `weft topology --topology mesh:4x4",
        "--link-bandwidth 10GB/s --output slow.json`, with 9.99e9 for the `bandwidth_Bps` of one of its edges.",
        "",
    ]


def _run(command: str) -> list[dict[str, Any]]:
    """The rows of a command of weft."""
    shown = [] if command.startswith("topology") else ["--json", "out.json"]
    with redirect_stdout(StringIO()):
        assert weft([*command.split(), *shown]) == 0, command
    return json.loads(Path("out.json").read_text())["rows"] if shown else []


def between() -> list[str]:
    """What Bine sends between groups."""
    title = "Bine: bytes between groups of a dragonfly or 2:1 leaf-spine, over the binomial algorithms in use"
    return [*_table(title, HEADS, crossings()), *WHY.splitlines(), ""]


def thousands() -> list[str]:
    """Built, proved and simulated."""
    head = ["fabric", "NPUs", "collective", "algorithm", "proof", "time", "over the bound", "CPU s"]
    return _table("1,024 NPUs that are not alike, 4 GiB; an all-to-all of 64 MiB on 512", head,
                  (_thousand(*which) for which in THOUSANDS))


def _thousand(spec: str, kind: str, name: str, options: dict[str, object]) -> Line:
    topology, size = from_spec(spec), 2**26 if kind == "all-to-all" else 2**32
    run, cpu_s = _timed(lambda: simulate(build(name, kind, topology, size, **options)))
    over = run.time_s / float(cut_bound(topology, kind).s_per_byte * size)
    return [spec, f"{topology.n_npus:,}", kind, name, run.schedule.proof, format_time(run.time_ps), f"{over:.4f}",
            f"{cpu_s:.1f}"]


def skewed() -> list[str]:
    """An all-to-all whose pairs are unequal."""
    topology = from_spec(SKEWED)
    rng, n, box = np.random.default_rng(0), topology.n_npus, np.kron(np.eye(4), np.ones((8, 8)))
    drawn = {
        "30 times as much inside of boxes": rng.random((n, n)) * (29 * box + 1),
        "lognormal, sigma 2": rng.lognormal(0, 2, (n, n)),
        "one source sends 20 times as much": np.where(np.arange(n) == 5, 20, 1)[:, None] * np.ones((n, n)),
        "3 % of the pairs": (rng.random((n, n)) < 0.03) + 1e-12,
    }
    rows = []
    for what, pairs in {**{skew: skew for skew in SKEWS}, **drawn}.items():
        times, took = [], []
        for name in ("fast", "concurrent-flow", "direct", "pairwise"):
            built, cpu_s = _timed(partial(build, name, "all-to-all", topology, "64MiB", pairs=pairs))
            best = _as_compared(built)
            times.append(best.time_ps / bounds(best.lowered).cut_ps)
            took.append(cpu_s)
        rows.append([what, *(f"{over:.3f}" for over in times), *(f"{cpu_s:.2f}" for cpu_s in took[:2])])
    title = f"All-to-all with sizes per pair on {SKEWED}, 64 MiB of a rank on average: over the bound"
    return _table(title, ["pairs", "fast", "concurrent-flow", "direct", "pairwise", "CPU s to build fast",
                          "concurrent-flow"], rows)


def _low(spec: str) -> Line:
    topology = from_spec(spec)
    forest, cpu_s = _timed(lambda: gather_forest(topology))
    return [
        spec, str(topology.n_npus), "low", str(len(forest.trees)), str(forest.height), str(forest.hops), f"{cpu_s:.2f}"
    ]


def _packed(spec: str, level: bool) -> Line:
    topology = from_spec(spec)
    forest, cpu_s = _timed(lambda: pack_forest(topology, gather_shares(topology), level, None))
    growth = "level by level" if level else "one after the other"
    return [
        spec,
        str(topology.n_npus),
        growth,
        str(len(forest.trees)),
        str(forest.height),
        str(forest.hops),
        f"{cpu_s:.2f}",
    ]


def _alike(spec: str) -> Line:
    built, cpu_s = _timed(lambda: pipelined.all_gather(from_spec(spec), LARGE))
    return [spec, str(built.pattern.n_blocks // built.pattern.p), f"{cpu_s:.2f}"]


def _random() -> list[str]:
    """Chunks, doubled, with which each random fabric is within 4 %, by service; and FIFO with all offered at once."""
    counts: dict[str, Counter[int]] = {"lowest-chunk-first": Counter(), "fifo": Counter()}
    plateau = []
    for seed in range(RANDOM):
        topology = random_fabric(20_000 + seed)
        built = pipelined.all_gather(topology, LARGE)
        for discipline, found in counts.items():
            chunks = 1
            while _over_bound(built, chunks, discipline) > NEAR and chunks < MOST_CHUNKS:
                chunks *= 2
            found[chunks] += 1
        at_once = all_at_once(gather_forest(topology), PLATEAU_CHUNKS)
        plateau.append(_over_bound(at_once, 1, "fifo"))
    steps = sorted({chunks for found in counts.values() for chunks in found})
    rows = [[str(chunks), *(str(found[chunks]) for found in counts.values())] for chunks in steps]
    lines = _table(
        f"{RANDOM} random fabrics, all-gather of 1 GiB, store-and-forward: chunks until within 4 %",
        ["chunks", "lowest chunk first", "FIFO"],
        rows,
    )
    far = sum(over > NEAR for over in plateau)
    summary = (
        f"FIFO with {PLATEAU_CHUNKS} chunks that the roots offer all at once: {far} of {RANDOM} stay above "
        f"{NEAR}, the median at {median(plateau):.3f}, the worst at {max(plateau):.3f}."
    )
    print(summary)
    return [*lines, summary, ""]


def _over_bound(built: Schedule, chunks: int, discipline: str) -> float:
    bound = cut_bound(built.topology, "all-gather").s_per_byte * built.size_bytes
    run = simulate(built, chunks=chunks, discipline=discipline, forwarding="store-and-forward")
    return run.time_s / float(bound)


def _scattered(spec: str) -> Line:
    topology = from_spec(spec)
    size = 2**26
    built, cpu_s = _timed(lambda: concurrent_flow.all_to_all(topology, size))
    least_s = size / topology.n_npus / all_to_all_rate_Bps(topology)
    plain = direct.all_to_all(topology, size)
    times = (_best_s(built, "first"), _best_s(plain, "first"), _best_s(plain, "split"))
    return [spec, *(f"{time_s / least_s:.3f}" for time_s in times), f"{cpu_s:.2f}"]


def _best_s(built: Schedule, tie: str) -> float:
    return min(simulate(built, chunks=chunks, tie=tie).time_s for chunks in (1, 4, 16))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = process_time()
    return work(), process_time() - started


def _table(title: str, head: Line, rows: Iterable[Line]) -> list[str]:
    """A section of the page; printed as well."""
    print(f"\n## {title}\n", flush=True)
    found = list(rows)
    print(aligned([head, *found], left=1), flush=True)
    return [f"## {title}", "", *_markdown([head, *found]), ""]


def _markdown(rows: list[Line]) -> Iterator[str]:
    for at, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if at == 0:
            yield "|" + "---|" * len(row)


if __name__ == "__main__":
    main()
