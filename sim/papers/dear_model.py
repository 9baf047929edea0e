"""Closed forms of a data-parallel iteration: wait-free backpropagation and DeAR.

Reductions run one at a time. Time is seconds; groups of layers are in forward order, and gradients are ready in
the reverse of it.

References
----------
.. [1] L. Zhang, S. Shi, X. Chu, W. Wang, B. Li, C. Liu, "DeAR: Accelerating Distributed Deep Learning with
   Fine-Grained All-Reduce Pipelining", ICDCS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Group(NamedTuple):
    """Layers whose gradients are reduced together."""

    forward_s: float
    backward_s: float
    gradient_bytes: float


class Ring(NamedTuple):
    """A ring of workers: each step takes a start-up time, and its bytes."""

    workers: int
    step_s: float
    s_per_byte: float

    def half_s(self, size_bytes: float) -> float:
        """Time of a reduce-scatter or an all-gather: (P-1)(a + m b / P)."""
        return (self.workers - 1) * (self.step_s + size_bytes * self.s_per_byte / self.workers)


def wfbp_s(groups: Sequence[Group], ring: Ring) -> float:
    """Forward, then backward with the all-reduces behind it, each as soon as its gradients and the link are free."""
    ready = end = 0.0
    for group in reversed(groups):
        ready += group.backward_s
        end = max(end, ready) + 2 * ring.half_s(group.gradient_bytes)
    return sum(group.forward_s for group in groups) + max(ready, end)


def dear_s(groups: Sequence[Group], ring: Ring) -> float:
    """Backward with the reduce-scatters, then forward, each group of layers after its all-gather ([1], section III)."""
    ready = end = 0.0
    for group in reversed(groups):
        ready += group.backward_s
        end = max(end, ready) + ring.half_s(group.gradient_bytes)
    gathered = done = max(ready, end)
    for group in groups:
        gathered += ring.half_s(group.gradient_bytes)
        done = max(done, gathered) + group.forward_s
    return done


def fluid_gain(forward_s: float, backward_s: float, all_reduce_s: float) -> float:
    """WFBP over DeAR with infinitely fine groups and no start-up; at most 1.25 where backward takes twice forward."""
    wfbp = forward_s + max(backward_s, all_reduce_s)
    return wfbp / (max(backward_s, all_reduce_s / 2) + max(forward_s, all_reduce_s / 2))
