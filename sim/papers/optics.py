"""Fabrics of optical circuit switches: rails, regions, pods, domains that lose nodes, and planes that switch in turns.

Opus (arXiv 2602.12521), MixNet (SIGCOMM 2025), TPU v4 (ISCA 2023), InfiniteHBD (SIGCOMM 2025) and SWOT (arXiv
2510.19322): each published value beside the model's.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from math import comb, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from collectives import build
from sim.optimizer.circuits import EVERY_STEP
from sim.papers.opus import SCALES, iteration_ns
from sim.papers.regions import FABRICS, Times, gates, iterations, normalized, switching
from sim.papers.tables import Left, Row, as_text, picture
from sim.plots.style import WIDE, figure, heading, legend
from sim.program.model import Model
from sim.simulation import simulate
from sim.study.overlap import divide, overlapped
from sim.study.policies import switched_rows
from topologies import from_spec
from topologies.core.prices import PRICES
from topologies.units import parse_size
from workloads.circuits import SHARED, with_circuits
from workloads.job import Job


class Rails(NamedTuple):
    """Scale and prices of rails, without NICs, in dollars and watts, as the artifact of Opus has them."""

    gpus: tuple[int, ...]
    each: int  # GPUs of a server, and its rails
    transceiver: tuple[float, float]  # of a GPU
    far: tuple[float, float]  # of a port of a switch
    port: tuple[float, float]


RAILS = {
    "400 Gb/s": Rails((1024, 2048, 4096, 8192), 8, (219.0, 10.0), (219.0, 10.0), (37_299 / 64, 2_524 / 64)),
    "H200": Rails((128, 256, 512), 8, (879.0, 10.0), (879.0, 10.0), (37_299 / 64, 2_524 / 64)),
    "GB200": Rails((256, 512, 1024, 2048), 32, (879.0, 16.0), (0.0, 0.0), (149_939 / 144, 7_000 / 144)),
}
"""Of its notebook, and of both columns of figure 15."""

OCS_PORT = (520.0, 75 / 192)

CHANGES = 30
"""Of phase, in an iteration of Opus's simulation."""

WINDOWS_MS = (26.3, 1814.1, 3.6, 4.4, 25.3, 22.0)
"""Before the changes of phase of the first stage, in an iteration of Opus's trace of Llama-3 8B on 64 GPUs."""

SWEPT_MS = {"H200": (*6 * (0.0,), *4 * (1000.0,)), "GB200": (*6 * (0.0,), *4 * (276.604869,))}
"""Windows of Opus's sweeps of delays (figures 12 and 13), read off: ten changes by the slope on demand, of which four
are hidden, up to 276.6 ms by what the sweep at 500 ms has, or throughout; its traces are not released."""


def packet_ports(servers: int, each: int) -> int:
    """Ports of switches, rail by rail: as large as two tiers of them need."""
    ports = round(sqrt(4 * servers))
    leaves = servers // (ports // 2) * 2 * each
    return (leaves + each * servers // ports) * ports


def rails(quick: bool) -> Iterator[Row]:
    """Money and power of a fat-tree, of packet switches rail by rail, and of OCS with a port for each direction."""
    for prices, (scales, each, near, far, port) in RAILS.items():
        for gpus in scales:
            tree = round((4 * gpus) ** (1 / 3))
            packet = [a + b for a, b in zip(port, far, strict=True)]
            ports = {"fat-tree": (tree * (tree**2 + tree**2 // 4), packet),
                     "packet switches": (packet_ports(gpus // each, each), packet), "OCS": (2 * gpus, OCS_PORT)}
            cost = {fabric: [count * a + gpus * b for a, b in zip(one, near, strict=True)]
                    for fabric, (count, one) in ports.items()}
            for fabric, (dollars, watts) in cost.items():
                yield {"prices": prices, "gpus": gpus, "fabric": fabric, "million_dollars": dollars / 1e6,
                       "kilowatts": watts / 1e3, "times_cheaper": cost["packet switches"][0] / dollars,
                       "times_less_power": cost["packet switches"][1] / watts}


def regions(quick: bool) -> Iterator[Row]:
    """Money of an interface of fat-trees, of regions and of patch panels."""
    prices = PRICES["MixNet"]
    for rate in prices.rates_Gbps:
        tree, region = prices.switched(rate, 3), prices.regional(rate, packet_share=2 / 8)
        yield {"Gbps": rate, "fat_tree": tree, "regions": region, "patch_panels": prices.patched(1, rate),
               "fat_tree_over_regions": tree / region}


def dollars(quick: bool) -> Iterator[Row]:
    """Performance per dollar of regions over fat-trees: published times, and money by `regions`."""
    times = _times()
    for name in dict.fromkeys(case[0] for case in times):
        for row in regions(quick):
            tree, region = (times[name, row["Gbps"], fabric] for fabric in ("fat-tree", "regions"))
            yield {"model": name, "Gbps": row["Gbps"],
                   "regions_over_fat_tree": tree / region * row["fat_tree_over_regions"]}


@lru_cache
def phase_times(delay: str, policy: str, windows_ms: tuple[float, ...]) -> tuple[float, float]:
    """Groups that alternate on rails of one port, with windows of computation between them: times in ms.

    With a change of circuits in every window, and in the best plan.
    """
    job = Job(from_spec(f"rails:4x2,delay={delay},policy={policy}", hop_latency=0))
    last = list[int]()
    for turn, window_ms in enumerate((*windows_ms, 0)):
        other = [rank ^ (2 << turn % 2) for rank in range(8)]
        last = [job.send(f"phase {turn}", 50_000_000, range(8), other, after=last)]
        last = [job.compute(f"window {turn}", round(window_ms * 1e9), after=last)]
    # of one port each, so that no two phases share circuits
    every, best = (simulate(one).time_ps / 1e9 for one in (with_circuits(job)[SHARED], job))
    return every, best


def phases(quick: bool) -> Iterator[Row]:
    """Changes of phase, without and with windows of computation."""
    for window_ms in (0, 20):
        for policy in ("demand", "provisioned"):
            alone_ms, _ = phase_times("0ms", policy, CHANGES * (window_ms,))
            for delay_ms in (0, 50) if quick else (0, 1, 10, 50):
                every_ms, best_ms = phase_times(f"{delay_ms}ms", policy, CHANGES * (window_ms,))
                yield {"window_ms": window_ms, "policy": policy, "delay_ms": delay_ms, "every_change_ms": every_ms,
                       "switching_times": (every_ms - alone_ms) / delay_ms if delay_ms else None, "best_ms": best_ms}


NODES, EACH = 400, 8
"""Of the fault trace; GPUs of a node. Nodes are in the order of their names."""

FAULTS = Path(__file__).parent / "data" / "hbd_faults.csv"
"""Days at which nodes went down and came up (stepfun-ai/InfiniteHBD-Trace, Apache-2.0)."""


def on_a_line(down: set[int], size: int, reach: int) -> int:
    """Healthy nodes that belong to no ring of a size, where rings pass over fewer than `reach` nodes that are down."""
    lost = row = gap = 0
    for node in range(NODES):
        row, gap = (row, gap + 1) if node in down else (row + 1, 0)
        if gap == reach:
            lost, row = lost + row % size, 0
    return lost + row % size


def in_groups(down: set[int], size: int, group: int, whole: bool = False) -> int:
    """Healthy nodes that belong to no ring of a size inside their group; `whole`: a group with a node down is lost."""
    lost = 0
    for first in range(0, NODES, group):
        last = min(first + group, NODES)
        up = last - first - len(down.intersection(range(first, last)))
        lost += up if whole and up < last - first else up % size if not whole else 0
    return lost


RULES: dict[str, Callable[[set[int], int], int]] = {
    "K=2": lambda down, size: on_a_line(down, size, 2), "K=3": lambda down, size: on_a_line(down, size, 3),
    "cubes of 8 nodes": lambda down, size: in_groups(down, size, 8, whole=True),
    "fixed rings": lambda down, size: in_groups(down, size, size),
    "72 GPUs": lambda down, size: in_groups(down, size, 9),
    "one switch": lambda down, size: in_groups(down, size, NODES),
}
"""Healthy nodes that are lost to rings of a size."""


def waste(quick: bool) -> Iterator[Row]:
    """Time average of the GPUs that are up and in no ring, in per cent of all, over the published faults."""
    with FAULTS.open(encoding="utf-8") as file:
        faults = [(int(row["node"]), float(row["down_day"]), float(row["up_day"])) for row in csv.DictReader(file)]
    times = sorted({0.0, *(moment for _, *both in faults for moment in both)})
    states = [({node for node, begin, end in faults if begin <= now < end}, later - now)
              for now, later in pairwise(times)]
    for gpus in (16, 32, 64):
        lost = {name: sum(rule(down, gpus // EACH) * days for down, days in states) / times[-1] / NODES * 100
                for name, rule in RULES.items()}
        yield {"ring_gpus": gpus, **lost}


def on_planes(kind: str, servers: int, planes: int, megabytes: float, switch_ms: float, what: str) -> float:
    """Time in ms of switching for every step, or of steps divided over planes that switch in turns; simulated.

    With eight times the bytes at eight times the rate, so that the parts of all steps are whole elements.
    """
    fabric = from_spec(f"ocs:{servers}x{planes},per-port,delay={switch_ms}ms", "200GB/s", "20us", 0)
    form = "bandwidth" if kind == "all-reduce" else None
    schedule, model = build("recursive-doubling", kind, fabric, round(megabytes * 8e6), form), Model(chunks=1)
    if what == "every-step":
        ((_, every),) = switched_rows(schedule, model, [EVERY_STEP])
        return every.time_ps / 1e9
    return simulate(overlapped(schedule, divide(schedule)), model=model).time_ps / 1e9


CUBES, HOSTS, CHIPS = 64, 16, 64
"""Of a pod; hosts and chips of a cube."""


def goodput(host: float, cubes: int, *, circuits: bool) -> float:
    """Expected share of a pod's chips in whole slices of so many cubes, where a host is up with a probability.

    Circuits make a slice of any cubes; without, the cubes of a slice are given.
    """
    up = host**HOSTS
    if not circuits:
        return CUBES // cubes * cubes / CUBES * float(up**cubes)
    return sum(comb(CUBES, some) * up**some * (1 - up) ** (CUBES - some) * (some // cubes) * cubes / CUBES
               for some in range(CUBES + 1))


def pods(quick: bool) -> Iterator[Row]:
    """Goodput over the size of slices."""
    for host in (0.99, 0.995, 0.999):
        for chips in (64, 128, 256, 512, 1024, 2048, 3072, 4096):
            yield {"host_up": host, "slice": chips, "with_ocs": goodput(host, chips // CHIPS, circuits=True),
                   "without": goodput(host, chips // CHIPS, circuits=False)}


PUBLISHED = Path(__file__).parent / "data" / "optics_published.csv"
"""Published values, and what published data give by published rules: rails and phases, opusfabric/Opus; regions,
mixnet-project.github.io; planes, GUIBL1/overlap4ocs and optima of its model; steps, STyGIANet/Harvest; waste,
stepfun-ai/InfiniteHBD-Trace."""

Value = tuple[str, tuple[str, ...], str, str]
"""Set, case, value and unit."""


@lru_cache
def published() -> list[Value]:
    """Set, case, value and unit of every published value."""
    with PUBLISHED.open(encoding="utf-8") as file:
        return [(row["set"], tuple(row["case"].split("|")), row["value"], row["unit"]) for row in csv.DictReader(file)]


def _times() -> Times:
    """MixNet's iterations."""
    return {(case[0], int(case[1]), case[2]): float(value) for name, case, value, _ in published()
            if name == "iterations on regions"}


@lru_cache
def _rows(study: Callable[[bool], Iterable[Row]], quick: bool = False) -> list[Row]:
    return list(study(quick))


def _cell(study: Callable[[bool], Iterable[Row]], column: str, **case: str) -> float:
    """A value of a study's table."""
    return float(next(row[column] for row in _rows(study) if all(str(row[key]) == case[key] for key in case)))


def _with_changes(
    of: str, case: tuple[str, ...], delay: str, policy: str, windows_ms: tuple[float, ...],
) -> float | None:
    """The published value of a case with the given delay, and what other changes of circuits add, simulated.

    None for the delay that is given.
    """
    if delay == GIVEN[of]:
        return None
    given, unit = next((float(value), unit) for name, other, value, unit in published()
                       if name == of and other == (*case, GIVEN[of]))
    before, now = (phase_times(some, policy, windows_ms)[0] for some in (GIVEN[of], delay))
    return given + (now - before) * (1e-3 if unit == "s" else 1)


def opus_iteration(gpus: str, groups: str, experts: str, delay: str) -> float:
    """Of figure 14, in ms: at the delay that was run, from its configuration; others add 30 times the rest, as there.

    Without delay, packet switches: the run less its 30 delays, or one with a link for every two GPUs of a stage.
    """
    scale, ep, on_rail = SCALES[gpus], int(experts), groups == "EP and DP"
    added = _with_changes("phases, simulation", (gpus, groups, experts), delay, "demand", CHANGES * (0.0,))
    if added is None:
        return iteration_ns(scale, ep, on_rail, int(float(delay[:-2]) * 1e6), dense=False) / 1e6
    return added if delay != "0ms" else min(added, iteration_ns(scale, ep, on_rail, 0, dense=True) / 1e6)


def on_a_ring(size: str, step: str = "0", hops: str = "1") -> float:
    """Step 1, 2, ... of a reduce-scatter by halving on a ring of 8 whose partners are so many hops apart, or a message.

    In ms, as fitted to the testbed: 85 Gb/s, 30.32 us of start-up, 1 ns a hop.
    """
    job, apart = Job(from_spec("ring:8", "85Gb/s", "1ns", 0)), int(hops)
    begun = job.compute("start-up", 30_320_000)
    src = np.arange(8 if int(step) else 1)
    dst = (src + np.where(src // apart % 2, -apart, apart)) % 8
    job.send("step", parse_size(size) >> int(step), src.tolist(), dst.tolist(), after=[begun])
    return simulate(job, chunks=64).time_ps / 1e9


OURS: dict[str, Callable[..., float | None]] = {
    "money and power of rails": lambda prices, gpus, fabric, what: _cell(
        rails, what, prices=prices, gpus=gpus, fabric=fabric),
    "iterations on regions": lambda name, rate, fabric: normalized(name, int(rate), fabric),
    "money of regions": lambda rate: _cell(regions, "fat_tree_over_regions", Gbps=rate),
    "performance per dollar": lambda name, rate: _cell(dollars, "regions_over_fat_tree", model=name, Gbps=rate),
    "goodput": lambda host, chips, how: _cell(pods, how, host_up=host, slice=chips),
    "waste": lambda gpus, rule: _cell(waste, rule, ring_gpus=gpus),
    # both policies: on demand, too, the host asks ahead of its GPU
    "phases, testbed": lambda job, policy, delay: _with_changes(
        "phases, testbed", (job, policy), delay, "provisioned", () if "2D" in job else WINDOWS_MS),
    "phases, simulation": opus_iteration,
    "phases, sweeps": lambda gpu, policy, delay: _with_changes(
        "phases, sweeps", (gpu, policy), delay, policy, SWEPT_MS[gpu]),
    "planes": lambda kind, servers, planes, megabytes, switch_ms, what: on_planes(
        kind, int(servers), int(planes), float(megabytes), float(switch_ms), what),
    "steps on a ring of 8": on_a_ring,
}
"""Our value of a case, of each set."""

GIVEN = {"phases, testbed": "0ms", "phases, simulation": "0.5ms", "phases, sweeps": "100ms"}
"""Of phases, the delay of the measured or simulated time that ours adds changes to."""


def values(quick: bool, some: Sequence[Value] = ()) -> Iterator[Row]:
    """Every published value, ours to as many decimals, and the error; "-" where we have none, or the value is given."""
    for name, case, value, unit in some or published()[:: 9 if quick else None]:
        row: Row = {"set": name, "case": ", ".join(case), "value": value, "unit": unit}
        ours, decimals = OURS[name](*case) if name in OURS else None, len(value.partition(".")[2])
        if ours is None:
            yield row | dict.fromkeys(("ours", "off_percent", "to_the_digit"))
            continue
        exact = abs(ours - float(value)) <= 0.5 * 10.0**-decimals * (1 + 1e-6)
        yield row | {"ours": f"{ours:.{decimals}f}", "to_the_digit": exact,
                     "off_percent": 0.0 if exact else 100 * (ours / float(value) - 1)}


def errors(quick: bool) -> Iterator[Row]:
    """How far ours are from the published values, set by set."""
    for name, rows in groupby(_rows(values, quick), lambda row: row["set"]):
        some = list(rows)
        off = [abs(row["off_percent"]) for row in some if row["ours"] is not None]
        yield {"set": name, "values": len(some), "ours": len(off), "to_the_digit": off.count(0.0),
               "within_5_percent": sum(one <= 5 for one in off), "most_off_percent": max(off, default=None)}


STUDIES: dict[str, Callable[[bool], Iterable[Row]]] = {
    "rails": rails, "phases": phases, "regions": regions, "dollars": dollars,
    "iterations": lambda quick: iterations(_times(), quick), "gates": lambda quick: gates(_times(), quick),
    "switching": switching, "pods": pods, "waste": waste,
    "published": errors, "values": values,
}


def _testbed(axes_of: Callable[[int], list[Axes]], rows: list[Row]) -> None:
    """Measured iterations as points, ours as lines, job by job."""
    of: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for row in rows:
        if row["set"] == "phases, testbed":
            job, policy, delay = row["case"].rsplit(", ", 2)
            measured = float(row["value"])
            point = int(delay[:-2]) / 1e3, measured, float(row["ours"] or measured)
            of.setdefault(job, {}).setdefault(policy, []).append(point)
    for axes, (job, policies) in zip(axes_of(len(of)), of.items(), strict=True):
        for at, (policy, points) in enumerate(policies.items()):
            delay_s, measured_s, ours_s = zip(*sorted(points), strict=True)
            axes.plot(delay_s, ours_s, color=f"C{at}", label=f"{policy}, simulated")
            axes.plot(delay_s, measured_s, "o", color=f"C{at}", markersize=3, label=f"{policy}, measured")
        axes.set_title(job, fontsize=7.5)
        axes.set(xlabel="delay of a switch, s", ylabel="iteration, s")


def _goodput(axes_of: Callable[[int], list[Axes]], rows: list[Row]) -> None:
    """Goodput over the chips of a slice, for each availability of hosts."""
    hosts = list(dict.fromkeys(row["host_up"] for row in rows))
    for axes, host in zip(axes_of(len(hosts)), hosts, strict=True):
        some = [row for row in rows if row["host_up"] == host]
        for at, (column, label) in enumerate((("with_ocs", "cubes behind OCS"), ("without", "fixed cubes"))):
            axes.plot([row["slice"] for row in some], [row[column] for row in some], "o-", color=f"C{at}",
                      markersize=3, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks([row["slice"] for row in some][::2], [f"{row['slice']:,}" for row in some][::2])
        axes.set_title(f"hosts up {host:.1%} of the time", fontsize=7.5)
        axes.set(xlabel="chips of a slice", ylabel="goodput")


def _mixtures(axes_of: Callable[[int], list[Axes]], rows: list[Row]) -> None:
    """Published iterations as points, ours as lines, model by model."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    for axes, name in zip(axes_of(len(names)), names, strict=True):
        for at, fabric in enumerate(FABRICS):
            some = [row for row in rows if (row["model"], row["fabric"]) == (name, fabric)]
            for column, line, style in (("ours", "-", {"label": fabric}), ("published", "o", {"markersize": 3})):
                axes.plot([row["Gbps"] for row in some], [row[column] for row in some], line, color=f"C{at}", **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks([100, 200, 400, 800], ["100", "200", "400", "800"])
        axes.set_title(name, fontsize=7.5)
        axes.set(xlabel="Gb/s of an interface", ylabel="iteration over the shortest")


DRAWN = {"values": ("iterations of Opus's testbed on rails of one OCS", _testbed),
         "iterations": ("iterations on four fabrics, simulated (lines) and published (points)", _mixtures),
         "pods": ("chips of a pod in whole slices", _goodput)}
"""What is drawn: its title and its panels."""


def draw(name: str, rows: list[Row], path: Path) -> None:
    """One study as a picture."""
    title, paint = DRAWN[name]
    with figure(path, WIDE, 2.0) as drawn:
        paint(lambda count: [*drawn.subplots(1, count, squeeze=False).ravel()], rows)
        for axes in drawn.axes[1:]:
            axes.set_ylabel("")
        heading(drawn, title)
        legend(drawn)


def run(left: Left, quick: bool) -> None:
    """Leave a table of each study, pictures and the page, and print it."""
    parts = {}
    for name, study in STUDIES.items():
        rows = _rows(study, quick)
        left.table(f"optics-{name}", rows)
        drawn = []
        if name in DRAWN:
            draw(name, rows, left.out / f"optics-{name}.png")
            drawn = picture(f"optics-{name}", DRAWN[name][0], "optics")
        parts[name] = [*drawn, "```", as_text(rows), "```"]
    print(left.page(**parts), end="")
