"""`python -m benchmarks`: measure, print, and write docs/performance_tables.md and docs/performance.png."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import codec, flows, plain_loop, scale, skipping, speed, stages, start, threads
from benchmarks.cases import Case
from sim.plots.style import WIDE, figure, legend, line_of, log_axis
from topologies.units import format_size

DOCS = Path(__file__).parents[1] / "docs"

PEERS = """Measured elsewhere, on a two-core AMD EPYC machine (Debian 12, gcc 12.2, Python 3.11), in
millions of chunk-hops a second of user CPU. astra-network-analytical 599a0473, congestion-aware engine, C++: 6.3 on the
ring of 256, 2.25 on the all-to-all, 0.058 where all times are distinct (unequal sizes there, one chunk a pair). All of
ASTRA-sim 518bd513: 0.79 on the ring of 256; 171 s of CPU and 5.3 GiB for a ring of 4,096, one chunk. SimPy 4.1.2 by
hand: 0.121 on the ring of 256; plain Python with heapq: 0.87."""


def main() -> None:
    """Measure everything, or with --quick what takes a minute."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="tori of up to 128x128, fewer repeats; writes no file")
    quick = parser.parse_args().quick
    times = 2 if quick else 5
    load = f"at a load of {os.getloadavg()[0]:.1f} when it began"
    lines = ["# Performance: all tables", "", f"Measured on {machine()}, {load}.", ""]
    lines += show("Chunk engine and tape", SPEED_HEAD, (speed_row(speed.measure(c, times)) for c in speed.CASES))
    ratios = (ratio_row(speed.compare(case)) for case in speed.SMALL_CASES)
    lines += show("Against plain Python, in one process", RATIO_HEAD, ratios)
    lines += show("Against a plain C++ loop, in one process", PLAIN_HEAD, plain_rows(times))
    lines += show("What a record costs", LOG_HEAD, [log_row(speed.CASES[0], times)])
    for title, head, rows in stages.TABLES:
        lines += show(title, head, rows())
    lines += show("Stretches that repeat", skipping.HEAD, (skipping.row(*case) for case in skipping.CASES))
    lines += show("One run on several threads", threads.HEAD, (threads.row(*case, times) for case in threads.CASES))
    lines += show("Fluid engine, no symmetry", flows.HEAD, flows.rows(flows.FABRICS[:1] if quick else flows.FABRICS))
    lines += show("From the command line to the first number", start.HEAD, start.rows())
    memory = (memory_row(scale.run_apart(*which)) for which in [scale.NO_SYMMETRY])
    lines += show("Memory without symmetry, one chunk a transfer", MEMORY_HEAD, memory)
    coded = list(codec.measured(2 * times))
    lines += show("Homomorphic codec, 16 MiB, one core", codec.HEAD, (codec.row(*one) for one in coded))
    print("\nscaling ...", flush=True)
    found = scale.curves(128 if quick else 1024, lambda one: print(" ", *scale_row(one), flush=True))
    found += [] if quick else [scale.run_apart(*which) for which in scale.LARGEST]
    lines += show("All-reduce of 1 GiB, one chunk a transfer, exact by symmetry", SCALE_HEAD, map(scale_row, found))
    lines += ["## Peers", "", PEERS, ""]
    if not quick:
        (DOCS / "performance_tables.md").write_text("\n".join(lines))
        plot(found, DOCS / "performance.png")
    missed = [f"{layout} at {one.density:.2%}" for layout, one in coded if not codec.keeps(layout, one)]
    if missed:
        raise SystemExit(f"the codec misses its gates: {', '.join(missed)}")


def machine() -> str:
    """What the numbers were measured on."""
    return f"{processor()}, Python {platform.python_version()}, numba {version('numba')}, numpy {version('numpy')}"


def processor() -> str:
    """Its name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


SPEED_HEAD = ("case", "chunk-hops", "engine M/s", "tape M/s", "bytes a transfer", "bytes a chunk in flight")
RATIO_HEAD = ("case", "chunk-hops", "engine M/s", "SimPy reference M/s", "ratio", "heapq loop M/s", "ratio")
PLAIN_HEAD = ("case", "engine M/s", "C++ M/s", "ratio")
LOG_HEAD = ("case", "plain M/s", "log kept M/s")
SCALE_HEAD = ("topology", "algorithm", "NPUs", "services", "simulated", "CPU s", "peak memory")

MEMORY_HEAD = ("topology", "algorithm", "transfers", "peak memory", "bytes a transfer beyond the imports", "CPU s")


def speed_row(one: speed.Speed) -> Sequence[str]:
    """A row of the first table."""
    tape = f"{one.replay_rate / 1e6:.0f}" if one.replay_rate else "-"
    memory = (f"{one.bytes_a_transfer:.1f}", f"{one.bytes_a_chunk:.1f}")
    return one.case, f"{one.services:,}", f"{one.rate / 1e6:.2f}", tape, *memory


def ratio_row(one: speed.Ratio) -> Sequence[str]:
    """A row of the second table."""
    loop = (f"{one.loop / 1e6:.2f}", f"{one.engine / one.loop:.1f}") if one.loop else ("-", "-")
    slow = (f"{one.engine / 1e6:.2f}", f"{one.reference / 1e6:.3f}", f"{one.engine / one.reference:.0f}")
    return one.case, f"{one.services:,}", *slow, *loop


def plain_rows(times: int) -> Iterable[Sequence[str]]:
    """Rows of the table against C++; one that says so where there is no compiler."""
    if plain_loop.compiled() is None:
        return [("no C++ compiler on this machine", "-", "-", "-")]
    rates = ((case.name, *speed.against_plain(case, times)) for case in speed.CASES[1:3])
    return ((name, f"{one / 1e6:.1f}", f"{loop / 1e6:.1f}", f"{one / loop:.2f}") for name, one, loop in rates)


def log_row(case: Case, times: int) -> Sequence[str]:
    """The row of the table of logs."""
    return case.name, *(f"{rate / 1e6:.2f}" for rate in speed.log_cost(case, times))


def scale_row(one: scale.Scale) -> Sequence[str]:
    """A row of the last table."""
    counts = (f"{one.n_npus:,}", f"{one.services:,}", f"{one.time_ps / 1e9:.3f} ms")
    return one.topology, one.algorithm, *counts, f"{one.cpu_s:.1f}", format_size(one.peak_bytes)


def memory_row(one: scale.Scale) -> Sequence[str]:
    """A row of the table of memory."""
    each = f"{(one.peak_bytes - one.imports_bytes) / one.transfers:.0f}"
    return one.topology, one.algorithm, f"{one.transfers:,}", format_size(one.peak_bytes), each, f"{one.cpu_s:.1f}"


def show(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Print a table row by row as it is measured; returns it as markdown."""
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    print("\n".join(["", *lines]), flush=True)
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def plot(found: Sequence[scale.Scale], file: Path) -> None:
    """CPU seconds and peak memory over NPUs, log-log."""
    with figure(file, WIDE, 2.6) as drawn:
        axes = drawn.subplots(1, 2)
        for algorithm in scale.ALGORITHMS:
            runs = [one for one in found if one.algorithm == algorithm and one.topology.count("x") == 1]
            npus, style = [one.n_npus for one in runs], line_of(algorithm).style()
            axes[0].plot(npus, [one.cpu_s for one in runs], label=algorithm, **style)
            axes[1].plot(npus, [one.peak_bytes / 2**30 for one in runs], **style)
        for axis, what in zip(axes, ("CPU seconds, topology to result", "peak memory (GiB)"), strict=True):
            axis.set(xlabel="NPUs of a square torus", ylabel=what, xscale="log")
            log_axis(axis)
        legend(drawn)


if __name__ == "__main__":
    main()
