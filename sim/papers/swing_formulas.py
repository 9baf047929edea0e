"""The Swing page: fabrics of which no points are published, beside closed forms at no load and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from sim.papers.swing_points import ALGORITHMS, BASELINES, MIB, worker_count
from sim.papers.tables import md_head
from sim.study.keys import CollectiveKeys, ModelKeys, TopologyKeys
from sim.study.points import Task, compute_all
from sim.study.spec import Spec

FABRICS = {"Hx4Mesh": ("hx4mesh:16x16", "swing-hx"), "HyperX": ("hyperx:64x64", "swing-sst")}
"""HyperX has no rings, and so one virtual channel."""
WIDTH, BOARD = 64, 4

SLOW_US, FAST_US, HOP_US = 0.72, 0.314, 0.92
"""A step from edge to edge through a switch, along a trace of a board, and over a link of HyperX."""

TEXT = (
    "4,096 NPUs in a square: boards of 4x4 with `--preset swing-hx`, and HyperX with `--preset swing-sst --vcs 1`. No",
    "published points of these are at hand; beside the simulated values are closed forms of no load, and bounds.",
    f"A step takes s = {SLOW_US} us from edge to edge through a switch, f = {FAST_US} us along a trace, {HOP_US} us on",
    "HyperX.",
    "On lines of W NPUs with boards of b, bucket takes 4 (s W/b + f (W - 1 - W/b)), the ring",
    "2 (p - 1) (s + f (b - 1)) / b; on HyperX, bucket has 4 (W - 1) steps, Swing and recursive doubling 2 log2 W.",
    "Where there is no closed form, the bound at 32 B is the longest chain of steps.",
)


def of_formulas() -> Iterator[str]:
    """The page's section, computed."""
    yield "## Larger boards, and HyperX"
    yield ""
    yield from TEXT
    yield ""
    yield from md_head(
        "topology", "algorithm", "32 B, us", "closed form", "bound", "512 MiB, Gb/s", "bound", numbers=5
    )
    places = [(name, label) for name in FABRICS for label in BASELINES if (name, label) != ("HyperX", "Ring")]
    sizes = (32, 512 * MIB)
    rows = compute_all([task_of(*place, size) for place in places for size in sizes], worker_count())
    for (name, label), small, large in zip(places, rows[::2], rows[1::2], strict=True):
        times = (1e6 * small["time_s"], zero_load_us(name, label), 1e6 * small["lower_bound_s"])
        goodputs = (8e-9 * sizes[1] / large[key] for key in ("time_s", "lower_bound_s"))
        cells = ["-" if one is None else f"{one:.2f}" for one in (*times, *goodputs)]
        yield f"| {name} | {label} | {' | '.join(cells)} |"


def task_of(name: str, label: str, size_bytes: int) -> Task:
    """The point of a fabric and an algorithm."""
    fabric, preset = FABRICS[name]
    options = ("pairs=shifted",) if (name, label) == ("Hx4Mesh", "RecDoub") else None
    model = ModelKeys(preset=preset, vcs=1)
    spec = Spec(topology=TopologyKeys(spec=fabric), model=model, collective=CollectiveKeys(options=options))
    return Task(spec, ALGORITHMS[label], size_bytes)


def zero_load_us(name: str, label: str) -> float | None:
    """Closed form of small arrays; None for butterflies on boards of 4, whose steps differ from rank to rank."""
    if name == "HyperX":
        return HOP_US * (4 * (WIDTH - 1) if label == "Bucket" else 2 * log2(WIDTH))
    crossings = WIDTH // BOARD
    return {
        "Bucket": 4 * (crossings * SLOW_US + (WIDTH - 1 - crossings) * FAST_US),
        "Ring": 2 * (WIDTH**2 - 1) * (SLOW_US + (BOARD - 1) * FAST_US) / BOARD,
    }.get(label)
