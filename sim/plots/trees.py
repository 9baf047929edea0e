"""A schedule on its fabric: the route of a block as a tree, or the links that each step fills."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from collectives import Schedule, Transfers
from collectives.core.routes import paths_of
from sim.plots.fabric import HEAT, check_drawable, draw_fabric
from sim.plots.layout import Layout, layout
from sim.plots.style import NARROW, WIDE, figure, heading, legend
from topologies import Paths, WeftError
from topologies.grouped import grouped
from topologies.units import format_size

Ints = npt.NDArray[np.int64]

MOST_PANELS = 6
IDLE = to_rgba("#e4e8ee")
SPREADS = LinearSegmentedColormap.from_list("spreads", ["#08306b", "#2f7fc1", "#8cc4ea"])
ADDS = LinearSegmentedColormap.from_list("adds", ["#f0b27a", "#d55e00", "#7a2e00"])
"""From the first step to the last; light and dark differ in gray print too."""


class Way(NamedTuple):
    """How blocks travel."""

    blocks: list[int]  # the blocks that take this route
    link: Ints  # (n,): links that they cross
    step: Ints  # (n,): in ascending order
    adds: npt.NDArray[np.bool_]  # (n,): whether the receiver adds
    root: int  # the node where the broadcast begins or the sum ends


def draw_trees(schedule: Schedule, path: Path, rank: int = 0, width: str = WIDE) -> None:
    """Draw the routes of the blocks of one rank, one panel for each distinct one.

    `rank`: whose blocks: those it owns or, where all own all, the first.
    WeftError: more nodes than can be distinguished, or blocks without names.
    """
    check_drawable(schedule.topology)
    ways = ways_of(schedule, rank)
    placed, shown = layout(schedule.topology), ways[:MOST_PANELS]
    with _panels(path, placed, len(shown), width) as (drawn, axes):
        for one, way in zip(axes, shown, strict=True):
            _draw_way(one, schedule, placed, way)
            share = f"block {way.blocks[0]}" if len(way.blocks) == 1 else f"{len(way.blocks)} blocks"
            one.set_title(f"{share}, root {schedule.topology.node_name(way.root)}", fontsize=6.5, loc="center")
        several = "" if len(ways) == 1 else f", {len(shown)} of {len(ways)} trees"
        _finish(drawn, schedule, several, _tree_legend(shown))


def draw_steps(schedule: Schedule, path: Path, width: str = WIDE) -> None:
    """Draw what each step sends over every link, one panel per step; parameters and errors as for `draw_trees`."""
    check_drawable(schedule.topology)
    loads = step_loads(schedule)
    shown = loads if len(loads) <= MOST_PANELS else loads[: MOST_PANELS // 2] + loads[-(MOST_PANELS // 2) :]
    most = max((int(load.max(initial=0)) for _, load in loads), default=0)
    placed = layout(schedule.topology)
    with _panels(path, placed, len(shown), width) as (drawn, axes):
        for one, (step, load) in zip(axes, shown, strict=True):
            colors = np.where((load > 0)[:, None], HEAT(0.25 + 0.75 * load / max(most, 1)), IDLE)
            draw_fabric(one, schedule.topology, placed, colors, order=np.argsort(load, kind="stable"))
            one.set_title(f"step {step}: up to {format_size(int(load.max(initial=0)))}", fontsize=6.5, loc="center")
        several = ", per link" if len(shown) == len(loads) else f", per link, first and last of {len(loads)} steps"
        _finish(drawn, schedule, several, [])


def ways_of(schedule: Schedule, rank: int = 0) -> list[Way]:
    """The distinct routes of the blocks of one rank, in the order of the blocks."""
    pattern, topology = schedule.pattern, schedule.topology
    if pattern.is_unnamed:
        raise WeftError(f"{schedule.name} on {topology.name}: its blocks have no names to follow; draw its steps")
    wanted = blocks_of_rank(schedule, rank)
    transfers = pattern.emit(np.arange(pattern.n_sources or pattern.p))
    paths = paths_of(transfers, topology)
    rows: dict[int, list[int]] = {block: [] for block in wanted}
    for row, (src, slot) in enumerate(zip(transfers.src.tolist(), transfers.slot.tolist(), strict=True)):
        for block in pattern.blocks_of(src, slot):
            if block in rows:
                rows[block].append(row)
    alike = grouped((tuple(its), block) for block, its in rows.items())
    step = transfers.step.tolist()
    return [_way(transfers, paths, sorted(its, key=step.__getitem__), blocks) for its, blocks in alike.items()]


def _way(transfers: Transfers, paths: Paths, rows: Sequence[int], blocks: list[int]) -> Way:
    """The route along some transfers, in the order of their steps."""
    hops = [paths.links[paths.ptr[row] : paths.ptr[row + 1]] for row in rows]
    row_of = np.repeat(np.array(rows, np.int64), [len(one) for one in hops])
    link = np.concatenate([np.zeros(0, np.int64), *hops]).astype(np.int64)
    spreading = [row for row in rows if not transfers.reduces[row]]
    root = int(transfers.src[spreading[0]]) if spreading else int(transfers.dst[rows[-1]]) if rows else 0
    return Way(blocks, link, transfers.step[row_of].astype(np.int64), transfers.reduces[row_of], root)


def blocks_of_rank(schedule: Schedule, rank: int) -> list[int]:
    """Blocks that start or end at one rank only; all blocks if every rank contributes to every block."""
    kind, p, root = schedule.kind, schedule.pattern.p, schedule.pattern.root
    blocks = range(schedule.pattern.n_blocks)
    owned = []
    for ends in (kind.sources, kind.wanted_by):
        if len(ends(0, p, root)) == 1 and p > 1 and not kind.rooted:
            owned = [block for block in blocks if rank in ends(block, p, root)]
            break
    return owned or list(blocks)


def step_loads(schedule: Schedule) -> list[tuple[int, Ints]]:
    """Each step, and the bytes that it sends over every link, (n_links,)."""
    pattern, topology = schedule.pattern, schedule.topology
    transfers = pattern.emit(np.arange(pattern.n_sources or pattern.p))
    paths = paths_of(transfers, topology)
    row = np.repeat(paths.pair, np.diff(paths.ptr))
    loads = []
    for step in np.unique(transfers.step).tolist():
        here = transfers.step[row] == step
        load = np.bincount(paths.links[here], transfers.blocks[row[here]], topology.n_links)
        loads.append((step, np.rint(load * schedule.block_bytes).astype(np.int64)))
    return loads


def _draw_way(axes: Axes, schedule: Schedule, placed: Layout, way: Way) -> None:
    topology = schedule.topology
    colors = np.tile(IDLE, (topology.n_links, 1))
    for adds, palette in ((True, ADDS), (False, SPREADS)):
        mine = way.adds == adds
        if mine.any():
            first, last = int(way.step[mine].min()), int(way.step[mine].max())
            colors[way.link[mine]] = palette((way.step[mine] - first) / max(last - first, 1))
    used = np.zeros(topology.n_links, np.int64)
    used[way.link] = 1
    draw_fabric(axes, topology, placed, colors, order=np.argsort(used, kind="stable"))
    place = placed.nodes[way.root]
    axes.scatter([place[0]], [place[1]], s=60, facecolor="none", edgecolor="#c8102e", linewidths=1.2, zorder=4)


@contextmanager
def _panels(path: Path, placed: Layout, count: int, width: str) -> Iterator[tuple[Figure, list[Axes]]]:
    """Axes for drawings of one fabric, side by side in rows that fit the width; a single one is narrow."""
    width = width if count > 1 else NARROW
    wide, tall = (side + 1.0 for side in placed.extent())
    most = (3 if width == WIDE else 2) if wide < 2.5 * tall else (2 if width == WIDE else 1)
    columns = 4 if count == 4 and most == 3 else min(most, max(count, 1))
    rows = -(-count // columns)
    inches = min((6.8 if width == WIDE else 3.2) / columns, 3.0)
    height = float(np.clip(inches * tall / wide, 0.7, 3.2)) + 0.22
    with figure(path, width, height_in=rows * height + 0.55) as drawn:
        axes = np.ravel(drawn.subplots(rows, columns, squeeze=False)).tolist()
        for one in axes:
            one.set_aspect("equal")
            one.axis("off")
        yield drawn, axes[:count]


def _tree_legend(ways: Sequence[Way]) -> list[Line2D]:
    lines = []
    for adds, palette, what in ((True, ADDS, "adds up"), (False, SPREADS, "spreads")):
        if any((way.adds == adds).any() for way in ways):
            lines += [Line2D([], [], color=palette(end), linewidth=2, label=f"{what}, {when} step")
                      for end, when in ((0.0, "first"), (1.0, "last"))]
    ring = Line2D([], [], linestyle="none", marker="o", markersize=6, markerfacecolor="none", markeredgecolor="#c8102e",
                  label="root")
    return [*lines, ring]


def _finish(drawn: Figure, schedule: Schedule, several: str, handles: list[Line2D]) -> None:
    head = f"{schedule.name} {schedule.kind.name} on {schedule.topology.name}{several}"
    heading(drawn, head)
    if handles:
        legend(drawn, handles)
