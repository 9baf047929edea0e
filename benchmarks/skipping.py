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

CHUNKS = 4096
SIZES = ("512MiB", "64GiB")
"""A chunk of the first takes much less than the latency of a link, one of the second longer."""

CASES = (
    ("ring:64", "ring", "all-reduce"), ("torus:8x8", "ring", "all-reduce"), ("torus:8x8", "bucket", "all-reduce"),
    ("torus:8x8", "swing", "all-reduce"), ("fat-tree:4", "ring", "all-reduce"), ("switch:16", "direct", "all-reduce"),
    ("torus:8x8", "in-network", "all-reduce"), ("torus:8x8", "pipelined", "all-gather"),
    ("torus:4x4x4", "hierarchical", "all-reduce"), ("torus:8x8", "recursive-doubling", "all-reduce"),
    ("torus:8x8", "direct", "all-to-all"),
)
HEAD = ("4,096 chunks", "services", *(f"{size}: {what}" for size in SIZES for what in (
    "simulated", "one in", "ms without", "ms with")))

NOTHING = (
    ("torus:8x8", 4096, "auto"), ("torus:8x8", 128, "off"), ("torus:16x16", 1024, "auto"), ("torus:16x16", 16, "off"),
)
NOTHING_HEAD = ("direct all-to-all", "chunks", "symmetry", "services", "ms without", "ms with", "with / without")
PAIRS = 15
"""Differences of some per cent take more of them."""


def nothing_row(fabric: str, chunks: int, symmetry: str) -> Sequence[str]:
    """A schedule in which nothing is skipped: what it costs to try."""
    program = lower(build("direct", "all-to-all", from_spec(fabric), SIZES[0]), Model(chunks=chunks), symmetry).program
    found = run(program)
    assert found.skipped == 0
    without, skipping, ratio = in_turn(program, PAIRS)
    return fabric, f"{chunks:,}", symmetry, f"{found.events:,}", f"{without:.1f}", f"{skipping:.1f}", f"{ratio:.3f}"


def row(fabric: str, algorithm: str, collective: str) -> Sequence[str]:
    """One schedule, one representative of the symmetry, at both sizes."""
    cells: list[str] = []
    for size in SIZES:
        program = lower(build(algorithm, collective, from_spec(fabric), size), Model(chunks=CHUNKS)).program
        whole, found = run(program, skip=False), run(program)
        assert np.array_equal(whole.finish_ps, found.finish_ps) and whole.events == found.events
        simulated = found.events - found.skipped
        without, skipping, _ = in_turn(program)
        cells += [f"{simulated:,}", f"{found.events / simulated:.0f}", f"{without:.1f}", f"{skipping:.1f}"]
    return f"{algorithm} {collective} on {fabric}", f"{found.events:,}", *cells


def in_turn(program: Program, times: int = 5) -> tuple[float, float, float]:
    """Median ms of CPU without skipping and with it, and the median of what the second is to the first."""
    pairs = [[cpu_s(partial(run, program, skip=skip)) * 1e3 for skip in (False, True)] for _ in range(times)]
    without, skipping = zip(*pairs, strict=True)
    return median(without), median(skipping), median(after / before for before, after in pairs)
