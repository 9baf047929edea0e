"""Swing (De Sensi et al., NSDI'24): every plotted point of five topologies beside the simulated one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from math import log2
from pathlib import Path
from statistics import median

from sim.papers.swing_figure import draw, draw_orders, gain
from sim.papers.swing_points import (
    ALGORITHMS,
    BASELINES,
    LIMITS,
    MIB,
    QUICK,
    REASONS,
    SPECS,
    WITH_NICS,
    Comparison,
    by_curve,
    compare,
    compare_orders,
    compare_with_nics,
    error_lowest_chunk_first,
    errors_of,
    is_close,
    margin,
    published,
    short,
    winners,
    worker_count,
)
from sim.papers.tables import md_head, picture, write_table
from sim.study.keys import CollectiveKeys, ModelKeys, TopologyKeys
from sim.study.points import Task, compute_all
from sim.study.spec import Spec
from sim.whole_file import write_text_whole
from topologies.units import format_size, parse_size


def run(out: Path, quick: bool) -> None:
    """Compute all points and write `points.csv`, `swing.md` and one figure per topology to `out`."""
    topologies = [name for name in SPECS if not quick or name in QUICK]
    print(f"Swing: {', '.join(topologies)} on {worker_count()} workers", file=sys.stderr)
    comparisons = compare(topologies)
    write_table(out / "points.csv", [asdict(c) | {"holds": c.holds, "reason": c.reason} for c in comparisons])
    shapes = [name for name in WITH_NICS if name in topologies]
    of_sst, in_fifo, in_turn = compare_with_nics(shapes), *(compare_orders(shapes, one) for one in ("fifo", "rotate"))
    for name, points in (("sst", of_sst), ("fifo", in_fifo), ("in-turn", in_turn)):
        write_table(out / f"points-{name}.csv", [asdict(c) for c in points])
    report = "\n".join([
        *_report(comparisons), "", *with_nics(comparisons, of_sst), "", *_winners(of_sst), "",
        *in_order(comparisons, in_fifo, in_turn), *forms(comparisons, of_sst, first_bandwidth_by_rate()),
        *(() if quick else of_formulas()),
    ])
    write_text_whole(out / "swing.md", report + "\n")
    print(report)
    for name in topologies:
        draw(out / f"swing-{name}", name, [c for c in comparisons if c.topology == name])
    draw_orders(out / "swing-nic-order", comparisons, in_fifo, in_turn)
    print(f"tables and figures are in {out}/", file=sys.stderr)


def _report(comparisons: list[Comparison]) -> Iterator[str]:
    yield "# Swing: published and simulated"
    yield ""
    yield f"Source: {published()['source']}."
    yield ""
    yield "Error of the simulated time against the published one, by size; `!` marks a point outside its bar."
    yield "Set-up: 400 Gb/s links, 100 ns wires, 300 ns routers, 8 KiB packets and a header of 8 B per message,"
    yield "cut-through, head delivery, 0.52 us of endpoints, ties by the parity of the source's coordinate, fifo links."
    yield "Hx2Mesh is simulated with `--preset swing-hx`, the NICs and waits below: 0.1 us for a hop on a board,"
    yield "0.506 us from edge to edge through a switch, 0.214 us of endpoints, which the figures give, and recursive"
    yield "doubling with the pairs of the authors' program (`--option pairs=shifted`)."
    yield ""
    sizes = sorted({c.size_bytes for c in comparisons})
    yield from md_head("topology", "algorithm", *(format_size(s).replace(" ", "") for s in sizes))
    for (topology, algorithm), row in by_curve(comparisons).items():
        cells = {c.size_bytes: _cell(c) for c in row}
        yield f"| {topology} | {algorithm} | " + " | ".join(cells.get(s, "") for s in sizes) + " |"
    yield ""
    for topology in dict.fromkeys(c.topology for c in comparisons):
        yield from picture(f"swing-{topology}", f"all-reduce on {topology}, published and simulated", "swing")
    yield from _outside(comparisons)
    yield ""
    yield from _winners(comparisons)
    yield ""
    yield "Why points differ:"
    for key in dict.fromkeys(c.reason for c in comparisons if c.reason):
        yield f"- {key}: {REASONS[key]}."


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


SET_UP = (
    "The same points with `--preset swing-sst`: the ports of a node share a fifo queue of its NIC, at twice the",
    "rate of all its ports, posts and the pushes of a port are 1 ns apart, sends end when they are in the queue,",
    "and ranks wait as in the authors' program: Swing and recursive doubling for all ports, ring and bucket for",
    "any, bucket for all before a phase. A link has two virtual channels, which it serves in turn; a packet changes",
    "channel where it transits coordinate 0. Median and largest error from 32 KiB to 128 MiB (of the ring where its",
    "plotted goodput has two digits), ideal and with them, and the error at each size. Limits: 1 and 3 % for Swing",
    "and bucket, 1 % for the ring, a median of 7 % for recursive doubling; `!` marks a curve that is beyond them.",
    "Channels leave no symmetry to Swing and recursive doubling, so all ranks are simulated.",
)

REST = (
    "What is not reproduced: recursive doubling where several of its long transfers share a link, most of all on 64x64",
    "from 32 MiB on; in the simulator of the paper its last steps, whose two routes are equally long, take the side",
    "with more free space, here ties go by the parity of the source's coordinate.",
)


def with_nics(ideal: list[Comparison], of_sst: list[Comparison]) -> Iterator[str]:
    """The same points with the NIC and the waits of the authors' simulator, beside the ideal ones."""
    yield "## With the NICs and waits of its simulator"
    yield ""
    yield from SET_UP
    yield ""
    sizes = sorted({c.size_bytes for c in of_sst})
    yield from md_head("topology", "algorithm", "ideal", "swing-sst", *map(short, sizes))
    ideals = by_curve(ideal)
    for place, row in by_curve(of_sst).items():
        cells = {c.size_bytes: f"{100 * c.error:+.1f} %" for c in row}
        same = [c for c in ideals[place] if c.size_bytes in cells]
        errors = f"{_spread(same)} | {_spread(row)}" + ("" if is_close(row) else " !")
        yield f"| {place[0]} | {place[1]} | {errors} | " + " | ".join(cells.get(s, "") for s in sizes) + " |"
    yield ""
    curves = [row for row in by_curve(of_sst).values() if row[0].algorithm in LIMITS]
    yield f"{sum(map(is_close, curves))} of {len(curves)} curves with limits are within them."
    yield from REST


def _spread(row: list[Comparison]) -> str:
    """Median and largest error of the sizes that are judged."""
    errors = errors_of(row)
    return f"{100 * median(errors):.1f}, {100 * max(errors):.1f} %"


def in_order(ideal: list[Comparison], in_fifo: list[Comparison], in_turn: list[Comparison]) -> Iterator[str]:
    """The gain of Swing for large arrays, by the order in which a NIC serves the ports of a node."""
    yield "## What depends on the order in a NIC"
    yield ""
    yield "Gain of Swing over the best other algorithm, %, as published and by what ports share: nothing (ideal), a"
    yield "NIC with a fifo queue (`--preset swing-sst --vcs 1`), a NIC whose engines take turns (`--nic-order rotate`)."
    yield "Last, the fastest algorithm in this order; recursive doubling, several times slower here, is left out."
    yield "Links have one virtual channel, so that symmetry helps; with two, Swing of 128 MiB on 64x16 is 6 % slower."
    yield ""
    yield from md_head("topology", "size", "published", "ideal", "fifo", "in turn", "fastest", numbers=0)
    sides = [_contenders(rows) for rows in (ideal, in_fifo, in_turn)]
    turned = []
    for place in sides[2]:
        topology, size = place
        theirs, found = _published_gain(topology, size), [gain(side[place], size) for side in sides]
        names = [winners([c for c in side[place] if c.error == c.error])[0][2:] for side in sides]
        fastest = [names[0][0], *(ours for _, ours in names)]
        cells = [f"{one:+.1f}" for one in (theirs, *found)]
        yield f"| {topology} | {short(size)} | {' | '.join(cells)} | {', '.join(fastest)} |"
        if fastest[2] != fastest[3]:
            turned.append(f"{topology} at {short(size)} ({fastest[2]} with a fifo queue, {fastest[3]} in turn)")
    yield ""
    yield f"The order decides which algorithm is the fastest at {len(turned)} of {len(sides[2])} sizes" + (
        f": {'; '.join(turned)}." if turned else "."
    )
    yield "Bucket loses about one largest message per all-reduce to the fifo queue, and nothing to engines in turn."
    yield "The order of Swing and bucket for large arrays is a property of the NIC, not of the algorithms alone."
    yield ""
    yield from picture("swing-nic-order", "gain of Swing by the order in which a NIC serves its ports", "swing")


def _contenders(rows: list[Comparison]) -> dict[tuple[str, int], list[Comparison]]:
    """By topology and size, without recursive doubling."""
    found: dict[tuple[str, int], list[Comparison]] = {}
    for c in rows:
        if c.algorithm in BASELINES and c.algorithm != "RecDoub":
            found.setdefault((c.topology, c.size_bytes), []).append(c)
    return found


def _published_gain(topology: str, size_bytes: int) -> float:
    return float(published()["topologies"][topology]["swing_gain_pct"][published()["sizes"].index(short(size_bytes))])


FIRST_BANDWIDTH = {"64x16": "128KiB", "Hx2Mesh": "128KiB"}
"""Smallest plotted size at which Swing's bandwidth form is the better one, where not 512 KiB; RecDoub: 128 KiB."""


def forms(
    ideal: list[Comparison], of_sst: list[Comparison], by_rate: dict[str, list[str]]
) -> Iterator[str]:
    """From which size on the curves of algorithms with two forms are those of the bandwidth form."""
    yield "## Forms"
    yield ""
    yield "Curves of Swing and recursive doubling are of the faster form at each size: the latency form up to some"
    yield "size, the bandwidth form from the next one on. First size of the bandwidth form:"
    yield ""
    yield from md_head("topology", "algorithm", "published", "ideal", "swing-sst")
    nics = by_curve(of_sst)
    for (topology, algorithm), row in by_curve(ideal).items():
        if algorithm in ("Swing", "RecDoub"):
            theirs = FIRST_BANDWIDTH.get(topology, "512KiB") if algorithm == "Swing" else "128KiB"
            sst = nics.get((topology, algorithm), row if topology == "Hx2Mesh" else [])
            yield f"| {topology} | {algorithm} | {theirs} | {_first(row, topology != 'Hx2Mesh')} | {_first(sst)} |"
    yield ""
    yield "Over link rates on 8x8, ideal:"
    yield ""
    yield from md_head("link rate", "Swing", "RecDoub")
    for rate, sizes in by_rate.items():
        yield f"| {rate} | " + " | ".join(sizes) + " |"
    yield ""
    yield "The paper's figure over link rates is not among the points here. A comparison with it has to fix `--form`:"
    yield "reportedly its curves at 3.2 Tb/s are not those of the faster form."
    yield ""


def _first(row: list[Comparison], shown: bool = True) -> str:
    return short(min(c.size_bytes for c in row if c.form == "bandwidth")) if row and shown else "-"


RATES = ("100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s", "1.6Tb/s", "3.2Tb/s")


def first_bandwidth_by_rate() -> dict[str, list[str]]:
    """By link rate, the first size at which the bandwidth forms of Swing and recursive doubling are faster, on 8x8."""
    sizes, names = published()["sizes"][5:12], ("swing", "recursive-doubling")
    fabrics = [TopologyKeys(spec=SPECS["8x8"], link_bandwidth=rate) for rate in RATES]
    specs = [Spec(topology=fabric, model=ModelKeys(preset="swing-paper")) for fabric in fabrics]
    tasks = [Task(spec, name, parse_size(size)) for spec in specs for name in names for size in sizes]
    form = [row["form"] for row in compute_all(tasks, worker_count())]
    curves = [form[at : at + len(sizes)] for at in range(0, len(form), len(sizes))]
    firsts = [sizes[curve.index("bandwidth")] if "bandwidth" in curve else "-" for curve in curves]
    return {rate: firsts[2 * at : 2 * at + 2] for at, rate in enumerate(RATES)}


FABRICS = {"Hx4Mesh": ("hx4mesh:16x16", "swing-hx"), "HyperX": ("hyperx:64x64", "swing-sst")}
"""HyperX has no rings, and so one virtual channel."""
WIDTH, BOARD = 64, 4

SLOW_US, FAST_US, HOP_US = 0.72, 0.314, 0.92
"""A step from edge to edge through a switch, along a trace of a board, and over a link of HyperX."""

TEXT = (
    "4,096 NPUs in a square: boards of 4x4 with `--preset swing-hx`, and HyperX with `--preset swing-sst --vcs 1`. No",
    "published points of these are at hand; beside the simulated values are closed forms of no load, and bounds.",
    f"A step takes s = {SLOW_US} us from edge to edge through a switch, f = {FAST_US} us along a trace, {HOP_US} us on",
    "HyperX.",
    "On lines of W NPUs with boards of b, bucket takes 4 (s W/b + f (W - 1 - W/b)), the ring",
    "2 (p - 1) (s + f (b - 1)) / b; on HyperX, bucket has 4 (W - 1) steps, Swing and recursive doubling 2 log2 W.",
    "Where there is no closed form, the bound at 32 B is the longest chain of steps.",
)


def of_formulas() -> Iterator[str]:
    """The page's section, computed."""
    yield "## Larger boards, and HyperX"
    yield ""
    yield from TEXT
    yield ""
    yield from md_head(
        "topology", "algorithm", "32 B, us", "closed form", "bound", "512 MiB, Gb/s", "bound", numbers=5
    )
    places = [(name, label) for name in FABRICS for label in BASELINES if (name, label) != ("HyperX", "Ring")]
    sizes = (32, 512 * MIB)
    rows = compute_all([task_of(*place, size) for place in places for size in sizes], worker_count())
    for (name, label), small, large in zip(places, rows[::2], rows[1::2], strict=True):
        times = (1e6 * small["time_s"], zero_load_us(name, label), 1e6 * small["lower_bound_s"])
        goodputs = (8e-9 * sizes[1] / large[key] for key in ("time_s", "lower_bound_s"))
        cells = ["-" if one is None else f"{one:.2f}" for one in (*times, *goodputs)]
        yield f"| {name} | {label} | {' | '.join(cells)} |"


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
