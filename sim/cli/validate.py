"""`weft validate`: simulated = predicted, or here is why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cli.compare import Stuck, never_end
from sim.cli.flags import add_figure, add_outputs, add_run, add_spec, spec_of
from sim.cli.judge import add_measured
from sim.cli.output import check_outputs, say, say_where, to_json, write_figure, write_text, write_whole
from sim.cli.progress import progress
from topologies import WeftError
from topologies.units import format_size, format_time

if TYPE_CHECKING:
    from sim.measured.read import Measurements
    from sim.study.spec import Spec
    from sim.study.validation import Validation

NAME = "validate"
HELP = "hold simulated times against closed forms and lower bounds, and explain the difference"
EXAMPLES = (
    "weft validate --topology torus:8x8 --algorithm swing -b 32 -e 512M -f 16",
    "weft validate --topology switch:8 --algorithms ring,direct -b 1M --forwarding store-and-forward",
    "weft validate --topology torus:8x8 --algorithm bucket -b 2M --heatmap links.png --links links.csv",
    "weft validate --topology torus:4x4 --algorithm bucket -b 64K --figure critical-path --plot path.png",
    "weft validate --topology torus:4x4 --algorithm ring -b 64K --figure timeline --plot links-over-time.pdf",
    "weft validate --topology switch:8 --algorithm ring --endpoint-latency 2us --measured nccl.json",
)

RUN_FIGURES = ("timeline", "critical-path", "heatmap")
"""Figures of one run: that of the last row."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_spec(parser, "topology", "collective", "model", "sweep", leave_out=("model.engine",))
    add_run(parser, workers=False)
    group = parser.add_argument_group("measurements")
    add_measured(group, "--measured")
    add_outputs(parser, "json", "csv", "plot", "heatmap", "links")
    add_figure(parser, "account", "roofline", *RUN_FIGURES)


def run(arguments: argparse.Namespace) -> None:
    """Simulate, predict, print and write."""
    check_outputs(arguments)
    spec = spec_of(arguments)
    measured = _measured(spec, arguments)
    if measured is not None:
        spec = spec.updated({"collective": {"name": measured.collective}})
    refused = _refusals(spec)
    names = [name for name in spec.algorithms if name not in refused]
    found: Stuck = {}
    validations = list(_validations(spec, names, _sizes(spec, measured), arguments, found))
    stuck = never_end(found, names, _sizes(spec, measured))
    rows = [one.row() for one in validations]
    say(arguments, *report(spec, validations, refused, stuck))
    if measured is not None:
        from sim.measured.errors import with_measured

        rows = with_measured(rows, measured)
        say(arguments, *errors(rows, measured))
    if arguments.json:
        write_text(arguments.json, to_json(spec, rows, refused=refused | stuck))
    if arguments.csv:
        from sim.study.tables import to_csv

        write_text(arguments.csv, to_csv(rows))
    _draw(arguments, spec, rows, validations[-1])
    say_where(arguments)


def _refusals(spec: Spec) -> dict[str, str]:
    from sim.cli.compare import refusals

    return refusals(spec)


def _measured(spec: Spec, arguments: argparse.Namespace) -> Measurements | None:
    if arguments.measured is None:
        return None
    from sim.measured.read import read_measurements

    if spec.sweep != type(spec.sweep)():
        raise WeftError("--measured brings its own sizes: leave out -b, -e, -f and -i")
    return read_measurements(
        arguments.measured, collective=spec.collective.name, n_ranks=spec.build_topology().n_npus,
        placement=arguments.placement,
    )


def _sizes(spec: Spec, measured: Measurements | None) -> Sequence[int]:
    if measured is None:
        return spec.sizes_bytes
    return sorted({point.size_bytes for point in measured.points})


def errors(rows: Sequence[Mapping[str, Any]], measured: Measurements) -> list[str]:
    """Simulated against measured, size by size, and the mean of each algorithm."""
    from sim.measured.errors import geometric_error, mean_error
    from sim.study.tables import aligned

    table = [["size", "algorithm", "measured", "simulated", "error"]]
    table += [
        [
            format_size(row["size_bytes"]), _form(row), format_time(row["measured_s"] * 1e12),
            format_time(row["time_s"] * 1e12), f"{row['error']:+.1%}",
        ]
        for row in rows
    ]
    lines = ["#", f"# against {measured.source} ({measured.format})", aligned(table)]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        own = [row for row in rows if row["algorithm"] == name]
        lines.append(
            f"# {name}: mean error {mean_error(own):.1%}, a factor of {geometric_error(own):.3f} in the geometric mean"
        )
    return lines


def _form(row: Mapping[str, Any]) -> str:
    return f"{row['algorithm']} ({row['form']})" if row["form"] else str(row["algorithm"])


def _validations(
    spec: Spec, names: Sequence[str], sizes: Sequence[int], arguments: argparse.Namespace, stuck: Stuck
) -> Iterator[Validation]:
    from sim.program.outcome import Deadlock
    from sim.study.points import Task, simulate_point
    from sim.study.validation import validate

    how = {"check": arguments.check, "max_events": arguments.max_events}
    tasks = [Task(spec, name, size, **how) for name in names for size in sizes]
    with progress(NAME, len(tasks), arguments.quiet) as steps:
        for task in tasks:
            try:
                found = simulate_point(task, steps.within)
            except Deadlock as wrong:
                stuck.setdefault(task.algorithm, {})[task.size_bytes] = wrong
            else:
                yield validate(found.result)
            steps.advance(f"{task.algorithm} {format_size(task.size_bytes)}")


def report(
    spec: Spec, validations: Sequence[Validation], refused: Mapping[str, str], stuck: Mapping[str, str]
) -> list[str]:
    """Table and account, line by line."""
    from sim.cli.compare import assumptions, missing
    from sim.study.tables import aligned

    topology = validations[0].result.schedule.topology
    rows = [one.row() for one in validations]
    lines = [f"# weft {NAME}: {spec.kind.name} on {topology.name}, {topology.n_npus} NPUs"]
    lines += [*assumptions(spec, rows), "#"]
    head = ["size", "algorithm", "closed form", "lower bound", "estimate", "simulated", "residual"]
    lines.append(aligned([head, *(_line(one) for one in validations)], left=0))
    lines += ["#", "# residual = simulated - estimate:"]
    lines += [f"#   {_name(one)}: {one.verdict()}" for one in validations]
    lines += ["#", "# the simulated time, by what the critical path was spent on:"]
    lines += [f"#   {_name(one)}: {_spent(one)}" for one in validations]
    return [
        *lines,
        *missing(refused, stuck),
        "# closed form: alpha log2(p) Lambda + (n/D) beta Psi Xi of the Swing paper (tori, all-reduce; alpha one hop), "
        "or RTT + q max(RTT, slots service) + r service, C - 1 = q slots + r, where C chunks stream along trees",
        "# estimate: steps in lockstep, each the latency of its longest route and the load of its fullest link",
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
        format_time(result.time_ps),
        format_time(one.residual_ps) + share,
    ]


def _spent(one: Validation) -> str:
    total = max(one.result.time_ps, 1)
    parts = ", ".join(f"{name} {format_time(ps)} ({ps / total:.1%})" for name, ps in one.path_ps.items())
    return f"{format_time(one.result.time_ps)} = {parts}" if parts else format_time(one.result.time_ps)


def _draw(
    arguments: argparse.Namespace, spec: Spec, rows: Sequence[Mapping[str, Any]], last: Validation
) -> None:
    """The figures; links are those of the last row."""
    if arguments.links:
        from sim.study.tables import links_csv

        write_text(arguments.links, links_csv(last.result))
    if arguments.plot:
        _draw_figure(arguments, spec, rows, last)
    if arguments.heatmap:
        write_whole(arguments.heatmap, lambda path: _draw_heatmap(last, path, 2))


def _draw_figure(
    arguments: argparse.Namespace, spec: Spec, rows: Sequence[Mapping[str, Any]], last: Validation
) -> None:
    """The figure of `--plot`: of all rows, or of the last run."""
    from sim.plots.figures import COLUMNS

    if arguments.figure not in RUN_FIGURES:
        write_figure(arguments, rows, spec)
        return

    def draw(path: Path) -> None:
        from sim.plots.critical_path import draw_critical_path
        from sim.plots.link_timeline import draw_link_timeline

        if arguments.figure == "heatmap":
            _draw_heatmap(last, path, arguments.columns)
        else:
            drawn = draw_link_timeline if arguments.figure == "timeline" else draw_critical_path
            drawn(last.result, path, width=COLUMNS[arguments.columns])

    write_whole(arguments.plot, draw)


def _draw_heatmap(last: Validation, path: Path, columns: int) -> None:
    from sim.plots.figures import COLUMNS
    from sim.plots.heatmap import draw_heatmap

    topology = last.result.schedule.topology
    title = f"{_name(last)}\non {topology.name}: {format_time(last.result.time_ps)}"
    draw_heatmap(topology, last.result.link_utilisation, path, title, width=COLUMNS[columns])
