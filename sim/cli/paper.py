"""`weft paper NAME`: a published evaluation, point by point next to ours."""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from sim.cli.asked import required, spec_of
from sim.cli.output import STANDARD_OUTPUT, check_outputs, say_where, write_json
from sim.study.tables import from_csv
from topologies.checks import WeftError

NAME = "paper"


def run(arguments: argparse.Namespace) -> None:
    """Compute, print, and write tables and figures."""
    check_outputs(arguments)
    spec = spec_of(arguments)
    required(spec, "paper.name")
    name = str(spec.paper.name)
    out = arguments.out or Path("out") / name
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeftError(f"--out {out}: {fault.strerror}") from None
    before = _stamps(out)
    with redirect_stdout(sys.stderr) if arguments.json == STANDARD_OUTPUT else nullcontext():
        importlib.import_module(f"sim.papers.{name}").run(out, spec.paper.quick)
    new = _tables([path for path, stamp in _stamps(out).items() if before.get(path) != stamp])
    rows = [{"table": table, **row} for table, rows in new.items() for row in rows]
    write_json(arguments, spec, rows)
    say_where(arguments)


def _stamps(out: Path) -> dict[Path, int]:
    """When each table was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.csv"))}


def _tables(files: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """The tables that were written, row by row."""
    return {path.stem: [_values(row) for row in from_csv(path.read_text(encoding="utf-8"))] for path in files}


def _values(row: dict[str, str]) -> dict[str, str | float | int | None]:
    return {key: _value(text) for key, text in row.items()}


def _value(text: str) -> str | float | int | None:
    """A cell as a number; what JSON cannot represent as a number stays text."""
    try:
        number = float(text)
    except ValueError:
        return text or None
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("-").isdecimal() else number
