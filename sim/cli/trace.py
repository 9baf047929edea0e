"""`weft trace`: the timeline of a schedule, of a training iteration, of a GOAL file or of Chakra traces."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.cli.asked import spec_of
from sim.cli.compare import ranges
from sim.cli.flags import how
from sim.cli.output import say, write_json, write_whole
from sim.cli.progress import progress
from sim.result import Result
from sim.simulation import simulate
from sim.study.deciding import deciding_alone
from sim.study.plans import no_model
from sim.study.points import Task, range_of, ready_point, simulate_ready
from sim.study.spec import Spec
from sim.study.tables import range_words
from sim.study.workload_keys import check_no_collective, check_no_workload, named
from sim.study.workload_runs import simulate_workload
from sim.timeline.perfetto import check_size, write_perfetto
from sim.timeline.timeline import Timeline
from topologies.checks import WeftError
from topologies.units import counted, format_size, format_time

MOST_RANKS = 64
"""Ranks whose end is printed."""


def run(arguments: argparse.Namespace) -> None:
    """Simulate with a log, print a summary, and write the timeline."""
    spec = spec_of(arguments)
    if spec.iteration.model is None:
        no_model(spec)
    with progress("trace", 1, arguments.quiet):
        timeline, lines, ends = (_job if named(spec.workload) or spec.iteration.model else _schedule)(arguments, spec)
        if arguments.perfetto:  # before anything is printed: it is refused if faults made it too large
            write_whole(arguments.perfetto, lambda path: write_perfetto(timeline, path))
    say(arguments, *lines)
    if not (arguments.perfetto or arguments.json):
        say(arguments, "# nothing is written: give --perfetto FILE for the timeline, or --json FILE for a summary")
    write_json(arguments, spec, [facts(timeline, ends)], model=spec.build_model())


def facts(timeline: Timeline, ends: Mapping[str, float | None]) -> dict[str, Any]:
    """The subject of a timeline, the range of its time, and how busy each of its tracks was."""
    busy = timeline.outcome.busy_ps.tolist()
    return {
        **timeline.about, "time_s": timeline.outcome.makespan_ps / 1e12, **ends, "slices": timeline.outcome.events,
        "tracks": [
            {"node": track.process, "track": track.thread, "group": track.group, "busy_s": time / 1e12}
            for track, time in zip(timeline.tracks, busy, strict=True)
        ],
    }


def _schedule(arguments: argparse.Namespace, spec: Spec) -> "Told":
    """The timeline of the point of `weft compare`, and its summary; of all ranks unless symmetry is requested."""
    check_no_workload(spec.workload, spec.training)
    names = spec.collective.algorithms or ()
    if len(names) != 1:
        raise WeftError("a timeline shows one schedule: name one --algorithm")
    if spec.engine != "chunk":
        raise WeftError(f"--engine {spec.engine} keeps no log of every chunk: a timeline needs the chunk engine")
    spec, symmetry, faults = spec.choosing(), spec.model.symmetry or "off", spec.build_faults()
    asked = how(arguments).arguments()
    task = Task(spec, names[0], spec.sizes_bytes[0], spread=spec.account.spread, **asked)
    ready, refused = ready_point(task, "off" if faults else symmetry)
    least = replace(spec.build_model(), chunks=1) if spec.chooses else spec.build_model()
    if arguments.perfetto:
        for schedule in ready.values():
            check_size(schedule, least, symmetry)
    found = simulate_ready(task, ready, refused).result
    schedule, model = found.schedule, found.model
    if arguments.perfetto:
        check_size(schedule, model, symmetry)
    result = simulate(schedule, model=model, symmetry=symmetry, log=True, faults=faults, **asked)
    what = f"{schedule.name}, {schedule.kind.name} of {format_size(schedule.size_bytes)} on {schedule.topology.name}"
    row = found.row() | (ends := range_of(task, found))
    told = [*spec.preset_notes, *(line for line in ranges(spec, [row]) if range_words(row))]
    told += [f"decided by a default: {line}" for line in deciding_alone(spec, [row], how(arguments))]
    return _told(result, what, ends, *(f"# {line}" for line in told))


def _job(arguments: argparse.Namespace, spec: Spec) -> "Told":
    check_no_collective(spec)
    opened, result = simulate_workload(spec, drawn=bool(arguments.perfetto), how=how(arguments))
    what = f"{opened.name} on {result.job.topology.name}, {counted(result.job.topology.n_npus, 'NPU')}"
    spread = result.spread(spec.account.spread) if spec.account.spread else None
    ends: dict[str, float | None] = {}
    if spread is not None:
        ends = {"spread_low_s": spread.low_s, "spread_high_s": spread.high_s}
    notes = [*(f"# {note}" for note in spec.preset_notes), *(f"# note: {note}" for note in opened.notes)]
    return _told(result, what, ends, *notes, *([] if opened.is_layers else _ends(result)))


Told = tuple[Timeline, list[str], dict[str, float | None]]
"""A timeline, its summary, and the range of its time: keys of a row, none of a job."""


def _told(result: Result, what: str, ends: dict[str, float | None], *more: str) -> Told:
    beside = range_words({"time_s": result.time_s, **ends})
    timeline = result.timeline()
    links, streams = (sum(track.category == kind for track in timeline.tracks) for kind in ("link", "compute"))
    compute = f" and {counted(streams, 'compute stream')}" if streams else ""
    return timeline, [
        f"# weft trace: {what}: {format_time(result.time_ps)}{beside}",
        f"# {result.assumptions}; {result.symmetry}",
        *(f"# {note}" for note in result.notes()),
        f"# {counted(timeline.outcome.events, 'slice')} on {counted(links, 'link direction')}{compute}",
        *more,
    ], ends


def _ends(result: Result) -> list[str]:
    """When each rank has done its last operation, as LogGOPSim prints it."""
    last: dict[int, int] = {}
    for span in result.spans():
        last[span.rank] = max(last.get(span.rank, 0), span.end_ps)
    lines = [f"Host {rank}: {end / 1e3:.3f} ns" for rank, end in sorted(last.items())[:MOST_RANKS]]
    return lines + ([f"# and {counted(len(last) - MOST_RANKS, 'more rank')}"] if len(last) > MOST_RANKS else [])
