"""How often a tape holds: replays at other bandwidths, and what it takes to resume a run where they do not."""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.stages import cpu_s
from benchmarks.tables import Table
from collectives import build
from sim.engine.run import advance_to_end, run
from sim.engine.tape.resume import record_again, resume
from sim.engine.tape.tape import Replay, Tape
from sim.lower.job import lower
from sim.optimizer.retime import retimed, with_base_rates
from sim.program import Program
from sim.program.model import Model
from topologies import from_spec

CASES = (
    ("torus:8x8", "swing", 4), ("torus:8x8", "bucket", 16), ("RI(4)_FC(4)_SW(8)", "hierarchical", 16),
    ("RI(4)_FC(8)_RI(4)_SW(32)", "hierarchical", 16), ("torus:8x8", "bucket", 128), ("torus:8x8", "bucket", 256),
    ("torus:8x8", "bucket", 512), ("torus:8x8", "swing", 800),
)
WITHIN = (100.0, 1.1, 1.01)
"""Factors between the lowest and the highest bandwidth that are drawn."""
DRAWS, TIMED = 100, 10
"""Bandwidths of each factor, and how many of those at which a tape does not hold are timed."""
HEAD = (
    "all-reduce of 64 MiB", "services", *(f"hold, bandwidths within {factor:g} times" for factor in WITHIN),
    *(f"first change, of the run, within {factor:g} times" for factor in WITHIN),
    "replay / run", "recording / run", "resumed / run, with a log", "recorded again / recording",
)


def row(spec: str, algorithm: str, chunks: int) -> tuple[str, ...]:
    """One network at random bandwidths around 100 GB/s in each dimension; ratios are of CPU."""
    schedule = build(algorithm, "all-reduce", with_base_rates(from_spec(spec)), "64MiB")
    shape = retimed(lower(schedule, Model(chunks=chunks)))
    program = shape.at(np.full(shape.n_dims, 100.0))
    tape, rng = Tape.record(program), np.random.default_rng(0)
    held, shares, ratios = [], [], []
    for factor in WITHIN:
        programs = [shape.at(100 * factor ** rng.uniform(-0.5, 0.5, shape.n_dims)) for _ in range(DRAWS)]
        changed = [one for one in programs if not tape.replay(one).in_order]
        held.append(f"{1 - len(changed) / DRAWS:.0%}")
        of_run = [tape.replay(one).change_ps / run(one, skip=False).makespan_ps for one in changed]
        shares.append(f"{median(of_run):.0%}" if changed else "-")
        ratios += [against_anew(tape, one, tape.replay(one)) for one in changed[:TIMED]]
    times = [median(cpu_s(work) for _ in range(25)) for work in (
        lambda: run(program, skip=False), lambda: tape.replay(program), lambda: Tape.record(program))]
    return (f"{spec}, {algorithm}, {chunks} chunks", f"{program.chunk_hops():,}", *held, *shares,
            *(f"{one / times[0]:.2f}" for one in times[1:]), *(f"{median(of):.2f}" for of in zip(*ratios, strict=True)))


def against_anew(tape: Tape, program: Program, replay: Replay) -> tuple[float, float]:
    """CPU of a resumed run and a tape in a new order over that of a run and a recording, in pairs, the replay apart."""
    pairs = []
    for _ in range(7):
        tape.replay(program)
        resumed = cpu_s(lambda: advance_to_end(resume(tape, program, replay, log=True)))
        whole = cpu_s(lambda: run(program, log=True))
        again = cpu_s(lambda: record_again(tape, program, replay))
        pairs.append((resumed / whole, again / cpu_s(lambda: Tape.record(program))))
    resumed, again = (median(of) for of in zip(*pairs, strict=True))
    return resumed, again


TABLE = Table("Replays of a tape at other bandwidths", HEAD, lambda: (row(*case) for case in CASES))
