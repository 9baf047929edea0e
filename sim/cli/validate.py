"""`weft validate`: simulated = estimate, or here is why."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim import plots
from sim.cli.asked import spec_of
from sim.cli.compare import Stuck, assumptions, missing, never_end, ranges, refusals
from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_figure, write_json, write_text, write_whole
from sim.cli.progress import progress
from sim.how import How
from sim.lower.credits import NoRoom
from sim.measured.points import Measurements, geometric_error, mean_error, with_measured
from sim.measured.read import read_measurements
from sim.program.outcome import Deadlock
from sim.study.deciding import deciding_alone
from sim.study.keys import MeasuredKeys, filled
from sim.study.points import Task, range_of, simulate_point
from sim.study.spec import Spec
from sim.study.tables import Row, aligned, links_csv, named, range_words, spent, time_text
from sim.study.validation import MOST_FLOWS, Validation, validate
from topologies.checks import WeftError
from topologies.units import counted, format_size, format_time

RUN_FIGURES = ("timeline", "critical-path", "heatmap")
"""Figures of a single run, that of the last row."""


def run(arguments: argparse.Namespace) -> None:
    """Simulate, predict, print and write."""
    asked = spec = spec_of(arguments)
    measured = _measured(spec)
    if measured is not None:
        spec = spec.updated({"collective": {"name": measured.collective}})
    refused = refusals(spec, arguments)
    names = [name for name in spec.algorithms if name not in refused]
    found: Stuck = {}
    validations = list(_validations(spec, names, _sizes(spec, measured), arguments, found))
    too_large, stuck = never_end(found, names, _sizes(spec, measured))
    refused |= too_large
    rows = [one.row() for one in validations]
    say(arguments, *report(spec, validations, rows, refused, stuck, how(arguments)))
    if measured is not None:
        rows = with_measured(rows, measured)
        say(arguments, *errors(rows, measured))
    write_json(arguments, asked, rows, model=spec.build_model(), refused=refused | stuck)
    write_csv(arguments, rows)
    _draw(arguments, spec, rows, validations[-1])


def _measured(spec: Spec) -> Measurements | None:
    if spec.measured.file is None:
        if spec.measured != MeasuredKeys():
            raise WeftError(f"--placement {spec.measured.placement} is of --measured FILE: omit it")
        return None
    if spec.sweep != type(spec.sweep)():
        raise WeftError("--measured brings its own sizes: leave out -b, -e, -f and -i")
    return read_measurements(
        spec.measured.file, collective=spec.collective.name, n_ranks=spec.build_topology().n_npus,
        placement=filled(spec.measured).placement,
    )


def _sizes(spec: Spec, measured: Measurements | None) -> Sequence[int]:
    if measured is None:
        return spec.sizes_bytes
    return sorted({point.size_bytes for point in measured.points})


def errors(rows: Sequence[Mapping[str, Any]], measured: Measurements) -> list[str]:
    """Simulated against measured, size by size, and the mean of each algorithm."""
    table = [["size", "algorithm", "measured", "simulated", "error"]]
    table += [
        [
            format_size(row["size_bytes"]), named(row), time_text(row["measured_s"]),
            time_text(row["time_s"]), f"{row['error']:+.1%}",
        ]
        for row in rows
    ]
    lines = ["#", f"# against {measured.source} ({measured.format})", *(f"# note: {note}" for note in measured.notes),
             aligned(table)]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        own = [row for row in rows if row["algorithm"] == name]
        lines.append(
            f"# {name}: mean error {mean_error(own):.1%}, a factor of {geometric_error(own):.3f} in the geometric mean"
        )
    return lines


def _validations(
    spec: Spec, names: Sequence[str], sizes: Sequence[int], arguments: argparse.Namespace, stuck: Stuck
) -> Iterator[Validation]:
    spread = spec.account.spread
    tasks = [Task(spec, name, size, spread=spread, **how(arguments).arguments()) for name in names for size in sizes]
    with progress("validate", len(tasks), arguments.quiet) as steps:
        for task in tasks:
            try:
                found = simulate_point(task, steps.within)
            except (Deadlock, NoRoom) as wrong:
                stuck.setdefault(task.algorithm, {})[task.size_bytes] = wrong
            else:
                yield replace(validate(found.result), spread=range_of(task, found.result))
            steps.advance(f"{task.algorithm} {format_size(task.size_bytes)}")


def report(
    spec: Spec, validations: Sequence[Validation], rows: Sequence[Row], refused: Mapping[str, str],
    stuck: Mapping[str, str], more: How,
) -> list[str]:
    """Table and account, line by line; `more`: how other runs are done that it tells of."""
    topology = validations[0].result.schedule.topology
    lines = [f"# weft validate: {spec.kind.name} on {topology.name}, {counted(topology.n_npus, 'NPU')}"]
    lines += [*assumptions(spec, rows), "#"]
    head = ["size", "algorithm", "closed form", "lower bound", "estimate", "fluid", "simulated", "residual"]
    lines.append(aligned([head, *(_line(one) for one in validations)], left=0))
    lines += [f"# {line}" for line in ranges(spec, rows)]
    if spec.engine == "chunk":
        lines += [f"# decided by a default: {line}" for line in deciding_alone(spec, rows, more)]
    lines += ["#", "# residual = simulated - estimate:"]
    lines += [f"#   {_name(one)}: {one.verdict()}" for one in validations]
    lines += ["#", "# the simulated time, by what the critical path was spent on:"]
    lines += [f"#   {_name(one)}: {spent(one.result.time_ps, one.path_ps)}" for one in validations]
    return [
        *lines,
        *missing(refused, stuck),
        "# closed form: steps of max(hops x hop + message, hop + messages on the fullest link x message) on tori, or "
        "RTT + q max(RTT, slots service) + r service, C - 1 = q slots + r, where C chunks stream along trees",
        "# estimate: steps in lockstep, each the latency of its longest route and the load of its fullest link; steps "
        "that pass chunks on are one, parts of a pipeline follow each other through the busiest dimension",
        "# fluid: the same transfers over links that all flows share evenly, passed on whole and not chunk by chunk "
        f"(--engine fluid); - with headers per chunk and what else flows do not have, and beyond {MOST_FLOWS:,} flows",
    ]


def _name(one: Validation) -> str:
    return f"{one.result.schedule.name}, {format_size(one.result.schedule.size_bytes)}"


def _line(one: Validation) -> list[str]:
    result = one.result
    share = f" ({one.residual_ps / result.time_ps:+.2%})" if result.time_ps and one.residual_ps else ""
    return [
        format_size(result.schedule.size_bytes),
        result.schedule.name,
        "-" if one.closed_form_ps is None else format_time(one.closed_form_ps),
        format_time(result.lower_bound_ps),
        format_time(sum(one.estimate)),
        "-" if one.fluid_ps is None else format_time(one.fluid_ps),
        format_time(result.time_ps) + range_words({"time_s": result.time_s, **one.spread}),
        format_time(one.residual_ps) + share,
    ]


def _draw(arguments: argparse.Namespace, spec: Spec, rows: Sequence[Mapping[str, Any]], last: Validation) -> None:
    """The figures; links are those of the last row."""
    if arguments.links:
        write_text(arguments.links, links_csv(last.result))
    if arguments.plot:
        _draw_figure(arguments, spec, rows, last)
    if arguments.heatmap:
        write_whole(arguments.heatmap, lambda path: _draw_heatmap(last, path, 2))


def _draw_figure(
    arguments: argparse.Namespace, spec: Spec, rows: Sequence[Mapping[str, Any]], last: Validation
) -> None:
    """The figure of `--plot`: of all rows, or of the last run."""
    if arguments.figure not in RUN_FIGURES:
        write_figure(arguments, rows, [spec])
        return

    def draw(path: Path) -> None:
        if arguments.figure == "heatmap":
            _draw_heatmap(last, path, arguments.columns)
        else:
            drawn = plots.draw_link_timeline if arguments.figure == "timeline" else plots.draw_critical_path
            drawn(last.result, path, width=plots.COLUMNS[arguments.columns])

    write_whole(arguments.plot, draw)


def _draw_heatmap(last: Validation, path: Path, columns: int) -> None:
    topology = last.result.schedule.topology
    title = f"{_name(last)}\non {topology.name}: {format_time(last.result.time_ps)}"
    plots.draw_heatmap(topology, last.result.link_utilization, path, title, width=plots.COLUMNS[columns])
