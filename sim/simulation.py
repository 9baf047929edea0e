"""From work to a result, by the chosen engine: lower it, run it, check it, and repeat it with faults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Annotated, NamedTuple, Unpack

from collectives.core.schedule import Schedule
from sim.analytic.bounds import lower_bound_ps
from sim.analytic.closed_form import closed_form_ps
from sim.analytic.estimate import estimate_ps
from sim.engine.run import FOREVER_PS, check_size, run
from sim.faults.apply import add_faults, with_spares
from sim.faults.cost import FaultCost, named_circle, named_deadlock, named_tasks
from sim.faults.history import history_of, marks_of
from sim.faults.plan import FaultPlan
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.lower.lowered import Lowered, task_names
from sim.lower.rotor import in_turns, turns_of
from sim.lower.tenants import Tenant, merge
from sim.program.columns import BLOCK, work_ps
from sim.program.flows import flows_of
from sim.program.model import ENGINES, SYMMETRY, Model, check_flows_have_no, make_model, model_of
from sim.program.model_options import OPTIONS, ModelOptions, listing
from sim.program.outcome import Deadlock, Outcome, Progress
from sim.result import Result
from topologies.checks import Choice, Count, Integer, WeftError, checked, choice, told
from topologies.lazy import later
from topologies.stages import staged
from topologies.units import format_time
from workloads.circuits import STATIC, least_ps, with_circuits
from workloads.job import Job, Reconfigure

certify_flows, certify, certify_circuits, certify_schedule = (later(f"sim.certify.{name}") for name in (
    "fluid:certify_flows", "healthy:certify", "schedule:certify_circuits", "schedule:certify_schedule",
))

JOB_ENGINES = ("chunk", "reference", "fluid")
"""Engines of jobs: there is no closed form for them."""


@checked
@listing("Other Parameters", OPTIONS)
def simulate(
    work: Schedule | Job | Sequence[Tenant],
    *,
    model: Model = Model(),
    engine: Annotated[str, Choice(ENGINES)] = "chunk",
    symmetry: Annotated[str, Choice(SYMMETRY)] = "auto",
    check: bool = False,
    log: bool = False,
    progress: Callable[[Progress], None] | None = None,
    max_events: Count | None = None,
    faults: FaultPlan | None = None,
    limit_ps: Annotated[int, Integer(1, FOREVER_PS)] | None = None,
    **options: Unpack[ModelOptions],
) -> Result:
    """Simulate a collective, a job, or several of them on one fabric.

    Parameters
    ----------
    work : Schedule, Job or sequence of Tenant
        A schedule alone is a job of one operation; tenants are one job, whose operations name their tenant.
    model : Model
        Where to start from; `options` change it.
    engine : {"chunk", "reference", "analytic", "fluid"}
        "analytic" is for a schedule alone; "fluid" shares links evenly among whole transfers
        (docs/background/model.md).
    symmetry : {"auto", "off"}
        Simulate representatives of the symmetry, or all ranks.
    check : bool
        Keep a log and check every certificate.
    log : bool
        Keep a log of every service, which `why`, `exposed_ps` and `timeline` need; without one they run once more.
        The fluid engine logs rates instead.
    progress : callable, optional
        Called with `Progress` on long runs.
    max_events : int, optional
        Give up after this many services; a run of more than 2e10 starts only with such a limit.
    faults : FaultPlan, optional
        What goes wrong on the way. The healthy run is done too: the result reports what the faults cost.
    limit_ps : int, optional
        Give up where it takes longer than this; of the chunk engine, without faults, on circuits that stay.
    **options : ModelOptions
        Of the model, as people write them: sizes "64KiB" or bytes, times "500ns", rates "400Gb/s"; listed below.

    Raises
    ------
    WeftError
        A name or value that is not accepted, a run too large for memory, or a broken certificate.
    Deadlock
        Faults leave transfers that can never finish; names what waits for what.
    Outrun
        It takes longer than `limit_ps`.

    Examples
    --------
    >>> from topologies import torus
    >>> from collectives import swing
    >>> result = simulate(swing.all_reduce(torus((4, 4)), "64KiB"), chunk="4KiB")
    >>> result.lower_bound_ps <= result.time_ps
    True
    """
    model = make_model(model, **options)
    if engine == "fluid":
        check_flows_have_no("chunks", options.get("chunks") or 1, 1)
    model = model_of(engine, model)
    job = _job_of(work, model)
    if job.alone is None:
        choice(engine, JOB_ENGINES, "engine of a job")
    check_limits(engine, max_events, check)
    if engine == "analytic" and turns_of(job.topology) is not None:
        raise WeftError(f"the analytic engine on {job.topology.name}: it knows no turns: choose one that simulates")
    if faults is not None:
        faults = with_spares(job.topology, faults)
        broken = history_of(job.topology, faults).breaks  # a plan that names what is not there is rejected at once
        if broken and turns_of(job.topology) is not None and (faults.in_flight, faults.reroute) != ("wait", None):
            raise WeftError(f"fault plan on {job.topology.name}: what waits for the turn of a circuit waits for its "
                            'repair as well: give in-flight = "wait", and no reroute')
    if limit_ps is not None and (engine != "chunk" or faults is not None or job.topology.optics is not None):
        raise WeftError(f"a limit of {format_time(limit_ps)} needs the chunk engine, circuits that stay, and no faults")
    run = _Run(engine, log or check, check, progress, max_events, limit_ps=limit_ps)
    return run.best(with_circuits(job), model, symmetry, faults)


def time_ps(job: Job, how: How = AS_USUAL, **options: Unpack[ModelOptions]) -> int:
    """The time of a job, as `simulate` finds it; of its run nothing is kept that only tells more."""
    run = _Run("chunk", how.check, how.check, None, how.max_events, bare=not how.check)
    return run.best(with_circuits(job), make_model(Model(), **options), "auto", None).time_ps


def check_limits(engine: str, max_events: int | None, check: bool = False) -> None:
    """Reject of how a run is done what an engine does not do."""
    if check and engine == "analytic":
        raise WeftError("a check needs an engine that simulates, not 'analytic', which has no events to check")
    if max_events is not None and engine != "chunk":
        raise WeftError(f"a limit of {max_events:,} services needs the chunk engine, not {engine!r}")


def _job_of(work: Schedule | Job | Sequence[Tenant], model: Model) -> Job:
    if isinstance(work, Job):
        return work
    if isinstance(work, Schedule):
        work.pattern.prove()
        return Job.of(work)
    if not isinstance(work, (list, tuple)) or not all(isinstance(one, Tenant) for one in work):
        raise WeftError(f"work {told(work)}: give a Schedule, a Job or a list of Tenant")
    return merge(work, model)


def _switches(job: Job) -> bool:
    """Whether circuits change, of which start and end are certified."""
    return any(isinstance(one.work, Reconfigure) for one in job.operations)


class Alone(NamedTuple):
    """The healthy run beside one with faults."""

    time_ps: int
    wall_s: float
    whole: str  # which symmetry gives all ranks: "auto" where there is none, whose program is there already

    @classmethod
    def of(cls, result: Result, symmetry: str = "auto") -> "Alone":
        """`symmetry`: with which the program of all ranks is there, unless the run has another."""
        return cls(result.time_ps, result.wall_s, symmetry if result.lowered.is_whole else "off")


def struck(
    schedule: Schedule, model: Model, symmetry: str, plan: FaultPlan, alone: Alone,
    progress: Callable[[Progress], None] | None = None, max_events: int | None = None,
) -> Result:
    """A schedule of which the healthy run is known, with faults; by the chunk engine, on circuits that stay."""
    return _Run("chunk", False, False, progress, max_events).faulty(Job.of(schedule), model, symmetry, plan, alone)


@dataclass(frozen=True)
class _Run:
    """How programs are run and checked; see `simulate`."""

    engine: str
    log: bool
    check: bool
    progress: Callable[[Progress], None] | None
    max_events: int | None
    bare: bool = False  # whether only the time is asked for
    limit_ps: int | None = None

    def best(self, plans: Mapping[str, Job], model: Model, symmetry: str, faults: FaultPlan | None) -> Result:
        """The quickest of the plans of a job's circuits that end; what the changes alone take excludes some."""
        name, found, said, stuck, healthy_ps = "", None, list[str](), None, FOREVER_PS
        for other, job in plans.items():
            if found is not None and (least := least_ps(job)) >= found.time_ps:
                said.append(f"{other} at least {format_time(least)}")
                continue
            try:
                run = self if faults is None or _switches(job) else self._for_time()
                result = run.healthy(job, model, symmetry if faults is None else "auto")
                if faults is not None:
                    alone = Alone.of(result)
                    healthy_ps = min(healthy_ps, alone.time_ps)  # without faults, another plan may be the quickest
                    del result  # whose arrays would stay as long as the second run takes
                    result = self.faulty(job, model, symmetry, faults, alone)
            except Deadlock as wrong:
                stuck = stuck or wrong
                said.append(f"{other} never ends")
                continue
            if found is None or result.time_ps < found.time_ps:
                name, other, found, result = other, name, result, found or result
            if other:
                said.append(f"{other} {format_time(result.time_ps)}")
        if found is None:
            assert stuck is not None
            raise stuck
        if found.faults is not None:
            found = replace(found, faults=replace(found.faults, healthy_ps=healthy_ps))
        policy = f"circuits are switched {name}" if name != STATIC else "circuits stay as they are"
        return replace(found, circuits=f"{policy}; {', '.join(said)}") if said else found

    def _for_time(self) -> "_Run":
        """The same where only the time is told, as of the healthy run beside faults."""
        return replace(self, log=self.check, bare=not self.check)

    def healthy(self, job: Job, model: Model, symmetry: str) -> Result:
        """A job on a fabric on which nothing goes wrong."""
        started = perf_counter()
        bare = self.bare and not _switches(job)
        lowered, outcome = lower(job, model, symmetry, bare=bare), None
        try:
            if self.engine != "analytic":
                lowered, outcome = in_turns(lowered, partial(self._outcome, log=self.log))
        except Deadlock as stuck:
            if self.bare:  # without the tasks that tell what is stuck
                return replace(self, bare=False).healthy(job, model, symmetry)
            if not stuck.circle:
                raise named_tasks(stuck, task_names(lowered)) from None
            if not lowered.is_whole:
                return self.healthy(job, model, "off")  # which names the circle itself, not what stands for it
            raise named_circle(stuck, lowered) from None
        result = Result(
            job=job, model=model, engine=self.engine, time_ps=_time_ps(lowered, model, outcome),
            events=0 if outcome is None else outcome.events, wall_s=perf_counter() - started, lowered=lowered,
            ran=outcome,
        )
        return self._checked(result)

    def faulty(self, job: Job, model: Model, symmetry: str, plan: FaultPlan, alone: Alone) -> Result:
        """A job once more, with faults: all NPUs, or as the faults keep the symmetry."""
        if self.engine == "analytic":
            raise WeftError("the analytic engine knows no faults: choose the chunk or the reference engine")
        started = perf_counter()
        marks = marks_of(job.topology, plan) if symmetry == "auto" else None
        as_kept = alone.whole if marks is None else "auto"
        try:
            lowered, outcome = in_turns(
                lower(job, model, as_kept, marks=marks), partial(self._outcome, log=self.log or self.engine == "fluid"),
                lambda one, turns: add_faults(one, plan, turns),
            )
        except Deadlock as stuck:
            lowered = lower(job, model, as_kept, marks=marks)
            if not lowered.is_whole:
                return self.faulty(job, model, "off", plan, alone)  # which names all that wait
            faulty = add_faults(lowered, plan)
            raise named_deadlock(stuck, faulty, task_names(faulty), plan) from None
        return self._checked(Result(
            job=job, model=model, engine=self.engine, time_ps=outcome.makespan_ps, events=outcome.events,
            wall_s=alone.wall_s + perf_counter() - started, lowered=lowered, ran=outcome,
            faults=FaultCost.of(plan, lowered, alone.time_ps, outcome),
        ))

    def _checked(self, result: Result) -> Result:
        if result.ran is None:
            return result
        if self.check:
            self._certify(result, result.ran)
        lowered = result.lowered
        if lowered.changes:
            wiring = lowered.topology, lowered.server_link, lowered.changes
            certify_circuits(lowered.program, result.ran, *wiring, task_names(lowered))
        return result

    @staged("check")
    def _certify(self, result: Result, outcome: Outcome) -> None:
        lowered = result.lowered
        if self.engine == "fluid":
            certify_flows(flows_of(lowered.program, lowered.speeds()), outcome, result.lower_bound_ps)
        else:
            certify(lowered.program, outcome, result.lower_bound_ps)
        if lowered.resent is None:  # else the program has packets, and what NPUs send again
            program = lowered.program
            of_run = program.is_healthy and self.engine != "fluid"  # which is certified to have done the program's work
            busy_ps = outcome.busy_ps if of_run else work_ps(program)
            work = lowered.link_busy_ps(busy_ps), lowered.wire_bytes()
            n_transfers = int(lowered.images()[lowered.task_row >= 0].sum())
            certify_schedule(result.job, result.model, *work, n_transfers, lowered.waits())

    def _outcome(self, lowered: Lowered, log: bool) -> Outcome:
        if self.engine == "reference":
            from sim.engine.reference.engine import run_reference  # SimPy: only the oracle needs it

            return run_reference(lowered.program, log=log)
        if self.engine == "fluid":
            from sim.engine.fluid.run import run_flows  # its kernel: no other run needs it

            return run_flows(lowered.program, lowered.speeds(), log=log, progress=self.progress)
        check_size(lowered.program, log, self.max_events is not None)
        program = lowered.program
        asked = not self.bare and (lowered.row is not None or program.n_tasks <= BLOCK)
        times = log or asked or not program.is_healthy
        limit_ps = FOREVER_PS if self.limit_ps is None else self.limit_ps
        return run(program, log=log, progress=self.progress, max_events=self.max_events, times=times, limit_ps=limit_ps)


def _time_ps(lowered: Lowered, model: Model, outcome: Outcome | None) -> int:
    """That of the run, of the closed form, or the estimate; the lower bound where that is more."""
    if outcome is not None:
        return outcome.makespan_ps
    form_ps = closed_form_ps(lowered, model)
    return max(estimate_ps(lowered) if form_ps is None else form_ps, lower_bound_ps(lowered))
