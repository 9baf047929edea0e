"""Thirty real commands, each a process: CPU, memory, the engine's share, the stage that takes most beside it, variants.

`python -m benchmarks.commands` writes docs/performance_commands.md. `--variant checked=--check` adds flags to the
commands that have them, `--variant none=FILE.py` runs FILE in place of `python -m sim`. Variants take turns.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.tables import Table, machine, show
from sim.cli import parsers

HERE = Path(__file__).parent
BOOK = HERE / "commands.toml"
PAGE = HERE.parent / "docs" / "performance_commands.md"
PLAIN = "as it is"
ENGINE = "engine"
LONG_S = 10.0
NOTE = "User + system time of processes: medians of {} rounds at most, kernels compiled before; `make bench-commands`."


class Used(NamedTuple):
    """What a process used, or the median of several."""

    cpu_s: float
    peak_bytes: int
    stages_s: Mapping[str, float]  # by the names of `--profile`

    @classmethod
    def middle(cls, runs: Sequence[Used]) -> Used:
        """Medians."""
        stages = {name: median(one.stages_s.get(name, 0.0) for one in runs) for run in runs for name in run.stages_s}
        return cls(median(one.cpu_s for one in runs), int(median(one.peak_bytes for one in runs)), stages)

    @property
    def engine_s(self) -> float:
        return self.stages_s.get(ENGINE, 0.0)

    @property
    def largest(self) -> str:
        """The stage beside the engine that takes the most, imports and what is in none left out."""
        others = self.others_s
        name = max(others, key=lambda one: others[one], default="")
        return f"{name} {others[name]:.2f} s" if name else ""

    @property
    def others_s(self) -> dict[str, float]:
        """The stages beside the engine, imports and what is in none left out."""
        others = {name: taken for name, taken in self.stages_s.items() if name not in ("imports", "other")}
        return {name: taken for name, taken in others.items() if name.split(", ")[0] != ENGINE}

    @property
    def beyond(self) -> str:
        """The stages that take more than the engine, workers included, and than half a second."""
        engine_s = sum(taken for name, taken in self.stages_s.items() if name.split(", ")[0] == ENGINE)
        return ", ".join(f"{name} {taken:.2f} s" for name, taken in self.others_s.items() if taken > max(engine_s, 0.5))


def book() -> dict[str, list[str]]:
    """The words of each command, by its name."""
    return {name: shlex.split(line) for name, line in tomllib.loads(BOOK.read_text())["commands"].items()}


def measured(words: Sequence[str], flags: Sequence[str], entry: Sequence[str]) -> Used:
    """Run a command in a folder of its own, which has the examples.

    RuntimeError: it fails.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(HERE.parent / "examples")
        errors = Path(folder) / "stderr"
        process = os.fork()
        if process == 0:
            os.chdir(folder)
            os.environ["PYTHONPATH"] = str(HERE.parent)
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed weft has its bytecode
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
            os.execv(sys.executable, [sys.executable, *entry, *words, *flags, "--profile"])
        _, status, used = os.wait4(process, 0)
        said = errors.read_text()
    if status:
        raise RuntimeError(f"weft {shlex.join(words)}: {said}")
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, stages_s(said))


def stages_s(profile: str) -> dict[str, float]:
    """CPU seconds of each stage in what `--profile` prints, worker processes included."""
    found: dict[str, float] = {}
    for row in re.findall(r"^  (\S.*?),? +[\d.]+ +([\d.]+)  ", profile, re.MULTILINE):
        found[row[0]] = found.get(row[0], 0.0) + float(row[1])
    return found


def turns(words: Sequence[str], variants: Mapping[str, str], times: int) -> dict[str, Used]:
    """Medians of a command in every variant, A B A B; of one that takes long a single round."""
    has = {option for action in parsers()[words[0]]._actions for option in action.option_strings}
    runs: dict[str, list[Used]] = {name: [] for name in variants}
    while (done := len(runs[PLAIN])) == 0 or (done < times and runs[PLAIN][0].cpu_s < LONG_S):
        for name in variants:
            runs[name].append(one(words, variants[name], has))
    return {name: Used.middle(of) for name, of in runs.items()}


def one(words: Sequence[str], variant: str, has: set[str]) -> Used:
    """A command in a variant; its flags are left out where the command has none of them."""
    flags = [] if variant.endswith(".py") else shlex.split(variant)
    entry = [variant] if variant.endswith(".py") else ["-m", "sim"]
    return measured(words, flags if has.issuperset(flags[:1]) else [], entry)


def rows(commands: Mapping[str, Sequence[str]], variants: Mapping[str, str], times: int) -> Iterator[tuple[str, ...]]:
    """A row for each command, and the whole."""
    total = dict.fromkeys(variants, 0.0)
    engine = 0.0
    for name, words in commands.items():
        found = turns(words, variants, times)
        total = {one: total[one] + found[one].cpu_s for one in variants}
        plain = found[PLAIN]
        engine += plain.engine_s
        yield (name, f"{plain.cpu_s:.2f}", f"{plain.engine_s:.2f}", f"{plain.engine_s / plain.cpu_s:.0%}",
               plain.largest, plain.beyond, f"{plain.peak_bytes / 2**20:.0f} MiB",
               *(f"{found[one].cpu_s:.2f}" for one in variants if one != PLAIN))
    yield ("all", f"{total[PLAIN]:.1f}", f"{engine:.1f}", f"{engine / total[PLAIN]:.0%}", "", "", "",
           *(f"{total[one]:.1f}" for one in variants if one != PLAIN))


def main() -> None:
    """Measure, print, and write the page; of a part of the book, print alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=FLAGS|NAME=FILE.py")
    parser.add_argument("--only", default="", metavar="TEXT", help="commands with this in their names")
    parser.add_argument("--times", type=int, default=3, help="rounds of commands that take less than 10 s")
    chosen = parser.parse_args()
    subprocess.run([sys.executable, "-m", "sim", "warm"], check=True)
    variants = {PLAIN: "", **dict(one.split("=", 1) for one in chosen.variant)}
    commands = {name: words for name, words in book().items() if chosen.only in name}
    others = (f"CPU s, {name}" for name in variants if name != PLAIN)
    head = ("command", "CPU s", "of these the engine", "share", "the most beside it", "beyond it and 0.5 s", "peak",
            *others)
    note = NOTE.format(chosen.times)
    text = show(Table("Thirty commands", head, lambda: rows(commands, variants, chosen.times), note))
    if not chosen.only:
        lines = "\n".join(f"- {name}: `weft {shlex.join(words)}`" for name, words in commands.items())
        PAGE.write_text(f"# Performance: thirty commands\n\nMeasured on {machine()}. {text}\n\n{lines}\n")


if __name__ == "__main__":
    main()
