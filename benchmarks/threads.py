"""One run on several threads: runs on one and on two in turn, by the clock, and what more would gain on paper."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter, sleep

import numpy as np

from collectives import build
from sim.engine import parts
from sim.engine.run import Run
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from topologies import from_spec

CHUNK_BYTES = 8192
MOST_SERVICES = 20_000_000
"""Services of a run at most: of a longer one, the first."""
REST_S = 0.7
"""Before each run: of each second, Linux keeps a twentieth from processes of real-time priority."""

CASES = (
    ("torus:64x64", "recursive-doubling", "4MiB", "auto"), ("torus:64x64", "recursive-doubling", "4MiB", "off"),
    ("random-regular:1024x4x1", "ring", "256MiB", "off"), ("torus:16x16", "direct", "512MiB", "off"),
)
NOTE = (
    "Medians of runs in turn, on the clock, at a real-time priority where the system grants it. How many times as fast "
    "several threads are at best is on paper: by the balance of the parts and what they send."
)
KINDS = {"direct": "all-to-all"}
PAPER = (4, 16)
HEAD = (
    "8 KiB chunks", "symmetry", "services", "in a window", "one thread, s", "two threads, s", "ratio",
    *(f"at best on {n}" for n in (2, *PAPER)),
)


def rows(times: int) -> Iterator[Sequence[str]]:
    """All cases, apart from what else the machine does."""
    with _apart():
        yield from (row(*case, times) for case in CASES)


@contextmanager
def _apart() -> Iterator[None]:
    """A real-time priority, where the system grants it: threads that lose their core to others wait for each other."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (AttributeError, PermissionError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def row(fabric: str, algorithm: str, size: str, symmetry: str, times: int) -> Sequence[str]:
    """Medians of runs in turn; where there is one core, two threads take turns on it."""
    schedule = build(algorithm, KINDS.get(algorithm, "all-reduce"), from_spec(fabric), size)
    program = lower(schedule, Model(chunks=None, chunk_bytes=CHUNK_BYTES), symmetry).program
    cuts = {n: parts.cut(program, n) for n in (2, *PAPER)}
    once(program, 2)  # compiled
    pairs = [(once(program, 1), once(program, 2)) for _ in range(times)]
    one, two = (median(of_all) for of_all in zip(*pairs, strict=True))
    run = Run(program, skip=False)
    run.advance(MOST_SERVICES)
    width = run.events * cuts[2].ahead_ps / run.now_ps
    return (
        f"{algorithm} on {fabric}", symmetry, f"{run.events:,}", f"{width:,.0f}", f"{one:.3f}", f"{two:.3f}",
        f"{median(np.divide(*np.transpose(pairs))):.2f}", *(f"{cut.gain:.1f}" for cut in cuts.values()),
    )


def once(program: Program, threads: int) -> float:
    """Seconds of a run on the clock, from its second picosecond on."""
    run = Run(program, skip=False, threads=threads)
    run.advance(1)
    run.spread()
    sleep(REST_S)
    began = perf_counter()
    run.advance(MOST_SERVICES)
    return perf_counter() - began
