"""How much the codec sends, what it gains, and where it cannot: closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topologies import WeftError

THRESHOLD = 1.2217948
"""Cells an item below which no large hypergraph of three hashes peels: 1 / c*_3."""

WORD_BITS = 32

_REQUIRED = ((100_000, 1.23), (10_000, 1.25), (1_000, 1.30))
"""Items, and cells an item at which nearly all single hypergraphs of that many items peel."""

SMALL_REQUIRED = 2.0
"""Cells an item for fewer than a thousand items, where the margin of a finite size is wide."""


def union_density(density: float, workers: int) -> float:
    """Share of non-zeros in the union of independent supports: 1 - (1 - p)^W."""
    _check_density(density)
    if workers < 1:
        raise WeftError(f"{workers} workers: at least 1")
    return -math.expm1(workers * math.log1p(-density)) if density < 1 else 1.0


def cells_required(n_items: int) -> float:
    """Cells an item that one hypergraph of `n_items` needs, in the element and in the rotated layout."""
    return next((cells for items, cells in _REQUIRED if n_items >= items), SMALL_REQUIRED)


@dataclass(frozen=True)
class Compression:
    """Sizes of the codec: c cells of a word for each union non-zero, and b index bits for each element."""

    cells_per_item: float = 1.23
    index_bits: float = 1.0

    def speed_up(self, union: float) -> float:
        """S = 1 / (c rho + b / 32): bytes of the dense array over bytes sent."""
        _check_density(union)
        return 1 / (self.cells_per_item * union + self.index_bits / WORD_BITS)

    def break_even(self) -> float:
        """Union density above which the codec sends more than the dense array."""
        return (1 - self.index_bits / WORD_BITS) / self.cells_per_item

    def bits_per_element(self, union: float) -> float:
        """Bits sent for an element of 32."""
        return WORD_BITS / self.speed_up(union)

    def sketch_bytes(self, n_elements: int, union: float) -> int:
        """Bytes of the sketch of `n_elements` words."""
        return 4 * round(self.cells_per_item * union * n_elements)

    def index_bytes(self, n_elements: int) -> int:
        """Bytes of the index."""
        return math.ceil(self.index_bits * n_elements / 8)


def space_bound_bits(union: float) -> float:
    """Bits an element that any lossless coding of the sum needs: H(rho) + 32 rho."""
    _check_density(union)
    if union in (0.0, 1.0):
        return WORD_BITS * union
    entropy = -union * math.log2(union) - (1 - union) * math.log2(1 - union)
    return entropy + WORD_BITS * union


def coordinate_bits(union: float) -> float:
    """Bits an element of a list of (index, value) pairs."""
    return 2 * WORD_BITS * union


def best_bloom_rate(union: float, cells_per_item: float = 1.23) -> float:
    """Rate of false positives at which filter and phantom items cost least together.

    A filter takes log2(1/e) / ln 2 bits an item; a phantom takes a cell as an item does.
    """
    if not 0 < union < 1:
        raise WeftError(f"union density {union} has no Bloom filter: give one between 0 and 1")
    return min(0.5, union / (math.log(2) ** 2 * WORD_BITS * cells_per_item * (1 - union)))


def bloom_bits_per_element(union: float, cells_per_item: float = 1.23) -> float:
    """Bits an element with the best Bloom filter for an index, phantoms included."""
    rate = best_bloom_rate(union, cells_per_item)
    sketch = WORD_BITS * cells_per_item * (union + rate * (1 - union))
    return sketch + union * math.log2(1 / rate) / math.log(2)


def _check_density(density: float) -> None:
    if not 0 <= density <= 1:
        raise WeftError(f"density {density} is out of range: 0 to 1")
