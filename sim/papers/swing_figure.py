"""The Swing figures: goodput by size, runtimes of small arrays, and the gain; lines simulated, markers published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.papers.swing_points import ALGORITHMS, BASELINES, Comparison, published, short
from sim.plots.style import CYCLE, REFERENCE, WIDE, figure, heading, legend, line_of, log_axis, sizes_axis

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
