"""The better form of an algorithm at one size, found without simulating a form that cannot win."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from collectives import Schedule
from sim.engine.run import check_memory
from sim.lower.capacity import check_capacity, least_ranks
from sim.lower.job import lower
from sim.program.flows import check_flows
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.result import Result
from sim.study.choice import fitting
from topologies import WeftError
from topologies.units import format_time


class BestForm(NamedTuple):
    """The fastest form, and the outcome of the others."""

    name: str  # of the fastest, as in `ready_forms`
    result: Result
    # by form: "35.1 us", "at least 104.7 us, not simulated", or why it cannot run or, under faults, end
    others: dict[str, str]


def ready_forms(
    forms: Sequence[str], schedule_of: Callable[[str], Schedule], model: Model, symmetry: str = "auto",
    engine: str = "chunk", chooses: bool = False,
) -> tuple[dict[str, Schedule], dict[str, str]]:
    """The schedules of the forms that can run, and why the others cannot.

    `schedule_of`: may reject a form with a `WeftError`.
    `symmetry`: {"auto", "off"}.
    `engine`: as in `simulate`; the fluid engine takes fewer schedules.
    `chooses`: whether the number of chunks is chosen, and may be what the buffers of links need.
    WeftError: every form is rejected, or too large for memory.
    """
    ready: dict[str, Schedule] = {}
    refused: dict[str, str] = {}
    fault: WeftError | None = None
    for form in forms:
        try:
            schedule = schedule_of(form)
            cut = fitting(schedule, model, symmetry) if chooses else model
            ready[form] = _checked(schedule, cut, symmetry, engine)
        except WeftError as wrong:
            refused[form] = str(wrong)
            fault = fault or wrong
    if fault is not None and not ready:
        raise fault
    return ready, refused


def _checked(schedule: Schedule, model: Model, symmetry: str, engine: str) -> Schedule:
    check_capacity(schedule.pattern, least_ranks(schedule.pattern, symmetry), model.chunks or 1)
    program = lower(schedule, model, symmetry).program
    check_memory(program, log=False)
    if engine == "fluid":
        check_flows(program)
    return schedule


def best_form(
    ready: Mapping[str, Schedule], simulate: Callable[[Schedule], Result], refused: Mapping[str, str] | None = None,
    *, floor: Callable[[Schedule], int] | None = None,
) -> BestForm:
    """Simulate the forms that may win, the one with the lowest bound first.

    A form whose lower bound exceeds the best simulated time cannot be faster and is not simulated, nor is one with the
    transfers of another. Ties go to the form named first, whatever the order of simulation.

    `ready`: of `ready_forms`.
    `refused`: of `ready_forms`; reported with the others.
    `floor`: a lower bound on the time of a schedule, in ps; without one, all are simulated.
    Deadlock: faults leave no form that ends.
    """
    others = dict(refused or {})
    results: dict[str, Result] = {}
    stuck: dict[str, Deadlock] = {}
    compare = floor if len(ready) > 1 else None
    least_ps = {form: compare(schedule) if compare else 0 for form, schedule in ready.items()}
    for form in sorted(ready, key=lambda form: least_ps[form]):
        if results and least_ps[form] > min(result.time_ps for result in results.values()):
            others[form] = f"at least {format_time(least_ps[form])}, not simulated"
        elif same := [one for one in results if _are_the_same(ready[one], ready[form])]:
            results[form] = results[same[0]]  # named after it, so never the one that is returned
        else:
            try:
                results[form] = simulate(ready[form])
            except Deadlock as wrong:
                stuck[form] = wrong
                others[form] = str(wrong)
    if not results:
        raise next(stuck[form] for form in ready)
    best = min((form for form in ready if form in results), key=lambda form: results[form].time_ps)
    others |= {form: format_time(result.time_ps) for form, result in results.items() if form != best}
    return BestForm(best, results[best], dict(sorted(others.items())))


def _are_the_same(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules differ in nothing but the name of the form."""
    mine, its = one.pattern, other.pattern
    sizes = one.size_bytes == other.size_bytes and one.element_bytes == other.element_bytes
    return sizes and mine.emit is its.emit and mine.topology is its.topology
