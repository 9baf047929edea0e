"""How much the codec sends, what it gains, and where it cannot: closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topologies import WeftError
from workloads.compression.checks import finite, number, whole

THRESHOLD = 1.2217948
"""Cells an item below which no large hypergraph of three hashes peels: 1 / c*_3."""

WORD_BITS = 32

ITEMS_REQUIRED = ((70_000, 1.23), (10_000, 1.25), (1_000, 1.30))
"""Items, and cells an item at which nearly all single hypergraphs of that many items peel."""

BLOCKS_REQUIRED = ((12_000, 1.23), (900, 1.25), (100, 1.30), (30, 1.50))
"""Items counted by how independent they are, and cells an item at which nearly all of turned lanes peel."""

LANE_REQUIRED = ((5_500, 1.30), (300, 1.50), (80, 2.0))
"""Items of a lane by itself, and cells an item at which next to none of 1,024 lanes keeps a share of its items."""

SMALL_REQUIRED, SMALL_LANE_REQUIRED = 2.0, 3.0
"""Cells an item for fewer, where the margin of a finite size is wide."""

DENSE = 0.8
"""Density from which lanes are so full that turning them does not help: a block peels like one item."""

STUCK = 0.1
"""Sets of items with no cell of their own that are accepted in an array: one array in ten has one."""


def union_density(density: float, workers: int) -> float:
    """Share of non-zeros in the union of independent supports: 1 - (1 - p)^W."""
    _check_density(density)
    whole(workers, "number of workers", 1, 2**62)
    return -math.expm1(workers * math.log1p(-density)) if density < 1 else 1.0


def cells_required(n_items: int, n_elements: int | None = None, lanes: int = 1, rotated: bool = True) -> float:
    """Cells an item with which nearly all arrays of independent non-zeros decode, by what was measured.

    Parameters
    ----------
    n_items, n_elements : int
        Union non-zeros, and elements of the array; the latter is needed of layouts with lanes.
    lanes, rotated
        Of the layout; whether blocks are spread does not matter to independent non-zeros.

    Raises
    ------
    WeftError
        More items than elements.
    """
    most = 2**62 if n_elements is None else whole(n_elements, "number of elements", 0, 2**62)
    whole(n_items, f"number of non-zeros among {n_elements or 'many'} elements", 0, most)
    if n_elements is None or lanes == 1:
        return _least(ITEMS_REQUIRED, n_items, SMALL_REQUIRED)
    if n_items == 0:
        return SMALL_REQUIRED
    density = n_items / n_elements
    if not rotated:
        cliff = _least(LANE_REQUIRED, n_items / lanes, SMALL_LANE_REQUIRED)
        return max(cliff, _rows_without_stuck(n_elements / lanes, density, lanes) * lanes / n_items)
    single = n_elements / lanes if density > DENSE else n_items
    independent = n_items / (1 + density * (lanes - 1))
    return max(
        _least(ITEMS_REQUIRED, single, SMALL_REQUIRED), _least(BLOCKS_REQUIRED, independent, SMALL_REQUIRED)
    )


def _least(table: tuple[tuple[int, float], ...], count: float, otherwise: float) -> float:
    return next((cells for least, cells in table if count >= least), otherwise)


def _rows_without_stuck(blocks: float, density: float, lanes: int) -> int:
    """Rows at which few blocks fall thrice on one row, or on the rows of another: in a lane alone nothing frees them.

    Of B blocks in R rows B / R^2 have one row three times; two have the same three in 6 of R^3 cases, and two rows each
    of which the third is the same in 9. It takes an item, or two, in one of the lanes.
    """
    one, two = -math.expm1(lanes * _log_rest(density)), -math.expm1(lanes * _log_rest(density * density))
    rows = 3
    while one * blocks / rows**2 + two * 7.5 * blocks**2 / rows**3 > STUCK:
        rows = math.ceil(rows * 1.02)
    return rows


def _log_rest(share: float) -> float:
    return math.log1p(-share) if share < 1 else -math.inf


def peel_rounds(n_items: int, cells_per_item: float) -> int:
    """Rounds of a parallel peel of one large hypergraph, by the share of items that each round leaves.

    The share q of cells' links that are left follows q <- (1 - exp(-3 q / c))^2; the last round leaves less than half
    an item, or, below the threshold, takes less than half an item away.

    References
    ----------
    .. [1] J. Jiang, M. Mitzenmacher, J. Thaler, "Parallel peeling algorithms", SPAA 2014.
    """
    whole(n_items, "number of non-zeros", 0, 2**62)
    finite(cells_per_item, "cells per item", 0, above=True)
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
    return whole(sum_bits, "bits of a sum", 1, 1024) / whole(value_bits, "bits of a value", 1, 1024)


@dataclass(frozen=True)
class Compression:
    """Sizes of the codec: c cells for each union non-zero, and b index bits for each element.

    Attributes
    ----------
    cells_per_item, index_bits : float
    value_bits, cell_bits : int
        Of an element of the dense array, and of a cell. A switch that adds integers of 32 bits makes cells of 32 of
        values of 16.
    """

    cells_per_item: float = 1.23
    index_bits: float = 1.0
    value_bits: int = WORD_BITS
    cell_bits: int = WORD_BITS

    def __post_init__(self) -> None:
        finite(self.cells_per_item, "cells per item", 0, above=True)
        finite(self.index_bits, "index bits", 0)
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
        """Bits sent for an element."""
        return self.value_bits / self.speed_up(union)

    def sketch_bytes(self, n_elements: int, union: float) -> int:
        """Bytes of the sketch of `n_elements`."""
        _check_density(union)
        cells = round(self.cells_per_item * union * whole(n_elements, "number of elements", 0, 2**62))
        return -(-cells * self.cell_bits // 8)

    def index_bytes(self, n_elements: int) -> int:
        """Bytes of the index."""
        return math.ceil(self.index_bits * whole(n_elements, "number of elements", 0, 2**62) / 8)


def best_bloom_rate(union: float, cells_per_item: float = 1.23) -> float:
    """Rate of false positives at which filter and phantom items cost least together.

    A filter takes log2(1/e) / ln 2 bits an item; a phantom takes a cell as an item does.
    """
    _check_density(union)
    finite(cells_per_item, "cells per item", 0, above=True)
    if union in (0, 1):
        raise WeftError(f"union density {union} has no Bloom filter: give one between 0 and 1")
    return min(0.5, union / (math.log(2) ** 2 * WORD_BITS * cells_per_item * (1 - union)))


def _check_density(density: float) -> None:
    number(density, "density", 0, 1)
