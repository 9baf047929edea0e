"""Measured times: text and JSON of nccl-tests and rccl-tests, text of OSU and HCCL, and tables or JSON of our own.

Sizes are converted to those of nccl-tests, the whole array. A reader follows the header of the file, not the position
of columns; prefixes of `mpirun --tag-output`, `--timestamp-output` and `srun -l` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectives.core.collective import COLLECTIVES
from collectives.core.collective import collective as named
from sim.measured.other_text import hccl_text, is_hccl, is_osu, osu_text
from sim.measured.points import Measurements, measured
from topologies.checks import WeftError, checked, choice
from topologies.text.input_text import STANDARD_INPUT, read_input
from topologies.text.plain_data import parse_json

PLACEMENTS = ("out-of-place", "in-place")
MOST_POINTS = 100_000
SETTLES = 0.3
"""Over the ranks: how far busbw over algbw may be off that of a collective; (n-1)/n is 1/n from 1."""

NCCL_TESTS = {
    "all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather",
    "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
"""Programs of nccl-tests, without their "_perf"."""

_PREFIX = re.compile(
    r"^(?:(?:\w{3} \w{3} +\d+ [\d:]{8} \d{4})?\s*(?:\[[0-9, ]+\])?\s*<std(?:out|err)>:|\s*[0-9]+:)\s?"
)
_VERSION = re.compile(r"(?:nccl-library=|NCCL version |RCCL version )(\d+)(?:\.(\d+))?")
_DRIVEN = re.compile(r"^#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)")
_NCCL_RANK = re.compile(r"^#\s+Rank\s+([0-9]+)\s(?:.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s+(.*\S))?")
_FAILED = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+FAILED")
_NCCL_NAME = re.compile(r"\b([a-z_]+?)_perf\b")
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


@checked
def read_measurements(
    path: str | Path, *, collective: str | None = None, n_ranks: int | None = None, placement: str = PLACEMENTS[0],
    guess: int | None = None,
) -> Measurements:
    """The measurements of a file, whatever its format.

    Parameters
    ----------
    path : path
        "-" is standard input.
    collective : str, optional
        Must agree with that of the file, if it states one. Text of nccl-tests that states none has that of its name
        ("all_reduce_perf"), or the one that busbw over algbw leaves.
    n_ranks : int, optional
        Likewise; OSU files need it.
    placement : {"out-of-place", "in-place"}
        Which of the two measurements of nccl-tests to use.
    guess : int, optional
        Ranks where the file states none.

    Raises
    ------
    WeftError
        Names file, line or key, and what is wrong: no known format, an unknown key, a bad number, another collective
        or number of ranks, no point at all.
    """
    name = str(path)
    choice(placement, PLACEMENTS, "placement")
    text = read_input(STANDARD_INPUT if name == "-" else path, "measurements")
    lines = [_PREFIX.sub("", line).rstrip() for line in text.splitlines()]
    if text.lstrip().startswith("{"):
        found = _json(text, name, placement)
    elif is_osu(lines):
        found = osu_text(lines, name, collective, n_ranks or guess)
    elif is_hccl(lines):
        found = hccl_text(lines, name, collective)
    else:
        found = _nccl_text(lines, name, placement, collective, n_ranks or guess)
    found = _agreed(found, None if collective is None else named(collective).name, n_ranks)
    return replace(found, n_ranks=found.n_ranks or guess)


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


# --- nccl-tests ---------------------------------------------------------------------------------------------------


def _nccl_text(
    lines: Sequence[str], name: str, placement: str, asked: str | None, n_ranks: int | None
) -> Measurements:
    columns: list[str] = []
    rows: list[tuple[str, Any, Any]] = []
    cells: list[list[str]] = []
    wrong, notes = 0, []
    ranks: set[int] = set()
    hosts: set[str] = set()
    device = version = ""
    driven: int | None = None
    collective, ended = None, False
    last = max((number for number, line in enumerate(lines, start=1) if line.strip()), default=0)
    for number, line in enumerate(lines, start=1):
        words = line.lstrip("#").split()
        version = version or _version_of(line)
        if each := _DRIVEN.match(line):
            driven = int(each[1]) * int(each[2])
        if line.startswith("#"):
            if failed := _FAILED.match(line):
                wrong = max(wrong, int(failed[1]))
            ended = ended or words[:3] in (["Out", "of", "bounds"], ["Avg", "bus", "bandwidth"])
            if words[:2] == ["size", "count"]:
                if columns:
                    raise WeftError(f"{name}, line {number}: a second table: split the file at its headers, one for "
                                    "each run, and give all files")
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
                if number == last:
                    notes.append(f"the last row ({words[0]} B) is cut off, and left out")
                    continue
                raise WeftError(f"{name}, line {number}: {len(words)} of {len(columns)} columns: is the file cut off?")
            cells.append(words)
            at = [place for place, column in enumerate(columns) if column == "time"]
            rows.append((f"line {number}", words[0], words[at[PLACEMENTS.index(placement) if len(at) > 1 else 0]]))
    if not columns:
        raise WeftError(f"{name} has no known format: text or JSON of nccl-tests, OSU or HCCL text, or weft's JSON are "
                        "read")
    if not collective and not asked:
        collective = _collective_unnamed(name, columns, cells, len(ranks) or n_ranks or 0)
    wrong = max(wrong, sum(int(word) for row in cells for column, word in zip(columns, row, strict=False)
                           if column == "#wrong" and word.isdecimal()))
    found = measured(name, "nccl-tests text", rows, collective, len(ranks) or None)
    return replace(found, hosts=len(hosts) or None, device=device, version=version, gpus_per_process=driven,
                   left_out=found.left_out + len(notes), wrong=wrong, notes=tuple(notes))


def _collective_unnamed(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], n_ranks: int
) -> str | None:
    """That of a table without "# Collective test starting:", as older versions print it: from the name of the file, or
    from busbw over algbw and the operation, where they leave one; None if not."""
    if tests := [test for test in NCCL_TESTS if f"{test}_perf" in Path(name).name]:
        return NCCL_TESTS[max(tests, key=len)]
    if n_ranks < 3 or not {"algbw", "busbw", "redop"} <= set(columns):
        return None
    table = [dict(zip(reversed(columns), reversed(row), strict=False)) for row in rows]  # the first of equal columns
    rates = [(_number(row["algbw"]), _number(row["busbw"]), row["redop"] != "none") for row in table]
    alg, bus, reduces = max(rates, default=(0.0, 0.0, False))
    ratio = bus / alg if alg > 1 else 0.0
    fit = [kind for kind in NCCL_TESTS.values() if ("reduce" in kind) == reduces
           and abs(ratio - named(kind).bus_factor(n_ranks)) < SETTLES / n_ranks]
    return fit[0] if len(fit) == 1 else None


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0.0


def _version_of(line: str) -> str:
    """ "2.27" of "NCCL version 2.27.3+cuda12.8" or "nccl-library=22703"; "" if there is none."""
    found = _VERSION.search(line)
    if not found:
        return ""
    return _of_code(int(found[1])) if found[2] is None else f"{found[1]}.{found[2]}"


def _of_code(code: int) -> str:
    """A version as NCCL has it since 2.9: 10000 major + 100 minor + patch."""
    return f"{code // 10000}.{code // 100 % 100}" if code >= 20000 else ""


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
    listed = [one for one in devices if isinstance(one, Mapping)] if isinstance(devices, list) else []
    hosts = {str(one["hostname"]) for one in listed if one.get("hostname")}
    config, code = data.get("config"), data.get("nccl_version")
    driven = config.get("ngpus") if isinstance(config, Mapping) else None
    found = measured(
        name, "nccl-tests JSON", rows, _collective_of_args(data.get("args"), name), len(listed) or None
    )
    return replace(
        found, hosts=len(hosts) or None, device=str(listed[0].get("device_info", "")) if listed else "",
        version=_of_code(code) if isinstance(code, int) else "", wrong=_wrong_of(data, results),
        gpus_per_process=driven if isinstance(driven, int) and driven > 0 and hosts != {"weft"} else None,
    )


def _wrong_of(data: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> int:
    """Results that are wrong, in place or out of place."""
    bodies = [row.get(key.replace("-", "_")) or {} for row in results for key in PLACEMENTS]
    bounds = data.get("out_of_bounds")
    counts = [bounds.get("count") if isinstance(bounds, Mapping) else 0, *(body.get("nwrong") for body in bodies)]
    plain = [int(str(count)) for count in counts if str(count).isdecimal()]
    return max(sum(plain[1:]), plain[0]) if plain else 0


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
    return measured(name, "JSON of weft", found, kind if kind in COLLECTIVES else None)


def _microseconds(seconds: Any) -> Any:
    """Values that are not numbers are kept, to be rejected where they occur."""
    plain = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return float(seconds) * 1e6 if plain else str(seconds)
