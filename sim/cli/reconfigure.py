"""`weft reconfigure`: when to switch circuits inside a collective, planned and simulated."""

from __future__ import annotations

import argparse
import json
from typing import Any

NAME = "reconfigure"
HELP = "plan when to switch circuits between the steps of a collective, and simulate the plans"
EXAMPLES = (
    "weft reconfigure --topology ring:64 --algorithm recursive-doubling --size 1MiB --delay 10us",
    "weft reconfigure --topology ring:16 --collective all-to-all --algorithm pairwise --delay 1us --json -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags."""
    parser.add_argument("--topology", default="ring:64", metavar="SPEC", help="circuits in the beginning (ring:64)")
    parser.add_argument("--collective", default="all-reduce", help="(all-reduce)")
    parser.add_argument("--algorithm", default="recursive-doubling", help="(recursive-doubling)")
    parser.add_argument("--form", help="of the algorithm, where it has several: bandwidth or latency")
    parser.add_argument("--size", default="1MiB", help="as nccl-tests counts it (1MiB)")
    parser.add_argument("--delay", default="10us", metavar="TIME", help="of one reconfiguration (10us)")
    parser.add_argument("--start-up", default="500ns", metavar="TIME", help="of every step (500ns)")
    parser.add_argument("--interfaces", type=int, default=2, help="of each server (2)")
    parser.add_argument("--link-bandwidth", default="50GB/s", metavar="RATE")
    parser.add_argument("--link-latency", default="100ns", metavar="TIME")
    parser.add_argument("--hop-latency", default="0ns", metavar="TIME")
    parser.add_argument("--chunks", type=int, default=1, help="of a message (1)")
    parser.add_argument("--per-port", action="store_true", help="darken only the circuits that change")
    parser.add_argument("--json", metavar="FILE", help='write the rows as JSON; "-" for stdout')


def run(arguments: argparse.Namespace) -> int:
    """Plan, simulate, print."""
    from collectives import build
    from collectives.reconfigured import menu
    from sim.cli.output import check_outputs, write_text
    from sim.engine.run import run as run_program
    from sim.lower.epochs import check_circuits, lower_plan
    from sim.program.model import make_model
    from sim.why.explain_epochs import explain_epochs
    from topologies import from_spec
    from topologies.units import format_time

    check_outputs(arguments)
    base = from_spec(arguments.topology, arguments.link_bandwidth, arguments.link_latency, arguments.hop_latency)
    form = arguments.form or ("bandwidth" if arguments.collective == "all-reduce" and arguments.algorithm in (
        "recursive-doubling", "swing", "mirrored-recursive-doubling") else None)
    choice = menu(build(arguments.algorithm, arguments.collective, base, arguments.size, form),
                  interfaces=arguments.interfaces, start_up=arguments.start_up)
    delay = arguments.delay
    plans = {"static": choice.static(), "every step": choice.every_step(delay), "two states": choice.two_state(delay),
             "stride rings": choice.segments(delay), "best": choice.best(delay)}
    rows: list[dict[str, Any]] = []
    model = make_model(chunks=arguments.chunks, forwarding="store-and-forward")
    for name, plan in plans.items():
        epochs = lower_plan(choice, plan, delay, model, per_port=arguments.per_port)
        outcome = run_program(epochs.program, log=True)
        check_circuits(epochs, outcome)
        why = explain_epochs(epochs, outcome, choice.start_up_ps)
        rows.append({"policy": name, "plan_s": plan.time_ps / 1e12, "simulated_s": outcome.makespan_ps / 1e12,
                     "reconfigurations": plan.reconfigurations, "letters": plan.letters, "why": why.parts,
                     "fabrics": [choice.fabrics[fabric].name for fabric in plan.fabrics]})
    if arguments.json:
        write_text(arguments.json, json.dumps({"rows": rows}, indent=1) + "\n")
    if arguments.json != "-":
        print(f"{choice.schedule.name} {arguments.collective} of {arguments.size} on {base.name}, delay {delay}")
        print("  B: base circuits; R: others, switched before the step; m: the same as in the step before")
        for row in rows:
            planned, found = (format_time(row[key] * 1e12) for key in ("plan_s", "simulated_s"))
            print(f"  {row['policy']:<13} plan {planned:>9}  simulated {found:>9}  "
                  f"{row['reconfigurations']:>3} switches  {row['letters']}")
        print("  the best plan, by what its critical path was spent on:")
        for name, part_ps in rows[-1]["why"].items():
            print(f"    {format_time(part_ps):>9}  {name}")
    return 0
