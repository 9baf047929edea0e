"""`weft warm`: every kernel is compiled, or found compiled, so that no later command waits for the compiler."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from time import process_time
from typing import NamedTuple

from sim.cli.commands import WARM_PARTS
from sim.study.processes import check_workers, processes
from topologies.checks import WeftError, choice
from topologies.process import cores
from topologies.stages import tell_compiling
from topologies.units import counted


class Warmed(NamedTuple):
    """A part, and what had to be compiled of it."""

    part: str
    kernels: tuple[str, ...]
    cpu_s: float


def run(arguments: argparse.Namespace) -> None:
    """One small run through each kernel; a line for each part when it is ready, with what had to be compiled."""
    parts = [choice(one, WARM_PARTS, "part") for one in dict.fromkeys(arguments.parts)] or list(WARM_PARTS)
    asked = cores() if arguments.jobs is None else arguments.jobs
    check_workers(asked, "--jobs")
    jobs = min(asked, len(parts))
    done = 0
    print(f"warm: {counted(len(parts), 'part')}, {jobs} at a time; a line for each when it is ready", file=sys.stderr)
    try:
        for part, kernels, cpu_s in _each(parts, jobs):
            done += 1
            said = f"compiled {', '.join(kernels)}, {cpu_s:.1f} s of CPU" if kernels else "ready"
            print(f"{done}/{len(parts)} {part}: {said}", flush=True)
    except KeyboardInterrupt:
        raise WeftError(
            f"interrupted, with {done} of {counted(len(parts), 'part')} ready; what is compiled is kept: run it again "
            "to go on"
        ) from None


def _each(parts: Sequence[str], jobs: int) -> Iterator[Warmed]:
    """In this process or in several, each as it ends."""
    if jobs == 1:
        yield from map(warmed, parts)
        return
    with processes(jobs) as pool:
        for one in as_completed([pool.submit(warmed, part) for part in parts]):
            yield one.result()


def warmed(part: str) -> Warmed:
    """Compile a part, in whatever process."""
    from sim.cli.warm_work import WORK  # the engine, which the process that only waits does not need

    kernels: list[str] = []
    tell_compiling(kernels.append)
    begin = process_time()
    WORK[part]()
    return Warmed(part, tuple(dict.fromkeys(kernels)), process_time() - begin)
