"""`python -m benchmarks.programs`: what schedules cost as programs of MSCCL and MSCCL++: docs/reference/programs.md.

Each is written, read back and proved; its time at 64 MiB is over that of the schedule, 64 chunks a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collectives import Schedule, algorithm, build
from collectives.core.schedule import schedule
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_order import cut_of
from collectives.formats.msccl_program import parse_msccl
from collectives.formats.msccl_xml import to_msccl
from collectives.formats.mscclpp import cut_of as plan_cut_of
from collectives.formats.mscclpp import plan_pattern
from collectives.formats.mscclpp_json import to_mscclpp
from collectives.formats.mscclpp_plan import parse_plan
from sim import simulate
from sim.whole_file import write_text_whole
from topologies import WeftError, from_spec

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "programs.md"
SPECS = ("torus:4x4", "torus:8x8", "dgx-a100:2", "mi250:2", "fat-tree:4", "hypercube:4")
NAMES = ("ring", "swing", "direct", "pat", "tacos", "nccl-rings", "double-binary-tree", "bucket", "pipelined")
KINDS = ("all-gather", "reduce-scatter", "all-reduce")
SIZE, CHUNKS = "64MiB", 64
PLANNED = ("torus:4x4", "dgx-a100:2", "fat-tree:4")
"""Fabrics whose schedules are written as plans of MSCCL++ too."""

HEAD = """# Schedules as programs

`python -m benchmarks.programs` writes this page. Every schedule is written as MSCCL XML, on some fabrics as an
execution plan of MSCCL++ too, read back and proved. Times are those of the program over those of the schedule at 64
MiB, 64 chunks a transfer; below 1 where ranks of the schedule wait for whole transfers, and the runtime only for slices
of the runs of chunks that they carry, or where contention on the way happens to fall otherwise. Programs have no links:
`pipelined` on mi250:2 has one tree a root, which its routes suit, and 1.107 of the load of the busiest link at the
optimum. Elements are those of the XML, of which Azure's executor loads 4,096.

| fabric | collective | algorithm | channels | thread blocks | steps | elements | time | MSCCL++: thread blocks | time |
|---|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Write the page."""
    lines = [HEAD.rstrip("\n")]
    for spec in SPECS:
        for line in rows(spec):
            print(line, flush=True)
            lines.append(line)
    write_text_whole(PAGE, "\n".join(lines) + "\n")


def rows(spec: str) -> Iterator[str]:
    """Rows of one fabric."""
    topology = from_spec(spec)
    for kind in KINDS:
        for name in NAMES:
            if kind not in algorithm(name).functions:
                continue
            options = {"k": 1} if (spec, name) == ("mi250:2", "pipelined") else {}
            form = "two-phase" if (name, kind) == ("pipelined", "all-reduce") else None
            try:
                given = build(name, kind, topology, SIZE, form, **options)
            except WeftError:
                continue  # does not take the fabric
            was = _time_s(given, name)
            algo = parse_msccl(text := to_msccl(given))
            read = schedule(msccl_pattern(algo, topology, cut_of(algo, given.size_bytes)), SIZE)
            blocks = [block for its in algo.gpus for block in its]
            cells = [1 + max(block.channel for block in blocks), max(map(len, algo.gpus)),
                     max(len(block.steps) for block in blocks), text.count("<") - text.count("</"),
                     f"{_time_s(read, name) / was:.3f}", *_plan(given, name, was)]
            yield f"| {spec} | {kind} | {name} | {' | '.join(map(str, cells))} |"


def _plan(given: Schedule, name: str, was: float) -> tuple[str, str]:
    if given.topology.name not in PLANNED or (name, given.kind.name) == ("pipelined", "all-reduce"):
        return "", ""
    plan = parse_plan(to_mscclpp(given))
    read = schedule(plan_pattern(plan, given.topology, plan_cut_of(plan, given.size_bytes)), SIZE)
    return str(max(map(len, plan.gpus))), f"{_time_s(read, name) / was:.3f}"


def _time_s(one: Schedule, name: str) -> float:
    return simulate(one, chunks=CHUNKS, discipline="lowest-chunk-first" if name == "pipelined" else "fifo").time_s


if __name__ == "__main__":
    main()
