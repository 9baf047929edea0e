"""Timelines: of an iteration, rows of computation and communication, or of passes; of a schedule, what links do.

A fabric as a picture: links colored by their dimension, or by how busy they were.

Fabrics of up to 300 nodes are drawn link by link; larger grids of two dimensions as one image for each direction, one
pixel per link; other large fabrics as the links of each dimension in order of their busy share.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sim.plots.layout import Floats, Layout, layout
from sim.plots.lines import HEAT_STOPS
from sim.plots.style import CYCLE, NARROW, WIDE, figure, heading, legend, time_label, time_unit
from sim.program import I32
from sim.result import Result
from sim.timeline.timeline import Services, link_load, services
from sim.why.spans import Span
from topologies import NPU, Topology, WeftError
from topologies.units import PS_PER_S, format_rate, format_size
from workloads.job import Compute
from workloads.passes.iteration import Iteration

MOST_NODES_DRAWN = 300
HEAT = LinearSegmentedColormap.from_list("heat", HEAT_STOPS)

_BUSY = Normalize(0, 1)


def draw_heatmap(topology: Topology, utilization: Floats, path: Path, title: str = "", *, width: str = WIDE) -> None:
    """Draw the busy share of every link.

    `utilization` (n_links,): 0 to 1.
    `width`: {"narrow", "wide"}; at most; a drawing as high as wide is narrow.
    """
    if topology.n_nodes <= MOST_NODES_DRAWN:
        placed = layout(topology)
        with fabric_figure(path, placed, width) as (drawn, axes):
            draw_fabric(axes, topology, placed, HEAT(_BUSY(utilization)), order=np.argsort(utilization, kind="stable"))
            _finish(drawn, [axes], title)
        return
    if len(topology.shape) == 2 and topology.n_nodes == topology.n_npus:
        with figure(path, width, height_in=2.1 if topology.shape[0] < 2 * topology.shape[1] else 2.6) as drawn:
            _finish(drawn, _draw_images(drawn, topology, utilization), title)
        return
    with figure(path, NARROW) as drawn:
        _draw_ranked(drawn.add_subplot(), topology, utilization)
        heading(drawn, title)
        legend(drawn)


@contextmanager
def fabric_figure(path: Path, placed: Layout, most: str = WIDE) -> Iterator[tuple[Figure, Axes]]:
    """A figure with the proportions of a layout, at most `width` wide, and its axes."""
    wide, tall = (side + 1.0 for side in placed.extent())
    width, inches = (WIDE, 6.2) if wide > 1.7 * tall and most == WIDE else (NARROW, 2.9)
    with figure(path, width, height_in=float(np.clip(inches * tall / wide, 1.2, 6.0)) + 0.35) as drawn:
        axes = drawn.add_subplot()
        axes.set_aspect("equal")
        axes.axis("off")
        yield drawn, axes


def check_drawable(topology: Topology) -> None:
    """Reject fabrics whose nodes could not be distinguished."""
    if topology.n_nodes > MOST_NODES_DRAWN:
        raise WeftError(
            f"{topology.name} has {topology.n_nodes:,} nodes: at most {MOST_NODES_DRAWN} can be distinguished in a "
            "picture; draw a smaller one of the family"
        )


def draw_fabric(
    axes: Axes, topology: Topology, placed: Layout, colors: Floats, order: npt.NDArray[np.integer] | None = None
) -> None:
    """Draw nodes and links.

    `colors` (n_links, 4).
    `order` (n_links,): links from the bottom to the top.
    """
    order = np.arange(topology.n_links) if order is None else order
    inches = axes.get_window_extent().width / axes.get_figure(root=True).dpi  # type: ignore[union-attr]  # it has one
    points_per_unit = 72 * inches / (placed.extent()[0] + 1)
    axes.add_collection(
        LineCollection(
            [placed.links[link] for link in order], colors=colors[order], capstyle="round", joinstyle="round",
            linewidths=float(np.clip(0.07 * points_per_unit, 0.35, 1.8)),
        )
    )
    side = float(np.clip(0.17 * points_per_unit, 1.0, 7.0))
    npus = placed.nodes[topology.kind == NPU]
    switches = placed.nodes[(topology.kind != NPU) & ~np.isnan(placed.nodes[:, 0])]
    axes.scatter(npus[:, 0], npus[:, 1], s=side**2, color="#2b2b2b", zorder=3, linewidths=0)
    area = (1.5 * side) ** 2
    axes.scatter(switches[:, 0], switches[:, 1], s=area, color="#E69F00", marker="s", zorder=3, linewidths=0)
    low, high = placed.corners()
    axes.set_xlim(low[0] - 0.3, high[0] + 0.3)
    axes.set_ylim(low[1] - 0.3, high[1] + 0.3)


def _finish(drawn: Figure, axes: Sequence[Axes], title: str) -> None:
    bar = drawn.colorbar(ScalarMappable(_BUSY, HEAT), ax=list(axes), shrink=0.8, aspect=26, pad=0.02)
    bar.set_label("busy share of the time")
    bar.outline.set_visible(False)
    heading(drawn, title)


def _draw_images(drawn: Figure, topology: Topology, utilization: Floats) -> list[Axes]:
    """One image for each direction of each dimension: the pixel of a node is its link in that direction."""
    columns, rows = topology.shape
    axes: list[Axes] = list(np.ravel(drawn.subplots(*((1, 4) if columns < 2 * rows else (2, 2)))))
    steps = (topology.coords[topology.dst] - topology.coords[topology.src]).astype(np.int64)
    for one, (dim, sign) in zip(axes, ((0, 1), (0, -1), (1, 1), (1, -1)), strict=True):
        that_way = (topology.dimension == dim) & (np.mod(sign * steps[:, dim], topology.shape[dim]) == 1)
        image = np.full((rows, columns), np.nan)
        at = topology.coords[topology.src[that_way]]
        image[at[:, 1], at[:, 0]] = utilization[that_way]
        one.imshow(image, origin="lower", cmap=HEAT, norm=_BUSY, interpolation="nearest")
        one.set_title(f"dimension {dim}, {'+' if sign > 0 else '-'}", fontsize=7)
        one.set_xticks([])
        one.set_yticks([])
        one.grid(visible=False)
    return axes


def _draw_ranked(axes: Axes, topology: Topology, utilization: Floats) -> None:
    """Busy share of the links of each dimension, the busiest first."""
    for dimension in np.unique(topology.dimension):
        shares = np.sort(utilization[topology.dimension == dimension])[::-1]
        line = CYCLE[int(dimension) % len(CYCLE)]
        label = f"dimension {dimension}" if dimension >= 0 else "links"
        place = (np.arange(shares.size) + 0.5) / shares.size
        axes.plot(place, shares, color=line.color, linestyle=line.dashes, label=label)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of the links, the busiest first")
    axes.set_ylabel("busy share of the time")


def draw_topology(topology: Topology, path: Path) -> None:
    """Draw a fabric.

    WeftError: more nodes than can be distinguished.
    """
    check_drawable(topology)
    dimensions = np.unique(topology.dimension)
    colors = np.array([to_rgba(CYCLE[dim % len(CYCLE)].color) for dim in topology.dimension.tolist()]).reshape(-1, 4)
    placed = layout(topology)
    with fabric_figure(path, placed) as (drawn, axes):
        draw_fabric(axes, topology, placed, colors)
        heading(drawn, topology.name)
        handles = [Line2D([], [], color=CYCLE[dim % len(CYCLE)].color, linewidth=2, label=_label(topology, dim))
                   for dim in dimensions.tolist()]
        if handles:
            legend(drawn, handles)


def _label(topology: Topology, dimension: int) -> str:
    here = topology.dimension == dimension
    rates = np.unique(topology.bandwidth_Bps[here])
    rate = format_rate(rates[0]) if rates.size == 1 else f"{format_rate(rates[0])} to {format_rate(rates[-1])}"
    ends = topology.kind[topology.src[here]] + topology.kind[topology.dst[here]]
    what = "dimension" if np.all(ends == NPU) else "through switches: dimension"
    return f"{what} {dimension}, {rate}" if dimension >= 0 else f"links, {rate}"


MAX_NPUS = 8
"""Limit of NPUs drawn, spread over those that were simulated."""


def draw_timeline(result: Result, path: Path) -> None:
    """Draw the operations of the simulated NPUs as bars over time."""
    rows = timeline_rows(result)
    with figure(path, WIDE, height_in=0.9 + 0.22 * max(len(rows), 1)) as drawn:
        _draw(drawn, result, rows)


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


def _draw(drawn: Figure, result: Result, rows: dict[tuple[int, str], list[Span]]) -> None:
    axes = drawn.add_subplot()
    scale, unit = time_unit(result.time_s)
    kinds = list(dict.fromkeys(operation.kind for operation in result.job.operations))
    several = len(result.ranks) > 1
    for height, spans in enumerate(rows.values()):
        for kind in dict.fromkeys(result.job.operations[span.operation].kind for span in spans):
            bars = [
                (span.start_ps / PS_PER_S / scale, (span.end_ps - span.start_ps) / PS_PER_S / scale)
                for span in spans if result.job.operations[span.operation].kind == kind
            ]
            color = CYCLE[kinds.index(kind) % len(CYCLE)].color
            axes.broken_barh(bars, (height - 0.4, 0.8), facecolor=color, edgecolor="white", linewidth=0.2, label=kind)
    axes.set_yticks(range(len(rows)), [f"NPU {rank}: {name}" if several else name for rank, name in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, max(result.time_s / scale, 1e-12))
    axes.set_xlabel(f"time ({unit})")
    axes.grid(visible=False, axis="y")
    legend(drawn)


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
