"""TopoOpt (Wang et al., NSDI'23): its comparisons redone, each with the published headline and what we assume."""

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from collectives import Schedule, pairwise, recursive_doubling, swing
from collectives.direct import all_to_all
from collectives.registry import algorithms_for
from collectives.registry import build as build_schedule
from collectives.totient_rings import ring_jumps
from sim.papers.tables import PAGE, Left, Row, as_text, picture, read_published
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend, lines_of, log_axis, size_label
from sim.program.model import Model
from sim.scenarios.follow_demand import WHOLE_CHUNKS, follow_demand, greedy_circuits
from sim.scenarios.optical import ClusterJob, bandwidth_tax, contended_ps, lower_bound_ps, simulate_iteration
from sim.scenarios.topoopt_search import FabricFor, Settings, optical_fabric, search
from sim.simulation import simulate
from sim.study.policies import switched_rows
from sim.study.tables import screen_width
from topologies import (
    Topology,
    WeftError,
    circulant,
    fat_tree,
    from_spec,
    optical,
    random_regular,
    switch,
    torus,
    twisted_torus,
)
from topologies.circulants import CoinRouter
from topologies.core.prices import PRICES, SWITCH_PORTS, tiers_for
from topologies.flows.load import average_path, diameter, spread_loads
from topologies.tiers import leaf_spine
from topologies.units import bytes_per_s, counted, parse_size, parse_time
from workloads.formats.flexflow import open_flexflow
from workloads.job import Reconfigure
from workloads.topoopt import (
    MEASURED,
    MODELS,
    ONE_RING,
    PER_FLOW,
    ROUNDS,
    Demand,
    Fabric,
    Iteration,
    OperatorModel,
    Rings,
    Strategy,
    Transport,
    data_parallel,
    iteration_of,
    model,
)
from workloads.topoopt.models import dlrm

_PUBLISHED = read_published("topoopt")
HEADLINES, ASSUMPTIONS, MACHINE_MS = (_PUBLISHED[name] for name in ("headlines", "assumptions", "machine_ms"))
PACKET_LEVEL_MS, TOPOOPT_MS = (
    {tuple(key): value for *key, value in _PUBLISHED[name]} for name in ("packet_level_ms", "topoopt_ms"))
RELEASED_MS = {(name, fabric): {int(rate): value for rate, value in by_rate.items()}
               for name, fabric, by_rate in _PUBLISHED["released_ms"]}
RELEASED_MS |= {(name, f"TopoOpt, {degree} x 100 Gb/s"): {100: own} for (name, degree), own in TOPOOPT_MS.items()
                if name in ("BERT", "VGG16")}
DRAWN_JOBS = {int(rate): tuple(counts) for rate, counts in _PUBLISHED["drawn_jobs"].items()}

CONCLUSIONS = ("dedicated", "strategies", "money", "hashing", "cluster")
"""Studies whose findings the page begins with."""

MOST_ROWS = 48
"""Of a table on the screen."""


def run(left: Left, quick: bool, data: str | None = None) -> None:
    """Leave a table and a picture of every study and the page, and print the tables.

    `data`: a folder with the released task graphs, somewhere below it.
    """
    graphs = {} if data is None else graphs_in(data)
    lines = [f"assumed: {assumption}" for assumption in ASSUMPTIONS]
    print("\n".join(lines))
    parts: dict[str, list[str] | None] = dict.fromkeys(OF_GRAPHS)
    said: dict[str, list[str]] = {name: [] for name in OF_GRAPHS}
    for name, study in (STUDIES | {name: partial(one, graphs) for name, one in OF_GRAPHS.items() if graphs}).items():
        rows = list(study(quick))
        left.table(f"topoopt-{name}", rows)
        if name in DRAWN:
            draw(name, rows, left.out / f"topoopt-{name}.png")
        print("\n".join(["", *_study(name, rows, screen_width())]))
        drawn = picture(f"topoopt-{name}", name.replace("_", " "), "topoopt") if name in DRAWN else []
        parts[name] = [*drawn, "```", *_study(name, rows), "```"]
        said[name] = [f"- {line}" for line in findings(name, rows)]
    left.page(conclusions=[line for name in CONCLUSIONS for line in said[name]],
              assumptions=[f"- {assumption}" for assumption in ASSUMPTIONS], **parts)
    print(f"\ntables and figures are in {left.out}")


def _study(name: str, rows: list[Row], width: int = PAGE) -> list[str]:
    step = max(1, -(-len(rows) // MOST_ROWS))
    few = rows[::step]
    if step > 1 and name in ("switching", "released"):
        few = [row for row in rows if row.get("delay") == "10us" or row.get("published_ms") is not None]
    part = "" if len(few) == len(rows) else f" ({len(few)} of {len(rows)} rows; the CSV has all)"
    found = (f"  {line}" for line in findings(name, rows))
    return [f"{name}: published: {HEADLINES[name]}{part}", *as_text(few, width).split("\n"), *found]


def findings(name: str, rows: list[Row]) -> list[str]:
    """The conclusion of a study, in a line or two."""
    if name == "dedicated":
        others = dict.fromkeys(row["fabric"] for row in rows if row["fabric"] != "TopoOpt")
        return [_gains(fabric, [row for row in rows if row["fabric"] == fabric]) for fabric in others]
    if name == "money":
        shares = {tiers: [row["over_circuits"] for row in rows if row["tiers"] == tiers] for tiers in (1, 2, 3)}
        return ["switches have, of the rate of all interfaces, " + ", ".join(
            f"{min(some):.2f} to {max(some):.2f} in {counted(tiers, 'tier')}" for tiers, some in shares.items())]
    if name == "hashing":
        worst = max(rows, key=lambda row: row["over_sprayed"])
        return [f"flows hashed per pair or per flow take at most {worst['over_sprayed']:.2f} times as long as sprayed "
                f"({worst['model']}, {worst['placement']}, {worst['flows']})"]
    if name == "cluster":
        most_jobs = max(row["jobs"] for row in rows)
        last = {row["fabric"]: row for row in rows if row["jobs"] == most_jobs}
        optical = last[CLUSTER]
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
    if name == "released":
        return _released(rows)
    if name == "strategies":
        return [f"{fabric}, the strategy released for a rate beside its own, over TopoOpt: "
                f"{_spread(mine, 'over_topoopt')}, over ours {_spread(mine, 'over_ours')}"
                for (fabric,), mine in _grouped(rows, "fabric")]
    if name == "switching":
        gaps = [abs(row["simulated_us"] / row["plan_us"] - 1) for row in rows if row["simulated_us"] is not None]
        return [f"largest difference between plan and simulation: {100 * max(gaps):.4f} %"]
    return []


def _gains(fabric: str, rows: list[Row]) -> str:
    """How many times the time of TopoOpt a fabric takes: least, median and most."""
    ordered = sorted(rows, key=lambda row: float(row["over_topoopt"]))
    least, median, most = (float(row["over_topoopt"]) for row in (ordered[0], ordered[len(rows) // 2], ordered[-1]))
    start = sorted(float(row["start_over_topoopt"]) for row in rows)
    where = "{model}, {servers} servers, {interfaces}x{Gbps} Gb/s".format_map(ordered[-1])
    return (f"{fabric} over TopoOpt: {least:.2f} to {most:.2f} ({where}), median {median:.2f}; with data parallelism "
            f"{start[0]:.2f} to {start[-1]:.2f}, median {start[len(start) // 2]:.2f}")


def _spread(rows: list[Row], key: str) -> str:
    """From the least to the most, and of what the latter is."""
    ordered = sorted(rows, key=lambda row: float(row[key]))
    return f"{ordered[0][key]:.2f} to {ordered[-1][key]:.2f} ({ordered[-1]['model']}, {ordered[-1]['interfaces']}x100)"


def _released(rows: list[Row]) -> list[str]:
    """How far ours are from what is published, and the means of figure 16 with our times of the same jobs."""
    known = [row for row in rows if row["published_ms"] is not None]
    lines = [f"{what}: {min(some):+.1%} to {max(some):+.1%}" for what, some in (
        ("graphs of 100 Gb/s", [row["difference"] for row in known if row["graph_Gbps"] == 100]),
        ("all", [row["difference"] for row in known])) if some]
    ideal = {(row["graph_Gbps"], row["model"]): row for row in known if row["fabric"] == "ideal switch"}
    for rate, counts in DRAWN_JOBS.items():
        jobs = [(ideal[rate, name], count) for (name, _), count in zip(JOB_MIX, counts, strict=True)
                if (rate, name) in ideal]
        if len(jobs) == len(counts):
            theirs, ours = (np.average([row[key] for row, _ in jobs], weights=counts)
                            for key in ("published_ms", "time_ms"))
            lines.append(f"figure 16, 27 jobs, ideal switch of {rate} Gb/s: mean {theirs:.1f} ms, ours {ours:.1f} ms")
    return lines


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


def _lines(rows: list[Row], x: str, y: str, series: str, labels: tuple[str, str], *, log: bool = True,
           places: list[float] | None = None) -> Callable[[Axes], None]:
    """A line for each of a series; `places`: ticks of panels that share the axis, where some lack a point."""
    ticks = _distinct(rows, x) if places is None else places

    def paint(axes: Axes) -> None:
        for name, line in lines_of(_distinct(rows, series)).items():
            points = sorted((row[x], row[y]) for row in rows if row[series] == name and row[y] is not None)
            axes.plot([a for a, _ in points], [b for _, b in points], label=name, **line.style())
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{place:g}" for place in ticks])
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


def _grouped(rows: list[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """The rows of each combination of some values, in the order of their first rows."""
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        yield case, [row for row in rows if tuple(row[key] for key in keys) == case]


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
    for (collective, size), mine in _grouped(rows, "collective", "size"):
        static = {row["delay_us"]: row["plan_us"] for row in mine if row["policy"] == "static"}
        over = [row | {"over": row["plan_us"] / static[row["delay_us"]]} for row in mine]
        labels = ("reconfiguration delay (µs)", "time over static")
        title = f"{collective.lower()}, {size_label(parse_size(size))}"
        yield title, _lines(over, "delay_us", "over", "policy", labels), []


def _following(rows: list[Row]) -> Panels:
    curves = {("time_ms", True): "follows demand, one ring", ("time_ms", False): "follows demand, a ring per interface",
              ("fat_tree_ms", None): "fat-tree", ("packet_level_ms", None): "packet-level rerun, one ring"}
    for (workload, degree), mine in _grouped(rows, "workload", "interfaces"):
        points = [{"delay_us": row["delay_us"], "over": row[key] / row["static_topoopt_ms"], "how": said}
                  for (key, one), said in curves.items() for row in mine
                  if row[key] and one in (None, row["rings"] == "one ring")]
        labels = ("reconfiguration delay (µs)", "time over static TopoOpt")
        paint = _lines(points, "delay_us", "over", "how", labels, log=False, places=_distinct(rows, "delay_us"))
        yield f"{workload}, {degree} interfaces", paint, []


def _all_to_all(rows: list[Row]) -> Panels:
    for (degree,), mine in _grouped(rows, "interfaces"):
        yield (f"DLRM, {rows[0]['servers']} servers, {degree} x 100 Gb/s",
               _lines(_over_topoopt(mine, "batch_per_gpu", "time_ms"), "batch_per_gpu", "over", "fabric",
                      ("batch per GPU", "time over TopoOpt")), [])


def _dedicated(rows: list[Row]) -> Panels:
    models = _distinct(rows, "model")
    for (servers, degree, rate), mine in _grouped(rows, "servers", "interfaces", "Gbps"):
        here = {(row["model"], row["fabric"]): row["over_topoopt"] for row in mine}
        groups = {fabric: [here.get((model, fabric)) for model in models]
                  for fabric in _distinct(rows, "fabric") if fabric != "TopoOpt"}
        yield f"{servers} servers, {degree} x {rate} Gb/s", _dots(groups, "iteration over that of TopoOpt"), models


def _hashing(rows: list[Row]) -> Panels:
    for (placement,), mine in _grouped(rows, "placement"):
        groups = {flows: [row["over_sprayed"] for row in mine if row["flows"] == flows]
                  for flows in _distinct(mine, "flows")[1:]}
        yield f"{placement} servers", _dots(groups, "iteration over that of sprayed flows"), _distinct(mine, "model")


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
    "dedicated": ("one job at equal money, each with its own strategy, fabrics over TopoOpt", _dedicated),
    "hashing": ("flows on two tiers of switches", _hashing),
    "cluster": ("jobs that share a cluster, fabrics over TopoOpt", _cluster),
}
"""What is drawn: its title, for what was published about it is on the page, and its panels."""


# --- the studies: each returns tidy rows, one per point -------------------------------------------------------------


MS = 1e9
US = 1e6

JOB_MIX = (("DLRM", 0.35), ("BERT", 0.30), ("CANDLE", 0.25), ("VGG16", 0.10))

ROUTED = Transport(tie="ecmp")
JOINED = Transport(tie="ecmp", most_rounds=64, message_chunks=8)
"""Within 0.2 % of all rounds on 128 servers (DLRM, NCF, BERT; rings, fat-tree, switch); 8 are off by up to 31 %."""


def tree(n: int, rate_Gbps: float) -> Topology:
    """The k-ary fat-tree of n servers."""
    ports = next(k for k in range(2, 64, 2) if k**3 // 4 >= n)
    return fat_tree(ports, bandwidth=bytes_per_s(rate_Gbps / 8 * 1e9), latency="1us", hop_latency=0)


def switches(n: int, tiers: int, rate_Gbps: float, oversubscription: int = 1, *, sprayed: bool = True) -> Topology:
    """Tiers of switches for n servers; those above the edge are one, without oversubscription of its own.

    `sprayed`: over all links up, so that without oversubscription nothing but the links of servers is shared.
    """
    rate = bytes_per_s(rate_Gbps / 8 * 1e9)
    if tiers == 1 or (sprayed and oversubscription == 1):
        return switch(n, bandwidth=rate, latency=f"{tiers}us", hop_latency=0)
    hosts = min(n // 2, SWITCH_PORTS // 2)
    return leaf_spine(hosts, -(-n // hosts), hosts // oversubscription, bandwidth=rate,
                      latency=["1us", f"{tiers - 1}us"], hop_latency=0)


def expander(n: int, degree: int, rate_Gbps: float) -> Fabric:
    """A random regular network whose servers forward; the rings are those of rank order, in both directions."""
    network = random_regular(n, degree, 1, bandwidth=f"{rate_Gbps}Gb/s", latency="1us", hop_latency=0)
    return Fabric(network, Rings((1, n - 1), {}), degree)


REDUCES_ON_THE_WAY = ("in-network", "parameter-server")
"""Algorithms that need more than servers that forward."""


@lru_cache(maxsize=8)
def best_all_reduce(n: int, degree: int) -> str:
    """The algorithm with the fastest all-reduce of 16 MiB on the expander."""
    network = expander(n, degree, 100).topology
    time_ps: dict[str, int] = {}
    for name in algorithms_for("all-reduce"):
        with suppress(WeftError):  # it does not run here
            if name not in REDUCES_ON_THE_WAY:
                schedule = build_schedule(name, "all-reduce", network, "16MiB")
                time_ps[name] = simulate(schedule, chunks=JOINED.message_chunks, tie=JOINED.tie).time_ps
    return min(time_ps, key=lambda name: time_ps[name])


def demand_matched(n: int, degree: int, demand: Demand, rate_Gbps: float) -> Fabric:
    """Circuits by demand alone, as SiP-ML's greedy gives them; one ring in rank order, and servers forward."""
    wish = demand.flows.copy()
    along = np.arange(n), (np.arange(n) + 1) % n
    wish[along] += sum(demand.all_reduce.values()) / n
    pairs = greedy_circuits(wish, degree, random.Random(1))
    return Fabric(optical(n, degree, pairs, bandwidth=f"{rate_Gbps}Gb/s", latency="1us"), ONE_RING, degree)


def rings_of_16(degree: int) -> tuple[Topology, tuple[int, ...]]:
    """Circuits of 16 servers for all-reduces alone, and their directed rings."""
    fabric = circulant(16, (1, 3, 5, 9)[: degree // 2], bandwidth="100Gb/s", latency="1us", hop_latency=0)
    return fabric, ring_jumps(fabric)


def measured_iterations(quick: bool) -> Iterator[Row]:
    """VGG16 and BERT on 16 servers: ours, the lower bound, the packet-level value."""
    for build in MEASURED.values():
        job = build()
        for degree in (2, 4, 8):
            yield _against(job, "TopoOpt", degree, 100, *rings_of_16(degree), Transport())
        for rate in (25, 100, 200, 400, 800):
            yield _against(job, "fat-tree", 1, rate, tree(16, rate), (1,), ROUTED)
            ideal = switch(16, bandwidth=f"{rate}Gb/s", latency="1us", hop_latency=0)
            yield _against(job, "ideal switch", 1, rate, ideal, (1,), ROUTED)


def _against(
    job: Iteration, name: str, degree: int, rate: int, fabric: Topology, jumps: tuple[int, ...], transport: Transport
) -> Row:
    time_ms = simulate_iteration(job, fabric, Rings(jumps, {}), transport).time_ps / MS
    packet = PACKET_LEVEL_MS.get((job.name, name, degree, rate))
    return {
        "workload": job.name, "fabric": name, "interfaces": degree, "Gbps": rate, "time_ms": time_ms,
        "lower_bound_ms": lower_bound_ps(job.job(), degree * rate / 8 * 1e9) / MS, "packet_level_ms": packet,
        "difference": None if packet is None else time_ms / packet - 1,
    }


SCHEDULES: dict[str, Callable[[Topology, str], Schedule]] = {
    "recursive doubling": lambda ring, size: recursive_doubling.all_reduce(ring, size, form="bandwidth"),
    "Swing": lambda ring, size: swing.all_reduce(ring, size, form="bandwidth"),
    "pairwise all-to-all": lambda ring, size: pairwise.all_to_all(ring, size),
}

WHOLE_MESSAGES = Model(chunks=1, forwarding="store-and-forward", endpoint_latency_ps=500_000)


def switching_inside(quick: bool) -> Iterator[Row]:
    """Circuits switched between the steps of a collective, from a ring on: every policy over the delay."""
    n = 16 if quick else 64
    for name, build in SCHEDULES.items():
        for size in ("1MiB",) if quick else ("64KiB", "1MiB", "64MiB"):
            for delay in ("1us", "10us", "100us", "1ms", "10ms"):
                base = from_spec(f"ocs:{n}x2,duplex,single,circuits={n},delay={delay}", "50GB/s", "100ns", 0)
                schedule = build(base, size)
                static = simulate(schedule, model=WHOLE_MESSAGES).time_ps
                rows = [("static", static, static, 0)]
                rows += [(plan.policy, plan.time_ps, result.time_ps, plan.changes)
                         for plan, result in switched_rows(schedule, WHOLE_MESSAGES)]
                for policy, plan_ps, time_ps, changes in rows:
                    yield {
                        "collective": name, "size": size, "servers": n, "delay": delay,
                        "delay_us": parse_time(delay) / US, "policy": policy, "plan_us": plan_ps / US,
                        "simulated_us": time_ps / US, "reconfigurations": changes,
                    }


def following_demand(quick: bool) -> Iterator[Row]:
    """Circuits that follow demand while a job trains, against static TopoOpt and a fat-tree of d times the rate."""
    for name, build in MEASURED.items():
        job = build()
        for degree in (4,) if quick else (4, 8):
            fabric, coins = rings_of_16(degree)
            static = simulate_iteration(job, fabric, Rings(coins, {})).time_ps / MS
            fat = simulate_iteration(job, tree(16, 100 * degree), ONE_RING, ROUTED).time_ps / MS
            shortest = ("1us",) if (job.name, degree) == ("VGG16-16", 4) else ()  # its 16,000 cycles take minutes
            for delay in ("1ms", "10ms") if quick else (*shortest, "10us", "50us", "200us", "1ms", "10ms"):
                fabric = from_spec(f"ocs:16x{degree},duplex,delay={delay}", "100Gb/s", "1us", 0)
                for rings, said in (((1,), "one ring"), (coins, f"{degree} rings")):
                    cut = follow_demand(job.job(fabric, Rings(rings, {}), Transport(all_reduce=ROUNDS)))
                    changes = sum(isinstance(one.work, Reconfigure) for one in cut.operations)
                    yield {
                        "workload": name, "interfaces": degree, "delay": delay, "delay_us": parse_time(delay) / US,
                        "rings": said, "time_ms": simulate(cut, model=WHOLE_CHUNKS).time_ps / MS,
                        "reconfigurations": changes, "dark_ms": changes * parse_time(delay) / MS,
                        "static_topoopt_ms": static, "fat_tree_ms": fat,
                        "packet_level_ms": MACHINE_MS.get(delay) if (name, degree, said) == (
                            "VGG16-16", 4, "one ring") else None,
                    }


def all_to_all_share(quick: bool) -> Iterator[Row]:
    """DLRM with growing batches: the share of all-to-all traffic grows."""
    n = 16 if quick else 128
    for batch in (64, 256, 1024) if quick else (64, 256, 1024, 2048):
        job = dlrm(n, None if quick else 128, batch)
        strategy = data_parallel(job)
        iteration = iteration_of(job, strategy)
        demand = Demand.of(iteration.job())
        flows, rings = float(demand.flows.sum()), sum(demand.all_reduce.values())
        for degree in (4, 8):
            fabrics = {
                "TopoOpt": optical_fabric(n, degree)(demand),
                "TopoOpt, rings only": optical_fabric(n, degree, split=False)(demand),
                **dict.fromkeys((RING, BEST), expander(n, degree, 100)),
                "fat-tree": Fabric(switches(n, tiers_for(n), _rate(tiers_for(n), degree, 100))),
            }
            for name, fabric in fabrics.items():
                transport = _carried(name, n, degree)
                result = simulate_iteration(iteration, fabric.topology, fabric.rings, transport)
                tax = bandwidth_tax(result.lowered) if name.startswith(("TopoOpt", "expander")) else 1.0
                yield {
                    "servers": n, "batch_per_gpu": batch, "interfaces": degree, "fabric": name,
                    "all_to_all_share": flows / (flows + rings), "time_ms": result.time_ps / MS,
                    "bandwidth_tax": tax, "ring_interfaces": fabric.ring_degree,
                    "all_reduce": transport.all_reduce or "rings",
                }


RING, BEST = "expander, ring", "expander, synthesized"


def _carried(fabric: str, n: int, degree: int) -> Transport:
    """Rings everywhere, and the best algorithm of the registry on the second expander."""
    if fabric == BEST:
        return replace(JOINED, all_reduce=best_all_reduce(n, degree))
    return replace(JOINED, tie=PER_FLOW) if fabric == "2:1 fat-tree" else JOINED


BY = PRICES["TopoOpt"]
"""The prices of all comparisons."""


def _rate(tiers: int, degree: int, rate: float, oversubscription: int = 1) -> float:
    """Gb/s of a server under switches that costs as much as its interfaces on patch panels."""
    return BY.switched_rate(BY.patched(degree, rate), tiers, oversubscription)


def money(quick: bool) -> Iterator[Row]:
    """What the money of circuits buys of packet switches, by both lists of prices."""
    for name, prices in PRICES.items():
        for degree in (4, 8):
            for rate in (100, 200):
                price = prices.patched(degree, rate)
                for tiers, servers in ((1, SWITCH_PORTS), (2, SWITCH_PORTS**2 // 2), (3, SWITCH_PORTS**3 // 4)):
                    found = prices.switched_rate(price, tiers)
                    yield {"prices": name, "interfaces": degree, "Gbps": rate, "tiers": tiers, "most_servers": servers,
                           "price": price, "fat_tree_Gbps": found, "fat_tree_price": prices.switched(found, tiers),
                           "over_circuits": found / (degree * rate)}


def _of_money(n: int, degree: int, rate: int) -> dict[str, tuple[float, float, FabricFor]]:
    """Fabrics of one price: Gb/s and price of a server, and what makes them for a demand."""
    price, total = BY.patched(degree, rate), float(degree * rate)
    circuits: dict[str, FabricFor] = {
        "TopoOpt": optical_fabric(n, degree, bandwidth=f"{rate}Gb/s"),
        **dict.fromkeys((RING, BEST), fixed(expander(n, degree, rate))),
        "demand-matched circuits": lambda demand: demand_matched(n, degree, demand, rate),
    }
    tiers = tiers_for(n)
    switched = {"fat-tree": (tiers, 1), "fat-tree of 3 tiers": (3, 1)}
    if tiers > 1:
        switched["2:1 fat-tree"] = tiers, 2
    found = {name: (total, price, fabric_for) for name, fabric_for in circuits.items()}
    for name, (levels, over) in switched.items():
        each = _rate(levels, degree, rate, over)
        network = fixed(Fabric(switches(n, levels, each, over)))
        found[name] = each, BY.switched(each, levels, over), network
    return found


def fixed(fabric: Fabric) -> FabricFor:
    """The same for any demand."""
    return lambda demand: fabric


POINTS = {16: ((4, 25), (4, 200)), 128: ((4, 100),)}
"""Interfaces and their Gb/s, by servers."""

MOVES = {16: 48, 128: 0}
"""Of each search; none keep the strategy data parallel."""


def dedicated(quick: bool) -> Iterator[Row]:
    """Six models on fabrics of one price, each with the strategy that is searched for it."""
    for n, points in {16: ((4, 100),)}.items() if quick else POINTS.items():
        for name in ("DLRM", "CANDLE") if quick or n > 16 else MODELS:
            for degree, rate in points:
                yield from _dedicated_point(model(name, n), degree, rate, 40 if quick else MOVES[n])


def _dedicated_point(job: OperatorModel, degree: int, rate: int, moves: int) -> list[Row]:
    rows: list[Row] = []
    for name, (each, price, fabric_for) in _of_money(job.n, degree, rate).items():
        transport = _carried(name, job.n, degree)
        found = search(job, fabric_for, Settings(budget=moves, outer=2, transport=transport))
        rows.append({
            "model": job.name, "servers": job.n, "interfaces": degree, "Gbps": rate, "fabric": name,
            "server_Gbps": each, "price": price, "start_ms": found.start_ps / MS, "time_ms": found.time_ps / MS,
            "all_reduce": transport.all_reduce or "rings",
        })
    first = rows[0]
    return [row | {"start_over_topoopt": row["start_ms"] / first["start_ms"],
                   "over_topoopt": row["time_ms"] / first["time_ms"]} for row in rows]


FLOWS = {"sprayed": (True, "first"), "hashed per flow": (False, PER_FLOW), "hashed per pair": (False, "ecmp")}
"""Whether all links up from a switch carry equal parts, and the rule for ties."""


def hashing(quick: bool) -> Iterator[Row]:
    """The same job on two tiers of switches, its flows sprayed or hashed, in rank order or on servers at random."""
    n = 128
    each, places = _rate(2, 4, 100), {"packed": tuple(range(n)), "random": tuple(random.Random(1).sample(range(n), n))}
    for name in ("DLRM",) if quick else MODELS:
        job = iteration_of(model(name, n), data_parallel(model(name, n)))
        sprayed_ms = 0.0
        for flows, (sprayed, tie) in FLOWS.items():
            network = switches(n, 2, each, sprayed=sprayed)
            for placement, place in places.items():
                (time_ps,) = contended_ps([ClusterJob(job, place)], network, iterations=1,
                                          transport=replace(JOINED, tie=tie))
                sprayed_ms = sprayed_ms or time_ps / MS
                yield {"model": name, "servers": n, "server_Gbps": each, "flows": flows, "placement": placement,
                       "time_ms": time_ps / MS, "over_sprayed": time_ps / MS / sprayed_ms}


LOAD, SIZE = 27, 16
"""Jobs of the published cluster, and servers of each."""


def cluster_jobs(
    load: int, n: int, strategies: Mapping[str, Strategy] | None = None
) -> tuple[list[ClusterJob], list[ClusterJob]]:
    """Jobs of the published mix on some of n servers, at random and packed; data parallel unless told otherwise."""
    rng = random.Random(1)
    names = rng.choices([name for name, _ in JOB_MIX], [share for _, share in JOB_MIX], k=load)
    iterations = {}
    for name in names:
        job = model(name, SIZE)
        iterations[name] = iteration_of(job, (strategies or {}).get(name) or data_parallel(job))
    places = rng.sample(range(n), SIZE * load)
    arrivals = [rng.randrange(10**11) for _ in names]
    jobs, neighbors = (
        [ClusterJob(iterations[name], tuple(servers[at * SIZE : (at + 1) * SIZE]), arrivals[at])
         for at, name in enumerate(names)] for servers in (places, range(n))
    )
    return jobs, neighbors


def alone_ps(jobs: list[ClusterJob], fabric_for: FabricFor) -> list[float]:
    """Times of jobs that have a fabric each."""
    fabrics = [fabric_for(Demand.of(job.iteration.job())) for job in jobs]
    return [float(simulate_iteration(job.iteration, fabric.topology, fabric.rings, JOINED).time_ps)
            for job, fabric in zip(jobs, fabrics, strict=True)]


def ideal(rate_Gbps: int) -> FabricFor:
    """One switch for the servers of a job."""
    return fixed(Fabric(switch(SIZE, bandwidth=f"{rate_Gbps}Gb/s", latency="1us", hop_latency=0)))


CLUSTER = "TopoOpt, 4 x 100 Gb/s"


def shared_cluster(quick: bool) -> Iterator[Row]:
    """Jobs of 16 servers in a cluster: isolated by optics, or in one fat-tree of the same money."""
    n = 128 if quick else 432
    each, moves = _rate(tiers_for(n), 4, 100), 10 if quick else MOVES[SIZE]
    own = {CLUSTER: optical_fabric(SIZE, 4), "": fixed(Fabric(switches(SIZE, 1, each)))}
    found = {
        fabric: {name: search(model(name, SIZE), fabric_for, Settings(budget=moves, outer=2, transport=JOINED)).strategy
                 for name, _ in JOB_MIX}
        for fabric, fabric_for in own.items()
    }
    for load in (4, 8) if quick else (9, LOAD):
        times = {CLUSTER: alone_ps(cluster_jobs(load, n, found[CLUSTER])[0], own[CLUSTER])}
        placed = dict(zip(("random", "packed"), cluster_jobs(load, n, found[""]), strict=True))
        for flows, (sprayed, tie) in FLOWS.items():
            network = switches(n, tiers_for(n), each, sprayed=sprayed)
            for placement, jobs in placed.items():
                times[f"fat-tree, {placement}, {flows}"] = contended_ps(
                    jobs, network, transport=replace(JOINED, tie=tie))
        for name, times_ps in times.items():
            yield {"jobs": load, "servers": n, "fabric": name, "server_Gbps": 400 if name == CLUSTER else each,
                   "mean_ms": float(np.mean(times_ps)) / MS, "p99_ms": float(np.percentile(times_ps, 99)) / MS}


def twisted(quick: bool) -> Iterator[Row]:
    """Uniform all-to-all on 4x4x8 (2x2x4 when quick), regular and twisted: link loads, and simulated."""
    shape = (2, 2, 4) if quick else (4, 4, 8)
    for name, fabric in (("regular", torus(shape)), ("twisted", twisted_torus(shape))):
        demand = np.ones((fabric.n_npus, fabric.n_npus)) - np.eye(fabric.n_npus)
        found = simulate(all_to_all(fabric, "16MiB"), chunks=4, tie="ecmp", symmetry="off")
        yield {"torus": name, "shape": "x".join(map(str, shape)), "diameter": diameter(fabric),
               "average_path": average_path(fabric), "largest_load": float(spread_loads(fabric, demand).max()),
               "simulated_us": found.time_ps / US}


SEARCHED_FOR = (25, 100, 200)
"""Gb/s of fat-trees."""

GRAPH = re.compile(r"(\d+)(candle|dlrm|transformer|vgg)_(\d+)\.fbuf")
NAMES = {"candle": "CANDLE", "dlrm": "DLRM", "transformer": "BERT", "vgg": "VGG16"}

Graphs = dict[tuple[str, int], dict[int, Path]]
"""By model and servers, and then by the Gb/s that they were searched for, ascending."""


def graphs_in(folder: str) -> Graphs:
    """The released task graphs in a folder and below.

    WeftError: there are none.
    """
    said = sorted((match[2], int(match[3]), int(match[1]), path) for path in Path(folder).rglob("*.fbuf")
                  if (match := GRAPH.fullmatch(path.name)))
    found: Graphs = {}
    for name, servers, rate, path in said:
        found.setdefault((NAMES[name], servers), {})[rate] = path
    if not found:
        raise WeftError(f"--data {folder}: no task graphs of TopoOpt, such as 100candle_16.fbuf, are in it or below")
    return found


WINDOW_BYTES = 100 * 8936
"""That flows of the released packet simulator begin with, in packets of 8,936 bytes: what each sends in its turn."""


def graph_ms(path: Path, fabric: Topology, seed: int = 0) -> float:
    """A task graph where flows share links in turn, as those of TCP do."""
    job, _ = open_flexflow(path, fabric)
    tie = "first" if isinstance(fabric.router, CoinRouter) else "ecmp"
    return simulate(job, discipline="round-robin-flow", chunk=WINDOW_BYTES, tie=tie, seed=seed).time_ps / MS


def released(graphs: Graphs, quick: bool) -> Iterator[Row]:
    """Released task graphs, each at its own rate, and those of 16 servers on circuits of 100 Gb/s too."""
    for (name, n), by_rate in graphs.items():
        for rate, path in by_rate.items():
            if quick and (n, rate) != (16, 100):
                continue
            fabrics = [("ideal switch", switches(n, 1, rate))]
            if n == 16:
                fabrics += [("fat-tree", tree(n, rate)), *((f"TopoOpt, {len(jumps) * 2} x 100 Gb/s", circulant(
                    n, jumps, bandwidth="100Gb/s", latency="1us", hop_latency=0)) for jumps in ((1, 5), (1, 3, 5, 9)))]
            for fabric, network in fabrics:
                time_ms = graph_ms(path, network)
                known = RELEASED_MS.get((name, fabric), {}).get(rate) if n == 16 else None
                yield {"model": name, "servers": n, "graph_Gbps": rate, "fabric": fabric, "time_ms": time_ms,
                       "published_ms": known, "difference": None if known is None else time_ms / known - 1}


def strategies(graphs: Graphs, quick: bool) -> Iterator[Row]:
    """What the money of circuits buys of switches, with the strategies released for the rates beside it.

    Flows that are hashed, as published, take the median of five seeds.
    """
    for (name, degree), published in TOPOOPT_MS.items():
        by_rate = graphs.get((name, 16))
        if by_rate is None or (quick and (name, degree) != ("CANDLE", 4)):
            continue
        ours = search(model(name, 16), optical_fabric(16, degree),
                      Settings(budget=10 if quick else MOVES[16], outer=2, transport=JOINED)).time_ps / MS
        for tiers, hashed in ((1, False), (2, False), (3, False), (3, True)):
            each = _rate(tiers, degree, 100)
            network = tree(16, each) if hashed else switches(16, tiers, each)
            times = {rate: median(graph_ms(path, network, seed=seed) for seed in range(5 if hashed else 1))
                     for rate, path in by_rate.items()}
            beside = [*[rate for rate in times if rate <= each][-1:], *[rate for rate in times if rate > each][:1]]
            taken, fastest = (min(some, key=lambda rate: times[rate]) for some in (beside, times))
            yield {"model": name, "interfaces": degree,
                   "fabric": f"fat-tree of {counted(tiers, 'tier')}" + ", hashed per pair" * hashed,
                   "server_Gbps": each, "graph_Gbps": taken, "time_ms": times[taken], "topoopt_ms": published,
                   "over_topoopt": times[taken] / published, "our_topoopt_ms": ours, "over_ours": times[taken] / ours,
                   "fastest_graph_Gbps": fastest, "fastest_over_topoopt": times[fastest] / published}


OF_GRAPHS: dict[str, Callable[[Graphs, bool], Iterable[Row]]] = {"released": released, "strategies": strategies}
"""Studies that need the released task graphs."""


def searches(quick: bool) -> Iterator[Row]:
    """Alternating optimization: before, after, and its cost; and on a fat-tree beside the released strategies."""
    points: list[tuple[str, int, int, str, FabricFor]] = [
        ("CANDLE", 16, 40 if quick else 100, f"fat-tree {rate} Gb/s", fixed(Fabric(tree(16, rate))))
        for rate in SEARCHED_FOR
    ]
    points += [(name, 16, 40 if quick else 100, "TopoOpt 4 x 100 Gb/s", optical_fabric(16, 4))
               for name in (("DLRM",) if quick else ("DLRM", "NCF", "CANDLE"))]
    known = [RELEASED_MS["CANDLE", "fat-tree"][rate] for rate in SEARCHED_FOR]
    for at, (name, n, moves, fabric, fabric_for) in enumerate(points):
        found = search(model(name, n), fabric_for, Settings(budget=moves, transport=ROUTED))
        yield {
            "model": name, "servers": n, "fabric": fabric, "moves": moves, "start_ms": found.start_ps / MS,
            "found_ms": found.time_ps / MS, "released_ms": [*known, *[None] * len(points)][at],
            "runs": found.evaluations, "runs_to_best": found.evaluations_to_best,
            "s_per_run": found.seconds_per_evaluation, "ring_interfaces": found.fabric.ring_degree,
            "matched_interfaces": found.fabric.matched_degree,
        }


STUDIES: dict[str, Callable[[bool], Iterable[Row]]] = {
    "iterations": measured_iterations, "twisted": twisted, "switching": switching_inside, "following": following_demand,
    "all_to_all": all_to_all_share, "money": money, "dedicated": dedicated, "hashing": hashing,
    "cluster": shared_cluster, "search": searches,
}
