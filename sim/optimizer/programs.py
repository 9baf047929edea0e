"""Objectives from what a user has: a collective on a fabric, or a training iteration on a product of dimensions.

Schedules keep their transfers while bandwidths change, except those of algorithms that are built from the rates of
links (`Algorithm.built_from_rates`): these are built anew at all bandwidths.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from collectives import Schedule, build
from collectives.registry import algorithm as find_algorithm
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.analytic.convex import Epigraph, flat_epigraph
from sim.analytic.libra import Placed
from sim.analytic.traffic import F64
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.lower.progress import progress_told
from sim.optimizer.circuits import PLANNED, on_circuits, other_circuits, planned
from sim.optimizer.model import convex_model
from sim.optimizer.objective import Part, Simulated, Switched, Timed, Unbuilt
from sim.optimizer.retime import Least, Retimed, links_per_npu, retimed, switches, with_bandwidths, with_base_rates
from sim.program.model import Model
from sim.why.spread import alone, nearby
from topologies import Topology, WeftError
from topologies.checks import Positive, checked
from topologies.core.product import DimensionOrderRouter
from topologies.units import Quantity
from workloads.circuits import STATIC, with_circuits
from workloads.job import Communicate, Job, on_network
from workloads.passes.iteration import iterate
from workloads.passes.job import FabricGroups
from workloads.passes.plan import Plan
from workloads.pipeline import pipeline_job
from workloads.training import Collectives, Training, gradient_buckets, is_product, process_groups, training_job
from workloads.workload import Call, Layer, Phase, Workload

MOST_KEPT = 32
"""Limit on the lowered programs of a part that are kept."""


class Moved(NamedTuple):
    """Bytes that an NPU has to send on average, whatever the algorithm."""

    dims: F64  # (D,): in each dimension of a product, 0 elsewhere and for groups
    total: float  # in all dimensions together


class Rebuilt:
    """A part of an objective whose schedules depend on the bandwidths.

    `build`: a job on a topology. At each bandwidths it is built; where its transfers are those of an
        earlier one, they are not lowered again.
    `most_GBps`: no allowed bandwidths sum to more, for the floor; infinite where nothing limits them.
    `how`: runs that decide at its bandwidths.
    `keeps`: whether perturbed runs keep the schedules, which are otherwise built from bandwidths a little away.
    """

    def __init__(
        self, topology: Topology, build: Callable[[Topology], Job], model: Model, symmetry: str, most_GBps: float,
        how: How = AS_USUAL, keeps: bool = False,
    ) -> None:
        self.topology, self.build, self.model, self.symmetry, self.how = topology, build, model, symmetry, how
        self.most_GBps, self.n_dims = most_GBps, links_per_npu(topology).size
        self.keeps, self._built = keeps, dict[bytes, Job]()  # of the last bandwidths
        self._last: tuple[object, Retimed] | None = None
        self._kept: dict[tuple[object, ...], Retimed] = {}

    @property
    def rank_progress(self) -> str:
        """What ranks wait for before their next step."""
        return progress_told(self.build(self.topology), self.model)

    def retimed(self, bandwidth_GBps: F64, model: Model | None = None) -> Retimed:
        """The program of the schedules that are built from these bandwidths, at any."""
        model = model or self.model
        asked = model, bandwidth_GBps.tobytes()
        if self._last is None or self._last[0] != asked:
            job = self.changed(self._job(bandwidth_GBps))
            emitted = (model, *(schedule.pattern.emit for schedule in _schedules(job)))
            if emitted not in self._kept:
                if len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[emitted] = retimed(lower(_at_base_rates(job), model, self.symmetry))
            self._last = asked, self._kept[emitted]
        return self._last[1]

    def _job(self, bandwidth_GBps: F64) -> Job:
        if (key := bandwidth_GBps.tobytes()) not in self._built:
            try:
                self._built = {key: self.build(with_bandwidths(self.topology, bandwidth_GBps))}
            except WeftError as wrong:
                split = " / ".join(f"{one:.6g}" for one in bandwidth_GBps)
                raise Unbuilt(f"at {split} GB/s {wrong}") from wrong
        return self._built[key]

    def changed(self, job: Job) -> Job:
        """A job with all that is decided at its bandwidths."""
        return job

    def perturbed(self, bandwidth_GBps: F64, away: F64, number: int, rng: np.random.Generator) -> Retimed:
        """The structure of a perturbed run, of schedules that are built from bandwidths a little away, if they can."""
        model = nearby(self.topology, self.model, number, rng)
        with suppress(Unbuilt):
            return self.retimed(bandwidth_GBps * (1 + (0 if self.keeps else away)), model)
        return self.retimed(bandwidth_GBps, model)

    def alone(self, bandwidth_GBps: F64) -> Retimed | None:
        """The structure with ports that go on alone, where ranks wait by default."""
        other = alone(self.build(self.topology), self.model)
        return None if other is None else self.retimed(bandwidth_GBps, other)

    def least(self) -> Least:
        """What holds for every schedule, whatever its order: the bytes that NPUs have to send, over the bandwidths."""
        if self.model.deliver == "head":
            return Least(np.zeros(self.n_dims), 0.0)
        job = self.build(self.topology)
        dims, total = np.zeros(self.n_dims), 0.0
        for operation in job.operations:
            if isinstance(operation.work, Communicate):
                moved = least_moved(operation.work.schedule)
                share = 1.0 if operation.npus is None else len(operation.npus) / self.topology.n_npus
                dims, total = dims + share * moved.dims, total + share * moved.total
        dims = np.maximum(dims, total if dims.size == 1 else 0.0)
        return Least(dims, total / self.most_GBps)

    def least_ps(self, bandwidth_GBps: F64) -> int:
        """Nothing that costs less than a run."""
        return 0


class Planned(Rebuilt):
    """A collective whose circuits are switched between its steps, as its best plan at the bandwidths has it."""

    def changed(self, job: Job) -> Job:
        """The collective with the circuits of its best plan."""
        assert job.alone is not None
        return Job.of(planned(job.alone, self.model, self.how))

    def least_ps(self, bandwidth_GBps: F64) -> int:
        """A bound over all circuits and algorithms."""
        one = self.build(self.topology).alone
        assert one is not None
        fabric = with_bandwidths(self.topology, bandwidth_GBps)
        return circuits_bound_ps(fabric, one.kind, one.size_bytes, self.model)


def least_moved(schedule: Schedule) -> Moved:
    """Bytes that an NPU sends on average in any schedule of a collective without reducing switches.

    Parts of a product that differ in one coordinate exchange through the links of that dimension: each byte that one
    needs of another crosses them at least once. An all-reduce is a reduce-scatter and an all-gather.
    """
    topology, kind = schedule.topology, schedule.kind.name
    size, members = schedule.size_bytes, schedule.pattern.group_size
    extents = np.ones(links_per_npu(topology).size)
    whole = members == schedule.pattern.p and extents.size == len(topology.shape)
    if whole and isinstance(topology.router, DimensionOrderRouter):
        extents = np.array(topology.shape, np.float64)
    if kind == "all-to-all":
        dims = size * (extents - 1) / extents
        return Moved(dims, max(float(dims.sum()), size * (members - 1) / members))
    factor = 2 if kind == "all-reduce" else 1
    return Moved(factor * size * (extents - 1) / members, factor * size * (members - 1) / members)


def _at_base_rates(job: Job) -> Job:
    return on_network(job, with_base_rates(job.topology))


def _schedules(job: Job) -> Iterable[Schedule]:
    return (one.work.schedule for one in job.operations if isinstance(one.work, Communicate))


@checked
def collective_objective(
    topology: Topology, collective: str, algorithm: str, size: Quantity, *, model: Model = Model(),
    symmetry: str = "auto", most_GBps: Positive | None = None, form: str | None = None, how: How = AS_USUAL,
    keeps: bool = False, **options: object,
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
    keeps : bool
        Whether perturbed runs keep a schedule that is built from bandwidths; False: it is built from some nearby.
    """

    def schedule(on: Topology) -> Schedule:
        return build(algorithm, collective, on, size, form, **options)

    parts = _Parts(topology, algorithm, model, symmetry, most_GBps or math.inf, keeps)
    if not switches(topology):
        return Simulated([(1.0, parts.timed(lambda on: Job.of(schedule(on))))], how=how)
    return Simulated([(1.0, parts.collective(schedule, how))], how=how)


class _Parts(NamedTuple):
    topology: Topology
    algorithm: str
    model: Model
    symmetry: str
    most_GBps: float
    keeps: bool = False

    def part(self, work: Callable[[Topology], Job]) -> Timed | Switched:
        """A job, in each way to give its operations circuits where a policy switches them."""
        if not switches(self.topology):
            return self.timed(work)

        def switched(on: Topology, way: str) -> Job:
            ways = with_circuits(work(on))
            return ways.get(way, ways[STATIC])

        return Switched({way: self.timed(partial(switched, way=way)) for way in with_circuits(work(self.topology))},
                        self.most_GBps)

    def collective(self, build: Callable[[Topology], Schedule], how: How) -> Switched:
        """A collective on all static circuits on which it runs, and as the plans that switch them between its steps."""
        def on_static(on: Topology, name: str | None) -> Job:
            return Job.of(on_circuits(name, on, build))

        ways, refused = dict[str, Timed](), list[WeftError]()
        for name in (None, *other_circuits(self.topology)):
            try:
                ways[f"circuits={name}" if name else STATIC] = self.timed(partial(on_static, name=name))
            except WeftError as wrong:
                refused.append(wrong)
        if not ways:
            raise refused[0]
        if STATIC in ways:
            work = partial(on_static, name=None)
            ways[PLANNED] = Planned(self.topology, work, self.model, self.symmetry, self.most_GBps, how)
        return Switched(ways, self.most_GBps)

    def timed(self, work: Callable[[Topology], Job]) -> Timed:
        """A job, built anew at all bandwidths where its algorithm is built from rates."""
        if find_algorithm(self.algorithm).built_from_rates:
            return Rebuilt(self.topology, work, self.model, self.symmetry, self.most_GBps, keeps=self.keeps)
        job = _at_base_rates(work(self.topology))

        @cache
        def cut(model: Model) -> Retimed:
            return retimed(lower(job, model, self.symmetry), self.most_GBps)

        def cut_nearby(number: int, rng: np.random.Generator) -> Retimed:
            return cut(nearby(job.topology, self.model, number, rng))

        other = alone(job, self.model)
        free = None if other is None else partial(cut, other)
        return replace(cut(self.model), cut=cut_nearby, rank_progress=progress_told(job, self.model), free=free)


@checked
def iteration_objective(
    topology: Topology, placed: Sequence[Placed], training: Training = Training(), *, checkpointed: bool = False,
    model: Model = Model(chunks=1), symmetry: str = "auto", most_GBps: Positive | None = None, how: How = AS_USUAL,
) -> Simulated:
    """The time of a training iteration of each workload, weighted and summed.

    Without overlap an iteration is its collectives one after the other: each distinct one is simulated once and
    counted as often as it occurs. Otherwise, and where there is a pipeline, a policy switches circuits from one
    collective to the next, or the network is no product of blocks, the whole iteration is one program.

    Parameters
    ----------
    topology : Topology
        Its bandwidths matter to algorithms that look at them.
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
    parts: list[tuple[float, Timed | Switched]] = []
    constant_ns = 0.0
    for one in placed:
        if one.pipeline is not None:
            build_job = partial(
                pipeline_job, workload=one.workload, groups=one.groups, pipeline=one.pipeline, training=training
            )
            parts.append((one.weight, make.part(build_job)))
        elif training.loop == "no-overlap" and is_product(topology) and not switches(topology):
            constant_ns += one.weight * one.workload.compute_ns
            parts += _collectives(make, one, training, checkpointed)
        else:
            workload = _recomputed(one.workload) if checkpointed and training.loop == "no-overlap" else one.workload
            build_job = partial(training_job, workload=workload, groups=one.groups, training=training)
            parts.append((one.weight, make.part(build_job)))
    return Simulated(parts, constant_ns, how)


def plan_objective(
    topology: Topology, plan: Plan, algorithm: str, *, model: Model = Model(chunks=1), symmetry: str = "auto",
    most_GBps: float | None = None, how: How = AS_USUAL,
) -> "Composed":
    """The time of an iteration of a plan, composed of passes: each distinct collective is simulated alone.

    Parameters as in `collective_objective`.
    """
    make, calls = _Parts(topology, algorithm, model, symmetry, most_GBps or math.inf), dict[Called, None]()

    def called(*call: Any) -> int:
        calls.setdefault(call)
        return 1

    def job(on: Topology, call: Called) -> Job:
        found, (kind, size_bytes, group) = Job(on), call
        FabricGroups(on, plan.groups, algorithm).add(found, kind, max(1, round(size_bytes)), group)
        return found

    iterate(plan, called)
    return Composed(plan, {call: make.part(partial(job, call=call)) for call in calls}, how)


Called = tuple[str, float, str]
"""A collective of a plan: kind, bytes, group."""

TRIED_PS = 10**6
"""By how much a collective is made longer and shorter, to see whether a path has it."""


class Composed(Simulated):
    """An iteration of a plan: the longest path through its passes, of collectives that are simulated alone.

    To the search it is one part. Its time is convex in those of the collectives, but for what kernels beside them lose:
    without that, the collectives on one longest path and the work between them bound it from below.
    """

    def __init__(self, plan: Plan, parts: Mapping[Called, Timed | Switched], how: How) -> None:
        self.plan, self.calls = plan, tuple(parts)
        super().__init__([(1.0, part) for part in parts.values()], 0.0, how)
        self.floors = (self._floor(),)

    @property
    def weights(self) -> tuple[float, ...]:
        """One part, which is the iteration."""
        return (1.0,)

    def _total_ps(self, times_ps: Sequence[float] | F64, beside: bool = True) -> float:
        known = {call: round(time) for call, time in zip(self.calls, times_ps, strict=True)}
        return iterate(self.plan, lambda *call: known[call], beside=beside).time_ps

    def _joined(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        times, services = (np.array([getattr(part, name) for part in parts]) for name in ("time_ns", "service_ns"))
        here = self._total_ps(times * 1e3)
        along = [(self._total_ps(times * 1e3 + one) - here) / 1e3 for one in services.T]  # a thousandth more of each
        return (Part(1.0, here / 1e3, 1e3 * np.array(along)),)

    def _floor(self) -> Epigraph:
        """Of a path that is the longest with bandwidths that are all alike; without collectives where several are."""
        bandwidth = np.full(self.n_dims, ALIKE_GBPS)
        times = np.array(self._times_ps(bandwidth))
        here = self._total_ps(times, beside=False)
        more, less = (np.array([self._total_ps(times + step, beside=False) - here for step in sign * np.eye(times.size)
                                * TRIED_PS]) * sign / TRIED_PS for sign in (1, -1))
        if np.abs(more - less).max() > 1e-3:
            return flat_epigraph(self._total_ps(0 * times, beside=False) / 1e3, np.zeros(1),
                                 [(0, 0.0, np.zeros(self.n_dims))], self.n_dims)
        share = np.minimum(more, less)
        constant = (here - share @ times) * (1 - 1e-9) / 1e3
        return convex_model(constant, share.tolist(), self.floors, [], self.n_dims)


ALIKE_GBPS = 100.0
"""Bandwidth of every dimension at which the path is taken that bounds an iteration; one of any bandwidth does."""


def _recomputed(workload: Workload) -> Workload:
    """A workload whose forward collectives run again before the gradients of their layers."""
    def backward(one: Layer) -> Phase:
        again = (replace(call, before=True) for call in one.forward.calls)
        return replace(one.input_grad, calls=(*again, *one.input_grad.calls))

    return replace(workload, layers=tuple(replace(one, input_grad=backward(one)) for one in workload.layers))


def _collectives(
    make: _Parts, one: Placed, training: Training, checkpointed: bool
) -> list[tuple[float, Timed | Switched]]:
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
