"""`python -m benchmarks.chunks`: times against numbers of chunks, and what is chosen: docs/background/chunks.md.

Pipelining alone makes a time fall as chunks get finer: a transfer that follows another starts after one chunk instead
of all. What it does not explain is a *rise* of the time from one number of chunks to a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from collectives import ALGORITHMS, algorithms_for, build
from sim import Result, simulate
from sim.plots.style import CYCLE, WIDE, figure, legend, time_label
from sim.study.points import Task, compute
from sim.study.spec import Spec
from sim.study.tables import aligned
from sim.whole_file import write_text_whole
from topologies import Topology, WeftError, from_spec

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "background" / "chunks.md"
PICTURE = DOCS / "images" / "swing-ports.png"

FABRICS = ("torus:8x8", "torus:8x4", "torus:16x8x4", "mesh:4x4", "RI(4)_FC(4)_SW(4)", "switch:16", "fat-tree:4",
           "mi250:1")
CHOSEN = ("torus:8x8", "torus:8x4", "switch:16")
"""Fabrics of the table of choices."""

KINDS = ("all-reduce", "all-gather", "all-to-all", "broadcast")
COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128)
SIZE = 2**24
SIZES = (2**16, 2**21, 2**26)
SERVICES = 500_000
"""Schedules with more services at the finest cut are left out."""

RISE = 1.2
"""Rises from here on are listed."""

CASE = ("torus:16x8x4", "all-reduce", "swing", "bandwidth")
"""Shown with ports that go on alone, and in one line with the default."""


class Case(NamedTuple):
    """A schedule of the registry, with its times at `COUNTS` in us."""

    fabric: str
    kind: str
    name: str
    form: str
    times_us: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return max(self.times_us) / min(self.times_us)

    @property
    def rise(self) -> float:
        """Largest factor by which a finer cut is slower."""
        return max(later / min(self.times_us[:at]) for at, later in enumerate(self.times_us) if at)


def schedules() -> Iterator[tuple[Topology, str, str, str]]:
    for spec in FABRICS:
        fabric = from_spec(spec)
        for kind in KINDS:
            for name in algorithms_for(kind):
                for form in ALGORITHMS[name].forms_of(kind) or ("",):
                    yield fabric, kind, name, form


def times(fabric: Topology, kind: str, name: str, form: str, progress: str = "auto") -> Case | None:
    """None if it cannot run, or is dear."""
    try:
        schedule = build(name, kind, fabric, SIZE, form or None)
    except WeftError:
        return None
    first = simulate(schedule, chunks=1)
    if first.events * COUNTS[-1] > SERVICES:
        return None
    found = tuple(simulate(schedule, chunks=count, rank_progress=progress).time_s * 1e6 for count in COUNTS)
    return Case(fabric.name, kind, name, form, found)


def rises(cases: Sequence[Case]) -> list[str]:
    """The table of schedules that get slower as chunks get finer."""
    worst = sorted((case for case in cases if case.rise >= RISE), key=lambda case: -case.rise)
    lines = ["| fabric | collective | algorithm | largest rise | largest / smallest | at 16 / smallest |",
             "|---|---|---|--:|--:|--:|"]
    for case in worst:
        at_16 = case.times_us[COUNTS.index(16)] / min(case.times_us)
        label = f"{case.name} ({case.form})" if case.form else case.name
        lines.append(f"| {case.fabric} | {case.kind} | {label} | {case.rise:.2f} | {case.ratio:.2f} | {at_16:.2f} |")
    explained = sum(case.ratio >= RISE > case.rise for case in cases)
    return [*lines, "", f"{len(cases)} schedules; {len(worst)} rise by {RISE - 1:.0%} or more; {explained} more differ"
            f" by that much over 1 to {COUNTS[-1]} chunks, and fall, or rise by less."]


class Choice(NamedTuple):
    """A point with 16 chunks, fifo and one tree, and as chosen."""

    fabric: str
    kind: str
    name: str
    size_bytes: int
    fixed_s: float
    chosen_s: float
    what: str

    @property
    def gain(self) -> float:
        return self.fixed_s / self.chosen_s


def choices() -> Iterator[Choice]:
    for spec in CHOSEN:
        for kind in KINDS:
            for name in algorithms_for(kind):
                for size in SIZES:
                    found = _choice(spec, kind, name, size)
                    if found is None:
                        break
                    yield found


def _choice(fabric: str, kind: str, name: str, size: int) -> Choice | None:
    rows = []
    for chunks in (16, "auto"):
        spec = Spec.from_dict({"topology": {"spec": fabric}, "collective": {"name": kind, "algorithms": [name]},
                               "model": {"chunks": chunks}, "sweep": {"begin": size}})
        try:
            rows.append(compute(Task(spec, name, size)))
        except WeftError:
            return None
    chosen = rows[1]
    what = f"{chosen['chunks']}" + ("" if chosen["discipline"] == "fifo" else f", {chosen['discipline']}")
    what += "" if chosen["trees"] is None else f", {chosen['trees']} trees"
    return Choice(fabric, kind, name, size, rows[0]["time_s"], chosen["time_s"], what)


def chosen(points: Sequence[Choice]) -> list[str]:
    """The table of what `--chunks auto` gains, by algorithm."""
    lines = ["| algorithm | points | slower | faster by 1 % or more | mean gain | largest gain | where, chunks |",
             "|---|--:|--:|--:|--:|--:|---|"]
    for name in dict.fromkeys(point.name for point in points):
        mine = [point for point in points if point.name == name]
        best = max(mine, key=lambda point: point.gain)
        where = f"{best.kind}, {best.fabric}, {best.size_bytes:,} B: {best.what}" if best.gain > 1.005 else ""
        lines.append(
            f"| {name} | {len(mine)} | {sum(point.gain < 1 for point in mine)} | "
            f"{sum(point.gain > 1.01 for point in mine)} | {geometric_mean([point.gain for point in mine]):.3f} | "
            f"{best.gain:.2f} | {where} |"
        )
    least = min(point.gain for point in points)
    return [*lines, "", f"{len(points)} points; the least gain is {least:.4f}."]


def draw() -> dict[int, Result]:
    """Steps of each port of one rank over time, with coarse chunks that collide and finer ones that do not."""
    spec, kind, name, form = CASE
    schedule = build(name, kind, from_spec(spec), SIZE, form)
    results = {chunks: simulate(schedule, chunks=chunks, rank_progress="free") for chunks in (16, 32)}
    names = from_spec(spec).shape
    with figure(PICTURE, WIDE, 4.2) as drawn:
        axes = drawn.subplots(2, 1, sharex=True)
        for one, (chunks, result) in zip(axes, results.items(), strict=True):
            _ports(one, result)
            one.set_title(f"{chunks} chunks per transfer: {time_label(result.time_s)}", fontsize=8)
        axes[-1].set_xlabel("time (µs)")
        for number, extent in enumerate(names):
            axes[1].barh(0, 0, color=CYCLE[number].color, label=f"dimension {number}: {extent} ranks")
        legend(drawn)
    return results


def _ports(axes: Axes, result: Result) -> None:
    lowered, outcome = result.lowered, result.outcome
    transfers = lowered.transfers[0]
    assert outcome is not None and transfers is not None
    program = lowered.program
    first_hop = program.route_hop[program.route_ptr[program.task_route]]
    dimension = lowered.topology.dimension[lowered.server_link[program.hop_server[first_hop]]]
    port, step = transfers.port[lowered.task_row], transfers.step[lowered.task_row]
    for key in np.unique(np.stack([port, step], 1), axis=0):
        rows = np.flatnonzero((port == key[0]) & (step == key[1]))
        start, end = outcome.start_ps[rows].min() / 1e6, outcome.finish_ps[rows].max() / 1e6
        axes.barh(key[0], end - start, left=start, height=0.7, color=CYCLE[int(dimension[rows[0]])].color,
                  edgecolor="white", linewidth=0.6)
    axes.set_yticks(range(int(port.max()) + 1))
    axes.set_ylabel("port")
    axes.invert_yaxis()


def main() -> None:
    draw()
    cases = [case for one in schedules() if (case := times(*one)) is not None]
    alone, default = times(from_spec(CASE[0]), *CASE[1:], "free"), next(case for case in cases if case[:4] == CASE)
    assert alone is not None
    counts = aligned([["chunks", *map(str, COUNTS)], *(
        [f"us, {rule}", *(f"{time:.1f}" for time in case.times_us)]
        for rule, case in (("free", alone), ("default", default))
    )])
    tables = {"swing": "```text\n" + counts + "\n```", "rises": "\n".join(rises(cases)),
              "chosen": "\n".join(chosen(list(choices())))}
    write_text_whole(PAGE, filled(PAGE.read_text(encoding="utf-8"), tables))


def filled(text: str, tables: Mapping[str, str]) -> str:
    """A page with other tables between its comments `<!-- name -->` and `<!-- end name -->`."""
    for name, table in tables.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        end = f"<!-- end {name} -->"
        text = before + begin + table + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    main()
