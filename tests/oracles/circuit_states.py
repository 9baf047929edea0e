"""Slow and obvious: all states of a few ports, all sequences of states, each part of a schedule simulated on each.

Ports that change places make no other state; and a state on which hops, or then routes, alone take longer than another
takes whole is not simulated.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives import Schedule, Transfers
from collectives.reconfigured import in_matchings, of_rows, of_steps, part, step_pairs
from sim import simulate
from sim.program.model import Model
from topologies import Topology, from_spec, optical
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


class Every(NamedTuple):
    """Every state; circuits (n_states, n, n), and hops of a shortest way, infinite where there is none."""

    fabric: Topology
    states: list[tuple[Pair, ...]]
    circuits: npt.NDArray[np.float64]
    hops: npt.NDArray[np.float64]


@lru_cache(maxsize=1)
def every(n: int, ports: int, duplex: bool = False) -> Every:
    """Every state; ways are as long as in Floyd's and Warshall's algorithm."""
    found = states(n, ports, duplex)
    circuits = np.zeros((len(found), n, n))
    for number, state in enumerate(found):
        for a, b in state:
            circuits[number, a, b] += 1
            circuits[number, b, a] += duplex
    hops = np.where(circuits > 0, 1.0, np.inf)
    hops[:, range(n), range(n)] = 0
    for via in range(n):
        hops = np.minimum(hops, hops[:, :, via, None] + hops[:, None, via])
    return Every(from_spec(f"ocs:{n}x{ports}" + ",duplex" * duplex), found, circuits, hops)


@lru_cache(maxsize=2**15)
def routes_of(n: int, ports: int, duplex: bool, number: int) -> Routes:
    """The routes of a state between the servers that it joins."""
    of = every(n, ports, duplex)
    one = made(of.fabric, of.states[number])
    pairs = np.argwhere((of.hops[number] > 0) & (of.hops[number] < np.inf))
    paths, rates = one.paths(*pairs.T), one.bandwidth_Bps.tolist()
    return {(a, b): [(link, rates[link]) for link in paths.links[paths.ptr[at] : paths.ptr[at + 1]].tolist()]
            for at, (a, b) in enumerate(pairs.tolist())}


def quick_bounds_ps(t: Transfers, block_bytes: int, of: Every, fabric: Topology) -> npt.NDArray[np.float64]:
    """What transfers take at least on each state, whatever their routes.

    Each its hops, and its bytes at the rate of its circuits, or of most others; what waits for each other one after
    the other. Circuits carry what goes over them alone, servers what they send or receive, all what crosses them.
    """
    n, link_ps, ps_per_byte = fabric.n_npus, float(fabric.latency_ps.min()), 1e12 / fabric.optics.rate_Bps
    widest = np.minimum(of.circuits.max(axis=2)[:, :, None], of.circuits.max(axis=1)[:, None])
    at_once = np.where(of.hops == 1, of.circuits, np.maximum(widest, 1))
    sent, ended = np.zeros((n, n)), dict[Pair, npt.NDArray[np.float64]]()
    none = np.zeros(len(of.states))
    for row in np.argsort(t.step, kind="stable").tolist():
        src, dst, size = int(t.src[row]), int(t.dst[row]), int(t.blocks[row]) * block_bytes
        begun = none
        for at in range(t.dep_ptr[row], t.dep_ptr[row + 1]):
            begun = np.maximum(begun, ended.get((int(t.dep_src[at]), int(t.dep_slot[at])), none))
        takes = none if src == dst else of.hops[:, src, dst] * link_ps + size * ps_per_byte / at_once[:, src, dst]
        ended[src, int(t.slot[row])] = begun + takes
        sent[src, dst] += size * (src != dst)
    alone = np.where(of.hops == 1, sent, 0.0) / np.maximum(of.circuits, 1)
    crossed = (np.where(sent > 0, of.hops, 0.0) * sent).sum(axis=(1, 2)) / of.circuits.sum(axis=(1, 2))
    ends = [(sent.sum(axis=2 - axis) / np.maximum(of.circuits.sum(axis=3 - axis), 1)).max(axis=1) for axis in (1, 2)]
    busy = np.max([alone.max(axis=(1, 2)), crossed, *ends], axis=0)
    return np.max([*ended.values(), busy * ps_per_byte + link_ps * bool(sent.any())], axis=0) * (1 - 1e-9)


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
    of = every(fabric.n_npus, fabric.optics.ports, fabric.optics.duplex)
    quick, found = quick_bounds_ps(t, schedule.block_bytes, of, fabric), np.inf
    for number in np.argsort(quick, kind="stable").tolist():
        if quick[number] == np.inf or (quick[number] >= found and not whole):
            break
        routes = routes_of(fabric.n_npus, fabric.optics.ports, fabric.optics.duplex, number)
        bound = bound_ps(t, schedule.block_bytes, routes, int(fabric.latency_ps.min()))
        assert bound >= quick[number] * (1 - 1e-9)
        if bound < found or whole:
            time_ps = simulate(part(schedule, t, made(fabric, of.states[number])), model=model).time_ps
            assert time_ps >= bound
            found = min(found, time_ps)
    return found


def least_ps(schedule: Schedule, model: Model, delays_ps: list[int], whole: bool = False) -> list[float]:
    """The least time of any sequence of states, the first of which is up, for each delay of the whole fabric.

    Parts count with a bound until they are of the least sum; then they are simulated, and it is sought again. `whole`:
    every part on every state.
    """
    schedule = in_matchings(schedule)
    fabric, n, found = schedule.topology, len(step_pairs(schedule)), list[float]()
    of = every(fabric.n_npus, fabric.optics.ports, fabric.optics.duplex)
    parts = {ends: of_steps(schedule, *ends) for ends in itertools.combinations_with_replacement(range(n), 2)}
    price = {ends: part_ps(schedule, model, t, whole) if whole
             else quick_bounds_ps(t, schedule.block_bytes, of, fabric).min() for ends, t in parts.items()}
    known = set(parts) if whole else set[Pair]()
    for delay_ps in delays_ps:
        while True:
            best: list[tuple[float, set[Pair]]] = [(-delay_ps, set())]  # after so many steps, and of which parts
            for last in range(n):
                best.append(min(((best[first][0] + delay_ps + price[first, last], best[first][1] | {(first, last)})
                                 for first in range(last + 1)), key=lambda one: one[0]))
            if known >= best[n][1]:
                break
            for ends in best[n][1] - known:
                price[ends] = part_ps(schedule, model, parts[ends])
            known |= best[n][1]
        found.append(best[n][0])
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
