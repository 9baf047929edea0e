"""All-reduce from 64 to 1,048,576 NPUs, each in a process of its own: `python -m benchmarks.scale SPEC ALGORITHM`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from time import perf_counter, process_time

SIZE_BYTES = 2**30
SIDES = (8, 16, 32, 64, 128, 256, 512, 1024)
LARGEST = (
    ("torus:64x64x256", "swing"),
    ("torus:64x64x256", "bucket"),
    ("RI(256)_FC(8)_SW(512)", "bucket"),
    ("RI(256)_FC(8)_SW(512)", "swing"),
)
"""A million NPUs in other shapes."""
NO_SYMMETRY = ("random-regular:1024x4x1", "ring"), ("ring:2048", "ring")

ALGORITHMS = ("swing", "bucket", "ring")


@dataclass(frozen=True)
class Scale:
    """One run, everything from the topology on included.

    Attributes
    ----------
    topology, algorithm : str
    n_npus : int
    services : int
        Of the representatives.
    time_ps : int
    cpu_s, wall_s : float
    peak_bytes : int
    symmetry : str
    """

    topology: str
    algorithm: str
    n_npus: int
    services: int
    time_ps: int
    cpu_s: float
    wall_s: float
    peak_bytes: int
    symmetry: str
    transfers: int
    imports_bytes: int


def services_due(side: int, algorithm: str) -> int:
    """Services of one representative on a square torus, one chunk per transfer, counted by hand.

    Ring: 4 directed cycles of 2(p-1) steps. Bucket: 4 ports, both dimensions, 2(n-1) steps. Swing: 4 ports, both
    dimensions, twice over distances 1, 1, 3, 5, 11, ...
    """
    if algorithm == "ring":
        return 4 * 2 * (side * side - 1)
    if algorithm == "bucket":
        return 4 * 2 * 2 * (side - 1)
    steps = range(1, side.bit_length())
    return 4 * 2 * 2 * sum(abs(1 - int((-2) ** step)) // 3 for step in steps)


def run_here(topology: str, algorithm: str) -> Scale:
    """Build, lower, check and simulate, in this process."""
    cpu, wall = process_time(), perf_counter()
    from collectives import build
    from sim import simulate
    from topologies import from_spec

    imports_bytes = peak_bytes()
    fabric = from_spec(topology)
    form = "bandwidth" if algorithm == "swing" else None
    result = simulate(build(algorithm, "all-reduce", fabric, SIZE_BYTES, form=form), chunks=1)
    return Scale(
        topology,
        algorithm,
        fabric.n_npus,
        result.events,
        result.time_ps,
        process_time() - cpu,
        perf_counter() - wall,
        peak_bytes(),
        result.symmetry,
        result.lowered.program.n_tasks,
        imports_bytes,
    )


def run_command(topology: str, algorithm: str) -> Scale:
    """`weft compare` without symmetry, in this process; memory beyond its imports is what it builds and runs."""
    cpu, wall = process_time(), perf_counter()
    from collectives import build
    from sim.cli import main
    from topologies import from_spec

    imports_bytes = peak_bytes()
    words = f"compare --topology {topology} --algorithms {algorithm} --symmetry off -b {SIZE_BYTES} --chunks 1 --quiet"
    with redirect_stdout(StringIO()):
        assert main(words.split()) == 0
    pattern = build(algorithm, "all-reduce", from_spec(topology), SIZE_BYTES).pattern
    transfers, spent = pattern.p * pattern.emission.sample().n, (process_time() - cpu, perf_counter() - wall)
    return Scale(topology, algorithm, pattern.p, 0, 0, *spent, peak_bytes(), "off", transfers, imports_bytes)


def peak_bytes() -> int:
    """Most memory that this process held; Linux counts that of a parent into `ru_maxrss`, but not here."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_apart(topology: str, algorithm: str, *how: str) -> Scale:
    """The same in a fresh process, so that the peak of its memory is its own; `how`: "command", or nothing."""
    command = [sys.executable, "-m", "benchmarks.scale", topology, algorithm, *how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Scale(**json.loads(done.stdout))


def curves(largest_side: int) -> Iterator[Scale]:
    """Every algorithm on square tori up to a side; asserts the event counts."""
    for algorithm in ALGORITHMS:
        for side in SIDES:
            if side > largest_side or (algorithm == "ring" and not _has_rings(side)):
                continue
            one = run_apart(f"torus:{side}x{side}", algorithm)
            assert one.services == services_due(side, algorithm), one
            yield one


def _has_rings(side: int) -> bool:
    return side > 2  # n and n - 1 have no common divisor


class PeakMemory:
    """For asv."""

    params = ((64, 256, 1024), ALGORITHMS)
    param_names = ("side", "algorithm")
    timeout = 600

    def track_peak_bytes(self, side: int, algorithm: str) -> int:
        return run_apart(f"torus:{side}x{side}", algorithm).peak_bytes


if __name__ == "__main__":
    print(json.dumps(asdict((run_command if sys.argv[3:] else run_here)(*sys.argv[1:3]))))
