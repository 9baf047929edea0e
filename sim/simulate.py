"""From a schedule to a result, by the engine of one's choice."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from collectives.schedule import Schedule
from sim.analytic.estimate import estimate_ps
from sim.certificates import certify
from sim.lower import Lowered, lower
from sim.model import ENGINES, SYMMETRY, Model, make_model
from sim.outcome import Outcome
from sim.program import check_choice
from sim.result import Result
from topologies import WeftError
from topologies.units import Quantity

if TYPE_CHECKING:
    from sim.engine import Progress


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
    **changes
        Fields of `Model`: `forwarding="store-and-forward"`, `deliver="head"`, `tie="split"`, ...

    Raises
    ------
    WeftError
        A name or value that is not accepted, a run too large for memory, or a broken certificate.

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
    started = perf_counter()
    lowered = lower(schedule, make_model(model, chunk=chunk, chunks=chunks, **changes), symmetry)  # type: ignore[arg-type]  # checked there
    outcome = _run(lowered, engine, check, progress, max_events)
    bound, estimate = bounds(lowered).best_ps, estimate_ps(lowered)
    if check and outcome is not None:
        certify(lowered.program, outcome, bound)
    return Result(
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


def _run(
    lowered: Lowered, engine: str, log: bool, progress: Callable[[Progress], None] | None, max_events: int | None
) -> Outcome | None:
    if engine == "analytic":
        return None
    if engine == "reference":
        from sim.reference import run_reference

        return run_reference(lowered.program, log=log)
    from sim.engine import check_memory, run

    check_memory(lowered.program, log)
    return run(lowered.program, log=log, progress=progress, max_events=max_events)
