"""Where elements go in a sketch: blocks of lanes, three rows each, and whether lanes are turned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from topologies import WeftError
from workloads.compression import _kernels as kernels

LANES = 1024
"""Elements of a block, as in the public code."""

CELLS_PER_ITEM = 1.23
"""Cells a non-zero of the union at which a large hypergraph always peels; its threshold is 1.2218."""


class Hashing(NamedTuple):
    """What the cells of an element depend on, as the compiled loops take it."""

    rows: int
    lanes: int
    rotated: bool
    split: bool
    seed: int


@dataclass(frozen=True)
class Layout:
    """How `n_elements` are spread over `rows` x `lanes` cells; every worker uses the same.

    Element i is lane i mod L of block i div L. A hash of the block chooses a row and a sign, three times over, and
    the element goes to its lane of that row. Published, each lane is a small hypergraph of its own and all of them
    must decode; turning the lanes by another hash of the block joins them into one.

    Attributes
    ----------
    n_elements, rows : int
    lanes : int
        L; 1 hashes every element by itself.
    rotated : bool
        Whether lanes are turned.
    split : bool
        Whether each hash has a third of the rows to itself.
    seed : int
        Of the first hash.
    """

    n_elements: int
    rows: int
    lanes: int = LANES
    rotated: bool = True
    split: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_elements < 0 or self.lanes < 1:
            raise WeftError(f"layout of {self.n_elements} elements in {self.lanes} lanes: give at least 0 and 1")
        least = kernels.HASHES if self.split else 1
        if self.rows < least:
            raise WeftError(f"layout has {self.rows} rows; give at least {least}")
        if not 0 <= self.seed < 2**31:
            raise WeftError(f"layout has seed {self.seed}; give 0 to 2147483647")
        if self.n_elements >= 2**31 or self.n_cells >= 2**31:
            raise WeftError(f"layout of {self.n_elements} elements and {self.n_cells} cells: below 2147483648 each")

    @property
    def n_cells(self) -> int:
        """M: cells of the sketch."""
        return self.rows * self.lanes

    @property
    def n_blocks(self) -> int:
        return -(-self.n_elements // self.lanes)

    def hashing(self) -> Hashing:
        """Parameters of the hashes."""
        return Hashing(self.rows, self.lanes, self.rotated and self.lanes > 1, self.split, self.seed)


def layout_for(
    n_elements: int,
    n_items: int,
    cells_per_item: float = CELLS_PER_ITEM,
    *,
    lanes: int = LANES,
    rotated: bool = True,
    split: bool = False,
    seed: int = 0,
) -> Layout:
    """The layout with at least `cells_per_item` cells for each of `n_items` union non-zeros.

    Parameters
    ----------
    n_elements, n_items : int
    cells_per_item : float
        c. Whole rows make the cells a little more than c times the items.
    lanes, rotated, split, seed
        As in `Layout`.

    Raises
    ------
    WeftError
        More items than elements, or no cells.
    """
    if not 0 <= n_items <= n_elements:
        raise WeftError(f"{n_items} non-zeros among {n_elements} elements: give 0 to {n_elements}")
    if not cells_per_item > 0:
        raise WeftError(f"cells per item is {cells_per_item}; it must be above zero")
    rows = max(kernels.HASHES, math.ceil(cells_per_item * n_items / lanes))
    return Layout(n_elements, rows, lanes, rotated, split, seed)


def published_layout(n_elements: int, compression_ratio: float) -> Layout:
    """The layout of the public code: 1,024 lanes that are not turned, and a preset ratio of elements to cells."""
    if not compression_ratio > 0:
        raise WeftError(f"compression ratio is {compression_ratio}; it must be above zero")
    return Layout(n_elements, max(1, math.ceil(n_elements / LANES / compression_ratio)), LANES, rotated=False)
