"""`weft share`: several collectives and training iterations on one fabric at once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.cli.asked import check_looks_into, spec_of
from sim.cli.files import check_apart
from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.cli.tenants import Described, make_tenant, read_tenant
from sim.lower.tenants import merge
from sim.program.model import Model
from sim.run.tenants import Shares, share_fabric
from sim.study.spec import Spec
from sim.study.tables import aligned, spent
from sim.timeline.perfetto import check_size, write_perfetto
from sim.why.path import by_kind
from topologies.units import PS_PER_S, counted, format_time


def run(arguments: argparse.Namespace) -> None:
    """Simulate all at once and each alone, print and write."""
    spec = read(arguments)
    check_looks_into(spec)
    topology = spec.build_topology()
    tenants = [make_tenant(table, topology, number) for number, table in enumerate(spec.tenant, 1)]
    model = model_of(spec, tenants)
    if arguments.perfetto:
        check_size(merge([one.tenant for one in tenants], model), model, spec.symmetry)
    with progress("share", len(tenants) + 2, arguments.quiet) as steps:  # all at once, each alone, and the accounts
        steps.begin("all together")
        result = share_fabric(
            [one.tenant for one in tenants], model, engine=spec.engine, symmetry=spec.symmetry,
            faults=spec.build_faults(),
            done=lambda what, time_ps: steps.advance(f"{what}: {format_time(time_ps)}"), **how(arguments).arguments(),
        )
        rows = rows_of(spec, tenants, result)
        steps.advance("where the time went")
    say(arguments, *report(spec, tenants, result, rows))
    write_json(arguments, given(spec, tenants), rows, model=model)
    write_csv(arguments, rows)
    if arguments.perfetto:
        write_whole(arguments.perfetto, lambda path: write_perfetto(result.run.timeline(), path))


def read(arguments: argparse.Namespace) -> Spec:
    """The spec, with the tenants of the file and then those of the flags."""
    spec = spec_of(arguments)
    spec = replace(spec, tenant=(*spec.tenant, *map(read_tenant, arguments.tenant)))
    check_apart(arguments, spec.to_dict())
    return spec


def given(spec: Spec, tenants: Sequence[Described]) -> Spec:
    """The spec for `--spec` to run again: tables with numeric priorities."""
    tables = tuple(
        {**table, "priority": one.tenant.priority} if "priority" in table else table
        for table, one in zip(spec.tenant, tenants, strict=True)
    )
    return replace(spec, tenant=tables)


def model_of(spec: Spec, tenants: Sequence[Described]) -> Model:
    """The model; links serve by priority if tenants differ in it, unless the spec names a discipline."""
    model = spec.build_model()
    if spec.model.discipline is None and len({one.tenant.priority for one in tenants}) > 1:
        return replace(model, discipline="priority")
    return model


def rows_of(spec: Spec, tenants: Sequence[Described], result: Shares) -> list[dict[str, Any]]:
    cost = {} if result.run.faults is None else {"faults": result.run.faults.plan.to_dict()}
    return [
        {
            "topology": result.run.job.topology.name, "tenant": one.tenant.name, "work": one.what,
            "start_s": row["start_s"], "priority": one.tenant.priority, **row, "engine": spec.engine,
            "symmetry": result.run.symmetry, "all_end_s": result.time_ps / PS_PER_S,
            "all_lower_bound_s": result.run.lower_bound_ps / PS_PER_S, **cost,
        }
        for one, row in zip(tenants, result.rows(), strict=True)
    ]


def report(
    spec: Spec, tenants: Sequence[Described], result: Shares, rows: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Table and account, line by line."""
    topology = result.run.job.topology
    head = ["tenant", "work", "priority", "start", "alone", "shared", "slow-down"]
    table = [
        [
            share.name, one.what, str(one.tenant.priority), format_time(share.arrival_ps), format_time(share.alone_ps),
            format_time(share.time_ps), "-" if row["slowdown"] is None else f"{share.slowdown:.2f}",
        ]
        for one, share, row in zip(tenants, result.shares, rows, strict=True)
    ]
    lines = [
        f"# weft share: {counted(len(tenants), 'tenant')} on {topology.name}, {counted(topology.n_npus, 'NPU')}",
        f"# model: {result.run.assumptions}; {spec.engine} engine, seed {spec.build_model().seed}",
        f"# symmetry: {result.run.symmetry}", *(f"# {note}" for note in result.run.notes()), "#",
        aligned([head, *table], left=2), "#", "# the time of each, by what its critical path was spent on:",
    ]
    return lines + [f"#   {row['tenant']}, {_account(row)}" for row in rows]


def _account(row: Mapping[str, Any]) -> str:
    parts = by_kind(row["why"]["parts_ps"], ": ")  # all time spent waiting for another tenant is one item
    return spent(row["why"]["makespan_ps"], dict(sorted(parts.items(), key=lambda part: -part[1])))
