"""`weft paper NAME`: a published evaluation, point by point beside ours."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import math
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from sim.cli.output import STANDARD_OUTPUT, check_outputs, write_text
from sim.papers import PAPERS
from topologies import WeftError

NAME = "paper"
HELP = "reproduce a paper's figures and print every published point beside ours"
EXAMPLES = (
    "weft paper swing",
    "weft paper swing --quick --out out/swing",
    "weft paper libra --quick --json - > libra.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", metavar="NAME", help="one of " + ", ".join(PAPERS))
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="folder for the results (out/NAME)")
    parser.add_argument("--quick", action="store_true", help="a part that ends within a minute")
    parser.add_argument("--json", metavar="FILE", help="write all tables as JSON ('-': standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Compute, print, and write tables and figures."""
    check_outputs(arguments)
    if arguments.name not in PAPERS:
        raise WeftError(f"paper {arguments.name!r} is unknown: choose one of {', '.join(PAPERS)}")
    out = arguments.out or Path("out") / arguments.name
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeftError(f"--out {out}: {fault.strerror}") from None
    before = _stamps(out)
    with redirect_stdout(sys.stderr) if arguments.json == STANDARD_OUTPUT else nullcontext():
        importlib.import_module(f"sim.papers.{arguments.name}").run(out, arguments.quick)
    if arguments.json:
        new = [path for path, stamp in _stamps(out).items() if before.get(path) != stamp]
        write_text(arguments.json, _to_json(arguments, new))
    return 0


def _stamps(out: Path) -> dict[Path, int]:
    """When each table was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.csv"))}


def _to_json(arguments: argparse.Namespace, tables: list[Path]) -> str:
    """The tables that were written, row by row."""
    from sim.version import weft_version

    rows = {path.stem: [_values(row) for row in csv.DictReader(path.read_text().splitlines())] for path in tables}
    data = {"weft": weft_version(), "paper": arguments.name, "quick": arguments.quick, "tables": rows}
    return json.dumps(data, indent=1) + "\n"


def _values(row: dict[str, str]) -> dict[str, str | float | int | None]:
    return {key: _value(text) for key, text in row.items()}


def _value(text: str) -> str | float | int | None:
    """A cell as the number that it is; what JSON has no number for stays text."""
    try:
        number = float(text)
    except ValueError:
        return text or None
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("-").isdecimal() else number
