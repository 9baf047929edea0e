"""`weft paper NAME`: a published evaluation, point by point next to ours."""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from sim.cli.asked import check_apart, spec_of
from sim.cli.output import STANDARD_OUTPUT, write_json
from sim.cli.progress import progress
from sim.study.tables import from_csv
from topologies.checks import WeftError


def run(arguments: argparse.Namespace) -> None:
    """Compute, print, and write tables and figures."""
    spec = spec_of(arguments)
    name = str(spec.paper.name)
    out = arguments.out = arguments.out or Path("out") / name
    check_apart(arguments, spec.to_dict())
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeftError(f"--out {out}: {fault.strerror}") from None
    if spec.paper.data is not None and name != "hardware":
        raise WeftError(f"--data {spec.paper.data} is for weft paper hardware: {name} has no measurements")
    more = {} if spec.paper.data is None else {"data": spec.paper.data}
    before = _stamps(out)
    aside = redirect_stdout(sys.stderr) if arguments.json == STANDARD_OUTPUT else nullcontext()
    with aside, progress(f"paper {name}", 1, arguments.quiet):
        importlib.import_module(f"sim.papers.{name}").run(out, spec.paper.quick, **more)
    new = [path for path, stamp in _stamps(out).items() if before.get(path) != stamp]
    rows: list[dict[str, Any]] = [
        {"table": path.stem, **{key: _value(text) for key, text in row.items()}}
        for path in new for row in from_csv(path.read_text(encoding="utf-8"))
    ]
    write_json(arguments, spec, rows)


def _stamps(out: Path) -> dict[Path, int]:
    """When each table was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.csv"))}


def _value(text: str) -> str | float | int | None:
    """A cell as a number; what JSON cannot represent as a number stays text."""
    try:
        number = float(text)
    except ValueError:
        return text or None
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("-").isdecimal() else number
