"""The results of a folder: every JSON file in it that a command wrote, and why others are left out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.study.tables import Row
from topologies.checks import WeftError, number
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_json

ROWS = ("rows", "schedules", "results")
"""Keys under which commands write their rows."""

UNITS = ("_s", "_ps", "_bytes", "_Bps", "_GBps")
"""Endings of columns with numbers."""


class ResultFile(NamedTuple):
    """A file of results that weft wrote."""

    name: str  # its path below the folder
    data: Mapping[str, Any]  # all of it
    rows: list[Row]


def read_results(folder: Path) -> tuple[list[ResultFile], list[str]]:
    """The result files below a folder by name, and for each other JSON file the reason why it is left out.

    WeftError: no such folder, or no result in it.
    """
    if not folder.is_dir():
        raise WeftError(f"{folder} is not a folder: name one with results that --json wrote")
    found: list[ResultFile] = []
    left_out: list[str] = []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        try:
            found.append(read_result(path, name))
        except WeftError as wrong:
            left_out.append(str(wrong))
    if not found:
        more = f" ({left_out[0]})" if left_out else ""
        raise WeftError(f"{folder} has no results: write some with --json {folder}/NAME.json{more}")
    return found, left_out


def read_result(path: Path, name: str) -> ResultFile:
    """One result file, under a name for messages."""
    data = parse_json(read_input(path, "result"), name)
    if not isinstance(data, dict):
        raise WeftError(f"{name} is not a result: it is not a JSON object")
    rows = next((data[key] for key in ROWS if isinstance(data.get(key), list)), None)
    if rows is None and "topology" in data and "npus" in data:
        rows = [data]  # what `weft topology` reports of one fabric
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise WeftError(f"{name} is not a result: it has no rows")
    for at, row in enumerate(rows):
        _check_units(row, f"{name}, row {at}")
    return ResultFile(name, data, rows)


def _check_units(row: Row, where: str) -> None:
    """What a column with a unit holds is a number, or nothing: figures and reports compute with it."""
    for key, value in row.items():
        if value is not None and key.endswith(UNITS) and not isinstance(value, list | dict):
            number(value, f"{where}: {key}")
