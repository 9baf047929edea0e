"""How much the codec sends, and its gain: closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from topologies.checks import Integer, NotNegative, Number, Positive, checked

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
        return self.value_bits / self.speed_up(union)

    @checked
    def sketch_bytes(self, n_elements: Elements, union: Density) -> int:
        cells = round(self.cells_per_item * union * n_elements)
        return -(-cells * self.cell_bits // 8)

    @checked
    def index_bytes(self, n_elements: Elements) -> int:
        return math.ceil(self.index_bits * n_elements / 8)
