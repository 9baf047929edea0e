"""Compile the kernels once: `python -m tests.kernels`.

They take most of a minute on a machine that has never run them. Two workers that start together would both compile
them; after this they load them.
"""

from __future__ import annotations

import numpy as np

from collectives import build
from sim import FaultPlan, simulate
from sim.engine.tape import Tape
from sim.faults.plan import SlowLink
from sim.lower.job import lower
from sim.program.model import Model
from sim.why.gradient import gradient
from topologies import from_spec
from workloads.compression import FORMS, Bitmap, Codec, NibbleSum, bloom_for, layout_for


def compile_kernels() -> None:
    """One small run through each."""
    square = from_spec("torus:2x2")
    plain = build("bucket", "all-reduce", square, "1KiB")
    simulate(plain, check=True)
    simulate(build("hierarchical", "all-reduce", square, "1KiB"), check=True)
    simulate(plain, faults=FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.5),)), check=True)
    program = lower(plain, Model()).program
    gradient(Tape.record(program), program)
    build("pipelined", "all-gather", from_spec("mesh:2x2"), "1KiB")  # its trees are packed by maximum flows
    for dtype in ("int32", "int64", "float32", "float64"):
        compile_codec(dtype)


def compile_codec(dtype: str) -> None:
    """A sum of two workers in each layout, with each index of the positions."""
    x = np.zeros(64, dtype)
    x[::8] = 1
    for form in FORMS:
        for index in (Bitmap(64), NibbleSum(64), bloom_for(64, 8, 0.02)):
            codec = Codec(layout_for(64, 8, 2.0, form), index, dtype)
            codec.decode(codec.sum([x, x]), median=True)


if __name__ == "__main__":
    compile_kernels()
