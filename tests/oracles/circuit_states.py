"""Slow and obvious: all states of a few ports, all sequences of states, each part of a schedule simulated on each.

Ports that change places make no other state; and a state on which the routes alone take longer than another takes whole
is not simulated.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import lru_cache

import numpy as np

from collectives import Schedule, Transfers
from collectives.reconfigured import in_matchings, of_rows, of_steps, part, step_pairs
from sim import simulate
from sim.program.model import Model
from topologies import Topology, WeftError, from_spec, optical
from topologies.optics import links_of

Pair = tuple[int, int]
Routes = dict[Pair, list[tuple[int, float]]]
"""Links, and their rates, from each server to each other; none where there is no way."""


def states(n: int, ports: int, duplex: bool = False) -> list[tuple[Pair, ...]]:
    """All circuits that take every simplex port; all cables between duplex ports, as long as there is room for one."""
    if duplex:
        pairs, found = [*itertools.combinations(range(n), 2)], []
        for count in range(n * ports // 2 + 1):
            for some in itertools.combinations_with_replacement(pairs, count):
                taken = Counter(end for pair in some for end in pair)
                fits = all(taken[end] <= ports for end in range(n))
                if fits and not any(taken[a] < ports and taken[b] < ports for a, b in pairs):
                    found.append(some)
        return found
    full = [one for one in itertools.permutations(range(n)) if all(a != b for a, b in enumerate(one))]
    return list(dict.fromkeys(
        tuple(sorted((a, b) for one in some for a, b in enumerate(one)))
        for some in itertools.combinations_with_replacement(full, ports)
    ))


def made(fabric: Topology, state: tuple[Pair, ...]) -> Topology:
    return optical(fabric.n_npus, fabric.optics.ports, state, fabric.optics.duplex, **links_of(fabric))


@lru_cache(maxsize=1)
def every(n: int, ports: int, duplex: bool = False) -> list[tuple[tuple[Pair, ...], Routes]]:
    """Every state with its routes."""
    found, plain = [], from_spec(f"ocs:{n}x{ports}" + ",duplex" * duplex)
    for state in states(n, ports, duplex):
        routes, one = {}, made(plain, state)
        for pair in itertools.permutations(range(n), 2):
            try:
                links = one.paths(*np.array(pair)[:, None]).links.tolist()
            except WeftError:
                continue
            routes[pair] = [(link, float(one.bandwidth_Bps[link])) for link in links]
        found.append((state, routes))
    return found


def bound_ps(t: Transfers, block_bytes: int, routes: Routes, link_ps: int) -> float:
    """What routes take at least: the link that carries most, and transfers that wait for each other, whole."""
    busy, ended = Counter[int](), dict[Pair, float]()
    for row in np.argsort(t.step, kind="stable").tolist():
        src, dst, size = int(t.src[row]), int(t.dst[row]), int(t.blocks[row]) * block_bytes
        waits = range(t.dep_ptr[row], t.dep_ptr[row + 1])
        begun = max((ended.get((int(t.dep_src[at]), int(t.dep_slot[at])), 0.0) for at in waits), default=0.0)
        if src != dst and (src, dst) not in routes:
            return np.inf
        links = [] if src == dst else routes[src, dst]
        for link, rate in links:
            busy[link] += size / rate * 1e12
        slowest = max((size / rate * 1e12 for _, rate in links), default=0.0)
        ended[src, int(t.slot[row])] = begun + len(links) * link_ps + slowest
    return max(*ended.values(), *(time + link_ps for time in busy.values()), 0.0) * (1 - 1e-9)


def part_ps(schedule: Schedule, model: Model, t: Transfers, whole: bool = False) -> float:
    """The least that some transfers take on any state; `whole`: with every state simulated."""
    fabric = schedule.topology
    assert model.chunks == 1 and model.deliver == "tail"
    least = []
    for state, routes in every(fabric.n_npus, fabric.optics.ports, fabric.optics.duplex):
        least.append((bound_ps(t, schedule.block_bytes, routes, int(fabric.latency_ps.min())), state))
    found = np.inf
    for bound, state in sorted(least):
        if bound == np.inf or (bound >= found and not whole):
            break
        time_ps = simulate(part(schedule, t, made(fabric, state)), model=model).time_ps
        assert time_ps >= bound
        found = min(found, time_ps)
    return found


def least_ps(schedule: Schedule, model: Model, delays_ps: list[int], whole: bool = False) -> list[float]:
    """The least time of any sequence of states, the first of which is up, for each delay of the whole fabric."""
    schedule = in_matchings(schedule)
    n = len(step_pairs(schedule))
    price = {(first, last): part_ps(schedule, model, of_steps(schedule, first, last), whole)
             for first, last in itertools.combinations_with_replacement(range(n), 2)}
    found = []
    for delay_ps in delays_ps:
        best = [0.0] + [np.inf] * n  # after so many steps; a run of steps on one state ends there
        for first, last in sorted(price, key=lambda one: one[1]):
            best[last + 1] = min(best[last + 1], best[first] + price[first, last] + delay_ps * (first > 0))
        found.append(best[n])
    return found


def least_union_ps(schedule: Schedule, model: Model, delays_ps: list[int]) -> list[float]:
    """The least time of transfers that wait for nothing, for each delay, whatever is up together and when.

    Both ways of a pair are up together; every set of pairs is put on every state, and every sequence of sets is tried.
    """
    t = schedule.pattern.transfers()
    assert t.dep_src.size == 0
    pairs = sorted({(min(pair), max(pair)) for pair in zip(t.src.tolist(), t.dst.tolist(), strict=True)
                    if pair[0] != pair[1]})
    number = np.array([pairs.index((min(a, b), max(a, b))) if a != b else 0
                       for a, b in zip(t.src.tolist(), t.dst.tolist(), strict=True)])
    price = [0.0] + [part_ps(schedule, model, of_rows(t, np.flatnonzero(some >> number & 1)))
                     for some in range(1, 2 ** len(pairs))]
    found = []
    for delay_ps in delays_ps:
        best = [-float(delay_ps)]  # of each set of pairs: the first circuits are up
        for some in range(1, len(price)):
            last, least = some, np.inf
            while last:
                least = min(least, best[some ^ last] + delay_ps + price[last])
                last = (last - 1) & some
            best.append(least)
        found.append(best[-1])
    return found
