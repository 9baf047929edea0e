"""The Swing figures in the paper's layout: goodput by size, small runtimes inset, and the gain below."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from sim.papers.swing_points import ALGORITHMS, BASELINES, Comparison, published
from sim.whole_file import write_whole
from topologies.units import format_size

COLORS = {"Swing": "#D55E00", "RecDoub": "#0072B2", "Bucket": "#009E73", "Ring": "#CC79A7", "MirrRD": "#7F7F7F"}
MARKERS = {"Swing": "o", "RecDoub": "s", "Bucket": "^", "Ring": "D", "MirrRD": "v"}


def draw(path: Path, topology: str, comparisons: list[Comparison]) -> None:
    """Write `path`.png and `path`.pdf.

    `path`: without a suffix.
    `topology`: for the title.
    `comparisons`: of one topology.
    """
    figure, (goodput, gain) = plt.subplots(
        2, 1, figsize=(7, 5.2), sharex=True, height_ratios=(3, 1.1), layout="constrained"
    )
    for label in ALGORITHMS:
        curve = [c for c in comparisons if c.algorithm == label]
        if curve:
            _draw_curve(goodput, curve, "Gbps")
    goodput.set_ylabel("goodput (Gb/s)")
    goodput.set_title(f"all-reduce on {topology}: lines simulated, markers published", fontsize=10)
    _draw_runtimes(goodput, comparisons)
    _draw_gain(gain, topology, comparisons)
    sizes = sorted({c.size_bytes for c in comparisons})
    gain.set_xscale("log", base=2)
    gain.set_xticks(sizes, [format_size(s).replace(" ", "") for s in sizes], rotation=40, ha="right", fontsize=8)
    gain.minorticks_off()
    goodput.legend(loc="center left", bbox_to_anchor=(0.02, 0.28), frameon=False, fontsize=8)
    for axes in (goodput, gain):
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    for suffix in (".png", ".pdf"):
        write_whole(path.with_name(path.name + suffix), lambda file: figure.savefig(file, dpi=200))
    plt.close(figure)


def _draw_curve(axes: Axes, curve: list[Comparison], unit: str) -> None:
    label = curve[0].algorithm
    sizes = [c.size_bytes for c in curve]
    axes.plot(sizes, [getattr(c, f"simulated_{unit}") for c in curve], color=COLORS[label], linewidth=1.4,
              label=ALGORITHMS[label])
    axes.plot(sizes, [getattr(c, f"published_{unit}") for c in curve], MARKERS[label], color=COLORS[label],
              markersize=4, markerfacecolor="white", markeredgewidth=1)


def _draw_runtimes(axes: Axes, comparisons: list[Comparison]) -> None:
    """Runtimes up to 32 KiB in a corner, as the paper has them."""
    inset = axes.inset_axes((0.09, 0.5, 0.36, 0.46))
    for label in ALGORITHMS:
        curve = [c for c in comparisons if c.algorithm == label and c.size_bytes <= 32 * 2**10 and label != "Ring"]
        if curve:
            _draw_curve(inset, curve, "us")
    sizes = sorted({c.size_bytes for c in comparisons if c.size_bytes <= 32 * 2**10})
    inset.set_xscale("log", base=2)
    inset.set_ylim(bottom=0)
    inset.set_xticks(sizes, [format_size(s).replace(" ", "") for s in sizes], fontsize=6)
    inset.minorticks_off()
    inset.tick_params(labelsize=6)
    inset.set_ylabel("runtime (us)", fontsize=7)
    inset.grid(alpha=0.25, linewidth=0.5)


def _draw_gain(axes: Axes, topology: str, comparisons: list[Comparison]) -> None:
    """Gain of Swing over the best of the others, as the paper defines it."""
    theirs = published()["topologies"][topology]["swing_gain_pct"]
    sizes = sorted({c.size_bytes for c in comparisons})
    axes.axhline(0, color="black", linewidth=0.6)
    axes.plot(sizes, [gain(comparisons, size) for size in sizes], color=COLORS["Swing"], linewidth=1.4)
    axes.plot(sizes[: len(theirs)], theirs, "o", color=COLORS["Swing"], markersize=4, markerfacecolor="white")
    axes.set_ylabel("Swing gain (%)")


def gain(comparisons: list[Comparison], size_bytes: int) -> float:
    """Per cent by which simulated Swing beats the best other algorithm; negative where another one is faster."""
    here = [c for c in comparisons if c.size_bytes == size_bytes and c.algorithm in BASELINES]
    times = {c.algorithm: c.simulated_us for c in here}
    swing = times.pop("Swing")
    best = min(times.values())
    return 100 * (best / swing - 1 if swing <= best else -(swing / best - 1))
