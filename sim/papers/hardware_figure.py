"""Measured and predicted times over sizes, a picture per generation of GPUs and a panel per run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.plots.lines import CYCLE, OTHERS
from sim.plots.style import NARROW, WIDE, figure, legend, log_axis, sizes_axis

MOST_PANELS = 12
LEAST_SIZES = 8
GENERATIONS = {"ampere": "a100", "hopper": "h100", "blackwell": "b200", "cdna": "mi300x"}


def draw(out: Path, points: Sequence[Any]) -> None:
    """Write `hardware-GENERATION.png` to `out`, of runs with enough sizes: those with the most."""
    for architecture, name in GENERATIONS.items():
        runs: dict[str, list[Any]] = {}
        for point in points:
            if point.counted and point.setting.machine.gpu.architecture == architecture:
                runs.setdefault(point.run["id"], []).append(point)
        chosen = sorted((run for run in runs.values() if len(run) >= LEAST_SIZES), key=len, reverse=True)[:MOST_PANELS]
        if chosen:
            _picture(out / f"hardware-{name}.png", chosen)


def _picture(path: Path, runs: Sequence[Sequence[Any]]) -> None:
    across = min(4, len(runs))
    down = -(-len(runs) // across)
    with figure(path, WIDE if across > 1 else NARROW, 0.3 + 1.5 * down) as drawn:
        grid = drawn.subplots(down, across, squeeze=False)
        for axes, run in zip(grid.flat, runs, strict=False):
            sizes = [point.size_bytes for point in run]
            axes.plot(sizes, [point.measured_us for point in run], label="measured",
                      **CYCLE[-1].points() | {"marker": "o", "markersize": 2.6})
            axes.plot(sizes, [point.found.time_s * 1e6 for point in run], label="predicted", **OTHERS[0].curve())
            sizes_axis(axes, sizes, most=4 if len(runs) < 4 else 3)
            log_axis(axes, most=5, unit_s=1e-6)
            axes.set_title(run[0].run["id"], fontsize=6)
        for axes in list(grid.flat)[len(runs):]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("time")
        legend(drawn)
