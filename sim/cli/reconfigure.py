"""`weft reconfigure`: when to switch circuits inside a collective, planned and simulated."""

import argparse
from typing import Any

from collectives import build
from collectives.reconfigured import menu
from sim.cli.asked import spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_json
from sim.cli.progress import progress
from sim.cli.train import algorithm_of
from sim.program.model import make_model
from sim.scenarios.optical import simulate_plan
from sim.study.tables import aligned
from topologies.units import format_size, format_time
from workloads.reconfigured import plan_job

HALVING = ("recursive-doubling", "swing", "mirrored-recursive-doubling")
"""Algorithms whose all-reduce is planned in its bandwidth form unless another is named."""


def run(arguments: argparse.Namespace) -> None:
    """Plan, simulate, print."""
    spec = spec_of(arguments)
    base, circuits, name, delay = spec.build_topology(), spec.circuits, algorithm_of(spec), spec.circuits.delay
    size_bytes = spec.sizes_bytes[0]
    form = spec.collective.form or ("bandwidth" if spec.kind.name == "all-reduce" and name in HALVING else None)
    with progress("reconfigure", 1, arguments.quiet):
        choice = menu(build(name, spec.kind.name, base, size_bytes, form), interfaces=circuits.interfaces,
                      start_up=circuits.start_up)
        plans = {"static": choice.static(), "every step": choice.every_step(delay),
                 "two states": choice.two_state(delay), "stride rings": choice.segments(delay),
                 "best": choice.best(delay)}
    model = make_model(spec.build_model(), forwarding="store-and-forward")
    rows: list[dict[str, Any]] = []
    with progress("reconfigure: plans", len(plans), arguments.quiet) as steps:
        for policy, plan in plans.items():
            steps.begin(policy)
            job = plan_job(choice, plan, delay, per_port=circuits.per_port)
            result = simulate_plan(
                job, choice.start_up_ps, model, log=True, progress=steps.within, how=how(arguments)
            )
            rows.append({"policy": policy, "plan_s": plan.time_ps / 1e12, "simulated_s": result.time_s,
                         "reconfigurations": plan.reconfigurations, "letters": plan.letters, "why": result.why().parts,
                         "fabrics": [choice.fabrics[fabric].name for fabric in plan.fabrics]})
            steps.advance(policy)
    head = f"{choice.schedule.name} {spec.kind.name} of {format_size(size_bytes)} on {base.name}, delay {delay}"
    say(arguments, *report(head, rows))
    write_json(arguments, spec, rows, model=model)


def report(head: str, rows: list[dict[str, Any]]) -> list[str]:
    """One line per policy, and where the time of the best plan went."""
    table = [["policy", "steps", "plan", "simulated", "reconfigurations"]]
    table += [
        [row["policy"], row["letters"], *(format_time(row[key] * 1e12) for key in ("plan_s", "simulated_s")),
         str(row["reconfigurations"])]
        for row in rows
    ]
    parts = [["critical path of the best plan", "time"]]
    parts += [[name, format_time(part_ps)] for name, part_ps in rows[-1]["why"].items()]
    letters = "# B: base circuits; R: others, switched before the step; m: the same as in the step before"
    return [f"# weft reconfigure: {head}", letters, aligned(table, left=2), aligned(parts, left=1)]
