"""Parameter server: ranks send the array to one rank, which adds it up and sends the sum back.

With best-effort aggregation (ATP) switches on the way add up what finds a slot; the fraction that finds none reaches
the server from every rank by itself.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from collectives.aggregation_tree import minimum_depth_tree
from collectives.flows import Flows
from collectives.pattern import Pattern
from collectives.schedule import ELEMENT_BYTES, Schedule, schedule
from topologies import Topology, WeftError
from topologies.routing import hash64
from topologies.units import Quantity

NAME = "parameter-server"
PARTS = 64
"""Parts of the array, of which some fall back."""


def all_reduce(
    topology: Topology,
    size: Quantity,
    *,
    server: int = 0,
    fallback: float = 1.0,
    parts: int = PARTS,
    seed: int = 0,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce over a parameter server, which is one of the ranks.

    Parameters
    ----------
    topology : Topology
    size : quantity
    server : int
        The rank that adds up; it contributes as well.
    fallback : float
        Fraction of the array that switches do not aggregate. 1 is a plain server on any network, which also sends
        every rank its own copy of the sum. Below, switches copy what the server sends once, and a hash of the seed
        decides which parts fall back.
    parts : int
        Parts that are aggregated or fall back as a whole.
    seed : int
    element_bytes : int

    Raises
    ------
    WeftError
        A server that is no rank, or a fraction out of range.
    """
    if not 0 <= fallback <= 1:
        raise WeftError(f"fallback of {fallback} is out of range: 0 to 1")
    if parts < 1:
        raise WeftError(f"{parts} parts: at least 1")
    if not 0 <= server < topology.n_npus:
        raise WeftError(f"server {server} is not one of the {topology.n_npus} ranks of {topology.name}")
    return schedule(_pattern(topology, server, round(fallback * parts), parts, seed), size, element_bytes)


def collision_probability(jobs: int, window: int, slots: int) -> float:
    """Share of packets that find their slot taken where jobs hash into one pool: 1 - exp(-(J - 1) w / A)."""
    if min(jobs, window, slots) < 1:
        raise WeftError(f"{jobs} jobs with windows of {window} on {slots} slots: at least 1 each")
    return -math.expm1(-(jobs - 1) * window / slots)


@lru_cache(maxsize=64)
def _pattern(topology: Topology, server: int, n_fallback: int, parts: int, seed: int) -> Pattern:
    flows = Flows(topology)
    others = [rank for rank in range(topology.n_npus) if rank != server]
    drawn = hash64(seed, np.arange(parts))
    falls_back = set(np.argsort(drawn, kind="stable")[:n_fallback].tolist())
    if n_fallback == parts:
        _plain(flows, server, others, parts)
    elif others:
        tree = minimum_depth_tree(topology, root=server)
        for part in range(parts):
            if part in falls_back:
                at_server = [flows.direct(rank, server, (part,)) for rank in others]
            else:
                _, at_server = flows.collect(tree, others, (part,))
            flows.spread(tree, others, (part,), at_server)
    return flows.pattern("all-reduce", NAME, "" if n_fallback == parts else "best-effort", parts)


def _plain(flows: Flows, server: int, others: list[int], parts: int) -> None:
    at_server = [flows.direct(rank, server, range(parts)) for rank in others]
    for rank in others:
        flows.direct(server, rank, range(parts), at_server)
