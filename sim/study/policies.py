"""The table of `weft reconfigure`: static circuits, every policy of switching them, and a bound on all of them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from collectives import Schedule
from collectives.reconfigured import Unswitchable, switched
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.engine.run import FOREVER_PS
from sim.how import AS_USUAL, How
from sim.lower.rotor import turns_of
from sim.optimizer.circuits import EVERY_STEP, PLANNED, POLICIES, STATIC, Plan, Planner, planners_of, tried_with
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.result import Result
from sim.simulation import simulate
from sim.study.choice import BestForm, models_of_plans, over_planes
from sim.study.overlap import OVERLAPPED
from sim.study.points import Task, floor_ps, ready_point, static_or_never, topology_of
from sim.study.spec import Spec
from topologies import WeftError
from topologies.units import PS_PER_S
from workloads.job import Job

BEST = "best"

SHOWN = (EVERY_STEP, PLANNED)
"""Policies of switching in the table; the others of `POLICIES` are parts of the last."""


class Found(NamedTuple):
    """The quickest run of a policy."""

    policy: str
    form: str  # and circuits, where they are static
    plan: Plan | None  # of circuits that are switched
    result: Result
    schedule: Schedule
    changes: int = 0


def policies(
    spec: Spec, names: Sequence[str], how: How = AS_USUAL, done: Callable[[str], None] = lambda policy: None
) -> tuple[list[Found], int]:
    """The quickest of each policy, over all algorithms and circuits, and a bound on any in ps; all are simulated.

    `names`: algorithms that can run.
    `done`: called after each policy.
    WeftError: a fabric whose circuits cannot be switched.
    """
    fabric, size = topology_of(spec), spec.sizes_bytes[0]
    if fabric.optics is None:
        raise WeftError(f"{fabric.name} has no circuits to switch: choose a fabric such as ocs:16x4")
    points = {name: ready_point(Task(spec, name, size, **how.arguments(), spread=0)) for name in names}
    static, stuck = _static(spec, points, how)
    model = static.result.model
    bound_ps = circuits_bound_ps(fabric, spec.kind, size, model)
    may_pay = circuits_bound_ps(fabric, spec.kind, size, model, least_changes=1) < static.result.time_ps
    faults = spec.build_faults()
    tried = dict.fromkeys(of for _, of in tried_with(faults).values())  # without faults first
    priced = {faults_of: sorted((
        (label, planner) for ready, _ in points.values() for label, schedule in ready.items()
        if "circuits=" not in label for one in models_of_plans(static.result, spec.chooses)
        for planner in planners_of(schedule, one, how, faults_of)
    ), key=lambda one: one[1].own_ps or static.result.time_ps) for faults_of in tried}

    def run(work: Schedule | Job, model: Model) -> Result:
        return simulate(work, model=model, symmetry=spec.symmetry, faults=faults, **how.arguments())

    def plans(policy: str, limit_ps: float) -> list[Found]:
        planned = _planned if faults is None else _run_with_faults
        return [one for planners in priced.values() for one in planned(policy, planners, run, limit_ps)]

    found = [Found(STATIC, static.name, None, static.result, static.result.schedule)]
    if bound_ps < static.result.time_ps:
        found += (one for one in plans(STATIC, static.result.time_ps) if one.changes == 0)
        found = [min(found, key=lambda one: one.result.time_ps)]
    done(STATIC)
    for policy in SHOWN:
        some = plans(policy, min(one.result.time_ps for one in found)) if policy == EVERY_STEP or may_pay else []
        if policy == PLANNED:  # to change nothing, or in every step, is a plan, too
            some = [found[0], *some, *found[1:]]
        found += [one._replace(policy=policy) for one in sorted(some, key=lambda one: one.result.time_ps)[:1]]
        done(policy)
    if fabric.optics.per_port and may_pay:
        ways = [(label, one.schedule, one.model) for label, one in priced[None]]
        some = [Found(OVERLAPPED, label, None, result, order, changes)
                for label, order, result, changes in over_planes(ways, run)]
        found += sorted(some, key=lambda one: one.result.time_ps)[:1]
    found = [one for one in found if one.result.time_ps < FOREVER_PS]
    if stuck is not None and not found:
        raise stuck
    best = min(found, key=lambda one: one.result.time_ps)
    return [*found, best._replace(policy=BEST)], bound_ps


def _static(spec: Spec, points: dict[str, Any], how: How) -> tuple[BestForm[Result], Deadlock | None]:
    """The best algorithm on the best static circuits, or one that never ends, and why."""
    best: tuple[BestForm[Result], Deadlock | None] | None = None
    floors = {name: floor_ps(spec, ready.values(), static=True) for name, (ready, _) in points.items()}
    for name in sorted(points, key=lambda name: floors[name]):
        if best is None or floors[name] < best[0].result.time_ps:
            task = Task(spec, name, spec.sizes_bytes[0], **how.arguments(), spread=0)
            found = static_or_never(task, *points[name])
            best = found if best is None or found[0].result.time_ps < best[0].result.time_ps else best
    assert best is not None
    return best


def _planned(
    policy: str, planners: Sequence[tuple[str, Planner]], run: Callable[..., Result], limit_ps: float
) -> list[Found]:
    """The quickest plan of a policy; none where no step has circuits of its own.

    `limit_ps`: of plans that take longer, some may be overlooked.
    """
    plans: list[tuple[int, int, Plan]] = []
    for at, (_, planner) in enumerate(planners):
        if plans and planner.least_ps >= min(plans)[0]:
            continue
        plan = planner.plan(policy, limit_ps + 1)
        if plan is not None:
            plans.append((plan.time_ps, at, plan))
            limit_ps = min(limit_ps, plan.time_ps)
    for _, at, plan in sorted(plans, key=lambda one: one[:2]):
        label, planner = planners[at]
        try:
            result = run(switched(planner.schedule, plan.fabrics), planner.model)
        except (Unswitchable, Deadlock):  # with faults some never end
            continue
        return [Found(policy, label, plan, result, planner.schedule, plan.changes)]
    return []


def _run_with_faults(
    policy: str, planners: Sequence[tuple[str, Planner]], run: Callable[..., Result], limit_ps: float
) -> list[Found]:
    """The plans of a policy that may be the quickest: with faults a price is no bound, so that each of them is run."""
    found = list[Found]()
    for label, planner in planners:
        if planner.least_ps < limit_ps and (plan := planner.plan(policy)) is not None:
            with suppress(Unswitchable, Deadlock):
                result = run(switched(planner.schedule, plan.fabrics), planner.model)
                found.append(Found(policy, label, plan, result, planner.schedule, plan.changes))
                limit_ps = min(limit_ps, result.time_ps)
    return found


def row_of(found: Found, bound_ps: int) -> dict[str, Any]:
    """A tidy row of the table."""
    result, plan = found.result, found.plan
    named = "in turns" if result.job.implements else result.job.topology.name
    return {
        "policy": found.policy, "algorithm": found.schedule.pattern.algorithm, "form": found.form,
        "circuits": plan.letters if plan else named,
        "reconfigurations": found.changes, "simulated_s": result.time_s,
        "plan_s": plan.time_ps / PS_PER_S if plan and turns_of(result.job.topology) is None else result.time_s,
        "bound_s": bound_ps / PS_PER_S, "over_bound": (result.time_ps or 1) / (bound_ps or 1) - 1,
        "chunks": result.model.chunks, "why": result.why().parts if found.policy == BEST else {},
    }


def switched_rows(schedule: Schedule, model: Model = Model(), policies: Sequence[str] = POLICIES) -> list[
    tuple[Plan, Result]
]:
    """Every policy that a schedule can follow in its own steps, planned, and simulated as a whole."""
    planner = Planner(schedule, model)
    plans = [plan for policy in policies if (plan := planner.plan(policy)) is not None]
    return [(plan, simulate(switched(planner.schedule, plan.fabrics), model=model)) for plan in plans]
