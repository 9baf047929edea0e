"""What the page shows of a result, as plain data: curves by size, stacked bars, a table of all rows, load over time."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.lower.job import lower
from sim.plots.layout import layout
from sim.plots.lines import CYCLE, Line, lines_of
from sim.report.results import ResultFile
from sim.simulation import simulate
from sim.study.points import what_ran
from sim.study.spec import Spec
from sim.study.tables import Row, time_text
from sim.timeline.timeline import link_load
from sim.why.path import by_kind
from topologies import NPU, Topology, WeftError
from topologies.units import counted, format_rate, format_size, format_time

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
        if all(isinstance(row.get(name), str | int | float | None) for row in rows)
        and any(row.get(name) not in (None, "") for row in rows)
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


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


MOST_NODES = 300
MOST_LINKS = 3000
"""Limits of a fabric beyond which nodes and links cannot be distinguished."""

MOST_SERVICES = 400_000
"""Limit for a run that is repeated for the page: half a second."""

MOST_FABRICS = 6
"""Points of a sweep's axes that are drawn."""

MOST_RUNS = 8
"""Runs played per fabric."""


def fabric_sections(result: ResultFile, frames: int) -> tuple[list[Section], list[str]]:
    """The fabric of a result, and lines on what is not shown.

    `frames`: points in time of the slider.
    """
    rows = [row for row in result.rows if row.get("size_bytes") and row.get("time_s") and row.get("algorithm")]
    if not rows or not isinstance(result.data.get("spec"), dict):
        return [], []
    sections: list[Section] = []
    notes: list[str] = []
    runs = runs_of(result.data["spec"], rows)
    for spec, own in runs[:MOST_FABRICS]:
        found, said = _fabric(spec, own, frames)
        sections += found
        notes += said
    if len(runs) > MOST_FABRICS:
        more = len(runs) - MOST_FABRICS
        notes.append(f"{more} further points of the sweep are not played: the page holds {MOST_FABRICS}")
    return sections, notes


def runs_of(data: Mapping[str, Any], rows: Sequence[Row]) -> list[tuple[dict[str, Any], list[Row]]]:
    """The rows of each spec; for a sweep, of each point on its axes, which the rows name as "section.key"."""
    groups: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    for row in rows:
        spec = {section: dict(keys) for section, keys in data.items() if isinstance(keys, Mapping)}
        for name in row:
            section, dot, key = name.partition(".")
            if dot and section in spec and section != "sweep":
                spec[section][key] = row[name]
        groups.setdefault(repr(spec), (spec, []))[1].append(row)
    return list(groups.values())


def _fabric(data: Mapping[str, Any], rows: Sequence[Row], frames: int) -> tuple[list[Section], list[str]]:
    """The fabric of one spec, with its runs."""
    try:
        spec = Spec.from_dict({section: keys for section, keys in data.items() if section != "sweep"})
        topology = spec.build_topology()
    except WeftError as wrong:
        return [], [f"the fabric is not drawn: {wrong}"]
    if topology.n_nodes > MOST_NODES or topology.n_links > MOST_LINKS:
        size = f"{counted(topology.n_nodes, 'node')} and {counted(topology.n_links, 'link')}"
        return [], [f"the fabric is not drawn: {size}; more than {MOST_NODES} or {MOST_LINKS:,} are too many"]
    plays, notes = _plays(spec, topology, [row for row in rows if row.get("topology") == topology.name], frames)
    where = ", ".join([topology.name, *axes_of(rows[0])])
    return ([_section(topology, where, plays)] if plays else []), notes


def _section(topology: Topology, where: str, plays: list[dict[str, Any]]) -> Section:
    placed = layout(topology)
    low, high = placed.corners()
    wide, tall = (high - low + 0.8).tolist()
    names = [topology.node_name(node) for node in range(topology.n_nodes)]
    drawn = np.flatnonzero(~np.isnan(placed.nodes[:, 0])).tolist()
    return {
        "kind": "fabric", "title": f"load of every link over time on {where}",
        "box": [_short(low[0] - 0.4), _short(-high[1] - 0.4), _short(wide), _short(tall)],
        "nodes": [
            [*map(_short, placed.nodes[node] * (1, -1)), names[node], bool(topology.kind[node] != NPU)]
            for node in drawn
        ],
        "links": [
            {"name": topology.link_name(link), "rate": format_rate(float(topology.bandwidth_Bps[link])),
             "line": [_short(at) for at in (line * (1, -1)).ravel()]}
            for link, line in enumerate(placed.links)
        ],
        "plays": plays,
    }


def _plays(spec: Spec, topology: Topology, rows: Sequence[Row], frames: int) -> tuple[list[dict[str, Any]], list[str]]:
    """For every algorithm, its largest size whose run is small enough, the fastest first."""
    plays: list[dict[str, Any]] = []
    notes: list[str] = []
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        own = sorted((row for row in rows if row["algorithm"] == name), key=lambda row: -row["size_bytes"])
        try:
            plays.append(_first_small(spec, topology, own, frames))
        except WeftError as wrong:
            notes.append(f"{name} is not played: {wrong}")
    plays.sort(key=lambda play: (-play["size_bytes"], play["time_s"]))
    if len(plays) > MOST_RUNS:
        notes.append(f"{len(plays) - MOST_RUNS} further algorithms are not played: the page holds {MOST_RUNS}")
    return plays[:MOST_RUNS], notes


def _first_small(spec: Spec, topology: Topology, rows: Sequence[Row], frames: int) -> dict[str, Any]:
    services = 0
    for row in rows:
        job, model = what_ran(spec, topology, row)
        lowered = lower(job, model, spec.symmetry)
        services = int((lowered.program.chunks() * lowered.program.hops()).sum())
        if services <= MOST_SERVICES:
            result = simulate(job, model=model, symmetry=spec.symmetry, faults=spec.build_faults())
            if result.time_s != row["time_s"]:
                times = format_time(result.time_ps), time_text(row["time_s"])
                raise WeftError(f"run again by the chunk engine it takes {times[0]}, and {times[1]} in the row")
            load = link_load(result.lowered, result.logged, frames)
            schedule = result.schedule
            return {
                "title": f"{schedule.name}, {format_size(schedule.size_bytes)}: {format_time(result.time_ps)}",
                "size_bytes": schedule.size_bytes, "time_s": result.time_s, "frames": frames,
                "loads": base64.b64encode(np.rint(255 * load).astype(np.uint8).tobytes()).decode("ascii"),
            }
    raise WeftError(f"the smallest run has {counted(services, 'service')}, more than {MOST_SERVICES:,}")


def _short(value: float) -> float:
    return round(float(value), 3)
