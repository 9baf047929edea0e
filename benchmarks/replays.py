"""How often a tape holds: replays at other bandwidths, and when the order of service changes where they do not."""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.stages import cpu_s
from benchmarks.tables import Table
from collectives import build
from sim.engine._tape import JOIN
from sim.engine.run import run
from sim.engine.tape import Tape
from sim.lower.job import lower
from sim.optimizer.retime import retimed, with_base_rates
from sim.program import Program
from sim.program.model import Model
from topologies import from_spec

CASES = (
    ("torus:8x8", "swing", 4), ("torus:8x8", "bucket", 16), ("RI(4)_FC(4)_SW(8)", "hierarchical", 16),
    ("RI(4)_FC(8)_RI(4)_SW(32)", "hierarchical", 16),
)
WITHIN = (100.0, 1.1, 1.01)
"""Factors between the lowest and the highest bandwidth that are drawn."""
DRAWS = 100
HEAD = (
    "all-reduce of 64 MiB", "services", *(f"hold, bandwidths within {factor:g} times" for factor in WITHIN),
    "first change, of the run", "replay / run", "recording / run",
)


def row(spec: str, algorithm: str, chunks: int) -> tuple[str, ...]:
    """One network at random bandwidths around 100 GB/s in each dimension; ratios are of CPU."""
    schedule = build(algorithm, "all-reduce", with_base_rates(from_spec(spec)), "64MiB")
    shape = retimed(lower(schedule, Model(chunks=chunks)))
    program = shape.at(np.full(shape.n_dims, 100.0))
    tape, rng = Tape.record(program), np.random.default_rng(0)
    held, changes = [], []
    for factor in WITHIN:
        points = 100 * factor ** rng.uniform(-0.5, 0.5, (DRAWS, shape.n_dims))
        programs = [shape.at(point) for point in points]
        holds = [tape.replay(one).in_order for one in programs]
        held.append(f"{np.mean(holds):.0%}")
        if factor == WITHIN[0]:
            changes = [first_change(tape, one) for one, well in zip(programs, holds, strict=True) if not well]
    times = [median(cpu_s(work) for _ in range(25)) for work in (
        lambda: run(program, skip=False), lambda: tape.replay(program), lambda: Tape.record(program))]
    first = f"{median(changes):.0%}" if changes else "-"
    return (f"{spec}, {algorithm}, {chunks} chunks", f"{program.chunk_hops():,}", *held, first,
            *(f"{one / times[0]:.2f}" for one in times[1:]))


def first_change(tape: Tape, program: Program) -> float:
    """Share of the run before the first service that is not where the tape has it."""
    tape.replay(program)
    ops = tape.ops
    arrived = np.maximum(tape._out[ops.pred[1:]], tape._end[ops.gate[1:]])
    order = np.lexsort((np.arange(arrived.size), ops.server[1:]))
    order = order[ops.server[1:][order] != JOIN]
    arrived, server, tied = arrived[order], ops.server[1:][order], ops.kind[1:][order] & 1
    late = (server[1:] == server[:-1]) & (np.diff(arrived) < tied[1:])
    return float(arrived[1:][late].min() / run(program, skip=False).makespan_ps)


TABLE = Table("Replays of a tape at other bandwidths", HEAD, lambda: (row(*case) for case in CASES))
