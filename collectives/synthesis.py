"""Greedy synthesis: a schedule found by filling the links of a network that is expanded in time (TACOS-like).

Whenever a link is free it takes a block that its near end has and its far end lacks, the rarest first and by lot among
equals; links that deliver soonest choose first (W. Won et al., "TACOS: topology-aware collective algorithm
synthesizer", MICRO 2024). The best of several runs is taken. Transfers then follow the found order on every link. A
second opinion on any network: links past switches are those of `collectives.trees.edge_splitting`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from collectives.core.transfers import take
from collectives.trees.edge_splitting import without_switches
from collectives.trees.shares import gather_shares
from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered
from topologies.units import PS_PER_S, Quantity, parse_size

NAME = "tacos"
DEFAULT_RUNS = 3
MOST_MATCHES = 100_000
"""Blocks times NPUs up to which a schedule is searched: some ten seconds a run."""


class Way(NamedTuple):
    """A link of its own, or a path past switches with its share of their bandwidth."""

    src: int
    dst: int
    links: tuple[int, ...]
    rate_Bps: float
    latency_ps: int


class Match(NamedTuple):
    """A block on a way, from a time to a time."""

    way: int
    block: int
    start_ps: int
    end_ps: int


def all_gather(
    topology: Topology, size: Quantity, *, parts: int = 1, seed: int = 0, runs: int = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Synthesised all-gather.

    Parameters
    ----------
    topology : Topology
    size : quantity
        Bytes of the array: the search weighs latency against bandwidth.
    parts : int
        Blocks of each rank.
    seed : int
        Of the lots: the same schedule for the same seed.
    runs : int
        Searches, of which the best is taken.
    element_bytes : int

    Raises
    ------
    WeftError
        NPUs that cannot be reached, or a search that would take minutes.
    """
    return _schedule(topology, "all-gather", size, parts, seed, runs, element_bytes)


def reduce_scatter(
    topology: Topology, size: Quantity, *, parts: int = 1, seed: int = 0, runs: int = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """An all-gather on the reversed network, run backwards; parameters as for `all_gather`."""
    return _schedule(topology, "reduce-scatter", size, parts, seed, runs, element_bytes)


def all_reduce(
    topology: Topology, size: Quantity, *, parts: int = 1, seed: int = 0, runs: int = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Reduce-scatter, then all-gather; parameters as for `all_gather`."""
    return _schedule(topology, "all-reduce", size, parts, seed, runs, element_bytes)


def _schedule(
    topology: Topology, kind: str, size: Quantity, parts: int, seed: int, runs: int, element_bytes: int
) -> Schedule:
    if parts < 1 or runs < 1:
        raise WeftError(f"{NAME} with parts={parts}, runs={runs}: both are whole numbers above zero")
    n_blocks = topology.n_npus * parts
    if n_blocks * topology.n_npus > MOST_MATCHES:
        raise WeftError(
            f"{NAME} on {topology.name}: {n_blocks} blocks to {topology.n_npus} NPUs are too many to search "
            f"(more than {MOST_MATCHES:,})"
        )
    block_bytes = -(-parse_size(size) // n_blocks)
    return schedule(_pattern(topology, kind, parts, seed, runs, block_bytes), size, element_bytes)


@remembered
def _pattern(topology: Topology, kind: str, parts: int, seed: int, runs: int, block_bytes: int) -> Pattern:
    sends = SendList()
    roots: dict[int, list[int]] = {}
    if kind != "all-gather":
        roots = _add_up(sends, *search(topology, parts, seed, runs, block_bytes, inward=True), topology.n_npus)
    if kind != "reduce-scatter":
        _add_down(sends, *search(topology, parts, seed, runs, block_bytes), roots)
    transfers, blocks = sends.build()
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=topology.n_npus * parts,
        emit=lambda ranks: take(transfers, np.flatnonzero(np.isin(transfers.src, ranks))),
        blocks_of=lambda source, slot: blocks[source, slot],
    )


def search(
    topology: Topology, parts: int, seed: int, runs: int, block_bytes: int, *, inward: bool = False
) -> tuple[list[Way], list[Match]]:
    """The best all-gather of several runs: its ways and its matches by their start.

    With `inward` the network is searched backwards, and ways keep their own direction.
    """
    ways = ways_of(topology)
    ends = [(way.dst, way.src) if inward else (way.src, way.dst) for way in ways]
    costs = [way.latency_ps + -(-block_bytes * PS_PER_S // int(way.rate_Bps)) for way in ways]
    found = [_run(topology, ends, costs, parts, np.random.default_rng([seed, run])) for run in range(runs)]
    return ways, min(found, key=lambda matches: max((match.end_ps for match in matches), default=0))


@remembered
def ways_of(topology: Topology) -> list[Way]:
    """Direct links, and paths past switches."""
    t = topology
    if t.n_nodes == t.n_npus:
        return [_way(t, (link,), float(t.bandwidth_Bps[link])) for link in range(t.n_links)]
    shares = gather_shares(t, 1)  # few trees: a way of a thin share would be chosen and hold a block up
    logical = without_switches(t, shares.links, shares.roots)
    return [
        _way(t, links, many / float(shares.s_per_block_byte))
        for found in logical.paths.values() for links, many in found
        if int(t.src[links[0]]) < t.n_npus and int(t.dst[links[-1]]) < t.n_npus
    ]


def _way(t: Topology, links: Sequence[int], rate_Bps: float) -> Way:
    latency = sum(int(t.latency_ps[link]) + int(t.hop_latency_ps[t.dst[link]]) for link in links)
    return Way(int(t.src[links[0]]), int(t.dst[links[-1]]), tuple(links), rate_Bps, latency)


def _run(
    topology: Topology, ends: list[tuple[int, int]], costs: list[int], parts: int, rng: np.random.Generator
) -> list[Match]:
    """One search."""
    n = topology.n_npus
    n_blocks = n * parts
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lacks = ~holds  # neither there nor on the way
    holders = np.ones(n_blocks)
    leaving: list[list[int]] = [[] for _ in range(n)]
    entering: list[list[int]] = [[] for _ in range(n)]
    for way, (src, dst) in enumerate(ends):
        leaving[src].append(way)
        entering[dst].append(way)
    free = np.ones(len(ends), np.bool_)
    matches: list[Match] = []
    arrivals: list[tuple[int, int, int]] = []
    now, ready = 0, set(range(len(ends)))
    while True:
        for way in sorted(ready, key=lambda one: (costs[one], rng.random())):
            src, dst = ends[way]
            wanted = np.flatnonzero(holds[src] & lacks[dst])
            if not free[way] or not wanted.size:
                continue
            block = int(wanted[np.argmin(holders[wanted] + rng.random(wanted.size))])
            lacks[dst, block], free[way] = False, False
            holders[block] += 1
            matches.append(Match(way, block, now, now + costs[way]))
            heapq.heappush(arrivals, (now + costs[way], way, block))
        if not arrivals:
            break
        now, ready = arrivals[0][0], set()
        while arrivals and arrivals[0][0] == now:
            _, way, block = heapq.heappop(arrivals)
            dst = ends[way][1]
            holds[dst, block], free[way] = True, True
            ready.update([way, *leaving[dst]])
    if np.any(lacks):
        rank, block = np.argwhere(lacks)[0].tolist()
        start, end = topology.node_name(block % n), topology.node_name(rank)
        raise WeftError(f"topology {topology.name}: no route leads from {start} to {end}")
    return matches


def _add_down(sends: SendList, ways: list[Way], matches: list[Match], roots: dict[int, list[int]]) -> None:
    """Transfers in their order: each waits for its block, and for the one before it on its way."""
    brings: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (one.start_ps, one.way)):
        way = ways[match.way]
        held = brings.get((way.src, match.block))
        after = {one for one in (held, last.get(match.way)) if one is not None}
        after |= set(roots.get(match.block, ())) if held is None else set()
        number = sends.add(way.src, way.dst, [match.block], after=sorted(after), links=way.links)
        brings[way.dst, match.block] = last[match.way] = number


def _add_up(sends: SendList, ways: list[Way], matches: list[Match], n: int) -> dict[int, list[int]]:
    """The same backwards in time, receivers adding; what brings each block to its root."""
    into: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (-one.end_ps, one.way)):
        way = ways[match.way]
        after = set(into.get((way.src, match.block), ())) | ({last[match.way]} if match.way in last else set())
        number = sends.add(way.src, way.dst, [match.block], after=sorted(after), links=way.links, reduces=True)
        into.setdefault((way.dst, match.block), []).append(number)
        last[match.way] = number
    return {block: numbers for (rank, block), numbers in into.items() if rank == block % n}
