"""How many cells the codec needs so that arrays decode, by what was measured."""

import math

from topologies.checks import integer

ITEMS_REQUIRED = ((70_000, 1.23), (10_000, 1.25), (1_000, 1.30))
"""Items, and cells per item at which nearly all single hypergraphs of that many items peel."""

BLOCKS_REQUIRED = ((12_000, 1.23), (900, 1.25), (100, 1.30), (30, 1.50))
"""Items counted by how independent they are, and cells per item at which nearly all of turned lanes peel."""

LANE_REQUIRED = ((5_500, 1.30), (300, 1.50), (80, 2.0))
"""Items of a lane by itself, and cells per item at which next to none of 1,024 lanes keeps a share of its items."""

SMALL_REQUIRED, SMALL_LANE_REQUIRED = 2.0, 3.0
"""Cells per item for fewer, where the margin of a finite size is wide."""

DENSE = 0.8
"""Density from which lanes are so full that turning them does not help: a block peels like one item."""

STUCK = 0.1
"""Sets of items with no cell of their own that are accepted in an array: one array in ten has one."""


def cells_required(n_items: int, n_elements: int | None = None, lanes: int = 1, rotated: bool = True) -> float:
    """Cells per item with which nearly all arrays of independent nonzeros decode, by what was measured.

    `n_items`, `n_elements`: union nonzeros, and elements of the array; the latter is needed of layouts with lanes.
    `lanes`, `rotated`: of the layout; whether blocks are spread does not matter to independent nonzeros.
    WeftError: more items than elements.
    """
    most = 2**62 if n_elements is None else integer(n_elements, "number of elements", 0, 2**62)
    integer(n_items, f"number of nonzeros among {n_elements or 'many'} elements", 0, most)
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
    return max(_least(ITEMS_REQUIRED, single, SMALL_REQUIRED), _least(BLOCKS_REQUIRED, independent, SMALL_REQUIRED))


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
