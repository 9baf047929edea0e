"""A lossy homomorphic codec for comparison, after THC: rotate, quantize to table indices, add looked-up integers.

Workers agree on a range, turn the array by a random Hadamard transform, so that all coordinates look alike, and send
a few bits each: the index of a table entry. The entries are integers on one grid; a switch looks them up and adds
them, with no floating point and no decompression in transit.

References
----------
.. [1] M. Li et al., "THC: accelerating distributed deep learning using tensor homomorphic compression", NSDI 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from topologies.checks import MOST_COUNT, Count, Integer, NotNegative, Number, checked, integer, number
from workloads.compression.vectors import same_size, vector

Floats = npt.NDArray[np.float64]
Few = Annotated[int, Integer(0, MOST_COUNT)]


class Quantized(NamedTuple):
    """One worker's message: (n,) table indices and the number of bits each takes on the wire."""

    indices: npt.NDArray[np.uint8]
    bits: int

    @property
    def n_bytes(self) -> int:
        return -(-self.indices.size * self.bits // 8)


@checked
@dataclass(frozen=True)
class Thc:
    """The codec of one round."""

    n_elements: Few
    bits: Few = 4  # of one index
    # grid steps of the table: values are 0 to this, and the table is uniform if it is 2**bits - 1
    granularity: Count = 30
    seed: Few = 0  # of the rotation, shared by all workers
    # share of coordinates of a normal distribution that lie outside of the range
    clip: Annotated[float, Number(1e-12, 0.99)] = 1 / 32

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 or self.granularity < 2**self.bits - 1:
            raise WeftError(
                f"a table of {self.bits} bits over {self.granularity} steps: give 1 to 8 bits and at least "
                "2**bits - 1 steps"
            )

    @property
    def padded(self) -> int:
        """Elements after padding to a power of two."""
        return 1 << max(0, math.ceil(math.log2(max(self.n_elements, 1))))

    def table(self) -> npt.NDArray[np.int64]:
        """Grid value of each index: denser in the middle, as the cube root of the normal density, one step at least."""
        levels = 2**self.bits
        edge, wide = NormalDist().inv_cdf(1 - self.clip / 2), NormalDist(sigma=math.sqrt(3))
        spread = np.array([wide.inv_cdf(float(q)) for q in np.linspace(wide.cdf(-edge), wide.cdf(edge), levels)])
        grid = np.rint((spread + edge) / (2 * edge) * self.granularity).astype(np.int64)
        for i in range(1, levels):
            grid[i] = max(grid[i], grid[i - 1] + 1)
        for i in reversed(range(levels)):
            grid[i] = min(grid[i], self.granularity - (levels - 1 - i))
        return grid

    def range_of(self, arrays: Sequence[npt.NDArray[np.floating[Any]]]) -> float:
        """Half-width of the range: from the largest norm among the workers, which they exchange first."""
        same_size(arrays, "the range")
        for worker, x in enumerate(arrays):
            self._refuse(x, f"worker {worker}'s array")
        norm = max(float(np.linalg.norm(x.astype(np.float64))) for x in arrays)
        return NormalDist().inv_cdf(1 - self.clip / 2) * norm / math.sqrt(self.padded)

    def encode(self, x: npt.NDArray[np.floating[Any]], half_width: float, worker: int = 0) -> Quantized:
        """Table indices of one worker, rounded stochastically so that the sum is unbiased within the range."""
        self._refuse(x, "the array of a worker")
        number(half_width, "half-width of the range", 0)
        integer(worker, "worker", 0, MOST_COUNT)
        turned = self._rotate(np.asarray(x, np.float64))
        grid = self.table().astype(np.float64)
        scale = self.granularity / (2 * half_width) if half_width else 0.0
        place = np.clip((turned + half_width) * scale, 0, self.granularity)
        above = np.clip(np.searchsorted(grid, place, side="left"), 1, grid.size - 1)
        low, high = grid[above - 1], grid[above]
        up = np.random.default_rng((self.seed, worker)).random(place.size) < (place - low) / (high - low)
        return Quantized((above - 1 + up).astype(np.uint8), self.bits)

    def add(self, messages: Sequence[Quantized]) -> npt.NDArray[np.int64]:
        """What the switch does: look up and add, in integers."""
        if not messages:
            raise WeftError("a sum needs at least one worker")
        table = self.table()
        total = np.zeros(self.padded, np.int64)
        for message in messages:
            if message.bits != self.bits or message.indices.shape != total.shape:
                raise WeftError(
                    f"the message has {message.indices.size} indices of {message.bits} bits; this codec has "
                    f"{self.padded} of {self.bits}"
                )
            total += table[message.indices]
        return total

    @checked
    def decode(self, total: npt.NDArray[np.int64], workers: Count, half_width: NotNegative) -> Floats:
        """The sum of the workers' arrays, approximately."""
        vector(total, "the sum of table entries", self.padded)
        turned = total.astype(np.float64) * (2 * half_width / self.granularity) - workers * half_width
        back = _hadamard(turned) * self._signs()
        return back[: self.n_elements]

    def _refuse(self, x: npt.NDArray[np.floating[Any]], what: str) -> None:
        if not np.isfinite(vector(x, what, self.n_elements)).all():
            raise WeftError(f"{what} holds a value that is not finite")

    def _rotate(self, x: Floats) -> Floats:
        padded = np.zeros(self.padded)
        padded[: x.size] = x
        return _hadamard(padded * self._signs())

    def _signs(self) -> Floats:
        return np.random.default_rng(self.seed).choice([-1.0, 1.0], self.padded)


def _hadamard(x: Floats) -> Floats:
    """The Walsh-Hadamard transform of a power of two of values, orthonormal; its own inverse."""
    values, width = x.copy(), 1
    while width < values.size:
        pairs = values.reshape(-1, 2, width)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        width *= 2
    return values / math.sqrt(values.size)
