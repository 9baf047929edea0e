"""Cost of each step of a collective on each fabric that circuits can be switched to.

A step costs a start-up, the propagation along its longest route, and its bytes over the busiest link; on a dedicated
circuit that is one hop and one message ("When Light Bends to the Collective Will", arXiv 2510.08072).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from collectives.core.schedule import Schedule
from topologies import Circuits, Topology, WeftError, circulant, optical
from topologies.stages import count
from topologies.units import PS_PER_S, Quantity

Ints = npt.NDArray[np.int64]

IMPOSSIBLE = 2**60
"""Cost in ps of a step on a fabric without a route for some of its pairs."""


@dataclass(frozen=True)
class Step:
    """Transfers that start together."""

    src: tuple[int, ...]  # ranks
    dst: tuple[int, ...]
    size_bytes: tuple[int, ...]  # bytes of each transfer

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Distinct pairs of ranks, in order."""
        return tuple(sorted(set(zip(self.src, self.dst, strict=True))))


def steps_of(schedule: Schedule, port: int | None = None) -> list[Step]:
    """The steps of a schedule, first to last.

    `port`: only the steps of this port.
    """
    t = schedule.pattern.transfers()
    kept = t.src != t.dst
    if port is not None:
        kept &= t.port == port
    steps = list[Step]()
    numbers = np.unique(t.step[kept])
    for step in numbers:
        count("steps", len(steps), numbers.size)
        rows = np.flatnonzero(kept & (t.step == step))
        sizes = t.blocks[rows] * schedule.block_bytes
        steps.append(Step(tuple(t.src[rows].tolist()), tuple(t.dst[rows].tolist()), tuple(sizes.tolist())))
    return steps


@dataclass(frozen=True)
class Congestion:
    """Congestion of a step on a fabric."""

    hops: int  # links on the longest route
    messages: int  # transfers that cross the busiest link
    latency_ps: int  # propagation and hop latency along the slowest route
    transmission_ps: int  # bytes on the busiest link divided by its rate, rounded down


def congestion(topology: Topology, step: Step) -> Congestion | None:
    """Congestion of a step on a fabric; None if some pair has no route."""
    src, dst = np.array(step.src, np.int64), np.array(step.dst, np.int64)
    try:
        paths = topology.paths(src, dst)
    except WeftError:
        return None
    hops = np.diff(paths.ptr)
    latency = topology.latency_ps[paths.links] + topology.hop_latency_ps[topology.dst[paths.links]]
    of_path = np.repeat(np.arange(src.size), hops)  # ties broken, so that a transfer has one
    along = np.bincount(of_path, latency, minlength=src.size)
    loads = np.bincount(paths.links, np.array(step.size_bytes, np.float64)[of_path], minlength=topology.n_links)
    rates = np.unique(topology.bandwidth_Bps[loads > 0]).tolist()
    busy = [_ps(loads[topology.bandwidth_Bps == rate].max(), rate) for rate in rates]
    return Congestion(
        int(hops.max(initial=0)), int(np.bincount(paths.links, minlength=1).max()), int(along.max(initial=0)),
        max(busy, default=0),
    )


def _ps(load_bytes: float, rate_Bps: float) -> int:
    return int(Fraction(float(load_bytes)) * PS_PER_S // Fraction(float(rate_Bps)))


def step_cost_ps(topology: Topology, step: Step, start_up_ps: int = 0) -> int:
    """Time of a step on a fabric, rounded down; `IMPOSSIBLE` if some pair has no route."""
    crowd = congestion(topology, step)
    return IMPOSSIBLE if crowd is None else start_up_ps + crowd.latency_ps + crowd.transmission_ps


def step_costs_ps(fabrics: Sequence[Topology], steps: Sequence[Step], start_up_ps: int = 0) -> Ints:
    """Time of every step on every fabric, (steps, fabrics)."""
    costs = list[int]()
    for step in steps:
        for fabric in fabrics:
            count("costs of steps on fabrics", len(costs), len(steps) * len(fabrics))
            costs.append(step_cost_ps(fabric, step, start_up_ps))
    return np.array(costs, np.int64).reshape(len(steps), len(fabrics))


def matched_fabric(
    n: int, step: Step, interfaces: int, *, bandwidth: Quantity, latency: Quantity, hop_latency: Quantity = 0
) -> Topology:
    """One simplex circuit for every pair of a step.

    WeftError: a rank that sends to, or receives from, more ranks in the step than it has interfaces.
    """
    circuits = Circuits(n, interfaces, step.pairs, duplex=False)
    return optical(circuits, bandwidth=bandwidth, latency=latency, hop_latency=hop_latency, name="matched")


def stride_rings(
    n: int, *, bandwidth: Quantity, latency: Quantity, hop_latency: Quantity = 0
) -> list[Topology]:
    """Rings of servers 1, 2, 4, ... apart, up to half of `n`: two interfaces per server.

    If both directions lead to the same server, one circuit connects the pair.
    """
    strides = [1 << t for t in range(max(n - 1, 1).bit_length()) if n % (2 << t) == 0 or t == 0] if n > 1 else []
    return [
        circulant(n, (stride,), connected=False, bandwidth=bandwidth, latency=latency, hop_latency=hop_latency)
        for stride in strides
    ]
