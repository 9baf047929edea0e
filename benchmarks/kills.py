"""`python -m benchmarks.kills --kills 200`: commands killed with SIGKILL at random moments, and what they left behind.

Commands run in forks of this process, so that kills fall into their work and not into loading the interpreter.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sim.cli import main as weft
from sim.study.file import Sweep, read_sweep
from sim.study.key import point_key
from sim.study.store import Store
from sim.study.sweep import run_sweep, sweep_rows

WAIT_SECONDS = 60.0
"""For a process to end that must."""

POINTS = """
[topology]
spec = ["ring:4", "fc:4", "switch:4"]
[collective]
algorithms = ["ring", "direct"]
[model]
chunks = [1, 2, 3, 4]
[sweep]
begin = 1024
end = {end}
factor = 2
"""
"""24 points a size."""


@dataclass
class Count:
    """What a kind of kill has done.

    Attributes
    ----------
    name : str
    kills : int
        Processes killed while they worked; those that ended first are not counted.
    finished : int
        Points that were stored when the kill came, over all kills; every one was there afterwards, and right.
    whole : int
        Output files found afterwards: each was the whole old one or the whole new one.
    orphans : int
        Processes left by their killed parent, workers and Python's tracker of resources; all ended by themselves.
    left_over : int
        Hidden temporary files of kills in the middle of a write.
    """

    name: str
    kills: int = 0
    finished: int = 0
    whole: int = 0
    orphans: int = 0
    left_over: int = 0


@dataclass
class Bench:
    """A folder with the sweep, its finished store, and the right rows."""

    folder: Path
    seed: int = 1
    n_sizes: int = 7
    draw: random.Random = field(init=False)
    sweep: Sweep = field(init=False)
    rows: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.file = self.folder / "points.toml"
        self.file.write_text(POINTS.format(end=1024 << (self.n_sizes - 1)))
        self.sweep = read_sweep(self.file)
        with Store(self.folder / "expected.db") as store:
            run_sweep(self.sweep.points, store)
            self.rows = sweep_rows(self.sweep, store)
        _warm(["sweep", str(self.file), "--store", str(self.folder / "expected.db"), "--quiet"])

    def kill(self, commands: Sequence[Sequence[str]], seconds: float) -> tuple[int, list[int]]:
        """Run commands at once and kill each at its moment; how many were still at work, and their workers."""
        running = {_fork(words): monotonic() + self.draw.uniform(0, seconds) for words in commands}
        killed, workers = 0, []
        for process, moment in sorted(running.items(), key=lambda item: item[1]):
            sleep(max(0.0, moment - monotonic()))
            workers += _children(process)
            os.kill(process, signal.SIGKILL)
            killed += os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
        return killed, workers

    def check_store(self, path: Path, before: set[str]) -> set[str]:
        """The store opens, has what it had, and only right rows; its keys."""
        with Store(path) as store:
            keys = set(store.reasons())
            rows = sweep_rows(self.sweep, store)
        with sqlite3.connect(path) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()
        wanted = [row for task, row in zip(self.sweep.points, self.rows, strict=True) if point_key(task) in keys]
        assert before <= keys, f"lost: {before - keys}"
        assert rows == wanted, "a row differs"
        return keys


def kill_sweeps(bench: Bench, kills: int, together: int = 1, workers: int = 1) -> Count:
    """Kill sweeps, let them go on, and start again whenever one is complete."""
    name = f"sweep in {together} process{'es' * (together > 1)}" + f" with {workers} workers each" * (workers > 1)
    count, path = Count(name), bench.folder / f"killed-{together}-{workers}.db"
    words = ["sweep", str(bench.file), "--store", str(path), "--workers", str(workers), "--quiet"]
    seconds = _duration(words) / (1 if workers > 1 else 2)
    path.unlink()
    before: set[str] = set()
    while count.kills < kills:
        killed, orphans = bench.kill([words] * together, seconds)
        _await_end(orphans)
        if path.exists():
            before = bench.check_store(path, before)
        count.kills, count.orphans, count.finished = (
            count.kills + killed,
            count.orphans + len(orphans),
            count.finished + len(before),
        )
        if len(before) == len(bench.rows):
            path.unlink()
            before = set()
    left = len(bench.rows) - len(before)
    tally = run_sweep(bench.sweep.points, path)
    assert (tally.stored, tally.computed) == (len(before), left), "the rest was not resumed"
    assert len(bench.check_store(path, before)) == len(bench.rows)
    return count


def kill_writers(bench: Bench, kills: int, name: str, words: Sequence[str], files: Sequence[Path]) -> Count:
    """Kill a command that writes files; they are absent, or as before, or new and whole."""
    count, old = Count(name), b"what was there before\n"
    _warm(words)
    seconds = 1.1 * _duration(words)
    whole = {file: _content(file) for file in files}
    while count.kills < kills:
        present = [bench.draw.random() < 0.5 for _ in files]
        for file, there in zip(files, present, strict=True):
            file.write_bytes(old) if there else file.unlink(missing_ok=True)
        count.kills += bench.kill([words], seconds)[0]
        for file, there in zip(files, present, strict=True):
            assert file.exists() or not there, f"{file.name} was lost"
            if file.exists():
                assert file.read_bytes() == old or _content(file) == whole[file], f"{file.name} is neither old nor new"
                count.whole += 1
        for left in files[0].parent.glob(".*"):
            left.unlink()
            count.left_over += 1
    return count


def kinds(bench: Bench) -> dict[str, Callable[[int], Count]]:
    """Every kind of kill, by name."""
    out = bench.folder / "out"
    out.mkdir(exist_ok=True)
    exports = [out / "rows.csv", out / "rows.parquet"]
    compared = [out / "compare.json", out / "compare.csv", out / "compare.png"]
    page, trace, results = out / "report.html", out / "trace.json.gz", bench.folder / "results"
    results.mkdir(exist_ok=True)
    small = ["--topology", "torus:4x4", "-b", "64K", "--algorithms", "swing", "--form", "latency", "--quiet"]
    _warm(["compare", *small, "--json", str(results / "swing.json")])
    stored = ["sweep", str(bench.file), "--store", str(bench.folder / "expected.db"), "--quiet", "--status"]
    compare = [
        "compare",
        "--topology",
        "torus:4x4",
        "-b",
        "1K",
        "-e",
        "4K",
        "--algorithms",
        "swing,ring",
        "--quiet",
        "--json",
        str(compared[0]),
        "--csv",
        str(compared[1]),
        "--plot",
        str(compared[2]),
    ]
    return {
        "sweep": lambda kills: kill_sweeps(bench, kills),
        "two": lambda kills: kill_sweeps(bench, kills, together=2),
        "workers": lambda kills: kill_sweeps(bench, kills, workers=2),
        "csv": lambda kills: kill_writers(
            bench, kills, "export to CSV", [*stored, "--export", str(exports[0])], exports[:1]
        ),
        "parquet": lambda kills: kill_writers(
            bench, kills, "export to Parquet", [*stored, "--export", str(exports[1])], exports[1:]
        ),
        "compare": lambda kills: kill_writers(bench, kills, "compare: JSON, CSV and figure", compare, compared),
        "report": lambda kills: kill_writers(
            bench, kills, "report", ["report", str(results), "--quiet", "--page", str(page)], [page]
        ),
        "trace": lambda kills: kill_writers(
            bench, kills, "trace for Perfetto", ["trace", *small, "--perfetto", str(trace)], [trace]
        ),
    }


def _fork(words: Sequence[str]) -> int:
    """Run a command in a fork, silently."""
    process = os.fork()
    if process == 0:
        code = 70
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            code = weft(words)
        finally:
            os._exit(code)
    return process


def _warm(words: Sequence[str]) -> None:
    """Load what a command needs, so that its forks begin to work at once."""
    with redirect_stdout(io.StringIO()):
        assert weft(words) == 0


def _duration(words: Sequence[str]) -> float:
    """Seconds that a command takes when it is let alone; it must succeed."""
    begun = monotonic()
    status = os.waitpid(_fork(words), 0)[1]
    assert status == 0, f"weft {' '.join(words)} failed: {status}"
    return monotonic() - begun


def _content(file: Path) -> Any:
    """What must be equal from run to run: all but the seconds that it took."""
    if file.suffix == ".json":
        data = json.loads(file.read_text())
        return data | {"rows": [{**row, "wall_s": 0} for row in data["rows"]]}
    if file.suffix == ".csv":
        with file.open(newline="") as text:
            return [{**row, "wall_s": 0} for row in csv.DictReader(text)]
    return file.read_bytes()


def _children(process: int) -> list[int]:
    """Processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _await_end(processes: Sequence[int]) -> None:
    """Orphans end by themselves."""
    last = monotonic() + WAIT_SECONDS
    while alive := [one for one in processes if _is_alive(one)]:
        assert monotonic() < last, f"workers {alive} outlive their parent"
        time.sleep(0.02)


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Kill, check, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=main.__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each kind")
    parser.add_argument("--kinds", default="sweep,two,workers,csv,parquet,compare,report,trace")
    parser.add_argument("--sizes", type=int, default=7, help="points are 24 times as many")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| what was killed | kills | finished points seen again | whole files | orphans ended | left over |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.seed, given.sizes)
        every = kinds(bench)
        for kind in given.kinds.split(","):
            one = every[kind](given.kills)
            numbers = (one.kills, one.finished, one.whole, one.orphans, one.left_over)
            print(f"| {one.name} | " + " | ".join(f"{number:,}" for number in numbers) + " |", flush=True)


if __name__ == "__main__":
    main()
