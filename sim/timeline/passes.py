"""The passes of an iteration for Perfetto: a process for each rank of the pipeline."""

from collections.abc import Iterator
from pathlib import Path

from sim.timeline.perfetto import MOST_EVENTS, Event, write_events
from workloads.passes.iteration import Iteration
from workloads.passes.orders import order_of
from workloads.passes.tape import Begun, Work
from workloads.passes.timeline import Timed

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
