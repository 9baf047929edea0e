"""The Swing page with NICs: errors with the set-up of the authors' simulator, and what the order in a NIC decides."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from sim.papers.swing_figure import gain
from sim.papers.swing_points import (
    BASELINES,
    LIMITS,
    Comparison,
    by_curve,
    errors_of,
    is_close,
    published,
    short,
    winners,
)
from sim.papers.tables import md_head, picture

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
