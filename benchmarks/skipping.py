"""Stretches that repeat: services simulated of all, and runs with and without skipping in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

import numpy as np

from benchmarks.stages import cpu_s
from collectives import build
from sim.engine.run import run
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from topologies import from_spec
from topologies.units import format_size

CHUNKS = 4096
SIZES = ("512MiB", "4GiB", "64GiB")
"""A chunk of the first takes much less than the latency of a link, one of the last longer."""
FROM = [2**power for power in range(26, 37)]
"""64 MiB to 64 GiB."""

CASES = (
    ("ring:64", "ring", "all-reduce", 150), ("torus:8x8", "ring", "all-reduce", 150),
    ("torus:8x8", "bucket", "all-reduce", 150), ("torus:8x8", "swing", "all-reduce", 150),
    ("fat-tree:4", "ring", "all-reduce", 150), ("fat-tree:4", "swing", "all-reduce", 150),
    ("fat-tree:4", "recursive-doubling", "all-reduce", 150), ("switch:16", "direct", "all-reduce", 150),
    ("torus:8x8", "in-network", "all-reduce", 150), ("fat-tree:4", "in-network", "all-reduce", 150),
    ("switch:16", "in-network", "all-reduce", 150), ("torus:8x8", "pipelined", "all-gather", 30),
    ("fat-tree:4", "pipelined", "all-gather", 30), ("torus:4x4x4", "hierarchical", "all-reduce", 50),
    ("torus:8x8", "recursive-doubling", "all-reduce", 6),
    ("switch:16", "parameter-server", "all-reduce", 50), ("fat-tree:4", "parameter-server", "all-reduce", 20),
    ("switch:16", "parameter-server", "all-reduce", 500, 65_536),
    ("fat-tree:4", "parameter-server", "all-reduce", 200, 65_536),
)
"""With what part of all services is to be simulated at most: one in so many; and chunks per transfer, if others."""
HEAD = ("4,096 chunks", "services", "wanted: one in", "reached from", *(
    f"{size}: {what}" for size in SIZES for what in ("simulated", "one in", "ms without", "ms with")))
NOTE = (
    "Wanted: one service in so many is to be simulated, or fewer. Reached from: the size from which on every larger "
    "one has that, of those that double from 64 MiB on."
)

NOTHING = (
    ("torus:8x8", "direct", "all-to-all", 4096, "auto"), ("torus:8x8", "direct", "all-to-all", 128, "off"),
    ("torus:16x16", "direct", "all-to-all", 1024, "auto"),
    ("torus:8x8", "parameter-server", "all-reduce", 512, "auto"),
    ("random-regular:64x4x1", "ring", "all-reduce", 256, "auto"),
    ("torus:8x8", "double-binary-tree", "all-reduce", 512, "auto"),
)
NOTHING_HEAD = ("512 MiB", "chunks", "symmetry", "services", "ms without", "ms with", "with / without")
PAIRS = 15
"""Differences of some per cent take more of them."""


def nothing_row(fabric: str, algorithm: str, collective: str, chunks: int, symmetry: str) -> Sequence[str]:
    """A schedule in which nothing is skipped: what it costs to try."""
    schedule = build(algorithm, collective, from_spec(fabric), SIZES[0])
    program = lower(schedule, Model(chunks=chunks), symmetry).program
    found = run(program)
    assert found.skipped == 0
    without, skipping, ratio = in_turn(program, PAIRS)
    times = f"{without:.1f}", f"{skipping:.1f}", f"{ratio:.3f}"
    return f"{algorithm} {collective} on {fabric}", f"{chunks:,}", symmetry, f"{found.events:,}", *times


def row(fabric: str, algorithm: str, collective: str, wanted: int, chunks: int = CHUNKS) -> Sequence[str]:
    """One schedule, one representative of the symmetry, at all sizes."""
    def at(size: str | int) -> Program:
        return lower(build(algorithm, collective, from_spec(fabric), size), Model(chunks=chunks)).program

    cells: list[str] = []
    for size in SIZES:
        program = at(size)
        whole, found = run(program, skip=False), run(program)
        assert np.array_equal(whole.finish_ps, found.finish_ps) and whole.events == found.events
        simulated = found.events - found.skipped
        without, skipping, _ = in_turn(program)
        cells += [f"{simulated:,}", f"{found.events / simulated:.0f}", f"{without:.1f}", f"{skipping:.1f}"]
    reached = "-"
    for size in reversed(FROM):
        found = run(at(size))
        if (found.events - found.skipped) * wanted > found.events:
            break
        reached = format_size(size)
    name = f"{algorithm} {collective} on {fabric}" + f", {chunks:,} chunks" * (chunks != CHUNKS)
    return name, f"{found.events:,}", str(wanted), reached, *cells


def in_turn(program: Program, times: int = 5) -> tuple[float, float, float]:
    """Median ms of CPU without skipping and with it, and the median of what the second is to the first."""
    pairs = [[cpu_s(partial(run, program, skip=skip)) * 1e3 for skip in (False, True)] for _ in range(times)]
    without, skipping = zip(*pairs, strict=True)
    return median(without), median(skipping), median(after / before for before, after in pairs)
