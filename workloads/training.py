"""One training iteration as a job: computations, collectives on their groups, and their overlap.

The loops differ in what waits for the reduction of gradients:

- `no-overlap`: everything, in sequence, as in LIBRA's loop;
- `wfbp`, wait-free backpropagation: only the end; gradients are reduced while the backward pass continues;
- `dear`: the all-reduce is cut in two. Reduce-scatter overlaps with backward; all-gather overlaps with the forward
  of the *next* iteration, layer by layer. The job is one period: backward first, then forward.

References
----------
.. [1] L. Zhang, S. Shi, X. Chu, W. Wang, B. Li, C. Liu, "DeAR: Accelerating Distributed Deep Learning with
   Fine-Grained All-Reduce Pipelining", ICDCS 2023.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from collectives.core.process_groups import ProcessGroup, process_group
from collectives.core.schedule import Schedule
from collectives.hierarchical import DEFAULT_PIPELINE_CHUNKS
from collectives.registry import algorithm, build
from topologies import Topology, WeftError
from topologies.checks import Choice, checked
from topologies.core.product import DimensionOrderRouter
from topologies.grouped import grouped
from topologies.text.brief import one_line
from topologies.units import PositiveBytes, from_nanoseconds
from workloads.group_collectives import GroupCollectives
from workloads.job import Job
from workloads.parallelism import DATA, EXPERT, EXPERT_DATA, PIPELINE, TENSOR
from workloads.workload import Call, Groups, Layer, Phase, Workload, check_groups

LOOPS = ("no-overlap", "wfbp", "dear")

FALLBACK = "hierarchical"
"""Has all collectives of an iteration on products, in any order of dimensions."""

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, UPDATE = "forward", "input gradient", "weight gradient", "update"

MIB = 2**20


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of a training iteration.

    Attributes
    ----------
    loop : {"no-overlap", "wfbp", "dear"}
    bucket_bytes : int or None
        Gradients of consecutive layers are reduced together while their sum stays below this (a layer may exceed it
        alone); None reduces each layer's by itself. May be given as "25MiB".
    in_order : bool
        Whether gradient reductions run one at a time, as on one NCCL stream; otherwise each starts when its gradients
        are ready.
    first_layers_first : bool
        Whether links and dimensions serve the collectives of earlier layers first when they have a choice.
    updates : bool
        Whether the weight update takes the time given by the workload, after the reduction of its gradients and before
        ZeRO's gathers of weights, which wait for all of them; LIBRA omits it.
    algorithm : str
        Of all collectives, or several with commas: each takes the first that has it, or "hierarchical".
    options : mapping
        Options of the algorithm: `pipeline_chunks`, `active_chunks`, `algorithms`, ...
    orders : mapping from str to tuple of int
        Order of dimensions of some collectives, by group and kind ("dp all-reduce"); they are then hierarchical.
    """

    loop: Annotated[str, Choice(LOOPS)] = "wfbp"
    bucket_bytes: PositiveBytes | None = 25 * MIB
    in_order: bool = False
    first_layers_first: bool = False
    updates: bool = False
    algorithm: str = FALLBACK
    options: Mapping[str, object] = field(default_factory=lambda: {"pipeline_chunks": DEFAULT_PIPELINE_CHUNKS})
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = set().union(*map(_options_of, (*self.names, FALLBACK)))
        if unknown := sorted(set(self.options) - taken):
            raise WeftError(f"option {unknown[0]!r} is of none of {', '.join(self.names)}: they take "
                            f"{', '.join(sorted(taken))}")

    @property
    def names(self) -> tuple[str, ...]:
        """Those of `algorithm`."""
        return tuple(self.algorithm.split(","))


def _options_of(name: str) -> set[str]:
    """What an algorithm takes beside a size."""
    return {"element_bytes", *algorithm(name).options}


class Bucket(NamedTuple):
    """Layers whose gradients are reduced together, in forward order, and the collective."""

    layers: tuple[int, ...]
    call: Call


@checked
def training_job(topology: Topology, workload: Workload, groups: Groups, training: Training = Training()) -> Job:
    """The operations of one iteration; all NPUs behave identically.

    Parameters
    ----------
    topology : Topology
    workload : Workload
    groups : mapping from name to extents
        NPUs that a group takes of each dimension. Where it takes a part, groups of weight gradients take NPUs that
        are far apart and the others neighbors, so that together they tile the dimension.
    training : Training

    Raises
    ------
    WeftError
        Groups that do not fit the network, or an algorithm that cannot do a collective.
    """
    check_groups(workload, groups, topology.shape)
    check_updates(workload, training)
    collectives = Collectives(topology, process_groups(workload, groups, topology.shape), training)
    layers = Layers(Job(topology), workload, collectives, training, range(len(workload.layers)))
    if training.loop == "dear":
        backward = layers.backward([])
        layers.forward([], layers.gather(backward))
    else:
        layers.backward(layers.forward([]), keep_last=training.loop == "wfbp")
    return layers.job


def check_updates(workload: Workload, training: Training) -> None:
    """Reject updates of a workload that gives them no time."""
    if training.updates and not any(layer.update_ns for layer in workload.layers):
        raise WeftError(
            f"workload {workload.name} has no update times: column 12 of a file, or for a model the memory bandwidth "
            "of its accelerator"
        )


def gradient_buckets(workload: Workload, bucket_bytes: int | None, numbers: range | None = None) -> list[Bucket]:
    """Reductions of gradients: all-reduces of consecutive layers in one group are fused, other calls stay alone.

    A layer joins the bucket if the bucket is empty or their sum stays below `bucket_bytes` ([1], section IV).

    `bucket_bytes`: None fuses nothing.
    `numbers`: of these layers only.
    """
    buckets: list[Bucket] = []
    for number in range(len(workload.layers)) if numbers is None else numbers:
        for call in workload.layers[number].weight_grad.calls:
            last = buckets[-1] if buckets else None
            if last is not None and _fits(last.call, call, bucket_bytes):
                total = Call(call.kind, last.call.size_bytes + call.size_bytes, call.group)
                buckets[-1] = Bucket((*last.layers, number), total)
            else:
                buckets.append(Bucket((number,), call))
    return buckets


def _fits(one: Call, other: Call, bucket_bytes: int | None) -> bool:
    return (
        bucket_bytes is not None
        and one.kind == other.kind == "all-reduce"
        and one.group == other.group
        and one.size_bytes + other.size_bytes < bucket_bytes
    )


BEFORE = {DATA: (TENSOR,), EXPERT: (TENSOR,), EXPERT_DATA: (TENSOR, EXPERT), PIPELINE: (TENSOR, DATA)}
"""Groups that `workloads.parallelism` places further inside a dimension than each."""


def process_groups(workload: Workload, groups: Groups, shape: tuple[int, ...]) -> dict[str, ProcessGroup]:
    """The ranks of each group, where several share a dimension.

    Groups of `workloads.parallelism` lie as it counts ranks. Of others, those that only reduce gradients take NPUs as
    far apart as they can, and the rest neighbors.
    """
    inner = {call.group for layer in workload.layers for phase in layer.phases[:2] for call in phase.calls}
    found = {}
    for name, extents in groups.items():
        if name in BEFORE:
            within = [math.prod(groups[one][dim] for one in BEFORE[name] if one in groups) for dim in range(len(shape))]
        else:
            within = [1 if name in inner else whole // extent for whole, extent in zip(shape, extents, strict=True)]
        spec = [f"{extent}@{stride if extent > 1 else 1}" for extent, stride in zip(extents, within, strict=True)]
        found[name] = process_group(shape, spec)
    return found


def kind_of(call: Call) -> str:
    """What tables call a collective: "dp all-reduce"."""
    return f"{call.group} {call.kind}"


class Collectives:
    """Schedules of calls, one for each kind, size and group."""

    def __init__(self, topology: Topology, groups: Mapping[str, ProcessGroup], training: Training) -> None:
        self.topology, self.groups, self.training = topology, groups, training
        self._known: dict[tuple[str, int, str], Schedule] = {}

    def schedule(self, call: Call) -> Schedule:
        """The schedule of a call."""
        group = self.groups[call.group]
        key = (call.kind, round(call.array_bytes(group.size)), call.group)
        if key not in self._known:
            self._known[key] = self._build(call, key[1], group)
        return self._known[key]

    def _build(self, call: Call, size_bytes: int, group: ProcessGroup) -> Schedule:
        kind, options = call.kind, dict(self.training.options)
        order = self.training.orders.get(kind_of(call))
        if order is not None:
            options["order"] = order
        has = [] if order is not None else [one for one in self.training.names if kind in algorithm(one).functions]
        name = has[0] if has else FALLBACK
        options = {key: value for key, value in options.items() if key in _options_of(name)}
        if not group.is_whole:
            options["group"] = group
        return build(name, kind, self.topology, size_bytes, None, **options)

    def members(self, name: str, npus: Sequence[int] | None) -> list[tuple[int, ...]]:
        """The groups of a name, or those among some NPUs."""
        group = self.groups[name]
        ranks = np.arange(self.topology.n_npus) if npus is None else np.array(sorted(npus))
        first = ranks.copy()
        for dim in group.dims:
            first = group.move(first, dim, -group.position(first, dim))
        return [tuple(ranks[first == one].tolist()) for one in np.unique(first)]


def is_product(topology: Topology) -> bool:
    """Whether hierarchical collectives run on a fabric; on others groups run an algorithm among their NPUs."""
    return isinstance(topology.router, DimensionOrderRouter)


class _Ahead:
    """The last gather of weights, and what the computation that uses it waited for: when the next may be issued."""

    def __init__(self, after: Sequence[int]) -> None:
        self.issued, self.last = list(after), list[int]()


class Layers:
    """Adds the operations of consecutive layers to a job, on all NPUs or on those of a pipeline stage.

    `numbers`: the layers.
    `npus`: default: all.
    """

    def __init__(
        self, job: Job, workload: Workload, collectives: Collectives, training: Training, numbers: range,
        npus: Sequence[int] | None = None,
    ) -> None:
        self.job, self.layers, self.numbers, self.npus = job, workload.layers, numbers, npus
        self.collectives, self.training = collectives, training
        named = () if training.algorithm == FALLBACK else training.names
        parts = any(not group.is_whole for group in collectives.groups.values())
        together = is_product(job.topology) and not (
            parts and any("group" not in algorithm(name).options for name in training.names))
        self.among = None if together else GroupCollectives(job.topology, named, training.options)
        self.buckets = gradient_buckets(workload, training.bucket_bytes, numbers)
        self._begun = grouped((bucket.layers[0], bucket) for bucket in self.buckets)
        self.reductions: list[int] = []  # one a bucket, in the order of their begin
        self._ready: dict[int, int] = {}  # layer -> the computation of its weight gradient
        self._updated: list[tuple[Bucket, list[int]]] = []  # gathers of weights, and what updates those

    def forward(self, after: Sequence[int], gathered: Mapping[int, int] | None = None, tag: str = "") -> list[int]:
        """Layers first to last; returns what the next computation waits for.

        `gathered`: by layer, the operation that gathers the weights of a layer.
        `tag`: end of the names: the microbatch.
        """
        at, ahead = list(after), _Ahead(after)
        for number in self.numbers:
            weights = [gathered[number]] if gathered and number in gathered else []
            layer = self.layers[number]
            weights += self._gather(number, layer.forward, ahead, at, tag)
            computed = self._compute(FORWARD, number, layer.forward, [*at, *weights], tag)
            at = self._calls(number, layer.forward.calls, computed, tag)
        return at

    def backward(self, after: Sequence[int], tag: str = "", last: bool = True, keep_last: bool = False) -> list[int]:
        """Layers last to first; the gradient of the weights is computed while that of the input is reduced.

        `last`: whether the gradients are complete, and are reduced as they come.
        `keep_last`: whether the weights that the forward pass gathered last are still there, and not gathered again.
        """
        at, ahead, kept = list(after), _Ahead(after), keep_last
        for number in reversed(self.numbers):
            layer = self.layers[number]
            weights: list[int] = []
            if not kept:
                weights = self._gather(number, layer.input_grad, ahead, at, tag)
            elif any(call.before for call in layer.input_grad.calls):
                kept, ahead.issued = False, at
            computed = self._compute(INPUT_GRADIENT, number, layer.input_grad, [*at, *weights], tag)
            arrived = self._calls(number, layer.input_grad.calls, computed, tag)
            exposed = self.training.loop == "no-overlap"
            at = self._compute(WEIGHT_GRADIENT, number, layer.weight_grad, arrived if exposed else computed, tag)
            self._ready[number] = at[0]
            if not exposed and arrived != computed:
                at = [*arrived, *at]
            if last:
                at = self._reduce(number, at)
        return self._gather_updated(at)

    def _reduce(self, number: int, at: list[int]) -> list[int]:
        """Begin the reductions whose first layer this is, and update the weights after them."""
        exposed = self.training.loop == "no-overlap"
        mine: list[int] = []  # calls of one layer follow each other: a gather waits for its scatter
        for bucket in self._begun.get(number, ()):
            call = bucket.call
            if call.kind == "all-gather":  # ZeRO: of weights, when all gradients are reduced and their norm is known
                self._updated.append((bucket, mine))
                continue
            if self.training.loop == "dear" and call.kind == "all-reduce":
                call = Call("reduce-scatter", call.size_bytes, call.group)
            after = mine or at if exposed else [*mine, *(self._ready[layer] for layer in bucket.layers)]
            if self.training.in_order:
                after = [*after, *self.reductions[-1:]]
            self.reductions.append(self._collective(call, number, after))
            mine = self.reductions[-1:]
            if self.training.loop != "dear":
                mine = self._update(bucket, mine)
            at = self.reductions[-1:] if exposed else at
        return at

    def _gather_updated(self, at: list[int]) -> list[int]:
        """ZeRO's gathers of what was updated, behind the last reduction; returns what a computation waits for."""
        reduced = list(self.reductions)
        for bucket, updated in self._updated:
            after = [*reduced, *updated, *(self.reductions[-1:] if self.training.in_order else ())]
            exposed = self.training.loop == "no-overlap"
            self.reductions.append(self._collective(bucket.call, bucket.layers[0], [*after, *(at if exposed else ())]))
            at = self.reductions[-1:] if exposed else at
        return at

    def _gather(self, number: int, phase: Phase, ahead: _Ahead, at: list[int], tag: str) -> list[int]:
        """What a phase waits for besides `at`: the gather of its weights, issued one computation ahead.

        While a layer that has its weights computes, the weights of the next are gathered, as in FSDP; where nothing
        overlaps, those of a layer when the one before it has ended.
        """
        calls = [call for call in phase.calls if call.before]
        if not calls:
            return []
        done = at if self.training.loop == "no-overlap" else [*ahead.issued, *ahead.last]
        for call in calls:
            done = [self._collective(call, number, done, tag)]
        ahead.issued, ahead.last = at, done
        return done

    def gather(self, after: Sequence[int]) -> dict[int, int]:
        """The all-gathers of DeAR, one after the other in forward order, when all has been scattered.

        Returns what a layer waits for.
        """
        gathered: dict[int, int] = {}
        last: list[int] = []
        for bucket in self.buckets:
            done = self.reductions
            if bucket.call.kind == "all-reduce":
                shard = bucket.call.size_bytes / self.collectives.groups[bucket.call.group].size
                call = Call("all-gather", shard, bucket.call.group)
                done = last = [self._collective(call, bucket.layers[0], [*self.reductions, *after, *last])]
            if bucket.call.kind != "all-gather":
                gathered |= dict.fromkeys(bucket.layers, self._update(bucket, done)[-1])
        return gathered

    def _update(self, bucket: Bucket, after: Sequence[int]) -> list[int]:
        """The update of the weights of a bucket; returns what to wait for."""
        named = f"{UPDATE} {self.layers[bucket.layers[0]].name}"
        time_ps = from_nanoseconds(sum(self.layers[number].update_ns for number in bucket.layers), named)
        if not self.training.updates or not time_ps:
            return list(after)
        return [self.job.compute(named, time_ps, kind=UPDATE, after=after, npus=self.npus)]

    def _compute(self, kind: str, number: int, phase: Phase, after: Sequence[int], tag: str) -> list[int]:
        name = f"{kind} {self.layers[number].name}{tag}"
        time_ps = from_nanoseconds(phase.compute_ns, name)
        return [self.job.compute(name, time_ps, kind=kind, after=after, npus=self.npus)]

    def _calls(self, number: int, calls: Sequence[Call], after: Sequence[int], tag: str) -> list[int]:
        done = list(after)
        for call in calls:
            if not call.before:
                done = [self._collective(call, number, done, tag)]
        return done

    def _collective(self, call: Call, number: int, after: Sequence[int], tag: str = "") -> int:
        kind, priority = kind_of(call), number + 1 if self.training.first_layers_first else 0
        name = f"{kind} {self.layers[number].name}{tag}"
        if self.among is None:
            return self.job.collective(name, self.collectives.schedule(call), kind=kind, after=after, npus=self.npus,
                                       priority=priority)
        group = self.collectives.groups[call.group]
        size = round(call.array_bytes(group.size))
        done = [self.among.add(self.job, name, call.kind, size, members, after, kind, priority)
                for members in self.collectives.members(call.group, self.npus)]
        ranks = range(self.job.topology.n_npus) if self.npus is None else self.npus
        return done[0] if len(done) == 1 else self.job.send(name, 0, list(ranks), list(ranks), kind="join", after=done)


def layer_of(
    name: str, forward_s: float, backward_s: float, gradient_bytes: float, group: str = "weight_grad"
) -> Layer:
    """A layer of data-parallel training: backward is half gradient of the input, half of the weights."""
    half = Phase(backward_s * 1e9 / 2)
    calls = (Call("all-reduce", gradient_bytes, group),) if gradient_bytes else ()
    return Layer(name, Phase(forward_s * 1e9), half, Phase(half.compute_ns, calls))
