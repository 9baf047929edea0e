"""Everything around the engine: stages of commands, points of a sweep, bounds."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

from benchmarks.tables import Table
from collectives import ALGORITHMS, build
from sim.analytic.bounds import bounds
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import Model
from sim.study.file import make_sweep
from sim.study.sweep import run_sweep
from topologies import WeftError, torus

FOUR = "--algorithms swing,ring,bucket,recursive-doubling -b 32 -e 512M -f 4"
COMMANDS = (
    f"compare --topology torus:64x64 {FOUR}",
    f"compare --topology torus:64x64 {FOUR} --chunks 4",
    "compare --topology dragonfly:33x16x8 --algorithms recursive-doubling -b 1M",
)
STAGES = ("imports", "compilation", "proof", "quotient", "lowering", "bounds", "engine")
STAGE_HEAD = ("command", "CPU s", *STAGES, "other")

GPT = "--workload gpt-3 --samples 4096 --peak 312 --efficiency 0.5"
WHOLE = "-b 64M --symmetry off"
EXPLAINED = (
    "validate --topology torus:16x16 --algorithm ring -b 64M --chunks 64",
    "validate --topology torus:16x16 --algorithm bucket -b 64M --chunks 64",
    "validate --topology fat-tree:8 --algorithm double-binary-tree -b 64M --chunks 64",
    f"validate --topology torus:16x16 --algorithm swing {WHOLE} --chunks 64",
    f"validate --topology ring:256 --algorithm ring {WHOLE} --chunks 16",
    f"validate --topology dragonfly:9x8x4 --algorithm direct --collective all-to-all {WHOLE}",
    f"compare --topology torus:16x16 --algorithms bucket {WHOLE} --chunks 16 --why",
    f"compare --topology torus:8x8 --algorithms ring {WHOLE} --chunks 16 --faults examples/faults.toml --why",
    "share --topology torus:16x16 --tenant 'all-reduce ring 64MiB' --tenant 'all-to-all direct 16MiB'",
    "share --topology torus:16x16 --tenant 'all-reduce bucket 256MiB' --tenant 'all-reduce swing 64MiB start=1ms'",
    "share --topology fat-tree:8" + " --tenant 'all-reduce ring 16MiB'" * 12,
    "share --topology ring:16 --tenant 'workload=resnet-50 samples=16 peak=312 efficiency=0.5'"
    " --tenant 'all-to-all direct 8MiB start=1ms'",
    f"train --topology RI(16)_FC(8)_SW(32) {GPT} --parallelism tp=16",
    f"train --topology RI(4)_FC(8)_SW(8) {GPT} --parallelism tp=4,pp=8 --microbatches 16",
    f"train --topology torus:8x8 {GPT} --parallelism tp=8,pp=4 --microbatches 8",
    f"train --topology torus:8x16 {GPT} --parallelism tp=8,pp=8 --microbatches 16",
    f"train --topology torus:8x16 {GPT} --parallelism tp=8,pp=8 --microbatches 16 --why",
    f"train --topology dgx-h100:8 {GPT} --parallelism tp=8,pp=4 --microbatches 8",
    f"train --topology RI(16)_FC(8)_SW(8) {GPT} --parallelism tp=8,pp=8 --microbatches 8",
    f"train --topology RI(16)_FC(8)_SW(8) {GPT} --parallelism tp=8,pp=8 --microbatches 16",
)
"""Mixed runs that say where their time goes."""

EXPLAINED_HEAD = ("command", "engine, CPU s", "critical path", "of the engine's")

SWEEPS = (("torus:8x8", "swing"), ("torus:8x8", "bucket"), ("ring:64", "ring"), ("fat-tree:4", "ring"))
SWEEP_HEAD = ("sweep over link bandwidths, 4 chunks", "points per CPU second")
POINTS = 200

SIDES = (8, 16, 32, 64, 128)
SERVICES = 2**21
"""Limit on the services of a run whose bounds are measured."""
QUICK = {64: ("swing", "ring", "bucket", "hierarchical", "in-network", "double-binary-tree"),
         128: ("swing", "ring", "bucket", "hierarchical")}
"""What is measured on the larger tori: the others take long to build, or have more services."""

BOUND_HEAD = ("torus, all-reduce of 64 MiB, 16 chunks", "algorithms", "bounds / engine: median", "largest", "of")


def stages_of(command: str) -> dict[str, float]:
    """CPU seconds of the stages of a command, in a process of its own."""
    words = [sys.executable, "-m", "sim", *shlex.split(command), "--quiet", "--profile", "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {row["stage"]: row["cpu_s"] for row in json.loads(done.stdout)["stages"]}


def explained_rows() -> Iterator[tuple[str, ...]]:
    """The engine and the critical path of each run, and of all."""
    total = [0.0, 0.0]
    for command in (*EXPLAINED, ""):
        found = stages_of(command) if command else {}
        taken = [found.get(stage, 0.0) for stage in ("engine", "critical path")] if command else total
        total = [before + one for before, one in zip(total, taken, strict=True)]
        yield command or "all", *(f"{one:.3f}" for one in taken), f"{taken[1] / taken[0]:.2f}"


def stage_row(command: str) -> tuple[str, ...]:
    """The stages of a command, those without a column together."""
    found = stages_of(command)
    total = sum(found.values())
    named = [found.get(stage, 0.0) for stage in STAGES]
    return command, f"{total:.1f}", *(f"{one:.2f}" for one in (*named, total - sum(named)))


def sweep_row(fabric: str, algorithm: str) -> tuple[str, ...]:
    """Points of a sweep a second, from its sections to the stored rows; bandwidths alone differ."""
    def swept(first: int, count: int, folder: str) -> None:
        rates = [f"{first + number}Gb/s" for number in range(count)]
        sections = {"topology": {"spec": fabric, "link_bandwidth": rates}, "model": {"chunks": 4},
                    "collective": {"name": "all-reduce", "algorithms": [algorithm]}, "sweep": {"begin": "16M"}}
        tally = run_sweep(make_sweep(sections).points, Path(folder) / f"{first}.db")
        assert tally.computed == count and not tally.refused

    with TemporaryDirectory() as folder:
        swept(1, 2, folder)
        seconds = cpu_s(lambda: swept(10, POINTS, folder))
    return f"{fabric}, {algorithm}", f"{POINTS / seconds:.0f}"


class Ratio(NamedTuple):
    """CPU time of the bounds of a schedule, those of its fabric known, over that of its run."""

    algorithm: str
    ratio: float


def bound_ratios(side: int) -> Iterator[Ratio]:
    """Every algorithm of the registry that does not read rates and whose run is not too long."""
    topology = torus((side, side))
    for name, algorithm in ALGORITHMS.items():
        if algorithm.built_from_rates or "all-reduce" not in algorithm.functions:
            continue
        if name not in QUICK.get(side, ALGORITHMS):
            continue
        try:
            lowered = lower(build(name, "all-reduce", topology, "64MiB"), Model())
        except WeftError:
            continue
        if lowered.program.chunk_hops() <= SERVICES:
            bounds(lowered)
            yield Ratio(name, _best_s(partial(bounds, lowered)) / _best_s(partial(run, lowered.program)))


def bound_row(side: int) -> tuple[str, ...]:
    """The ratios at one size of torus."""
    found = list(bound_ratios(side))
    worst = max(found, key=lambda one: one.ratio)
    middle = median(one.ratio for one in found)
    return f"{side}x{side}", f"{len(found)}", f"{middle:.2f}", f"{worst.ratio:.2f}", worst.algorithm


def _best_s(work: Callable[[], object]) -> float:
    return min(cpu_s(work) for _ in range(5))


def cpu_s(work: Callable[[], object]) -> float:
    """CPU of this process."""
    began = process_time()
    work()
    return process_time() - began


TABLES = (
    Table("Stages of commands, CPU s", STAGE_HEAD, lambda: map(stage_row, COMMANDS)),
    Table("Explanations of 20 mixed runs", EXPLAINED_HEAD, explained_rows),
    Table("Points of a sweep", SWEEP_HEAD, lambda: (sweep_row(*one) for one in SWEEPS)),
    Table("Bounds beside runs", BOUND_HEAD, lambda: map(bound_row, SIDES)),
)
