"""Swing (De Sensi et al., NSDI'24): every plotted point of five topologies beside the simulated one, and why.

Points, what they are compared with, the page and its figures follow each other in this order.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import log2
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.papers.tables import Left, md_table, picture
from sim.plots.style import CYCLE, REFERENCE, WIDE, figure, heading, legend, line_of, log_axis, sizes_axis
from sim.study.keys import CollectiveKeys, ModelKeys, TopologyKeys
from sim.study.points import Row, Task
from sim.study.processes import processes
from sim.study.ranked import compute_all
from sim.study.spec import Spec
from topologies.grouped import grouped
from topologies.units import format_size, parse_size

ALGORITHMS = {
    "Swing": "swing", "RecDoub": "recursive-doubling", "Bucket": "bucket", "Ring": "ring",
    "MirrRD": "mirrored-recursive-doubling",
}
HX = "hx2mesh:32x32"
"""With NICs and waits at once, for latencies differ from link to link: waits decide at every size."""

SPECS = {"8x8": "torus:8x8", "64x64": "torus:64x64", "64x16": "torus:64x16", "8x8x8": "torus:8x8x8", "Hx2Mesh": HX}
QUICK = ("8x8",)
WITH_NICS = ("8x8", "8x8x8", "64x16", "64x64")
"""Topologies that are also simulated with `swing-sst`."""

LIMITS = {"Swing": (0.01, 0.03), "Bucket": (0.01, 0.03), "Ring": (0.01, 0.01), "RecDoub": (0.07, None)}
"""Median and largest error that curves with NICs should stay below, from 32 KiB to 128 MiB."""

RESOLUTION_GBPS = 0.005
"""Half of the last digit of the plotted goodputs."""

LEGIBLE_GBPS = 0.5
"""Goodput from which that digit is a percent or less."""

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Comparison:
    """A published point and ours."""

    topology: str
    algorithm: str
    form: str  # the one that wins in the simulation
    size_bytes: int
    published_us: float
    simulated_us: float
    published_Gbps: float
    simulated_Gbps: float
    error: float  # simulated over published time, minus one
    bar: float | None  # what the error should stay below; None where no bar is set

    @property
    def holds(self) -> bool:
        """Whether the error is within its bar."""
        return self.bar is None or abs(self.error) <= self.bar

    @property
    def reason(self) -> str:
        """Why the two differ, if by more than 2 % or than their bar."""
        if abs(self.error) <= 0.02 and self.holds:
            return ""
        if self.algorithm == "Ring":
            return "resolution" if self.published_Gbps < LEGIBLE_GBPS else "unknown"
        if self.algorithm == "Bucket":
            return "unknown" if self.topology == "Hx2Mesh" else "bucket"
        return "peak" if self.algorithm == "Swing" and self.size_bytes >= 32 * MIB else "fifo"


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The plotted points: `sizes`, per topology goodput, small runtimes and gain; and `reasons` of differences."""
    data: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "swing.json").read_text())
    return data


REASONS: dict[str, str] = published()["reasons"]


def bar(algorithm: str, topology: str, size_bytes: int, goodput_Gbps: float) -> float | None:
    """Error that a point should stay within, the goal of the reproduction; None for no bar."""
    if topology == "Hx2Mesh" and size_bytes == 512 * MIB:
        return 0.05
    if size_bytes == 32 and algorithm != "Ring":
        return 0.02
    if algorithm == "Ring":
        return 0.01 if goodput_Gbps >= LEGIBLE_GBPS else None
    if algorithm == "Bucket":
        return 0.03 if size_bytes <= 2 * MIB else None
    if algorithm == "Swing" and size_bytes <= 32 * MIB:
        return 0.15 if 128 * KIB <= size_bytes <= 512 * KIB else 0.10
    if algorithm == "RecDoub" and 8 * KIB <= size_bytes <= 8 * MIB:
        return 0.15
    return None


def compare_with_nics(topologies: Iterable[str]) -> list[Comparison]:
    """Simulate the published points of medium sizes with the set-up of the authors' simulator."""
    points = wanted(topologies, ModelKeys(preset="swing-sst"))
    return compared([one for one in points if is_medium(one.size_bytes)])


def compare_orders(topologies: Iterable[str], order: str) -> list[Comparison]:
    """Simulate the contenders for large arrays, with NICs of an order and one virtual channel, by symmetry."""
    model = ModelKeys(preset="swing-sst", nic_order=order, vcs=1)
    large = [one for one in wanted(topologies, model) if one.size_bytes >= 32 * MIB]
    return compared([one for one in large if one.label in ("Swing", "Bucket", "Ring")])


def is_medium(size_bytes: int) -> bool:
    """Whether a size is one of those at which curves with NICs have limits."""
    return 32 * KIB <= size_bytes <= 128 * MIB


def is_close(row: list[Comparison]) -> bool:
    """Whether a curve is within its limits."""
    middle, largest = LIMITS.get(row[0].algorithm, (None, None))
    errors = errors_of(row)
    return (middle is None or median(errors) <= middle) and (largest is None or max(errors) <= largest)


def errors_of(row: list[Comparison]) -> list[float]:
    """Sizes of the errors of a curve at medium sizes, where something is plotted."""
    plotted = (c for c in row if is_medium(c.size_bytes) and c.error == c.error)
    return [abs(c.error) for c in plotted if c.algorithm != "Ring" or c.published_Gbps >= LEGIBLE_GBPS]


def compare(topologies: Iterable[str]) -> list[Comparison]:
    """Simulate every published point of these topologies."""
    return compared(wanted(topologies, ModelKeys(preset="swing-paper")))


def compared(points: "list[Wanted]") -> list[Comparison]:
    """Simulate some published points."""
    tasks = [one.task for one in points]
    done = 0

    def tick(task: Task, point: Row) -> None:
        nonlocal done
        done += 1
        if done % 10 == 0 or done == len(tasks):
            print(f"\r  {done}/{len(tasks)} points", end="\n" if done == len(tasks) else "", file=sys.stderr)

    found = compute_all(tasks, worker_count(), tick)
    return [_comparison(one, row) for one, row in zip(points, found, strict=True)]


def worker_count() -> int:
    """Processes that run points at once."""
    return os.cpu_count() or 1


class Wanted(NamedTuple):
    """A published point and the task that simulates it."""

    task: Task
    topology: str
    label: str
    size_bytes: int
    goodput_Gbps: float


def wanted(topologies: Iterable[str], model: ModelKeys) -> list[Wanted]:
    """Every published point of some topologies; HammingMesh has a preset of its own."""
    rows = []
    for topology in topologies:
        spec = Spec(topology=TopologyKeys(spec=SPECS[topology]), model=model)
        if SPECS[topology] == HX:
            spec = replace(
                spec, model=ModelKeys(preset="swing-hx"), collective=CollectiveKeys(options=("pairs=shifted",))
            )
        for label, goodputs in published()["topologies"][topology]["goodput_Gbps"].items():
            for text, goodput in zip(published()["sizes"], goodputs, strict=False):
                size = parse_size(text)
                rows.append(Wanted(Task(spec, ALGORITHMS[label], size), topology, label, size, goodput))
    return rows


def _comparison(one: Wanted, point: Row) -> Comparison:
    size, goodput = one.size_bytes, one.goodput_Gbps
    simulated_us = point["time_s"] * 1e6
    small = published()["topologies"][one.topology]["runtime_us_32B_to_32KiB"].get(one.label, [])
    at = published()["sizes"].index(short(size))
    if at < len(small):
        published_us = small[at]
    else:
        published_us = 8e-3 * size / goodput if goodput > RESOLUTION_GBPS else float("nan")
    return Comparison(
        topology=one.topology, algorithm=one.label, form=point["form"], size_bytes=size, published_us=published_us,
        simulated_us=simulated_us, published_Gbps=goodput, simulated_Gbps=8e-3 * size / simulated_us,
        error=simulated_us / published_us - 1, bar=bar(one.label, one.topology, size, goodput),
    )


def error_lowest_chunk_first(c: Comparison) -> float:
    """Error of a point when links serve the lowest chunk first instead of in order of arrival."""
    model = ModelKeys(preset="swing-paper", discipline="lowest-chunk-first")
    spec = Spec(topology=TopologyKeys(spec=SPECS[c.topology]), model=model)
    (row,) = compute_all([Task(spec, ALGORITHMS[c.algorithm], c.size_bytes)])
    return float(row["time_s"] * 1e6 / c.published_us - 1)


def short(size_bytes: int) -> str:
    """A size as the published points have it."""
    return format_size(size_bytes).replace(" ", "")


def by_curve(comparisons: list[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Points by topology and algorithm."""
    return grouped(((c.topology, c.algorithm), c) for c in comparisons)


BASELINES = ("Swing", "RecDoub", "Bucket", "Ring")
"""Contenders for the winner; the paper leaves mirrored recursive doubling out."""


def winners(comparisons: list[Comparison]) -> list[tuple[str, int, str, str]]:
    """Topology, size, published and simulated winner."""
    groups = grouped(((c.topology, c.size_bytes), c) for c in comparisons
                     if c.algorithm in BASELINES and c.error == c.error)
    return [
        (*place, min(group, key=lambda c: c.published_us).algorithm, min(group, key=lambda c: c.simulated_us).algorithm)
        for place, group in groups.items() if any(c.algorithm == "Swing" for c in group)
    ]


def margin(comparisons: list[Comparison], topology: str, size_bytes: int) -> float:
    """By how much the published winner leads over the next."""
    here = [c for c in comparisons if (c.topology, c.size_bytes) == (topology, size_bytes)]
    first, second = sorted(c.published_us for c in here if c.algorithm in BASELINES and c.error == c.error)[:2]
    return second / first - 1


# --- the page -------------------------------------------------------------------------------------------------------


@processes(worker_count(), share=True)
def run(left: Left, quick: bool) -> None:
    """Compute all points and leave them with the page and one figure per topology."""
    topologies = [name for name in SPECS if not quick or name in QUICK]
    print(f"Swing: {', '.join(topologies)} on {worker_count()} workers", file=sys.stderr)
    comparisons = compare(topologies)
    left.table("points", [asdict(c) | {"holds": c.holds, "reason": c.reason} for c in comparisons])
    shapes = [name for name in WITH_NICS if name in topologies]
    of_sst, in_fifo, in_turn = compare_with_nics(shapes), *(compare_orders(shapes, one) for one in ("fifo", "rotate"))
    for name, points in (("sst", of_sst), ("fifo", in_fifo), ("in-turn", in_turn)):
        left.table(f"points-{name}", [asdict(c) for c in points])
    limited = [row for row in by_curve(of_sst).values() if row[0].algorithm in LIMITS]
    gains, turned = in_order(comparisons, in_fifo, in_turn)
    report = left.page(
        source=published()["source"], errors=_errors(comparisons), outside=_outside(comparisons),
        pictures=[line for name in topologies
                  for line in picture(f"swing-{name}", f"all-reduce on {name}, published and simulated", "swing")],
        winners=_winners(comparisons),
        reasons=[f"- {key}: {REASONS[key]}." for key in dict.fromkeys(c.reason for c in comparisons if c.reason)],
        errors_with_nics=with_nics(comparisons, of_sst), close=sum(map(is_close, limited)), limited=len(limited),
        winners_with_nics=_winners(of_sst), gains=gains, turned=turned, forms=forms(comparisons, of_sst),
        forms_by_rate=md_table(("link rate", "Swing", "RecDoub"), first_bandwidth_by_rate()),
        slow_us=SLOW_US, fast_us=FAST_US, hop_us=HOP_US, of_formulas=None if quick else of_formulas(),
    )
    print(report, end="")
    for name in topologies:
        draw(left.out / f"swing-{name}", name, [c for c in comparisons if c.topology == name])
    draw_orders(left.out / "swing-nic-order", comparisons, in_fifo, in_turn)
    print(f"tables and figures are in {left.out}/", file=sys.stderr)


def _errors(comparisons: list[Comparison]) -> list[str]:
    sizes = sorted({c.size_bytes for c in comparisons})
    cells = {place: {c.size_bytes: _cell(c) for c in row} for place, row in by_curve(comparisons).items()}
    return md_table(("topology", "algorithm", *map(short, sizes)),
                    [(*place, *(row.get(size, "") for size in sizes)) for place, row in cells.items()])


def _cell(c: Comparison) -> str:
    if c.error != c.error:
        return "-"
    return f"{100 * c.error:+.1f} %" + ("" if c.holds else " !")


def _outside(comparisons: list[Comparison]) -> Iterator[str]:
    barred = [c for c in comparisons if c.bar is not None]
    missed = [c for c in barred if not c.holds]
    yield f"{len(barred) - len(missed)} of {len(barred)} points with a bar are within it."
    for c in missed:
        assert c.bar is not None
        yield (
            f"- {c.topology} {c.algorithm} at {format_size(c.size_bytes)}: {100 * c.error:+.1f} % (bar "
            f"{100 * c.bar:.0f} %): {REASONS[c.reason]}. With links that serve the lowest chunk first, which keeps "
            f"flows together as well, it is {100 * error_lowest_chunk_first(c):+.1f} %."
        )


def _winners(comparisons: list[Comparison]) -> Iterator[str]:
    found = winners(comparisons)
    same = [w for w in found if w[2] == w[3]]
    clear = [w for w in found if margin(comparisons, *w[:2]) > 0.01]
    yield (
        f"The fastest algorithm is the published one at {len(same)} of {len(found)} sizes, and at "
        f"{sum(w in same for w in clear)} of the {len(clear)} at which it leads by more than 1 % in the paper."
    )
    for topology, size, theirs, ours in found:
        if theirs != ours:
            pair = {c.algorithm: c for c in comparisons if (c.topology, c.size_bytes) == (topology, size)}
            lead = pair[theirs].simulated_us / pair[ours].simulated_us - 1
            gap = pair[ours].published_us / pair[theirs].published_us - 1
            reason = REASONS[pair[ours].reason or pair[theirs].reason or "fifo"]
            yield (
                f"- {topology} at {format_size(size)}: {theirs} in the paper (by {100 * gap:.1f} %), {ours} here (by "
                f"{100 * lead:.1f} %): {reason}."
            )


def with_nics(ideal: list[Comparison], of_sst: list[Comparison]) -> list[str]:
    """The same points with the NIC and the waits of the authors' simulator, beside the ideal ones."""
    sizes, ideals, lines = sorted({c.size_bytes for c in of_sst}), by_curve(ideal), []
    for place, row in by_curve(of_sst).items():
        cells = {c.size_bytes: f"{100 * c.error:+.1f} %" for c in row}
        same = [c for c in ideals[place] if c.size_bytes in cells]
        far = "" if is_close(row) else " !"
        lines.append((*place, _spread(same), _spread(row) + far, *(cells.get(size, "") for size in sizes)))
    return md_table(("topology", "algorithm", "ideal", "swing-sst", *map(short, sizes)), lines)


def _spread(row: list[Comparison]) -> str:
    """Median and largest error of the sizes that are judged."""
    errors = errors_of(row)
    return f"{100 * median(errors):.1f}, {100 * max(errors):.1f} %"


def in_order(ideal: list[Comparison], in_fifo: list[Comparison], in_turn: list[Comparison]) -> tuple[list[str], str]:
    """The gain of Swing for large arrays, by the order in which a NIC serves the ports of a node, and what turns."""
    sides = [_contenders(rows) for rows in (ideal, in_fifo, in_turn)]
    turned, lines = [], []
    for place in sides[2]:
        topology, size = place
        gains = published()["topologies"][topology]["swing_gain_pct"]
        theirs = float(gains[published()["sizes"].index(short(size))])
        found = [gain(side[place], size) for side in sides]
        names = [winners([c for c in side[place] if c.error == c.error])[0][2:] for side in sides]
        fastest = [names[0][0], *(ours for _, ours in names)]
        lines.append((topology, short(size), *(f"{one:+.1f}" for one in (theirs, *found)), ", ".join(fastest)))
        if fastest[2] != fastest[3]:
            turned.append(f"{topology} at {short(size)} ({fastest[2]} with a fifo queue, {fastest[3]} in turn)")
    table = md_table(("topology", "size", "published", "ideal", "fifo", "in turn", "fastest"), lines)
    return table, f"{len(turned)} of {len(lines)} sizes{': ' * bool(turned)}{'; '.join(turned)}"


def _contenders(rows: list[Comparison]) -> dict[tuple[str, int], list[Comparison]]:
    """By topology and size, without recursive doubling."""
    return grouped(((c.topology, c.size_bytes), c) for c in rows
                   if c.algorithm in BASELINES and c.algorithm != "RecDoub")


FIRST_BANDWIDTH = {"64x16": "128KiB", "Hx2Mesh": "128KiB"}
"""Smallest plotted size at which Swing's bandwidth form is the better one, where not 512 KiB; RecDoub: 128 KiB."""


def forms(ideal: list[Comparison], of_sst: list[Comparison]) -> list[str]:
    """From which size on the curves of algorithms with two forms are those of the bandwidth form."""
    nics, lines = by_curve(of_sst), []
    for (topology, algorithm), row in by_curve(ideal).items():
        if algorithm in ("Swing", "RecDoub"):
            theirs = FIRST_BANDWIDTH.get(topology, "512KiB") if algorithm == "Swing" else "128KiB"
            sst = nics.get((topology, algorithm), row if topology == "Hx2Mesh" else [])
            lines.append((topology, algorithm, theirs, _first(row, topology != "Hx2Mesh"), _first(sst)))
    return md_table(("topology", "algorithm", "published", "ideal", "swing-sst"), lines)


def _first(row: list[Comparison], shown: bool = True) -> str:
    return short(min(c.size_bytes for c in row if c.form == "bandwidth")) if row and shown else "-"


RATES = ("100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s", "1.6Tb/s", "3.2Tb/s")


def first_bandwidth_by_rate() -> list[tuple[str, ...]]:
    """Of each link rate, the first size at which bandwidth forms of Swing and recursive doubling are faster, on 8x8."""
    sizes, names = published()["sizes"][5:12], ("swing", "recursive-doubling")
    fabrics = [TopologyKeys(spec=SPECS["8x8"], link_bandwidth=rate) for rate in RATES]
    specs = [Spec(topology=fabric, model=ModelKeys(preset="swing-paper")) for fabric in fabrics]
    tasks = [Task(spec, name, parse_size(size)) for spec in specs for name in names for size in sizes]
    form = [row["form"] for row in compute_all(tasks, worker_count())]
    curves = [form[at : at + len(sizes)] for at in range(0, len(form), len(sizes))]
    firsts = [sizes[curve.index("bandwidth")] if "bandwidth" in curve else "-" for curve in curves]
    return [(rate, *firsts[2 * at : 2 * at + 2]) for at, rate in enumerate(RATES)]


FABRICS = {"Hx4Mesh": ("hx4mesh:16x16", "swing-hx"), "HyperX": ("hyperx:64x64", "swing-sst")}
"""HyperX has no rings, and so one virtual channel."""
WIDTH, BOARD = 64, 4

SLOW_US, FAST_US, HOP_US = 0.72, 0.314, 0.92
"""A step from edge to edge through a switch, along a trace of a board, and over a link of HyperX."""

def of_formulas() -> list[str]:
    """The table of larger boards and HyperX, computed."""
    places = [(name, label) for name in FABRICS for label in BASELINES if (name, label) != ("HyperX", "Ring")]
    sizes, lines = (32, 512 * MIB), []
    rows = compute_all([task_of(*place, size) for place in places for size in sizes], worker_count())
    for (name, label), small, large in zip(places, rows[::2], rows[1::2], strict=True):
        times = (1e6 * small["time_s"], zero_load_us(name, label), 1e6 * small["lower_bound_s"])
        goodputs = (8e-9 * sizes[1] / large[key] for key in ("time_s", "lower_bound_s"))
        lines.append((name, label, *("-" if one is None else f"{one:.2f}" for one in (*times, *goodputs))))
    return md_table(("topology", "algorithm", "32 B, us", "closed form", "bound", "512 MiB, Gb/s", "bound"), lines, 5)


def task_of(name: str, label: str, size_bytes: int) -> Task:
    """The point of a fabric and an algorithm."""
    fabric, preset = FABRICS[name]
    options = ("pairs=shifted",) if (name, label) == ("Hx4Mesh", "RecDoub") else None
    model = ModelKeys(preset=preset, vcs=1)
    spec = Spec(topology=TopologyKeys(spec=fabric), model=model, collective=CollectiveKeys(options=options))
    return Task(spec, ALGORITHMS[label], size_bytes)


def zero_load_us(name: str, label: str) -> float | None:
    """Closed form of small arrays; None for butterflies on boards of 4, whose steps differ from rank to rank."""
    if name == "HyperX":
        return HOP_US * (4 * (WIDTH - 1) if label == "Bucket" else 2 * log2(WIDTH))
    crossings = WIDTH // BOARD
    return {
        "Bucket": 4 * (crossings * SLOW_US + (WIDTH - 1 - crossings) * FAST_US),
        "Ring": 2 * (WIDTH**2 - 1) * (SLOW_US + (BOARD - 1) * FAST_US) / BOARD,
    }.get(label)


# --- its figures ----------------------------------------------------------------------------------------------------


SMALL_BYTES = 32 * 2**10


def draw(path: Path, topology: str, comparisons: list[Comparison]) -> None:
    """Write `path`.png and `path`.pdf.

    `path`: without a suffix.
    `topology`: for the title.
    `comparisons`: of one topology.
    """
    for suffix in (".png", ".pdf"):
        with figure(path.with_name(path.name + suffix), WIDE, 3.1) as drawn:
            places = drawn.add_gridspec(2, 2, width_ratios=(1.75, 1))
            goodput, runtime, gains = (drawn.add_subplot(place) for place in (places[:, 0], places[0, 1], places[1, 1]))
            small = [c for c in comparisons if c.size_bytes <= SMALL_BYTES and c.algorithm != "Ring"]
            _draw(goodput, comparisons, lambda c: c.simulated_Gbps, lambda c: c.published_Gbps)
            goodput.set_ylabel("goodput (Gb/s)")
            goodput.set_xlabel("size of the array")
            _draw(runtime, small, lambda c: c.simulated_us, lambda c: c.published_us, most=6)
            log_axis(runtime, most=5)
            runtime.set_title("runtime of small arrays")
            runtime.set_ylabel("time (µs)")
            _draw_gain(gains, topology, comparisons)
            heading(drawn, f"all-reduce on {'torus:' * topology[0].isdigit()}{topology}")
            roles = [Line2D([], [], color="#555555", label="simulated"),
                     Line2D([], [], color="#555555", marker="o", markerfacecolor="white", linestyle="none",
                            label="published")]
            legend(drawn, [*goodput.get_legend_handles_labels()[0], *roles])


def _draw(
    axes: Axes, comparisons: list[Comparison], simulated: Callable[[Comparison], float],
    plotted: Callable[[Comparison], float], most: int = 13,
) -> None:
    for label, name in ALGORITHMS.items():
        curve = [c for c in comparisons if c.algorithm == label]
        if curve:
            sizes = [c.size_bytes for c in curve]
            axes.plot(sizes, [simulated(c) for c in curve], label=name, **line_of(name).curve())
            axes.plot(sizes, [plotted(c) for c in curve], **line_of(name).points())
    sizes_axis(axes, [c.size_bytes for c in comparisons], most=most)


def _draw_gain(axes: Axes, topology: str, comparisons: list[Comparison]) -> None:
    """Gain of Swing over the best of the others, as the paper defines it."""
    theirs = published()["topologies"][topology]["swing_gain_pct"]
    sizes = sorted({c.size_bytes for c in comparisons})
    line = line_of("swing")
    axes.axhline(0, **REFERENCE)
    axes.plot(sizes, [gain(comparisons, size) for size in sizes], **line.curve())
    axes.plot(sizes[: len(theirs)], theirs[: len(sizes)], **line.points())
    sizes_axis(axes, sizes, most=7)
    axes.set_title("gain of swing")
    axes.set_ylabel("over others (%)")


ORDERS = ("ideal", "fifo queue", "engines in turn")


def draw_orders(path: Path, *sides: list[Comparison]) -> None:
    """The gain of Swing for large arrays: ideal, with a fifo queue in the NIC, and with engines in turn.

    `path`: without a suffix.
    `sides`: comparisons of each, the last at the sizes that are shown.
    """
    topologies = list(dict.fromkeys(c.topology for c in sides[-1]))
    for suffix in (".png", ".pdf"):
        with figure(path.with_name(path.name + suffix), WIDE, 2.6) as drawn:
            panels = drawn.subplots(1, len(topologies), squeeze=False)[0]
            for axes, topology in zip(panels, topologies, strict=True):
                sizes = sorted({c.size_bytes for c in sides[-1] if c.topology == topology})
                theirs = published()["topologies"][topology]["swing_gain_pct"]
                at = [published()["sizes"].index(short(size)) for size in sizes]
                axes.axhline(0, **REFERENCE)
                for label, line, side in zip(ORDERS, CYCLE[1:], sides, strict=False):
                    own = [c for c in side if c.topology == topology]
                    axes.plot(sizes, [gain(own, size) for size in sizes], label=label, **line.curve())
                axes.plot(sizes, [theirs[one] for one in at], label="published", clip_on=False, **CYCLE[0].points())
                sizes_axis(axes, sizes, most=5)
                axes.set_xlabel("size of the array")
                axes.set_title(topology)
            panels[0].set_ylabel("gain of swing (%)")
            heading(drawn, "all-reduce, by what the ports of a node share")
            legend(drawn)


def gain(comparisons: list[Comparison], size_bytes: int) -> float:
    """Per cent by which simulated Swing beats the best other algorithm; negative where another one is faster."""
    here = [c for c in comparisons if c.size_bytes == size_bytes and c.algorithm in BASELINES]
    times = {c.algorithm: c.simulated_us for c in here}
    swing = times.pop("Swing")
    best = min(times.values())
    return 100 * (best / swing - 1 if swing <= best else -(swing / best - 1))
