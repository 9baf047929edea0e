"""Chunks and discipline that suit a schedule, where the user leaves the choice: bounds first, then a few short runs.

More chunks shorten the fill of a pipeline, which takes (height - 1) chunk times, at the cost of services to simulate;
the paths of the schedule, each transfer alone on its route, say how much is to be gained. What bounds cannot rule out
is simulated, within a budget of services. The model that is given is the first that is run, so that the choice is never
slower; where its chunks do not fit the buffers of links, as many more as do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from collectives import Schedule
from sim.analytic.bounds import bounds, busy_and_path_ps
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.result import Result

LADDER = (64, 32, 256, 4, 1, 1024, 4096)
"""Chunks per transfer that are tried, the most promising first; all beside those of the model."""

FINEST_BYTES = 1024
"""Transfers are not cut finer than packets, but for the chunks of the model."""

TRIAL_SERVICES = 2_000_000
"""Limit on the services of all trials of a schedule: a third of a second. Two runs are always within it."""

WORTH = 0.01
"""Share of the time that another number of chunks must be able to save to be tried."""

Run = Callable[[Schedule, Model], Result]


def choose(
    schedule: Schedule, model: Model, run: Run, *, symmetry: str = "auto", discipline: str | None = None
) -> Result:
    """The fastest run among a few numbers of chunks, and two disciplines if the schedule was designed for another.

    `model`: the first that is run; the choice changes `chunks` and `discipline` only.
    `symmetry`: {"auto", "off"}.
    `discipline`: the discipline that the schedule was designed for.
    """
    least = least_chunks(schedule, model, symmetry)
    model = fitting(schedule, model, symmetry)
    best = run(schedule, model)
    load_ps, _ = busy_and_path_ps(best.program)  # of any number of chunks, but for headers and the last chunk
    left = max(TRIAL_SERVICES, 2 * best.events)
    for trial in _trials(model, discipline, int(best.lowered.task_bytes.max(initial=0))):
        worth_ps = best.time_ps * (1 - WORTH)
        services = best.events * (trial.chunks or 1) // (best.model.chunks or 1)
        if services > left or load_ps > worth_ps or (trial.chunks or least) < least:
            continue
        if max(busy_and_path_ps(lower(schedule, trial, symmetry).program)) > worth_ps:
            continue
        try:
            found = run(schedule, trial)
        except Deadlock:  # in its buffers: another number of chunks waits in another order
            continue
        left -= found.events
        if found.time_ps < worth_ps:
            best, load_ps = found, busy_and_path_ps(found.program)[0]
    return best


def _trials(model: Model, discipline: str | None, largest_bytes: int) -> Iterator[Model]:
    designed = model if discipline is None else replace(model, discipline=discipline)
    if designed != model:
        yield designed
    for chunks in LADDER:
        if chunks < (model.chunks or 0) or largest_bytes >= chunks * FINEST_BYTES:
            yield replace(designed, chunks=chunks)


def floor_of_all(schedule: Schedule, model: Model, symmetry: str = "auto") -> int:
    """Lower bound on the time with any number of chunks that is tried."""
    model = _unbuffered(fitting(schedule, model, symmetry))  # buffers only slow down
    ends = (model, replace(model, chunks=1), replace(model, chunks=max(LADDER)))
    every = [bounds(lower(schedule, one, symmetry)) for one in ends]
    return int(max(min(one) for one in zip(*every, strict=True)))


def fitting(schedule: Schedule, model: Model, symmetry: str = "auto") -> Model:
    """The model with its number of chunks, or as many more as the buffers of links need."""
    least = least_chunks(schedule, model, symmetry)
    return model if least <= (model.chunks or 1) else replace(model, chunks=least)


def least_chunks(schedule: Schedule, model: Model, symmetry: str = "auto") -> int:
    """The least number of chunks of which the largest fits the buffers of links; 1 where none does, or all do."""
    if model.buffer_bytes is None:
        return 1
    room_bytes = model.buffer_bytes // (1 + model.bubble) - model.packet_header_bytes
    largest_bytes = int(lower(schedule, _unbuffered(model), symmetry).task_bytes.max(initial=0)) + model.header_bytes
    return max(1, -(-largest_bytes // room_bytes)) if room_bytes > 0 else 1


def _unbuffered(model: Model) -> Model:
    return replace(model, buffer_bytes=None, credit_ps=None, bubble=False)
