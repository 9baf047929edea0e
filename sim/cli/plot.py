"""`weft plot`: figures of existing results, from one file or several."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.cli.asked import spec_of
from sim.cli.output import write_figure, write_json
from sim.report.results import read_result
from sim.study.spec import Spec
from topologies.checks import WeftError, nearest
from topologies.units import parse_size


def run(arguments: argparse.Namespace) -> None:
    """Read, choose, draw."""
    asked = spec_of(arguments)
    size = None if asked.plot.size is None else parse_size(asked.plot.size, "--size")
    rows, specs = read([Path(name) for name in asked.plot.files or ()])
    if asked.plot.algorithms:
        rows = chosen(rows, asked.plot.algorithms)
    if arguments.plot:
        write_figure(arguments, rows, specs, size)
    write_json(arguments, asked, rows)


def read(files: list[Path]) -> tuple[list[dict[str, Any]], list[Spec]]:
    """The rows of all files, and the specs of those that have one.

    WeftError: a file that is not a result, or whose rows have no collective.
    """
    rows: list[dict[str, Any]] = []
    specs = []
    for path in files:
        result = read_result(path, str(path))
        for row in result.rows:
            missing = [key for key in ("topology", "collective", "algorithm", "size_bytes", "time_s") if key not in row]
            if missing:
                raise WeftError(f"{path} cannot be drawn: its rows have no {missing[0]}")
            rows.append(dict(row))
        if isinstance(result.data.get("spec"), dict):
            specs.append(Spec.from_dict(result.data["spec"], f"{path}: spec"))
    return rows, specs


def chosen(rows: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of some algorithms, in their order."""
    there = list(dict.fromkeys(row["algorithm"] for row in rows))
    for name in names:
        if name not in there:
            raise WeftError(f"--algorithms {name}: the results have {', '.join(there)}{nearest(name, there)}")
    return sorted((row for row in rows if row["algorithm"] in names), key=lambda row: names.index(row["algorithm"]))
