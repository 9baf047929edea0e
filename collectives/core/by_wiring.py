"""Patterns are built once per wiring: topologies that differ in rates and latencies only share transfers and proof."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVarTuple

from collectives.core.pattern import Pattern
from topologies import Topology
from topologies.core.rateless import wiring_of
from topologies.core.topology import NeedsRates

Ts = TypeVarTuple("Ts")


def kept_by_wiring(most: int) -> Callable[[Callable[[Topology, *Ts], Pattern]], Callable[[Topology, *Ts], Pattern]]:
    """Decorate a function that builds the pattern of an algorithm on a topology; arguments must be hashable.

    The pattern is built on the wiring, which has no rates and no latencies, and serves all topologies of it. A builder
    that reads some builds for its topology alone. `most`: patterns that are kept.
    """

    def decorated(build: Callable[[Topology, *Ts], Pattern]) -> Callable[[Topology, *Ts], Pattern]:
        @lru_cache(maxsize=most)
        def attempt(wiring: Topology, *args: *Ts) -> Pattern | None:
            try:
                return build(wiring, *args)
            except NeedsRates:
                return None

        alone = lru_cache(maxsize=most)(build)
        placed = lru_cache(maxsize=most)(Pattern.on)

        @wraps(build)
        def pattern(topology: Topology, *args: *Ts) -> Pattern:
            wiring = wiring_of(topology)
            shared = None if wiring is topology else attempt(wiring, *args)
            return alone(topology, *args) if shared is None else placed(shared, topology)

        return pattern

    return decorated


def by_wiring(build: Callable[[Topology, *Ts], Pattern]) -> Callable[[Topology, *Ts], Pattern]:
    """`kept_by_wiring`, for as many patterns as an algorithm usually has."""
    return kept_by_wiring(64)(build)
