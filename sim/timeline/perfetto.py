"""Timelines for Perfetto: a run as Chrome trace JSON, gzipped, for https://ui.perfetto.dev or chrome://tracing.

A process is a node; its tracks are its outgoing links and its compute streams, one each, for slices of one track must
not overlap. A slice is one chunk in service. Arrows lead from what a transfer waited for to its start. Counters show
which share of the links of each dimension is busy, in `BINS` bins. Times are exact: microseconds with six decimals.
Of a run with faults, services whose chunk was lost are named so, and marks show when a link or a stream goes down,
changes its speed or is repaired.

The passes of an iteration for Perfetto: a process for each rank of the pipeline.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collectives import Schedule
from sim.lower.job import lower
from sim.program.contract import DOWN, I64, Program
from sim.program.model import Model
from sim.timeline.timeline import Timeline, rows_of
from sim.version import weft_version
from topologies.checks import WeftError, checked
from topologies.stages import staged
from workloads.job import Job
from workloads.passes.iteration import Iteration
from workloads.passes.orders import order_of
from workloads.passes.tape import Begun, Work
from workloads.passes.timeline import Timed

BINS = 200
MOST_EVENTS = 3_000_000
"""Slices and arrows of one file: more than Perfetto shows at ease."""

_PS_PER_US = 1e6
_BATCH = 10_000

Event = dict[str, Any]


def check_size(work: Schedule | Job, model: Model, symmetry: str) -> None:
    """Reject a run whose timeline is too large to write, before it starts; faults may still make it so.

    WeftError: more than `MOST_EVENTS` slices and arrows.
    """
    program = lower(work, model, symmetry).program
    _check_count(program, program.chunk_hops())


def _check_count(program: Program, slices: int) -> None:
    count = slices + program.whole_edges()[0].size + program.stream_edges()[0].size
    if count > MOST_EVENTS:
        raise WeftError(
            f"the timeline has {count:,} slices and arrows; at most {MOST_EVENTS:,}: use fewer or larger chunks, a "
            "smaller fabric, or --symmetry auto"
        )


@staged("output")
@checked
def write_perfetto(timeline: Timeline, path: str | Path) -> None:
    """Write a timeline.

    Parameters
    ----------
    timeline : Timeline
    path : path
        Gzipped where it ends in .gz, plain JSON otherwise.

    Raises
    ------
    WeftError
        A run without a log, or one of more than `MOST_EVENTS` slices and arrows.
    """
    _check_count(timeline.program, rows_of(timeline).task.size)
    write_events(events(timeline), {"time_s": timeline.outcome.makespan_ps / 1e12, **timeline.about}, path)


def write_events(some: Iterator[Event], about: Mapping[str, Any], path: str | Path) -> None:
    """Write slices, marks and counters; gzipped where the name ends in .gz."""
    head = json.dumps({"displayTimeUnit": "ns", "otherData": {"weft": weft_version(), **about}})[:-1]
    with Path(path).open("wb") as file:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                _write(packed, head, some)
        else:
            _write(file, head, some)


def _write(stream: Any, head: str, some: Iterator[Event]) -> None:
    stream.write((head + ', "traceEvents": [\n').encode())
    batch: list[str] = []
    before = b""
    for event in some:
        batch.append(json.dumps(event))
        if len(batch) == _BATCH:
            stream.write(before + ",\n".join(batch).encode())
            before, batch = b",\n", []
    if batch:
        stream.write(before + ",\n".join(batch).encode())
    stream.write(b"\n]}\n")


def events(timeline: Timeline) -> Iterator[Event]:
    """Names, slices, arrows and counters of a timeline."""
    places = _places(timeline)
    yield from _names(timeline, places)
    yield from _slices(timeline, places)
    yield from _marks(timeline, places)
    yield from _arrows(timeline, places)
    yield from _counters(timeline)


def _places(timeline: Timeline) -> list[tuple[int, int]]:
    """Process and thread number of each server; process 0 holds the counters."""
    number = {name: at for at, name in enumerate(timeline.processes, start=1)}
    return [(number[track.process], server + 1) for server, track in enumerate(timeline.tracks)]


def _names(timeline: Timeline, places: Sequence[tuple[int, int]]) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "utilization"}}
    for pid in sorted({pid for pid, _ in places}):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": timeline.processes[pid - 1]}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for (pid, tid), track in zip(places, timeline.tracks, strict=True):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track.thread}}
        order = tid if track.category == "link" else tid - len(places)
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": order}}


def _slices(timeline: Timeline, places: Sequence[tuple[int, int]]) -> Iterator[Event]:
    rows = rows_of(timeline)
    chunks = timeline.program.chunks()
    names: dict[int, str] = {}
    facts: dict[int, dict[str, Any]] = {}
    columns = (rows.task, rows.chunk, rows.server, rows.start_ps, rows.service_ps, rows.lost)
    for task, chunk, server, start, service, lost in zip(*(column.tolist() for column in columns), strict=True):
        if start < 0:
            continue
        if task not in names:
            names[task], facts[task] = timeline.task_name(task), timeline.task_facts(task)
        pid, tid = places[server]
        of = {"chunk": f"{chunk + 1} of {int(chunks[task])}"} if chunks[task] > 1 else {}
        yield {
            "ph": "X", "name": f"{names[task]}, lost" if lost else names[task],
            "cat": timeline.tracks[server].category, "pid": pid, "tid": tid,
            "ts": start / _PS_PER_US, "dur": service / _PS_PER_US, "args": {**facts[task], **of},
        }


def _marks(timeline: Timeline, places: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """When servers go down, change their speed and are repaired, while anything runs."""
    program = timeline.program
    for server in np.flatnonzero(np.diff(program.timetable_ptr)).tolist():
        rows = slice(program.timetable_ptr[server], program.timetable_ptr[server + 1])
        columns = (program.timetable_from_ps, program.timetable_rate, program.timetable_latency_ps)
        pid, tid = places[server]
        for time, rate, latency in zip(*(column[rows].tolist() for column in columns), strict=True):
            healthy = rate == program.server_rate[server] and latency == 0
            if time <= timeline.outcome.makespan_ps:
                yield {
                    "ph": "i", "s": "t", "name": "down" if rate == DOWN else "as built" if healthy else "slowed",
                    "cat": "fault", "pid": pid, "tid": tid, "ts": time / _PS_PER_US,
                }


def _arrows(timeline: Timeline, places: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """From the last service of what was waited for (the first, chunk by chunk) to the first of what waited."""
    program, rows = timeline.program, rows_of(timeline)
    shown = np.diff(rows.first) > 0
    stands_for = _last_parents(timeline, shown)
    whole, streamed = program.whole_edges(), program.stream_edges()
    parents = np.concatenate([whole[0], streamed[0]]).tolist()
    children = np.concatenate([whole[1], streamed[1]]).tolist()
    lags = np.concatenate([np.full(whole[0].size, -1), streamed[2]]).tolist()
    number = 0
    for parent, child, lag in zip(parents, children, lags, strict=True):
        if not shown[child] or lag > 0:
            continue
        source = parent if shown[parent] else stands_for.get(parent, -1)
        if source < 0 or source == child:
            continue
        first = rows.first[source] if lag == 0 and source == parent else rows.first[source + 1] - 1
        number += 1
        for phase, row in (("s", int(first)), ("f", int(rows.first[child]))):
            pid, tid = places[int(rows.server[row])]
            bound = {"bp": "e"} if phase == "f" else {}
            yield {
                "ph": phase, "id": number, "name": "waits", "cat": "dependency", "pid": pid, "tid": tid,
                "ts": int(rows.start_ps[row]) / _PS_PER_US, **bound,
            }


def _last_parents(timeline: Timeline, shown: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[int, int]:
    """For each join the task with services that it waited for the longest."""
    program, finish = timeline.program, timeline.outcome.finish_ps
    parents: dict[int, list[int]] = {}
    for edges in (program.whole_edges(), program.stream_edges()[:2]):
        for parent, child in zip(*(part.tolist() for part in edges), strict=True):
            if not shown[child]:
                parents.setdefault(child, []).append(parent)
    found: dict[int, int] = {}
    for join in sorted(parents, key=lambda task: (int(finish[task]), task)):
        last = max(parents[join], key=lambda task: (int(finish[task]), task))
        seen = {join}
        while not shown[last] and last not in found and last in parents and last not in seen:
            seen.add(last)
            last = max(parents[last], key=lambda task: (int(finish[task]), task))
        last = found.get(last, last)
        if shown[last]:
            found[join] = last
    return found


def _counters(timeline: Timeline) -> Iterator[Event]:
    makespan = timeline.outcome.makespan_ps
    if makespan == 0:
        return
    rows = rows_of(timeline)
    n_bins = min(BINS, makespan)
    edges = np.linspace(0, makespan, n_bins + 1)
    groups = list(dict.fromkeys(track.group for track in timeline.tracks if track.category != "late"))
    group_of = np.array([groups.index(track.group) if track.group in groups else -1 for track in timeline.tracks])
    for at, group in enumerate(groups):
        mine = (group_of[rows.server] == at) & (rows.start_ps >= 0)
        busy = _busy_before(edges, rows.start_ps[mine], rows.start_ps[mine] + rows.service_ps[mine])
        share = np.diff(busy) / (np.diff(edges) * np.count_nonzero(group_of == at))
        for edge, value in zip(edges.tolist(), [*share.tolist(), 0.0], strict=True):
            yield {
                "ph": "C", "name": f"{group}, busy %", "pid": 0, "ts": edge / _PS_PER_US,
                "args": {"busy": round(100 * value, 3)},
            }


def _busy_before(times: np.ndarray[Any, np.dtype[np.float64]], start_ps: I64, end_ps: I64) -> Any:
    """Service time done before each of `times`, of all services together."""
    total = np.zeros(times.size)
    for ends, sign in ((np.sort(start_ps), 1.0), (np.sort(end_ps), -1.0)):
        sums = np.concatenate([[0.0], np.cumsum(ends, dtype=np.float64)])
        count = np.searchsorted(ends, times)
        total += sign * (count * times - sums[count])
    return total


PASSES, MESSAGES = "passes", "messages"


def write_passes(found: Iteration, path: str | Path) -> None:
    """Write passes, the kernels in them, the collectives beside them, and messages; passes alone where that is much."""
    stages = order_of(found.plan.schedule).stages(found.plan.pp, found.plan.vp)
    inside = sum(len(found.scripts[stages[rank][one.chunk], one.kind])
                 for rank, mine in enumerate(found.pipeline.ranks) for timed in mine for one in timed.slot)
    about = {"model": found.plan.model.name, "time_s": found.time_s}
    write_events(_events(found, stages, inside <= MOST_EVENTS), about, path)


def _events(found: Iteration, stages: list[list[int]], inside: bool) -> Iterator[Event]:
    tracks = {PASSES: 1, MESSAGES: 2}
    for script in found.scripts.values():
        for item in script:
            if isinstance(item, Begun):
                tracks.setdefault(item.group, len(tracks) + 1)
    for rank, mine in enumerate(found.pipeline.ranks):
        pid = rank + 1
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"rank {rank} of the pipeline"}}
        for name, tid in tracks.items():
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        for timed in mine:
            names = [f"{one.kind} {one.batch}" + (f" of chunk {one.chunk}" if found.plan.vp > 1 else "")
                     for one in timed.slot]
            yield _slice(" & ".join(names), pid, 1, timed.begin, timed.end)
            if inside and len(timed.slot) == 1:
                yield from _inside(found, timed, stages[rank][timed.slot[0].chunk], pid, tracks)
        rest = {kind: f"{time / 1e12:.6g} s" for kind, time in found.parts[rank].items()}
        yield {**_slice("gradients, optimizer and weights", pid, 1, mine[-1].free, found.time_ps), "args": rest}
    for one in found.pipeline.messages:
        yield _slice(f"to rank {one.dst}", one.src + 1, 2, one.begin, one.end)


def _inside(found: Iteration, timed: Timed, stage: int, pid: int, tracks: dict[str, int]) -> Iterator[Event]:
    for item in found.scripts[stage, timed.slot[0].kind]:
        if isinstance(item, Work):
            yield _slice(item.kind, pid, 1, timed.begin + item.begin, timed.begin + item.end)
        elif isinstance(item, Begun):
            yield _slice(item.kind, pid, tracks[item.group], timed.begin + item.begin, timed.begin + item.end)


def _slice(name: str, pid: int, tid: int, begin_ps: int, end_ps: int) -> Event:
    return {"ph": "X", "name": name, "cat": "pass", "pid": pid, "tid": tid, "ts": begin_ps / 1e6,
            "dur": (end_ps - begin_ps) / 1e6}
