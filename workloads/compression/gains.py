"""How much the codec sends, and its gain in an all-reduce: encode, sum index and sketch, decode, or fall back.

Sizes and densities of `GRADIENTS` are those of the OmniReduce evaluation as we know them (Fei et al., SIGCOMM 2021,
table 1, one worker's gradient), and have not been checked against the paper; every function that takes a model takes
others. BERT-base has the density that is reported there for the larger BERT.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from topologies.checks import Integer, NotNegative, Number, Positive, checked, choice, number
from workloads.compression.layout import form_of
from workloads.compression.rates import INSTANT, Rates

WORD_BITS = 32

Bits = Annotated[int, Integer(1, 1024)]
Density = Annotated[float, Number(0, 1)]
Elements = Annotated[int, Integer(0, 2**62)]
Workers = Annotated[int, Integer(1, 2**62)]


@checked
def union_density(density: Density, workers: Workers) -> float:
    """Share of nonzeros in the union of independent supports: 1 - (1 - p)^W."""
    return -math.expm1(workers * math.log1p(-density)) if density < 1 else 1.0


@checked
def peel_rounds(n_items: Elements, cells_per_item: Positive) -> int:
    """Rounds of a parallel peel of one large hypergraph, by the share of items that each round leaves.

    The share q of cells' links that are left follows q <- (1 - exp(-3 q / c))^2; the last round leaves less than half
    an item, or, below the threshold, takes less than half an item away.

    References
    ----------
    .. [1] J. Jiang, M. Mitzenmacher, J. Thaler, "Parallel peeling algorithms", SPAA 2014.
    """
    link, left, rounds = 1.0, float(n_items), 0
    while left >= 0.5:
        full = -math.expm1(-3 * link / cells_per_item)
        link, before, left = full**2, left, n_items * full**3
        rounds += 1
        if before - left < 0.5:
            break
    return rounds


@checked
def expansion(value_bits: Bits, sum_bits: Bits) -> float:
    """Bits on the wire for each bit of a gradient where it is added in another format: 2 for fp16 in int32."""
    return sum_bits / value_bits


@checked
@dataclass(frozen=True)
class Compression:
    """Sizes of the codec: c cells per nonzero of the union, and b index bits per element.

    Attributes
    ----------
    cells_per_item, index_bits : float
    value_bits, cell_bits : int
        Of an element of the dense array, and of a cell. A switch that adds 32-bit integers turns 16-bit values into
        32-bit cells.
    """

    cells_per_item: Positive = 1.23
    index_bits: NotNegative = 1.0
    value_bits: Bits = WORD_BITS
    cell_bits: Bits = WORD_BITS

    @checked
    def speed_up(self, union: Density) -> float:
        """S = 1 / (c rho + b / 32): bytes of the dense array over bytes sent; cells of other bits count as such."""
        sent = self.cells_per_item * union * expansion(self.value_bits, self.cell_bits)
        sent += self.index_bits / self.value_bits
        return 1 / sent if sent else math.inf

    def break_even(self) -> float:
        """Union density above which the codec sends more than the dense array; 0 if at any."""
        rest = max(0.0, 1 - self.index_bits / self.value_bits)
        return rest / self.cells_per_item / expansion(self.value_bits, self.cell_bits)

    def bits_per_element(self, union: float) -> float:
        """Bits that are sent for each element of the array, index included."""
        return self.value_bits / self.speed_up(union)

    @checked
    def sketch_bytes(self, n_elements: Elements, union: Density) -> int:
        """Bytes of the sketch of an array."""
        cells = round(self.cells_per_item * union * n_elements)
        return -(-cells * self.cell_bits // 8)

    @checked
    def index_bytes(self, n_elements: Elements) -> int:
        """Bytes of the index of an array."""
        return math.ceil(self.index_bits * n_elements / 8)


AllReduceTime = Callable[[int], float]
"""Seconds that a fabric takes to all-reduce so many bytes."""


@dataclass(frozen=True)
class Timeline:
    """Seconds of each part, one after the other.

    Attributes
    ----------
    encode_s, index_s, sketch_s, decode_s, fallback_s : float
        The last is a dense all-reduce where the sketch is too small to decode.
    dense_s : float
        Time of the same array without the codec.
    wire_bytes : int
        Bytes that are all-reduced.
    """

    encode_s: float
    index_s: float
    sketch_s: float
    decode_s: float
    fallback_s: float
    dense_s: float
    wire_bytes: int

    @property
    def total_s(self) -> float:
        """Seconds until the last stage has ended."""
        return self.encode_s + self.index_s + self.sketch_s + self.decode_s + self.fallback_s

    @property
    def speed_up(self) -> float:
        """Time without the codec over time with it; 1 if there is nothing to send."""
        return self.dense_s / self.total_s if self.total_s else 1.0


@checked
def compressed_all_reduce(
    all_reduce: AllReduceTime, n_elements: Elements, union: Density, compression: Compression = Compression(),
    rates: Rates = INSTANT, required: NotNegative | None = None, *, form: str = "spread",
    dense_bits: Bits | None = None,
) -> Timeline:
    """The parts of one all-reduce through the codec.

    Parameters
    ----------
    all_reduce : callable (bytes) -> seconds
        Of any collective on any fabric.
    n_elements : int
    union : float
        Share of nonzeros in the union of all workers.
    compression : Compression
    rates : Rates
        Of the device that encodes and decodes.
    required : float, optional
        Cells per item below which decoding fails; default: the requirement of the form for this number of items.
    form : str
        Of the layout, by its name in `layout.FORMS`.
    dense_bits : int, optional
        Of an element where the array is added densely: 32 for values of 16 bits that a switch adds as integers of 32.

    Raises
    ------
    WeftError
        A number out of range.
    """
    n_items = round(union * n_elements)
    shape = form_of(form)
    least = shape.cells_required(n_items, n_elements) if required is None else required
    index, sketch = compression.index_bytes(n_elements), compression.sketch_bytes(n_elements, union)
    wide = compression.value_bits if dense_bits is None else dense_bits
    dense_bytes = -(-n_elements * wide // 8)
    dense_s = all_reduce(dense_bytes)
    fails = n_items > 0 and compression.cells_per_item < least
    rounds = peel_rounds(n_items, compression.cells_per_item)
    word_bytes = compression.value_bits / 8
    return Timeline(
        encode_s=rates.encode_s(n_elements, word_bytes), index_s=all_reduce(index), sketch_s=all_reduce(sketch),
        decode_s=rates.decode_s(n_elements, n_items, rounds, word_bytes), fallback_s=dense_s if fails else 0.0,
        dense_s=dense_s, wire_bytes=index + sketch + (dense_bytes if fails else 0),
    )


@checked
@dataclass(frozen=True)
class Gradient:
    """One model's gradient.

    Attributes
    ----------
    name : str
    n_elements : int
        Values of 32 bits.
    density : float
        Share of nonzeros of one worker.
    """

    name: str
    n_elements: Elements
    density: Density

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense array."""
        return 4 * self.n_elements

    def union(self, workers: int, shared: float = 0.0) -> float:
        """Share of nonzeros in the union of all workers.

        `shared`: share of a worker's nonzeros that all workers have in common; the rest are independent. 0 is the
            densest union, 1 that of identical supports.
        """
        number(shared, "shared support", 0, 1)
        common = shared * self.density
        rest = (self.density - common) / (1 - common) if common < 1 else 0.0
        return common + (1 - common) * union_density(rest, workers)


GRADIENTS: dict[str, Gradient] = {
    one.name: one
    for one in (
        Gradient("ncf", 169_850_000, 0.154),
        Gradient("lstm", 398_500_000, 0.055),
        Gradient("vgg-19", 143_667_240, 0.68),
        Gradient("bert-base", 109_482_240, 0.9069),
    )
}
"""By name. VGG-19 and BERT-base by their published numbers of parameters."""


def gradient(name: str) -> Gradient:
    """The gradient of that name.

    Raises
    ------
    WeftError
        No such model.
    """
    return GRADIENTS[choice(name, GRADIENTS, "gradient")]
