"""The figures of `weft paper topoopt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.papers.tables import Row
from sim.whole_file import write_whole


def draw(name: str, rows: list[Row], headline: str, path: Path) -> None:
    """One study as a picture, with the published headline under its title."""
    panels = list(_PANELS[name](rows))
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(4.4 * across + 0.6, 3.3 * down + 0.7), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, (title, paint) in zip(axes, panels, strict=False):
        paint(axis)
        axis.set_title(title, fontsize=9)
        axis.tick_params(which="both", labelsize=8)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    _share_legend(figure, list(axes[: len(panels)]))
    figure.suptitle(f"published: {headline}", fontsize=8 if across > 1 else 6.5)
    write_whole(path, lambda file: figure.savefig(file, dpi=130))


def _share_legend(figure: Figure, axes: list[Axes]) -> None:
    """One legend below the panels where all have the same: a panel's own would cover its lines."""
    handles, labels = axes[0].get_legend_handles_labels()
    if len(axes) == 1 or any(axis.get_legend_handles_labels()[1] != labels for axis in axes):
        return
    for axis in axes:
        if (legend := axis.get_legend()) is not None:
            legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * len(axes), 5), fontsize=7)


Panels = Iterable[tuple[str, Callable[[Axes], None]]]


def _lines(
    rows: list[Row], x: str, y: str, series: str, labels: tuple[str, str], *, logx: bool = True, logy: bool = True
) -> Callable[[Axes], None]:
    def paint(axis: Axes) -> None:
        for at, (name, marker) in enumerate(zip(_distinct(rows, series), "osD^vPX<>*" * 3, strict=False)):
            points = sorted((row[x], row[y]) for row in rows if row[series] == name and row[y] is not None)
            # Every other series hollow and dashed: lines that coincide stay visible.
            style = {"ls": "--", "mfc": "none", "ms": 6.5} if at % 2 else {"ms": 4}
            axis.plot([a for a, _ in points], [b for _, b in points], marker=marker, lw=1.2, label=str(name), **style)
        if logx:
            places = _distinct(rows, x)
            axis.set_xscale("log")
            axis.set_xticks(places, [f"{place:g}" for place in places])
            axis.set_xticks([], minor=True)
        if logy:
            axis.set_yscale("log")
        axis.set_xlabel(labels[0], fontsize=8)
        axis.set_ylabel(labels[1], fontsize=8)
        axis.grid(alpha=0.3, lw=0.5)
        axis.legend(fontsize=6.5)

    return paint


def _bars(
    names: list[str], groups: dict[str, list[float | None]], label: str, *, log: bool = False
) -> Callable[[Axes], None]:
    def paint(axis: Axes) -> None:
        width = 0.8 / max(len(groups), 1)
        for at, (group, values) in enumerate(groups.items()):
            places = [place + at * width for place, value in enumerate(values) if value is not None]
            axis.bar(places, [value for value in values if value is not None], width, label=group)
        centers = [place + 0.4 - width / 2 for place in range(len(names))]
        axis.set_xticks(centers, names, fontsize=7, rotation=30, ha="right")
        if log:
            axis.set_yscale("log")
        axis.set_ylabel(label, fontsize=8)
        axis.legend(fontsize=6.5)

    return paint


def _distinct(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _iterations(rows: list[Row]) -> Panels:
    for workload in _distinct(rows, "workload"):
        mine = [row for row in rows if row["workload"] == workload and row["packet_level_ms"] is not None]
        names = [f"{row['fabric']} {row['interfaces']}x{row['Gbps']}G" for row in mine]
        groups = {key: [row[column] for row in mine] for key, column in (
            ("lower bound", "lower_bound_ms"), ("chunks", "time_ms"), ("packets (rerun)", "packet_level_ms"))}
        yield workload, _bars(names, groups, "iteration, ms", log=True)


def _twisted(rows: list[Row]) -> Panels:
    names = [row["torus"] for row in rows]
    return [
        ("busiest link", _bars(names, {rows[0]["shape"]: [row["largest_load"] for row in rows]}, "routes")),
        ("all-to-all of 16 MiB", _bars(names, {"simulated": [row["simulated_us"] for row in rows]}, "us")),
    ]


def _switching(rows: list[Row]) -> Panels:
    return [
        (f"{collective}, {size}, {rows[0]['servers']} servers",
         _lines([row for row in rows if (row["collective"], row["size"]) == (collective, size)], "delay_us", "plan_us",
                "policy", ("reconfiguration delay, us", "time, us")))
        for collective in _distinct(rows, "collective") for size in _distinct(rows, "size")
    ]


def _following(rows: list[Row]) -> Panels:
    for workload in _distinct(rows, "workload"):
        for degree in _distinct(rows, "interfaces"):
            mine = [row for row in rows if (row["workload"], row["interfaces"]) == (workload, degree)]
            points = [{"delay_us": row["delay_us"], "ms": row["time_ms"], "how": f"follows demand, {row['rings']}"}
                      for row in mine]
            for key, said in (("static_topoopt_ms", "static TopoOpt"), ("fat_tree_ms", f"fat-tree {100 * degree}G"),
                              ("packet_level_ms", "packet-level rerun, one ring")):
                points += [{"delay_us": row["delay_us"], "ms": row[key], "how": said} for row in mine if row[key]]
            paint = _lines(points, "delay_us", "ms", "how", ("reconfiguration delay, us", "iteration, ms"), logy=False)
            yield f"{workload}, {degree} interfaces", paint


def _all_to_all(rows: list[Row]) -> Panels:
    for degree in _distinct(rows, "interfaces"):
        mine = [row for row in rows if row["interfaces"] == degree]
        yield (f"DLRM, {rows[0]['servers']} servers, {degree} x 100 Gb/s",
               _lines(mine, "batch_per_gpu", "time_ms", "fabric", ("batch per GPU", "iteration, ms")))


def _dedicated(rows: list[Row]) -> Panels:
    return [
        (f"{model}, {n} servers, d={degree}",
         _lines([r for r in rows if (r["model"], r["servers"], r["interfaces"]) == (model, n, degree)], "Gbps",
                "time_ms", "fabric", ("Gb/s of an interface", "iteration, ms")))
        for n in _distinct(rows, "servers") for degree in _distinct(rows, "interfaces")
        for model in _distinct(rows, "model")
    ]


def _cluster(rows: list[Row]) -> Panels:
    return [
        (f"{title}, {rows[0]['servers']} servers",
         _lines(rows, "jobs", key, "fabric", ("jobs of 16 servers", "iteration, ms"), logx=False))
        for title, key in (("mean", "mean_ms"), ("99th percentile", "p99_ms"))
    ]


def _search(rows: list[Row]) -> Panels:
    names = [f"{row['model']}-{row['servers']}" for row in rows]
    return [
        ("iteration time", _bars(names, {"start": [row["start_ms"] for row in rows],
                                         "found": [row["found_ms"] for row in rows]}, "ms")),
        ("evaluations", _bars(names, {"all": [float(row["evaluations"]) for row in rows],
                                      "to the best": [float(row["evaluations_to_best"]) for row in rows]}, "count")),
    ]


_PANELS: dict[str, Callable[[list[Row]], Panels]] = {
    "iterations": _iterations, "twisted": _twisted, "switching": _switching, "following": _following,
    "all_to_all": _all_to_all, "dedicated": _dedicated, "cluster": _cluster, "search": _search,
}
