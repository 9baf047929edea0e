"""Parameter server: ranks send the array to one rank, which reduces it and sends the sum back.

With best-effort aggregation (ATP), switches on the path reduce what finds a slot; the fraction that finds none reaches
the server from every rank separately.
"""

import math
from fractions import Fraction
from typing import Annotated

import numpy as np

from collectives.core.builders import by_wiring
from collectives.core.pattern import Pattern, Smaller
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.trees.aggregation import AggregationTree, minimum_depth_tree
from collectives.trees.flows import MOST_TRANSFERS, Flows, small_network
from topologies import Topology, WeftError, switch
from topologies.checks import Count, Number, checked, integer
from topologies.core.routing import hash64
from topologies.units import Quantity

NAME = "parameter-server"
PARTS = 64
"""Minimum number of parts of the array, some of which fall back."""

MOST_PARTS = 1000
"""Largest denominator of the fallback fraction, unless parts are given."""

MOST_WAITS = 4_000_000
"""Limit on waits of a plain server's sends for all arrivals: a few seconds."""


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, server: int = 0, fallback: Annotated[float, Number(0, 1)] = 1.0,
    parts: Count | None = None, seed: int = 0, routers: bool = False, element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce through a parameter server, which is one of the ranks.

    `server`: the rank that reduces; it also contributes.
    `fallback`: fraction of the array that switches do not aggregate. 1 is a plain server on any network, which also
        sends every rank its own copy of the sum. Below 1, the server sends once, switches copy, and a hash of the seed
        decides which parts fall back.
    `parts`: parts that are aggregated or fall back as a unit; the fraction must be a multiple of 1/parts. Default: the
        smallest suitable number from 64 up, for fractions down to 1,000ths.
    `routers`: whether the routers of NPUs aggregate too.
    WeftError: a server that is no rank, a fraction out of range or not an integer of parts, no tree of nodes that
        aggregate.
    """
    n_fallback, n_parts = _parts(fallback, parts)
    server = integer(server, "server", 0, topology.n_npus - 1)
    pattern = _pattern(topology, server, n_fallback, n_parts, seed, routers)
    return schedule(pattern, size, element_bytes)


def _parts(fallback: float, parts: int | None) -> tuple[int, int]:
    """Parts that fall back, and parts in all."""
    given = Fraction(str(fallback))  # as written: 0.1 is a tenth
    share = given.limit_denominator(MOST_PARTS)
    n_parts = parts or -(-PARTS // share.denominator) * share.denominator
    n_fallback = round(given * n_parts)
    if not math.isclose(n_fallback, given * n_parts, rel_tol=1e-12, abs_tol=0):
        what = f"fraction of up to {MOST_PARTS:,}ths" if parts is None else f"multiple of 1/{n_parts}"
        raise WeftError(f"fallback of {fallback!r} is not a {what}: give one, or change parts")
    return n_fallback, n_parts


@by_wiring
def _pattern(topology: Topology, server: int, n_fallback: int, parts: int, seed: int, routers: bool) -> Pattern:
    others = [rank for rank in range(topology.n_npus) if rank != server]
    plain = n_fallback == parts
    tree = AggregationTree(server, ())
    if plain and len(others) ** 2 > MOST_WAITS:
        raise WeftError(
            f"parameter-server all-reduce on {topology.name} would let each of {len(others):,} sends of the server "
            f"wait for as many arrivals, more than {MOST_WAITS:,}: use a fallback below 1, or a smaller network"
        )
    if 2 * parts * topology.n_nodes > MOST_TRANSFERS:
        raise WeftError(
            f"parameter-server all-reduce on {topology.name} would send {parts:,} parts up and down over "
            f"{topology.n_nodes:,} nodes, more than {MOST_TRANSFERS:,} transfers: use fewer parts"
        )
    if others and not plain:
        tree = minimum_depth_tree(topology, root=server, routers=routers)
    flows = Flows(topology)
    if plain:
        _plain(flows, server, others, parts)
    else:
        drawn = hash64(seed, np.arange(parts))
        _best_effort(flows, tree, others, parts, set(np.argsort(drawn, kind="stable")[:n_fallback].tolist()))

    def small() -> Pattern:
        fewer = switch(8) if plain else small_network(topology, (tree,))
        return _pattern(fewer, min(server, fewer.n_npus - 1), n_fallback, parts, seed, routers)

    return flows.pattern("all-reduce", NAME, "" if plain else "best-effort", parts, smaller=Smaller(small))


def _best_effort(flows: Flows, tree: AggregationTree, others: list[int], parts: int, falls_back: set[int]) -> None:
    flows.find_routes(others, [tree.root] * len(others))
    for part in range(parts if others else 0):
        if part in falls_back:
            at_server = [flows.direct(rank, tree.root, (part,)) for rank in others]
        else:
            _, at_server = flows.collect(tree, others, (part,))
        flows.spread(tree, others, (part,), at_server)


def _plain(flows: Flows, server: int, others: list[int], parts: int) -> None:
    flows.find_routes([*others, *[server] * len(others)], [*[server] * len(others), *others])
    at_server = [flows.direct(rank, server, range(parts)) for rank in others]
    for rank in others:
        flows.direct(server, rank, range(parts), at_server)
