"""Measured times: nccl-tests text and JSON, OSU micro-benchmark text, and tables or JSON of our own.

Sizes are converted to those of nccl-tests, the whole array: OSU's all-gather and all-to-all report the bytes of one
pair of ranks, which is 1/p of it. A reader follows the header of the file, not the position of columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from collectives.core.collective import COLLECTIVES
from collectives.core.collective import collective as named
from topologies.checks import WeftError, checked, choice
from topologies.text.brief import one_line
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_json

PLACEMENTS = ("out-of-place", "in-place")
MOST_POINTS = 100_000
MOST_BYTES = 2**50
"""Of one array."""

NCCL_TESTS = {
    "all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather",
    "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
"""Programs of nccl-tests, without their "_perf"."""

OSU_TESTS = {
    "allreduce": "all-reduce", "reduce_scatter": "reduce-scatter", "allgather": "all-gather",
    "all-to-all personalized exchange": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
"""Titles of OSU tests, between "OSU MPI" and "Latency Test"."""

_PER_PAIR = ("all-gather", "all-to-all")
"""Collectives for which OSU counts the bytes of one pair of ranks."""

_PREFIX = re.compile(r"^(?:\[[0-9, ]+\]\s*<std(?:out|err)>:|\s*[0-9]+:)\s?")
_NCCL_RANK = re.compile(r"^#\s+Rank\s+([0-9]+)\s(?:.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s+(.*\S))?")
_NCCL_NAME = re.compile(r"\b([a-z_]+?)_perf\b")
_OSU_TITLE = re.compile(r"^#\s*OSU MPI(?:-CUDA|-ROCM)? (.+?) Latency Test", re.IGNORECASE)
_NCCL_COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "error")
_JSON_KEYS = {
    "version", "start_time", "args", "env", "nccl_version", "config", "devices", "results", "out_of_bounds",
    "average_bus_bandwidth", "errors", "end_time", "timestamp",
}
_ROW_KEYS = {
    "size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations", "experiment_name",
    "out_of_place_per_iter", "in_place_per_iter",
}
_TIME_KEYS = {"time", "cpu_time", "alg_bw", "bus_bw", "nwrong"}


class Point(NamedTuple):
    """One measurement: bytes of the whole array, and seconds."""

    size_bytes: int
    time_s: float


@checked
@one_line
@dataclass(frozen=True)
class Measurements:
    """Points of one collective.

    Attributes
    ----------
    source : str
        The file.
    format : str
        For people: "nccl-tests JSON".
    points : tuple of Point
        By size; empty arrays and untimed rows are left out.
    left_out : int
        How many were.
    collective : str or None
        If the file states it.
    n_ranks : int or None
        Likewise.
    hosts : int or None
        Nodes that the header of nccl-tests lists.
    device : str
        GPU that it names first, such as "NVIDIA H100 80GB HBM3"; "" if none.
    """

    source: str
    format: str
    points: tuple[Point, ...]
    left_out: int = 0
    collective: str | None = None
    n_ranks: int | None = None
    hosts: int | None = None
    device: str = ""


@checked
def read_measurements(
    path: str | Path, *, collective: str | None = None, n_ranks: int | None = None, placement: str = PLACEMENTS[0]
) -> Measurements:
    """The measurements of a file, whatever its format.

    Parameters
    ----------
    path : path
    collective : str, optional
        Must agree with that of the file, if it states one.
    n_ranks : int, optional
        Likewise; OSU files need it.
    placement : {"out-of-place", "in-place"}
        Which of the two measurements of nccl-tests to use.

    Raises
    ------
    WeftError
        Names file, line or key, and what is wrong: no known format, an unknown key, a bad number, another collective
        or number of ranks, no point at all.
    """
    name = str(path)
    choice(placement, PLACEMENTS, "placement")
    text = read_input(path, "measurements")
    lines = [_PREFIX.sub("", line).rstrip() for line in text.splitlines()]
    if text.lstrip().startswith("{"):
        found = _json(text, name, placement)
    elif any(_OSU_TITLE.match(line) for line in lines):
        found = _osu(lines, name, collective, n_ranks)
    else:
        found = _nccl_text(lines, name, placement)
    return _agreed(found, None if collective is None else named(collective).name, n_ranks)


def _agreed(found: Measurements, collective: str | None, n_ranks: int | None) -> Measurements:
    for what, said, asked in (("collective", found.collective, collective), ("ranks", found.n_ranks, n_ranks)):
        if said is not None and asked is not None and said != asked:
            raise WeftError(f"{found.source} measured {what} {said}, but {asked} is requested")
    name = found.collective or collective
    if name is None:
        raise WeftError(f"{found.source} does not name its collective: give --collective")
    if not found.points:
        raise WeftError(f"{found.source} ({found.format}) has no measured time")
    if len(found.points) > MOST_POINTS:
        raise WeftError(f"{found.source} has {len(found.points):,} points; at most {MOST_POINTS:,}")
    points = tuple(sorted(found.points))
    return replace(found, points=points, collective=name, n_ranks=found.n_ranks or n_ranks)


def _measured(
    source: str, format: str, rows: Sequence[tuple[str, Any, Any]], collective: str | None, n_ranks: int | None = None,
    *, size_factor: int = 1,
) -> Measurements:
    """Points of (where, size in bytes, time in us); empty arrays and missing times are counted."""
    points, left_out = [], 0
    for where, size, time_us in rows:
        try:
            number, time = int(size), float(time_us)
        except (TypeError, ValueError, OverflowError):
            raise WeftError(f"{source}, {where}: size {size!r} or time {time_us!r} is not a number") from None
        fraction = isinstance(size, float) and size != number
        if not 0 <= number <= MOST_BYTES or fraction or time < 0 or time == float("inf"):
            raise WeftError(f"{source}, {where}: size {size!r} or time {time_us!r} is out of range")
        if number == 0 or not time > 0:
            left_out += 1
        else:
            points.append(Point(number * size_factor, time / 1e6))
    return Measurements(source, format, tuple(points), left_out, collective, n_ranks)


# --- nccl-tests ---------------------------------------------------------------------------------------------------


def _nccl_text(lines: Sequence[str], name: str, placement: str) -> Measurements:
    columns: list[str] = []
    rows: list[tuple[str, Any, Any]] = []
    ranks: set[int] = set()
    hosts: set[str] = set()
    device = ""
    collective, ended = None, False
    for number, line in enumerate(lines, start=1):
        words = line.lstrip("#").split()
        if line.startswith("#"):
            ended = ended or words[:3] in (["Out", "of", "bounds"], ["Avg", "bus", "bandwidth"])
            if words[:2] == ["size", "count"]:
                if columns:
                    raise WeftError(f"{name}, line {number}: a second table; one is expected")
                columns = words
                _check_columns(columns, f"{name}, line {number}")
            elif rank := _NCCL_RANK.match(line):
                ranks.add(int(rank[1]))
                hosts |= {rank[2]} if rank[2] else set()
                device = device or rank[3] or ""
            if "starting" in line and (test := _NCCL_NAME.search(line)):
                collective = _nccl_collective(test[1], f"{name}, line {number}")
        elif words and words[0].isdecimal() and not ended:
            if not columns:
                raise WeftError(f"{name}, line {number}: numbers before the header '# size count type ...'")
            if len(words) < len(columns):
                raise WeftError(f"{name}, line {number}: {len(words)} of {len(columns)} columns: is the file cut off?")
            at = [place for place, column in enumerate(columns) if column == "time"]
            rows.append((f"line {number}", words[0], words[at[PLACEMENTS.index(placement) if len(at) > 1 else 0]]))
    if not columns:
        raise WeftError(f"{name} has no known format: nccl-tests text or JSON, OSU text, or weft's JSON are read")
    found = _measured(name, "nccl-tests text", rows, collective, len(ranks) or None)
    return replace(found, hosts=len(hosts) or None, device=device)


def _check_columns(columns: Sequence[str], where: str) -> None:
    for column in columns:
        if column not in _NCCL_COLUMNS and not column.startswith("i_"):
            raise WeftError(f"{where} has the unknown column {column!r}: known are {', '.join(_NCCL_COLUMNS)}, i_...")
    if "time" not in columns:
        raise WeftError(f"{where} has no column time")


def _nccl_collective(test: str, where: str) -> str:
    if test not in NCCL_TESTS:
        raise WeftError(f"{where}: the test {test}_perf measures no known collective: {', '.join(NCCL_TESTS)}")
    return NCCL_TESTS[test]


def _json(text: str, name: str, placement: str) -> Measurements:
    data = parse_json(text, name)
    if "weft" in data:
        return _own_json(data, name)
    _check_keys(data, _JSON_KEYS, name)
    results = data.get("results")
    if not isinstance(results, list):
        raise WeftError(f"{name} lacks the key 'results', a list")
    names = {str(row.get("experiment_name")) for row in results if isinstance(row, Mapping)}
    if len(names) > 1:
        raise WeftError(f"{name} has rows of several: experiment_name {', '.join(sorted(names))}; one is expected")
    key = placement.replace("-", "_")
    rows = []
    for number, row in enumerate(results):
        where = f"results[{number}]"
        if not isinstance(row, Mapping) or "size" not in row:
            raise WeftError(f"{name}, {where} lacks the key 'size'")
        _check_keys(row, _ROW_KEYS, f"{name}, {where}")
        body = row.get(key)
        if body is not None and (not isinstance(body, Mapping) or not {"time", "cpu_time"} & set(body)):
            raise WeftError(f"{name}, {where}: {key} lacks the key 'time'")
        _check_keys(body or {}, _TIME_KEYS, f"{name}, {where}: {key}")
        rows.append((where, row["size"], 0 if body is None else body.get("time", body.get("cpu_time"))))
    devices = data.get("devices")
    n_ranks = len(devices) if isinstance(devices, list) and devices else None
    return _measured(name, "nccl-tests JSON", rows, _collective_of_args(data.get("args"), name), n_ranks)


def _check_keys(data: Mapping[str, Any], accepted: Collection[str], where: str) -> None:
    for key in data:
        if key not in accepted:
            raise WeftError(f"{where} has the unknown key {key!r}: accepted are {', '.join(sorted(accepted))}")


def _collective_of_args(args: Any, name: str) -> str | None:
    test = _NCCL_NAME.search(str(args[0])) if isinstance(args, list) and args else None
    return _nccl_collective(test[1], f"{name}, args") if test else None


def _own_json(data: Mapping[str, Any], name: str) -> Measurements:
    """Rows of `weft compare --json`, which must be of one algorithm."""
    rows = data.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise WeftError(f"{name} lacks the key 'rows', a list")
    for key in ("collective", "algorithm"):
        if len(names := {str(row.get(key)) for row in rows}) > 1:
            raise WeftError(f"{name} has rows of several: {key} {', '.join(sorted(names))}; one is expected")
    found = [(f"rows[{at}]", row.get("size_bytes"), _microseconds(row.get("time_s", 0))) for at, row in enumerate(rows)]
    kind = rows[0].get("collective") if rows else None
    return _measured(name, "JSON of weft", found, kind if kind in COLLECTIVES else None)


def _microseconds(seconds: Any) -> Any:
    """Values that are not numbers are kept, to be rejected where they occur."""
    plain = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return float(seconds) * 1e6 if plain else str(seconds)


# --- OSU ----------------------------------------------------------------------------------------------------------


def _osu(lines: Sequence[str], name: str, collective: str | None, n_ranks: int | None) -> Measurements:
    kind, columns = None, 0
    rows: list[tuple[str, Any, Any]] = []
    for number, line in enumerate(lines, start=1):
        if title := _OSU_TITLE.match(line):
            test = title[1].lower()
            if test not in OSU_TESTS:
                raise WeftError(f"{name}, line {number}: the test {title[1]!r} is not one of {', '.join(OSU_TESTS)}")
            if kind not in (None, OSU_TESTS[test]):
                raise WeftError(f"{name}, line {number}: a second test, {title[1]!r}: one is expected")
            kind = OSU_TESTS[test]
        elif line.startswith("# Size"):
            heads = re.split(r"\s{2,}", line.lstrip("# ").rstrip())
            if heads[1:2] != ["Avg Latency(us)"]:
                raise WeftError(f"{name}, line {number}: the second column is {heads[1:2]}, not Avg Latency(us)")
            columns = len(heads)
        elif line[:1].isdecimal():
            words = line.split()
            if len(words) < max(columns, 2):
                raise WeftError(f"{name}, line {number}: {len(words)} of {columns} columns: is the file cut off?")
            rows.append((f"line {number}", words[0], words[1]))
    if not columns:
        raise WeftError(f"{name} has no line '# Size  Avg Latency(us)'")
    assert kind is not None
    if kind in _PER_PAIR and n_ranks is None:
        raise WeftError(f"{name} counts the bytes of a pair of ranks: the number of ranks is needed")
    return _measured(name, "OSU text", rows, kind, size_factor=n_ranks if kind in _PER_PAIR and n_ranks else 1)
