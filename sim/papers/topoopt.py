"""TopoOpt (Wang et al., NSDI'23): its comparisons redone, each with the published headline and what we assume."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.papers.tables import PAGE, Row, as_text, picture, write_table
from sim.papers.topoopt_studies import STUDIES
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend, lines_of, log_axis, size_label
from sim.study.tables import screen_width
from sim.whole_file import write_text_whole
from topologies.units import parse_size

HEADLINES = {
    "iterations": "packet-level rerun of the released task graphs; VGG16 at 200 Gb/s: between its bound and the rerun",
    "twisted": "TPU v4 (ISCA'23); link loads give 1.745 times the all-to-all of the regular 4x4x8",
    "switching": "Harvest, SWOT, PCCL: planned switching beats static and every step; delay decides",
    "following": "TopoOpt figure 17: circuits that follow demand every 50 ms lose to static ones",
    "all_to_all": "TopoOpt figures 12 to 15: the gain shrinks as all-to-all takes over, by the bandwidth tax",
    "dedicated": "TopoOpt abstract: up to 3.4 times faster than a fat-tree of similar cost",
    "cluster": "TopoOpt figure 16, 27 jobs: the mean on ideal 100 Gb/s switches is 2.1 times that of TopoOpt d=4",
    "search": "TopoOpt section 4: strategies and topology searched together",
}

ASSUMPTIONS = (
    "Links have 1 us and no loss; a round ends when its acknowledgment is back; queues are first in, first out.",
    "Switched networks carry one ring of each all-reduce at d times the rate of an interface, or at the rate that "
    "costs as much by prices that are not verified; a 2:1 fat-tree has d times the rate, and at the edge half as many "
    "links up as servers. TopoOpt runs a ring on every interface.",
    "The expander runs one ring in rank order in both directions (the released code: one direction), and beside it the "
    "registry's fastest all-reduce of 16 MiB there, whose messages wait for no acknowledgment.",
    "Strategies are data parallel with one embedding table per server, in turn, except in the search study; the paper "
    "searched every point, with a simulator and profiles that are not public in full; CANDLE's released strategy is "
    "not data parallel.",
    "Compute: released A100 profiles where there are any, a line through two of them for other dense layers.",
    "In the sweeps the rounds of a ring are joined into 64 and flows take one hashed route; cluster jobs are drawn "
    "once from the mix 35/30/25/10 % and run two iterations in the fat-tree, on random servers (as published) or "
    "packed in rank order.",
    "Circuits that follow demand see all remaining bytes at once; the packet-level baseline has one ring, ours both.",
)


MOST_ROWS = 48
"""Of a table on the screen."""


def run(out: Path, quick: bool) -> None:
    """Write a table and a picture of every study and `topoopt.md` into `out`, and print the tables."""
    lines = [f"assumed: {assumption}" for assumption in ASSUMPTIONS]
    print("\n".join(lines))
    found = {}
    for name, study in STUDIES.items():
        found[name] = rows = list(study(quick))
        write_table(out / f"topoopt-{name}.csv", rows)
        if name in DRAWN:
            draw(name, rows, out / f"topoopt-{name}.png")
        print("\n".join(["", *_study(name, rows, screen_width())]))
    write_text_whole(out / "topoopt.md", report(found))
    print(f"\ntables and figures are in {out}")


def report(found: dict[str, list[Row]]) -> str:
    """All studies as a page, with the pictures where `docs/` keeps them."""
    lines = ["# TopoOpt: published and simulated", "", "Made by `weft paper topoopt`. What is assumed:", ""]
    lines += [f"- {assumption}" for assumption in ASSUMPTIONS]
    lines += ["", "What is left of the published gains:", ""]
    lines += [f"- {line}" for name in ("dedicated", "cluster") if name in found for line in findings(name, found[name])]
    for name, rows in found.items():
        title = name.replace("_", " ")
        drawn = picture(f"topoopt-{name}", title, "topoopt") if name in DRAWN else []
        lines += ["", f"## {title}", "", *drawn, "```"]
        lines += [*_study(name, rows), "```"]
    return "\n".join(lines) + "\n"


def _study(name: str, rows: list[Row], width: int = PAGE) -> list[str]:
    few = rows if len(rows) <= MOST_ROWS else _some(name, rows)
    part = "" if few is rows else f" ({len(few)} of {len(rows)} rows; the CSV has all)"
    found = (f"  {line}" for line in findings(name, rows))
    return [f"{name}: published: {HEADLINES[name]}{part}", *as_text(few, width).split("\n"), *found]


def findings(name: str, rows: list[Row]) -> list[str]:
    """The conclusion of a study, in a line or two."""
    if name == "dedicated":
        others = dict.fromkeys(row["fabric"] for row in rows if row["fabric"] != "TopoOpt")
        return [_gains(fabric, [row for row in rows if row["fabric"] == fabric]) for fabric in others]
    if name == "cluster":
        most_jobs = max(row["jobs"] for row in rows)
        last = {row["fabric"]: row for row in rows if row["jobs"] == most_jobs}
        optical = last["TopoOpt d=4 100 Gb/s"]
        return [
            f"{most_jobs} jobs, {fabric}: mean {row['mean_ms'] / optical['mean_ms']:.2f} times, 99th percentile "
            f"{row['p99_ms'] / optical['p99_ms']:.2f} times that of TopoOpt"
            for fabric, row in last.items() if row is not optical
        ]
    if name == "twisted":
        regular, twisted = rows
        return [
            f"gain by link load {regular['largest_load'] / twisted['largest_load']:.3f}, simulated with one hashed "
            f"route a pair {regular['simulated_us'] / twisted['simulated_us']:.3f}"
        ]
    if name == "switching":
        gaps = [abs(row["simulated_us"] / row["plan_us"] - 1) for row in rows if row["simulated_us"] is not None]
        return [f"largest difference between plan and simulation: {100 * max(gaps):.4f} %"]
    return []


def _gains(fabric: str, rows: list[Row]) -> str:
    """How many times the time of TopoOpt a fabric takes: least, median and most."""
    ordered = sorted(rows, key=lambda row: float(row["over_topoopt"]))
    least, median, most = (float(row["over_topoopt"]) for row in (ordered[0], ordered[len(rows) // 2], ordered[-1]))
    return (f"{fabric} over TopoOpt: {least:.2f} ({_point(ordered[0])}) to {most:.2f} ({_point(ordered[-1])}), "
            f"median {median:.2f}")


def _point(row: Row) -> str:
    return f"{row['model']}, {row['servers']} servers, d={row['interfaces']}, {row['Gbps']} Gb/s"


def _some(name: str, rows: list[Row]) -> list[Row]:
    """A part of a long table for the screen; the file has all of it."""
    if name == "dedicated":
        return [row for row in rows if row["Gbps"] == 100 and row["interfaces"] == 4]
    if name == "switching":
        return [row for row in rows if row["delay"] == "10us"]
    step = -(-len(rows) // MOST_ROWS)
    return rows[::step]


UNSEEN = 0.04
"""Share of the height of a panel within which curves lie on one another."""


def draw(name: str, rows: list[Row], path: Path) -> None:
    """One study as a picture."""
    title, panels = DRAWN[name]
    shown = list(panels(rows))
    across = 2 if len(shown) == 4 else min(len(shown), 3)
    down = -(-len(shown) // across)
    tall = 0.95 + max((0.2 * len(names) for _, _, names in shown), default=0) if shown[0][2] else 1.9
    with figure(path, WIDE, tall * down) as drawn:
        grid = drawn.subplots(down, across, squeeze=False, sharex=True, sharey="row").ravel()
        for axes, (own, paint, names) in zip(grid, shown, strict=False):
            paint(axes)
            axes.set_title(own, fontsize=7.5)
            if names:
                axes.set_yticks(range(len(names)), names)
                axes.set_ylim(len(names) - 0.5, -0.5)
        for axes in grid:
            axes.label_outer()
            _alike(axes)
        for axes in grid[len(shown):]:
            axes.set_axis_off()
        heading(drawn, title)
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


DRAWN: dict[str, tuple[str, Callable[[list[Row]], Panels]]] = {
    "iterations": ("training iterations over their lower bounds", _iterations),
    "twisted": ("the twisted torus over the regular one", _twisted),
    "switching": ("plans of reconfiguration over static circuits", _switching),
    "following": ("circuits that follow demand over static TopoOpt", _following),
    "all_to_all": ("DLRM with growing batches, fabrics over TopoOpt", _all_to_all),
    "dedicated": ("one job, fabrics over TopoOpt", _dedicated),
    "cluster": ("jobs that share a cluster, fabrics over TopoOpt", _cluster),
}
"""What is drawn: its title, for what was published about it is on the page, and its panels."""
