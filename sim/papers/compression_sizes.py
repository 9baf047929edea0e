"""How much the codec sends, and its gain: closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topologies.checks import integer, number

WORD_BITS = 32


def union_density(density: float, workers: int) -> float:
    """Share of nonzeros in the union of independent supports: 1 - (1 - p)^W."""
    _check_density(density)
    integer(workers, "number of workers", 1, 2**62)
    return -math.expm1(workers * math.log1p(-density)) if density < 1 else 1.0


def peel_rounds(n_items: int, cells_per_item: float) -> int:
    """Rounds of a parallel peel of one large hypergraph, by the share of items that each round leaves.

    The share q of cells' links that are left follows q <- (1 - exp(-3 q / c))^2; the last round leaves less than half
    an item, or, below the threshold, takes less than half an item away.

    References
    ----------
    .. [1] J. Jiang, M. Mitzenmacher, J. Thaler, "Parallel peeling algorithms", SPAA 2014.
    """
    integer(n_items, "number of nonzeros", 0, 2**62)
    number(cells_per_item, "cells per item", 0, above=True)
    link, left, rounds = 1.0, float(n_items), 0
    while left >= 0.5:
        full = -math.expm1(-3 * link / cells_per_item)
        link, before, left = full**2, left, n_items * full**3
        rounds += 1
        if before - left < 0.5:
            break
    return rounds


def expansion(value_bits: int, sum_bits: int) -> float:
    """Bits on the wire for each bit of a gradient where it is added in another format: 2 for fp16 in int32."""
    return integer(sum_bits, "bits of a sum", 1, 1024) / integer(value_bits, "bits of a value", 1, 1024)


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

    cells_per_item: float = 1.23
    index_bits: float = 1.0
    value_bits: int = WORD_BITS
    cell_bits: int = WORD_BITS

    def __post_init__(self) -> None:
        number(self.cells_per_item, "cells per item", 0, above=True)
        number(self.index_bits, "index bits", 0)
        expansion(self.value_bits, self.cell_bits)

    def speed_up(self, union: float) -> float:
        """S = 1 / (c rho + b / 32): bytes of the dense array over bytes sent; cells of other bits count as such."""
        _check_density(union)
        sent = self.cells_per_item * union * expansion(self.value_bits, self.cell_bits)
        sent += self.index_bits / self.value_bits
        return 1 / sent if sent else math.inf

    def break_even(self) -> float:
        """Union density above which the codec sends more than the dense array; 0 if at any."""
        rest = max(0.0, 1 - self.index_bits / self.value_bits)
        return rest / self.cells_per_item / expansion(self.value_bits, self.cell_bits)

    def bits_per_element(self, union: float) -> float:
        """Bits sent per element."""
        return self.value_bits / self.speed_up(union)

    def sketch_bytes(self, n_elements: int, union: float) -> int:
        """Bytes of the sketch of `n_elements`."""
        _check_density(union)
        cells = round(self.cells_per_item * union * integer(n_elements, "number of elements", 0, 2**62))
        return -(-cells * self.cell_bits // 8)

    def index_bytes(self, n_elements: int) -> int:
        """Bytes of the index."""
        return math.ceil(self.index_bits * integer(n_elements, "number of elements", 0, 2**62) / 8)


def _check_density(density: float) -> None:
    number(density, "density", 0, 1)
