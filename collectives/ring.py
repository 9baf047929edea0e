"""Ring: each block travels once around a cycle of all ranks to be reduced, and once more to be distributed.

In one dimension, and behind the switches of a fat-tree, the cycle is the rank order, in both directions at once. In
two dimensions there are two edge-disjoint Hamiltonian cycles, each in both directions (Swing paper, NSDI 2024, section
5; the construction is that of the Lee distance Gray codes of Bae and Bose, 2003).
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from math import gcd
from typing import Annotated

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, plain
from collectives.core.cycles import cycles_pattern
from collectives.core.grid import Grid, Ranks, shrink_shape
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import Action, Group, Groups, translations, widest_group
from topologies import Topology, WeftError, torus
from topologies.checks import Integer
from topologies.core.symmetry import Permutation, move_nodes

NAME = "ring"
Directions = Annotated[int, Integer(1, 2)]


@by_wiring
def _pattern(topology: Topology, kind: str, directions: Directions = 2) -> Pattern:
    grid = Grid(_shape(topology))
    orders = _orders(topology.name, grid)
    return cycles_pattern(
        topology, kind, NAME, [order[::way] for order in orders for way in (1, -1)[:directions]],
        groups=_groups(topology, directions), smaller=Smaller(lambda: _pattern(_smaller(topology), kind, directions)),
        progress="any",
    )


all_reduce = plain("all-reduce", _pattern, """
    Ring all-reduce: p - 1 steps of reduce-scatter, p - 1 of all-gather.

    `topology`: of one dimension, of tiers of switches (fat-tree, leaf-spine), or of two dimensions that admit two
        edge-disjoint Hamiltonian cycles: extents of at least 3, one a multiple k C of the other C, with k C and C - 1
        coprime.
    `directions`: whether each cycle is used in both directions, with half of its data each.
    WeftError: more than two dimensions, extents that do not admit the cycles, or other directions.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, "The first p - 1 steps of `all_reduce`; the same parameters.")
all_gather = plain("all-gather", _pattern, "The last p - 1 steps of `all_reduce`; the same parameters.")


def hamiltonian_cycles(rows: int, columns: int) -> tuple[Ranks, Ranks]:
    """Two edge-disjoint Hamiltonian cycles of a torus, as nodes `row * columns + column` in order.

    WeftError: rows that are not a multiple of the columns, or share a divisor with columns - 1, or fewer than three
        columns.
    """
    if not _admits(rows, columns):
        raise WeftError(f"{rows} rows of {columns}: {_CONDITION}")
    turn, place = np.divmod(np.arange(rows * columns), columns)
    slant = place + (columns - 1) * turn
    return turn % rows * columns + slant % columns, slant % rows * columns + turn % columns


_CONDITION = (
    "two edge-disjoint Hamiltonian cycles need extents of at least 3, one of them a multiple k C of the other C, and "
    "no common divisor of k C and C - 1"
)


def _admits(rows: int, columns: int) -> bool:
    return columns > 2 and rows % columns == 0 and gcd(rows, columns - 1) == 1


def _shape(topology: Topology) -> tuple[int, ...]:
    """Extents that cycles follow; one row if coordinates count tiers of switches, where NPUs have links of one kind."""
    of_npus = topology.dimension[topology.src < topology.n_npus]
    return topology.shape if np.any(of_npus != of_npus[:1]) else (topology.n_npus,)


def _orders(name: str, grid: Grid) -> list[Ranks]:
    """Ranks in the order of each undirected cycle."""
    if len(grid.dims) < 2:
        return [np.arange(grid.p)]
    if len(grid.dims) > 2:
        raise WeftError(
            f"ring on {name}: {len(grid.dims)} dimensions; ring needs one dimension, tiers of switches, or two "
            "dimensions that admit two edge-disjoint Hamiltonian cycles. bucket accepts any number of dimensions"
        )
    fast, slow = grid.extents
    if _admits(slow, fast):
        return list(hamiltonian_cycles(slow, fast))
    if _admits(fast, slow):
        return [node % slow * fast + node // slow for node in hamiltonian_cycles(fast, slow)]
    raise WeftError(
        f"ring on {name}: {_CONDITION}; the extents are {fast} and {slow}. nccl-rings accepts boxes of GPUs, bucket "
        "any extents"
    )


def _smaller(topology: Topology) -> Topology:
    """In two dimensions, the smallest torus of the same parities that admits the cycles."""
    shape = _shape(topology)
    extents = Grid(shape).extents
    if len(extents) < 2:
        return torus(shrink_shape(shape))
    short, many = min(extents), max(extents) // min(extents)
    k, columns = min(
        ((k, c) for k in range(2 - many % 2, many + 1, 2) for c in range(3 + (short + 1) % 2, short + 1, 2)
         if (k == 1) == (many == 1) and _admits(k * c, c)),
        key=lambda pair: pair[0] * pair[1] ** 2,
    )
    return torus((columns, k * columns) if extents[0] == short else (k * columns, columns))


def _groups(topology: Topology, directions: int) -> Groups:
    if len(_orders(topology.name, Grid(_shape(topology)))) == 1:
        # Behind tiers of switches, ranks in a row move by entire pods only.
        return translations(topology, max(Grid(topology.shape).dims, default=0))
    return Groups(topology, partial(_moves, directions), _slides)


@lru_cache(maxsize=64)
def _moves(directions: int, topology: Topology) -> Group:
    return _rotation(topology, _orders(topology.name, Grid(_shape(topology))), directions) or _slides(topology)


def _rotation(topology: Topology, orders: Sequence[Ranks], directions: int) -> Group | None:
    """Each cycle rotated by one place, independently of the others; None if cycle edges are not single links."""
    links = np.arange(topology.n_links, dtype=np.int32)
    ranks = []
    for order in orders:
        turned = np.empty(order.size, np.int32)
        turned[order] = np.roll(order, -1)
        for way in (1, -1):
            along = topology.link_ids(order, np.roll(order, -way))
            if np.any(along < 0) or not _alike(topology, along) or np.any(links[along] != along):
                return None
            links[along] = np.roll(along, -1)
        ranks += [turned] * directions
    return Group("rotation of each ring", (Action(np.stack(ranks), links),))


def _alike(topology: Topology, links: npt.NDArray[np.int32]) -> bool:
    heads = topology.dst[links]
    columns = (topology.bandwidth_Bps[links], topology.latency_ps[links], topology.hop_latency_ps[heads])
    return all(column.size and np.ptp(column) == 0 for column in columns)


@lru_cache(maxsize=64)
def _slides(topology: Topology) -> Group:
    """Translations that preserve both cycles: along the short extent, and C - 1 times as far along the long one.

    By two or four places if boards forbid one. All ports move alike, which the rotation of each ring does not.
    """
    grid = Grid(_shape(topology))
    fast, slow = grid.dims
    across, along = (fast, slow) if _admits(grid.shape[slow], grid.shape[fast]) else (slow, fast)
    columns, rows = grid.shape[across], grid.shape[along]

    def slide(by: int) -> Permutation | None:
        maps = {across: (np.arange(columns) + by) % columns, along: (np.arange(rows) + by * (columns - 1)) % rows}
        return move_nodes(topology, maps)

    slides = ([slide(by)] for by in (1, 2, 4) if by < columns)
    return widest_group(topology, "slides along the rings", [("slide", slides)])
