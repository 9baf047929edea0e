"""`weft warm`: every kernel is compiled, or found compiled, so that no later command waits for the compiler."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import monotonic

import numpy as np

from collectives import build
from collectives.core.collective import collective
from collectives.core.follow import holds
from collectives.core.sends import SendList
from sim.cli.topology import diameter_hops
from sim.engine.resume import record_again
from sim.engine.run import advance_to_end, start
from sim.engine.tape import Replay, Tape
from sim.faults.plan import FaultPlan, SlowLink
from sim.lower.job import lower
from sim.program.model import Model, Nic
from sim.simulation import simulate
from sim.why.gradient import gradient
from topologies import from_spec
from topologies.stages import tell_compiling
from workloads.compression import FORMS, Bitmap, Codec, NibbleSum, bloom_for, layout_for


def run(arguments: argparse.Namespace) -> None:
    """One small run through each kernel; a line for each part, with what had to be compiled."""
    compiled: list[str] = []
    tell_compiling(compiled.append)
    for number, (name, work) in enumerate(PARTS.items(), 1):
        print(f"{number}/{len(PARTS)} {name} ... ", end="", flush=True)
        compiled.clear()
        begin = monotonic()
        work()
        print(f"compiled {', '.join(dict.fromkeys(compiled))}, {monotonic() - begin:.1f} s" if compiled else "ready",
              flush=True)


def _plain() -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), check=True)


def _stretches() -> None:
    simulate(build("ring", "all-reduce", from_spec("ring:8"), "64MiB"), chunks=8192, log=True)


def _threads() -> None:
    simulate(build("direct", "all-reduce", from_spec("switch:8"), "1KiB"), symmetry="off", threads=2)


def _ordered() -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), discipline="lowest-chunk-first")


def _general() -> None:
    """The loops that run what no other does, such as pools that chunks ask."""
    for model in (Model(), Model(nic=Nic()), Model(discipline="round-robin-flow")):
        program = lower(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), model).program
        advance_to_end(start(program, general=True))


def _nics() -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), nic="shared")


def _turns() -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), discipline="round-robin-flow")


def _fluid() -> None:
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), engine="fluid")


def _faults() -> None:
    plan = FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.5),))
    simulate(build("bucket", "all-reduce", from_spec("torus:2x2"), "1KiB"), faults=plan)


def _replay() -> None:
    program = lower(build("bucket", "all-reduce", from_spec("torus:2x2"), "64MiB"), Model(chunks=2048)).program
    tape = Tape.record(program)
    gradient(tape, program)
    makespan_ps = tape.replay(program).makespan_ps
    # From any time before the first change of order a run can be resumed; here there is no change.
    record_again(tape, program, Replay(makespan_ps, makespan_ps // 2))


def _fabrics() -> None:
    diameter_hops(from_spec("ring:4"))


def _trees() -> None:
    build("pipelined", "all-gather", from_spec("mesh:2x3"), "1KiB")  # its trees are packed by maximum flows


def _proofs() -> None:
    """A transfer from rank 0 to rank 1 is a broadcast of two."""
    sends = SendList()
    sends.add(0, 1, [0])
    none = np.zeros(0, np.int64)
    holds(collective("broadcast"), 2, 1, 0, sends.build()[0], [[0]], (none, none, none.astype(np.bool_)))


def _matches() -> None:
    build("tacos", "all-gather", from_spec("ring:3"), "1KiB")


def _compression() -> None:
    """A sum of two workers in each layout, with each index of the positions."""
    for dtype in ("int32", "int64", "float32", "float64"):
        x = np.zeros(64, dtype)
        x[::8] = 1
        for form in FORMS:
            for index in (Bitmap(64), NibbleSum(64), bloom_for(64, 8, 0.02)):
                codec = Codec(layout_for(64, 8, 2.0, form), index, dtype)
                codec.decode(codec.sum([x, np.ones_like(x)]), median=True)  # too many items, which are then guessed


PARTS: dict[str, Callable[[], None]] = {
    "bounds and trees": _trees, "fabrics": _fabrics, "proofs": _proofs, "events in fifo order": _plain,
    "stretches that repeat": _stretches, "events in any order": _ordered, "pools": _general,
    "several threads": _threads, "NICs": _nics, "links that serve in turn": _turns, "faults": _faults,
    "flows": _fluid, "replay": _replay, "searches for schedules": _matches, "compression": _compression,
}
"""What is compiled, the most wanted first."""
