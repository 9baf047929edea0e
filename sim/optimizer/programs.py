"""Objectives from what a user has: a collective on a fabric, or a training iteration on a product of dimensions.

Schedules keep their transfers while bandwidths change, except those of algorithms that are built from the rates of
links (`Algorithm.built_from_rates`): these are built anew at all bandwidths.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from collectives import build
from collectives.registry import algorithm as find_algorithm
from sim.analytic.libra import Placed
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.lower.progress import progress_told
from sim.optimizer.objective import Simulated, Timed
from sim.optimizer.rebuilt import Rebuilt
from sim.optimizer.retime import Retimed, retimed, with_base_rates
from sim.program.model import Model
from sim.why.spread import nearby
from topologies import Topology
from topologies.checks import Positive, checked
from topologies.units import Quantity
from workloads.job import Job, on_network
from workloads.pipeline import pipeline_job
from workloads.training import Collectives, Training, gradient_buckets, process_groups, training_job
from workloads.workload import Call


@checked
def collective_objective(
    topology: Topology, collective: str, algorithm: str, size: Quantity, *, model: Model = Model(),
    symmetry: str = "auto", most_GBps: Positive | None = None, form: str | None = None, how: How = AS_USUAL,
    **options: object,
) -> Simulated:
    """The time of one collective on any network whose links have dimensions or tiers.

    Parameters
    ----------
    topology : Topology
        Its bandwidths matter to algorithms that look at them.
    collective, algorithm, size, form, **options
        As `collectives.build` takes them. Where no form is given, that for the bandwidths of the topology serves all.
    model : Model
    symmetry : {"auto", "off"}
    most_GBps : float, optional
        No allowed bandwidths sum to more, for the floors; None: nothing limits them.
    how : How
        Engine runs are done: checked, stopped.
    """

    def schedule(on: Topology) -> Job:
        return Job.of(build(algorithm, collective, on, size, form, **options))

    parts = _Parts(topology, algorithm, model, symmetry, most_GBps or math.inf)
    return Simulated([(1.0, parts.part(schedule))], how=how)


class _Parts(NamedTuple):
    topology: Topology
    algorithm: str
    model: Model
    symmetry: str
    most_GBps: float

    def part(self, work: Callable[[Topology], Job]) -> Timed:
        """A job, built anew at all bandwidths where its algorithm is built from rates."""
        if find_algorithm(self.algorithm).built_from_rates:
            return Rebuilt(self.topology, work, self.model, self.symmetry, self.most_GBps)
        job = on_network(work(self.topology), with_base_rates(self.topology))

        @cache
        def cut(model: Model) -> Retimed:
            return retimed(lower(job, model, self.symmetry), self.most_GBps)

        def cut_nearby(number: int, rng: np.random.Generator) -> Retimed:
            return cut(nearby(job.topology, self.model, number, rng))

        return replace(cut(self.model), cut=cut_nearby, rank_progress=progress_told(job, self.model))


@checked
def iteration_objective(
    topology: Topology, placed: Sequence[Placed], training: Training = Training(), *, checkpointed: bool = False,
    model: Model = Model(chunks=1), symmetry: str = "auto", most_GBps: Positive | None = None, how: How = AS_USUAL,
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
    most_GBps, how
        As in `collective_objective`.
    """
    make = _Parts(topology, training.algorithm, model, symmetry, most_GBps or math.inf)
    parts: list[tuple[float, Timed]] = []
    constant_ns = 0.0
    for one in placed:
        if one.pipeline is not None:
            build_job = partial(
                pipeline_job, workload=one.workload, groups=one.groups, pipeline=one.pipeline, training=training
            )
            parts.append((one.weight, make.part(build_job)))
        elif training.loop == "no-overlap":
            constant_ns += one.weight * one.workload.compute_ns
            parts += _collectives(make, one, training, checkpointed)
        else:
            build_job = partial(training_job, workload=one.workload, groups=one.groups, training=training)
            parts.append((one.weight, make.part(build_job)))
    return Simulated(parts, constant_ns, how)


def _collectives(make: _Parts, one: Placed, training: Training, checkpointed: bool) -> list[tuple[float, Timed]]:
    groups = process_groups(one.workload, one.groups, make.topology.shape)
    count: Counter[Call] = Counter()
    for layer in one.workload.layers:
        for call in (*layer.forward.calls * (2 if checkpointed else 1), *layer.input_grad.calls):
            count[call] += 1
    for bucket in gradient_buckets(one.workload, training.bucket_bytes):
        count[bucket.call] += 1

    def schedule(on: Topology, call: Call) -> Job:
        return Job.of(Collectives(on, groups, training).schedule(call))

    return [
        (one.weight * times, make.part(partial(schedule, call=call)))
        for call, times in count.items() if one.traffic(call).any()
    ]
