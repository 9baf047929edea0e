"""Slow and obvious: all states of a few ports, all sequences of states, each part of a schedule simulated on each."""

from __future__ import annotations

import itertools

from collectives import Schedule
from collectives.reconfigured import has_routes, in_matchings, of_steps, part, step_pairs
from sim import simulate
from sim.program.model import Model
from topologies import Topology, optical
from topologies.optics import links_of


def states(fabric: Topology) -> list[Topology]:
    """All circuits that take every simplex port."""
    n, ports = fabric.n_npus, fabric.optics.ports
    full = [one for one in itertools.permutations(range(n)) if all(a != b for a, b in enumerate(one))]
    return [
        optical(n, ports, tuple((a, b) for one in some for a, b in enumerate(one)), False, **links_of(fabric))
        for some in itertools.combinations_with_replacement(full, ports)
    ]


def least_ps(schedule: Schedule, model: Model, delays_ps: list[int]) -> list[int]:
    """The least time of any sequence of states, the first of which is up, for each delay of the whole fabric."""
    every, schedule = states(schedule.topology), in_matchings(schedule)
    n = len(step_pairs(schedule))
    price: dict[tuple[int, int], list[int | None]] = {}
    for first, last in itertools.combinations_with_replacement(range(n), 2):
        t = of_steps(schedule, first, last)
        price[first, last] = [
            simulate(part(schedule, t, one), model=model).time_ps if has_routes(one, t) else None for one in every
        ]
    found = []
    for delay_ps in delays_ps:
        best = [0] + [2**62] * n  # after so many steps; a run of steps on one state ends there
        for last in range(n):
            for first in range(last + 1):
                runs = [one for one in price[first, last] if one is not None]
                if runs:
                    best[last + 1] = min(best[last + 1], best[first] + min(runs) + delay_ps * (first > 0))
        found.append(best[n])
    return found
