"""One run on several threads: runs on one and on two in turn, by the clock, and what more would gain on paper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any

import numpy as np

from collectives import build
from sim.engine.run import Run
from sim.engine.threads import parts
from sim.lower.job import lower
from sim.program import Program
from sim.program.model import Model
from topologies import from_spec

CHUNK_BYTES = 8192
PROCESSES, PAIRS = 3, 4
"""Processes of a case, and pairs of runs in each."""
MOST_SERVICES = 20_000_000
"""Services of a run at most: of a longer one, the first."""
REST_S = 0.7
"""Before each run: of each second, Linux keeps a twentieth from processes of real-time priority."""

CASES = (
    ("torus:64x64", "recursive-doubling", "16MiB", "off"), ("torus:64x64", "recursive-doubling", "64MiB", "auto"),
    ("torus:64x64", "recursive-doubling", "4MiB", "auto"),
    ("random-regular:1024x4x1", "ring", "256MiB", "off"), ("torus:16x16", "direct", "512MiB", "off"),
)
NOTE = (
    "Medians of runs in turn, on the clock, at a real-time priority where the system grants it. How many times as fast "
    "several threads are at best is on paper: by the balance of the parts and what they send."
)
KINDS = {"direct": "all-to-all"}
PAPER = (4, 16)
HEAD = (
    "8 KiB chunks", "symmetry", "services", "in a latency", "one thread, s", "two threads, s", "ratio",
    "medians of processes",
    *(f"at best on {n}" for n in (2, *PAPER)),
)


def rows(quick: bool) -> Iterator[Sequence[str]]:
    """All cases, apart from what else the machine does."""
    with _apart():
        yield from (row(number, 1 if quick else PAIRS) for number in range(len(CASES)))


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


def row(number: int, pairs_each: int) -> Sequence[str]:
    """A case, in processes of its own: in which memory lies anew, and threads gain more or less for it."""
    command = [sys.executable, "-m", "benchmarks.threads", str(number), str(pairs_each)]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(PROCESSES)]
    pairs = np.concatenate([one["pairs"] for one in found])
    ratio, each = pairs[:, 0] / pairs[:, 1], [np.median(np.divide(*np.transpose(one["pairs"]))) for one in found]
    return (
        name_of(number), CASES[number][-1], f"{found[0]['services']:,}", f"{found[0]['width']:,.0f}",
        *(f"{seconds:.3f}" for seconds in np.median(pairs, axis=0)), f"{np.median(ratio):.2f}",
        f"{min(each):.2f} to {max(each):.2f}", *(f"{gain:.1f}" for gain in found[0]["gains"]),
    )


def name_of(number: int) -> str:
    """What a row is called."""
    fabric, algorithm, size, _ = CASES[number]
    return f"{algorithm} of {size} on {fabric}"


def measure(fabric: str, algorithm: str, size: str, symmetry: str, times: int) -> dict[str, Any]:
    """Seconds of runs on one thread and on two in turn; services of a run and within a latency; gains on paper."""
    schedule = build(algorithm, KINDS.get(algorithm, "all-reduce"), from_spec(fabric), size)
    program = lower(schedule, Model(chunks=None, chunk_bytes=CHUNK_BYTES), symmetry).program
    cuts = [parts.cut(program, n) for n in (2, *PAPER)]
    once(program, 2)  # compiled
    pairs = [(once(program, 1), once(program, 2)) for _ in range(times)]
    run = Run(program, skip=False)
    run.advance(MOST_SERVICES)
    width = run.events * cuts[0].ahead_ps / run.now_ps
    return {"pairs": pairs, "services": run.events, "width": width, "gains": [cut.gain for cut in cuts]}


def once(program: Program, threads: int) -> float:
    """Seconds of a run on the clock, from its second picosecond on."""
    run = Run(program, skip=False, threads=threads)
    run.advance(1)
    run.spread()
    sleep(REST_S)
    began = perf_counter()
    run.advance(MOST_SERVICES)
    return perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(measure(*CASES[int(sys.argv[1])], int(sys.argv[2]))))
