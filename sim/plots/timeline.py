"""Timelines: of an iteration, rows of computation and communication, or of passes; of a schedule, what links do."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sim.plots.fabric import HEAT
from sim.plots.style import CYCLE, WIDE, figure, heading, legend, time_label, time_unit
from sim.program import I32
from sim.result import Result
from sim.timeline.timeline import Services, link_load, services
from sim.why.spans import Span
from topologies import WeftError
from topologies.units import PS_PER_S, format_size
from workloads.job import Compute
from workloads.passes.iteration import Iteration

MAX_NPUS = 8
"""Limit of NPUs drawn, spread over those that were simulated."""


def draw_timeline(result: Result, path: Path) -> None:
    """Draw the operations of the simulated NPUs as bars over time."""
    rows = timeline_rows(result)
    scale, unit = time_unit(result.time_s)
    kinds = list(dict.fromkeys(operation.kind for operation in result.job.operations))
    several = len(result.ranks) > 1
    with figure(path, WIDE, height_in=0.9 + 0.22 * max(len(rows), 1)) as drawn:
        axes = drawn.add_subplot()
        for height, spans in enumerate(rows.values()):
            for kind in dict.fromkeys(result.job.operations[span.operation].kind for span in spans):
                bars = [
                    (span.start_ps / PS_PER_S / scale, (span.end_ps - span.start_ps) / PS_PER_S / scale)
                    for span in spans if result.job.operations[span.operation].kind == kind
                ]
                color = CYCLE[kinds.index(kind) % len(CYCLE)].color
                axes.broken_barh(bars, (height - 0.4, 0.8), facecolor=color, edgecolor="white", linewidth=0.2,
                                 label=kind)
        axes.set_yticks(range(len(rows)), [f"NPU {rank}: {name}" if several else name for rank, name in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, max(result.time_s / scale, 1e-12))
        axes.set_xlabel(f"time ({unit})")
        axes.grid(visible=False, axis="y")
        legend(drawn)


def timeline_rows(result: Result) -> dict[tuple[int, str], list[Span]]:
    """Spans by (NPU, row): streams of computation first, then kinds of communication in the order they begin."""
    ranks = result.ranks
    shown = ranks if len(ranks) <= MAX_NPUS else [ranks[at * len(ranks) // MAX_NPUS] for at in range(MAX_NPUS)]
    streams: dict[tuple[int, str], list[Span]] = {}
    others: dict[tuple[int, str], list[Span]] = {}
    for span in result.spans():
        operation = result.job.operations[span.operation]
        if span.rank in shown and span.end_ps > span.start_ps:
            rows = streams if isinstance(operation.work, Compute) else others
            name = operation.work.stream if isinstance(operation.work, Compute) else operation.kind
            rows.setdefault((span.rank, name), []).append(span)
    ordered = [key for rank in shown for rows in (streams, others) for key in rows if key[0] == rank]
    return {key: (streams | others)[key] for key in ordered}


MOST_BARS = 20_000
MOST_LINKS = 48
FRAMES = 400


def draw_link_timeline(result: Result, path: Path, *, width: str = WIDE) -> None:
    """Draw a run, link by link; runs the schedule once more with a log.

    WeftError: a run that takes no time, or a log that does not fit in memory.
    """
    if not result.time_ps:
        where = f"{result.schedule.name} on {result.schedule.topology.name}"
        raise WeftError(f"{where} takes no time: there is no timeline")
    done, server_link = services(result.lowered.program, result.logged), result.lowered.server_link
    n_servers = server_link.size
    few = n_servers <= MOST_LINKS and done.task.size <= MOST_BARS
    with figure(path, width, height_in=0.95 + 0.13 * max(n_servers, 5) if few else 3.4) as drawn:
        axes = drawn.add_subplot()
        if few:
            _draw_bars(axes, drawn, result, done, server_link)
        else:
            _draw_image(axes, drawn, result)
        scale, unit = time_unit(result.time_ps / PS_PER_S)
        axes.set_xlim(0, result.time_ps / PS_PER_S / scale)
        axes.set_xlabel(f"time ({unit})")
        axes.grid(visible=False)
        size = format_size(result.schedule.size_bytes)
        head = f"{result.schedule.name}, {size} on {result.schedule.topology.name}: {time_label(result.time_s)}"
        heading(drawn, head)


def _draw_bars(axes: Axes, drawn: Figure, result: Result, done: Services, server_link: I32) -> None:
    """A row for each simulated link, a bar for each service, colored by its step."""
    topology = result.schedule.topology
    scale, _ = time_unit(result.time_ps / PS_PER_S)
    on_links = server_link[done.server] >= 0  # a task that begins late waits at a server that is not a link
    done = Services(*(column[on_links] for column in done))
    used = np.unique(done.server)
    steps = result.lowered.task_step[done.task]
    names = np.unique(steps)
    row = np.searchsorted(used, done.server)
    left, right = (times / PS_PER_S / scale for times in (done.start_ps, done.end_ps))
    corners = np.stack([
        np.stack([left, row - 0.4], axis=1), np.stack([left, row + 0.4], axis=1),
        np.stack([right, row + 0.4], axis=1), np.stack([right, row - 0.4], axis=1),
    ], axis=1)
    colors = np.array([CYCLE[at % len(CYCLE)].color for at in range(names.size)])
    axes.add_collection(PolyCollection(list(corners), facecolors=colors[np.searchsorted(names, steps)].tolist(),
                                       linewidths=0))
    axes.set_ylim(used.size - 0.4, -0.6)
    links = server_link[used].tolist()
    axes.set_yticks(range(used.size), [topology.link_name(link) for link in links], fontsize=5.5)
    shown = names[: len(CYCLE)]
    patches = [Patch(color=colors[at], label=f"step {name}") for at, name in enumerate(shown)]
    legend(drawn, patches, title=None if names.size <= len(CYCLE) else f"{names.size} steps; colors repeat")


def _draw_image(axes: Axes, drawn: Figure, result: Result) -> None:
    """A line of pixels for each link of the fabric, ordered by dimension."""
    topology = result.schedule.topology
    load = link_load(result.lowered, result.logged, FRAMES)
    order = np.lexsort((np.arange(topology.n_links), topology.dimension))
    scale, _ = time_unit(result.time_ps / PS_PER_S)
    axes.imshow(load[:, order].T, aspect="auto", cmap=HEAT, vmin=0, vmax=1, interpolation="nearest",
                extent=(0, result.time_ps / PS_PER_S / scale, topology.n_links, 0))
    ordered = topology.dimension[order]
    edges = np.flatnonzero(np.diff(ordered)) + 1
    for edge in edges:
        axes.axhline(float(edge), color="white", linewidth=0.8)
    starts = np.concatenate(([0], edges))
    ends = np.concatenate((edges, [topology.n_links]))
    labels = [f"dimension {ordered[start]}" if ordered[start] >= 0 else "links" for start in starts]
    axes.set_yticks((starts + ends) / 2, labels, fontsize=6)
    bar = drawn.colorbar(ScalarMappable(Normalize(0, 1), HEAT), ax=axes, aspect=30, pad=0.01)
    bar.set_label("busy share")
    bar.outline.set_visible(False)


KINDS = {"F": "forward", "BW": "backward", "B": "input gradient", "W": "weight gradient", "pair": "both at once"}


def draw_passes(found: Iteration, path: Path, width: str = WIDE) -> None:
    """A bar for every pass, a row for every rank; the paler ones are of later chunks."""
    colors = dict(zip(KINDS, (line.color for line in CYCLE), strict=False))
    ranks, most = found.pipeline.ranks, max(found.plan.vp, 1)
    with figure(path, width, 0.7 + 0.22 * len(ranks)) as drawn:
        axes = drawn.add_subplot()
        seen = dict[str, None]()
        for rank, mine in enumerate(ranks):
            for one in mine:
                kind = one.slot[0].kind if len(one.slot) == 1 else "pair"
                seen[kind] = None
                axes.broken_barh(
                    [(one.begin / 1e12, (one.end - one.begin) / 1e12)], (rank - 0.4, 0.8), facecolors=colors[kind],
                    alpha=1 - 0.6 * one.slot[0].chunk / most, edgecolor="white", linewidth=0.2,
                )
        axes.set_xlim(0, found.time_s)
        axes.axvspan(found.pipeline.end / 1e12, found.time_s, color="#DDDDDD", zorder=0)
        axes.invert_yaxis()
        axes.set_xlabel("time, s")
        axes.set_ylabel("rank of the pipeline")
        axes.set_yticks(range(len(ranks)))
        axes.legend(handles=[Patch(color=colors[kind], label=KINDS[kind]) for kind in KINDS if kind in seen],
                    loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / (1 + 0.6 * len(ranks))), ncols=4)
