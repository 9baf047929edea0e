"""Form, chunks and discipline that suit a point, where the user leaves the choice: bounds first, then a few short runs.

More chunks shorten the fill of a pipeline, which takes (height - 1) chunk times, at the cost of services to simulate;
the paths of the schedule, each transfer alone on its route, say how much is to be gained. What bounds cannot rule out
is simulated, within a budget of services. The model that is given is the first that is run, so that the choice is never
slower; where its chunks do not fit the buffers of links, as many more as do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import ceil, inf
from typing import Generic, NamedTuple, Protocol, TypeVar

from collectives import Schedule
from collectives.core.proof import ScheduleError
from sim.analytic.bounds import bounds, busy_and_path_ps, load_ps
from sim.analytic.unlowered import whole_of
from sim.engine.run import FOREVER_PS, check_size
from sim.faults.plan import FaultPlan
from sim.how import AS_USUAL, How
from sim.lower.capacity import check_capacity, least_ranks
from sim.lower.job import lower
from sim.optimizer.circuits import (
    EVERY_STEP,
    PLANNED,
    STATIC,
    orders_of,
    planned_by,
    planners_of,
    policy_below,
    tried_with,
)
from sim.program.flows import check_flows
from sim.program.model import Model
from sim.program.outcome import CertificateError, Deadlock, Outrun, Stopped
from sim.program.retime import SHARE
from sim.result import Result
from sim.study.overlap import OVERLAPPED, divided, overlapped
from topologies import WeftError
from topologies.core.epochs import packet_links
from topologies.optics import layouts
from topologies.units import PS_PER_S, format_time
from workloads.job import Job

LADDER = (64, 32, 256, 4, 1, 1024, 4096)
"""Chunks per transfer that are tried, the most promising first; all beside those of the model."""

FINEST_BYTES = 1024
"""Transfers are not cut finer than packets, but for the chunks of the model."""

FINE = 256
"""Chunks per transfer for which circuits are planned too, beside one and those of the best static run."""

TRIAL_SERVICES = 2_000_000
"""Limit on the services of all trials of a schedule: a third of a second. Two runs are always within it."""

WORTH = 0.01
"""Share of the time that another number of chunks must be able to save to be tried."""

Run = Callable[[Schedule, Model, int], Result]
"""A run, and a limit on its time in ps: `Outrun` where it takes longer, or the run all the same."""


def choose(
    schedule: Schedule, model: Model, run: Run, *, symmetry: str = "auto", discipline: str | None = None,
    limit_ps: int = FOREVER_PS,
) -> Result:
    """The fastest run among a few numbers of chunks, and two disciplines if the schedule was designed for another.

    `model`: the first that is run; the choice changes `chunks` and `discipline` only.
    `symmetry`: {"auto", "off"}.
    `discipline`: the discipline that the schedule was designed for.
    `limit_ps`: what is slower need not be run to its end; the choice is the same whatever it is.
    Outrun: the choice takes longer than `limit_ps`.
    """
    least = least_chunks(schedule, model, symmetry)
    model = fitting(schedule, model, symmetry)
    lowered, best = lower(schedule, model, symmetry), None
    program, may_switch = lowered.program, schedule.topology.optics is not None
    trials = [*_trials(model, discipline, int(lowered.task_bytes.max(initial=0)))]
    worth_ps = _far_beyond(limit_ps, len(trials))
    with suppress(Outrun):
        best = run(schedule, model, worth_ps)
        program = best.program if may_switch else program
    load_of = partial(load_ps, latencies=not model.packet_header_bytes)  # of which fewer chunks have fewer
    least_ps = load_of(program)
    chunks, services = model.chunks or 1, program.chunk_hops()
    left, ran = max(TRIAL_SERVICES, 2 * services), {(model.discipline, services)}
    for later, trial in enumerate(trials, 1 - len(trials)):
        worth_ps = min(_far_beyond(limit_ps, -later), _worth_ps(best) if best else FOREVER_PS)
        many = services * (trial.chunks or 1) // chunks
        if many > left or least_ps > worth_ps or (trial.chunks or least) < least:
            continue
        program = lower(schedule, trial, symmetry).program
        if max(busy_and_path_ps(program)) > worth_ps:
            continue
        if (cut := (trial.discipline, program.chunk_hops())) in ran:  # small transfers have no more bytes to cut
            left -= cut[1]
            continue
        try:
            found = run(schedule, trial, worth_ps)
        except Deadlock:  # in its buffers: another number of chunks waits in another order
            continue
        except Outrun:
            pass
        else:
            if found.time_ps <= worth_ps:  # of some runs, as on circuits, the limit is none
                best, program = found, found.program if may_switch else program
                least_ps = load_of(program)
                chunks, services = trial.chunks or 1, program.chunk_hops()
        left -= cut[1]
        ran.add(cut)
    if best is None or best.time_ps > limit_ps:
        raise Outrun(limit_ps)
    return best


def _far_beyond(limit_ps: int, trials: int) -> int:
    """A limit beyond which a run changes no choice within `limit_ps`.

    Each of the trials that are left has to be better by a share; so one within its own limit is better than whatever
    was beyond the limit before.
    """
    return int(min(FOREVER_PS, limit_ps / (1 - WORTH) ** trials + 1))


def _worth_ps(best: Result) -> int:
    """The most that a run may take to be better by a share of the time."""
    return ceil(best.time_ps * (1 - WORTH)) - 1


def _trials(model: Model, discipline: str | None, largest_bytes: int) -> Iterator[Model]:
    designed = model if discipline is None else replace(model, discipline=discipline)
    if designed != model:
        yield designed
    for one in dict.fromkeys((designed, model)):
        yield from (replace(one, chunks=chunks) for chunks in _numbers(model, largest_bytes))


def _numbers(model: Model, largest_bytes: int) -> list[int]:
    """Numbers of chunks that are tried."""
    return [one for one in LADDER if one < (model.chunks or 0) or largest_bytes >= one * FINEST_BYTES]


def floor_of_all(schedule: Schedule, model: Model, symmetry: str = "auto") -> int:
    """Lower bound on the time with any number of chunks that is tried.

    Whole transfers load links the least, and the most chunks fill a path the soonest.
    """
    if (alone := whole_of(schedule, model)) is not None:  # where nothing follows chunk by chunk, they do that as well
        return max(alone.load_ps, alone.path_ps)
    model = _unbuffered(fitting(schedule, model, symmetry))  # buffers only slow down
    largest_bytes = int(lower(schedule, model, symmetry).task_bytes.max(initial=0))
    most = max(model.chunks or 1, *_numbers(model, largest_bytes))
    whole = bounds(lower(schedule, replace(model, chunks=1), symmetry))
    if whole.load_ps == whole.best_ps or most == 1:
        return whole.best_ps
    finest = bounds(lower(schedule, replace(model, chunks=most), symmetry))
    return int(max(min(one) for one in zip(whole, finest, strict=True)))


def unchunked_load_ps(schedule: Schedule, model: Model, symmetry: str = "auto") -> int:
    """The work of the busiest server in whole transfers, of which it has the least, before services are rounded up."""
    if (alone := whole_of(schedule, model)) is not None:
        return alone.unrounded_ps
    whole = replace(_unbuffered(fitting(schedule, model, symmetry)), chunks=1)
    program = lower(schedule, whole, symmetry).program
    return max(0, busy_and_path_ps(program)[0] - program.chunk_hops())


def fitting(schedule: Schedule, model: Model, symmetry: str = "auto") -> Model:
    """The model with its number of chunks, or as many more as the buffers of links need."""
    least = least_chunks(schedule, model, symmetry)
    return model if least <= (model.chunks or 1) else replace(model, chunks=least)


def least_chunks(schedule: Schedule, model: Model, symmetry: str = "auto") -> int:
    """The least number of chunks of which the largest fits the buffers of links, and the turns of a rotor's circuits.

    1 where none does, or all do.
    """
    optics, rooms = schedule.topology.optics, list[int]()
    if model.buffer_bytes is not None:
        rooms.append(model.buffer_bytes // (1 + model.bubble) - model.packet_header_bytes)
    if optics is not None and optics.dwell_ps:
        fits = optics.rate_Bps * optics.dwell_ps / PS_PER_S * (1 - 2 * SHARE)  # in perturbed runs too
        rooms.append(int(fits) - model.packet_header_bytes)
    if not rooms:
        return 1
    room_bytes = min(rooms)
    largest_bytes = int(lower(schedule, _unbuffered(model), symmetry).task_bytes.max(initial=0)) + model.header_bytes
    return max(1, -(-largest_bytes // room_bytes)) if room_bytes > 0 else 1


def _unbuffered(model: Model) -> Model:
    return model if model.buffer_bytes is None else replace(model, buffer_bytes=None, credit_ps=None, bubble=False)


class Timed(Protocol):
    """What a run returns."""

    @property
    def time_ps(self) -> int:
        """Of the whole run."""


R = TypeVar("R", bound=Timed)


class BestForm(NamedTuple, Generic[R]):
    """The fastest form, and the outcome of the others."""

    name: str  # of the fastest, as in `ready_forms`
    result: R
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
    WeftError: every form is rejected, or too large for memory; why the first is that there is a schedule of, if any is.
    """
    ready: dict[str, Schedule] = {}
    refused: dict[str, str] = {}
    faults: list[tuple[bool, WeftError]] = []
    for form in forms:
        schedule = None
        try:
            schedule = schedule_of(form)
            cut = fitting(schedule, model, symmetry) if chooses else model
            ready[form] = _checked(schedule, cut, symmetry, engine)
        except WeftError as wrong:
            refused[form] = str(wrong)
            faults.append((schedule is None, wrong))
    if faults and not ready:
        raise min(faults, key=lambda one: one[0])[1]
    return ready, refused


def _checked(schedule: Schedule, model: Model, symmetry: str, engine: str) -> Schedule:
    if engine == "chunk" and whole_of(schedule, model) is not None:  # few transfers, far from all limits
        return schedule
    check_capacity(schedule.pattern, least_ranks(schedule.pattern, symmetry), model.chunks or 1)
    program = lower(schedule, model, symmetry).program
    check_size(program, log=False, asked=True)
    if engine == "fluid":
        check_flows(program)
    return schedule


def best_form(
    ready: Mapping[str, Schedule], simulate: Callable[[Schedule], R], refused: Mapping[str, str] | None = None,
    *, floor: Callable[[Schedule], int] | None = None,
) -> BestForm[R]:
    """Simulate the forms that may win, the one with the lowest bound first.

    A form whose lower bound exceeds the best simulated time cannot be faster and is not simulated, nor is one with the
    transfers of another. Ties go to the form named first, whatever the order of simulation.

    `ready`: of `ready_forms`.
    `refused`: of `ready_forms`; reported with the others.
    `floor`: a lower bound on the time of a schedule, in ps; without one, all are simulated.
    Deadlock: faults leave no form that ends.
    Outrun: no form ends within the limit of `simulate`.
    """
    others = dict(refused or {})
    results: dict[str, R] = {}
    slow: dict[str, Outrun] = {}
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
            except Outrun as outrun:
                slow[form] = outrun
                others[form] = f"more than {format_time(outrun.limit_ps)}, not simulated to its end"
            except Deadlock as wrong:
                stuck[form] = wrong
                others[form] = str(wrong)
    if not results:
        raise next((slow or stuck)[form] for form in ready if form in (slow or stuck))
    best = min((form for form in ready if form in results), key=lambda form: results[form].time_ps)
    others |= {form: format_time(result.time_ps) for form, result in results.items() if form != best}
    return BestForm(best, results[best], dict(sorted(others.items())))


def _are_the_same(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules differ in nothing but the name of the form."""
    mine, its = one.pattern, other.pattern
    sizes = one.size_bytes == other.size_bytes and one.element_bytes == other.element_bytes
    return sizes and mine.emit is its.emit and mine.topology is its.topology


def switched_form(
    ready: Mapping[str, Schedule], best: BestForm[Result], run: Callable[[Schedule | Job, Model], Result],
    how: How = AS_USUAL, *, chooses: bool = False, limit_ps: int = FOREVER_PS, faults: FaultPlan | None = None,
) -> BestForm[Result]:
    """The best of static circuits, of plans on others, which may switch them, or of steps overlapped with switching.

    `ready`: schedules by form, on the circuits of the fabric or other static ones.
    `chooses`: as in `models_of_plans`.
    `faults`: of the run; the plans of `tried_with` are all run with them.
    `limit_ps`: no plans are sought that take longer, unless something goes on while circuits switch.
    Outrun: then, all take longer.
    """
    static = best.result.job.of_schedule
    assert static is not None
    if (optics := static.topology.optics) is None or optics.dwell_ps:
        return best
    most_ps, healthy_ps = limit_ps, [best.result.faults.healthy_ps] if best.result.faults else []
    if optics.per_port or packet_links(static.topology).any():  # the whole of a plan may take less than its parts
        limit_ps = FOREVER_PS
    models = models_of_plans(best.result, chooses)
    for label, schedule in ready.items():
        if "circuits=" in label:
            continue
        if optics.only and len(layouts(schedule.topology)) == 1:  # nothing to switch to
            continue
        planners = cache(partial(planners_of, schedule, how=how))
        for model, (name, (policy, priced)) in product(models, tried_with(faults).items()):
            below_ps = min(best.result.time_ps if model == models[0] else _worth_ps(best.result), limit_ps + 1)
            if (most := policy_below(below_ps, schedule, model)) is None or (most == STATIC and policy == EVERY_STEP):
                continue
            try:
                of = planners(model, faults=priced), schedule, most if policy == PLANNED else policy
                plan = planned_by(*of, below_ps if faults is None else inf)
                stays = plan is schedule
                if stays and (model == models[0] or name != STATIC):  # as it has been run, or will have been
                    continue
                result = run(plan, model)
            except (CertificateError, ScheduleError, Stopped):
                raise
            except WeftError as wrong:  # such as a deadlock, or a rule for ties that cannot serve it there
                best.others[f"{label}, circuits={name}"] = str(wrong)
                continue
            healthy_ps += [result.faults.healthy_ps] if result.faults else []
            if result.time_ps < best.result.time_ps:
                others = best.others | {best.name: format_time(best.result.time_ps)}
                best = BestForm(label if stays else f"{label}, circuits={name}", result, others)
    if optics.per_port:
        ways = [(label, order, model) for label, schedule in ready.items() if "circuits=" not in label
                for model in models if policy_below(best.result.time_ps, schedule, model) == PLANNED
                for order in orders_of(schedule)]
        for label, _, result, _ in over_planes(ways, run, min(best.result.time_ps, most_ps + 1)):
            if result.time_ps < best.result.time_ps:
                others = best.others | {best.name: format_time(best.result.time_ps)}
                best = BestForm(f"{label}, circuits={OVERLAPPED}", result, others)
            healthy_ps += [result.faults.healthy_ps] if result.faults else []
    if best.result.time_ps > (most_ps if optics.per_port else limit_ps):
        raise Outrun(most_ps)
    if (cost := best.result.faults) is None:
        return best
    return best._replace(result=replace(best.result, faults=replace(cost, healthy_ps=min(healthy_ps))))


def over_planes(
    ways: Sequence[tuple[str, Schedule, Model]], run: Callable[[Job, Model], Result], limit_ps: float = inf
) -> list[tuple[str, Schedule, Result, int]]:
    """The runs of steps divided over ports that switch one by one: label, schedule, result, switches; not of all.

    `ways`: orders of schedules with their labels, each with a model of its runs.
    `limit_ps`: divisions that take as long are left out.
    """
    found = list[tuple[str, Schedule, Result, int]]()
    for at, division in divided([order for _, order, _ in ways], limit_ps):
        label, order, model = ways[at]
        with suppress(Deadlock):  # faults leave no end
            found.append((label, order, run(overlapped(order, division), model), division.switches))
    return found


def models_of_plans(static: Result, chooses: bool) -> list[Model]:
    """The model of the best static run; if chunks are chosen, those of whole transfers, which meet less, and many."""
    model, most = static.model, int(static.lowered.task_bytes.max(initial=0)) // FINEST_BYTES
    numbers = [one for one in (1, FINE) if least_chunks(static.schedule, model) <= one <= max(1, most)]
    return list(dict.fromkeys([model, *(replace(model, chunks=one) for one in numbers if chooses)]))
