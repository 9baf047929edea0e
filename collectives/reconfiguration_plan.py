"""When to switch circuits during a collective: a dynamic program over its steps.

Each step runs on one of several fabrics, and changing the fabric costs a delay. The fabrics may be two states, the
base fabric and the circuits that match the step, or include stride rings, on which several steps run well
("Harvest", arXiv 2602.09188, searches for such intermediate fabrics).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives.core.step_costs import IMPOSSIBLE, Ints
from topologies import WeftError


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
