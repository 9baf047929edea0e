"""Rows as text: the table of nccl-tests, comparisons side by side, tidy CSV, and the JSON that every command writes."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, count
from shutil import get_terminal_size
from typing import Any, NamedTuple

import numpy as np

from collectives import ALGORITHMS
from collectives.core.collective import collective
from sim.program.model import Model
from sim.result import Result
from sim.study.keys import AUTO
from sim.version import weft_version
from topologies.units import PS_PER_S, format_size, format_time

Row = Mapping[str, Any]

_TYPES = {1: "int8", 2: "half", 4: "float", 8: "double"}
_REDUCING = ("all-reduce", "reduce-scatter", "reduce")
_PER_RANK = ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter")
_US = 1e6

NCCL_WIDTH = 118
"""Characters of a line of the table of nccl-tests."""

_WIDE, _NARROW = (12, 12, 8, 6, 6), (11, 11, 6, 5, 4)
"""Characters of its first five columns, and of those on a narrow screen."""


def nccl_table(
    rows: Iterable[Row], n_ranks: int, element_bytes: int = 4, root: int = 0, *, width: int = NCCL_WIDTH
) -> str:
    """Rows of one algorithm as nccl-tests prints them, so that its readers read them.

    `n_ranks`: for the count, which is per rank for some collectives in nccl-tests.
    `root`: of rooted collectives.
    `width`: where lines are shorter than those of nccl-tests, each result stands once, as out of place.
    A simulation has no out-of-place and in-place variants: both columns hold the same result. `#wrong` is 0
        because schedules are checked for correctness when built.
    """
    once = width < NCCL_WIDTH
    widths, places = (_NARROW, 1) if once else (_WIDE, 2)
    heads = ("size", "count", "type", "redop", "root"), ("(B)", "(elements)", "", "", "")
    units = _heads("time", "algbw", "busbw", "#wrong"), _heads("(us)", "(GB/s)", "(GB/s)", "")
    lines = [] if once else [f"#{'':>60}  out-of-place{'':23}in-place{'':10}"]
    lines += [f"#{_cells(names, widths)[1:]}" + places * unit for names, unit in zip(heads, units, strict=True)]
    busbw = []
    for row in rows:
        busbw.append(row["busbw_GBps"])
        cells = map(str, (row["size_bytes"], *nccl_fields(row, n_ranks, element_bytes, root)))
        lines.append(_cells(cells, widths) + places * _nccl_times(row))
    lines += [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sum(busbw) / max(len(busbw), 1):.6g}",
    ]
    return "\n".join(lines)


def _cells(texts: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(text.rjust(width) for text, width in zip(texts, widths, strict=True))


def _heads(*names: str) -> str:
    return "".join(f"  {name:>7}" if index == 0 else f"  {name:>6}" for index, name in enumerate(names))


class NcclFields(NamedTuple):
    """What nccl-tests reports of a row besides its times."""

    n_elements: int
    type: str
    redop: str
    root: int


def nccl_fields(row: Row, n_ranks: int, element_bytes: int, root: int) -> NcclFields:
    """Count (per rank where nccl-tests counts so), type, reduction and root (-1 where there is none) of a row."""
    letters = _TYPES.get(element_bytes, f"{element_bytes}B")
    if row["collective"] == "send/recv":  # of a library: messages, no collective
        return NcclFields(row["size_bytes"] // element_bytes, letters, "sum", -1)
    kind = collective(row["collective"])
    share = n_ranks if kind.name in _PER_RANK else 1
    return NcclFields(
        row["size_bytes"] // (element_bytes * share), letters,
        "sum" if kind.name in _REDUCING else "none", root if kind.rooted else -1,
    )


def _nccl_times(row: Row) -> str:
    time, algbw, busbw = _fitted(row["time_s"] * _US, 7), _fitted(row["algbw_GBps"], 6), _fitted(row["busbw_GBps"], 6)
    return f"  {time}  {algbw}  {busbw}  {0:>6}"


def _fitted(value: float, width: int) -> str:
    """A number with two decimals, or as many as fit; in exponent form if its integer part does not fit."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


PIPE_WIDTH = 120
"""Characters of a line where no terminal sets them: those of the table of nccl-tests."""


def screen_width() -> int:
    """Characters of a line on the terminal."""
    return get_terminal_size((PIPE_WIDTH, 0)).columns


IDLE = "nothing moves"
"""Where every algorithm takes no time: the array of one NPU."""


AtLeast = Mapping[tuple[int, str], int]
"""Lower bounds, in ps, of points that were not simulated, by size and algorithm."""


def comparison_table(rows: Sequence[Row], width: int = PIPE_WIDTH, at_least: AtLeast | None = None) -> str:
    """Times side by side: one line per size, one column per algorithm, `*` at the fastest (at every one of a tie).

    `=` is at those whose range over perturbed runs overlaps that of the fastest. The form is named by its first letters
    where an algorithm has several; the last column is the lead of the winner over the second, "tied" where it has none,
    and who was not simulated and may be faster.
    Algorithms that do not fit a line of `width` characters follow in tables of their own, the last with the names of
    the winner and those tied with it.
    """
    cells: dict[tuple[int, str], Row | int] = {(row["size_bytes"], row["algorithm"]): row for row in rows}
    cells |= at_least or {}
    names, sizes = list(dict.fromkeys(name for _, name in cells)), sorted({size for size, _ in cells})
    short = abbreviations(row["form"] for row in rows)
    lines = [["size", *names, *(["fastest by"] if len(names) > 1 else [])]]
    for size in sizes:
        here = [cells.get((size, name)) for name in names]
        found = sorted((row for row in here if not isinstance(row, int | None)), key=lambda row: float(row["time_s"]))
        times = [row["time_s"] for row in found]
        tied = tied_with(found)
        line = [format_size(size), *(_cell(row, times[0], tied, len(names) > 1, short) for row in here)]
        if len(names) > 1:
            others = [name for name, cell in zip(names, here, strict=True)
                      if isinstance(cell, int) and cell <= times[0] * PS_PER_S]
            margin = IDLE if times[0] == 0 else "tied" if tied else _margin(times)
            line.append(f"{margin}, unless {' or '.join(others)} is" if others else margin)
        lines.append(line)
    if len(names) > 1 and sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True)) > width:
        for line, size in ((line, size) for line, size in zip(lines[1:], sizes, strict=True) if line[-1] != IDLE):
            found = sorted((row for row in rows if row["size_bytes"] == size), key=lambda row: float(row["time_s"]))
            line[-1] = f"{', '.join((found[0]['algorithm'], *tied_with(found)))} {line[-1]}".strip()
    return aligned(lines, width=width)


WIDE = 0.01
"""Ranges are shown where they are wider than this share of the time."""


def tied_with(rows: Sequence[Row]) -> tuple[str, ...]:
    """Algorithms that take as long as the fastest, the first of the rows, or whose ranges overlap with its range."""

    def is_tied(row: Row) -> bool:
        low_s, high_s = row.get("spread_low_s"), rows[0].get("spread_high_s")
        overlaps = low_s is not None and high_s is not None and low_s <= high_s
        return overlaps or float(row["time_s"]) == float(rows[0]["time_s"])

    return tuple(row["algorithm"] for row in rows[1:] if is_tied(row))


def _cell(row: Row | int | None, best_s: float, tied: Sequence[str], marked: bool, short: Mapping[str, str]) -> str:
    if row is None:
        return "-  "
    if isinstance(row, int):
        return f">{format_time(row)}  "
    form = f" {short[row['form']]}" if row["form"] else ""
    mark = "*" if marked and row["time_s"] == best_s else "=" if row["algorithm"] in tied else " "
    return f"{time_text(row['time_s'])}{range_words(row)}{form} {mark}"


def range_words(row: Row) -> str:
    """The range of a time beside it: " -3% +26%"."""
    ends, time = range_s(row), row["time_s"]
    if ends is None or not time or ends[1] - ends[0] <= WIDE * time:
        return ""
    return f" {ends[0] / time - 1:+.0%} {ends[1] / time - 1:+.0%}"


def range_s(row: Row) -> tuple[float, float] | None:
    """The range of a time: of perturbed runs, and of ports that go on alone where ranks wait by default."""
    low, high, alone = row.get("spread_low_s"), row.get("spread_high_s"), row.get("alone_s")
    if low is None or high is None:
        return None
    return (low, high) if alone is None else (min(low, alone), max(high, alone))


def width_of(row: Row) -> float:
    """The range over perturbed runs, as a share of the time; 0 without one."""
    low, high, time = row.get("spread_low_s"), row.get("spread_high_s"), row["time_s"]
    return 0.0 if low is None or high is None or not time else float(high - low) / time


def time_text(time_s: float) -> str:
    """A time of a row: "3.1 us"."""
    return format_time(time_s * PS_PER_S)


def spent(total_ps: int, parts_ps: Mapping[str, int]) -> str:
    """A time and what it was spent on: "3.1 us = serialization 2.1 us (67.7%), propagation 1 us (32.3%)"."""
    said = ", ".join(f"{name} {format_time(ps)} ({ps / max(total_ps, 1):.1%})" for name, ps in parts_ps.items())
    return f"{format_time(total_ps)} = {said}" if said else format_time(total_ps)


def _margin(times_s: Sequence[float]) -> str:
    if len(times_s) < 2 or times_s[0] <= 0:
        return ""
    return f"{times_s[1] / times_s[0] - 1:.1%}"


def aligned(lines: Sequence[Sequence[str]], left: int = 0, width: int | None = None) -> str:
    """Cells in columns, right-justified but for the first `left`; the first line is the head, marked `#`.

    A table that is wider than `width` (default: the terminal) is broken: text of the last column goes on below itself
    where that is enough. Otherwise the columns that do not fit follow in tables of their own, each with the first
    columns again, as many as tell the lines apart.
    """
    width = screen_width() if width is None else width
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    if sum(widths) <= width:
        return _justified(lines, left)
    room = width - sum(widths[:-1]) - 2
    if room >= max(LEAST_TEXT, len(lines[0][-1]), *(len(word) for line in lines for word in line[-1].split())):
        return _justified([part for line in lines for part in _continued(line, room)], left)
    keys = _telling(lines)
    blocks = [keys]
    for column in range(len(keys), len(widths)):
        if len(blocks[-1]) > len(keys) and sum(widths[one] for one in blocks[-1]) + widths[column] > width:
            blocks.append(keys)
        blocks[-1] = [*blocks[-1], column]
    return "\n#\n".join(
        _justified([[line[column] for column in block] for line in lines], sum(column < left for column in block))
        for block in blocks
    )


LEAST_TEXT = 16
"""Characters of a line of text in a column, at least."""


def _continued(line: Sequence[str], room: int) -> list[list[str]]:
    """The lines of a row whose last cell goes on below itself."""
    first, *others = textwrap.wrap(line[-1], room, break_on_hyphens=False) or [""]
    return [[*line[:-1], first], *([*[""] * (len(line) - 1), other] for other in others)]


def _telling(lines: Sequence[Sequence[str]]) -> list[int]:
    """The first columns, as many as it takes for no two lines to be alike; one alone if none do."""
    counts = range(1, len(lines[0]))
    return list(range(next((n for n in counts if len({tuple(line[:n]) for line in lines}) == len(lines)), 1)))


def _justified(lines: Sequence[Sequence[str]], left: int) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for index, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append((f"{'#' if index == 0 else ' '} " + "  ".join(cells)).rstrip())
    return "\n".join(text)


def legend(rows: Sequence[Row]) -> list[str]:
    """The meaning of the letters in `comparison_table`."""
    short = abbreviations(row["form"] for row in rows)
    several = len({row["algorithm"] for row in rows}) > 1
    is_any_tied = " =" in comparison_table(rows)
    marks = ["* fastest at this size", *(["= its range overlaps that of the fastest"] if is_any_tied else [])]
    words = marks * several + [f"{letters} = {form} form" for form, letters in short.items()]
    return ["; ".join(words)] if words else []


def abbreviations(forms: Iterable[str]) -> dict[str, str]:
    """The first letters of each form, as many as none before it has: the same on every fabric.

    Those of the algorithms, in the order of the registry, come before those of files.
    """
    found: dict[str, str] = {}
    given = [form for form in dict.fromkeys(forms) if form]
    registered = (form for one in ALGORITHMS.values() for kind in one.functions for form in one.forms_of(kind))
    for form in dict.fromkeys([*registered, *given]):
        word = "".join(filter(str.isalnum, form)) or "form"  # "=" and "*" are marks of the table
        starts = (word[:letters].capitalize() for letters in range(1, len(word) + 1))
        numbered = (f"{word}{number}" for number in count(2))
        found[form] = next(start for start in chain(starts, numbered) if start not in found.values())
    return {form: found[form] for form in given}


def named(row: Row) -> str:
    """The algorithm of a row, and its form."""
    return f"{row['algorithm']} ({row['form']})" if row["form"] else str(row["algorithm"])


def common_notes(rows: Sequence[Row], value: Callable[[Row], str]) -> list[str]:
    """One note if it holds for all rows, or one per algorithm and form, with the sizes that it holds for if not all."""
    every: dict[str, list[int]] = {}
    said: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        name = named(row)
        every.setdefault(name, []).append(row["size_bytes"])
        if note := value(row):
            said.setdefault(note, {}).setdefault(name, []).append(row["size_bytes"])

    def who(name: str, sizes: list[int]) -> str:
        return name if sizes == every[name] else f"{name} at {', '.join(map(format_size, sizes))}"

    return [
        note if where == every else f"{', '.join(who(name, sizes) for name, sizes in where.items())}: {note}"
        for note, where in said.items()
    ]


def to_csv(rows: Sequence[Row]) -> str:
    """Tidy CSV, one row per point; nested values as JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = []
    for row in (dict(zip(names, names, strict=True)), *rows):
        stream = io.StringIO()
        # with any other end of line, Python 3.11 leaves a carriage return in a cell without quotes
        csv.DictWriter(stream, names).writerow({key: _csv_value(value) for key, value in row.items()})
        lines.append(stream.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def from_csv(text: str) -> list[dict[str, str]]:
    """Rows of CSV that `to_csv` wrote, as text: without the `'` that it puts before what looks like a formula."""
    stream = io.StringIO(text, newline="")
    return [{name: cell[_is_escaped(cell):] for name, cell in row.items()} for row in csv.DictReader(stream)]


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet would run a text; also of one that begins as an escaped one does."""
    return text.lstrip("'").startswith(("=", "+", "-", "@", "\t", "\r"))


def _is_escaped(cell: str) -> bool:
    return cell.startswith("'") and _is_formula(cell)


def links_csv(result: Result) -> str:
    """Every link of a result: its ends, dimension, busy time and share of the time, and the bytes it carried.

    Headers count, and each service was rounded up to whole picoseconds.
    """
    topology = result.schedule.topology
    busy_s = result.link_busy_ps / PS_PER_S
    columns = {
        "link": [topology.link_name(link) for link in range(topology.n_links)],
        "dimension": topology.dimension.tolist(),
        "bandwidth_Bps": topology.bandwidth_Bps.tolist(),
        "busy_s": busy_s.tolist(),
        "utilisation": result.link_utilization.tolist(),
        "carried_bytes": np.rint(result.link_carried_Bps * result.time_s).astype(np.int64).tolist(),
    }
    return to_csv([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])


def _csv_value(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and _is_formula(value):
        return f"'{value}"  # a spreadsheet would run it as a formula
    return json.dumps(value) if isinstance(value, (dict, list)) else value


MEASURED = ("seconds_per_evaluation", "s_per_evaluation", "bound_cpu_s", "trees_cpu_s")
"""Columns with the time that this machine took. Rows of a document have `wall_s` alone of them."""


def document(
    command: str, spec: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, model: Model | None = None,
    **more: Any,
) -> str:
    """The document of a run; `weft COMMAND --spec FILE` gives the same rows again.

    `spec`: sections of keys.
    `model`: the resolved model of the spec.
    `**more`: further keys, before the rows.
    Returns JSON with the keys weft, command, spec, model (where there is one), those of `more`, timing (by column of
        `MEASURED`: the value of each row) and rows. All of a row but `wall_s` is the same whenever it runs again.
    """
    table = list(rows)
    timing = {name: [row.get(name) for row in table] for name in MEASURED if any(name in row for row in table)}
    data: dict[str, Any] = {"weft": weft_version(), "command": command, "spec": spec}
    if model is not None:
        chosen = spec.get("model", {}).get("chunks") == AUTO
        data["model"] = asdict(model) | ({"chunks": AUTO} if chosen else {})
    if timing:
        more["timing"] = timing
    kept = [{name: value for name, value in row.items() if name not in timing} for row in table]
    return json.dumps(data | more | {"rows": kept}, indent=1) + "\n"
