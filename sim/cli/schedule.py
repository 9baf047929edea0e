"""`weft schedule`: what a schedule sends, step by step; `--list` shows which algorithms there are."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from collectives import ALGORITHMS, COLLECTIVES, Schedule, pipelined
from collectives.formats.files import to_forestcoll
from collectives.formats.htsim import to_htsim
from collectives.formats.msccl_xml import to_msccl
from collectives.formats.mscclpp_json import to_mscclpp
from collectives.formats.ocs_plan import to_ocs_plan
from collectives.formats.played import busiest_s
from collectives.formats.teccl import to_teccl
from sim import plots
from sim.cli.asked import spec_of
from sim.cli.output import STANDARD_OUTPUT, say, write_json, write_text, write_whole
from sim.cli.progress import progress
from sim.lower.capacity import check_capacity
from sim.lower.quotient import quotient
from sim.optimizer.circuits import EVERY_STEP, planned
from sim.program.model import Model
from sim.study.spec import Spec
from sim.study.tables import aligned
from sim.whole_file import write_bytes_whole
from topologies.checks import WeftError
from topologies.core.paths import distinct_of
from topologies.units import counted, format_size
from workloads.formats.chakra import write_trace
from workloads.formats.schedule_writers import schedule_to_chakra, schedule_to_goal

MOST_LINES = 200
"""Transfers shown of one rank; the JSON has all."""

FEWER, MOST_BLOCKS, NEAR = (16, 8, 4, 2, 1), 1_024, 1.03
"""Trees of a root that are tried in programs, blocks above which they are, and load of the busiest link, in times of
the least, up to which the fewest are taken."""


def run(arguments: argparse.Namespace) -> None:
    """Describe schedules, or list algorithms."""
    spec = spec_of(arguments)
    if spec.schedule.list:
        say(arguments, *algorithms())
        registry = algorithm_facts()
        write_json(arguments, spec, registry, algorithms=registry)
        return
    with progress("schedule", 1, arguments.quiet):
        schedules = _schedules(spec)
        facts = [describe(schedule, spec.schedule.rank) for schedule in schedules]
        written, traces = _exports(arguments, spec, schedules), _traces(arguments, schedules)
    for one in facts:
        say(arguments, *lines(one))
    write_json(arguments, spec, facts, schedules=facts)
    if arguments.plot:
        root = spec.schedule.rank or 0
        write_whole(arguments.plot, lambda path: _draw(arguments, schedules, root, path))
    for path, text in written:
        write_text(path, text)
    for path, data in traces:
        write_bytes_whole(path, data)


def _traces(arguments: argparse.Namespace, schedules: list[Schedule]) -> list[tuple[str, bytes]]:
    """Chakra traces, one per rank, by file name."""
    if not arguments.chakra:
        return []
    if len(schedules) != 1 or arguments.chakra == STANDARD_OUTPUT:
        raise WeftError("--chakra writes one schedule to a file for each rank: name one algorithm, --form and a prefix")
    traces = schedule_to_chakra(schedules[0])
    return [(f"{arguments.chakra}.{rank}.et", write_trace(trace)) for rank, trace in enumerate(traces)]


def _exports(arguments: argparse.Namespace, spec: Spec, schedules: list[Schedule]) -> list[tuple[str, str]]:
    """File names of foreign formats, and their contents."""
    writers: dict[str, Callable[[Schedule], str]] = {
        "goal": lambda one: schedule_to_goal(one, arguments.goal_chunks), "htsim": to_htsim,
        "forestcoll": to_forestcoll, "teccl": to_teccl,
        "ocs_plan": lambda one: to_ocs_plan(planned(one, Model(chunks=1), policy=EVERY_STEP)),
        "mscclpp": lambda one: _program(arguments, spec, one, to_mscclpp),
        "msccl": lambda one: _program(arguments, spec, one, to_msccl),
    }
    asked = [(where, write) for name, write in writers.items() if (where := getattr(arguments, name))]
    if not asked:
        return []
    if len(schedules) != 1:
        names = ", ".join(schedule.name for schedule in schedules)
        raise WeftError(
            "--goal, --htsim, --ocs-plan, --msccl, --mscclpp, --forestcoll and --teccl hold one schedule, and here are "
            f"{names}: name one algorithm and --form"
        )
    return [(where, write(schedules[0])) for where, write in asked]


def _program(
    arguments: argparse.Namespace, spec: Spec, schedule: Schedule, write: Callable[[Schedule], str]
) -> str:
    """The program; of pipelined trees as many as fit and suit the routes of the fabric, unless the spec says how many.

    Programs name ranks and no links: between two ranks they go where the fabric leads.
    """
    pattern = schedule.pattern
    own, away = (busiest_s(schedule, named=named) for named in (True, False))
    chosen = {"k", "most_k", "loss", "paths"} & spec.options_of(pattern.algorithm).keys()
    may = pattern.algorithm == pipelined.NAME and not chosen
    many = may and (away > 1.01 * own or pattern.n_blocks > MOST_BLOCKS)
    refused: WeftError | None = None
    for one in (*([] if many else [schedule]), *(_fewer(spec, schedule) if may else ())):
        try:
            text = write(one)
        except WeftError as wrong:
            refused = wrong
            continue
        if (loss := busiest_s(one, named=False) / own - 1) > 0.001:
            roots = 1 if pattern.kind.rooted else pattern.p
            trees = "" if one is schedule else f", with {counted(one.pattern.n_blocks // roots, 'tree')} of a root"
            say(arguments, f"# programs take the routes of the fabric: {100 * loss:.1f} % more on the busiest "
                           f"link than here{trees}")
        return text
    assert refused is not None
    raise refused


def _fewer(spec: Spec, schedule: Schedule) -> Iterator[Schedule]:
    """The schedule and trees along routes of the fabric, the fewest of those that load links the least first."""
    choices, rooted = [schedule], schedule.pattern.kind.rooted
    numbers: list[dict[str, object]] = [{}] if rooted else [{"k": k} for k in FEWER]
    for more in numbers:
        with suppress(WeftError):  # does not fit past the switches
            on, size = schedule.topology, schedule.size_bytes
            choices.append(spec.build_schedule(pipelined.NAME, on, size, None, paths="routes", **more))
    load = [busiest_s(one, named=False) for one in choices]
    near = zip(choices, load, strict=True)
    yield from (one for one, _ in sorted(near, key=lambda at: (at[1] > NEAR * min(load), at[0].pattern.n_blocks)))


def _schedules(spec: Spec) -> list[Schedule]:
    """One for every algorithm, and for every form unless the spec names one."""
    topology, size = spec.build_topology(), spec.sizes_bytes[0]
    return [
        spec.build_schedule(name, topology, size, form or None)
        for name in spec.algorithms
        for form in spec.forms_of(name) or ("",)
    ]


def _draw(arguments: argparse.Namespace, schedules: Sequence[Schedule], root: int, path: Path) -> None:
    if len(schedules) > 1:
        forms = ", ".join(schedule.name for schedule in schedules)
        raise WeftError(f"--plot draws one schedule: choose with --form or --algorithm among {forms}")
    width = plots.COLUMNS[arguments.columns]
    if arguments.figure == "steps":
        plots.draw_steps(schedules[0], path, width)
    else:
        plots.draw_trees(schedules[0], path, root, width)


def algorithms() -> list[str]:
    """A table of algorithms by collective, and their limits."""
    table = [["algorithm", *COLLECTIVES]]
    for name, one in ALGORITHMS.items():
        cells = ["/".join(one.forms_of(kind)) or "yes" if kind in one.functions else "-" for kind in COLLECTIVES]
        table.append([name, *cells])
    lines = [aligned(table, left=1 + len(COLLECTIVES)), "#"]
    return lines + [f"# {name}: {one.help}; {one.limits}" for name, one in ALGORITHMS.items()]


def algorithm_facts() -> list[dict[str, Any]]:
    """The registry as plain data: name, help, limits, and the collectives with their forms."""
    return [
        {"name": name, "help": one.help, "limits": one.limits, "options": dict(one.options),
         "collectives": {kind: list(one.forms_of(kind)) for kind in one.functions}}
        for name, one in ALGORITHMS.items()
    ]


def describe(schedule: Schedule, rank: int | None = None) -> dict[str, Any]:
    """Facts about a schedule, and the transfers of one rank if asked for.

    WeftError: no such rank, or a schedule too large to describe.
    """
    pattern = schedule.pattern
    if rank is not None and not 0 <= rank < pattern.p:
        raise WeftError(f"--rank {rank} is not there: ranks are 0 to {pattern.p - 1}")
    check_capacity(pattern, 1)
    shown = pattern.emit(np.array([0 if rank is None else rank]))
    facts = {
        "topology": schedule.topology.name, "collective": schedule.kind.name, "algorithm": pattern.algorithm,
        "form": pattern.form, "size_bytes": schedule.size_bytes, "ranks": pattern.p, "blocks": pattern.n_blocks,
        "block_bytes": schedule.block_bytes, "steps": int(shown.step.max(initial=-1)) + 1,
        "ports": distinct_of(shown.port).size, "rank": 0 if rank is None else rank,
        "transfers_of_rank": int(shown.src.size), "bytes_sent_by_rank": int(shown.blocks.sum()) * schedule.block_bytes,
        "proof": schedule.proof, "symmetry": quotient(pattern, "first", 0).symmetry,
    } | ({"note": pattern.note} if pattern.note else {})
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
    """The facts as readable lines."""
    form = f" ({facts['form']} form)" if facts["form"] else ""
    size, sent = format_size(facts["size_bytes"]), format_size(facts["bytes_sent_by_rank"])
    text = [
        f"# {facts['algorithm']}{form}: {facts['collective']} of {size} on {facts['topology']}",
        f"ranks      {facts['ranks']}",
        f"blocks     {facts['blocks']} of {format_size(facts['block_bytes'])}",
        f"steps      {facts['steps']} on {counted(facts['ports'], 'port')}",
        f"rank {facts['rank']:<5} sends {counted(facts['transfers_of_rank'], 'transfer')}, {sent} in all",
        f"proof      {facts['proof']}",
        f"symmetry   {facts['symmetry']}",
        *([f"note       {facts['note']}"] if "note" in facts else []),
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
