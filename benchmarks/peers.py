"""The same collectives in weft, the engine of ASTRA-sim and SimGrid, in turn: `python -m benchmarks.peers`.

Peers are programs that take `ring N BYTES` (N NPUs pass messages of so many bytes on, 2 (N - 1) times each, one way)
or `torus SIDE BYTES` (each of SIDE x SIDE NPUs sends every other so many bytes), and print the simulated nanoseconds.
Links have 50 * 2^30 B/s and 500 ns. `--astra` is `astra_driver.cpp`, on the congestion-aware library of
astra-network-analytical; `--simgrid` is `simgrid_driver.cpp`. Both say how they are built. What is absent is said, and
its columns stay empty.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from shutil import which
from statistics import median
from tempfile import TemporaryFile
from typing import NamedTuple

from benchmarks.tables import Table, show

MIB, GIB = 2**20, 2**30
RING = tuple(("ring", n, 64 * MIB // n) for n in (64, 256, 1024, 4096))
TORUS = tuple(("torus", side, MIB) for side in (8, 16, 32, 64))
MOST_S, MOST_BYTES = 60.0, 6 * GIB
LONG_S, TIMES = 10.0, 3
REFUSED = 2  # how a program ends that does not begin, for the case is too large
NAMES = WEFT, WHOLE, ASTRA, SIMGRID = "weft", "weft, no symmetry", "ASTRA-sim's engine", "SimGrid"
CONFIG = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0",
          "--log=root.thres:error")
TITLE = "Beside ASTRA-sim's engine and SimGrid"
HEAD = ("case", "chunk-hops", *(f"{name}: CPU s, peak" for name in NAMES), "ASTRA-sim / weft",
        "ASTRA-sim / no symmetry", "ASTRA-sim / engine alone", "SimGrid / weft", "SimGrid / no symmetry",
        "ms: weft; ASTRA-sim; SimGrid")
NOTE = f"""CPU is user + system time of whole processes, medians of {TIMES} in turn (one, of what takes more than
{LONG_S:.0f} s). A run of more than {MOST_S:.0f} s or {MOST_BYTES // GIB} GiB is ended ("more than", ">"), and its
program not run on larger cases ("-"), nor one that refuses their size; a peak of 17 MiB or less is that of the process
that starts it. A process of weft imports Python, builds and proves the schedule, looks for its symmetry and lowers it;
those of the peers do nothing of this: a thin driver in C++ injects messages that it knows. "Engine alone" is that stage
of weft without symmetry. ASTRA-sim's engine (astra-network-analytical 599a0473, congestion-aware) and weft serve chunks
in turn at each link, stored and forwarded; there, all chunks of an all-to-all join their first link at time 0, and
times are whole nanoseconds. SimGrid 3.32 (S4U, CM02) shares links fairly among flows, and its NPUs send one message of
an all-to-all after the other."""


class Ran(NamedTuple):
    """What a process used, and the nanoseconds and, of weft, the seconds of the engine that it printed."""

    cpu_s: float
    peak_bytes: int
    said: tuple[float, ...]  # empty where it was ended at a limit


def ran(words: Sequence[str]) -> Ran:
    """Run a program to its end or to the limits.

    RuntimeError: it fails.
    """
    with TemporaryFile("w+") as out:
        process = subprocess.Popen(words, stdout=out, cwd=Path(__file__).parents[1])
        ended, peak = False, 0
        while (found := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            at = Path(f"/proc/{process.pid}")
            resident = int((at / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            ticks = (at / "stat").read_text().rpartition(")")[2].split()[11:13]
            peak = max(peak, resident)
            if not ended and (peak > MOST_BYTES or sum(map(int, ticks)) > MOST_S * os.sysconf("SC_CLK_TCK")):
                ended = True
                process.send_signal(signal.SIGKILL)
            time.sleep(0.02)
        _, status, used = found
        process.returncode = status
        if status and not ended and os.waitstatus_to_exitcode(status) != REFUSED:
            raise RuntimeError(f"{' '.join(words)} fails: {status}")
        out.seek(0)
        said = () if status else tuple(map(float, out.read().split()))
        return Ran(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said)


def programs(astra: str | None = None, simgrid: str | None = None) -> dict[str, list[str]]:
    """The words that each runs with, by its name; those that are there."""
    own = [sys.executable, "-m", "benchmarks.peers", "--run"]
    found = {WEFT: [*own, "auto"], WHOLE: [*own, "off"]}
    for name, given, variable, more in ((ASTRA, astra, "WEFT_ASTRA", ()), (SIMGRID, simgrid, "WEFT_SIMGRID", CONFIG)):
        file = given or os.environ.get(variable, "")
        if which(file) is None:
            print(f"{name} is absent: {variable}={file!r} is no program; python -m benchmarks.peers --help")
        else:
            found[name] = [file, *more]
    return found


def hops(kind: str, n: int) -> int:
    """Chunks crossing links."""
    return 2 * (n - 1) * n if kind == "ring" else n**4 * (n // 2)


def rows(cases: Sequence[tuple[str, int, int]], found: dict[str, list[str]]) -> Iterator[tuple[str, ...]]:
    """A row for each case."""
    ended: set[tuple[str, str]] = set()  # programs that came to a limit, and the collective
    for kind, n, size in cases:
        runs: dict[str, list[Ran]] = {name: [] for name in found if (name, kind) not in ended}
        for _ in range(TIMES):
            for name, some in runs.items():
                if not some or some[0].cpu_s < LONG_S:
                    some.append(ran([*found[name], kind, str(n), str(size)]))
        middle = {name: sorted(some)[len(some) // 2] for name, some in runs.items()}
        ended |= {(name, kind) for name, one in middle.items() if not one.said}
        ours, whole = middle[WEFT], middle.get(WHOLE)
        engine = median(one.said[1] for one in runs[WHOLE]) if whole and whole.said else inf
        cells = [used(middle.get(name)) for name in NAMES]
        ratios = [ratio(middle.get(ASTRA), cpu_s) for cpu_s in (ours.cpu_s, cpu(whole), engine)]
        ratios += [ratio(middle.get(SIMGRID), cpu_s) for cpu_s in (ours.cpu_s, cpu(whole))]
        times_ms = "; ".join(f"{one.said[0] / 1e6:.3f}" if (one := middle.get(name)) and one.said else "-"
                             for name in (WEFT, ASTRA, SIMGRID))
        yield (named(kind, n), f"{hops(kind, n):,}", *cells, *ratios, times_ms)


def named(kind: str, n: int) -> str:
    return f"all-reduce, ring:{n}" if kind == "ring" else f"all-to-all, torus:{n}x{n}"


def cpu(one: Ran | None) -> float:
    return one.cpu_s if one and one.said else inf


def used(one: Ran | None) -> str:
    """CPU and peak memory, or the limit that was reached."""
    if one is None:
        return "-"
    if not one.said:
        too_long = f"more than {MOST_S:.0f} s" if one.cpu_s >= MOST_S else "refused"
        return f"more than {MOST_BYTES // GIB} GiB" if one.peak_bytes > MOST_BYTES else too_long
    return f"{one.cpu_s:.2f}, {one.peak_bytes / MIB:,.0f} MiB"


def ratio(one: Ran | None, cpu_s: float) -> str:
    """CPU of a peer over ours; above it where the peer was ended."""
    if one is None or cpu_s == inf or (not one.said and one.cpu_s < MOST_S):
        return "-"
    return f"{'' if one.said else '> '}{one.cpu_s / cpu_s:.2g}"


def run_own(symmetry: str, kind: str, n: int, size: int) -> None:
    """Simulate a case, as a peer does; prints ns, and the seconds of the engine."""
    from collectives import build
    from sim import simulate
    from topologies import WeftError, from_spec
    from topologies.stages import start_profile

    profile = start_profile()
    fabric = from_spec(f"ring:{n}" if kind == "ring" else f"torus:{n}x{n}",
                       bandwidth=f"{50 * GIB}B/s", latency="500ns", hop_latency="0s")
    schedule = (build("ring", "all-reduce", fabric, n * size, directions=1) if kind == "ring"
                else build("direct", "all-to-all", fabric, n * n * size))
    try:
        result = simulate(schedule, chunks=1, forwarding="store-and-forward", symmetry=symmetry)
    except WeftError as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(REFUSED) from None
    print(result.time_s * 1e9, profile.up_to_now()["engine"].cpu_s)


def table(astra: str | None = None, simgrid: str | None = None, only: str = "") -> Table:
    """Of the programs that are there, and the cases with this in their names."""
    cases = [case for case in (*RING, *TORUS) if only in named(*case[:2])]
    return Table(TITLE, HEAD, lambda: rows(cases, programs(astra, simgrid)), " ".join(NOTE.split()))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--astra", metavar="PROGRAM", help="default: WEFT_ASTRA of the environment")
    parser.add_argument("--simgrid", metavar="PROGRAM", help="default: WEFT_SIMGRID of the environment")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their names")
    parser.add_argument("--run", nargs=4, metavar=("SYMMETRY", "KIND", "N", "BYTES"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        run_own(chosen.run[0], chosen.run[1], *map(int, chosen.run[2:]))
    else:
        show(table(chosen.astra, chosen.simgrid, chosen.only))


if __name__ == "__main__":
    main()
