"""`python -m benchmarks`: measure, print, and write docs/performance_tables.md, what other pages quote of it, and the
figure docs/performance.png."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks import bounds, codec, flows, peers, plain_loop, quotes, scale, speed, stages, start
from benchmarks.cases import Case
from benchmarks.tables import FILE, Table, keep, kept, show
from sim.plots.style import WIDE, figure, legend, line_of, log_axis
from topologies.units import format_size

PEERS = """Measured elsewhere, on a two-core AMD EPYC machine (Debian 12, gcc 12.2, Python 3.11), in
millions of chunk-hops a second of user CPU. astra-network-analytical 599a0473, congestion-aware engine, C++: 6.3 on the
ring of 256, 2.25 on the all-to-all, 0.058 where all times are distinct (unequal sizes there, one chunk per pair). All
of ASTRA-sim 518bd513: 0.79 on the ring of 256; 171 s of CPU and 5.3 GiB for a ring of 4,096, one chunk. SimPy 4.1.2 by
hand: 0.121 on the ring of 256; plain Python with heapq: 0.87.

What these leave out. Injection: there, all chunks join their first link at time 0, those of a pair one behind the
other, and nothing waits for anything else; a ring sends each chunk on when it arrives, 2(N-1) times. In weft a chunk
joins its first link when the one before it has been served there, and a rank waits for the chunk that it passes on,
which takes an event more for each hop of the ring; in flight the all-to-all has 12 MB, and the process there 563 MiB.
Times there are whole nanoseconds. Build: those rates are of the whole process, a thin driver without algorithm, proof
or lowering included; ASTRA-sim reads its files and runs its system layer besides. Ours are of the run alone. What comes
before it: from the columns of routes, tasks and dependencies to the program, "program built, s" above; in a command,
"Stages of commands"."""

PEERS_TITLE = "Peers"


def tables(times: int, quick: bool, missed: list[str]) -> Iterable[Table]:
    """What is measured, in order; `missed` gets the gates that the codec misses."""
    yield Table("Chunk engine", SPEED_HEAD, lambda: (speed_row(speed.measure(c, times)) for c in speed.CASES))
    yield Table("Against plain Python, in one process", RATIO_HEAD,
                lambda: (ratio_row(speed.compare(case)) for case in speed.SMALL_CASES))
    yield Table("Against a plain C++ loop, in one process", PLAIN_HEAD, lambda: plain_rows(times))
    yield peers.table()
    yield Table("What a record costs", LOG_HEAD, lambda: [log_row(speed.CASES[0], times)])
    yield from stages.TABLES
    yield Table("Exact bounds and packed trees", bounds.HEAD, bounds.rows)
    fabrics = flows.FABRICS[:1] if quick else flows.FABRICS
    yield Table("Fluid engine, no symmetry", flows.HEAD, lambda: flows.rows(fabrics))
    yield Table("From the command line to the first number", start.HEAD, lambda: start.rows(quick), start.NOTE)
    yield Table("Memory without symmetry, one chunk per transfer", MEMORY_HEAD,
                lambda: (memory_row(scale.run_apart(*one, "command")) for one in scale.NO_SYMMETRY), MEMORY_NOTE)
    yield Table("Homomorphic codec, 16 MiB, one core", codec.HEAD, lambda: codec_rows(times, missed),
                codec.NOTE)
    yield Table("All-reduce of 1 GiB, one chunk per transfer, exact by symmetry", SCALE_HEAD, lambda: scale_rows(quick))


def main() -> int:
    """Measure everything, or with --quick what takes a minute; a table that fails leaves the others as they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="tori of up to 128x128, fewer repeats; writes no file")
    parser.add_argument("--only", metavar="WORD", default="", help="tables with this in their title (default: all)")
    flags = parser.parse_args()
    failed: list[str] = []
    found = kept()
    wanted = list(tables(2 if flags.quick else 5, flags.quick, failed))
    for table in wanted:
        if flags.only.lower() not in table.title.lower():
            continue
        if table.title == peers.TITLE and len(peers.programs()) < len(peers.NAMES):
            continue  # it has said what is absent: the table stays as it was
        began = perf_counter()
        try:
            found[table.title] = show(table)
        except Exception:
            traceback.print_exc()
            failed.append(table.title)
        print(f"{perf_counter() - began:.0f} s", flush=True)
        if not flags.quick:
            titles = [one.title for one in wanted if one.title in found]
            keep({title: found[title] for title in titles} | {PEERS_TITLE: PEERS})
    if not flags.quick:
        quotes.write()
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


SPEED_HEAD = (
    "case", "chunk-hops", "engine M/s", "bytes per transfer", "bytes per chunk in flight",
    "program built, s",
)
RATIO_HEAD = ("case", "chunk-hops", "engine M/s", "SimPy reference M/s", "ratio", "heapq loop M/s", "ratio")
PLAIN_HEAD = ("case", "engine M/s", "C++ M/s", "ratio")
LOG_HEAD = ("case", "plain M/s", "log kept M/s")
SCALE_HEAD = ("topology", "algorithm", "NPUs", "services", "simulated", "CPU s", "peak memory")

MEMORY_NOTE = "Of `weft compare --symmetry off`, an all-reduce, from the first import to the table."
MEMORY_HEAD = ("topology", "algorithm", "transfers", "peak memory", "bytes per transfer beyond the imports", "CPU s")


def speed_row(one: speed.Speed) -> Sequence[str]:
    """A row of the first table."""
    memory = (f"{one.bytes_a_transfer:.1f}", f"{one.bytes_a_chunk:.1f}")
    return one.case, f"{one.services:,}", f"{one.rate / 1e6:.2f}", *memory, f"{one.build_s:.3f}"


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


def codec_rows(times: int, missed: list[str]) -> Iterable[Sequence[str]]:
    """Rows of the codec; `missed` gets those that miss their gates."""
    for layout, one in codec.measured(2 * times):
        if not codec.keeps(layout, one):
            missed.append(f"gates of the codec, {layout} at {one.density:.2%}")
        yield codec.row(layout, one)


def scale_rows(quick: bool) -> Iterable[Sequence[str]]:
    """Rows of the curves and of the largest runs; the figure is drawn after them."""
    found = []
    for one in scale.curves(128 if quick else 1024):
        found.append(one)
        yield scale_row(one)
    if not quick:
        plot(found, FILE.with_name("performance.png"))
        yield from (scale_row(scale.run_apart(*which)) for which in scale.LARGEST)


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
    raise SystemExit(main())
