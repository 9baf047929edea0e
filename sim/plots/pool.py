"""Goodput of a slot pool by its slots, with the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import NullLocator

from sim.plots.style import REFERENCE, WIDE, Row, figure, heading, legend, lines_of, size_label


def draw_pool(rows: Sequence[Row], path: Path, *, width: str = WIDE) -> None:
    """Draw goodput over slots, a line for each rule or leaf, the closed form (thin), and the slots of a round trip.

    `rows`: of `sim.cli.pool`: one nonempty array, and several numbers of slots.
    """
    slots = sorted({int(row["slots"]) for row in rows})
    named: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["slots"])):
        named.setdefault(str(row.get("rule", row.get("leaf", "simulated"))), []).append(row)
    lines = lines_of(named)
    with figure(path, width) as drawn:
        axes = drawn.add_subplot()
        for name, own in named.items():
            axes.plot([row["slots"] for row in own], [row["goodput_Gbps"] for row in own], label=name,
                      **lines[name].style())
        if len(named) == 1:
            own = next(iter(named.values()))
            closed = [8e-9 * row["size_bytes"] / row["closed_form_s"] for row in own]
            axes.plot([row["slots"] for row in own], closed, label="closed form", **REFERENCE)
        axes.axvline(rows[0]["slots_needed"], label="slots of one round trip", **REFERENCE | {"linestyle": (0, (4, 3))})
        axes.set_xscale("log", base=2)
        axes.set_xticks(slots, [str(count) for count in slots], rotation=35 if len(slots) > 8 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("slots of a job")
        axes.set_ylabel("goodput (Gb/s)")
        heading(drawn, f"{size_label(rows[0]['size_bytes'])}, {rows[0]['workers']} workers")
        legend(drawn)
