"""When to switch circuits during a collective: the cost of each step on each fabric, and a dynamic program over steps.

A step costs a start-up, the propagation along its longest route, and its bytes over the busiest link; on a dedicated
circuit that is one hop and one message ("When Light Bends to the Collective Will", arXiv 2510.08072). Changing the
fabric costs a delay. The fabrics may be two states, the base fabric and the circuits that match the step, or include
stride rings, on which several steps run well ("Harvest", arXiv 2602.09188, searches for such intermediate fabrics).
"""

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


@dataclass(frozen=True)
class Plan:
    """The fabric of each step."""

    fabrics: tuple[int, ...]  # index of the fabric of each step; 0 is the initial one
    time_ps: int  # total time, including delays

    @property
    def changes(self) -> tuple[bool, ...]:
        """Whether the fabric changes before each step."""
        before = (0, *self.fabrics[:-1])
        return tuple(a != b for a, b in zip(before, self.fabrics, strict=True))

    @property
    def reconfigurations(self) -> int:
        """Number of fabric changes."""
        return sum(self.changes)

    @property
    def letters(self) -> str:
        """One letter per step: B on the base fabric, R on another after switching, m if unchanged."""
        return "".join(
            "B" if fabric == 0 else "R" if changed else "m"
            for fabric, changed in zip(self.fabrics, self.changes, strict=True)
        )


def cost_of(fabrics: Sequence[int], costs_ps: Ints, delay_ps: int) -> Plan:
    """The plan for a given sequence of fabrics.

    `fabrics`: one per step.
    `costs_ps` (steps, fabrics).
    `delay_ps`: delay of every change.
    WeftError: a step on a fabric without a route for it.
    """
    chosen = tuple(int(fabric) for fabric in fabrics)
    for step, fabric in enumerate(chosen):
        if costs_ps[step, fabric] >= IMPOSSIBLE:
            raise WeftError(f"step {step} has no route on fabric {fabric}")
    steps = sum(int(costs_ps[step, fabric]) for step, fabric in enumerate(chosen))
    return Plan(chosen, steps + delay_ps * Plan(chosen, 0).reconfigurations)


def best_plan(costs_ps: Ints, delay_ps: int) -> Plan:
    """The cheapest sequence of fabrics; among equals the one that changes later and less often.

    `costs_ps` (steps, fabrics): `IMPOSSIBLE` if a step cannot, or must not, run there.
    `delay_ps`: of every change; 0 is allowed.
    WeftError: a negative delay, or a step that no fabric can run.
    """
    if delay_ps < 0:
        raise WeftError(f"reconfiguration delay {delay_ps} ps is negative")
    n_steps, n_fabrics = costs_ps.shape
    if n_steps == 0:
        return Plan((), 0)
    best = np.where(np.arange(n_fabrics) == 0, 0, delay_ps) + costs_ps[0]
    came = [np.zeros(n_fabrics, np.int64)]
    for step in range(1, n_steps):
        moved = best[:, None] + np.where(np.eye(n_fabrics, dtype=np.bool_), 0, delay_ps)
        # Among equals, stay on the same fabric; otherwise the first.
        rank = 2 * np.minimum(moved, IMPOSSIBLE) - np.eye(n_fabrics, dtype=np.int64)
        came.append(rank.argmin(axis=0))
        best = np.minimum(moved[came[-1], np.arange(n_fabrics)], IMPOSSIBLE) + costs_ps[step]
    last = int(best.argmin())
    if best[last] >= IMPOSSIBLE:
        step = int(np.argmax(costs_ps.min(axis=1) >= IMPOSSIBLE))
        raise WeftError(f"step {step} has no route on any fabric")
    chosen = [last]
    for step in range(n_steps - 1, 0, -1):
        chosen.append(int(came[step][chosen[-1]]))
    return Plan(tuple(reversed(chosen)), int(best[last]))


def only(costs_ps: Ints, allowed: Sequence[set[int]]) -> Ints:
    """The costs with each step restricted to some of the fabrics."""
    kept = np.array([[fabric in some for fabric in range(costs_ps.shape[1])] for some in allowed], np.bool_)
    return np.where(kept.reshape(costs_ps.shape), costs_ps, IMPOSSIBLE)


def alternating_planes_ps(costs_ps: Sequence[int], delay_ps: int, planes: int = 2) -> int:
    """Time when steps take turns on planes, each of which switches while the others transmit (SWOT, arXiv 2510.19322).

    Step i runs on plane i mod `planes`, which starts switching for it as soon as its previous step is over.

    `costs_ps`: cost of each step on its own circuits, at the rate of one plane.
    """
    if planes < 1:
        raise WeftError(f"{planes} planes: give at least 1")
    over = [0] * planes
    end = 0
    for step, cost in enumerate(costs_ps):
        plane = step % planes
        end = max(end, over[plane] + delay_ps) + cost
        over[plane] = end
    return end
