"""`weft astra`: ASTRA-sim's inputs by ASTRA-sim's rules, to the nanosecond, and what ASTRA-sim does not report."""

import argparse
import sys
from pathlib import Path
from typing import Any

from sim.astra.run import MOST_EVENTS, AstraResult, run_astra
from sim.cli.asked import spec_of
from sim.cli.output import say, write_json
from sim.cli.progress import progress
from sim.study.jobs import source_of
from sim.study.workload_keys import named
from topologies.checks import WeftError, printable
from workloads.formats.recognize import CHAKRA, LAYERS


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    spec = spec_of(arguments)
    most = MOST_EVENTS if arguments.max_events is None else arguments.max_events
    inputs, work = spec.astra, spec.workload
    name, source = str(named(work)), source_of(work)
    if source != CHAKRA and (source != LAYERS or Path(name).is_file()):
        raise WeftError(f"ASTRA-sim runs Chakra traces, and {name} is {source}: weft train and weft trace run it")
    with progress("astra", 1, arguments.quiet):
        result = run_astra(
            name, work.system or "", inputs.network or "", work.communicator,
            remote_memory=work.remote_memory, backend=inputs.backend, queues=inputs.num_queues_per_dim,
            most_events=most,
        )
    say(arguments, *result.lines())
    if not arguments.quiet:
        for note in result.notes:
            print(printable(f"# {note}"), file=sys.stderr)
    write_json(arguments, spec, rows_of(result), **facts(result))


def facts(result: AstraResult) -> dict[str, Any]:
    """The run as a whole."""
    return {
        "topology": result.network.spec, "cycles": max(result.cycles), "busiest_link_cycles": result.busiest_ns,
        "events": result.events, "notes": list(result.notes),
    }


def rows_of(result: AstraResult) -> list[dict[str, Any]]:
    """A row for each NPU."""
    return [
        {
            "npu": npu, "cycles": result.cycles[npu], "exposed_cycles": result.exposed[npu],
            "time_s": result.cycles[npu] / 1e9,
        }
        for npu in result.order
    ]
