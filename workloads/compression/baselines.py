"""Baselines of the codec: parts of an array alone, integers on a shared scale, and a lossy homomorphic codec.

The largest values, or the nonzero blocks. In fixed point the largest exponent of all workers sets one scale (SwitchML
lets the switch take the maximum, block by block); the only loss is the rounding to it. THC [1]_: workers agree on a
range, turn the array by a random Hadamard transform, so that all coordinates look alike, and send the index of a table
entry; entries are integers on one grid, which a switch looks up and adds, with no floating point and no decompression.

References
----------
.. [1] M. Li et al., "THC: accelerating distributed deep learning using tensor homomorphic compression", NSDI 2024.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import MOST_COUNT, Count, Integer, NotNegative, Number, WeftError, checked, integer, number
from workloads.compression.vectors import same_size, vector

Values = npt.NDArray[Any]

BLOCK = 256
"""Elements of a block, as in OmniReduce."""


class Part(NamedTuple):
    """Some elements, or some blocks of elements, and their places: a list that is all-gathered or added by place."""

    places: npt.NDArray[np.int32]
    values: Values  # (places,), or (places, block): the last block of an array is padded with zeros

    @property
    def n_bytes(self) -> int:
        """Size of the message."""
        return int(self.places.nbytes + self.values.nbytes)


def top_k(x: Values, k: int) -> Part:
    """The k values of largest magnitude; of equal ones the first.

    WeftError: more values than there are.
    """
    vector(x, "the array")
    integer(k, f"k of the top values of {x.size}", 0, x.size)
    if np.isnan(x).any():
        raise WeftError("the array holds a NaN, which is neither large nor small")
    small = -np.abs(x) if x.dtype.kind == "f" else np.minimum(x, -x)  # the least integer has no positive twin
    order = np.argsort(small, kind="stable")[:k]
    positions = np.sort(order).astype(np.int32)
    return Part(positions, x[positions])


def add_coordinates(messages: list[Part], n_elements: int) -> Values:
    """The dense sum of several lists; each holds a position once.

    WeftError: no lists, or a position that is not among the elements.
    """
    return _sum(messages, integer(n_elements, "number of elements", 0, MOST_COUNT), "position", "elements")


def non_zero_blocks(x: Values, block: int = BLOCK) -> Part:
    """The nonzero blocks of an array, as OmniReduce streams them (Fei et al., SIGCOMM 2021)."""
    vector(x, "the array")
    integer(block, "number of elements of a block", 1, MOST_COUNT)
    padded = np.zeros(-(-x.size // block) * block, x.dtype)
    padded[: x.size] = x
    rows = padded.reshape(-1, block)
    numbers = np.flatnonzero(np.any(rows != 0, axis=1)).astype(np.int32)
    return Part(numbers, rows[numbers])


def add_blocks(messages: list[Part], n_elements: int) -> Values:
    """The dense sum: an aggregator adds the blocks of one number as they arrive.

    WeftError: no messages, blocks of other sizes, or a block that is not among the elements.
    """
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    block = messages[0].values.shape[1] if messages else BLOCK
    for message in messages:
        if message.values.shape[1] != block:
            raise WeftError(f"blocks of {message.values.shape[1]} elements do not add to blocks of {block}")
    return _sum(messages, -(-n_elements // block), "block", "blocks").reshape(-1)[:n_elements]


def _sum(messages: list[Part], n_places: int, what: str, of: str) -> Values:
    if not messages:
        raise WeftError("a sum needs at least one worker")
    total = np.zeros((n_places, *messages[0].values.shape[1:]), messages[0].values.dtype)
    for places, values in messages:
        outside = places[(places < 0) | (places >= n_places)]
        if outside.size:
            raise WeftError(f"{what} {outside[0]} is not among the {n_places} {of}")
        total[places] += values
    return total


Floats = npt.NDArray[np.floating[Any]]


def shared_scale(arrays: Sequence[Floats], bits: int = 32) -> float:
    """The power of two by which values are multiplied so that no sum of the arrays overflows a signed integer.

    `arrays`: (n,) of each worker.
    `bits`: of the integer.
    WeftError: a value that is not finite, or more workers than the integer can sum.
    """
    integer(bits, "bits of an integer", 4, 64)
    for worker, x in enumerate(arrays):
        vector(x, f"worker {worker}'s array")
    headroom = math.ceil(math.log2(max(len(arrays), 1)))
    if headroom > bits - 3:
        raise WeftError(f"{len(arrays)} workers leave no bits of a {bits}-bit integer")
    largest = max((float(np.max(np.abs(x), initial=0.0)) for x in arrays), default=0.0)
    if not math.isfinite(largest):
        raise WeftError("fixed point takes finite values only")
    if largest == 0.0:
        return 1.0
    exponent = math.frexp(largest)[1]  # largest < 2**exponent
    return math.ldexp(1.0, min(bits - 2 - headroom - exponent, 1023))


def to_fixed(x: Floats, scale: float, dtype: str = "int32") -> npt.NDArray[np.signedinteger[Any]]:
    """Values times the scale, rounded to the nearest integer.

    WeftError: a value that is not finite or does not fit the integer; `shared_scale` leaves headroom for all workers.
    """
    vector(x, "the array")
    number(scale, "scale", 0, above=True)
    if dtype not in ("int8", "int16", "int32", "int64"):
        raise WeftError(f"fixed point of {dtype!r}: choose int8, int16, int32 or int64")
    with np.errstate(over="ignore"):  # shows as infinite
        scaled = np.rint(x.astype(np.float64) * scale)
    limit = float(2 ** (np.dtype(dtype).itemsize * 8 - 1))
    bad = np.flatnonzero(~((scaled >= -limit) & (scaled < limit)))
    if bad.size:
        raise WeftError(f"element {bad[0]} is {x[bad[0]]}: times the scale {scale:g} it does not fit {dtype}")
    return scaled.astype(dtype)


def from_fixed(values: npt.NDArray[np.signedinteger[Any]], scale: float) -> npt.NDArray[np.float64]:
    """Integers back to values."""
    vector(values, "the sum")
    number(scale, "scale", 0, above=True)
    return values.astype(np.float64) / scale


Doubles = npt.NDArray[np.float64]
Few = Annotated[int, Integer(0, MOST_COUNT)]


class Quantized(NamedTuple):
    """One worker's message: (n,) table indices and the number of bits each takes on the wire."""

    indices: npt.NDArray[np.uint8]
    bits: int

    @property
    def n_bytes(self) -> int:
        """Size of the message."""
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
        padded = np.zeros(self.padded)
        padded[: x.size] = x
        turned = _hadamard(padded * self._signs())
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
    def decode(self, total: npt.NDArray[np.int64], workers: Count, half_width: NotNegative) -> Doubles:
        """The sum of the workers' arrays, approximately."""
        vector(total, "the sum of table entries", self.padded)
        turned = total.astype(np.float64) * (2 * half_width / self.granularity) - workers * half_width
        back = _hadamard(turned) * self._signs()
        return back[: self.n_elements]

    def _refuse(self, x: npt.NDArray[np.floating[Any]], what: str) -> None:
        if not np.isfinite(vector(x, what, self.n_elements)).all():
            raise WeftError(f"{what} holds a value that is not finite")

    def _signs(self) -> Doubles:
        return np.random.default_rng(self.seed).choice(np.array([-1.0, 1.0]), self.padded)


def _hadamard(x: Doubles) -> Doubles:
    """The Walsh-Hadamard transform of a power of two of values, orthonormal; its own inverse."""
    values, width = x.copy(), 1
    while width < values.size:
        pairs = values.reshape(-1, 2, width)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        width *= 2
    return values / math.sqrt(values.size)
