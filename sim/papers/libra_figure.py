"""Figures in the style of the LIBRA paper: gain over equal bandwidths by budget, one panel per network and workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.papers.libra_cases import GainPoint
from sim.plots.lines import OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend

SERIES = (
    ("analytic", "analytic optimum, by formula", OTHERS[0].curve()),
    ("replayed", "the same split, simulated", OTHERS[1]._replace(marker="s").points() | {"markersize": 5.0}),
    ("simulated", "optimized for the simulation",
     OTHERS[2]._replace(hollow=False).style()
     | {"linestyle": "none", "markersize": 3.2, "markeredgewidth": 0, "zorder": 4}),
)
"""Marks in one another, so that points that coincide are seen all the same."""

FIGURES = {
    "speedup": ("time", "speedup", "speed-up over equal bandwidths"),
    "perf-per-cost": ("time-cost", "gain", "perf per cost over equal"),
}


def draw(out: Path, points: Sequence[GainPoint]) -> None:
    """Write `libra-speedup.png` and `libra-perf-per-cost.png` to `out`."""
    for name, (goal, quantity, label) in FIGURES.items():
        chosen = [point for point in points if point.goal == goal]
        networks = list(dict.fromkeys(point.network for point in chosen))
        workloads = list(dict.fromkeys(point.workload for point in chosen))
        with figure(out / f"libra-{name}.png", WIDE, 0.5 + 1.4 * len(networks)) as drawn:
            grid = drawn.subplots(len(networks), len(workloads), sharex=True, squeeze=False)
            for row, network in enumerate(networks):
                for column, workload in enumerate(workloads):
                    mine = [p for p in chosen if p.network == network and p.workload == workload]
                    _panel(grid[row, column], mine, quantity)
                    if not row:
                        grid[row, column].set_title(workload)
                    if not column:
                        grid[row, column].set_ylabel(network)
                    if row == len(networks) - 1:
                        grid[row, column].set_xlabel("GB/s per NPU")
            heading(drawn, label)
            legend(drawn)


def _panel(axes: Any, points: Sequence[GainPoint], quantity: str) -> None:
    budgets = [point.budget_GBps for point in points]
    for prefix, label, style in SERIES:
        axes.plot(budgets, [getattr(point, f"{prefix}_{quantity}") for point in points], label=label, **style)
    axes.axhline(1.0, **REFERENCE)
