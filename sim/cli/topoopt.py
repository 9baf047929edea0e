"""`weft topoopt`: circuits for a training job, alone or searched together with its parallelisation."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

NAME = "topoopt"
HELP = "find optical circuits for a training job, and search its parallelisation with them"
EXAMPLES = (
    "weft topoopt --workload VGG16 --servers 16 --degree 4",
    "weft topoopt --workload DLRM --servers 128 --degree 8 --link-bandwidth 200Gb/s --budget 100 --json -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    from topologies.totient_rings import RULES
    from workloads.topoopt import MODELS

    parser.add_argument("--workload", default="DLRM", metavar="NAME", help=f"one of {', '.join(MODELS)} (DLRM)")
    parser.add_argument("--servers", type=int, default=16, metavar="N", help="servers of 4 GPUs (16)")
    parser.add_argument("--degree", type=int, default=4, metavar="D", help="optical interfaces of each server (4)")
    parser.add_argument("--link-bandwidth", default="100Gb/s", metavar="RATE", help="of one interface (100Gb/s)")
    parser.add_argument("--link-latency", default="1us", metavar="TIME", help="of one circuit (1us)")
    parser.add_argument("--simplex", action="store_true", help="patch the two fibres of an interface each for itself")
    parser.add_argument("--rule", default="paper", choices=RULES, help="how the jumps of rings progress (paper)")
    parser.add_argument("--rings-only", action="store_true", help="no matchings, as in the released code")
    parser.add_argument("--routes", type=int, default=1, metavar="K",
                        help="shortest ways that share the bytes of a message between operations (1)")
    parser.add_argument("--budget", type=int, default=0, metavar="MOVES", help="moves of the search (0: none)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help='write the result as JSON; "-" for stdout')


def run(arguments: argparse.Namespace) -> int:
    """Search, simulate, print."""
    from sim.circuits.ring_iteration import PACKETS
    from sim.cli.output import check_outputs, write_text
    from sim.optimize.topoopt_search import Settings, optical_fabric, search
    from workloads.topoopt import model

    check_outputs(arguments)
    fabric_for = optical_fabric(
        arguments.servers, arguments.degree, bandwidth=arguments.link_bandwidth, latency=arguments.link_latency,
        duplex=not arguments.simplex, rule=arguments.rule, split=not arguments.rings_only,
    )
    job = model(arguments.workload, arguments.servers)
    found = search(job, fabric_for, Settings(
        budget=arguments.budget, outer=4 if arguments.budget else 1, seed=arguments.seed,
        transport=replace(PACKETS, routes=arguments.routes),
    ))
    row: dict[str, Any] = {
        "workload": job.name, "servers": job.n, "degree": arguments.degree, "topology": found.fabric.topology.name,
        "rings": list(found.fabric.jumps), "group_rings": {k: list(j) for k, j in found.fabric.group_jumps.items()},
        "matched": [list(pair) for pair in found.fabric.matched], "start_s": found.start_ps / 1e12,
        "time_s": found.time_ps / 1e12, "evaluations": found.evaluations,
        "evaluations_to_best": found.evaluations_to_best, "seconds_per_evaluation": found.seconds_per_evaluation,
        "moved": {operator.name: list(placed) for operator, placed, before in zip(
            job.operators, found.strategy, _start(job), strict=True) if placed != before},
    }
    if arguments.json:
        write_text(arguments.json, json.dumps({"rows": [row]}, indent=1) + "\n")
    if arguments.json != "-":
        _print(row)
    return 0


def _start(job: Any) -> Any:
    from workloads.topoopt import data_parallel

    return data_parallel(job)


def _print(row: dict[str, Any]) -> None:
    from topologies.units import format_time

    print(f"{row['workload']} on {row['servers']} servers of {row['degree']} interfaces: {row['topology']}")
    print(f"  rings       {', '.join(f'+{jump}' for jump in row['rings'])}")
    for k, jumps in row["group_rings"].items():
        print(f"  groups of {k}: {', '.join(f'+{jump}' for jump in jumps)}")
    if row["matched"]:
        pairs = ", ".join(f"{a}-{b}" for a, b in row["matched"][:8])
        print(f"  matched     {pairs}{', ...' if len(row['matched']) > 8 else ''} ({len(row['matched'])} circuits)")
    print(f"  iteration   {format_time(row['time_s'] * 1e12)} (start: {format_time(row['start_s'] * 1e12)})")
    print(f"  search      {row['evaluations']} evaluations of {row['seconds_per_evaluation']:.3g} s, the best found "
          f"after {row['evaluations_to_best']}")
    for name, (k, first) in list(row["moved"].items())[:12]:
        print(f"  placed      {name} on {k} server{'s' if k > 1 else ''} from {first}")
