"""Trivance: every step joins three ranks, both neighbors at a distance that triples, so that log3 p steps are enough.

In step s of a dimension every rank exchanges with the ranks 3^s to either side, over both of its links there; the last
distance is shorter where an extent is no power of three. Like Swing it takes the dimensions in turn, and runs one copy
for each dimension to start with. (arXiv 2602.17254.)
"""

from itertools import zip_longest

from collectives.core.builders import EXCHANGED, Form, by_wiring, plain
from collectives.core.estimate import cheapest
from collectives.core.grid import Grid, shrink
from collectives.core.offsets import rounds_of, spread
from collectives.core.pattern import Pattern, Smaller
from collectives.core.rounds import rounds_pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule
from collectives.core.symmetry import translations
from topologies import Topology, WeftError, torus
from topologies.checks import checked
from topologies.units import Quantity

NAME = "trivance"
FORMS, ONLY_FORM = EXCHANGED


@by_wiring
def _pattern(topology: Topology, kind: str, form: str) -> Pattern:
    grid = Grid(topology.shape)
    order = 1 if form == "latency" else -1  # of an all-gather: far ranks first, so that little goes far
    ports, apart = zip(
        *(spread(grid, _fars(grid, port)[::order]) for port in range(max(len(grid.dims), 1))), strict=True
    )
    if form == "latency" and not all(apart):
        raise WeftError(
            f"trivance (latency) on {topology.name}: the extents {grid.extents} must all be powers of three; the "
            "bandwidth form accepts any"
        )
    return rounds_pattern(
        topology, kind, NAME, form, rounds_of(grid, kind, form, ports),
        n_blocks=len(ports) * (grid.p if form == "bandwidth" else 1), groups=translations(topology),
        smaller=Smaller(lambda: _pattern(_smaller(topology, form), kind, form)), progress="all",
    )


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Form | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Trivance all-reduce.

    `topology`: any; only its shape matters.
    `form`: "latency" exchanges the entire vector in log3 p steps, on extents that are powers of three: on others ranks
        would be added twice. "bandwidth" is a reduce-scatter and an all-gather. Default: the lower estimate.
    WeftError: the latency form on other extents.
    """
    tripled = all(_is_power_of_three(extent) for extent in topology.shape)
    forms = (form,) if form else FORMS if tripled else ONLY_FORM
    return cheapest([_pattern(topology, "all-reduce", one) for one in forms], size, element_bytes)


reduce_scatter = plain("reduce-scatter", _pattern, """
    The first half of the bandwidth form, near ranks first; any shape.""", form="bandwidth")
all_gather = plain("all-gather", _pattern, """
    The second half of the bandwidth form, far ranks first; any shape.""", form="bandwidth")


def _smaller(topology: Topology, form: str) -> Topology:
    return torus(tuple(min(extent, 3) for extent in topology.shape)) if form == "latency" else shrink(topology)


def _is_power_of_three(number: int) -> bool:
    while number % 3 == 0:
        number //= 3
    return number == 1


def _fars(grid: Grid, port: int) -> tuple[tuple[int, ...], ...]:
    """Both neighbors of each step; the dimensions in turn from that of the port on."""
    turn = [grid.dims[(port + at) % len(grid.dims)] for at in range(len(grid.dims))]
    steps = zip_longest(*([(dim, far) for far in _distances(grid.shape[dim])] for dim in turn))
    return tuple(
        tuple(grid.strides[dim] * (side * far % grid.shape[dim]) for side in (1, -1))
        for together in steps for dim, far in filter(None, together)
    )


def _distances(extent: int) -> list[int]:
    """1, 3, 9, ...; the last reaches the ranks that are left, half of them on each side."""
    found, reached = [], 1
    while reached < extent:
        found.append(min(reached, -(-(extent - reached) // 2)))
        reached *= 3
    return found
