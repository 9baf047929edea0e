"""Runs of a workload: of a model, of a file or of traces, by one algorithm of its collectives."""

from dataclasses import replace
from typing import Any

from sim.how import AS_USUAL, How
from sim.lower.capacity import check_tasks
from sim.lower.job import count_tasks
from sim.program.model import Model
from sim.result import Result
from sim.study.jobs import Opened, open_workload, source_of, with_npu_bandwidth
from sim.study.plans import fitting, gpu_of, inlined, looks, model_of_jobs, runner
from sim.study.spec import Spec
from sim.timeline.perfetto import check_size
from topologies import Topology
from topologies.units import format_time
from workloads.formats.recognize import LAYERS
from workloads.passes.iteration import iterate

FEW_MICROBATCHES = 16
"""Of no more than so many no estimate is made before their job is built: it takes a second or two."""


def simulate_workload(spec: Spec, *, drawn: bool, how: How) -> tuple[Opened, Result]:
    """The workload of a spec, and a run of it; `drawn`: its timeline will be written."""
    opened = open_of(spec, how)
    if drawn:
        check_size(opened.job, model_of_jobs(spec), _symmetry(spec, opened))
    return opened, run_opened(spec, opened, how)


def open_of(spec: Spec, how: How = AS_USUAL) -> Opened:
    """The workload of a spec as a job, or its plan inlined."""
    if spec.iteration.model is not None:
        one = fitting(spec, how)
        job, found = inlined(one), iterate(one.plan, one.times)
        alone = f"composed of passes {format_time(found.time_ps)}: {found.certificate}"
        return Opened(job, one.plan.model.name, "inlined", True, (one.plan.assumptions, alone), one.plan)
    topology = with_npu_bandwidth(spec.build_topology(), spec.workload, spec.topology.link_bandwidth)
    _check_microbatches(spec, topology, model_of_jobs(spec))
    return open_workload(spec.workload, spec.training, topology, spec.collective.algorithms or (), gpu_of(spec))


def run_opened(spec: Spec, opened: Opened, how: How = AS_USUAL) -> Result:
    """A run of what was opened, with a log."""
    return runner(spec, how)(opened.job, symmetry=_symmetry(spec, opened), log=True)


def _symmetry(spec: Spec, opened: Opened) -> str:
    return spec.symmetry if opened.is_layers else spec.model.symmetry or "off"  # each rank has its own trace


def row_of(spec: Spec, opened: Opened, result: Result) -> dict[str, Any]:
    """What a table says of a run."""
    exposed = [result.time_ps - result.compute_ps(rank) for rank in result.ranks]
    return {
        "topology": result.job.topology.name, "workload": opened.name,
        "algorithm": ",".join(spec.collective.algorithms or ()), "time_s": result.time_s,
        "exposed_s": max(exposed) / 1e12, "lower_bound_s": result.lower_bound_ps / 1e12, "notes": list(opened.notes),
    }


def run_workload(spec: Spec, opened: Opened, how: How, spread: int | None = 0, why: bool = False) -> dict[str, Any]:
    """The row of a point of a sweep."""
    result = run_opened(spec, opened, how)
    seen = looks(result.spread(spread) if spread else None, result.why() if why else None)
    return row_of(spec, opened, result) | seen | {"wall_s": result.wall_s}


def _check_microbatches(spec: Spec, topology: Topology, model: Model) -> None:
    """Reject more microbatches than fit in memory before there are operations of each: all but the first are alike."""
    microbatches = spec.training.microbatches or 0
    if microbatches > FEW_MICROBATCHES and source_of(spec.workload) == LAYERS:
        one, two = (
            count_tasks(open_workload(spec.workload, replace(spec.training, microbatches=few), topology,
                                      spec.collective.algorithms or ()).job, model, spec.symmetry)
            for few in (1, 2)
        )
        check_tasks(one + (two - one) * (microbatches - 1), f"an iteration of {microbatches:,} microbatches")
