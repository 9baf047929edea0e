"""Objectives from what a user has: a collective on a fabric, or a training iteration on a product of dimensions.

Schedules are built for the network as given, and keep their transfers while bandwidths change: those of most
algorithms do not depend on them; themis, pipelined, bfb and the like read them once, when they are built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from collectives import build
from collectives.core.schedule import Schedule
from sim.analytic.libra import Placed
from sim.lower.job import lower
from sim.optimizer.objective import Simulated
from sim.optimizer.retime import Retimed, retimed, with_base_rates
from sim.program.model import Model
from topologies import Topology
from topologies.checks import checked
from topologies.units import Quantity
from workloads.job import Communicate, Job
from workloads.pipeline import pipeline_job
from workloads.training import Collectives, Training, gradient_buckets, process_groups, training_job
from workloads.workload import Call


@checked
def collective_objective(
    topology: Topology,
    collective: str,
    algorithm: str,
    size: Quantity,
    *,
    model: Model = Model(),
    symmetry: str = "auto",
    **options: object,
) -> Simulated:
    """The time of one collective on any network whose links have dimensions or tiers.

    Parameters
    ----------
    topology : Topology
        Its bandwidths matter to algorithms that look at them.
    collective, algorithm, size, **options
        As `collectives.build` takes them.
    model : Model
    symmetry : {"auto", "off"}
    """
    schedule = build(algorithm, collective, topology, size, None, **options)
    moved = on_network(schedule, with_base_rates(topology))
    return Simulated([(1.0, retimed(lower(moved, model, symmetry)))])


def on_network(schedule: Schedule, topology: Topology) -> Schedule:
    """The same transfers on the same network with different bandwidths."""
    return replace(schedule, pattern=replace(schedule.pattern, topology=topology))


def _job_on_network(job: Job, topology: Topology) -> Job:
    moved: dict[int, Schedule] = {}
    for operation in job.operations:
        if isinstance(operation.work, Communicate) and id(operation.work.schedule) not in moved:
            moved[id(operation.work.schedule)] = on_network(operation.work.schedule, topology)
    operations = [
        replace(one, work=Communicate(moved[id(one.work.schedule)])) if isinstance(one.work, Communicate) else one
        for one in job.operations
    ]
    return Job(topology, operations, job.speed)


@checked
def iteration_objective(
    topology: Topology,
    placed: Sequence[Placed],
    training: Training = Training(),
    *,
    checkpointed: bool = False,
    model: Model = Model(chunks=1),
    symmetry: str = "auto",
) -> Simulated:
    """The time of a training iteration of each workload, weighted and summed.

    Without overlap an iteration is its collectives one after the other: each distinct one is simulated once and
    counted as often as it occurs. Otherwise, and where there is a pipeline, the whole iteration is one program.

    Parameters
    ----------
    topology : Topology
        A product of blocks; its bandwidths matter to algorithms that look at them.
    placed : sequence of Placed
    training : Training
    checkpointed : bool
        Forward collectives run twice; only without overlap.
    model : Model
    symmetry : {"auto", "off"}
    """
    base = with_base_rates(topology)
    parts: list[tuple[float, Retimed]] = []
    constant_ns = 0.0
    for one in placed:
        if one.pipeline is not None:
            job = pipeline_job(topology, one.workload, one.groups, one.pipeline, training)
            parts.append((one.weight, retimed(lower(_job_on_network(job, base), model, symmetry))))
        elif training.loop == "no-overlap":
            constant_ns += one.weight * one.workload.compute_ns
            parts += _collectives(topology, one, training, checkpointed, model, symmetry)
        else:
            job = training_job(topology, one.workload, one.groups, training)
            parts.append((one.weight, retimed(lower(_job_on_network(job, base), model, symmetry))))
    return Simulated(parts, constant_ns)


def _collectives(
    topology: Topology, one: Placed, training: Training, checkpointed: bool, model: Model, symmetry: str
) -> list[tuple[float, Retimed]]:
    base = with_base_rates(topology)
    groups = process_groups(one.workload, one.groups, topology.shape)
    schedules = Collectives(topology, groups, training)
    count: Counter[Call] = Counter()
    for layer in one.workload.layers:
        for call in (*layer.forward.calls * (2 if checkpointed else 1), *layer.input_grad.calls):
            count[call] += 1
    for bucket in gradient_buckets(one.workload, training.bucket_bytes):
        count[bucket.call] += 1
    return [
        (one.weight * times, retimed(lower(on_network(schedules.schedule(call), base), model, symmetry)))
        for call, times in count.items() if one.traffic(call).any()
    ]
