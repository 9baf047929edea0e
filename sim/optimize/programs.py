"""Objectives from what a user has: a collective on a fabric, or a training iteration on a product of dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collectives import build
from sim.analytic.libra import Placed
from sim.lower import lower
from sim.lower_job import lower_job
from sim.model import Model
from sim.optimize.objective import Simulated
from sim.optimize.retime import Retimed, retimed, with_base_rates
from topologies import Topology
from topologies.units import Quantity
from workloads.training import Collectives, Training, gradient_buckets, process_groups, training_job
from workloads.workload import Call


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
        Its bandwidths do not matter.
    collective, algorithm, size, **options
        As `collectives.build` takes them.
    model : Model
    symmetry : {"auto", "off"}
    """
    schedule = build(algorithm, collective, with_base_rates(topology), size, None, **options)
    return Simulated([(1.0, retimed(lower(schedule, model, symmetry)))])


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

    Without overlap an iteration is its collectives one after the other: each different one is simulated once and
    counted as often as it occurs. Otherwise the whole iteration is one program.

    Parameters
    ----------
    topology : Topology
        A product of blocks; its bandwidths do not matter.
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
        if training.loop == "no-overlap":
            constant_ns += one.weight * one.workload.compute_ns
            parts += _collectives(base, one, training, checkpointed, model, symmetry)
        else:
            job = training_job(base, one.workload, one.groups, training)
            parts.append((one.weight, retimed(lower_job(job, model, symmetry))))
    return Simulated(parts, constant_ns)


def _collectives(
    base: Topology, one: Placed, training: Training, checkpointed: bool, model: Model, symmetry: str
) -> list[tuple[float, Retimed]]:
    groups = process_groups(one.workload, one.groups, base.shape)
    schedules = Collectives(base, groups, training)
    count: Counter[Call] = Counter()
    for layer in one.workload.layers:
        for call in (*layer.forward.calls * (2 if checkpointed else 1), *layer.input_grad.calls):
            count[call] += 1
    for bucket in gradient_buckets(one.workload, training.bucket_bytes):
        count[bucket.call] += 1
    return [
        (one.weight * times, retimed(lower(schedules.schedule(call), model, symmetry)))
        for call, times in count.items() if one.traffic(call).any()
    ]
