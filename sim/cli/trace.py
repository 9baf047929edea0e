"""`weft trace`: the timeline of a schedule, of a training iteration, of a GOAL file or of Chakra traces."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectives import Schedule
from sim.cli.asked import spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_json, write_whole
from sim.cli.progress import progress
from sim.cli.train import algorithm_of, simulate_iteration
from sim.lower.capacity import check_capacity, least_ranks
from sim.result import Result
from sim.simulation import simulate
from sim.study.spec import Spec
from sim.timeline.perfetto import check_size, write_perfetto
from sim.timeline.timeline import Timeline
from topologies import Topology
from topologies.checks import WeftError
from topologies.units import counted, format_size, format_time
from workloads.formats.chakra_job import read_chakra
from workloads.formats.goal import read_goal
from workloads.job import Job

MOST_RANKS = 64
"""Ranks whose end is printed."""


def run(arguments: argparse.Namespace) -> None:
    """Simulate with a log, print a summary, and write the timeline."""
    spec = spec_of(arguments)
    if spec.workload.name and spec.workload.job:
        raise WeftError("--workload and --job are two jobs: give one of them")
    with progress("trace", 1, arguments.quiet):
        timeline, lines = (_job if spec.workload.name or spec.workload.job else _schedule)(arguments, spec)
        if arguments.perfetto:  # before anything is printed: it is refused if faults made it too large
            write_whole(arguments.perfetto, lambda path: write_perfetto(timeline, path))
    say(arguments, *lines)
    if not (arguments.perfetto or arguments.json):
        say(arguments, "# nothing is written: give --perfetto FILE for the timeline, or --json FILE for a summary")
    write_json(arguments, spec, [facts(timeline)], model=spec.build_model())


def facts(timeline: Timeline) -> dict[str, Any]:
    """The subject of a timeline, and how busy each of its tracks was."""
    busy = timeline.outcome.busy_ps.tolist()
    return {
        **timeline.about, "time_s": timeline.outcome.makespan_ps / 1e12, "slices": timeline.outcome.events,
        "tracks": [
            {"node": track.process, "track": track.thread, "group": track.group, "busy_s": time / 1e12}
            for track, time in zip(timeline.tracks, busy, strict=True)
        ],
    }


def _schedule(arguments: argparse.Namespace, spec: Spec) -> tuple[Timeline, list[str]]:
    """The timeline of a schedule, and its summary; of all ranks unless symmetry is requested."""
    schedule, symmetry = _one_schedule(spec), spec.model.symmetry or "off"
    if spec.engine != "chunk":
        raise WeftError(f"--engine {spec.engine} keeps no log of every chunk: a timeline needs the chunk engine")
    model, faults = spec.build_model(), spec.build_faults()
    check_capacity(schedule.pattern, least_ranks(schedule.pattern, "off" if faults else symmetry))
    if arguments.perfetto:
        check_size(schedule, model, symmetry)
    result = simulate(schedule, model=model, symmetry=symmetry, log=True, faults=faults, **how(arguments).arguments())
    what = f"{schedule.name}, {schedule.kind.name} of {format_size(schedule.size_bytes)} on {schedule.topology.name}"
    return _told(result, what)


def _one_schedule(spec: Spec) -> Schedule:
    names = spec.collective.algorithms or ()
    if len(names) != 1:
        raise WeftError("a timeline shows one schedule: name one --algorithm")
    forms = spec.forms_of(names[0])
    if len(forms) > 1:
        raise WeftError(f"{names[0]} has the forms {', '.join(forms)}: name one with --form")
    return spec.build_schedule(names[0], spec.build_topology(), spec.sizes_bytes[0], forms[0] if forms else None)


def _job(arguments: argparse.Namespace, spec: Spec) -> tuple[Timeline, list[str]]:
    if spec.workload.job:
        result, name = _foreign(arguments, spec, spec.workload.job), spec.workload.job
    else:
        workload, result = simulate_iteration(spec, drawn=bool(arguments.perfetto), how=how(arguments))
        name = workload.name
    what = f"{name} on {result.job.topology.name}, {counted(result.job.topology.n_npus, 'NPU')}"
    return _told(result, what, *(_ends(result) if spec.workload.job else []))


def _told(result: Result, what: str, *more: str) -> tuple[Timeline, list[str]]:
    """The timeline of a result, and its summary."""
    timeline = result.timeline()
    links, streams = (sum(track.category == kind for track in timeline.tracks) for kind in ("link", "compute"))
    compute = f" and {counted(streams, 'compute stream')}" if streams else ""
    return timeline, [
        f"# weft trace: {what}: {format_time(result.time_ps)}",
        f"# {result.assumptions}; {result.symmetry}",
        *(f"# {note}" for note in result.notes()),
        f"# {counted(timeline.outcome.events, 'slice')} on {counted(links, 'link direction')}{compute}",
        *more,
    ]


def _foreign(arguments: argparse.Namespace, spec: Spec, path: str) -> Result:
    """The run of a GOAL file, or of Chakra traces with this prefix."""
    model = spec.build_model()
    if spec.model.chunks is None and spec.model.chunk is None:
        model = replace(model, chunks=1)  # a message of GOAL is one chunk unless the user sets chunks
    job = read_job(path, spec.build_topology(), algorithm_of(spec, ("ring",)))
    symmetry = spec.model.symmetry or "off"
    if arguments.perfetto:
        check_size(job, model, symmetry)
    return simulate(
        job, model=model, engine=spec.engine, symmetry=symmetry, log=True, faults=spec.build_faults(),
        **how(arguments).arguments(),
    )


def read_job(path: str, topology: Topology, algorithm: str) -> Job:
    """The job of a GOAL file, or of Chakra traces with this prefix; the algorithm is that of their collectives."""
    return read_chakra(path, topology, algorithm) if Path(f"{path}.0.et").exists() else read_goal(path, topology)


def _ends(result: Result) -> list[str]:
    """When each rank has done its last operation, as LogGOPSim prints it."""
    last: dict[int, int] = {}
    for span in result.spans():
        last[span.rank] = max(last.get(span.rank, 0), span.end_ps)
    lines = [f"Host {rank}: {end / 1e3:.3f} ns" for rank, end in sorted(last.items())[:MOST_RANKS]]
    return lines + ([f"# and {counted(len(last) - MOST_RANKS, 'more rank')}"] if len(last) > MOST_RANKS else [])
