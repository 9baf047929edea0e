"""Bits per element that codings of a sparse sum need, in closed form."""

from __future__ import annotations

import math

from topologies import WeftError
from topologies.checks import number
from workloads.compression.gains import WORD_BITS

THRESHOLD = 1.2217948
"""Cells an item below which no large hypergraph of three hashes peels: 1 / c*_3."""


def best_bloom_rate(union: float, cells_per_item: float = 1.23) -> float:
    """Rate of false positives at which filter and phantom items cost least together.

    A filter takes log2(1/e) / ln 2 bits an item; a phantom takes a cell as an item does.
    """
    number(union, "density", 0, 1)
    number(cells_per_item, "cells per item", 0, above=True)
    if union in (0, 1):
        raise WeftError(f"union density {union} has no Bloom filter: give one between 0 and 1")
    return min(0.5, union / (math.log(2) ** 2 * WORD_BITS * cells_per_item * (1 - union)))


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
