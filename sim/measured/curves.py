"""The curve of an algorithm, time over size, at any latency and bandwidth: lowered once, run repeatedly.

A program holds service times and latencies as tables. A different bandwidth of all links scales the services, a
different latency of all transfers adds to the latencies, and nothing else in the program changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from collectives import Schedule
from sim.analytic.bounds import busy_and_path_ps
from sim.analytic.traffic import F64
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.model import Model
from sim.program.retime import KEEPS_ITS_RATE, retime
from sim.study.choice import ready_forms
from sim.study.spec import Spec
from topologies import Topology, WeftError
from topologies.units import PS_PER_S


@dataclass(frozen=True, eq=False)
class Curve:
    """Programs of one algorithm at some sizes, form by form."""

    name: str
    sizes_bytes: tuple[int, ...]
    programs: tuple[tuple[Lowered, ...], ...]  # one for every form that can run, at each size
    how: How = AS_USUAL
    _known: dict[tuple[int, tuple[float, ...]], F64] = field(default_factory=dict)

    def times_s(self, latency_s: float, *shares: float) -> F64:
        """Time at each size, of the fastest form.

        `latency_s`: added to every transfer.
        `shares`: bandwidth of every link relative to the topology, or of each class of `link_classes`.
        """
        key = round(latency_s * PS_PER_S), shares
        if key not in self._known:
            times = [min(self._time_ps(_at(one, *key)) for one in forms) for forms in self.programs]
            self._known[key] = np.array(times, np.float64) / PS_PER_S
        return self._known[key]

    def first_s(self, latency_s: float) -> float:
        """Time at the smallest size, with more latency of every transfer."""
        extra = round(latency_s * PS_PER_S)
        return min(self._time_ps(_at(one, extra, (1.0,))) for one in self.programs[0]) / PS_PER_S

    def _time_ps(self, program: Program) -> int:
        return self.how.run(program, lower_bound_ps=lambda one: max(busy_and_path_ps(one))).makespan_ps


def link_classes(topology: Topology) -> tuple[float, ...]:
    """Distinct bandwidths of links in bytes/s, ascending: links of one rate are one class."""
    return tuple(np.unique(topology.bandwidth_Bps).tolist())


def _at(lowered: Lowered, latency_ps: int, shares: tuple[float, ...]) -> Program:
    """The program with more latency of each transfer and other bandwidths of links."""
    bandwidth, link_rate = np.unique(lowered.topology.bandwidth_Bps, return_inverse=True)
    each = shares * len(bandwidth) if len(shares) == 1 else shares
    rates = [Fraction(float(rate)) * Fraction(share) for rate, share in zip(bandwidth, each, strict=True)]
    link = lowered.server_link
    return retime(lowered.program, rates, np.where(link >= 0, link_rate[link], KEEPS_ITS_RATE), latency_ps)


def curve(spec: Spec, topology: Topology, name: str, sizes_bytes: Sequence[int], how: How = AS_USUAL) -> Curve:
    """The curve of an algorithm.

    `spec`: collective, form and model.
    `how`: its runs.
    WeftError: no form can run at some size.
    """
    model = spec.build_model()
    programs = tuple(_programs(spec, topology, name, size, model) for size in sizes_bytes)
    return Curve(name, tuple(sizes_bytes), programs, how)


def _programs(spec: Spec, topology: Topology, name: str, size: int, model: Model) -> tuple[Lowered, ...]:
    def schedule_of(form: str) -> Schedule:
        return spec.build_schedule(name, topology, size, form or None)

    ready, _ = ready_forms(spec.forms_of(name) or ("",), schedule_of, model, spec.symmetry)
    return tuple(lower(schedule, model, spec.symmetry) for schedule in ready.values())


def curves(
    spec: Spec, topology: Topology, names: Sequence[str], sizes_bytes: Sequence[int], how: How = AS_USUAL
) -> tuple[list[Curve], Mapping[str, str]]:
    """The curves of those algorithms that can run, and why the others cannot."""
    found, refused = [], {}
    for name in names:
        try:
            found.append(curve(spec, topology, name, sizes_bytes, how))
        except WeftError as wrong:
            refused[name] = str(wrong)
    return found, refused
