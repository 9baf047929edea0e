"""`python -m benchmarks.soak --runs 1000000`: small simulations one after the other in one process; memory stays flat.

Every run has its own schedule, and fabrics are built anew after some hundreds: what a cache keeps too long, or the
kernel does not give back, would show.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

from collectives import Schedule, build
from sim import simulate
from topologies import from_spec

CASES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("ring:4", "ring", "all-reduce", {}),
    ("torus:4x4", "swing", "all-reduce", {"forwarding": "store-and-forward"}),
    ("switch:8", "ring", "all-gather", {"discipline": "smallest-first"}),
    ("torus:2x2", "bucket", "reduce-scatter", {"discipline": "priority"}),
    ("fc:4", "direct", "all-to-all", {"deliver": "head"}),
    ("torus:4x2", "recursive-doubling", "all-reduce", {"symmetry": "off"}),
)
"""Fabric, algorithm, collective, and what differs from the default model."""

DISTINCT_SIZES = 1009
"""Sizes that are gone through; prime, so that every case meets all of them."""

FABRIC_RUNS = 600
"""Runs on one set of fabrics, before they and what is cached for them are thrown away."""


class Sample(NamedTuple):
    """Memory after so many runs.

    Attributes
    ----------
    runs : int
    services : int
        Chunks that crossed a link in all of them.
    resident_bytes : int
    objects : int
        That Python's collector tracks.
    cpu_s : float
        Of this process since it began.
    """

    runs: int
    services: int
    resident_bytes: int
    objects: int
    cpu_s: float


def soak(runs: int, every: int, tell: Callable[[Sample], None] = lambda sample: None) -> list[Sample]:
    """Simulate again and again, and look at the memory every so many runs.

    Parameters
    ----------
    runs, every : int
    tell : callable (sample)
        Called with each sample as it is taken.
    """
    samples, services = [], 0
    for done, (schedule, changes) in enumerate(itertools.islice(_work(), runs), 1):
        services += _run(schedule, changes)
        if done % every == 0 or done == runs:
            gc.collect()
            samples.append(Sample(done, services, resident_bytes(), len(gc.get_objects()), process_time()))
            tell(samples[-1])
    return samples


def _work() -> Iterator[tuple[Schedule, dict[str, str]]]:
    index = 0
    while True:
        fabrics = [from_spec(spec) for spec, *_ in CASES]
        for _ in range(FABRIC_RUNS):
            case = index % len(CASES)
            _, algorithm, collective, changes = CASES[case]
            yield build(algorithm, collective, fabrics[case], 64 * (1 + index % DISTINCT_SIZES)), changes
            index += 1


def _run(schedule: Schedule, changes: dict[str, str]) -> int:
    result = simulate(schedule, chunks=2, **changes)  # type: ignore[arg-type]  # names of fields of the model
    if not 0 < result.lower_bound_ps <= result.time_ps:
        raise AssertionError(f"{schedule.name}: {result.time_ps} ps, lower bound {result.lower_bound_ps} ps")
    return result.events


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Soak, and print memory over runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=main.__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=50_000)
    given = parser.parse_args()
    print("| runs | services | resident | objects | CPU s |\n|--:|--:|--:|--:|--:|", flush=True)
    samples = soak(given.runs, given.every, lambda one: print(_line(one), flush=True))
    growth = samples[-1].resident_bytes - samples[0].resident_bytes
    print(f"\nfrom run {samples[0].runs:,} to run {samples[-1].runs:,}: {growth:+,} bytes resident")


def _line(one: Sample) -> str:
    resident = f"{one.resident_bytes / 2**20:.1f} MiB"
    return f"| {one.runs:,} | {one.services:,} | {resident} | {one.objects:,} | {one.cpu_s:.0f} |"


if __name__ == "__main__":
    main()
