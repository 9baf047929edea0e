"""The better form of an algorithm at one size, found without simulating a form that cannot win."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from collectives import Schedule
from sim.analytic.bounds import bounds
from sim.engine.run import check_memory
from sim.lower.capacity import check_capacity
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.result import Result
from sim.study.choice import floor_of_all
from topologies import WeftError
from topologies.units import format_time


class BestForm(NamedTuple):
    """The fastest form, and the outcome of the others."""

    name: str  # of the fastest, as in `ready_forms`
    result: Result
    # by form: "35.1 us", "at least 104.7 us, not simulated", or why it cannot run or, under faults, end
    others: dict[str, str]


class Ready(NamedTuple):
    """A form that can run: its schedule, and a lower bound on its time."""

    schedule: Schedule
    lower_bound_ps: int


def ready_forms(
    forms: Sequence[str], schedule_of: Callable[[str], Schedule], model: Model, symmetry: str = "auto",
    *, chooses: bool = False,
) -> tuple[dict[str, Ready], dict[str, str]]:
    """The forms that can run, with their lower bounds, and why the others cannot.

    `schedule_of`: may reject a form with a `WeftError`.
    `symmetry`: {"auto", "off"}.
    `chooses`: whether chunks are still to be chosen; bounds then hold for all numbers that are tried.
    WeftError: every form is rejected, or too large for memory.
    """
    ready: dict[str, Ready] = {}
    refused: dict[str, str] = {}
    fault: WeftError | None = None
    for form in forms:
        try:
            ready[form] = _ready(schedule_of(form), model, symmetry, chooses and len(forms) > 1)
        except WeftError as wrong:
            refused[form] = str(wrong)
            fault = fault or wrong
    if fault is not None and not ready:
        raise fault
    return ready, refused


def _ready(schedule: Schedule, model: Model, symmetry: str, chooses: bool) -> Ready:
    check_capacity(schedule.pattern, schedule.pattern.p if symmetry == "off" else 1)
    lowered = lower(schedule, model, symmetry)
    check_memory(lowered.program, log=False)
    return Ready(schedule, floor_of_all(schedule, model, symmetry) if chooses else bounds(lowered).best_ps)


def best_form(
    ready: Mapping[str, Ready], simulate: Callable[[Schedule], Result], refused: Mapping[str, str] | None = None,
    *, prune: bool = True,
) -> BestForm:
    """Simulate the forms that may win, the one with the lowest bound first.

    A form whose lower bound exceeds the best simulated time cannot be faster and is not simulated. Ties go to the
    form named first, whatever the order of simulation.

    `ready`: of `ready_forms`.
    `refused`: of `ready_forms`; reported with the others.
    `prune`: False simulates all, for times that need not respect the bounds (analytic estimates, detours).
    Deadlock: faults leave no form that ends.
    """
    others = dict(refused or {})
    results: dict[str, Result] = {}
    stuck: dict[str, Deadlock] = {}
    for form in sorted(ready, key=lambda form: ready[form].lower_bound_ps):
        bound_ps = ready[form].lower_bound_ps
        if prune and results and bound_ps > min(result.time_ps for result in results.values()):
            others[form] = f"at least {format_time(bound_ps)}, not simulated"
        else:
            try:
                results[form] = simulate(ready[form].schedule)
            except Deadlock as wrong:
                stuck[form] = wrong
                others[form] = str(wrong)
    if not results:
        raise next(stuck[form] for form in ready)
    best = min((form for form in ready if form in results), key=lambda form: results[form].time_ps)
    others |= {form: format_time(result.time_ps) for form, result in results.items() if form != best}
    return BestForm(best, results[best], dict(sorted(others.items())))
