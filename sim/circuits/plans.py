"""Collectives that switch circuits, run: by a plan, or by planes that take turns."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from sim.certify.circuits import certify_circuits
from sim.engine.run import run
from sim.lower.job import lower_job
from sim.program.model import Model
from sim.run.iteration import IterationResult
from workloads.job import Job


def simulate_plan(job: Job, start_up_ps: int, model: Model = Model(), *, log: bool = False) -> IterationResult:
    """Run the job of a plan; nothing crosses a circuit that is not up, or the run is rejected.

    Parameters
    ----------
    job : Job
        Of `workloads.reconfigured`.
    start_up_ps : int
        Of every step: the endpoint latency of the model, whose own is not used.
    model : Model
    log : bool
        Whether to keep what `explain_epochs` needs.

    Raises
    ------
    CertificateError
        A transfer on a circuit that is not up.
    """
    started = perf_counter()
    lowered = lower_job(job, replace(model, endpoint_latency_ps=start_up_ps))
    outcome = run(lowered.program, log=log)
    certify_circuits(lowered.program, outcome, job.topology, lowered.server_link, lowered.changes)
    return IterationResult(lowered=lowered, outcome=outcome, wall_s=perf_counter() - started)
