"""Bits per element that codings of a sparse sum need, in closed form."""

from __future__ import annotations

import math

from workloads.compression.sizing import WORD_BITS, best_bloom_rate


def space_bound_bits(union: float) -> float:
    """Bits an element that any lossless coding of the sum needs: H(rho) + 32 rho."""
    if union in (0.0, 1.0):
        return WORD_BITS * union
    entropy = -union * math.log2(union) - (1 - union) * math.log2(1 - union)
    return entropy + WORD_BITS * union


def coordinate_bits(union: float) -> float:
    """Bits an element of a list of (index, value) pairs."""
    return 2 * WORD_BITS * union


def bloom_bits_per_element(union: float, cells_per_item: float = 1.23) -> float:
    """Bits an element with the best Bloom filter for an index, phantoms included."""
    rate = best_bloom_rate(union, cells_per_item)
    sketch = WORD_BITS * cells_per_item * (union + rate * (1 - union))
    return sketch + union * math.log2(1 / rate) / math.log(2)
