"""The results of a sweep, as tidy rows in its own order, whatever ran it and in whatever order points ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from sim.study.file import Sweep
from sim.study.key import Keyed, keyed_sweep
from sim.study.points import Row, Task
from sim.study.store import Finished, Store
from sim.study.tables import to_csv
from topologies import WeftError
from topologies.checks import checked
from topologies.stages import counting
from topologies.text.notebook import Rows
from topologies.units import format_size

Counts = dict[str, Counter[int]]
"""Number of points, by name and size."""


class Status(NamedTuple):
    points: int  # distinct ones
    finished: int
    # those of them that cannot run, by reason: names of algorithms and fabrics, with the sizes unless it holds at all
    refused: dict[str, list[str]]

    @property
    def left(self) -> int:
        return self.points - self.finished


def status_of(swept: Keyed, store: Store) -> Status:
    """Look up every point in a store."""
    known = store.reasons()
    every: Counts = {}
    refused: dict[str, Counts] = {}
    for key, task in swept.distinct.items():
        name = f"{task.algorithm} on {task.spec.fabric}"
        reason = known.get(key)
        for counts in (every, *([] if reason is None else [refused.setdefault(reason, {})])):
            counts.setdefault(name, Counter())[task.size_bytes] += 1
    said = {reason: [_at(name, here, every[name]) for name, here in names.items()] for reason, names in refused.items()}
    return Status(len(swept.distinct), sum(key in known for key in swept.distinct), said)


def _at(name: str, here: Mapping[int, int], every: Mapping[int, int]) -> str:
    """A name, with sizes unless all are affected, and counts where only some points of a size are."""
    if here == every:
        return name
    some = {size: "" if count == every[size] else f" ({count} of {every[size]} points)" for size, count in here.items()}
    return f"{name} at {', '.join(format_size(size) + some[size] for size in sorted(here))}"


@checked
def sweep_rows(sweep: Sweep, store: Store) -> Rows:
    """Rows of the finished points: the value on each axis, the columns of `Result.row` but of the run, and `refused`.

    Every row has all columns; those of a point that cannot run are None except those that identify it. A point that
    occurs twice on the axes has two rows.
    """
    return keyed_rows(keyed_sweep(sweep), store)


def keyed_rows(swept: Keyed, store: Store) -> Rows:
    """The rows of `sweep_rows`."""
    rows = []
    places = counting("rows", swept.sweep.places)
    for task, place, key, fabric in zip(swept.sweep.points, places, swept.keys, swept.fabrics, strict=True):
        if (found := store.get(key)) is not None:
            rows.append({name: _cell(value) for name, value in place.items()} | _row(task, fabric, found))
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    return Rows({name: row.get(name) for name in columns} for row in rows)


def _row(task: Task, fabric: str, found: Finished) -> Row:
    """`fabric`: its name as its file has it now, which may have been another when the point was computed."""
    if found.row is not None:
        return found.row | {"topology": fabric, "refused": None}
    named = {"topology": fabric, "collective": task.spec.kind.name}
    return named | {"algorithm": task.algorithm, "size_bytes": task.size_bytes, "refused": found.refused}


def _cell(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


@checked
def export(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as CSV or Parquet, by the suffix.

    Raises
    ------
    WeftError
        Another suffix, or Parquet without pyarrow.
    """
    if path.suffix == ".csv":
        path.write_text(to_csv(rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        write_parquet(rows, path)
    else:
        raise WeftError(f"{path} has the suffix {path.suffix!r}: write .csv or .parquet")


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as Parquet; nested values as JSON, and columns of mixed kinds as text, as in CSV.

    WeftError: pyarrow is not installed.
    """
    check_parquet()
    import pyarrow  # an extra
    from pyarrow import parquet

    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    for name, values in columns.items():
        flat = [json.dumps(value) if isinstance(value, (dict, list)) else value for value in values]
        mixed = len({str if isinstance(value, str) else float for value in flat if value is not None}) > 1
        columns[name] = [None if value is None else str(value) for value in flat] if mixed else flat
    parquet.write_table(pyarrow.table(columns), path)


def check_parquet() -> None:
    """Reject Parquet if it cannot be written, before anything is computed."""
    if find_spec("pyarrow") is None:
        raise WeftError("Parquet needs pyarrow: pip install 'weft[data]', or write .csv")
