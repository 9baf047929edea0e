"""`weft compare`: algorithms side by side, size by size."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from collectives.formats.names import called
from collectives.registry import ALGORITHMS
from sim import plots
from sim.cli.asked import spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_figure, write_json, write_text
from sim.cli.progress import progress
from sim.how import How
from sim.program.model_options import LEFT_OPEN
from sim.program.outcome import Deadlock, Stopped
from sim.study.deciding import cures, deciding_defaults
from sim.study.points import Cost, Task, topology_of
from sim.study.points import refusals as refusals_at
from sim.study.ranked import LONG_SERVICES, NEAR, close_together, compute_all, leaves_out
from sim.study.spec import Spec
from sim.study.tables import (
    AtLeast,
    Row,
    common_notes,
    comparison_table,
    legend,
    named,
    nccl_table,
    screen_width,
    time_text,
)
from sim.study.workload_keys import check_no_library, check_no_workload
from sim.study.workload_keys import named as named_workload
from topologies import TOPOLOGIES
from topologies.checks import WeftError
from topologies.core.links import DEFAULT_BANDWIDTH
from topologies.grouped import grouped
from topologies.lazy import later
from topologies.units import PS_PER_S, counted, format_size, format_time

Stuck = dict[str, dict[int, WeftError]]
"""Reports of deadlocks, and of chunks that do not fit the buffers, by algorithm and size."""


def run(arguments: argparse.Namespace) -> None:
    """Compare, print the tables, write the files."""
    if arguments.workers != 1:
        later("sim.study.processes:check_workers")(arguments.workers)
    spec = spec_of(arguments)
    if named_workload(spec.workload):
        from sim.cli import compare_workload  # loads what trains: only where it is asked for

        compare_workload.run(arguments, spec)
        return
    check_no_workload(spec.workload, spec.training)
    if spec.library.name is not None:
        from sim.cli import library  # what times libraries: only where one is asked for

        library.run(arguments, spec)
        return
    check_no_library(spec)
    if arguments.tuner:
        raise WeftError("--tuner writes what a library shall choose: add --library nccl, or omit it")
    every = shows_all(spec, arguments)
    cost = Cost(spec, arguments.max_events, None if every else 2)
    refused = refusals(spec, arguments, cost)
    cost.check()
    names = [name for name in spec.algorithms if name not in refused]
    if arguments.plot and arguments.figure == "speed-up":
        plots.check_baseline([called(name) for name in names], arguments.baseline)
    found = compute(spec, names, arguments, every, cost.workers(arguments.workers))
    rows, stuck, at_least = found.in_order(spec, names), found.stuck, found.at_least
    too_large, never = never_end(stuck, names, spec.sizes_bytes)
    refused |= too_large
    done = None if found.interrupt is not None else how(arguments)
    ended = f"interrupted: {len(rows)} of {counted(len(names) * len(spec.sizes_bytes), 'point')} are shown"
    partial = [f"# {ended}: what is fastest is the fastest of these"] if found.interrupt is not None else []
    say(arguments, *report(spec, rows, refused, never, at_least, done), *partial)
    if arguments.plot:
        write_figure(arguments, rows, [spec])
    part = {} if found.interrupt is None else {"interrupted": ended.partition(": ")[2]}
    write_json(arguments, spec, rows, model=spec.build_model(), refused=refused | never, **part)
    write_csv(arguments, rows)
    if arguments.nccl_json:
        from sim.measured.nccl_text import nccl_json  # what reads tables: only where one is asked for

        ranks, element = topology_of(spec).n_npus, spec.element_bytes
        write_text(arguments.nccl_json, nccl_json(rows, ranks, element, spec.collective.root or 0))
    if found.interrupt is not None:
        said = Stopped(ended)
        said.__context__ = found.interrupt  # which decides the exit code
        raise said


def refusals(spec: Spec, arguments: argparse.Namespace, cost: Cost | None = None) -> dict[str, str]:
    """Reasons why algorithms cannot run; `cost`: of those that can.

    WeftError: one that the user named cannot run, or none can.
    """
    with progress(f"{arguments.command}: schedules", len(spec.algorithms), arguments.quiet) as steps:
        named = bool(spec.collective.algorithms)
        refused = refusals_at(
            spec, spec.algorithms, max(spec.sizes_bytes), steps.begin, steps.advance, first=named, cost=cost,
        )
    if named and refused:
        raise WeftError(next(iter(refused.values())))
    if len(refused) == len(spec.algorithms):
        raise WeftError(f"no algorithm can run; {listed(refused)}")
    return refused


def listed(refused: Mapping[str, str]) -> str:
    """Each reason once, behind its algorithms, on one line."""
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons(refused))


def reasons(refused: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Each reason once, with the algorithms that it applies to."""
    return list(grouped((why, name) for name, why in refused.items()).items())


class Found(NamedTuple):
    """What became of the points of a comparison."""

    rows: dict[Task, dict[str, Any]]
    stuck: Stuck
    at_least: dict[tuple[int, str], int]
    interrupt: KeyboardInterrupt | None

    def in_order(self, spec: Spec, names: Sequence[str]) -> list[dict[str, Any]]:
        """The rows, algorithm by algorithm."""
        places = {name: at for at, name in enumerate(names)}
        return [self.rows[task] for task in sorted(self.rows, key=lambda one: (places[one.algorithm], one.size_bytes))]


def shows_all(spec: Spec, arguments: argparse.Namespace) -> bool:
    """Whether points are simulated that are slower than two others: asked for by name, by a file or by --all."""
    files = any(getattr(arguments, kind, None) for kind in ("json", "csv", "plot", "nccl_json"))
    asked = spec.collective.algorithms or arguments.all or files or spec.account.why or spec.account.spread
    return bool(asked) or not leaves_out(spec)


def compute(spec: Spec, names: Sequence[str], arguments: argparse.Namespace, every: bool, workers: int) -> Found:
    """One row per algorithm and size, the points that have none, and those that are not simulated unless `every` is.

    After Ctrl-C or SIGTERM, what was ready.
    """
    found = Found({}, {}, {}, None)
    asked = {"why": spec.account.why, "spread": spec.account.spread, **how(arguments).arguments()}
    tasks = [Task(spec, name, size, **asked) for name in names for size in spec.sizes_bytes]
    try:
        with progress("compare", len(tasks), arguments.quiet) as steps:

            def tell(task: Task, said: str) -> None:
                steps.advance(f"{task.algorithm} {format_size(task.size_bytes)}: {said}")

            def never(task: Task, wrong: WeftError) -> None:
                found.stuck.setdefault(task.algorithm, {})[task.size_bytes] = wrong
                tell(task, "can never end" if isinstance(wrong, Deadlock) else "cannot run")

            def ended(task: Task, row: Row) -> None:
                tell(task, time_text(row["time_s"]))

            def left(task: Task, floor_ps: int) -> None:
                found.at_least[task.size_bytes, called(task.algorithm)] = floor_ps
                tell(task, f"at least {format_time(floor_ps)}")

            compute_all(tasks, workers, ended, steps.within, never, None if every else left, found.rows)
    except WeftError as stopped:
        if not found.rows or not isinstance(stopped.__context__, KeyboardInterrupt):  # the limit of --max-events
            raise
        found = found._replace(interrupt=stopped.__context__)
    points = [(task.size_bytes, called(task.algorithm)) for task in tasks]  # in one order, whoever was first
    return found._replace(at_least={point: found.at_least[point] for point in points if point in found.at_least})


def never_end(stuck: Stuck, names: Sequence[str], sizes_bytes: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
    """Reasons why algorithms cannot run at some sizes, and why they can never end, by name.

    WeftError: nothing can end, no algorithm at any size.
    """
    too_large, never = ({
        name: _never(kept, sizes_bytes) for name in names
        if (kept := {size: why for size, why in stuck.get(name, {}).items() if isinstance(why, Deadlock) == is_never})
    } for is_never in (False, True))
    if stuck and sum(map(len, stuck.values())) == len(names) * len(sizes_bytes):
        if len(names) == 1:
            raise next(iter(stuck[names[0]].values()))
        said = f"{listed(too_large)}{'; ' if too_large and never else ''}{listed(never)}"
        raise WeftError(f"no algorithm can {'end' if never else 'run'}; {said}")
    return too_large, never


def _never(stuck: Mapping[int, WeftError], sizes_bytes: Sequence[int]) -> str:
    """The reason why an algorithm has no row, once for all sizes or size by size."""
    at = grouped((str(stuck[size]), format_size(size)) for size in sizes_bytes if size in stuck)
    if len(at) == 1 and len(stuck) == len(sizes_bytes):
        return next(iter(at))
    return "; ".join(f"at {', '.join(sizes)}: {why}" for why, sizes in at.items())


def missing(refused: Mapping[str, str], stuck: Mapping[str, str]) -> list[str]:
    """Lines under a table: algorithms that are missing, or missing at some sizes, and why."""
    lines = [f"# {', '.join(names)} cannot run: {why}" for why, names in reasons(refused)]
    return lines + [f"# {', '.join(names)} can never end: {why}" for why, names in reasons(stuck)]


def report(
    spec: Spec, rows: Sequence[Row], refused: Mapping[str, str], stuck: Mapping[str, str], at_least: AtLeast,
    more: How | None,
) -> list[str]:
    """Tables and notes, line by line; `more`: how other runs are done that they tell of, None for none."""
    topology = topology_of(spec)
    where = f"{topology.name}, {counted(topology.n_npus, 'NPU')}"
    lines = [f"# weft compare: {spec.kind.name} on {where}", *assumptions(spec, rows)]
    element, root = spec.element_bytes, spec.collective.root or 0
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        own = [row for row in rows if row["algorithm"] == name]
        chosen = [f"# chosen: {over_sizes(own, choice)}"] if spec.chooses else []
        table = nccl_table(own, topology.n_npus, element, root, width=screen_width())
        lines += ["#", f"# {name}{_forms(own)}", *chosen, table]
    lines += ["#", "# time by size and algorithm", comparison_table(rows, screen_width(), at_least)]
    lines += [f"# {line}" for line in legend(rows)]
    ended = "a run, or a search of circuits," if topology.optics else "a run"
    least = f"# > at least that, by a bound or {ended} that ended there: two others are faster (--all)"
    lines += [least] * bool(at_least)
    lines += [f"# {line}" for line in [*not_excluded(rows, at_least), *ranges(spec, rows, quick=more is None)]]
    lines += [f"# {line}" for line in _beside_ideal(spec)]
    decided = [] if more is None else deciding_defaults(spec, topology, rows, more)
    lines += [f"# decided by a default: {line}" for line in decided]
    return [*lines, *missing(refused, stuck), *(f"# note: {note}" for note in _notes(rows))]


def _beside_ideal(spec: Spec) -> list[str]:
    """What a library is expected to take, where the fabric is a machine."""
    family = TOPOLOGIES.get((spec.topology.spec or "").partition(":")[0])
    if family is not None and family.bandwidth == DEFAULT_BANDWIDTH:  # of no machine: none have to be read
        return []
    try:
        found = spec.build_machine()
    except WeftError:  # another fabric
        return []
    from sim.cli.library import beside_ideal  # what times libraries: only for machines

    return beside_ideal(spec, *found)


def assumptions(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """What determines the result: links, forwarding and chunking, engine, symmetry, proof."""
    preset = f", preset {spec.model.preset}" if spec.model.preset else ""
    cut = "chunks as chosen for each point" if spec.chooses else ""
    model = spec.build_model()
    lines = [f"# model: {model.describe(cut)}; {spec.engine} engine, seed {model.seed}{preset}"]
    lines += [f"# {note}" for note in spec.preset_notes]
    if model.rank_progress in LEFT_OPEN and any(row["rank_progress"] != "free" for row in rows):
        told = common_notes(rows, lambda row: str(row["rank_progress"]))
        lines += [f"# progress of ranks, {model.rank_progress}: {line}" for line in told]
    lines += [f"# symmetry: {line}" for line in common_notes(rows, lambda row: str(row["symmetry"]))]
    return lines + [f"# schedule: {line}" for line in common_notes(rows, lambda row: str(row["proof"]))]


def _forms(rows: Sequence[Row]) -> str:
    """Which form ran at which sizes: "latency to 128 KiB, bandwidth from 512 KiB"."""
    if not rows[0]["form"]:
        return ""
    said = over_sizes(rows, lambda row: f"{row['form']} form")
    return f" ({said})" if len({row["form"] for row in rows}) == 1 else f": {said}"


def choice(row: Row) -> str:
    """What was chosen for a point: "64 chunks, lowest-chunk-first"."""
    words = [f"{row['chunks']} chunks" if row["chunks"] > 1 else "whole transfers"]
    words += [row["discipline"]] if row["discipline"] != "fifo" else []
    words += [counted(row["trees"], "tree")] if row["trees"] is not None else []
    words += [counted(row["pipeline_chunks"], "part")] if row["pipeline_chunks"] is not None else []
    words += [f"circuits {row['circuits']}"] if row.get("circuits") else []
    return " ".join(words)


def over_sizes(rows: Sequence[Row], value: Callable[[Row], str]) -> str:
    """What holds for the rows of an algorithm: "latency form at 1 KiB to 8 KiB, bandwidth form at 1 MiB"."""
    runs: list[tuple[str, int, int]] = []
    for row in rows:
        if runs and runs[-1][0] == value(row):
            runs[-1] = (runs[-1][0], runs[-1][1], row["size_bytes"])
        else:
            runs.append((value(row), row["size_bytes"], row["size_bytes"]))
    if len(runs) == 1:
        return runs[0][0]
    return ", ".join(
        f"{text} at {format_size(first)}" + (f" to {format_size(last)}" if last != first else "")
        for text, first, last in runs
    )


def not_excluded(rows: Sequence[Row], at_least: AtLeast) -> list[str]:
    """The points that their bounds do not exclude, and that are not simulated because they take long."""
    found: dict[str, list[str]] = {}
    for (size, name), floor_ps in at_least.items():
        times_s = sorted(float(row["time_s"]) for row in rows if row["size_bytes"] == size)
        if len(times_s) > 1 and floor_ps <= times_s[1] * PS_PER_S:
            found.setdefault(name, []).append(format_size(size))
    return [f"{name} at {', '.join(sizes)} is not excluded by its bound: it was not simulated because it has more than "
            f"{LONG_SERVICES:,} services (--all)" for name, sizes in found.items()]


def ranges(spec: Spec, rows: Sequence[Row], *, quick: bool = False) -> list[str]:
    """What the ranges in the table are, what narrows wide ones, and which points near the fastest have none."""
    times_s: dict[int, dict[int, float]] = {}
    for at, row in enumerate(rows):
        times_s.setdefault(row["size_bytes"], {})[at] = row["time_s"]
    ranged = [row for row in rows if row["spread_low_s"] is not None]
    near = [rows[at] for at in sorted(at for of_size in times_s.values() for at in close_together(of_size))]
    names = ", ".join(dict.fromkeys(row["algorithm"] for row in near if row["spread_low_s"] is None))
    nearby = "chunk counts nearby" if spec.build_model().buffer_bytes is None else "more chunks, which fit the buffers"
    every = len(near) == len(rows) or len(ranged) == len(rows)
    whose = "" if every else f" and at most {NEAR:g} times the fastest, where several are"
    alone = any(row.get("alone_s") for row in ranged) * (
        " and, where ranks wait by default, one that is not perturbed and whose ports go on alone")
    lines = [f"-x% +y%: range over perturbed runs (rates and starts by 0.1 %, other ties, {nearby}){alone}, where "
             f"wider than 1 %{whose}"] * bool(ranged)
    by_rates = {name for name, one in ALGORITHMS.items() if one.built_from_rates}
    if kept := ", ".join(dict.fromkeys(row["algorithm"] for row in ranged if row["algorithm"] in by_rates)):
        lines.append(f"perturbed runs of {kept} keep the schedule that was built from the rates as they are given")
    lines += [] if quick else cures(spec, rows)
    return lines + [f"no perturbed runs of {names}: {_why_none(spec)}"] * bool(names)


def _why_none(spec: Spec) -> str:
    if spec.account.spread == 0:
        return "switched off by --spread 0"
    if spec.engine != "chunk":
        return f"by the {spec.engine} engine"
    return "they would take long (--spread N asks for N)" if spec.build_faults() is None else "not with faults"


def _notes(rows: Sequence[Row]) -> list[str]:
    # A schedule's own note begins with its name, which is said where notes differ.
    notes = common_notes(rows, lambda row: "; ".join(note.removeprefix(f"{named(row)}: ") for note in row["notes"]))
    above = [row for row in rows if row["effbw_GBps"] and row["busbw_GBps"] > row["effbw_GBps"]]
    if above:
        notes.append(
            "busbw knows no topology: it exceeds what the busiest link carried (effbw in the JSON and CSV) where "
            "several links share the work"
        )
    return notes
