"""The fabric of a result and its links' load over time: its points, run again from its spec with a log."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.lower.job import lower
from sim.plots.layout import layout
from sim.report.results import ResultFile
from sim.report.sections import Section, axes_of
from sim.simulation import simulate
from sim.study.points import what_ran
from sim.study.spec import Spec
from sim.study.tables import Row
from sim.timeline.link_load import link_load
from topologies import NPU, Topology, WeftError
from topologies.units import counted, format_rate, format_size, format_time

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
        schedule, model = what_ran(spec, topology, row)
        lowered = lower(schedule, model, spec.symmetry)
        services = int((lowered.program.chunks() * lowered.program.hops()).sum())
        if services <= MOST_SERVICES:
            result = simulate(schedule, model=model, symmetry=spec.symmetry, faults=spec.build_faults())
            if result.time_s != row["time_s"]:
                times = format_time(result.time_ps), format_time(row["time_s"] * 1e12)
                raise WeftError(f"run again by the chunk engine it takes {times[0]}, and {times[1]} in the row")
            load = link_load(result.lowered, result.logged, frames)
            return {
                "title": f"{schedule.name}, {format_size(schedule.size_bytes)}: {format_time(result.time_ps)}",
                "size_bytes": schedule.size_bytes, "time_s": result.time_s, "frames": frames,
                "loads": base64.b64encode(np.rint(255 * load).astype(np.uint8).tobytes()).decode("ascii"),
            }
    raise WeftError(f"the smallest run has {counted(services, 'service')}, more than {MOST_SERVICES:,}")


def _short(value: float) -> float:
    return round(float(value), 3)
