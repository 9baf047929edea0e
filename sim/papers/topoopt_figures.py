"""The figures of `weft paper topoopt`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.papers.tables import Row
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend, lines_of, log_axis, size_label
from topologies.units import parse_size

TITLES = {
    "iterations": "training iterations over their lower bounds", "twisted": "the twisted torus over the regular one",
    "switching": "plans of reconfiguration over static circuits",
    "following": "circuits that follow demand over static TopoOpt",
    "all_to_all": "DLRM with growing batches, fabrics over TopoOpt", "dedicated": "one job, fabrics over TopoOpt",
    "cluster": "jobs that share a cluster, fabrics over TopoOpt",
}
"""What is drawn: what was published about it is on the page."""

UNSEEN = 0.04
"""Share of the height of a panel within which curves lie on one another."""


def draw(name: str, rows: list[Row], path: Path) -> None:
    """One study as a picture."""
    shown = list(STUDIES[name](rows))
    across = 2 if len(shown) == 4 else min(len(shown), 3)
    down = -(-len(shown) // across)
    tall = 0.95 + max((0.2 * len(names) for _, _, names in shown), default=0) if shown[0][2] else 1.9
    with figure(path, WIDE, tall * down) as drawn:
        grid = drawn.subplots(down, across, squeeze=False, sharex=True, sharey="row").ravel()
        for axes, (title, paint, names) in zip(grid, shown, strict=False):
            paint(axes)
            axes.set_title(title, fontsize=7.5)
            if names:
                axes.set_yticks(range(len(names)), names)
                axes.set_ylim(len(names) - 0.5, -0.5)
        for axes in grid:
            axes.label_outer()
            _alike(axes)
        for axes in grid[len(shown):]:
            axes.set_axis_off()
        heading(drawn, TITLES[name])
        legend(drawn)


def _alike(axes: Axes) -> None:
    """Say by how little the curves of a panel differ where nobody can see it."""
    heights = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.lines] or [np.zeros(1)])
    place = axes.yaxis.get_transform().transform
    if len(axes.lines) > 1 and np.ptp(place(heights)) < UNSEEN * np.ptp(place(np.array(axes.get_ylim()))):
        axes.text(0.5, 0.5, f"all within {max(1, math.ceil(1000 * np.ptp(heights) / heights.min())) / 10:g} %",
                  transform=axes.transAxes, ha="center", fontsize=7)


Panels = Iterable[tuple[str, Callable[[Axes], None], list[str]]]
"""Title, painter, and the names of the rows of a panel of dots."""


def _lines(rows: list[Row], x: str, y: str, series: str, labels: tuple[str, str], *, log: bool = True
           ) -> Callable[[Axes], None]:
    def paint(axes: Axes) -> None:
        for name, line in lines_of(_distinct(rows, series)).items():
            points = sorted((row[x], row[y]) for row in rows if row[series] == name and row[y] is not None)
            axes.plot([a for a, _ in points], [b for _, b in points], label=name, **line.style())
        places = _distinct(rows, x)
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
        if log:
            log_axis(axes, most=6)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])

    return paint


def _dots(groups: dict[str, list[float | None]], label: str) -> Callable[[Axes], None]:
    """A row for each name, a mark for each group, on a logarithmic axis."""
    def paint(axes: Axes) -> None:
        for at, (group, line) in enumerate(lines_of(groups).items()):
            lower = 0.6 * ((at + 0.5) / len(groups) - 0.5)  # marks of one row are one below the other
            found = [(value, place + lower) for place, value in enumerate(groups[group]) if value is not None]
            marks = line.points() | {"markersize": 4.5}
            axes.plot([value for value, _ in found], [place for _, place in found], label=group, **marks)
        axes.axvline(1, **REFERENCE)
        log_axis(axes, most=6, horizontal=True)
        axes.set_xlabel(label)

    return paint


def _distinct(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _iterations(rows: list[Row]) -> Panels:
    mine = [row for row in rows if row["packet_level_ms"] is not None]
    names = [f"{row['workload']}, {row['fabric']} {row['interfaces']}x{row['Gbps']}G" for row in mine]
    groups = {label: [row[column] / row["lower_bound_ms"] for row in mine]
              for label, column in (("chunks", "time_ms"), ("packets (rerun)", "packet_level_ms"))}
    return [("", _dots(groups, "time over the lower bound"), names)]


def _twisted(rows: list[Row]) -> Panels:
    names = [f"{row['torus']} {row['shape']}" for row in rows]
    return [
        (title, _dots({"_": [row[key] / rows[0][key] for row in rows]}, "of the regular one"), names)
        for title, key in (("routes on the busiest link", "largest_load"), ("all-to-all of 16 MiB", "simulated_us"))
    ]


def _switching(rows: list[Row]) -> Panels:
    for collective in _distinct(rows, "collective"):
        for size in _distinct(rows, "size"):
            mine = [row for row in rows if (row["collective"], row["size"]) == (collective, size)]
            static = {row["delay_us"]: row["plan_us"] for row in mine if row["policy"] == "static"}
            over = [row | {"over": row["plan_us"] / static[row["delay_us"]]} for row in mine]
            labels = ("reconfiguration delay (µs)", "time over static")
            title = f"{collective.lower()}, {size_label(parse_size(size))}"
            yield title, _lines(over, "delay_us", "over", "policy", labels), []


def _following(rows: list[Row]) -> Panels:
    for workload in _distinct(rows, "workload"):
        for degree in _distinct(rows, "interfaces"):
            mine = [row for row in rows if (row["workload"], row["interfaces"]) == (workload, degree)]
            points = [{"delay_us": row["delay_us"], "over": row["time_ms"] / row["static_topoopt_ms"],
                       "how": f"follows demand, {'one ring' if row['rings'] == 'one ring' else 'a ring per interface'}"}
                      for row in mine]
            for key, said in (("fat_tree_ms", "fat-tree"), ("packet_level_ms", "packet-level rerun, one ring")):
                points += [{"delay_us": row["delay_us"], "over": row[key] / row["static_topoopt_ms"], "how": said}
                           for row in mine if row[key]]
            labels = ("reconfiguration delay (µs)", "time over static TopoOpt")
            yield f"{workload}, {degree} interfaces", _lines(points, "delay_us", "over", "how", labels, log=False), []


def _all_to_all(rows: list[Row]) -> Panels:
    for degree in _distinct(rows, "interfaces"):
        mine = [row for row in rows if row["interfaces"] == degree]
        yield (f"DLRM, {rows[0]['servers']} servers, {degree} x 100 Gb/s",
               _lines(_over_topoopt(mine, "batch_per_gpu", "time_ms"), "batch_per_gpu", "over", "fabric",
                      ("batch per GPU", "time over TopoOpt")), [])


def _dedicated(rows: list[Row]) -> Panels:
    rate, degree = 100, min(row["interfaces"] for row in rows)
    mine = [row for row in rows if (row["Gbps"], row["interfaces"]) == (rate, degree)]
    models = _distinct(mine, "model")
    for servers in _distinct(mine, "servers"):
        here = {(row["model"], row["fabric"]): row["over_topoopt"] for row in mine if row["servers"] == servers}
        groups = {fabric: [here.get((model, fabric)) for model in models]
                  for fabric in _distinct(mine, "fabric") if fabric != "TopoOpt"}
        yield f"{servers} servers, {degree} x {rate} Gb/s", _dots(groups, "iteration over that of TopoOpt"), models


def _cluster(rows: list[Row]) -> Panels:
    for title, key in (("mean", "mean_ms"), ("99th percentile", "p99_ms")):
        yield (f"{title}, {rows[0]['servers']} servers",
               _lines(_over_topoopt(rows, "jobs", key), "jobs", "over", "fabric",
                      ("jobs of 16 servers", "iteration over TopoOpt")), [])


def _over_topoopt(rows: list[Row], x: str, y: str) -> list[Row]:
    """Rows with their time over that of the first fabric at the same place, without that fabric."""
    first = rows[0]["fabric"]
    base = {row[x]: row[y] for row in rows if row["fabric"] == first}
    return [row | {"over": row[y] / base[row[x]]} for row in rows if row["fabric"] != first]


STUDIES: dict[str, Callable[[list[Row]], Panels]] = {
    "iterations": _iterations, "twisted": _twisted, "switching": _switching, "following": _following,
    "all_to_all": _all_to_all, "dedicated": _dedicated, "cluster": _cluster,
}
