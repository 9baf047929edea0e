"""Swing: butterflies whose peers alternate sides and stay close, on tori with any number of dimensions.

D. De Sensi, T. Bonato, D. Saam, T. Hoefler, "Swing: Short-cutting Rings for Higher Bandwidth Allreduce",
NSDI 2024.
"""

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from collectives.butterfly import Butterfly, Core, port_peers
from collectives.core.builders import EXCHANGED, Form, by_wiring, plain
from collectives.core.estimate import cheapest
from collectives.core.grid import Grid, Ranks, floor_power_of_two, shrink
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import Fan, Round, rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import Alternative, Group, Groups, widest_group
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.core.symmetry import reflection, translation
from topologies.units import Quantity

NAME = "swing"
FORMS, ONLY_FORM = EXCHANGED


@by_wiring
def _pattern(topology: Topology, kind: str, form: str) -> Pattern:
    grid = Grid(topology.shape)
    if form == "bandwidth" and not _has_blocks(grid.shape):
        raise WeftError(
            f"swing (bandwidth) on {topology.name}: an odd extent among several: {grid.extents}; this form "
            "needs even extents in any number of dimensions, or one dimension of any extent. The latency form of "
            "all-reduce accepts any"
        )
    butterfly = _butterfly(grid, form)
    n_ports = max(len(butterfly.ports), 1)
    return rounds_pattern(
        topology, kind, NAME, form, _rounds(butterfly, kind, form),
        n_blocks=n_ports * (butterfly.part if form == "bandwidth" else 1),
        groups=Groups(topology, partial(group, butterfly.regular_dims())),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind, form)),
        progress="all" if form == "bandwidth" else butterfly.progress,
    )


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Swing all-reduce, on 2D ports at once (NSDI 2024, sections 3 and 4).

    `topology`: any; only its shape matters.
    `form`: "latency" exchanges the entire vector in log2 p steps; extents that are not powers of two fold first.
        "bandwidth" is a reduce-scatter and an all-gather, for even extents, or a single extent that may be odd.
        Default: the one with the lower estimate (`collectives.core.estimate`) among those the shape allows.
    WeftError: the bandwidth form on odd extents in several dimensions.
    """
    forms = [form] if form else ["latency"] + ["bandwidth"] * _has_blocks(topology.shape)
    return cheapest([_pattern(topology, "all-reduce", one) for one in forms], size, element_bytes)


reduce_scatter = plain("reduce-scatter", _pattern, """
    The first half of the bandwidth form (NSDI 2024, section 3.1); even extents, or one extent that may be odd.
    """, form="bandwidth")
all_gather = plain("all-gather", _pattern, """
    The second half of the bandwidth form, its time reversal; even extents, or a single extent that may be odd.
    """, form="bandwidth")


def rho(step: int) -> int:
    """Signed distance to the peer of an even coordinate: 1, -1, 3, -5, 11, ... (NSDI 2024, equation 2)."""
    return sum((-2) ** i for i in range(step + 1))


def _has_blocks(shape: tuple[int, ...]) -> bool:
    """Whether the bandwidth form exists."""
    extents = Grid(shape).extents
    return len(extents) <= 1 or all(extent % 2 == 0 for extent in extents)


def _butterfly(grid: Grid, form: str) -> Butterfly:
    """Ports 0 to D-1 start in each dimension in turn; ports D to 2D-1 are their mirror images."""
    if form == "latency":
        inner = Grid(tuple(map(floor_power_of_two, grid.shape)))
    else:
        inner = Grid(tuple(extent - (extent % 2 if extent > 1 else 0) for extent in grid.shape))
    ports = tuple(port_peers(inner, grid.dims, port, peer) for port in range(2 * len(grid.dims)))
    return Butterfly(Core(grid, inner), ports, grid.p)


def peer(grid: Grid, dim: int, step: int, mirrored: bool, ranks: Ranks) -> Ranks:
    """Each rank's peer in a step along a dimension."""
    odd, distance = grid.coordinate(ranks, dim) % 2, -rho(step) if mirrored else rho(step)
    return grid.shift(ranks, dim, np.where(odd, -distance, distance))


def _rounds(butterfly: Butterfly, kind: str, form: str) -> list[Round | Fan]:
    if form == "latency":
        return list(butterfly.latency())
    steps = max(map(len, butterfly.ports), default=0)
    scatter: list[Round | Fan] = [*butterfly.scatter(), *_odd_one(butterfly, 0, reduces=True)]
    if kind == "reduce-scatter":
        return scatter
    first_step = steps if kind == "all-reduce" else 0
    gather: list[Round | Fan] = [*butterfly.gather(first_step), *_odd_one(butterfly, first_step, reduces=False)]
    return gather if kind == "all-gather" else scatter + gather


def _odd_one(butterfly: Butterfly, first_step: int, *, reduces: bool) -> list[Fan]:
    """For odd p: exchanges of the last rank with a new group of the others in each step (section A.3)."""
    hub = butterfly.core.inner.p
    if hub == butterfly.core.outer.p:
        return []
    fans = []
    for port, peers in enumerate(butterfly.ports):
        rims = odd_groups(hub, len(peers))
        for step, rim in enumerate(rims if reduces else reversed(rims)):
            for outward in (True, False):
                fans.append(Fan(first_step + step, port, hub, rim, outward, port * butterfly.part, reduces))
    return fans


def odd_groups(even: int, steps: int) -> list[range]:
    """The ranks that the odd one meets in each step: half of the remaining ones, rounded up, and finally all."""
    groups, first = [], 0
    for step in range(steps):
        left = even - first
        size = left if step == steps - 1 else (left + 1) // 2
        groups.append(range(first, first + size))
        first += size
    return groups


@lru_cache(maxsize=64)
def group(dims: tuple[int, ...], topology: Topology) -> Group:
    """Even translations and c -> 1 - c: together they map any rank to any other and preserve every port.

    Their subgroups of period four preserve boards of four; the complements preserve a mesh.
    """
    choices = ((f"even translations in dimension {dim}", _alternatives(topology, dim)) for dim in dims)
    return widest_group(topology, "even translations and reflections", choices)


def _alternatives(topology: Topology, dim: int) -> Iterator[Alternative]:
    extent = topology.shape[dim]
    for period in (2, 4):
        if extent > period:
            yield translation(topology, dim, period), reflection(topology, dim, period - 1)
    yield [reflection(topology, dim, extent - 1)]
