"""Smaller members of a topology family, on which algorithms are proved when the schedule itself is too large.

Algorithms depend only on the shape of a topology, so a torus stands for every network of its shape.
"""

from __future__ import annotations

import math

from collectives.core.grid import is_power_of_two
from topologies import Topology, torus

ENOUGH_RANKS = 64
"""Target number of ranks of a smaller member, if its kind allows it."""

ENOUGH_DIMENSIONS = 3


def shrink(topology: Topology) -> Topology:
    """A torus of the same kind with fewer ranks.

    Every extent is roughly halved, repeatedly, and keeps its kind: power of two or not, even or odd, above 1 or not;
    equal extents stay equal. Dimensions above 1 beyond the third are dropped.
    """
    return torus(shrink_shape(topology.shape))


def shrink_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `shrink`."""
    while math.prod(shape) > ENOUGH_RANKS:
        halved = tuple(map(_halve, shape))
        if halved == shape:
            break
        shape = halved
    long = [dim for dim, extent in enumerate(shape) if extent > 1]
    while math.prod(shape) > ENOUGH_RANKS and len(long) > ENOUGH_DIMENSIONS:
        last = long.pop()
        shape = shape[:last] + shape[last + 1 :]
    return shape


def _halve(extent: int) -> int:
    """Roughly half of an extent, of the same kind; the extent itself if there is none."""
    if is_power_of_two(extent):
        return extent // 2 if extent > 4 else extent
    half = extent // 2 + (extent // 2 - extent) % 2
    while is_power_of_two(half):
        half += 2
    return min(half, extent)
