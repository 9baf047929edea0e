"""Where elements go in a sketch: blocks of lanes, three rows each, turned or not, of neighbors or from all over."""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from topologies.checks import MOST_COUNT, Count, Integer, WeftError, checked, choice, integer, number
from workloads.compression import _kernels as kernels
from workloads.compression.cells import cells_required

CELLS_PER_ITEM = 1.23
"""Cells a nonzero of the union at which arrays of a million elements decode, spread or by element (40 of 40)."""

MOST_ELEMENTS = (2**32 - 1) // kernels.HASHES
"""So many that the count of a cell, of 32 bits, holds all of them thrice."""


class Form(NamedTuple):
    """What a layout is like, whatever its size."""

    lanes: int  # elements of a block, which share their rows and signs
    rotated: bool  # whether lanes are turned
    spread: bool  # whether elements of a block come from all over the array

    def cells_required(self, n_items: int, n_elements: int) -> float:
        """Cells per item with which nearly all arrays decode (`cells.cells_required`)."""
        return cells_required(n_items, n_elements, self.lanes, self.rotated)


FORMS: dict[str, Form] = {
    "spread": Form(64, rotated=True, spread=True),
    "element": Form(1, rotated=False, spread=False),
    "rotated": Form(1024, rotated=True, spread=False),
    "published": Form(1024, rotated=False, spread=False),
}
"""`spread` is ours; `rotated` is the published one with lanes turned, as its authors might have mended it."""

SPREAD, PUBLISHED = FORMS["spread"], FORMS["published"]


def form_of(name: str) -> Form:
    """The form of that name; WeftError: there is none."""
    return FORMS[choice(name, FORMS, "layout")]


class Hashing(NamedTuple):
    """What the cells of an element depend on, as the compiled loops take it; `apart` is 0 for blocks of neighbors."""

    rows: int
    lanes: int
    rotated: bool
    split: bool
    seed: int
    apart: int


@checked
@dataclass(frozen=True)
class Layout:
    """How `n_elements` are spread over `rows` x `lanes` cells; every worker uses the same.

    A hash of an element's block chooses a row and a sign, three times over, and the element goes to its lane of that
    row. Published, block and lane of element i are i div L and i mod L with L = 1024, and each lane is a small
    hypergraph of its own; all of them must decode. Turning the lanes by another hash of the block joins them into one.
    There are still as few rows and blocks as before, so that chance gives some arrays too many full rows, and
    where nonzeros stand in a row, as in embeddings, all lanes of a block are items, and turning changes nothing.
    Smaller blocks cure the first. Blocks whose elements are n_blocks apart, i mod n_blocks and i div n_blocks,
    cure the second.
    """

    n_elements: Annotated[int, Integer(0, MOST_ELEMENTS)]
    rows: Count
    lanes: Count = SPREAD.lanes  # L; 1 hashes every element by itself
    rotated: bool = True  # whether lanes are turned
    split: bool = False  # whether each hash has a third of the rows to itself
    seed: Annotated[int, Integer(0, MOST_COUNT)] = 0  # of the first hash
    spread: bool = True  # whether the elements of a block are `n_blocks` apart; otherwise they are neighbors

    def __post_init__(self) -> None:
        if self.split and self.rows < kernels.HASHES:
            raise WeftError(f"layout has {self.rows} rows: at least {kernels.HASHES}, one for each hash")
        if self.n_cells >= 2**31:
            raise WeftError(f"layout has {self.rows} rows of {self.lanes} lanes: below 2147483648 cells in all")

    @property
    def n_cells(self) -> int:
        """M: cells of the sketch."""
        return self.rows * self.lanes

    @property
    def n_blocks(self) -> int:
        """Blocks; where they are spread a multiple of 16, with some empty lanes, which encodes twice as fast."""
        blocks = -(-self.n_elements // self.lanes)
        return -(-blocks // kernels.LINE) * kernels.LINE if self.spread and self.lanes > 1 else blocks

    def hashing(self) -> Hashing:
        """Parameters of the hashes."""
        many = self.lanes > 1
        apart = self.n_blocks if self.spread and many else 0
        return Hashing(self.rows, self.lanes, self.rotated and many, self.split, self.seed, apart)


def layout_for(
    n_elements: int, n_items: int, cells_per_item: float | None = None, form: str | Form = "spread", *,
    split: bool = False, seed: int = 0,
) -> Layout:
    """The layout with at least `cells_per_item` cells for each of `n_items` union nonzeros.

    `cells_per_item`: c; what nearly all arrays of that many items need in that form unless given. Whole rows make the
        cells a little more than c times the items.
    `form`: one of `FORMS`, or lanes, rotated and spread.
    WeftError: more items than elements, no cells, or a form that is unknown.
    """
    shape = form_of(form) if isinstance(form, str) else Form(*form)
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    integer(n_items, f"number of nonzeros among {n_elements} elements", 0, n_elements)
    lanes = integer(shape.lanes, "number of lanes", 1, MOST_COUNT)
    if cells_per_item is None:
        wanted = shape.cells_required(n_items, n_elements)
    else:
        wanted = number(cells_per_item, "cells per item", 0, above=True)
    rows = max(kernels.HASHES, math.ceil(wanted * n_items / lanes))
    return Layout(n_elements, rows, lanes, shape.rotated, split, seed, shape.spread)


def published_layout(n_elements: int, compression_ratio: float) -> Layout:
    """The layout of the public code: 1,024 lanes that are not turned, and a preset ratio of elements to cells."""
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    number(compression_ratio, "compression ratio", 0, above=True)
    lanes = PUBLISHED.lanes
    return Layout(n_elements, max(1, math.ceil(n_elements / lanes / compression_ratio)), lanes, False, spread=False)
