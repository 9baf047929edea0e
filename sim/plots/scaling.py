"""How algorithms scale with the number of NPUs, at one size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import NullLocator

from sim.plots.style import REFERENCE, WIDE, Row, figure, heading, legend, lines_of, log_axis, size_label
from topologies import WeftError, from_spec

Points = dict[str, dict[int, Row]]
"""By algorithm and number of NPUs."""


def draw_scaling(rows: Sequence[Row], path: Path, *, size_bytes: int | None = None, width: str = WIDE) -> None:
    """Draw bandwidth and time over the number of NPUs, with the lower bound of each run (thin).

    `rows`: of several fabrics and one collective.
    `size_bytes`: default: the largest that all fabrics have.
    `width`: {"narrow", "wide"}; narrow shows the bandwidth alone.
    WeftError: fewer than two numbers of NPUs, or no such size.
    """
    size = common_size(rows) if size_bytes is None else size_bytes
    points = by_npus([row for row in rows if row["size_bytes"] == size])
    counts = sorted({npus for own in points.values() for npus in own})
    if len(counts) < 2:
        raise WeftError(f"scaling needs fabrics of several sizes: at {size_label(size)} there is {len(counts)}")
    lines = lines_of(points)
    with figure(path, width) as drawn:
        axes = list(drawn.subplots(1, 2)) if width == WIDE else [drawn.add_subplot()]
        for name, own in points.items():
            its, style = sorted(own), lines[name].style()
            thin: dict[str, Any] = REFERENCE | {"color": lines[name].color}
            axes[0].plot(its, [own[npus]["algbw_GBps"] for npus in its], label=name, **style)
            axes[0].plot(its, [_bound_GBps(own[npus]) for npus in its], **thin)
            if width == WIDE:
                axes[1].plot(its, [1e6 * own[npus]["time_s"] for npus in its], **style)
                axes[1].plot(its, [1e6 * own[npus]["lower_bound_s"] for npus in its], **thin)
        for one in axes:
            one.set_xscale("log", base=2)
            one.set_xticks(counts, [str(count) for count in counts], rotation=35 if len(counts) > 6 else 0)
            one.xaxis.set_minor_locator(NullLocator())
            one.set_xlabel("NPUs")
        axes[0].set_ylim(bottom=0)
        axes[0].set_ylabel("algbw (GB/s)")
        if width == WIDE:
            log_axis(axes[1])
            axes[1].set_ylabel("time (µs)")
        heading(drawn, f"{rows[0]['collective']} of {size_label(size)}, lower bounds dotted")
        legend(drawn)


def common_size(rows: Sequence[Row]) -> int:
    """The largest size that all fabrics have."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row["topology"], set()).add(row["size_bytes"])
    shared = set.intersection(*sizes.values()) if sizes else set()
    if not shared:
        raise WeftError(f"scaling needs a size common to all fabrics: {', '.join(sizes)} have none")
    return max(shared)


def by_npus(rows: Sequence[Row]) -> Points:
    """The fastest row of each algorithm and number of NPUs."""
    points: Points = {}
    for row in rows:
        npus = int(row["npus"]) if row.get("npus") else from_spec(row["topology"]).n_npus
        own = points.setdefault(row["algorithm"], {})
        if npus not in own or row["time_s"] < own[npus]["time_s"]:
            own[npus] = row
    return points


def _bound_GBps(row: Row) -> float:
    return row["size_bytes"] / row["lower_bound_s"] / 1e9 if row["lower_bound_s"] else float("nan")
