"""`weft reconfigure`: the best static circuits for a collective, and every policy of switching them, simulated."""

import argparse
from typing import Any

from sim.cli.asked import spec_of
from sim.cli.compare import refusals
from sim.cli.flags import how
from sim.cli.output import say, write_json
from sim.cli.progress import progress
from sim.study.points import topology_of
from sim.study.policies import SHOWN, policies, row_of
from sim.study.tables import aligned, time_text
from topologies.optics import RINGS
from topologies.units import format_size, format_time


def run(arguments: argparse.Namespace) -> None:
    """Plan, simulate, print."""
    spec = spec_of(arguments).choosing()
    refused = refusals(spec, arguments)
    names = [name for name in spec.algorithms if name not in refused]
    with progress("reconfigure", 1 + len(SHOWN), arguments.quiet) as steps:
        found, bound_ps = policies(spec, names, how(arguments), steps.advance)
    rows = [row_of(one, bound_ps) for one in found]
    head = f"{spec.kind.name} of {format_size(spec.sizes_bytes[0])} on {spec.topology.spec}"
    optics = topology_of(spec).optics
    say(arguments, *report(head, rows, optics.only[0] if optics and optics.only else RINGS))
    write_json(arguments, spec, rows, model=spec.build_model(), refused=refused)


def report(head: str, rows: list[dict[str, Any]], first: str = RINGS) -> list[str]:
    """One line per policy, the bound, and where the time of the best goes."""
    table = [["policy", "algorithm", "circuits", "time", "over bound", "reconfigurations"]]
    for row in rows:
        form = row["form"].partition(", ")[0]
        name = f"{row['algorithm']} ({form})" if form else row["algorithm"]
        known, _, circuits = row["circuits"].partition("circuits=")
        over = row["over_bound"]
        table.append([
            row["policy"], name, circuits.split(",")[0] or (first if ":" in known else known),
            time_text(row["simulated_s"]), f"{over:+.1%}" if over < 9 else f"{1 + over:,.0f} times",
            str(row["reconfigurations"]),
        ])
    table.append(["bound", "any", "any", time_text(rows[0]["bound_s"]), "", ""])
    parts = [["critical path of the best", "time"]]
    parts += [[name, format_time(part_ps)] for name, part_ps in rows[-1]["why"].items()]
    return [
        f"# weft reconfigure: {head}",
        "# plans, step by step: B: first circuits; R: others, from then on; m: the same as before",
        aligned(table, left=3), aligned(parts, left=1),
    ]
