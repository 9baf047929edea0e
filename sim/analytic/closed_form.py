"""Closed forms of all-reduce on tori: the deficiency model of the Swing paper, with its sums taken exactly.

    T(n) = alpha log2(p) Lambda + (n / D) beta Psi Xi                                       (NSDI 2024, equation 1)

A node of a torus of D dimensions has 2D ports; alpha is the time of a step to a neighbor without bytes, beta the
time of a byte on one link. Lambda, Psi and Xi are the latency, bandwidth and congestion deficiencies of table 2;
the optimum is 1 for each. The table gives limits for large tori; here Psi Xi is the sum over steps of the bytes of
a message times the messages that share its fullest link. Equation 3 of the paper, for rectangular tori, is too
small by a factor 2D in its second term: `rectangular_xi` is the corrected form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from topologies.units import PS_PER_S

Shape = tuple[int, ...]
Distance = Callable[[int], Fraction]
"""Messages on the fullest link when every node sends one at step sigma of a dimension, plain and mirrored together."""


class Deficiency(NamedTuple):
    """Factors by which an algorithm misses the optimum."""

    latency: Fraction  # lambda log2(p): steps of the algorithm, one after the other
    bandwidth: Fraction  # psi Xi: bytes on the fullest links, over n / D

    def time_ps(self, size_bytes: int, alpha_ps: int, bandwidth_Bps: float, n_dims: int) -> int:
        """Time of an array of `size_bytes`, whole ps rounded up."""
        wire_ps = Fraction(size_bytes, n_dims) * self.bandwidth * PS_PER_S / Fraction(bandwidth_Bps)
        return math.ceil(self.latency * alpha_ps + wire_ps)


def deficiency(algorithm: str, form: str, shape: Shape) -> Deficiency | None:
    """Deficiencies of an all-reduce on a torus, or None where no closed form is known.

    `algorithm`, `form`: as in the registry of algorithms.
    `shape`: extents of the torus; those of 1 are left out. With an extent of 2, whose nodes have one port
        there and not two, there is no closed form.

    Notes
    -----
    NSDI 2024, table 2 and sections 2.3 and 4.1. Ring: on one dimension, or on two with edge-disjoint Hamiltonian
    cycles, 2(p-1) steps. Bucket: the copies change dimension together, so that the longest decides. Latency forms:
    whole arrays at every step, on 2D ports for Swing and mirrored recursive doubling, on one for recursive doubling.
    """
    extents = tuple(extent for extent in shape if extent > 1)
    if not extents or min(extents) < 3:
        return None
    if algorithm == "ring":
        return _ring(extents)
    if algorithm == "bucket":
        return _bucket(extents)
    if algorithm not in _BUTTERFLIES or not all(extent & (extent - 1) == 0 for extent in extents):
        return None
    distance, single_port = _BUTTERFLIES[algorithm]
    return _butterfly(extents, distance, single_port, form)


def _ring(extents: Shape) -> Deficiency | None:
    if len(extents) > 2:
        return None
    p = math.prod(extents)
    return Deficiency(Fraction(2 * (p - 1)), Fraction(p - 1, p))


def _bucket(extents: Shape) -> Deficiency:
    """Phase i of the copy that starts at dimension k runs d-1 steps of blocks n / (2D x extents done so far)."""
    n_dims = len(extents)
    steps, wire = Fraction(0), Fraction(0)
    for phase in range(n_dims):
        copies = [[extents[(start + i) % n_dims] for i in range(phase + 1)] for start in range(n_dims)]
        steps += max(done[-1] - 1 for done in copies)
        wire += max(Fraction(done[-1] - 1, math.prod(done)) for done in copies)
    return Deficiency(2 * steps, wire)


def _butterfly(extents: Shape, distance: Distance, single_port: bool, form: str) -> Deficiency:
    n_dims, steps = len(extents), sum(extent.bit_length() - 1 for extent in extents)
    ports = 1 if single_port else 2 * n_dims
    loads = list(_single_loads(extents, distance) if single_port else _loads(extents, distance))
    if form == "latency":
        return Deficiency(Fraction(steps), n_dims * sum(loads, Fraction(0)) / ports)
    halving = sum((load / 2 ** (step + 1) for step, load in enumerate(loads)), Fraction(0))
    return Deficiency(Fraction(2 * steps), 2 * n_dims * halving / ports)


def _loads(extents: Shape, distance: Distance) -> Iterator[Fraction]:
    """Messages on the fullest link at each step, all 2D ports at once.

    Port k and its mirror image start at dimension k and cycle; together they put `distance` messages on every link
    of their dimension, and pairs that meet in one dimension add up.
    """
    orders = [_dimension_order(extents, start) for start in range(len(extents))]
    for turns in zip(*orders, strict=True):
        total: dict[int, Fraction] = {}
        for dim, sigma in turns:
            total[dim] = total.get(dim, Fraction(0)) + distance(sigma)
        yield max(total.values())


def _single_loads(extents: Shape, distance: Distance) -> Iterator[Fraction]:
    """The same for one port; at half the extent both directions are equally long and share the messages."""
    for dim, sigma in _dimension_order(extents, 0):
        tied = 2 ** (sigma + 1) == extents[dim]
        yield distance(sigma) / (2 if tied else 1)


def _dimension_order(extents: Shape, start: int) -> list[tuple[int, int]]:
    """(dimension, sigma) of each step: the dimensions in turn, without the finished ones (section 4.2)."""
    left = [extent.bit_length() - 1 for extent in extents]
    done = [0] * len(extents)
    order: list[tuple[int, int]] = []
    dim = start
    while done != left:
        if done[dim] < left[dim]:
            order.append((dim, done[dim]))
            done[dim] += 1
        dim = (dim + 1) % len(extents)
    return order


def _swing_distance(sigma: int) -> Fraction:
    """|rho(sigma)|: 1, 1, 3, 5, 11, ..."""
    return Fraction((2 ** (sigma + 1) - (-1) ** (sigma + 1)) // 3)


def _doubling_distance(sigma: int) -> Fraction:
    return Fraction(2**sigma)


_BUTTERFLIES: dict[str, tuple[Distance, bool]] = {
    "swing": (_swing_distance, False),
    "mirrored-recursive-doubling": (_doubling_distance, False),
    "recursive-doubling": (_doubling_distance, True),
}
"""Distance of each step, and whether one port sends at a time."""
