"""`weft paper NAME`: a published evaluation, point by point next to ours."""

import argparse
import math
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from sim.cli.asked import check_apart, spec_of
from sim.cli.output import STANDARD_OUTPUT, write_json
from sim.cli.progress import progress
from sim.papers.tables import run_paper
from sim.study.tables import from_csv
from topologies.checks import WeftError

TAKE_DATA = ("hardware", "training", "topoopt")
"""Papers that take measurements, or released files."""


def run(arguments: argparse.Namespace) -> None:
    """Compute, print, and write tables and figures."""
    spec = spec_of(arguments)
    name = str(spec.paper.name)
    out = arguments.out = arguments.out or Path("out") / name
    check_apart(arguments, spec.to_dict())
    if spec.paper.data is not None and name not in TAKE_DATA:
        raise WeftError(f"--data {spec.paper.data} is for weft paper {', '.join(TAKE_DATA)}: {name} takes no files")
    more = {} if spec.paper.data is None else {"data": spec.paper.data}
    aside = redirect_stdout(sys.stderr) if arguments.json == STANDARD_OUTPUT else nullcontext()
    with aside, progress(f"paper {name}", 1, arguments.quiet):
        left = run_paper(name, out, spec.paper.quick, **more)
    rows: list[dict[str, Any]] = [
        {"table": table, **{key: _value(text) for key, text in row.items()}}
        for table in sorted(left.tables, key="{}.csv".format) for row in from_csv(left.tables[table])
    ]
    write_json(arguments, spec, rows)


def _value(text: str) -> str | float | int | None:
    """A cell as a number; what JSON cannot represent as a number stays text."""
    try:
        number = float(text)
    except ValueError:
        return text or None
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("-").isdecimal() else number
