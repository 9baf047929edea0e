"""Recursive doubling: peers at distances 1, 2, 4, ... along each dimension in turn, on one port.

The bandwidth form is Rabenseifner's, reduce-scatter by recursive halving and all-gather by recursive doubling, in
the order of dimensions of Sack and Gropp.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
.. [2] P. Sack, W. Gropp, "Collective Algorithms for Multiported Torus Networks", 2015.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated

import numpy as np

from collectives.butterfly import Butterfly, Core, Peer, port_peers
from collectives.core.builders import EXCHANGED, Form, by_wiring, of_kind
from collectives.core.estimate import cheapest
from collectives.core.grid import Grid, Ranks, floor_power_of_two, is_power_of_two, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Round, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.symmetry import Group, Groups, node_group
from topologies import Topology, WeftError
from topologies.checks import Choice, checked
from topologies.core.symmetry import Permutation, link_permutation, move_nodes, reflection, translation
from topologies.units import Quantity

NAME = "recursive-doubling"
MIRRORED = "mirrored-recursive-doubling"
FORMS, ONLY_FORM = EXCHANGED

PAIRS = ("aligned", "shifted")
Pairs = Annotated[str, Choice(PAIRS)]


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, mirrored: bool = False, pairs: Pairs = "aligned",
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Recursive doubling all-reduce ([1], sections 4.4 and 4.5).

    `topology`: any; only its shape matters. Extents that are not powers of two fold first.
    `form`: the entire vector in log2 p steps, or reduce-scatter and all-gather. Default: the one with the lower
        estimate (`collectives.core.estimate`).
    `mirrored`: on 2D ports: one copy starts at each dimension, another with the sign of every displacement flipped
        (Swing paper, NSDI 2024, section 4.1).
    `pairs`: "shifted" is the flipped copy alone, as in the program behind the figures of the Swing paper: its first
        pairs, (1, 2), (3, 4), ..., (p-1, 0), are on different boards of a HammingMesh.
    WeftError: mirrored and shifted, for both copies run then.
    """
    if mirrored and pairs == "shifted":
        raise WeftError("recursive-doubling: mirrored runs both copies; omit pairs=shifted")
    name = MIRRORED if mirrored else NAME
    forms = [form] if form else FORMS
    return cheapest([_pattern(topology, name, "all-reduce", one, pairs) for one in forms], size, element_bytes)


def _half(
    kind: str, topology: Topology, size: Quantity, *, mirrored: bool = False, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    name = MIRRORED if mirrored else NAME
    return schedule(_pattern(topology, name, kind, "bandwidth", "aligned"), size, element_bytes)


reduce_scatter = of_kind("reduce-scatter", _half, """
    Recursive halving ([1], section 4.3); extents that are powers of two.""")
all_gather = of_kind("all-gather", _half, """
    Recursive doubling all-gather ([1], section 4.1); extents that are powers of two.""")


@by_wiring
def _pattern(topology: Topology, name: str, kind: str, form: str, pairs: str) -> Pattern:
    grid = Grid(topology.shape)
    inner = Grid(tuple(map(floor_power_of_two, grid.shape)))
    if kind != "all-reduce" and inner != grid:
        raise WeftError(
            f"{name} {kind} on {topology.name}: the extents {grid.extents} must all be powers of two; "
            "all-reduce accepts any"
        )
    butterfly = Butterfly(Core(grid, inner), _ports(inner, grid.dims, name, pairs), inner.p)
    n_ports = max(len(butterfly.ports), 1)
    return rounds_pattern(
        topology, kind, name, form, _rounds(butterfly, kind, form),
        n_blocks=n_ports * (inner.p if form == "bandwidth" else 1),
        groups=Groups(topology, partial(_group, MIRRORED if pairs == "shifted" else name)),
        smaller=Smaller(lambda: _pattern(shrink(topology), name, kind, form, pairs)), progress=butterfly.progress,
    )


def _ports(grid: Grid, dims: tuple[int, ...], name: str, pairs: str) -> tuple[tuple[Peer, ...], ...]:
    """All ports of the mirrored algorithm; otherwise the first plain or the first flipped one."""
    first = len(dims) if pairs == "shifted" else 0
    ports = range(2 * len(dims)) if name == MIRRORED else range(first, first + min(len(dims), 1))
    return tuple(port_peers(grid, dims, port, _peer) for port in ports)


def _peer(grid: Grid, dim: int, step: int, mirrored: bool, ranks: Ranks) -> Ranks:
    """Up if the bit of the coordinate is clear and down if it is set, or the reverse."""
    is_set = grid.coordinate(ranks, dim) >> step & 1
    return grid.shift(ranks, dim, np.where(is_set != mirrored, -(2**step), 2**step))


def _rounds(butterfly: Butterfly, kind: str, form: str) -> list[Round]:
    if form == "latency":
        return butterfly.latency()
    if kind == "reduce-scatter":
        return butterfly.scatter()
    return butterfly.gather() if kind == "all-gather" else butterfly.bandwidth()


@lru_cache(maxsize=64)
def _group(name: str, topology: Topology) -> Group:
    """Half-turns and complements; flips of any bit, unless the links or the sign of a port forbid them."""
    dims = [dim for dim, extent in enumerate(topology.shape) if extent > 1 and is_power_of_two(extent)]
    moves = chain.from_iterable(_moves(topology, dim, name) for dim in dims)
    return node_group(topology, "half-turns and complements", moves)


def _moves(topology: Topology, dim: int, name: str) -> Iterator[tuple[str, Permutation | None]]:
    extent = topology.shape[dim]
    yield f"half-turn in dimension {dim}", translation(topology, dim, extent // 2)
    if extent > 2:
        yield f"complement in dimension {dim}", reflection(topology, dim, extent - 1)
    if name == NAME and link_permutation(topology, _flip(topology, dim, 1)) is not None:
        for step in range(extent.bit_length() - 2):
            yield f"flip of bit {1 << step} in dimension {dim}", _flip(topology, dim, 1 << step)


def _flip(topology: Topology, dim: int, bit: int) -> Permutation | None:
    return move_nodes(topology, {dim: np.arange(topology.shape[dim]) ^ bit})
