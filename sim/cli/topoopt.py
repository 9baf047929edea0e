"""`weft topoopt`: circuits for a training job, alone or searched together with its parallelization."""

import argparse
from dataclasses import replace
from typing import Any

from sim.cli.asked import spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_json
from sim.cli.progress import progress
from sim.scenarios.topoopt_search import Settings, optical_fabric, search
from sim.study.tables import time_text
from topologies.units import counted
from workloads.topoopt import PACKETS, data_parallel, model


def run(arguments: argparse.Namespace) -> None:
    """Search, simulate, print."""
    spec = spec_of(arguments)
    keys, links = spec.circuits, spec.topology
    fabric_for = optical_fabric(
        keys.servers, keys.degree, bandwidth=links.link_bandwidth or "", latency=links.link_latency or "",
        duplex=not keys.simplex, rule=keys.rule, split=not keys.rings_only,
    )
    job = model(str(spec.workload.name), keys.servers)
    settings = Settings(
        budget=keys.budget, outer=4 if keys.budget else 1, seed=spec.model.seed or 0,
        transport=replace(PACKETS, routes=keys.routes), how=how(arguments),
    )
    with progress("topoopt", 1, arguments.quiet, of_runs=True):
        found = search(job, fabric_for, settings)
    row: dict[str, Any] = {
        "workload": job.name, "servers": job.n, "degree": keys.degree, "topology": found.fabric.topology.name,
        "rings": list(found.fabric.rings.jumps),
        "group_rings": {k: list(jumps) for k, jumps in found.fabric.rings.groups.items()},
        "matched": [list(pair) for pair in found.fabric.matched], "start_s": found.start_ps / 1e12,
        "time_s": found.time_ps / 1e12, "evaluations": found.evaluations,
        "evaluations_to_best": found.evaluations_to_best, "seconds_per_evaluation": found.seconds_per_evaluation,
        "moved": {operator.name: list(placed) for operator, placed, before in zip(
            job.operators, found.strategy, data_parallel(job), strict=True) if placed != before},
    }
    say(arguments, *report(row))
    write_json(arguments, spec, [row])


def report(row: dict[str, Any]) -> list[str]:
    """The fabric, the time, and the operators that were moved."""
    lines = [
        f"{row['workload']} on {row['servers']} servers of {counted(row['degree'], 'interface')}: {row['topology']}",
        f"  rings       {', '.join(f'+{jump}' for jump in row['rings'])}",
        *(f"  groups of {k}: {', '.join(f'+{jump}' for jump in jumps)}" for k, jumps in row["group_rings"].items()),
    ]
    if row["matched"]:
        pairs = ", ".join(f"{a}-{b}" for a, b in row["matched"][:8])
        more = ", ..." if len(row["matched"]) > 8 else ""
        lines.append(f"  matched     {pairs}{more} ({counted(len(row['matched']), 'circuit')})")
    return [
        *lines,
        f"  iteration   {time_text(row['time_s'])} (start: {time_text(row['start_s'])})",
        f"  search      {counted(row['evaluations'], 'evaluation')} of {row['seconds_per_evaluation']:.3g} s, "
        f"the best found after {row['evaluations_to_best']}",
        *(f"  placed      {name} on {counted(k, 'server')} from {first}"
          for name, (k, first) in list(row["moved"].items())[:12]),
    ]
