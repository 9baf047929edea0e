"""`weft schedule`: what a schedule sends, step by step; `--list` shows which algorithms there are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_figure, add_outputs, add_spec, spec_of
from sim.cli.output import STANDARD_OUTPUT, check_outputs, say, say_where, write_text, write_whole
from topologies import WeftError
from topologies.units import format_size

if TYPE_CHECKING:
    from collectives import Schedule
    from sim.study.spec import Spec

NAME = "schedule"
HELP = "describe the transfers of an algorithm; --list shows all algorithms"
EXAMPLES = (
    "weft schedule --list",
    "weft schedule --topology torus:4x4 --algorithm swing --form bandwidth -b 1M",
    "weft schedule --topology torus:4x4 --algorithm ring -b 1M --rank 5",
    "weft schedule --topology dgx-a100:2 --collective all-gather --algorithm pipelined --plot trees.png",
    "weft schedule --topology torus:8x8 --algorithm swing --form bandwidth --figure steps --plot steps.png",
    "weft schedule --topology dgx-a100:2 --collective all-gather --algorithm pipelined --msccl a.xml --msccl-trees 1",
    "weft schedule --topology torus:4x4 --algorithm ring -b 1M --goal ring.goal --htsim ring.cm",
)

MOST_LINES = 200
"""Transfers shown of one rank; the JSON has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_spec(parser, "topology", "collective")
    add_spec(parser, "sweep", leave_out=("sweep.end", "sweep.factor", "sweep.step"))
    parser.add_argument("--rank", type=int, metavar="R", help="show the transfers that this rank sends")
    parser.add_argument("--list", action="store_true", help="list algorithms by collective, with their limits")
    parser.add_argument("--goal-chunks", type=int, default=1, metavar="C", help="messages of a transfer in GOAL (1)")
    parser.add_argument("--msccl-trees", type=int, metavar="K", help="trees a root in MSCCL XML (the schedule's)")
    add_outputs(parser, "json", "plot", "goal", "htsim", "chakra", "msccl")
    add_figure(parser, "trees", "steps")


def run(arguments: argparse.Namespace) -> None:
    """Describe schedules, or list algorithms."""
    check_outputs(arguments)
    if arguments.list:
        say(arguments, *algorithms())
        if arguments.json:
            write_text(arguments.json, json.dumps({"algorithms": algorithm_facts()}, indent=1) + "\n")
        say_where(arguments)
        return
    spec = spec_of(arguments)
    if not spec.collective.algorithms:
        raise WeftError("no algorithm is given: write --algorithm swing, or --list to see them all")
    schedules = _schedules(spec)
    facts = [describe(schedule, arguments.rank) for schedule in schedules]
    written, traces = _exports(arguments, schedules), _traces(arguments, schedules)
    for one in facts:
        say(arguments, *lines(one))
    if arguments.json:
        write_text(arguments.json, json.dumps({"spec": spec.to_dict(), "schedules": facts}, indent=1) + "\n")
    if arguments.plot:
        write_whole(arguments.plot, lambda path: _draw(arguments, schedules, path))
    for path, text in written:
        write_text(path, text)
    for path, data in traces:
        write_whole(path, partial(_write_bytes, data))
    say_where(arguments)


def _traces(arguments: argparse.Namespace, schedules: list[Schedule]) -> list[tuple[str, bytes]]:
    """Chakra traces, one a rank, by file name."""
    if not arguments.chakra:
        return []
    from workloads.formats.chakra import write_trace
    from workloads.formats.chakra_writer import schedule_to_chakra

    if len(schedules) != 1 or arguments.chakra == STANDARD_OUTPUT:
        raise WeftError("--chakra writes one schedule to a file for each rank: name one algorithm, --form and a prefix")
    traces = schedule_to_chakra(schedules[0])
    return [(f"{arguments.chakra}.{rank}.et", write_trace(trace)) for rank, trace in enumerate(traces)]


def _exports(arguments: argparse.Namespace, schedules: list[Schedule]) -> list[tuple[str, str]]:
    """Names of files of foreign formats, and their texts."""
    if not (arguments.goal or arguments.htsim or arguments.msccl):
        return []
    if len(schedules) != 1:
        names = ", ".join(schedule.name for schedule in schedules)
        raise WeftError(
            f"--goal, --htsim and --msccl hold one schedule, and here are {names}: name one algorithm and --form"
        )
    texts = []
    if arguments.goal:
        from workloads.formats.goal_writer import schedule_to_goal

        texts.append((arguments.goal, schedule_to_goal(schedules[0], arguments.goal_chunks)))
    if arguments.htsim:
        from collectives.formats.htsim import to_htsim

        texts.append((arguments.htsim, to_htsim(schedules[0])))
    if arguments.msccl:
        texts.append((arguments.msccl, _msccl(schedules[0], arguments.msccl_trees)))
    return texts


def _msccl(schedule: Schedule, trees: int | None) -> str:
    from collectives import pipelined
    from collectives.formats.msccl_xml import to_msccl

    pattern = schedule.pattern
    if pattern.algorithm != pipelined.NAME:
        raise WeftError(f"--msccl writes the trees of {pipelined.NAME}, not {schedule.name}")
    up, down = pipelined.forests(pattern.topology, pattern.kind.name, trees, pattern.form or "two-phase")
    return to_msccl(pattern.kind.name, up, down, name=pattern.topology.name)


def _schedules(spec: Spec) -> list[Schedule]:
    """One for every algorithm, and for every form unless the spec names one."""
    topology, size = spec.build_topology(), spec.sizes_bytes[0]
    return [
        spec.build_schedule(name, topology, size, form or None)
        for name in spec.algorithms
        for form in spec.forms_of(name) or ("",)
    ]


def _write_bytes(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _draw(arguments: argparse.Namespace, schedules: Sequence[Schedule], path: Path) -> None:
    from sim.plots.figures import COLUMNS
    from sim.plots.trees import draw_steps, draw_trees

    if len(schedules) > 1:
        forms = ", ".join(schedule.name for schedule in schedules)
        raise WeftError(f"--plot draws one schedule: choose with --form or --algorithm among {forms}")
    width = COLUMNS[arguments.columns]
    if arguments.figure == "steps":
        draw_steps(schedules[0], path, width)
    else:
        draw_trees(schedules[0], path, arguments.rank or 0, width)


def algorithms() -> list[str]:
    """A table of algorithms by collective, and their limits."""
    from collectives import ALGORITHMS, COLLECTIVES
    from sim.study.tables import aligned

    table = [["algorithm", *COLLECTIVES]]
    for name, one in ALGORITHMS.items():
        cells = ["/".join(one.forms_of(kind)) or "yes" if kind in one.functions else "-" for kind in COLLECTIVES]
        table.append([name, *cells])
    lines = [aligned(table, left=1 + len(COLLECTIVES)), "#"]
    return lines + [f"# {name}: {one.help}; {one.limits}" for name, one in ALGORITHMS.items()]


def algorithm_facts() -> list[dict[str, Any]]:
    """The registry as plain data: name, help, limits, and the collectives with their forms."""
    from collectives import ALGORITHMS

    return [
        {"name": name, "help": one.help, "limits": one.limits, "options": dict(one.options),
         "collectives": {kind: list(one.forms_of(kind)) for kind in one.functions}}
        for name, one in ALGORITHMS.items()
    ]


def describe(schedule: Schedule, rank: int | None = None) -> dict[str, Any]:
    """Facts about a schedule, and the transfers of one rank if asked for.

    Raises
    ------
    WeftError
        No such rank, or a schedule too large to describe.
    """
    import numpy as np

    from sim.lower.capacity import check_capacity
    from sim.lower.quotient import quotient

    pattern = schedule.pattern
    if rank is not None and not 0 <= rank < pattern.p:
        raise WeftError(f"--rank {rank} is not there: ranks are 0 to {pattern.p - 1}")
    check_capacity(pattern, 1)
    shown = pattern.emit(np.array([0 if rank is None else rank]))
    facts = {
        "topology": schedule.topology.name,
        "collective": schedule.kind.name,
        "algorithm": pattern.algorithm,
        "form": pattern.form,
        "size_bytes": schedule.size_bytes,
        "ranks": pattern.p,
        "blocks": pattern.n_blocks,
        "block_bytes": schedule.block_bytes,
        "steps": int(shown.step.max(initial=-1)) + 1,
        "ports": int(np.unique(shown.port).size),
        "rank": 0 if rank is None else rank,
        "transfers_of_rank": int(shown.src.size),
        "bytes_sent_by_rank": int(shown.blocks.sum()) * schedule.block_bytes,
        "proof": schedule.proof,
        "symmetry": quotient(pattern, "first", 0).symmetry,
    }
    return facts | ({} if rank is None else {"transfers": _transfers(schedule, shown)})


def _transfers(schedule: Schedule, t: Any) -> list[dict[str, Any]]:
    return [
        {
            "step": int(t.step[row]),
            "port": int(t.port[row]),
            "to": schedule.topology.node_name(int(t.dst[row])),
            "blocks": int(t.blocks[row]),
            "bytes": int(t.blocks[row]) * schedule.block_bytes,
            "reduces": bool(t.reduces[row]),
            "after": [
                f"{schedule.topology.node_name(int(t.dep_src[at]))}#{int(t.dep_slot[at])}"
                for at in range(int(t.dep_ptr[row]), int(t.dep_ptr[row + 1]))
            ],
            "slot": int(t.slot[row]),
        }
        for row in range(t.src.size)
    ]


def lines(facts: dict[str, Any]) -> list[str]:
    """The facts for people."""
    from sim.study.tables import aligned

    form = f" ({facts['form']} form)" if facts["form"] else ""
    size, sent = format_size(facts["size_bytes"]), format_size(facts["bytes_sent_by_rank"])
    text = [
        f"# {facts['algorithm']}{form}: {facts['collective']} of {size} on {facts['topology']}",
        f"ranks      {facts['ranks']}",
        f"blocks     {facts['blocks']} of {format_size(facts['block_bytes'])}",
        f"steps      {facts['steps']} on {facts['ports']} ports",
        f"rank {facts['rank']:<5} sends {facts['transfers_of_rank']} transfers, {sent} in all",
        f"proof      {facts['proof']}",
        f"symmetry   {facts['symmetry']}",
    ]
    if "transfers" not in facts:
        return text
    table = [["#", "step", "port", "to", "bytes", "adds", "after (rank#transfer)"]]
    for one in facts["transfers"][:MOST_LINES]:
        table.append([
            str(one["slot"]), str(one["step"]), str(one["port"]), one["to"], str(one["bytes"]),
            "yes" if one["reduces"] else "no", " ".join(one["after"]),
        ])
    more = len(facts["transfers"]) - MOST_LINES
    return [*text, aligned(table), *([f"# and {more:,} more, all of them in the JSON"] if more > 0 else [])]
