"""`weft plot`: figures of results that are there already, of one file or of several together."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_figure, add_quiet
from sim.cli.output import check_outputs, say_where, write_figure, write_text
from sim.version import weft_version
from topologies import WeftError
from topologies.units import parse_sweep_size

if TYPE_CHECKING:
    from sim.study.spec import Spec

NAME = "plot"
HELP = "draw a figure for a paper from JSON results"
EXAMPLES = (
    "weft plot all-reduce.json --figure speed-up --baseline ring --columns 1 --plot speed-up.pdf",
    "weft plot torus-4x4.json torus-8x8.json torus-16x16.json --figure scaling --size 64M --plot scaling.pdf",
    "weft plot all-reduce.json --figure roofline --plot roofline.png",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results, as --json writes them")
    parser.add_argument("--algorithms", metavar="NAME[,NAME]", help="draw these alone (all)")
    parser.add_argument("--size", metavar="SIZE", help="of a scaling (the largest that all fabrics have)")
    add_figure(parser, "comparison", "speed-up", "scaling", "roofline", "account")
    group = parser.add_argument_group("output")
    group.add_argument("--plot", metavar="FILE", help="draw a figure: .png, .pdf or .svg")
    group.add_argument("--json", metavar="FILE", help="write the rows that are drawn ('-': standard output)")
    add_quiet(group)


def run(arguments: argparse.Namespace) -> None:
    """Read, choose, draw."""
    check_outputs(arguments)
    if not (arguments.plot or arguments.json):
        raise WeftError("nothing is asked for: give --plot FILE or --json FILE")
    if arguments.size is not None:
        arguments.size = parse_sweep_size(arguments.size, "--size")
    rows, spec = read(arguments.files)
    if arguments.algorithms:
        rows = chosen(rows, arguments.algorithms.split(","))
    if arguments.plot:
        write_figure(arguments, rows, spec)
    if arguments.json:
        write_text(arguments.json, json.dumps({"weft": weft_version(), "rows": rows}, indent=1) + "\n")
    say_where(arguments)


def read(files: list[Path]) -> tuple[list[dict[str, Any]], Spec | None]:
    """The rows of all files, and the spec where one file has it.

    Raises
    ------
    WeftError
        A file that is no result, or whose rows are of something else.
    """
    from sim.report.results import read_result
    from sim.study.spec import Spec

    rows: list[dict[str, Any]] = []
    spec = None
    for path in files:
        result = read_result(path, str(path))
        for row in result.rows:
            missing = [key for key in ("topology", "collective", "algorithm", "size_bytes", "time_s") if key not in row]
            if missing:
                raise WeftError(f"{path} cannot be drawn: its rows have no {missing[0]}")
            rows.append(dict(row))
        if len(files) == 1 and isinstance(result.data.get("spec"), dict):
            spec = Spec.from_dict(result.data["spec"], f"{path}: spec")
    return rows, spec


def chosen(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The rows of some algorithms, in their order."""
    there = list(dict.fromkeys(row["algorithm"] for row in rows))
    for name in names:
        if name not in there:
            raise WeftError(f"--algorithms {name}: the results have {', '.join(there)}")
    return sorted((row for row in rows if row["algorithm"] in names), key=lambda row: names.index(row["algorithm"]))
