"""`weft share`: several collectives and training iterations on one fabric at once."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs, add_run, add_spec, changes_of
from sim.cli.output import check_outputs, say, say_where, write_text, write_whole
from sim.cli.progress import progress
from sim.cli.tenants import Described, make_tenant, read_tenant
from sim.faults.names import told
from topologies import WeftError
from topologies.units import PS_PER_S, format_time

if TYPE_CHECKING:
    from sim.program.model import Model
    from sim.run.tenants import SharedResult
    from sim.study.spec import Spec

NAME = "share"
HELP = "run several collectives and training iterations on one fabric at once: what each takes, and would take alone"
EXAMPLES = (
    'weft share --topology torus:4x4 --tenant "all-reduce swing 16MiB" --tenant "all-to-all direct 1MiB start=50us"',
    'weft share --topology torus:8x8 --tenant "all-reduce hierarchical 64MiB group=8,4 npus=0-31 name=left" '
    '--tenant "all-reduce ring 64MiB priority=1"',
    'weft share --topology ring:8 --tenant "workload=resnet-50 samples=16 peak=312 efficiency=0.5" '
    '--tenant "all-to-all direct 8MiB start=1ms" --json -',
    "weft share --spec tenants.toml --faults faults.toml --check --csv shares.csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_spec(parser, "topology", "model", leave_out=("model.deliver", "model.preset"))
    parser.add_argument_group("tenants").add_argument(
        "--tenant", action="append", default=[], metavar="TEXT",
        help='"COLLECTIVE ALGORITHM SIZE", "workload=NAME ..." or "job=FILE", then NAME=VALUE: name, start, priority '
        "(small first), npus, form, options; again for another. Or tables [[tenant]] in the file of --spec",
    )
    add_run(parser, workers=False, limit=False)
    add_outputs(parser, "json", "csv", "perfetto")


def run(arguments: argparse.Namespace) -> None:
    """Simulate all at once and each alone, print and write."""
    from sim.run.tenants import simulate_shared
    from sim.study.tables import to_csv

    check_outputs(arguments)
    spec, tables = read(arguments)
    topology = spec.build_topology()
    tenants = [make_tenant(table, topology, number) for number, table in enumerate(tables, 1)]
    model = model_of(spec, tenants)
    with progress(NAME, len(tenants) + 2, arguments.quiet) as steps:  # all together, each alone, and the accounts
        steps.begin("all together")
        result = simulate_shared(
            [one.tenant for one in tenants], model, engine=spec.engine, symmetry=spec.symmetry, check=arguments.check,
            faults=spec.build_faults(), done=lambda what, time_ps: steps.advance(f"{what}: {format_time(time_ps)}"),
        )
        rows = rows_of(spec, tenants, result)
        steps.advance("where the time went")
    say(arguments, *report(spec, tenants, result, rows))
    if arguments.json:
        from sim.version import weft_version

        data = {"weft": weft_version(), "spec": given(spec, tables, tenants), "model": asdict(model), "rows": rows}
        write_text(arguments.json, json.dumps(data, indent=1) + "\n")
    if arguments.csv:
        write_text(arguments.csv, to_csv(rows))
    if arguments.perfetto:
        from sim.timeline.perfetto import write_perfetto
        from sim.timeline.timeline import iteration_timeline

        write_whole(arguments.perfetto, lambda path: write_perfetto(iteration_timeline(result.run), path))
    say_where(arguments)


def read(arguments: argparse.Namespace) -> tuple[Spec, list[Mapping[str, Any]]]:
    """The spec, and the tables of the tenants: those of the file, then those of the flags.

    Raises
    ------
    WeftError
        Nobody is on the fabric, or a table is none.
    """
    from sim.study.spec import Spec, read_sections

    sections: dict[str, Any] = {}
    where = f"spec file {arguments.spec}"
    if arguments.spec:
        sections = dict(read_sections(Path(arguments.spec)))
    for section in ("collective", "sweep"):
        if sections.get(section):
            raise WeftError(f"{where}: [{section}] means nothing here: each [[tenant]] says what it does")
    tables = sections.pop("tenant", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise WeftError(f"{where}: tenant is {told(tables)}: write it as [[tenant]] with its keys below")
    tables += [read_tenant(text) for text in arguments.tenant]
    if not tables:
        raise WeftError('nobody is on the fabric: write --tenant "all-reduce ring 64MiB", or [[tenant]] in --spec FILE')
    return Spec.from_dict(sections, where).updated(changes_of(arguments)), tables


def given(spec: Spec, tables: Sequence[Mapping[str, Any]], tenants: Sequence[Described]) -> dict[str, Any]:
    """What `--spec` runs again: the spec and the tables, whose priorities are numbers."""
    written = [
        {**table, "priority": one.tenant.priority} if "priority" in table else dict(table)
        for table, one in zip(tables, tenants, strict=True)
    ]
    return {**spec.self_contained().to_dict(), "tenant": written}


def model_of(spec: Spec, tenants: Sequence[Described]) -> Model:
    """The model; links serve by priority, unless they are told how, where tenants differ in it."""
    model = spec.build_model()
    if spec.model.discipline is None and len({one.tenant.priority for one in tenants}) > 1:
        return replace(model, discipline="priority")
    return model


def rows_of(spec: Spec, tenants: Sequence[Described], result: SharedResult) -> list[dict[str, Any]]:
    """A row for each tenant."""
    from sim.faults.cost import finite

    cost = {} if result.run.faults is None else {"faults": result.run.faults.plan.to_dict()}
    return [
        {
            "topology": result.run.job.topology.name, "tenant": share.name, "work": one.what,
            "start_s": share.arrival_ps / PS_PER_S, "priority": one.tenant.priority,
            "time_s": share.time_ps / PS_PER_S, "alone_s": share.alone_ps / PS_PER_S,
            "slowdown": finite(share.slowdown), "end_s": (share.arrival_ps + share.time_ps) / PS_PER_S,
            "why": {"makespan_ps": share.time_ps, "parts_ps": result.why(share.name)}, "engine": spec.engine,
            "symmetry": result.run.symmetry, "all_end_s": result.time_ps / PS_PER_S,
            "all_lower_bound_s": result.run.lower_bound_ps / PS_PER_S, **cost,
        }
        for one, share in zip(tenants, result.shares, strict=True)
    ]


def report(
    spec: Spec, tenants: Sequence[Described], result: SharedResult, rows: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Table and account, line by line."""
    from sim.study.tables import aligned

    topology = result.run.job.topology
    head = ["tenant", "work", "priority", "start", "alone", "shared", "slow-down"]
    table = [
        [
            share.name, one.what, str(one.tenant.priority), format_time(share.arrival_ps), format_time(share.alone_ps),
            format_time(share.time_ps), "-" if row["slowdown"] is None else f"{share.slowdown:.2f}",
        ]
        for one, share, row in zip(tenants, result.shares, rows, strict=True)
    ]
    count = f"{len(tenants)} tenant{'s' if len(tenants) > 1 else ''}"
    lines = [
        f"# weft {NAME}: {count} on {topology.name}, {topology.n_npus} NPUs",
        f"# model: {result.run.lowered.model.describe()}; {spec.engine} engine, seed {spec.build_model().seed}",
        f"# symmetry: {result.run.symmetry}", *(f"# {note}" for note in result.run.notes()), "#",
        aligned([head, *table], left=2), "#", "# the time of each, by what its critical path was spent on:",
    ]
    return lines + [f"#   {row['tenant']}, {_account(row)}" for row in rows]


def _account(row: Mapping[str, Any]) -> str:
    total = row["why"]["makespan_ps"]
    parts: dict[str, int] = {}
    for name, ps in row["why"]["parts_ps"].items():
        short = name.partition(": ")[0]  # all that was spent behind another tenant together
        parts[short] = parts.get(short, 0) + ps
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    said = ", ".join(f"{name} {format_time(ps)} ({ps / total:.1%})" for name, ps in ordered)
    return f"{format_time(total)} = {said}" if said else format_time(total)
