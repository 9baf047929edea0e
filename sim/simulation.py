"""From a schedule to a result, by the engine of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from collectives.core.schedule import Schedule
from sim.analytic.estimate import estimate_ps
from sim.certify.healthy import certify
from sim.lower.schedule import Lowered, lower
from sim.program import check_choice
from sim.program.model import ENGINES, SYMMETRY, Model, make_model
from sim.program.outcome import Outcome
from sim.result import Result
from topologies import WeftError
from topologies.units import Quantity

if TYPE_CHECKING:
    from sim.analytic.bounds import Bounds
    from sim.engine.run import Progress
    from sim.faults.plan import FaultPlan


def simulate(
    schedule: Schedule,
    *,
    model: Model = Model(),
    chunk: Quantity | None = None,
    chunks: int | None = None,
    engine: str = "chunk",
    symmetry: str = "auto",
    check: bool = False,
    progress: Callable[[Progress], None] | None = None,
    max_events: int | None = None,
    faults: FaultPlan | None = None,
    **changes: object,
) -> Result:
    """Simulate a collective.

    Parameters
    ----------
    schedule : Schedule
    model : Model
        Where to start from; the following change it.
    chunk : str or int, optional
        Size of a chunk: "8KiB", or bytes.
    chunks : int, optional
        Chunks a transfer, cut evenly.
    engine : {"chunk", "reference", "analytic"}
    symmetry : {"auto", "off"}
        Simulate representatives of the schedule's symmetry, or all ranks.
    check : bool
        Keep a log and check every certificate.
    progress : callable, optional
        Called with `Progress` on long runs.
    max_events : int, optional
        Give up after this many services.
    faults : FaultPlan, optional
        What goes wrong on the way. The healthy run is done too: the result says what the faults cost.
    **changes
        Fields of `Model`: `forwarding="store-and-forward"`, `deliver="head"`, `tie="split"`, ...

    Raises
    ------
    WeftError
        A name or value that is not accepted, a run too large for memory, or a broken certificate.
    Deadlock
        Faults leave transfers that can never finish: who waits for whom.

    Examples
    --------
    >>> from topologies import torus
    >>> from collectives import swing
    >>> result = simulate(swing.all_reduce(torus((4, 4)), "64KiB"), chunk="4KiB")
    >>> result.lower_bound_ps <= result.time_ps
    True
    """
    from sim.analytic.bounds import bounds  # the compiler is loaded by those who simulate, not by `weft --help`

    check_choice(engine, ENGINES, "engine")
    check_choice(symmetry, SYMMETRY, "symmetry")
    if max_events is not None and (engine != "chunk" or max_events < 1):
        raise WeftError(f"a limit of {max_events} events: at least 1, and of the chunk engine alone")
    if faults is not None:
        from sim.faults.apply import check_names

        check_names(schedule.topology, faults)
    started = perf_counter()
    lowered = lower(schedule, make_model(model, chunk=chunk, chunks=chunks, **changes), symmetry)  # type: ignore[arg-type]  # checked there
    outcome = _run(lowered, engine, check, progress, max_events)
    limits, estimate = bounds(lowered), estimate_ps(lowered)
    bound = limits.best_ps
    if check and outcome is not None:
        certify(lowered.program, outcome, bound)
    healthy = Result(
        schedule=schedule,
        model=lowered.model,
        engine=engine,
        time_ps=estimate if outcome is None else outcome.makespan_ps,
        events=0 if outcome is None else outcome.events,
        lower_bound_ps=bound,
        estimate_ps=estimate,
        wall_s=perf_counter() - started,
        lowered=lowered,
        outcome=outcome,
    )
    return healthy if faults is None else _with_faults(healthy, faults, limits, check, progress, max_events)


def _with_faults(
    healthy: Result, plan: FaultPlan, limits: Bounds, check: bool, progress: Callable[[Progress], None] | None,
    max_events: int | None,
) -> Result:
    """The same schedule once more, with faults."""
    from sim.faults.cost import FaultCost
    from sim.faults.plan import bound_under
    from sim.run.faulty_run import run_schedule

    started = perf_counter()
    bound = bound_under(plan, limits)
    how = healthy.engine, progress, max_events
    lowered, faulty, outcome = run_schedule(healthy.schedule, healthy.model, plan, *how)
    if check:
        certify(faulty.program, outcome, bound)
    return replace(
        healthy, time_ps=outcome.makespan_ps, events=outcome.events, lower_bound_ps=bound, lowered=lowered,
        outcome=outcome, wall_s=healthy.wall_s + perf_counter() - started,
        faults=FaultCost.of(plan, faulty, healthy.time_ps, outcome),
    )


def _run(
    lowered: Lowered, engine: str, log: bool, progress: Callable[[Progress], None] | None, max_events: int | None
) -> Outcome | None:
    if engine == "analytic":
        return None
    if engine == "reference":
        from sim.engine.reference import run_reference

        return run_reference(lowered.program, log=log)
    from sim.engine.run import check_memory, run

    check_memory(lowered.program, log)
    return run(lowered.program, log=log, progress=progress, max_events=max_events)
