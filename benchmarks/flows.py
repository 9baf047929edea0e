"""The fluid engine on a fabric without symmetry: `python -m benchmarks.flows` is this part alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from time import process_time
from typing import NamedTuple

import numpy as np

from collectives import build
from sim.engine.fluid.run import run_flows
from sim.lower.job import lower
from sim.program import Program
from sim.program.flows import Speeds
from sim.program.model import Model
from topologies import from_spec

HEAD = ("all-to-all, every NPU to every other", "flows", "ends", "CPU s")
FABRICS = ("random-regular:100x4", "random-regular:174x5")
"""10,000 and 30,000 flows."""

MOST_BYTES = 2**22


class Case(NamedTuple):
    """An all-to-all in whole transfers."""

    name: str
    program: Program
    speeds: Speeds


def cases(fabric: str) -> Iterator[Case]:
    """Transfers of one size, many of which end together, and of sizes at random, each of which ends alone."""
    lowered = lower(build("direct", "all-to-all", from_spec(fabric), "64MiB"), Model(chunks=1), "off")
    yield Case(f"{fabric}, equal sizes", lowered.program, lowered.speeds())
    task = np.arange(lowered.program.n_tasks, dtype=np.int32)
    one = np.ones_like(task)
    program = lowered.program._replace(
        cut_chunks=one, cut_first=one, cut_size=np.stack([task, task], axis=1), task_cut=task,
        chunk_work=np.random.default_rng(0).integers(1, MOST_BYTES, task.size),
    )
    yield Case(f"{fabric}, sizes at random up to 4 MiB", program, lowered.speeds())


def row(case: Case) -> Sequence[str]:
    """Time from the program to the outcome, compiled already."""
    begin = process_time()
    found = run_flows(case.program, case.speeds)
    spent = process_time() - begin
    return case.name, f"{found.events:,}", f"{np.unique(found.finish_ps).size:,}", f"{spent:.2f}"


def rows(fabrics: Sequence[str] = FABRICS) -> Iterator[Sequence[str]]:
    small = next(cases("random-regular:4x3"))
    run_flows(small.program, small.speeds)
    return (row(case) for fabric in fabrics for case in cases(fabric))


if __name__ == "__main__":
    for line in rows(sys.argv[1:] or FABRICS):
        print(*line, sep="  ", flush=True)
