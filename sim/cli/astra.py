"""`weft astra`: ASTRA-sim's inputs by ASTRA-sim's rules, to the nanosecond, and what ASTRA-sim does not say."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs
from sim.cli.output import check_outputs, say, say_where, write_text

if TYPE_CHECKING:
    from sim.astra.run import AstraResult

NAME = "astra"
HELP = "run ASTRA-sim's inputs by ASTRA-sim's own rules: the same summary lines, and what it changes in silence"
EXAMPLES = (
    "weft astra --workload allgather/all_gather --system system.json --network Ring_16npus.yml",
    "weft astra --workload traces/gpt --system system.json --network network.yml --comm-group groups.json --json -",
    "weft astra --workload traces/gpt --system system.json --network network.yml --backend unaware",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    group = parser.add_argument_group("input")
    group.add_argument("--workload", required=True, metavar="PREFIX", help="Chakra traces: PREFIX.<rank>.et")
    group.add_argument("--system", required=True, metavar="FILE", help="system file, JSON")
    group.add_argument("--network", required=True, metavar="FILE", help="network file of the analytical backends, YAML")
    group.add_argument("--comm-group", metavar="FILE", help="communicator groups, JSON")
    group = parser.add_argument_group("model")
    group.add_argument(
        "--backend", default="aware", metavar="WORD", help="aware or unaware of congestion (aware)"
    )
    group.add_argument(
        "--num-queues-per-dim", type=int, default=1, metavar="N", help="queues of a dimension (1), as in ASTRA-sim"
    )
    group.add_argument("--max-events", type=int, metavar="N", help="give up after N events")
    add_outputs(parser, "json")


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    from sim.astra.run import MOST_EVENTS, run_astra
    from topologies import WeftError

    check_outputs(arguments)
    most = MOST_EVENTS if arguments.max_events is None else arguments.max_events
    if most < 1:
        raise WeftError(f"--max-events {most}: at least 1")
    result = run_astra(
        arguments.workload, arguments.system, arguments.network, arguments.comm_group, backend=arguments.backend,
        queues=arguments.num_queues_per_dim, most_events=most,
    )
    say(arguments, *result.lines())
    if not arguments.quiet:
        for note in result.notes:
            print(f"# {note}", file=sys.stderr)
    if arguments.json:
        write_text(arguments.json, json.dumps(facts(arguments, result), indent=1) + "\n")
    say_where(arguments)


def facts(arguments: argparse.Namespace, result: AstraResult) -> dict[str, Any]:
    """The run as plain data; one row an NPU."""
    from sim.version import weft_version

    names = ("workload", "system", "network", "comm_group", "backend", "num_queues_per_dim")
    return {
        "weft": weft_version(), "spec": {name: getattr(arguments, name) for name in names},
        "topology": result.network.spec, "cycles": max(result.cycles), "busiest_link_cycles": result.busiest_ns,
        "events": result.events, "notes": list(result.notes),
        "rows": [
            {
                "npu": npu, "cycles": result.cycles[npu], "exposed_cycles": result.exposed[npu],
                "time_s": result.cycles[npu] / 1e9,
            }
            for npu in result.order
        ],
    }
