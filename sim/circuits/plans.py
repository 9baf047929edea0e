"""Simulated collectives that switch circuits: by a plan, or by planes that take turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sim.how import AS_USUAL, How
from sim.program.model import Model
from sim.program.outcome import Progress
from sim.result import Result
from sim.simulation import simulate
from workloads.job import Job


def simulate_plan(
    job: Job, start_up_ps: int, model: Model = Model(), *, log: bool = False, how: How = AS_USUAL,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Run the job of a plan; a run in which a transfer crosses a circuit that is not up is rejected.

    `job`: of `workloads.reconfigured`.
    `start_up_ps`: start-up time of every step: replaces the endpoint latency of the model.
    `log`: whether to keep what `Result.why` needs.
    `how`: the run is done.
    `progress`: called on long runs.
    CertificateError: a transfer on a circuit that is not up.
    """
    model = replace(model, endpoint_latency_ps=start_up_ps)
    return simulate(job, model=model, log=log, progress=progress, **how.arguments())
