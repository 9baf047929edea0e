"""What the page shows of a result: curves by size, stacked bars, and a table of all rows, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sim.plots.lines import CYCLE, Line, lines_of
from sim.report.results import ResultFile
from sim.study.tables import Row
from sim.why.path import by_kind
from topologies.units import counted, format_size

UNITS = {"s": "s", "ps": "ps", "bytes": "bytes", "Bps": "B/s", "GBps": "GB/s", "Gbps": "Gb/s"}
"""Units in which keys of rows end."""

Section = dict[str, Any]

KEPT = ("size_bytes", "time_s", "busbw_GBps", "lower_bound_s", "form")
"""Data of a point of a curve."""

MOST_PARTS = len(CYCLE)
"""Parts of a bar that colors can distinguish; more are merged by kind."""


def title_of(result: ResultFile) -> str:
    """What a file is about: "all-reduce on torus:8x8"."""
    first = result.rows[0]
    for what in ("collective", "workload", "network"):
        if isinstance(first.get(what), str) and isinstance(first.get("topology"), str):
            places = {row.get("topology") for row in result.rows}
            return f"{first[what]} on {first['topology'] if len(places) == 1 else f'{len(places)} fabrics'}"
    return result.name.removesuffix(".json")


def sections_of(result: ResultFile) -> list[Section]:
    """Everything but the fabric."""
    figures = [*_curves(result.rows), *_account(result.rows), *_iteration(result.rows), *_bandwidths(result.rows),
               *_tradeoffs(result.data.get("front"), result.rows)]
    return [*figures, table(result.rows, opened=not figures)]


def _curves(rows: Sequence[Row]) -> list[Section]:
    """Curves over the size, for each fabric and collective; the best of several rows of one algorithm and size."""
    groups: dict[tuple[str, str], dict[str, dict[int, Row]]] = {}
    for row in rows:
        if _positive(row.get("size_bytes")) and _positive(row.get("time_s")) and isinstance(row.get("algorithm"), str):
            own = groups.setdefault((str(row.get("topology", "")), str(row.get("collective", ""))), {})
            points = own.setdefault(", ".join([row["algorithm"], *axes_of(row)]), {})
            if row["size_bytes"] not in points or row["time_s"] < points[row["size_bytes"]]["time_s"]:
                points[row["size_bytes"]] = row
    return [_curve_section(key, series) for key, series in groups.items()]


def axes_of(row: Row) -> list[str]:
    """A row's values on the axes of a sweep other than fabric, algorithm and size."""
    told = ("topology.spec", "collective.name", "collective.algorithms")
    axes = [key for key in row if "." in key and key not in told and not key.startswith("sweep.")]
    return [f"{key.partition('.')[2].replace('_', ' ')} {row[key]}" for key in axes]


def _curve_section(key: tuple[str, str], series: dict[str, dict[int, Row]]) -> Section:
    lines = lines_of(series)
    return {
        "kind": "curves",
        "title": f"{key[1]} on {key[0]}, by size",
        "series": [
            {
                "name": name, "color": lines[name].color, "dashes": css_dashes(lines[name]),
                "points": [{one: row.get(one) for one in KEPT} for _, row in sorted(points.items())],
            }
            for name, points in series.items()
        ],
    }


def css_dashes(line: Line) -> str | None:
    """Dashes as SVG writes them; None for a line without gaps."""
    return None if isinstance(line.dashes, str) else " ".join(f"{2 * length:g}" for length in line.dashes[1])


def _account(rows: Sequence[Row]) -> list[Section]:
    """Where the time went, of rows that know their critical path."""
    known = [row for row in rows if isinstance(row.get("why"), dict) and row["why"].get("parts_ps")]
    parts = [{name: ps / 1e12 for name, ps in row["why"]["parts_ps"].items()} for row in known]
    names = [_row_name(row, known) for row in known]
    return bars("where the time went: the critical path", names, parts, "s", share=True)


def _iteration(rows: Sequence[Row]) -> list[Section]:
    """Computation and exposed communication of training iterations."""
    known = [row for row in rows if "compute_s" in row and "exposed_s" in row]
    parts = []
    for row in known:
        exposed: dict[str, float] = {}
        for part in row.get("parts", ()):
            name = f"exposed {part['kind']}"
            exposed[name] = exposed.get(name, 0.0) + part["exposed_s"]
        parts.append({"computation": row["compute_s"], **(exposed or {"exposed": row["exposed_s"]})})
    return bars("iteration: computation, and communication that nothing hides",
                [f"NPU {row.get('npu', 0)}, loop {row.get('loop', '')}" for row in known], parts, "s")


def _bandwidths(rows: Sequence[Row]) -> list[Section]:
    """How a budget was split across dimensions."""
    known = [row for row in rows if isinstance(row.get("bandwidth_GBps"), list)]
    parts = [{f"dimension {dim}": rate for dim, rate in enumerate(row["bandwidth_GBps"], start=1)} for row in known]
    names = [" ".join(str(row[key]) for key in ("objective", "evaluator") if row.get(key)) or "split" for row in known]
    return bars("bandwidth of each dimension", names, parts, "GB/s")


def _tradeoffs(front: Any, rows: Sequence[Row]) -> list[Section]:
    """Time over cost, from the cheapest design to the dearest; the one of the answer's budget is chosen first."""
    keys = ("total_GBps", "bandwidth_GBps", "cost", "time_s", "equal_cost", "equal_time_s", "dominated")
    known = [one for one in front if isinstance(one, dict) and {*keys} <= one.keys()] if isinstance(front, list) else []
    if not known:
        return []
    points = sorted(({key: one[key] for key in keys} for one in known), key=lambda one: one["cost"])
    answer = sum(rows[0].get("bandwidth_GBps") or [0])
    chosen = min(range(len(points)), key=lambda at: abs(points[at]["total_GBps"] - answer))
    return [{"kind": "pareto", "title": "trade-offs: time over cost by budget", "points": points, "chosen": chosen}]


def bars(
    title: str, names: Sequence[str], parts: Sequence[dict[str, float]], unit: str, *, share: bool = False
) -> list[Section]:
    """One section of stacked bars, or none if there is nothing to stack."""
    if len({name for one in parts for name in one}) > MOST_PARTS:
        parts = [by_kind(one) for one in parts]
    keys = list(dict.fromkeys(name for one in parts for name in one))
    if not keys:
        return []
    return [{
        "kind": "bars", "title": title, "unit": unit, "share": share,
        "parts": [{"name": name, "color": CYCLE[at % len(CYCLE)].color} for at, name in enumerate(keys)],
        "rows": [
            {"name": name, "values": [one.get(key, 0) for key in keys]} for name, one in zip(names, parts, strict=True)
        ],
    }]


def _row_name(row: Row, rows: Sequence[Row]) -> str:
    """With its form if the algorithm has several here; a curve is of them all."""
    forms = {one.get("form") for one in rows if one.get("algorithm") == row.get("algorithm")}
    form = f" ({row['form']})" if row.get("form") and len(forms) > 1 else ""
    return f"{row.get('algorithm', '')}{form}, {format_size(row.get('size_bytes', 0))}"


def table(rows: Sequence[Row], *, opened: bool) -> Section:
    """All rows, in columns; nested values are left to the figures."""
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [
        name for name in keys
        if _is_flat(row.get(name) for row in rows) and any(row.get(name) not in (None, "") for row in rows)
    ]
    return {
        "kind": "table", "title": f"all {counted(len(rows), 'row')}" if len(rows) > 1 else "the row", "open": opened,
        "columns": columns, "heads": [head(name) for name in columns],
        "rows": [[_cell(row.get(name)) for name in columns] for row in rows],
    }


def head(key: str) -> str:
    """A column's head: "lower bound (s)" for "lower_bound_s"."""
    name, _, unit = key.rpartition("_")
    return f"{name} ({UNITS[unit]})".replace("_", " ") if name and unit in UNITS else key.replace("_", " ")


def _is_flat(values: Iterable[Any]) -> bool:
    return all(value is None or isinstance(value, (str, int, float, bool)) for value in values)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
