"""LIBRA's time of a training iteration as a function of the bandwidth of each dimension (libra.md section 1).

A collective takes the time of its busiest dimension: perfect pipelining over chunks, no latency, no contention, no
fill or drain. An iteration is a sum of such maxima, which is convex in the bandwidths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from sim.analytic.convex import Epigraph, EpigraphRow
from sim.analytic.traffic import F64, dimension_traffic
from topologies.checks import Number, WeftError, checked, choice
from topologies.text.brief import one_line
from workloads.pipeline import Pipeline, cut_into_stages
from workloads.workload import Call, Groups, Layer, Phase, Workload

LOOPS = ("no-overlap", "overlap")
"""`no-overlap` exposes every collective (2024); `overlap` runs the weight gradient and its collective beside the
collective of the input gradient, layer by layer (2022)."""

Weight = Annotated[float, Number(1e-9, 10**9)]
"""Of a workload, relative to others: with more the sum of their times would lose the smaller ones."""


@checked
@one_line
class Placed(NamedTuple):
    """A workload on the dimensions of a network.

    Attributes
    ----------
    workload : Workload
    groups : mapping from group to NPUs of each dimension
    weight : float
        Weight of its time relative to other workloads, from 1e-9 to 1e9.
    pipeline : Pipeline or None
        Stages of layers; the workload is then one microbatch of all of them.
    """

    workload: Workload
    groups: Groups
    weight: Weight = 1.0
    pipeline: Pipeline | None = None

    @property
    def n_stages(self) -> int:
        """Stages of the pipeline; 1 where there is none."""
        return math.prod(self.groups[self.pipeline.group]) if self.pipeline else 1

    @property
    def compute_ns(self) -> float:
        """Compute of an iteration that nothing overlaps; for a pipeline with its bubbles, messages being free."""
        if self.pipeline is None:
            return self.workload.compute_ns
        times = [
            sum(phase.compute_ns for number in stage for phase in self.workload.layers[number].phases)
            for stage in cut_into_stages(self.workload, self.n_stages)
        ]
        return sum(times) + (self.pipeline.microbatches - 1) * max(times)

    @property
    def n_dims(self) -> int:
        """Dimensions of the network."""
        return len(next(iter(self.groups.values())))

    def traffic(self, call: Call) -> F64:
        """Bytes of a collective in each dimension, (D,)."""
        return dimension_traffic(call.kind, call.size_bytes, self.groups[call.group])


def iteration_time(placed: Sequence[Placed], loop: str = "no-overlap", checkpointed: bool = False) -> Epigraph:
    """Time of an iteration of each workload, weighted and summed.

    `loop`: {"no-overlap", "overlap"}.
    `checkpointed`: the forward collectives run a second time in the backward pass (activation checkpointing; compute as
        given).
    WeftError: an unknown loop, or no workload.
    """
    choice(loop, LOOPS, "loop")
    if not placed:
        raise WeftError("no workload: give at least one")
    sums = _Sums(placed[0].n_dims)
    for one in placed:
        if one.pipeline is not None:
            if loop != "no-overlap" or checkpointed:
                raise WeftError("a pipeline is timed without overlap and without checkpoints: choose loop no-overlap")
            _add_pipeline(sums, one, one.pipeline.microbatches)
            continue
        for layer in one.workload.layers:
            _add_forward(sums, one, layer.forward, 2 if checkpointed else 1)
            if loop == "no-overlap":
                _add_forward(sums, one, layer.input_grad, 1)
                _add_forward(sums, one, layer.weight_grad, 1)
            else:
                _add_backward(sums, one, layer)
    return sums.epigraph()


def _add_forward(sums: _Sums, one: Placed, phase: Phase, times: int) -> None:
    """A computation and its collectives, one after the other."""
    sums.constant_ns += one.weight * phase.compute_ns
    for call in phase.calls:
        sums.collective(one.traffic(call), one.weight * times)


def _add_pipeline(sums: _Sums, one: Placed, microbatches: int) -> None:
    """The first microbatch through all stages, the others behind it at the pace of the slowest, then the gradients.

    Messages between stages are free: LIBRA's model does not include the links that they take.
    """
    passes, gradients = list[_Branch](), list[_Branch]()
    for stage in cut_into_stages(one.workload, one.n_stages):
        layers = [one.workload.layers[number] for number in stage]
        compute_ns = sum(phase.compute_ns for layer in layers for phase in layer.phases)
        calls = [call for layer in layers for phase in layer.phases[:2] for call in phase.calls]
        reductions = [call for layer in layers for call in layer.weight_grad.calls]
        sums.constant_ns += one.weight * compute_ns
        for call in calls:
            sums.collective(one.traffic(call), one.weight)
        passes.append((compute_ns, tuple(tuple(one.traffic(call)) for call in calls)))
        gradients.append((0.0, tuple(tuple(one.traffic(call)) for call in reductions)))
    if microbatches > 1:
        sums.race(tuple(dict.fromkeys(passes)), one.weight * (microbatches - 1))
    sums.race(tuple(dict.fromkeys(gradients)), one.weight)


def _add_backward(sums: _Sums, one: Placed, layer: Layer) -> None:
    """ic + max(I, wc + W)."""
    sums.constant_ns += one.weight * layer.input_grad.compute_ns
    branches = tuple(
        (compute_ns, tuple(tuple(one.traffic(call)) for call in phase.calls))
        for compute_ns, phase in ((0.0, layer.input_grad), (layer.weight_grad.compute_ns, layer.weight_grad))
    )
    sums.race(branches, one.weight)


_Traffic = tuple[float, ...]
_Branch = tuple[float, tuple[_Traffic, ...]]


@dataclass
class _Sums:
    """Collects equal terms once, with their weights."""

    n_dims: int
    constant_ns: float = 0.0
    collectives: dict[_Traffic, float] = field(default_factory=dict)
    races: dict[tuple[_Branch, ...], float] = field(default_factory=dict)

    def collective(self, traffic: F64, weight: float) -> None:
        """One collective alone."""
        if traffic.any():
            key = tuple(traffic.tolist())
            self.collectives[key] = self.collectives.get(key, 0.0) + weight

    def race(self, branches: tuple[_Branch, ...], weight: float) -> None:
        """Branches of (compute, collectives one after the other), of which the longest counts."""
        branches = tuple((ns, tuple(call for call in calls if any(call))) for ns, calls in branches)
        if not any(calls for _, calls in branches):
            self.constant_ns += weight * max(ns for ns, _ in branches)
        else:
            self.races[branches] = self.races.get(branches, 0.0) + weight

    def epigraph(self) -> Epigraph:
        """Variables of the collectives first, then of the races that contain them."""
        index: dict[_Traffic, int] = {}
        for traffic in (*self.collectives, *(t for race in self.races for _, calls in race for t in calls)):
            index.setdefault(traffic, len(index))
        weight = [self.collectives.get(traffic, 0.0) for traffic in index] + list(self.races.values())
        rows: list[EpigraphRow] = []
        nothing = np.zeros(len(weight))
        for traffic, variable in index.items():
            rows += [(variable, 0.0, slope, nothing) for slope in np.diag(traffic) if slope.any()]
        for place, race in enumerate(self.races):
            for ns, calls in race:
                inner = nothing.copy()
                np.add.at(inner, [index[call] for call in calls], 1.0)
                rows.append((len(index) + place, ns, np.zeros(self.n_dims), inner))
        return Epigraph.of(self.constant_ns, weight, rows, self.n_dims)
