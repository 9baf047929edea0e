"""`weft validate`: simulated = predicted, or here is why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs, add_run, add_spec, spec_of
from sim.cli.output import check_outputs, say, say_where, to_json, write_text, write_whole
from sim.cli.progress import progress
from topologies.units import format_size, format_time

if TYPE_CHECKING:
    from sim.spec import Spec
    from sim.validation import Validation

NAME = "validate"
HELP = "hold simulated times against closed forms and lower bounds, and explain the difference"
EXAMPLES = (
    "weft validate --topology torus:8x8 --algorithm swing -b 32 -e 512M -f 16",
    "weft validate --topology switch:8 --algorithms ring,direct -b 1M --forwarding store-and-forward",
    "weft validate --topology torus:8x8 --algorithm bucket -b 2M --heatmap links.png --links links.csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_spec(parser, "topology", "collective", "model", "sweep", leave_out=("model.engine",))
    add_run(parser, workers=False)
    add_outputs(parser, "json", "csv", "plot", "heatmap", "links")


def run(arguments: argparse.Namespace) -> None:
    """Simulate, predict, print and write."""
    check_outputs(arguments)
    spec = spec_of(arguments)
    refused = _refusals(spec)
    names = [name for name in spec.algorithms if name not in refused]
    validations = list(_validations(spec, names, arguments))
    rows = [one.row() for one in validations]
    say(arguments, *report(spec, validations, refused))
    if arguments.json:
        write_text(arguments.json, to_json(spec, rows, refused=refused))
    if arguments.csv:
        from sim.tables import to_csv

        write_text(arguments.csv, to_csv(rows))
    _draw(arguments, rows, validations[-1])
    say_where(arguments)


def _refusals(spec: Spec) -> dict[str, str]:
    from sim.cli.compare import refusals

    return refusals(spec)


def _validations(spec: Spec, names: Sequence[str], arguments: argparse.Namespace) -> Iterator[Validation]:
    from sim.points import Task, simulate_point
    from sim.validation import validate

    how = {"check": arguments.check, "max_events": arguments.max_events}
    tasks = [Task(spec, name, size, **how) for name in names for size in spec.sizes_bytes]
    with progress(NAME, len(tasks), arguments.quiet) as steps:
        for task in tasks:
            found = simulate_point(task, steps.within)
            yield validate(found.result)
            steps.advance(f"{task.algorithm} {format_size(task.size_bytes)}")


def report(spec: Spec, validations: Sequence[Validation], refused: Mapping[str, str]) -> list[str]:
    """Table and account, line by line."""
    from sim.cli.compare import assumptions, reasons
    from sim.tables import aligned

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
    lines += [f"# {', '.join(names)} cannot run: {why}" for why, names in reasons(refused)]
    return [
        *lines,
        "# closed form: alpha log2(p) Lambda + (n/D) beta Psi Xi of the Swing paper (tori, all-reduce); alpha: one hop",
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


def _draw(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]], last: Validation) -> None:
    """The figures; links are those of the last row."""
    if arguments.links:
        from sim.tables import links_csv

        write_text(arguments.links, links_csv(last.result))
    if arguments.plot:
        from sim.plots.validate import draw_validation

        write_whole(arguments.plot, lambda path: draw_validation(rows, path))
    if arguments.heatmap:
        from sim.plots.heatmap import draw_heatmap

        title = f"{_name(last)}\non {last.result.schedule.topology.name}: {format_time(last.result.time_ps)}"
        busy = last.result.link_utilisation
        write_whole(arguments.heatmap, lambda path: draw_heatmap(last.result.schedule.topology, busy, path, title))
