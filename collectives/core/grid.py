"""Coordinates of ranks: the shape of a topology, without its links; and smaller shapes of the same kind.

Algorithms that depend only on the shape are proved on a smaller torus where the schedule itself is too large.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import mul
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from topologies import Topology, torus

Ranks = npt.NDArray[np.int64]
RankOrRanks = TypeVar("RankOrRanks", int, npt.NDArray[np.int64])

NOBODY = -1
"""Marks the absence of a rank."""


@dataclass(frozen=True)
class Grid:
    """Ranks in coordinates; dimension 0 varies fastest."""

    shape: tuple[int, ...]  # extents of the dimensions

    @cached_property
    def p(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Dimensions with an extent above 1."""
        return tuple(dim for dim, extent in enumerate(self.shape) if extent > 1)

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents above 1."""
        return tuple(self.shape[dim] for dim in self.dims)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Distance in ranks between neighbors along each dimension."""
        return tuple(accumulate(self.shape[:-1], mul, initial=1))

    def coordinate(self, ranks: RankOrRanks, dim: int) -> RankOrRanks:
        """Coordinate of each rank in one dimension."""
        return ranks // self.strides[dim] % self.shape[dim]

    def shift(self, ranks: RankOrRanks, dim: int, by: RankOrRanks | int) -> RankOrRanks:
        """The ranks `by` positions further along one dimension, wrapping around; the arguments broadcast."""
        here = self.coordinate(ranks, dim)
        return ranks + ((here + by) % self.shape[dim] - here) * self.strides[dim]

    def displace(self, ranks: RankOrRanks, displacement: RankOrRanks, sign: int = 1) -> RankOrRanks:
        """Every rank moved by the coordinates of `displacement` in each dimension; the arguments broadcast."""
        for dim in self.dims:
            ranks = self.shift(ranks, dim, sign * self.coordinate(displacement, dim))
        return ranks


@lru_cache(maxsize=4096)
def alike(grid: Grid, rank: int, dims: tuple[int, ...]) -> Ranks:
    """The ranks that share the coordinates of a rank in some dimensions."""
    every = np.arange(grid.p)
    return np.flatnonzero(np.all([grid.coordinate(every, d) == grid.coordinate(rank, d) for d in dims], axis=0))


def is_power_of_two(number: int) -> bool:
    """Whether a positive number is a power of two."""
    return number & (number - 1) == 0


def floor_power_of_two(number: int) -> int:
    """The largest power of two <= `number`."""
    return 1 << (number.bit_length() - 1)


def ceil_log2(number: int) -> int:
    """The smallest s with 2^s >= number."""
    return (number - 1).bit_length()


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
