"""Compile the kernels of the engine once: `python -m tests.kernels`.

They take most of a minute on a machine that has never run them. Two workers that start together would both compile
them; after this they load them.
"""

from __future__ import annotations

from collectives import build
from sim import FaultPlan, simulate
from sim.engine.tape import Tape
from sim.faults.plan import SlowLink
from sim.lower.job import lower
from sim.program.model import Model
from sim.why.gradient import gradient
from topologies import from_spec


def compile_kernels() -> None:
    """One small run through each."""
    square = from_spec("torus:2x2")
    plain = build("bucket", "all-reduce", square, "1KiB")
    simulate(plain, check=True)
    simulate(build("hierarchical", "all-reduce", square, "1KiB"), check=True)
    simulate(plain, faults=FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.5),)), check=True)
    program = lower(plain, Model()).program
    gradient(Tape.record(program), program)


if __name__ == "__main__":
    compile_kernels()
